package simswitch

import (
	"encoding/json"
	"encoding/xml"
	"strings"
	"time"
)

// noInput is how long a simulated recognizer waits for somebody to say something.
const noInput = 5 * time.Second

// appPlayAndDetectSpeech is play_and_detect_speech_function: `file detect:engine grammar`. A recognizer is there when the switch has the
// module of its name (mod_vosk for vosk). What it understands is what the party's script has it say: speech ends the prompt.
func (c *channel) appPlayAndDetectSpeech(data string) {
	c.set("detect_speech_result", "")
	response := "USAGE ERROR"
	file, detect, found := strings.Cut(data, "detect:")
	if words := separate(detect, ' ', 2); found && len(words) == 2 {
		response = c.detectSpeech(strings.TrimRight(file, " "), words[0])
	} else {
		c.sw.log.Error("play_and_detect_speech needs a file, an engine and a grammar", "channel", c.uuid)
	}
	c.set("current_application_response", response)
}

func (c *channel) detectSpeech(file, engine string) string {
	name, _, _ := strings.Cut(engine, ":")
	if !c.sw.hasModule("mod_" + name) {
		return "ASR INIT ERROR"
	}
	if c.script != nil {
		c.script.listened()
	}
	heard := false
	said := func(byte) bool { return false }
	result := c.playUntil(file, said, func() bool {
		heard = c.hasSpeech()
		return heard
	})
	if result == missing {
		return "ERROR"
	}
	limit := c.sw.clock.now().Add(noInput)
	for !heard && c.ready() && c.sw.clock.now().Before(limit) {
		c.waitUntil(limit.Sub(c.sw.clock.now()), said, func() bool {
			heard = c.hasSpeech()
			return heard
		})
	}
	if text, ok := c.takeSpeech(); ok {
		c.set("detect_speech_result", speechResult(name, text))
	}
	if !c.ready() {
		return "ERROR"
	}
	return "DONE"
}

// speechResult is what a recognizer makes of a text: what it is when it is a document already, vosk's JSON, or the interpretation
// that other recognizers return.
func speechResult(engine, text string) string {
	if strings.HasPrefix(text, "<") || strings.HasPrefix(text, "{") {
		return text
	}
	if engine == "vosk" {
		b, err := json.Marshal(map[string]string{"text": text})
		if err != nil {
			return ""
		}
		return string(b)
	}
	var escaped strings.Builder
	if err := xml.EscapeText(&escaped, []byte(text)); err != nil {
		return ""
	}
	return `<?xml version="1.0"?><result><interpretation confidence="90"><input mode="speech">` + escaped.String() +
		`</input></interpretation></result>`
}

// say is something that the party says to a recognizer.
func (c *channel) say(text string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.speech = append(c.speech, text)
	c.poke()
}

func (c *channel) hasSpeech() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.speech) > 0
}

func (c *channel) takeSpeech() (string, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.speech) == 0 {
		return "", false
	}
	text := c.speech[0]
	c.speech = c.speech[1:]
	return text, true
}

package simswitch

import (
	"strings"
	"time"
)

// appPlayback is playback_function: the response tells how it went.
func (c *channel) appPlayback(data string) {
	file, _, _ := strings.Cut(data, "@@")
	response := "PLAYBACK ERROR"
	switch c.play(file, c.terminators()) {
	case finished, broken:
		response = "FILE PLAYED"
	case missing:
		response = "FILE NOT FOUND"
	case hungUp:
		// A BYE is noticed between two frames and fails the playback; a hang-up from another thread wakes the read in the
		// middle of it, which ends the playback without an error.
		if !c.hungUpRemotely() && !c.wanted() {
			response = "FILE PLAYED"
		}
	}
	c.set("current_application_response", response)
}

func (c *channel) hungUpRemotely() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.remote
}

// play is switch_ivr_play_file: one file or stream, or several joined with playback_delimiter.
func (c *channel) play(file string, in input) outcome {
	return c.playUntil(file, in, nil)
}

// playUntil is play that also ends, as broken, once something else has happened.
func (c *channel) playUntil(file string, in input, happened func() bool) outcome {
	if file == "" {
		return missing
	}
	if delim := c.variable("playback_delimiter"); delim != "" {
		result := missing
		for _, part := range separate(file, delim[0], 128) {
			if result = c.playOne(part, in, happened); result == broken || result == hungUp {
				return result
			}
		}
		return result
	}
	return c.playOne(file, in, happened)
}

func (c *channel) playOne(file string, in input, happened func() bool) outcome {
	if text, ok := strings.CutPrefix(file, "say:"); ok {
		return c.speak(c.variable("tts_engine"), c.variable("tts_voice"), text, in)
	}
	if strings.HasPrefix(file, "{") {
		_, rest, err := brackets(file, '{', '}', ',')
		if err != nil {
			return missing
		}
		file = rest
	}
	length, err := mediaLength(file)
	if err != nil {
		c.sw.log.Warn("cannot play", "file", file, "channel", c.uuid, "error", err)
		return missing
	}
	about := []header{{"Playback-File-Path", file}}
	if strings.HasPrefix(file, "tone_stream:") {
		about = []header{{"Playback-File-Type", "tone_stream"}, {"Playback-File-Path", file}}
	}
	c.fire(evPlaybackStart, fromPlay, about...)
	begun := c.sw.clock.now()
	result := c.waitUntil(length, in, happened)
	played := c.sw.clock.now().Sub(begun)
	if length >= 0 && (result == finished || played > length) {
		played = length
	}
	status := "done"
	if result == broken {
		status = "break"
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	samples := int(played.Milliseconds()) * 8
	c.setLocked("playback_last_offset_pos", itoa(samples))
	c.setLocked("playback_seconds", itoa(int(played.Seconds())))
	c.setLocked("playback_ms", itoa(int(played.Milliseconds())))
	c.setLocked("playback_samples", itoa(samples))
	c.fireLocked(evPlaybackStop, fromPlay, append(about, header{"Playback-Status", status})...)
	return result
}

// speechPerCharacter is how long flite speaks per character of English: 1.37 s for 17 characters (measured).
const speechPerCharacter = 80 * time.Millisecond

// appSpeak is speak_function: `engine|voice|text`. Only flite and its voices are simulated; another engine fails at once
// without hanging up, as a missing module does.
func (c *channel) appSpeak(data string) {
	parts := strings.SplitN(data, "|", 3)
	engine, voice := c.variable("tts_engine"), c.variable("tts_voice")
	text := parts[len(parts)-1]
	switch len(parts) {
	case 2:
		voice = parts[0]
	case 3:
		engine, voice = parts[0], parts[1]
	}
	if engine == "" || voice == "" || text == "" {
		c.sw.log.Error("speak without engine, voice or text", "channel", c.uuid)
		c.hangup(causeOutOfOrder)
		return
	}
	c.speak(engine, voice, text, c.terminators())
}

// speak is switch_ivr_speak_text, for speak and for a file named say:text. Only flite and its voices are simulated.
func (c *channel) speak(engine, voice, text string, in input) outcome {
	if text = strings.TrimLeft(text, " "); strings.HasPrefix(text, "{") {
		_, rest, err := brackets(text, '{', '}', ',')
		if err != nil {
			c.sw.log.Error("speak parameters are not closed", "channel", c.uuid)
			return missing
		}
		text = rest
	}
	if !strings.EqualFold(engine, "flite") {
		c.sw.log.Error("speech engine is not simulated", "engine", engine, "channel", c.uuid)
		return missing
	}
	switch voice {
	case "slt", "rms", "awb", "kal":
	default:
		c.sw.log.Error("flite has no such voice", "voice", voice, "channel", c.uuid)
		return missing
	}
	length := max(300*time.Millisecond, time.Duration(len([]rune(text)))*speechPerCharacter)
	return c.wait(length, in)
}

// gather is the arguments of play_and_get_digits.
type gather struct {
	least, most, tries    int
	timeout, digitTimeout time.Duration
	terminators           string
	prompt, invalid       string
	variable, expression  string
}

// parseGather is play_and_get_digits_function (mod_dptools.c): blank-separated, at most eleven words, and no timeout below
// a second.
func parseGather(data string) (gather, bool) {
	words := separate(data, ' ', 11)
	if len(words) == 0 {
		return gather{}, false
	}
	word := func(i int) string {
		if i < len(words) {
			return words[i]
		}
		return ""
	}
	g := gather{
		least:       max(leadingInt(word(0)), 0),
		most:        leadingInt(word(1)),
		tries:       leadingInt(word(2)),
		timeout:     time.Second,
		terminators: word(4),
		prompt:      word(5),
		invalid:     word(6),
		variable:    word(7),
		expression:  word(8),
	}
	g.most = max(g.most, g.least)
	if len(words) > 3 {
		g.timeout = max(time.Second, time.Duration(leadingInt(word(3)))*time.Millisecond)
	}
	if g.terminators == "" {
		g.terminators = "#"
	}
	g.digitTimeout = time.Duration(max(leadingInt(word(9)), 0)) * time.Millisecond
	if g.digitTimeout == 0 {
		g.digitTimeout = g.timeout
	}
	return g, true
}

// appPlayAndGetDigits is switch_play_and_get_digits (switch_ivr_play_say.c).
func (c *channel) appPlayAndGetDigits(data string) {
	g, ok := parseGather(data)
	if !ok {
		c.sw.log.Error("play_and_get_digits without arguments", "channel", c.uuid)
		return
	}
	if g.variable != "" && g.expression != "" {
		c.set(g.variable+"_invalid", "")
	}
	if c.script != nil {
		c.script.asked()
	}
	for tries := g.tries; tries > 0 && c.ready(); tries-- {
		digits, result := c.read(g)
		if result == restarted {
			return
		}
		if result == timedOut && len(digits) >= g.least {
			result = finished
		}
		if g.least == 0 && digits == "" && c.variable("read_terminator_used") != "" {
			return
		}
		if result == finished && digits != "" {
			if g.expression == "" || matchesPattern(g.expression, digits) {
				return
			}
			c.set(g.variable, "")
			if g.variable != "" {
				c.set(g.variable+"_invalid", digits)
			}
		}
		if !c.ready() {
			return
		}
		c.play(g.invalid, nil)
	}
}

// read is switch_ivr_read: it plays the prompt, which the first digit ends, and then collects.
func (c *channel) read(g gather) (string, outcome) {
	c.set("read_result", "")
	c.set(g.variable, "")
	if !c.preAnswer() {
		return "", hungUp
	}
	var digits []byte
	result := finished
	if g.prompt != "" && !strings.EqualFold(g.prompt, "silence") {
		result = c.play(g.prompt, func(digit byte) bool {
			digits = append(digits, digit)
			return true
		})
		if result == broken {
			result = finished
		}
	}
	if result != finished {
		return "", result
	}
	var terminator byte
	if len(digits) < g.most {
		digits, terminator, result = c.collect(g, digits)
	}
	required := strings.HasPrefix(g.terminators, "=")
	if terminator != 0 {
		c.set("read_terminator_used", string(terminator))
		if i := strings.IndexByte(g.terminators, terminator); i > 0 && (g.terminators[i-1] == '+' || g.terminators[i-1] == 'x') {
			digits = append(digits, terminator)
			if g.terminators[i-1] == 'x' {
				result = restarted
			}
		}
	} else if required {
		result = tooSmall
	}
	if len(digits) < g.least {
		result = tooSmall
	}
	verdict := "failure"
	switch result {
	case finished:
		verdict = "success"
	case timedOut:
		verdict = "timeout"
	}
	c.set("read_result", verdict)
	if result != restarted && g.most == 1 && len(digits) == 1 && strings.IndexByte(g.terminators, digits[0]) >= 0 {
		digits = nil
	}
	if g.variable != "" && len(digits) > 0 {
		c.set(g.variable, string(digits))
	}
	return string(digits), result
}

// collect is switch_ivr_collect_digits_count: the first digit may take timeout, each further one digit_timeout. It does not
// heed uuid_break.
func (c *channel) collect(g gather, digits []byte) ([]byte, byte, outcome) {
	for i, digit := range digits {
		if strings.IndexByte(g.terminators, digit) >= 0 {
			return digits[:i], digit, finished
		}
	}
	limit := g.timeout
	if len(digits) > 0 {
		limit = g.digitTimeout
	}
	for {
		var got byte
		begun := c.sw.clock.now()
		result := broken
		for result == broken && got == 0 {
			left := max(0, limit-c.sw.clock.now().Sub(begun))
			result = c.wait(left, func(digit byte) bool {
				got = digit
				return true
			})
		}
		if got == 0 {
			if result == finished {
				result = timedOut
			}
			return digits, 0, result
		}
		if strings.IndexByte(g.terminators, got) >= 0 {
			return digits, got, finished
		}
		digits = append(digits, got)
		if len(digits) >= g.most {
			return digits, 0, finished
		}
		limit = g.digitTimeout
	}
}

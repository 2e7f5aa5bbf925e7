package simulator

import (
	"encoding/binary"
	"fmt"
	"os"
	"strings"
	"time"

	"tandem/actions"
	"tandem/esl"
)

// pending is an application that goes on until a command ends it: a bridge whose party is being judged, or a listening that a key ends.
type pending struct {
	channel, eventUUID, app string
	party                   *party
	how                     *Dial
}

// complete ends what is pending, and says whether there was anything.
func (g *stage) complete(result ...string) bool {
	g.mu.Lock()
	p := g.pending
	g.pending = nil
	g.mu.Unlock()
	if p == nil {
		return false
	}
	g.event("CHANNEL_EXECUTE_COMPLETE", p.channel, append([]string{"Application", p.app, "Application-UUID", p.eventUUID}, result...)...)
	return true
}

// Greetings of who answers, by the script's word: silence, then sound.
var greetings = map[string]struct{ silence, sound time.Duration }{
	"human":   {300 * time.Millisecond, 700 * time.Millisecond},
	"machine": {300 * time.Millisecond, 5 * time.Second},
	"unknown": {5 * time.Second, 0},
}

// greet lets the party on a channel say what the script has it say, into the file that machine detection judges.
func (g *stage) greet(channelID, file string, o esl.RecordOptions) error {
	who := "human"
	if in := g.cast.next(g.current, func(in *Input) bool { return in.Machine != "" }); in != nil {
		who = in.Machine
	}
	said := greetings[who]
	g.clock.pass(said.silence + said.sound + o.FinalSilence)
	if err := writeGreeting(file, said.silence, said.sound, o.FinalSilence); err != nil {
		return fmt.Errorf("simulate a greeting: %w", err)
	}
	g.event("RECORD_STOP", channelID, "Record-File-Path", file)
	g.mu.Lock()
	p := g.pending
	g.mu.Unlock()
	if p == nil || p.party == nil || p.party.channel != channelID {
		return nil
	}
	if d, ok := g.current.(*actions.Dial); ok && d.MachineDetection.Async && (who != "machine" || d.MachineDetection.OnMachine != actions.OnMachineHangup) {
		g.talkOn(false)
	}
	return nil
}

// talkOn lets the caller and the party that was judged talk, and ends the bridge. join says that they do not hear each other yet.
func (g *stage) talkOn(join bool) {
	g.mu.Lock()
	p := g.pending
	g.mu.Unlock()
	if join {
		g.answer(p.channel)
		g.event("CHANNEL_BRIDGE", p.channel, "Other-Leg-Unique-ID", p.party.channel)
	}
	if result := g.converse(p.channel, p.party, p.how); result != nil {
		g.complete(result...)
	}
}

// writeGreeting writes a WAV file of silence, a tone and silence.
func writeGreeting(file string, before, sound, after time.Duration) error {
	if err := writeSilence(file, before+sound+after); err != nil {
		return err
	}
	f, err := os.OpenFile(file, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	samples := make([]byte, int64(sound)*wavBytesPerSecond/int64(time.Second)&^1)
	for i := 0; i < len(samples); i += 2 {
		level := uint16(6000)
		if i/2/10%2 == 1 {
			level = ^level + 1
		}
		binary.LittleEndian.PutUint16(samples[i:], level)
	}
	_, err = f.WriteAt(samples, wavHeader+int64(before)*wavBytesPerSecond/int64(time.Second)&^1)
	if closed := f.Close(); err == nil {
		err = closed
	}
	return err
}

// hear lets the caller speak, or type where a key will do as well. It returns nil when a key was typed: the park that follows ends it.
func (g *stage) hear(channelID, eventUUID string) []string {
	if g.cast.hangsUp(g.current) {
		g.clock.pass(time.Second)
		g.leave(channelID)
		return nil
	}
	gather, _ := g.current.(*actions.Gather)
	if gather != nil && gather.Hears(actions.InputDigits) {
		if in := g.cast.peek(g.current, func(in *Input) bool { return in.Digits != "" || in.Speech != nil || in.Silence }); in != nil && in.Digits != "" {
			digits := in.Digits
			g.cast.next(g.current, func(in *Input) bool { return in.Digits != "" })
			g.mu.Lock()
			g.pending = &pending{channel: channelID, eventUUID: eventUUID, app: "play_and_detect_speech"}
			g.mu.Unlock()
			for i := range len(digits) {
				g.event("DTMF", channelID, "DTMF-Digit", digits[i:i+1], "DTMF-Duration", "1600")
			}
			return nil
		}
	}
	in := g.cast.next(g.current, func(in *Input) bool { return in.Speech != nil || in.Silence })
	if in == nil || in.Silence {
		g.clock.pass(5 * time.Second)
		return []string{"Application-Response", "DONE"}
	}
	g.clock.pass(time.Duration(len(in.Speech.Text)) * time.Second / 15)
	escaped := strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(in.Speech.Text)
	return []string{
		"Application-Response", "DONE",
		"variable_detect_speech_result", fmt.Sprintf(`{"alternatives":[{"text":"%s","confidence":%g}]}`, escaped, in.Speech.Confidence),
	}
}

// refer lets the caller's side do what a REFER asks, as the script says of the party that it names; by default it takes it.
func (g *stage) refer(channelID string) {
	how := &Dial{Outcome: "answered"}
	if in := g.cast.next(g.current, func(in *Input) bool { return in.Dial != nil }); in != nil {
		how = in.Dial
	}
	status := "200"
	for _, o := range outcomes {
		if o.name == how.Outcome && o.sip != "" {
			status = o.sip
		}
	}
	if how.Outcome == "no_answer" {
		status = "480"
	}
	g.clock.pass(5 * time.Second)
	g.set(channelID, "sip_refer_status_code", "202")
	g.set(channelID, "sip_refer_target_status_code", status)
}

package simulator

import (
	"encoding/binary"
	"os"
	"strconv"
	"strings"
	"time"

	"tandem/actions"
	"tandem/esl"
)

// perform plays an application and raises its completion.
func (g *stage) perform(channelID, eventUUID string, app esl.App) {
	var result []string
	switch app.Name() {
	case "answer":
		g.answer(channelID)
	case "respond":
		g.hangUp(channelID, "NORMAL_TEMPORARY_FAILURE", weRefused, "variable_sip_term_status", app.Args())
		return
	case "hangup":
		g.hangUp(channelID, app.Args(), g.disposition(channelID))
		return
	case "speak", "playback":
		result = g.listen(channelID, app)
	case "conference":
		var stays bool
		if result, stays = g.confer(channelID, app); !stays {
			return
		}
	case "sleep":
		ms, _ := strconv.Atoi(app.Args())
		g.clock.pass(time.Duration(ms) * time.Millisecond)
	case "send_dtmf":
		g.clock.pass(time.Duration(len(app.Args())) * 100 * time.Millisecond)
	case "play_and_get_digits":
		result = g.gather(channelID, strings.Fields(app.Args()))
	case "record":
		result = g.record(channelID, strings.Fields(app.Args()))
	case "play_and_detect_speech":
		if result = g.hear(channelID, eventUUID); result == nil {
			return
		}
	case "deflect":
		g.refer(channelID)
	case "redirect":
		g.hangUp(channelID, "NORMAL_UNSPECIFIED", weRefused, "variable_sip_term_status", "302")
		return
	case "bridge":
		var over bool
		if result, over = g.bridge(channelID, eventUUID, app.Args()); !over {
			return
		}
	}
	if alive, _ := g.Exists(nil, channelID); !alive { //nolint:staticcheck // the stage's Exists needs no context
		return
	}
	if g.capped(channelID) {
		return
	}
	g.event("CHANNEL_EXECUTE_COMPLETE", channelID, append([]string{"Application", app.Name(), "Application-UUID", eventUUID}, result...)...)
}

// leave lets the caller hang up.
func (g *stage) leave(channelID string) { g.hangUp(channelID, "NORMAL_CLEARING", theyHungUp) }

// listen plays a prompt to the caller, who may hang up or break it off with a key.
func (g *stage) listen(channelID string, app esl.App) []string {
	g.mu.Lock()
	current := g.current
	g.mu.Unlock()
	switch current.(type) {
	case *actions.Enqueue, *actions.Dequeue:
		return g.waitInQueue(channelID, app)
	}
	if g.cast.hangsUp(g.current) {
		g.clock.pass(time.Second)
		g.leave(channelID)
		return nil
	}
	if g.variable(channelID, "playback_terminators") == "any" {
		in := g.cast.next(g.current, func(in *Input) bool { return in.Digits != "" })
		if in != nil {
			g.clock.pass(time.Second)
			return []string{"variable_playback_terminator_used", in.Digits[:1]}
		}
	}
	g.clock.pass(length(app))
	return []string{"Application-Response", "FILE PLAYED"}
}

func (g *stage) variable(channelID, name string) string {
	g.mu.Lock()
	defer g.mu.Unlock()
	if ch := g.channels[channelID]; ch != nil {
		return ch.variables[name]
	}
	return ""
}

// length is how long a prompt is to hear: speech at fifteen characters a second, silence and tones as they say, a file as long
// as it is.
func length(app esl.App) time.Duration {
	if app.Name() == "speak" {
		_, text, _ := strings.Cut(app.Args(), "|")
		_, text, _ = strings.Cut(text, "|")
		return time.Duration(len(text)) * time.Second / 15
	}
	var total time.Duration
	for _, file := range strings.Split(strings.TrimPrefix(app.Args(), "file_string://"), "!") {
		switch ms, silent := strings.CutPrefix(file, "silence_stream://"); {
		case silent:
			n, _ := strconv.Atoi(ms)
			total += time.Duration(n) * time.Millisecond
		case strings.HasPrefix(file, "tone_stream://"):
			total += time.Second
		default:
			total += fileLength(file)
		}
	}
	return total
}

// fileLength is the length of a WAV file of 16-bit samples at 8 kHz, as its size tells; other rates are a little off.
func fileLength(file string) time.Duration {
	info, err := os.Stat(file)
	if err != nil {
		return 0
	}
	return time.Duration(max(info.Size()-wavHeader, 0)) * time.Second / wavBytesPerSecond
}

// gather lets the caller type. args are those of play_and_get_digits (mod_dptools.c): min max tries timeout terminators file
// invalid-file variable regexp digit-timeout.
func (g *stage) gather(channelID string, args []string) []string {
	const timeoutAt, terminatorsAt, variableAt = 3, 4, 7
	if len(args) <= variableAt {
		return nil
	}
	if g.cast.hangsUp(g.current) {
		g.clock.pass(time.Second)
		g.leave(channelID)
		return nil
	}
	var in *Input
	if gather, ok := g.current.(*actions.Gather); !ok || !gather.Hears(actions.InputSpeech) { // what listens has taken all keys
		in = g.cast.next(g.current, func(in *Input) bool { return in.Digits != "" || in.Silence })
	}
	if in == nil || in.Silence {
		ms, _ := strconv.Atoi(args[timeoutAt])
		g.clock.pass(time.Duration(ms) * time.Millisecond)
		return nil
	}
	limit, _ := strconv.Atoi(args[1])
	digits, key := typed(in.Digits, args[terminatorsAt], limit)
	g.clock.pass(time.Duration(len(in.Digits)) * 500 * time.Millisecond)
	result := []string{"variable_" + args[variableAt], digits}
	if key != "" {
		result = append(result, "variable_read_terminator_used", key)
	}
	return result
}

// typed splits what was typed at the first finishing key, and at the most digits that are taken.
func typed(digits, terminators string, limit int) (taken, key string) {
	for i := range len(digits) {
		if terminators != "none" && strings.IndexByte(terminators, digits[i]) >= 0 {
			return digits[:i], digits[i : i+1]
		}
		if i+1 == limit {
			return digits[:limit], ""
		}
	}
	return digits, ""
}

// record writes a silent file as long as the script says. args are those of the record application: path, limit, threshold,
// silence.
func (g *stage) record(channelID string, args []string) []string {
	if len(args) == 0 {
		return nil
	}
	in := g.cast.next(g.current, func(in *Input) bool { return in.Record != nil || in.Hangup })
	how := Recording{Seconds: 5, EndedBy: "silence"}
	switch {
	case in != nil && in.Hangup:
		how.EndedBy = "hangup"
	case in != nil:
		how = *in.Record
	}
	if how.EndedBy == "max" && len(args) > 1 {
		limit, _ := strconv.Atoi(args[1])
		how.Seconds = float64(limit)
	}
	g.clock.pass(duration(how.Seconds))
	_ = writeSilence(args[0], duration(how.Seconds))
	switch how.EndedBy {
	case "hangup":
		g.leave(channelID)
		return nil
	case "key":
		return []string{"variable_playback_terminator_used", g.variable(channelID, "playback_terminators")[:1]}
	case "silence":
		return []string{"variable_silence_hits_exhausted", "true"}
	}
	return nil
}

func duration(seconds float64) time.Duration { return time.Duration(seconds * float64(time.Second)) }

// The form of the files that the stage writes: 8 kHz, 16 bit, mono.
const (
	wavHeader         = 44
	wavBytesPerSecond = 16_000
	// maxFile bounds a file: a longer recording is told as long as it is, but not written.
	maxFile = 64 << 20
)

// writeSilence writes a WAV file of silence.
func writeSilence(file string, d time.Duration) error {
	size := min(int64(d)*wavBytesPerSecond/int64(time.Second)&^1, maxFile)
	head := make([]byte, wavHeader)
	copy(head, "RIFF")
	binary.LittleEndian.PutUint32(head[4:], uint32(size+wavHeader-8))
	copy(head[8:], "WAVEfmt ")
	binary.LittleEndian.PutUint32(head[16:], 16)
	binary.LittleEndian.PutUint16(head[20:], 1)
	binary.LittleEndian.PutUint16(head[22:], 1)
	binary.LittleEndian.PutUint32(head[24:], 8000)
	binary.LittleEndian.PutUint32(head[28:], wavBytesPerSecond)
	binary.LittleEndian.PutUint16(head[32:], 2)
	binary.LittleEndian.PutUint16(head[34:], 16)
	copy(head[36:], "data")
	binary.LittleEndian.PutUint32(head[40:], uint32(size))
	if err := os.WriteFile(file, head, 0o600); err != nil {
		return err
	}
	return os.Truncate(file, size+wavHeader)
}

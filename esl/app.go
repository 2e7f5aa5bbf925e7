package esl

import (
	"strconv"
	"strings"
	"time"
)

// App is a dialplan application with its argument, ready for [Node.Execute]. Only the builders of this package make one, so that no text
// reaches the switch where it would be read as syntax.
type App struct {
	name, args string
}

// Name is the application's name as the switch knows it.
func (a App) Name() string { return a.name }

// Args is the application's argument as the switch will get it.
func (a App) Args() string { return a.args }

// Answer answers the call.
func Answer() App { return App{name: "answer"} }

// PreAnswer opens early media (183) without answering.
func PreAnswer() App { return App{name: "pre_answer"} }

// RingReady tells the caller that the phone rings (180).
func RingReady() App { return App{name: "ring_ready"} }

// Park leaves the channel to its controller.
func Park() App { return App{name: "park"} }

// Beep plays the tone that announces a recording: 640 Hz for half a second.
func Beep() App { return App{name: "playback", args: "tone_stream://%(500,0,640)"} }

// Marker waits for a millisecond and bears an id: queued behind another application, its completion tells that the other is over, and the
// channel's variables tell behind which one it ran. FreeSWITCH reads the number and leaves the rest (mod_dptools.c, sleep_function).
func Marker(id string) App { return App{name: "sleep", args: "1 " + onlyID(id)} }

// onlyID keeps what an id may consist of.
func onlyID(id string) string {
	return strings.Map(func(r rune) rune {
		if r == '-' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' {
			return r
		}
		return -1
	}, id)
}

// Silence plays comfort silence: unlike [Sleep] it keeps media flowing towards the caller.
func Silence(d time.Duration) (App, error) {
	ms, err := milliseconds("duration", d, time.Millisecond, 24*time.Hour)
	return App{name: "playback", args: "silence_stream://" + ms}, err
}

const maxSpeechBytes = 16 << 10

// Speak says a text with a speech engine (mod_dptools.c, speak_function: with engine, voice and text given, the text is taken as it stands).
// What the switch would take for syntax but a listener would not hear is removed from the text: line breaks become blanks, leading braces,
// which would be parameters for the engine (switch_core_speech.c), go, and "${" is broken up by a blank.
func Speak(engine, voice, text string) (App, error) {
	if err := checkPattern("engine", engine, wordPattern, "1 to 64 letters, digits, '-' or '_'"); err != nil {
		return App{}, err
	}
	if err := checkPattern("voice", voice, wordPattern, "1 to 64 letters, digits, '-' or '_'"); err != nil {
		return App{}, err
	}
	spoken, err := speech(text)
	if err != nil {
		return App{}, err
	}
	return App{name: "speak", args: engine + "|" + voice + "|" + spoken}, nil
}

// speech makes a text harmless wherever FreeSWITCH takes one to be spoken.
func speech(text string) (string, error) {
	// A backslash says nothing either, but makes FreeSWITCH decode the whole argument where expansion is on
	// (switch_utils.h, switch_string_has_escaped_data).
	text = strings.NewReplacer("\r\n", " ", "\n", " ", "\r", " ", "\t", " ", `\`, " ").Replace(text)
	text = strings.TrimLeft(text, " {")
	text = strings.TrimRight(text, " ")
	if text == "" {
		return "", refuse("text", "holds nothing to say")
	}
	if err := checkText("text", text, maxSpeechBytes); err != nil {
		return "", err
	}
	return strings.ReplaceAll(text, "${", "$ {"), nil
}

// Playback plays files of ours, one after the other.
func Playback(files ...string) (App, error) {
	if len(files) == 0 {
		return App{}, refuse("files", "must name at least one file")
	}
	for _, f := range files {
		if err := checkFile("files", f); err != nil {
			return App{}, err
		}
	}
	if len(files) == 1 {
		return App{name: "playback", args: files[0]}, nil
	}
	return App{name: "playback", args: "file_string://" + strings.Join(files, "!")}, nil
}

// AVMDStart begins to listen for the beep of a mailbox; CUSTOM avmd::beep tells when it was heard. It is over at once, and listens on
// beside what follows. Only a channel that was dialled can be listened to (mod_avmd.c, avmd_start_function).
func AVMDStart() App { return App{name: "avmd_start"} }

// AVMDStop ends what AVMDStart began.
func AVMDStop() App { return App{name: "avmd_stop"} }

// Tone plays a tone in FreeSWITCH's notation (TGML), such as "%(500,0,640)", as often as asked; 0 is for ever.
func Tone(spec string, loops int) (App, error) {
	if err := checkPattern("tone", spec, tonePattern, "a tone such as %%(500,0,640)"); err != nil {
		return App{}, err
	}
	if loops < 0 || loops > 1000 {
		return App{}, refuse("loops", "must be from 0 to 1000")
	}
	if loops == 0 {
		loops = -1 // how the tone generator counts for ever (mod_tone_stream.c, tone_stream_file_open)
	}
	return App{name: "playback", args: "tone_stream://" + spec + ";loops=" + strconv.Itoa(loops)}, nil
}

// Record records the caller into a file, until max has passed, or nothing louder than threshold was heard for silence (0: for ever), or the
// caller presses one of the channel's playback_terminators. FreeSWITCH counts all times in seconds.
func Record(path string, limit time.Duration, threshold int, silence time.Duration) (App, error) {
	if err := checkFile("path", path); err != nil {
		return App{}, err
	}
	seconds, err := wholeSeconds("max", limit, time.Second, 24*time.Hour)
	if err != nil {
		return App{}, err
	}
	args := path + " " + seconds
	if silence > 0 {
		if threshold < 0 || threshold > 32767 {
			return App{}, refuse("silence_threshold", "must be from 0 to 32767")
		}
		hits, err := wholeSeconds("silence", silence, time.Second, time.Hour)
		if err != nil {
			return App{}, err
		}
		args += " " + strconv.Itoa(threshold) + " " + hits
	}
	return App{name: "record", args: args}, nil
}

// SendDTMF sends digits (0–9, A–D, *, #; w and W pause half a second and a second), each for the length of tone.
func SendDTMF(digits string, tone time.Duration) (App, error) {
	if err := checkPattern("digits", digits, dtmfPattern, "1 to 128 of 0-9 A-D * # w W"); err != nil {
		return App{}, err
	}
	if tone == 0 {
		return App{name: "send_dtmf", args: digits}, nil
	}
	ms, err := milliseconds("tone", tone, 50*time.Millisecond, 2*time.Second)
	return App{name: "send_dtmf", args: digits + "@" + ms}, err
}

// Bridge calls another party and joins it to the channel.
func Bridge(d DialString) App { return App{name: "bridge", args: d.text} }

// Respond refuses an unanswered SIP call with a status from 300 to 699. The channel ends with it.
func Respond(code int) (App, error) {
	if code < 300 || code > 699 {
		return App{}, refuse("sip_code", "must be from 300 to 699")
	}
	return App{name: "respond", args: strconv.Itoa(code)}, nil
}

// SchedHangupApp makes the switch itself end the call after a time, with nobody else alive.
func SchedHangupApp(after time.Duration, cause string) (App, error) {
	if err := checkCause(cause); err != nil {
		return App{}, err
	}
	seconds, err := wholeSeconds("after", after, time.Second, 30*24*time.Hour)
	return App{name: "sched_hangup", args: "+" + seconds + " " + cause}, err
}

// milliseconds writes a duration, which must lie between least and most.
func milliseconds(field string, d, least, most time.Duration) (string, error) {
	if d < least || d > most {
		return "", refuse(field, "must be from %s to %s", least, most)
	}
	return strconv.FormatInt(d.Milliseconds(), 10), nil
}

// wholeSeconds writes a duration rounded up to seconds: a limit is never shorter than asked for.
func wholeSeconds(field string, d, least, most time.Duration) (string, error) {
	if d < least || d > most {
		return "", refuse(field, "must be from %s to %s", least, most)
	}
	return strconv.FormatInt(int64((d+time.Second-1)/time.Second), 10), nil
}

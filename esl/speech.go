package esl

import (
	"context"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Recognition is what [DetectSpeech] listens with.
type Recognition struct {
	Engine   string // of the recognizer's module, such as vosk
	Language string // a tag such as en-US
	Prompt   Prompt // played first; speech ends it. It needs [PromptDelimiter]
	// NoInput is how long to wait for somebody to speak, EndSilence the silence that ends what is said, Limit the most that is
	// listened to.
	NoInput, EndSilence, Limit time.Duration
}

var languagePattern = regexp.MustCompile(`^[A-Za-z]{2,3}(-[A-Za-z0-9]{2,8}){0,3}$`)

// DetectSpeech plays a prompt and listens to speech; the channel variable detect_speech_result holds what the recognizer understood
// (mod_dptools.c, play_and_detect_speech_function: everything before "detect:" is the prompt, unescaped).
func DetectSpeech(r Recognition) (App, error) {
	if err := checkPattern("engine", r.Engine, wordPattern, "1 to 64 letters, digits, '-' or '_'"); err != nil {
		return App{}, err
	}
	if err := checkPattern("language", r.Language, languagePattern, "a language tag such as en-US"); err != nil {
		return App{}, err
	}
	parameters := []string{"start-input-timers=true", "language=" + r.Language, "speech-language=" + r.Language}
	for _, limit := range []struct {
		field, name string
		d           time.Duration
	}{
		{"no_input", "no-input-timeout", r.NoInput}, {"end_silence", "speech-complete-timeout", r.EndSilence}, {"limit", "recognition-timeout", r.Limit},
	} {
		ms, err := milliseconds(limit.field, limit.d, 100*time.Millisecond, time.Hour)
		if err != nil {
			return App{}, err
		}
		parameters = append(parameters, limit.name+"="+ms)
	}
	prompt := "silence_stream://1"
	if r.Prompt.Parts() > 0 {
		prompt = r.Prompt.joined(func(part string) string { return detectMark.ReplaceAllString(part, "$1 :") })
	}
	return App{name: "play_and_detect_speech", args: prompt + " detect:" + r.Engine + " {" + strings.Join(parameters, ",") + "}default"}, nil
}

// detectMark is what would end a prompt.
var detectMark = regexp.MustCompile(`(detect):`)

// AudioStream is a stream of a call's audio to a WebSocket, as mod_audio_stream makes it.
type AudioStream struct {
	URL string // wss:// or ws://
	Mix string // mono (what the party says), mixed (both as one) or stereo (both)
}

// StreamStart begins to stream the audio of a channel (mod_audio_stream, uuid_audio_stream).
func (n *Node) StreamStart(ctx context.Context, channel string, s AudioStream) error {
	args, err := streamArgs(channel, s)
	if err != nil {
		return err
	}
	_, err = n.api(ctx, "uuid_audio_stream", args)
	return err
}

// streamArgs writes words that are split at blanks (mod_audio_stream.c, stream_function).
func streamArgs(channel string, s AudioStream) (string, error) {
	if err := checkID("channel_id", channel); err != nil {
		return "", err
	}
	address, err := url.Parse(s.URL)
	if err != nil || address.Scheme != "wss" && address.Scheme != "ws" || address.Hostname() == "" || address.User != nil {
		return "", refuse("url", "must be a ws or wss URL without a user")
	}
	clean := address.String()
	if len(clean) > 2048 || strings.ContainsAny(clean, " '\"\\") {
		return "", refuse("url", "must be at most 2048 bytes, percent-encoded")
	}
	if err := checkText("url", clean, 2048); err != nil {
		return "", err
	}
	switch s.Mix {
	case "mono", "mixed", "stereo":
	default:
		return "", refuse("mix", "must be mono, mixed or stereo, was %s", strconv.Quote(s.Mix))
	}
	return channel + " start " + clean + " " + s.Mix + " 8k", nil
}

// StreamStop ends what StreamStart began.
func (n *Node) StreamStop(ctx context.Context, channel string) error {
	if err := checkID("channel_id", channel); err != nil {
		return err
	}
	_, err := n.api(ctx, "uuid_audio_stream", channel+" stop")
	return err
}

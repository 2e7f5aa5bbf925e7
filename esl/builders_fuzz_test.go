package esl

import (
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// wire holds an application to one message whose lines are all ours: its argument lies in the body, as long as the message says.
func wire(t *testing.T) func(App, error) (args string, ok bool) {
	return func(app App, err error) (string, bool) {
		t.Helper()
		if err != nil {
			require.ErrorIs(t, err, ErrRefusedInput)
			return "", false
		}
		head, body, found := strings.Cut(executeMessage("chan", "tandem-1", app).text, "\n\n")
		require.True(t, found)
		require.NotContains(t, head, "\r")
		require.Equal(t, app.args, strings.TrimRight(body, "\r\n"))
		for i := range len(app.args) {
			require.True(t, app.args[i] >= 0x20 && app.args[i] != 0x7f, "control character in %q", app.args)
		}
		require.False(t, hasExpansion(app.args), "%q", app.args)
		return app.args, true
	}
}

// seed gives every hostile text to a fuzzer, beside texts that are taken.
func seed(f *testing.F, taken ...string) {
	f.Helper()
	for _, text := range append(slices.Clone(taken), hostile...) {
		if len(text) < 4096 {
			f.Add(text)
		}
	}
}

// FuzzDialGroup carries a value, a prompt and a name of a leg through the reading of a dial string for several parties.
func FuzzDialGroup(f *testing.F) {
	seed(f, "plain", "O'Brien, Ltd", "Press 1, please! It's {me}.", `a\,b`, "x=y", "leg-1", " x ")
	f.Fuzz(func(t *testing.T, text string) {
		first := []Target{{Gateway: "gw", Number: "+15550100", ChannelID: "leg-a", Timeout: 20 * time.Second}, {SIPURI: "sip:bob@example.com", ChannelID: "leg-b"}}
		legs := func(s string) []string {
			require.False(t, strings.ContainsAny(s, "|{}<>^$"), "%q", s)
			return regexp.MustCompile(`\[[^\[\]]*\][^,\[\]]+`).FindAllString(s, -1)
		}
		wantLegs := []string{"[origination_uuid=leg-a,leg_timeout=20,bridge_answer_timeout=20]sofia/gateway/gw/+15550100", "[origination_uuid=leg-b]sofia/external/sip:bob@example.com"}

		if d, err := NewDialGroup(Group{Targets: first, Variables: []Var{{"first", text}, {"second", "2"}}}); err == nil {
			vars, rest := modelBrackets(t, d.String())
			require.Equal(t, []Var{{"originate_timeout", "25"}, {"first", text}, {"second", "2"}}, vars)
			require.Equal(t, strings.Join(wantLegs, ","), rest)
			require.Equal(t, wantLegs, legs(rest))
		} else {
			require.ErrorIs(t, err, ErrRefusedInput)
		}

		if prompt, err := SpeechPrompt(text); err == nil {
			spoken, err := speech(text)
			require.NoError(t, err)
			for app, group := range map[string]Group{
				"":          {Targets: first, Confirm: &Confirm{Key: "1", Timeout: time.Second, Prompt: Prompts(prompt, prompt), Engine: "flite", Voice: "slt"}},
				"playback ": {Targets: first, Announce: &Announcement{Limit: time.Second, Prompt: Prompts(prompt, prompt), Engine: "flite", Voice: "slt"}},
			} {
				d, err := NewDialGroup(group)
				if err != nil {
					require.ErrorIs(t, err, ErrRefusedInput)
					continue
				}
				vars, rest := modelBrackets(t, d.String())
				require.Equal(t, strings.Join(wantLegs, ","), rest)
				at := slices.IndexFunc(vars, func(v Var) bool { return v.Name == "group_confirm_file" })
				require.GreaterOrEqual(t, at, 0)
				file, ok := strings.CutPrefix(vars[at].Value, app)
				require.True(t, ok)
				heard := strings.TrimRight(dropDialSyntax("say:"+spoken), " ")
				require.True(t, strings.HasPrefix(heard, "say:"))
				for _, part := range modelSeparate(file, PromptDelimiter[0], 128) {
					require.Equal(t, heard, strings.TrimRight(part, " "))
				}
				require.NotContains(t, vars, Var{"execute_on_answer", "log"})
			}
		} else {
			require.ErrorIs(t, err, ErrRefusedInput)
		}

		for _, target := range []Target{
			{Gateway: text, Number: "1"}, {Gateway: "gw", Number: text}, {SIPURI: text}, {SIPURI: "sip:" + text + "@x"}, {SIPURI: "sip:a@b", Profile: text},
			{Gateway: "gw", Number: "1", ChannelID: text}, {Gateway: "gw", Number: "1", CallerIDNumber: text},
		} {
			d, err := NewDialGroup(Group{Targets: []Target{{Gateway: "gw", Number: "2", ChannelID: "leg-a"}, target}})
			if err != nil {
				require.ErrorIs(t, err, ErrRefusedInput)
				continue
			}
			first, second, ok := strings.Cut(d.String(), ",")
			require.True(t, ok)
			require.Equal(t, "[origination_uuid=leg-a]sofia/gateway/gw/2", first)
			require.Regexp(t, `^(\[[a-z_]+=[A-Za-z0-9+._-]+\])?sofia/(gateway/[A-Za-z0-9._-]+/\+?[0-9]+|[A-Za-z0-9._-]+/sips?:[^,\[\]{}<>|^$ ]+)$`, second)
		}
	})
}

// FuzzNamesAndFiles holds the builders that take names, files, tones and keys to arguments of the words they were given.
func FuzzNamesAndFiles(f *testing.F) {
	seed(f, "room_1", "/media/a.wav", "%(500,0,640)", "%(400,200,400,450);%(400,2000,400,450)", "12#w*", "mod_flite", "USER_BUSY", "a+1234", "a@b", "/x.wav!/etc/passwd")
	f.Fuzz(func(t *testing.T, text string) {
		if args, ok := wire(t)(ConferenceApp(text, "tandem", "mute")); ok {
			// mod_conference.c, conference_function: flags, then PIN after '+', then profile after '@'.
			name, rest, _ := strings.Cut(args, "@")
			require.Equal(t, []string{text, "tandem+flags{mute}"}, []string{name, rest})
			require.NotContains(t, text, "+")
			require.False(t, strings.HasPrefix(text, "bridge:"))
		}
		if args, ok := wire(t)(ConferenceApp("room", "tandem", text, "mute")); ok {
			flags := strings.TrimSuffix(strings.TrimPrefix(args, "room@tandem+flags{"), "}")
			require.Equal(t, []string{text, "mute"}, modelSeparate(flags, '|', 10))
		}
		if args, ok := wire(t)(Playback("/first.wav", text)); ok {
			require.Equal(t, []string{"/first.wav", text}, modelSeparate(strings.TrimPrefix(args, "file_string://"), '!', 128))
			require.NotContains(t, text, "://")
		}
		if args, ok := wire(t)(Record(text, time.Minute, 200, time.Second)); ok {
			require.Equal(t, []string{text, "60", "200", "1"}, modelSeparate(args, ' ', 4))
		}
		if args, ok := wire(t)(Tone(text, 3)); ok {
			require.Equal(t, "tone_stream://"+text+";loops=3", args)
			require.NotContains(t, text, "=")
			require.NotContains(t, text, "/")
		}
		if args, ok := wire(t)(SendDTMF(text, 100*time.Millisecond)); ok {
			digits, tone, _ := strings.Cut(args, "@")
			require.Equal(t, []string{text, "100"}, []string{digits, tone})
		}
		if args, ok := wire(t)(PlayAndGetDigits(Digits{Max: 4, Variable: "v", Regexp: text})); ok && text != "" {
			words := modelSeparate(args, ' ', 11)
			require.Len(t, words, 10)
			require.Equal(t, text, words[8])
		}
		if args, ok := wire(t)(PlayAndGetDigits(Digits{Max: 4, Variable: "v", Terminators: text})); ok && text != "" {
			require.Equal(t, text, modelSeparate(args, ' ', 11)[4])
		}
		if prompt, err := FilePrompt(text); err == nil {
			args, ok := wire(t)(PlayAndGetDigits(Digits{Max: 4, Variable: "v", Prompt: Prompts(prompt, prompt)}))
			require.True(t, ok)
			require.Equal(t, []string{text, text}, modelSeparate(modelSeparate(args, ' ', 11)[5], '!', 128))
		}
		wire(t)(SchedHangupApp(time.Minute, text))
	})
}

// FuzzElsewhere holds what sends a caller away to one address.
func FuzzElsewhere(f *testing.F) {
	seed(f, "sip:+15550100@pbx.example:5080;transport=tcp", "SIP:a@b", "sip:a@b>;x=<", "sip:a@b USER_BUSY", "sip:a@b,sip:c@d")
	const address = `sips?:[A-Za-z0-9+._~*!-]+@[A-Za-z0-9.-]+(:[1-9][0-9]{0,4})?(;transport=(udp|tcp|tls))?`
	f.Fuzz(func(t *testing.T, text string) {
		refer, taken := wire(t)(Deflect(text))
		redirect, too := wire(t)(RedirectApp(text))
		require.Equal(t, taken, too)
		if taken {
			require.Regexp(t, "^<"+address+">$", refer)
			require.Equal(t, "<"+redirect+">", refer)
		}
	})
}

// FuzzDetectSpeech reads the argument as play_and_detect_speech_function does: the prompt ends at the first "detect:", the engine at the first
// blank, then come the parameters between braces and the grammar.
func FuzzDetectSpeech(f *testing.F) {
	seed(f, "Say your name, please!", "detect:vosk {x=y}evil", "x detect:unimrcp {", "detect::", "detectdetect::", "say!no", "en-US", "vosk")
	f.Fuzz(func(t *testing.T, text string) {
		const parameters = "{start-input-timers=true,language=en-US,speech-language=en-US,no-input-timeout=5000,speech-complete-timeout=1000,recognition-timeout=60000}default"
		if prompt, err := SpeechPrompt(text); err == nil {
			spoken, err := speech(text)
			require.NoError(t, err)
			args, ok := wire(t)(DetectSpeech(recognition(func(r *Recognition) { r.Prompt = Prompts(prompt, prompt) })))
			require.True(t, ok)
			heard, rest, found := strings.Cut(args, "detect:")
			require.True(t, found)
			require.Equal(t, "vosk "+parameters, rest)
			want := "say:" + strings.ReplaceAll(spoken, "detect:", "detect :")
			require.Equal(t, []string{want, want}, modelSeparate(strings.TrimRight(heard, " "), '!', 128))
		} else {
			require.ErrorIs(t, err, ErrRefusedInput)
		}
		if args, ok := wire(t)(DetectSpeech(recognition(func(r *Recognition) { r.Engine = text }))); ok {
			require.Equal(t, "silence_stream://1 detect:"+text+" "+parameters, args)
		}
		if args, ok := wire(t)(DetectSpeech(recognition(func(r *Recognition) { r.Language = text }))); ok {
			require.Equal(t, "silence_stream://1 detect:vosk "+strings.ReplaceAll(parameters, "en-US", text), args)
		}
	})
}

// FuzzStreamURL holds the address of a stream to one word of the command line that is still the address that was given.
func FuzzStreamURL(f *testing.F) {
	seed(f, "wss://ears.example/in?call=1&key=a%20b", "ws://127.0.0.1:8080", "wss://x/ mono 8k", "wss://u:p@x/", "wss://x/#a b", "wss://x/\u2028", "WSS://X/é")
	f.Fuzz(func(t *testing.T, text string) {
		args, err := streamArgs("chan-1", AudioStream{URL: text, Mix: "mono"})
		if err != nil {
			require.ErrorIs(t, err, ErrRefusedInput)
			return
		}
		words := modelSeparate(args, ' ', 6) // mod_audio_stream.c, stream_function
		require.Len(t, words, 5)
		require.Equal(t, []string{"chan-1", "start", words[2], "mono", "8k"}, words)
		given, err := url.Parse(text)
		require.NoError(t, err)
		sent, err := url.Parse(words[2])
		require.NoError(t, err)
		require.Equal(t, given.Host, sent.Host)
		require.Equal(t, given.Path, sent.Path)
		require.Equal(t, 1, strings.Count(apiMessage("uuid_audio_stream", args).text, "\n\n"))
	})
}

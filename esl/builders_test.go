package esl

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestApplications(t *testing.T) {
	t.Parallel()
	must := func(app App, err error) App {
		t.Helper()
		require.NoError(t, err)
		return app
	}
	prompt, err := FilePrompt("/var/lib/tandem/media/ab12.wav")
	require.NoError(t, err)
	say, err := SpeechPrompt("It's 5! Press 1, please")
	require.NoError(t, err)
	dial, err := NewDial(Target{
		Gateway: "acme", Number: "+15550100", ChannelID: "leg-b", CallerIDNumber: "+15550199", CallerIDName: "O'Brien, Ltd", Timeout: 1500 * time.Millisecond,
		Variables: []Var{{"sip_h_X-Tandem", "call_1"}},
	}, Var{"hangup_after_bridge", "false"})
	require.NoError(t, err)
	for want, app := range map[string]App{
		"answer ":                             Answer(),
		"ring_ready ":                         RingReady(),
		"pre_answer ":                         PreAnswer(),
		"park ":                               Park(),
		"avmd_start ":                         AVMDStart(),
		"avmd_stop ":                          AVMDStop(),
		"playback tone_stream://%(500,0,640)": Beep(),
		"playback tone_stream://%(500,0,640);loops=-1": must(Tone("%(500,0,640)", 0)),
		"send_dtmf 12": must(SendDTMF("12", 0)),
		"play_and_detect_speech silence_stream://1 detect:vosk {start-input-timers=true,language=en-US,speech-language=en-US,no-input-timeout=5000," +
			"speech-complete-timeout=1000,recognition-timeout=60000}default": must(DetectSpeech(recognition(func(*Recognition) {}))),
		"playback silence_stream://250":               must(Silence(250 * time.Millisecond)),
		"playback /media/a.wav":                       must(Playback("/media/a.wav")),
		"playback file_string:///media/a.wav!b/c.wav": must(Playback("/media/a.wav", "b/c.wav")),
		"speak flite|slt|Hello, world: $5 {not}":      must(Speak("flite", "slt", "  {{Hello,\nworld: $5 {not} ")),
		"speak flite|slt|$ {system(touch /tmp/x)}":    must(Speak("flite", "slt", "${system(touch /tmp/x)}")),
		"speak flite|slt|$$ {x}$ {y}":                 must(Speak("flite", "slt", `$${x}$\{y}`)),
		"record /rec/a.wav 60":                        must(Record("/rec/a.wav", time.Minute, 0, 0)),
		"record /rec/a.wav 61 200 3":                  must(Record("/rec/a.wav", time.Minute+1, 200, 3*time.Second)),
		"send_dtmf 12#w3@120":                         must(SendDTMF("12#w3", 120*time.Millisecond)),
		"respond 486":                                 must(Respond(486)),
		"sched_hangup +60 ALLOTTED_TIMEOUT":           must(SchedHangupApp(time.Minute, "ALLOTTED_TIMEOUT")),
		`play_and_get_digits 1 4 2 5000 # /var/lib/tandem/media/ab12.wav silence_stream://1 gathered ^\\d+$ 2000`: must(PlayAndGetDigits(Digits{
			Min: 1, Max: 4, Tries: 2, Terminators: "#", Prompt: prompt, Variable: "gathered", Regexp: `^\d+$`, DigitTimeout: 2 * time.Second,
		})),
		`bridge {origination_uuid=leg-b,origination_caller_id_number=+15550199,origination_caller_id_name=O\\\'Brien\,\\sLtd,originate_timeout=2,` +
			`hangup_after_bridge=false,sip_h_X-Tandem=call_1}sofia/gateway/acme/+15550100`: Bridge(dial),
	} {
		require.Equal(t, want, app.Name()+" "+app.Args())
	}

	// What the switch makes of a prompt of two parts: one word, then two files at the delimiter.
	app := must(PlayAndGetDigits(Digits{Max: 4, Prompt: Prompts(prompt, say), Variable: "gathered"}))
	words := modelSeparate(app.Args(), ' ', 11)
	require.Len(t, words, 10)
	require.Equal(t, "X", words[4], "no terminators")
	require.Equal(t, []string{"/var/lib/tandem/media/ab12.wav", "say:It's 5! Press 1, please"}, modelSeparate(words[5], PromptDelimiter[0], 10))
	app = must(PlayAndGetDigits(Digits{Max: 4, Prompt: say, Variable: "gathered"}))
	require.Equal(t, []string{"say:It's 5! Press 1, please"}, modelSeparate(modelSeparate(app.Args(), ' ', 11)[5], PromptDelimiter[0], 10), "one part stays one")
}

func TestInputsAreRefusedByName(t *testing.T) {
	t.Parallel()
	app := func(_ App, err error) error { return err }
	digits := func(d Digits) error {
		_, err := PlayAndGetDigits(d)
		return err
	}
	dial := func(target Target) error {
		_, err := NewDial(target)
		return err
	}
	originate := func(o Originate) error {
		_, err := o.arguments()
		return err
	}
	setvar := func(channel, name, value string) error {
		_, err := setVariableArgs(channel, name, value)
		return err
	}
	good := Target{Gateway: "gw", Number: "1"}
	with := func(change func(*Target)) error {
		target := good
		change(&target)
		return dial(target)
	}
	variable := func(name, value string) error {
		return with(func(t *Target) { t.Variables = []Var{{name, value}} })
	}
	sip := func(uri string) error { return dial(Target{SIPURI: uri}) }
	for _, tc := range []struct {
		field string
		errs  []error
	}{
		{"text", []error{
			app(Speak("flite", "slt", "")), app(Speak("flite", "slt", " {{ ")), app(Speak("flite", "slt", "a\x00b")), app(Speak("flite", "slt", "\xff")),
			app(Speak("flite", "slt", strings.Repeat("x", maxSpeechBytes+1))),
		}},
		{"engine", []error{app(Speak("fl|ite", "slt", "x")), app(Speak("", "slt", "x")), app(Speak("${x}", "slt", "x"))}},
		{"voice", []error{app(Speak("flite", "s|lt", "x"))}},
		{"files", []error{
			app(Playback()), app(Playback("http://x/y.wav")), app(Playback("{a=b}/x.wav")), app(Playback("/x.wav@@4")), app(Playback("phrase:x")),
			app(Playback("/a!b.wav")), app(Playback("/a b.wav")), app(Playback("/../etc/x")), app(Playback("${x}")), app(Playback("/a\n.wav")), app(Playback("..")),
		}},
		{"path", []error{
			app(Record("/a b.wav", time.Minute, 0, 0)), app(Record("", time.Minute, 0, 0)), app(Record("a//b", time.Minute, 0, 0)),
			app(Record(strings.Repeat("x", 1025), time.Minute, 0, 0)),
		}},
		{"max", []error{app(Record("/a.wav", 0, 0, 0))}},
		{"silence_threshold", []error{app(Record("/a.wav", time.Minute, -1, time.Second))}},
		{"silence", []error{app(Record("/a.wav", time.Minute, 200, 2*time.Hour))}},
		{"digits", []error{app(SendDTMF("12\n", 0)), app(SendDTMF("", 0)), app(SendDTMF("1@2000", 0)), app(SendDTMF("${x}", 0))}},
		{"tone", []error{app(SendDTMF("1", time.Minute))}},
		{"sip_code", []error{app(Respond(200)), app(Respond(700))}},
		{"cause", []error{app(SchedHangupApp(time.Minute, "NOT_A_CAUSE")), app(SchedHangupApp(time.Minute, "normal_clearing x")), app(SchedHangupApp(time.Minute, ""))}},
		{"after", []error{app(SchedHangupApp(0, "NORMAL_CLEARING"))}},
		{"loops", []error{app(Tone("%(500,0,640)", -1)), app(Tone("%(500,0,640)", 1001))}},
		{"no_input", []error{app(DetectSpeech(recognition(func(r *Recognition) { r.NoInput = 0 })))}},
		{"duration", []error{app(Silence(-1)), app(Silence(0)), app(Silence(25 * time.Hour))}},
		{"min_digits", []error{digits(Digits{Min: -1, Max: 1, Variable: "v"})}},
		{"max_digits", []error{digits(Digits{Max: 0, Variable: "v"}), digits(Digits{Min: 3, Max: 2, Variable: "v"}), digits(Digits{Max: 129, Variable: "v"})}},
		{"tries", []error{digits(Digits{Max: 1, Tries: 11, Variable: "v"})}},
		{"timeout", []error{
			digits(Digits{Max: 1, Timeout: time.Millisecond, Variable: "v"}), with(func(t *Target) { t.Timeout = -1 }), with(func(t *Target) { t.Timeout = 2 * time.Hour }),
		}},
		{"digit_timeout", []error{digits(Digits{Max: 1, DigitTimeout: time.Millisecond, Variable: "v"})}},
		{"terminators", []error{digits(Digits{Max: 1, Terminators: "# x", Variable: "v"})}},
		{"variable", []error{digits(Digits{Max: 1}), digits(Digits{Max: 1, Variable: "a b"}), digits(Digits{Max: 1, Variable: "execute_on_answer"})}},
		{"regexp", []error{
			digits(Digits{Max: 1, Variable: "v", Regexp: "[a-z]+"}), digits(Digits{Max: 1, Variable: "v", Regexp: "^1$ 9"}),
			digits(Digits{Max: 1, Variable: "v", Regexp: "${1}"}), digits(Digits{Max: 1, Variable: "v", Regexp: `$\{1}`}),
		}},
		{"gateway", []error{dial(Target{Number: "1"}), dial(Target{Gateway: "a/b", Number: "1"}), dial(Target{Gateway: "a,sofia/gateway/b", Number: "1"})}},
		{"number", []error{
			dial(Target{Gateway: "gw"}), dial(Target{Gateway: "gw", Number: "+1,2"}), dial(Target{Gateway: "gw", Number: "1|2"}),
			dial(Target{Gateway: "gw", Number: "123456789012345678901234567890123"}), dial(Target{Gateway: "gw", Number: "1@evil"}), dial(Target{Gateway: "gw", Number: "${x}"}),
		}},
		{"sip_uri", []error{
			sip("bob@x"), sip("http://x"), sip("sip:x"), sip("sip:@x"), sip("sip:bob@"), sip("sip:bob@x,sofia/gateway/b/1"), sip("sip:bob@x|y"), sip("sip:b b@x"),
			sip("sip:bob@x:0"), sip("sip:bob@x:99999"), sip("sip:bob@x:05060"), sip("sip:bob@[::1]"), sip("sip:bob@x;transport=ws"), sip("sip:bob@x;maddr=y"),
			sip("sip:bob@x;transport=udp;a=b"), sip("sip:bob@x?X-H=1"), sip("sip:${x}@y"), sip("sip:bob@x\n\napi shutdown"), sip("sip:bob@-x"),
			dial(Target{Gateway: "gw", Number: "1", SIPURI: "sip:bob@x"}),
		}},
		{"profile", []error{dial(Target{SIPURI: "sip:bob@x", Profile: "a/b"})}},
		{"channel_id", []error{
			with(func(t *Target) { t.ChannelID = "a b" }), originate(Originate{Gateway: "gw", Number: "1"}), setvar("", "n", "v"), setvar("a b", "n", "v"),
			setvar("a\n\napi shutdown", "n", "v"),
		}},
		{"caller_id_number", []error{with(func(t *Target) { t.CallerIDNumber = "1,2" }), with(func(t *Target) { t.CallerIDNumber = "a@b" })}},
		{"caller_id_name", []error{
			with(func(t *Target) { t.CallerIDName = `a"b` }), with(func(t *Target) { t.CallerIDName = "<sip:x>" }), with(func(t *Target) { t.CallerIDName = "a\nb" }),
			with(func(t *Target) { t.CallerIDName = "${x}" }),
		}},
		{"variables", []error{
			variable("a b", "x"), variable("", "x"), variable("a=b", "x"), variable("execute_on_answer", "log"), variable("EXECUTE_ON_ring", "log"),
			variable("api_on_answer", "x"), variable("api_hangup_hook", "x"), variable("origination_nested_vars", "true"), variable("origination_uuid", "x"),
			variable("app_disable_expand_variables", "false"), variable("bridge_pre_execute_aleg_app", "x"), variable("group_confirm_key", "exec"),
		}},
		{"variables.x", []error{
			variable("x", ""), variable("x", " "), variable("x", "a}b"), variable("x", "a{b"), variable("x", "[a"), variable("x", "a]"), variable("x", "<a"), variable("x", "a>"),
			variable("x", "a|b"), variable("x", "^^:a"), variable("x", "${a}"), variable("x", "$"), variable("x", "a:_:b"), variable("x", "a\nb"), variable("x", "a\x7f"),
			variable("x", "origination_nested_vars=true"), variable("x", strings.Repeat("x", maxVariableBytes+1)),
		}},
		{"variables.sip_h_X-A", []error{variable("sip_h_X-A", `a\r\nb`), variable("sip_h_X-A", "é")}},
		{"execute_on_answer", []error{
			originate(Originate{ChannelID: "c", Gateway: "gw", Number: "1", ExecuteOnAnswer: []App{{}}}),
			originate(Originate{ChannelID: "c", Gateway: "gw", Number: "1", ExecuteOnAnswer: []App{{name: "log", args: "${x}"}}}),
		}},
		{"app", []error{originate(Originate{ChannelID: "c", Gateway: "gw", Number: "1", App: App{name: "speak", args: "a|b|c) &x"}})}},
		{"name", []error{setvar("c", "a b", "v"), setvar("c", "execute_on_answer", "v")}},
		{"value", []error{setvar("c", "n", "${x}"), setvar("c", "n", `$\{x}`), setvar("c", "n", "a\nb"), setvar("c", "n", "\xff")}},
	} {
		for i, err := range tc.errs {
			refused := new(InputError)
			require.ErrorAs(t, err, &refused, "%s, case %d", tc.field, i)
			require.Equal(t, tc.field, refused.Field, "case %d: %s", i, err)
			require.ErrorIs(t, err, ErrRefusedInput)
		}
	}
	for _, uri := range []string{"sip:bob@example.com", "SIP:+15550100@192.0.2.1:5060;transport=TCP", "sips:a.b@x.example."} {
		require.NoError(t, sip(uri))
	}
}

func TestAddress(t *testing.T) {
	t.Parallel()
	d, err := NewDial(Target{SIPURI: "SIP:+15550100@192.0.2.1:5070;transport=TCP", Profile: "internal"})
	require.NoError(t, err)
	require.Equal(t, "sofia/internal/sip:+15550100@192.0.2.1:5070;transport=tcp", d.String())
}

func FuzzSpeak(f *testing.F) {
	for _, seed := range []string{"hello", "${system(touch /tmp/x)}", `$\{x}`, "$$\\\\{", "{rate=1}x", " {${x}", "a\n\nb", `\{rate=1}x`, "100 % $5 {x}", "$ {", `\n\s\'`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		app, err := Speak("flite", "slt", text)
		if err != nil {
			require.ErrorIs(t, err, ErrRefusedInput)
			return
		}
		spoken, ok := strings.CutPrefix(app.Args(), "flite|slt|")
		require.True(t, ok)
		require.False(t, hasExpansion(app.Args()), "%q", app.Args())
		require.NotContains(t, spoken, `\`)
		require.NotContains(t, "{ ", spoken[:1])
		require.NotContains(t, executeMessage("chan", "tandem-1", app).text, "\n\n\n")
		for _, c := range []byte(spoken) {
			require.True(t, c >= 0x20 && c != 0x7f)
		}
	})
}

func FuzzSIPURI(f *testing.F) {
	for _, seed := range []string{"sip:bob@example.com", "sip:bob@x:5060;transport=tcp", "sip:a,b@c", "sip:a@b|c", "sip:a@[::1]:5", "sip:a@b;transport=udp&x=y", "sip:a@b\n"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, uri string) {
		clean, err := cleanSIPURI(uri)
		if err != nil {
			require.ErrorIs(t, err, ErrRefusedInput)
			return
		}
		require.Regexp(t, `^sips?:[A-Za-z0-9+._~*!-]+@[A-Za-z0-9.-]+(:[1-9][0-9]{0,4})?(;transport=(udp|tcp|tls))?$`, clean)
		again, err := cleanSIPURI(clean)
		require.NoError(t, err)
		require.Equal(t, clean, again)
	})
}

// FuzzMessages holds every builder that takes free text to one message on the wire.
func FuzzMessages(f *testing.F) {
	f.Add("chan", "value")
	f.Add("chan\n\napi shutdown", "v")
	f.Add("chan", "a\r\n\r\napi shutdown")
	f.Add("c", "\n")
	f.Fuzz(func(t *testing.T, id, text string) {
		var sent []message
		if args, err := setVariableArgs(id, "x", text); err == nil {
			sent = append(sent, apiMessage("uuid_setvar", args))
		}
		o := Originate{ChannelID: id, SIPURI: "sip:" + text + "@x", CallerIDName: text, Variables: []Var{{"x", text}}}
		if args, err := o.arguments(); err == nil {
			sent = append(sent, backgroundMessage("originate", args, "job"))
		}
		o = Originate{ChannelID: id, Gateway: "gw", Number: "1", CallerIDName: text}
		if args, err := o.arguments(); err == nil {
			sent = append(sent, backgroundMessage("originate", args, "job"))
		}
		if checkText("command", text, maxLineBytes) == nil {
			sent = append(sent, apiMessage(text, ""))
		}
		for _, m := range sent {
			require.Equal(t, 1, strings.Count(m.text, "\n\n"), "%q", m.text)
			require.True(t, strings.HasSuffix(m.text, "\n\n"))
			require.NotContains(t, m.text, "\r")
			require.NotContains(t, m.text, "\x00")
			require.LessOrEqual(t, strings.Count(m.text, "\n"), 3)
		}
	})
}

// FuzzSpeechPrompt carries texts through the split of the arguments and the split of the prompt.
func FuzzSpeechPrompt(f *testing.F) {
	for _, seed := range []string{"hello", "It's 5! Press 1", "a!/etc/passwd", "'a!b'", "!!", "x \\! y", "end!", " ${x}!{y}", "' ' '"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		prompt, err := SpeechPrompt(text)
		if err != nil {
			require.ErrorIs(t, err, ErrRefusedInput)
			return
		}
		spoken, err := speech(text)
		require.NoError(t, err)
		app, err := PlayAndGetDigits(Digits{Max: 4, Prompt: Prompts(prompt, prompt), Invalid: prompt, Variable: "v"})
		require.NoError(t, err)
		words := modelSeparate(app.Args(), ' ', 11)
		require.Len(t, words, 10)
		require.Equal(t, []string{"say:" + spoken, "say:" + spoken}, modelSeparate(words[5], PromptDelimiter[0], 128))
		require.Equal(t, []string{"say:" + spoken}, modelSeparate(words[6], PromptDelimiter[0], 128))
		require.Equal(t, "v", words[7])
		require.False(t, hasExpansion(spoken))
	})
}

package simswitch

import (
	"bufio"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tandem/esl"
)

// FuzzReadMessage feeds the command reader anything a socket can carry: it must not panic, must not keep line breaks in a
// command or a header, and must read the same message again from its own parts.
func FuzzReadMessage(f *testing.F) {
	for _, seed := range []string{
		"auth ClueCon\n\n", "\r\n\r\napi status\r\n\r\n", "sendmsg x\ncall-command: execute\nexecute-app-name: answer\n\n",
		"sendmsg x\ncontent-type: text/plain\ncontent-length: 5\n\na\n\nb\n", "a\rb: c\r\n\r\n", "content-length: -1\n\n",
		"x\ncontent-length: 99999999999\n\n", "x\nno colon\n: empty\n\n", "filter Event-Name /^X/\n\n\x00\xff",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := readMessage(bufio.NewReader(strings.NewReader(string(data))))
		if err != nil {
			return
		}
		require.NotContains(t, m.command, "\n")
		require.NotContains(t, m.command, "\r")
		var again strings.Builder
		again.WriteString(m.command + "\n")
		for _, h := range m.headers {
			require.NotContains(t, h.name+h.value, "\n")
			again.WriteString(h.name + ": " + h.value + "\n")
		}
		again.WriteString("\n" + m.body)
		second, err := readMessage(bufio.NewReader(strings.NewReader(again.String())))
		if m.command == "" {
			return
		}
		require.NoError(t, err)
		require.Equal(t, m, second)
	})
}

// FuzzParseDialString feeds the dial-string parser anything: it must not panic, and every target must be inside the string.
func FuzzParseDialString(f *testing.F) {
	for _, seed := range []string{
		"{a=b,c='d,e'}sofia/gateway/x/+1", "[leg_timeout=10]sofia/gateway/x/1,[leg_timeout=20]sofia/gateway/y/2|sofia/external/sip:a@b",
		"<x=y>{^^;a=b;c=d}[z=1]sofia/gateway/x/1", "{a=b", "{}", "|,|", "{a={b=c}}x", `{a=b\,c,d='e}'}x`, "a:_:b", "[[[]]]", "'|'",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		d, err := parseDialString(text)
		if err != nil {
			return
		}
		require.NotEmpty(t, d.groups)
		for _, group := range d.groups {
			require.NotEmpty(t, group)
			for _, target := range group {
				require.NotEmpty(t, target.url)
				require.Contains(t, text, target.url)
			}
		}
	})
}

// FuzzDialVariables holds the parser to the builder of the controller, which in turn is held to FreeSWITCH's own code: what
// the one escapes, the other reads back.
func FuzzDialVariables(f *testing.F) {
	for _, seed := range []string{"plain", "O'Brien, Ltd", `back\slash`, "a=b,c=d", "  blanks  ", "'quoted'", `\s\n`, "ünïcode", "a;b", "^^;x"} {
		f.Add(seed, "two")
	}
	f.Fuzz(func(t *testing.T, first, second string) {
		dial, err := esl.NewDial(esl.Target{Gateway: "carrier", Number: "+15550800",
			Variables: []esl.Var{{Name: "tandem_first", Value: first}, {Name: "tandem_second", Value: second}}})
		if err != nil {
			var refused *esl.InputError
			require.ErrorAs(t, err, &refused)
			return
		}
		d, err := parseDialString(dial.String())
		require.NoError(t, err, dial.String())
		require.Equal(t, "sofia/gateway/carrier/+15550800", d.groups[0][0].url)
		got, _ := lookup(d.vars, "tandem_first")
		require.Equal(t, first, got, dial.String())
		got, _ = lookup(d.vars, "tandem_second")
		require.Equal(t, second, got, dial.String())
	})
}

// FuzzParseXML feeds the configuration reader anything: it must not panic, and what it accepts holds nothing that FreeSWITCH's
// preprocessor would act on.
func FuzzParseXML(f *testing.F) {
	f.Add("<include>\n<context name=\"public\"><extension name=\"x\"><condition field=\"destination_number\" expression=\"^1$\"><action application=\"park\"/></condition></extension></context>\n</include>")
	f.Add("<X-PRE-PROCESS cmd=\"exec\" data=\"id\"/>")
	f.Add("<context name=\"a\"><!--#exec id--></context>")
	f.Add("<context name=\"$${x}\"/>")
	f.Fuzz(func(t *testing.T, content string) {
		roots, err := parseXML("fuzz.xml", content, dialplanSchema)
		if err != nil {
			return
		}
		require.NotRegexp(t, "(?i)x-pre-process", content)
		for _, root := range roots {
			require.Equal(t, "context", root.name)
			if context, err := newContext("fuzz.xml", root); err == nil {
				require.Equal(t, root.attrs["name"], context.name)
			}
		}
	})
}

// FuzzToneLength feeds the reader of tone scripts anything: it must not panic, and a tone has a length or none.
func FuzzToneLength(f *testing.F) {
	for _, seed := range []string{"%(100,100,440)", "%(1,2,3);loops=-1", "L=2;v=-7;%(400,200,400,450);%(400,2000,400,450)", "d=100;w=50;123#", "%(", ";loops=",
		"%(99999999999,0,1);loops=99999999999", "v=", "=;%(1,1,1)", "%(1,1)",
		"v=-7;%(100,0,941.0,1477.0);loops=-1"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, script string) {
		length, err := toneLength(script)
		if err == nil && length != endless {
			require.GreaterOrEqual(t, length, time.Duration(0))
		}
	})
}

// FuzzWaitForSilence feeds the listener any speech: it must end by its limit, and never count more than it heard.
func FuzzWaitForSilence(f *testing.F) {
	f.Add(uint16(30), uint16(5), uint16(8000), uint16(500), uint16(600))
	f.Add(uint16(1), uint16(0), uint16(20), uint16(0), uint16(0))
	f.Add(uint16(50), uint16(5), uint16(3000), uint16(300), uint16(9000))
	f.Fuzz(func(t *testing.T, silent, loud, limit, after, length uint16) {
		begun := time.Unix(0, 0)
		w := silenceWait{silent: 1 + int(silent), loud: int(loud), limit: time.Duration(1+int(limit)) * time.Millisecond}
		speech := begun.Add(time.Duration(after) * time.Millisecond)
		at, r := w.run(begun, []sound{{begin: speech, end: speech.Add(time.Duration(length) * time.Millisecond)}})
		require.True(t, r.over)
		require.LessOrEqual(t, at.Sub(begun), w.limit+frameLength)
		require.LessOrEqual(t, time.Duration(r.heard)*frameLength, time.Duration(length)*time.Millisecond+2*frameLength)
		if !r.timedOut {
			require.Zero(t, r.left)
			require.True(t, w.loud == 0 || r.heard > w.loud)
		}
	})
}

func TestSeparate(t *testing.T) {
	t.Parallel()
	// What FreeSWITCH's switch_separate_string makes of these.
	for _, test := range []struct {
		text  string
		delim byte
		limit int
		want  []string
	}{
		{"a b c", ' ', 10, []string{"a", "b", "c"}},
		{"a b c d", ' ', 3, []string{"a", "b", "c d"}},
		{"a  'b c'  d", ' ', 10, []string{"a", "b c", "d"}},
		{`a\ b c`, ' ', 10, []string{`a\ b`, "c"}},
		{`a\sb c`, ' ', 10, []string{"a b", "c"}},
		{"a,'b,c',d", ',', 10, []string{"a", "b,c", "d"}},
		{`a\,b,c`, ',', 10, []string{"a,b", "c"}},
		{"it's,one", ',', 10, []string{"it's", "one"}},
		{"^^;a;b", ',', 10, []string{"a", "b"}},
		{"a=b=c", '=', 2, []string{"a", "b=c"}},
		{"", ',', 10, nil},
	} {
		require.Equal(t, test.want, separate(test.text, test.delim, test.limit), test.text)
	}
}

func TestCauses(t *testing.T) {
	t.Parallel()
	require.Equal(t, cause(17), parseCause("user_busy"))
	require.Equal(t, cause(17), parseCause("17"))
	require.Equal(t, causeNormalClearing, parseCause("nonsense"))
	require.Equal(t, 16, causeAllottedTimeout.q850())
	require.Equal(t, 17, cause(17).q850())
	// FreeSWITCH folds these into one cause.
	for _, status := range []int{401, 403, 603} {
		require.Equal(t, "CALL_REJECTED", causeOfSIP(status).String())
	}
}

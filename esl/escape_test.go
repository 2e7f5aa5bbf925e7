package esl

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The functions below are models of FreeSWITCH's own, written from switch_utils.c and switch_event.c of 1.10.12 without regard to ours.

// modelCleanup is cleanup_separated_string: quotes, outer blanks and escapes go. A delim of 0 stands for the blank.
func modelCleanup(s string, delim byte) string {
	s = strings.TrimLeft(s, " ")
	var dest []byte
	end, quoted := -1, false
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+1 < len(s) {
			e, ok := s[i+1], false
			switch {
			case e == '\'' || e == '"' || (delim != 0 && e == delim) || e == '\\':
				ok = true
			case e == 'n':
				e, ok = '\n', true
			case e == 'r':
				e, ok = '\r', true
			case e == 't':
				e, ok = '\t', true
			case e == 's':
				e, ok = ' ', true
			}
			if ok {
				i++
				dest = append(dest, e)
				end = len(dest)
				continue
			}
		}
		if s[i] == '\'' && (quoted || strings.IndexByte(s[i+1:], '\'') >= 0) {
			if quoted = !quoted; quoted {
				end = len(dest)
			}
			continue
		}
		dest = append(dest, s[i])
		if s[i] != ' ' || quoted {
			end = len(dest)
		}
	}
	if end >= 0 {
		dest = dest[:end]
	}
	return string(dest)
}

// modelSeparate is switch_separate_string: separate_string_char_delim or separate_string_blank_delim, state by state. When the array is full,
// its last element keeps the rest of the string.
func modelSeparate(s string, delim byte, most int) []string {
	if len(s) > 3 && s[0] == '^' && s[1] == '^' {
		delim, s = s[2], s[3:]
	}
	const (
		start = iota
		skipInitialSpace
		findDelim
		skipEndingSpace
	)
	type span struct{ from, to int }
	var spans []span
	state, quoted := start, false
	for i := 0; i < len(s) && len(spans) < most; {
		switch state {
		case start:
			spans = append(spans, span{i, len(s)})
			state = findDelim
			if delim == ' ' {
				state = skipInitialSpace
			}
		case skipInitialSpace:
			if s[i] == ' ' {
				i++
			} else {
				state = findDelim
			}
		case findDelim:
			switch c := s[i]; {
			case c == '\\':
				i++
			case c == '\'' && (delim == ' ' || quoted || strings.IndexByte(s[i+1:], '\'') >= 0):
				quoted = !quoted
			case c == delim && !quoted:
				spans[len(spans)-1].to = i
				state = start
				if delim == ' ' {
					state = skipEndingSpace
				}
			}
			i++
		case skipEndingSpace:
			if s[i] == ' ' {
				i++
			} else {
				state = start
			}
		}
	}
	clean := delim
	if delim == ' ' {
		clean = 0
	}
	parts := make([]string, len(spans))
	for i, sp := range spans {
		parts[i] = modelCleanup(s[sp.from:sp.to], clean)
	}
	return parts
}

// modelBrackets is switch_event_create_brackets for one list.
func modelBrackets(t testing.TB, data string) (vars []Var, rest string) {
	t.Helper()
	require.True(t, strings.HasPrefix(data, "{"), "no list in %q", data)
	depth, end := 0, -1
	for i := range len(data) {
		switch data[i] {
		case '{':
			depth++
		case '}':
			if depth--; depth == 0 && end < 0 {
				end = i
			}
		}
	}
	require.GreaterOrEqual(t, end, 0, "no end of the list in %q", data)
	for _, pair := range modelSeparate(data[1:end], ',', 1024) {
		if nv := modelSeparate(pair, '=', 2); len(nv) == 2 {
			vars = append(vars, Var{nv[0], nv[1]})
		}
	}
	return vars, data[end+1:]
}

// modelOriginate is originate_function's reading of its command line.
func modelOriginate(t testing.TB, args string) (vars []Var, address, app string) {
	t.Helper()
	words := modelSeparate(args, ' ', 10)
	require.Len(t, words, 2, "words of %q", args)
	vars, address = modelBrackets(t, words[0])
	return vars, address, words[1]
}

func TestModelAgreesWithFreeSWITCH(t *testing.T) {
	t.Parallel()
	// What the live switch and its C functions did with these, from the captures and by hand from the source.
	require.Equal(t, []string{"a b", "c"}, modelSeparate(`a\sb c`, ' ', 10))
	require.Equal(t, []string{"a b", "c"}, modelSeparate(`'a b' c`, ' ', 10))
	require.Equal(t, []string{"x=1", "y=2,z=3"}, modelSeparate(`x=1,'y=2,z=3'`, ',', 10))
	require.Equal(t, []string{"x=1", "y='2"}, modelSeparate(`x=1,y='2`, ',', 10))
	require.Equal(t, []string{"1;2", "3"}, modelSeparate(`^^:1;2:3`, ',', 10))
	// The attack of the field reports: the event socket's own split strips the quotes, so the comma splits.
	vars, _, _ := modelOriginate(t, `{name='Bob,execute_on_answer=log',x=1}sofia/gateway/g/1 &park()`)
	require.Contains(t, vars, Var{"execute_on_answer", "log"})
}

// awkward is a value full of what the layers read as syntax.
func awkward(r *rand.Rand) string {
	const alphabet = `\'" ,=nrtsab;:_&()%#@!~é` + "`"
	runes := []rune(alphabet)
	var b strings.Builder
	for range 1 + r.IntN(14) {
		b.WriteRune(runes[r.IntN(len(runes))])
	}
	return b.String()
}

func TestOriginateVariablesSurviveThreeLayers(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	accepted := 0
	for range 40_000 {
		value := awkward(r)
		if checkOriginateRoundTrip(t, value) {
			accepted++
		}
	}
	require.Greater(t, accepted, 30_000, "most awkward values must be carried, not refused")
}

// checkOriginateRoundTrip carries a value through a whole originate command and reports whether the builder took it.
func checkOriginateRoundTrip(t testing.TB, value string) bool {
	t.Helper()
	o := Originate{
		ChannelID: "chan-1", Gateway: "gw", Number: "+15550100", CallerIDNumber: "+15550199", Timeout: 30 * time.Second,
		Variables: []Var{{"first", value}, {"second", "2"}}, ExecuteOnAnswer: []App{{name: "sched_hangup", args: "+60 ALLOTTED_TIMEOUT"}},
	}
	args, err := o.arguments()
	if err != nil {
		require.ErrorIs(t, err, ErrRefusedInput)
		return false
	}
	require.NotContains(t, args, "\n")
	vars, address, app := modelOriginate(t, args)
	want := []Var{
		{"origination_uuid", "chan-1"}, {"origination_caller_id_number", "+15550199"}, {"originate_timeout", "30"},
		{"execute_on_answer", "sched_hangup +60 ALLOTTED_TIMEOUT"}, {"first", value}, {"second", "2"},
	}
	if !slices.Equal(want, vars) { // require.Equal alone takes most of the time
		require.Equal(t, want, vars, "value %q came back changed from %q", value, args)
	}
	require.Equal(t, "sofia/gateway/gw/+15550100", address)
	require.Equal(t, "&park()", app)
	return true
}

func FuzzOriginateVariables(f *testing.F) {
	for _, seed := range []string{
		"plain", "O'Brien, Ltd", `a\,b`, ` leading and trailing `, `''`, `\\'`, `x=y=z`, `Bob,execute_on_answer=log`, "${system(touch /tmp/x)}", "a}b", `\s\n`, "é",
		":_", "^^:x", "a\nb", `"quoted"`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, value string) { checkOriginateRoundTrip(t, value) })
}

func FuzzDialVariables(f *testing.F) {
	for _, seed := range []string{"plain", "O'Brien, Ltd", `a\,b`, ` x `, `''`, `x=y`, "${x}", "a]b"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, value string) {
		d, err := NewDial(Target{SIPURI: "sip:bob@example.com"}, Var{"first", value}, Var{"second", "2"})
		if err != nil {
			require.ErrorIs(t, err, ErrRefusedInput)
			return
		}
		vars, address := modelBrackets(t, d.String())
		require.Equal(t, []Var{{"first", value}, {"second", "2"}}, vars)
		require.Equal(t, "sofia/external/sip:bob@example.com", address)
	})
}

func FuzzSetVariable(f *testing.F) {
	for _, seed := range []string{"plain", "O'Brien, Ltd", `a\ b`, " x ", `''`, "${x}", "$\\{x}", "", "a\nb"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, value string) {
		args, err := setVariableArgs("chan-1", "name", value)
		if err != nil {
			require.ErrorIs(t, err, ErrRefusedInput)
			return
		}
		want := []string{"chan-1", "name", value}
		if value == "" {
			want = want[:2]
		}
		require.Equal(t, want, modelSeparate(args, ' ', 3))
		require.False(t, hasExpansion(value))
	})
}

package actions

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write what the fixtures lead to, and the generated parts of the documentation")

func fixtures(t testing.TB, folder string) []string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join("testdata", folder, "*.json"))
	require.NoError(t, err)
	require.NotEmpty(t, paths)
	return paths
}

// TestGood reads each good reply, compares its canonical form with the golden file and reads that back.
func TestGood(t *testing.T) {
	t.Parallel()
	for _, path := range fixtures(t, "good") {
		t.Run(filepath.Base(path), func(t *testing.T) {
			t.Parallel()
			body, err := os.ReadFile(path)
			require.NoError(t, err)
			reply, err := Parse(body)
			require.NoError(t, err)
			encoded, err := Encode(reply.Actions)
			require.NoError(t, err)

			golden := strings.TrimSuffix(path, ".json") + ".golden"
			if *update {
				pretty, err := json.MarshalIndent(encoded, "", "  ")
				require.NoError(t, err)
				require.NoError(t, os.WriteFile(golden, append(pretty, '\n'), 0o600))
			}
			want, err := os.ReadFile(golden)
			require.NoError(t, err)
			require.JSONEq(t, string(want), string(encoded))

			again, err := Decode(encoded)
			require.NoError(t, err)
			require.Equal(t, reply.Actions, again)
		})
	}
}

// TestBad holds each refusal to its exact words, because customers read them.
func TestBad(t *testing.T) {
	t.Parallel()
	for _, path := range fixtures(t, "bad") {
		t.Run(filepath.Base(path), func(t *testing.T) {
			t.Parallel()
			body, err := os.ReadFile(path)
			require.NoError(t, err)
			reply, err := Parse(body)
			var refused *Error
			require.ErrorAs(t, err, &refused)
			require.Nil(t, reply)
			golden := strings.TrimSuffix(path, ".json") + ".error"
			if *update {
				require.NoError(t, os.WriteFile(golden, []byte(err.Error()+"\n"), 0o600))
			}
			want, readErr := os.ReadFile(golden)
			require.NoError(t, readErr)
			require.EqualError(t, err, strings.TrimSuffix(string(want), "\n"))
		})
	}
}

func TestErrorNamesThePlace(t *testing.T) {
	t.Parallel()
	_, err := Parse([]byte(`[{"action":"answer"},{"action":"input","prompt":[{"action":"say","text":"a"},{"action":"talk","text":""}]}]`))
	var refused *Error
	require.ErrorAs(t, err, &refused)
	require.Equal(t, &Error{
		Index: 1, Action: "say", Field: "text", Path: "actions[1].gather.prompt[1].say.text", Message: `must not be empty, was ""`, Allowed: "a string of at most 3000 characters", Got: `""`,
	}, refused)

	_, err = Parse([]byte(`{"actions":[{"action":"answer"},{"action":"pause","seconds":1,"seconds":2}]}`))
	require.ErrorAs(t, err, &refused)
	require.Equal(t, 1, refused.Index)
	require.Equal(t, "seconds", refused.Field)
}

func TestDefaults(t *testing.T) {
	t.Parallel()
	reply, err := Parse([]byte(`[{"action":"say","text":"a"},{"action":"gather"},{"action":"record"},
		{"action":"dial","to":"+14155550100"},{"action":"pause"},{"action":"dtmf","digits":"1"},{"action":"hangup"},{"action":"reject"}]`))
	require.NoError(t, err)
	require.Equal(t, []Action{
		&Say{Text: "a", Language: "en-US", Loop: 1},
		&Gather{Input: []string{InputDigits}, MinDigits: 1, MaxDigits: 20, Timeout: 5 * time.Second, DigitTimeout: 3 * time.Second, FinishOnKey: "#", Tries: 1},
		&Record{MaxSeconds: time.Hour, SilenceSeconds: 5 * time.Second, FinishOnKey: "#", Beep: true, Format: "wav"},
		&Dial{To: []Target{{Number: "+14155550100", Timeout: 30 * time.Second}}, Strategy: StrategySimultaneous, Timeout: 30 * time.Second, MaxSeconds: 4 * time.Hour, AnswerOnBridge: true},
		&Pause{Seconds: time.Second},
		&DTMF{Digits: "1", ToneMS: 100},
		&Hangup{Reason: ReasonCompleted},
		&Reject{Reason: ReasonDeclined, SIPCode: 603},
	}, reply.Actions)
}

func TestLimits(t *testing.T) {
	t.Parallel()
	list := func(n int) []byte {
		return []byte("[" + strings.TrimSuffix(strings.Repeat(`{"action":"answer"},`, n), ",") + "]")
	}
	reply, err := Parse(list(MaxActions))
	require.NoError(t, err)
	require.Len(t, reply.Actions, MaxActions)
	_, err = Parse(list(MaxActions + 1))
	require.EqualError(t, err, "the reply must hold at most 100 actions, nested ones included, has 101 or more")

	prompts := fmt.Sprintf(`[{"action":"gather","prompt":[%s]}]`,
		strings.TrimSuffix(strings.Repeat(`{"action":"say","text":"a"},`, MaxActions), ","))
	_, err = Parse([]byte(prompts))
	require.ErrorContains(t, err, "must hold at most 100 actions")

	padded := func(n int) []byte {
		body := []byte(`[{"action":"answer"}]`)
		return append(body, strings.Repeat(" ", n-len(body))...)
	}
	_, err = Parse(padded(MaxBytes))
	require.NoError(t, err)
	_, err = Parse(padded(MaxBytes + 1))
	require.EqualError(t, err, "the reply must be at most 65536 bytes, was 65537")

	_, err = Parse([]byte(`[{"action":"notify","payload":"` + strings.Repeat("x", maxPayload-2) + `"}]`))
	require.NoError(t, err)
	_, err = Parse([]byte(`[{"action":"notify","payload":"` + strings.Repeat("x", maxPayload-1) + `"}]`))
	require.EqualError(t, err, "actions[0].notify.payload: must be at most 8192 bytes, was 8193")
	_, err = Parse([]byte(`[{"action":"notify","payload":` + strings.Repeat("[", 100) + strings.Repeat("]", 100) + `}]`))
	require.ErrorContains(t, err, "nested more than 32 levels deep")
	_, err = Parse([]byte(`[{"action":"say","text":"` + strings.Repeat("é", 3001) + `"}]`))
	require.EqualError(t, err, "actions[0].say.text: must be at most 3000 characters, was 3001")
	_, err = Parse([]byte("[{\"action\":\"say\",\"text\":\"\xff\"}]"))
	require.EqualError(t, err, "the reply is not valid UTF-8")
}

// TestDecodeHasNoLimits proves that what Parse accepted always comes back from the stored cursor, although the
// canonical form is longer.
func TestDecodeHasNoLimits(t *testing.T) {
	t.Parallel()
	one := `{"action":"say","text":"` + strings.Repeat("x", 620) + `"},`
	reply, err := Parse([]byte("[" + strings.TrimSuffix(strings.Repeat(one, 100), ",") + "]"))
	require.NoError(t, err)
	encoded, err := Encode(append(reply.Actions, &Answer{}))
	require.NoError(t, err)
	require.Greater(t, len(encoded), MaxBytes)
	again, err := Decode(encoded)
	require.NoError(t, err)
	require.Len(t, again, 101)
}

// TestEveryFieldRefusesWrongTypes walks the tables themselves: whatever a field is, an object of nonsense is refused,
// with the field's own name.
func TestEveryFieldRefusesWrongTypes(t *testing.T) {
	t.Parallel()
	for _, v := range verbs {
		zero := v.make()
		require.Equal(t, v.name, zero.Verb())
		for _, f := range append(zero.base().commonFields(), zero.fields()...) {
			if v.name == "notify" && f.name == "payload" {
				continue // any JSON is a payload
			}
			body := fmt.Sprintf(`[{"action":%q,%q:{"nonsense":[{}]}}]`, v.name, f.name)
			_, err := Parse([]byte(body))
			var refused *Error
			require.ErrorAs(t, err, &refused, body)
			require.True(t, strings.HasPrefix(refused.Path, "actions[0]."+v.name+"."), "%s: %s", body, refused)
			if !errorsOnRequired(refused) {
				require.Equal(t, f.name, strings.SplitN(refused.Field, ".", 2)[0], body)
			}
		}
	}
}

// errorsOnRequired tells a refusal of a missing field that stands before the one under test.
func errorsOnRequired(e *Error) bool { return strings.HasPrefix(e.Message, "is required; it must be ") }

func BenchmarkParse(b *testing.B) {
	body, err := os.ReadFile(filepath.Join("testdata", "good", "gather.json"))
	require.NoError(b, err)
	b.ReportAllocs()
	b.SetBytes(int64(len(body)))
	for b.Loop() {
		if _, err := Parse(body); err != nil {
			b.Fatal(err)
		}
	}
}

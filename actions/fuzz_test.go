package actions

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// seed gives a fuzzer every fixture, and the shapes in which the documents stand.
func seed(f *testing.F) {
	f.Helper()
	for _, folder := range []string{"good", "bad"} {
		for _, path := range fixtures(f, folder) {
			body, err := os.ReadFile(path)
			require.NoError(f, err)
			f.Add(body)
		}
	}
	for _, body := range []string{
		"null", "true", "false", "{}", `""`, "1e400", `[[[]]]`, `[{"action":"say","text":"\ud83d\ude42"}]`,
		`{"mode":"message_end","async":false,"timeout":3.0001,"on_machine":"hangup"}`, `{"timeout":-0}`, `{"mode":"detect","mode":"detect"}`,
		`[{"action":"wait"},{"verb":"talk","text":"a"},{"action":"play","tone":"beep","loop":1e2}]`,
	} {
		f.Add([]byte(body))
	}
}

// requireError holds a refusal to what a customer is promised: a place and a reason.
func requireError(t *testing.T, err error) {
	t.Helper()
	var refused *Error
	require.ErrorAs(t, err, &refused)
	require.NotEmpty(t, refused.Message)
	require.GreaterOrEqual(t, refused.Index, -1)
	if refused.Got != "" {
		require.NotEmpty(t, refused.Allowed)
	}
}

// requireRoundTrip proves that the canonical form reads back and is canonical.
func requireRoundTrip(t *testing.T, list []Action) {
	t.Helper()
	encoded, err := Encode(list)
	require.NoError(t, err)
	again, err := Decode(encoded)
	require.NoError(t, err)
	require.Equal(t, list, again)
	twice, err := Encode(again)
	require.NoError(t, err)
	require.Equal(t, string(encoded), string(twice))
}

func FuzzParse(f *testing.F) {
	seed(f)
	f.Fuzz(func(t *testing.T, body []byte) {
		reply, err := Parse(body)
		if err != nil {
			requireError(t, err)
			return
		}
		require.True(t, json.Valid(body), "accepted what is not JSON")
		requireRoundTrip(t, reply.Actions)
	})
}

func FuzzParseList(f *testing.F) {
	seed(f)
	f.Fuzz(func(t *testing.T, body []byte) {
		list, err := ParseList(body, "fallback_actions")
		if err != nil {
			requireError(t, err)
			return
		}
		reply, err := Parse(body)
		require.NoError(t, err, "Parse refuses a list that ParseList accepts")
		require.Equal(t, reply.Actions, list)
		requireRoundTrip(t, list)
	})
}

func FuzzParseWait(f *testing.F) {
	seed(f)
	f.Fuzz(func(t *testing.T, body []byte) {
		list, err := ParseWait(body)
		if err != nil {
			requireError(t, err)
			return
		}
		require.NotEmpty(t, list)
		require.LessOrEqual(t, len(list), 20)
		for _, action := range list {
			require.Contains(t, []string{"say", "play", "pause"}, action.Verb())
			require.Empty(t, action.Meta().ResultURL)
		}
		encoded, err := Encode(list)
		require.NoError(t, err)
		again, err := ParseWait(encoded)
		require.NoError(t, err, "the canonical form of wait_actions must be wait_actions")
		require.Equal(t, list, again)
	})
}

func FuzzParseMachineDetection(f *testing.F) {
	seed(f)
	f.Fuzz(func(t *testing.T, body []byte) {
		found, err := ParseMachineDetection(body)
		if err != nil {
			requireError(t, err)
			return
		}
		if found == nil {
			return
		}
		encoded, err := json.Marshal(found)
		require.NoError(t, err)
		again, err := ParseMachineDetection(encoded)
		require.NoError(t, err)
		require.Equal(t, found, again)
	})
}

// FuzzDecode is about what is stored: whatever Decode takes, Encode writes so that Decode takes it again.
func FuzzDecode(f *testing.F) {
	seed(f)
	f.Fuzz(func(t *testing.T, body []byte) {
		list, err := Decode(body)
		if err != nil {
			requireError(t, err)
			return
		}
		requireRoundTrip(t, list)
	})
}

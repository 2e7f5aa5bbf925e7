package actions

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestParseList(t *testing.T) {
	t.Parallel()
	list, err := ParseList(json.RawMessage(`[{"action":"talk","text":"Sorry"},{"action":"dial","to":"+14155550100"}]`), "fallback_actions")
	require.NoError(t, err)
	require.Len(t, list, 2)
	list, err = ParseList(json.RawMessage(`[]`), "actions")
	require.NoError(t, err)
	require.Empty(t, list)

	for body, want := range map[string]string{
		``:                              `fallback_actions is empty; it must be JSON`,
		`{"actions":[]}`:                `fallback_actions: must be a list of actions, was an object`,
		`null`:                          `fallback_actions: must be a list of actions, was null`,
		`[{"action":"say"}]`:            `fallback_actions[0].say.text: is required; it must be a string of at most 3000 characters`,
		`[{"action":"x","action":"y"}]`: `fallback_actions[0]: key "action" appears twice`,
		`[1`:                            `fallback_actions is not valid JSON: it ends too early`,
		`[` + strings.Repeat(`{"action":"answer"},`, 100) + `{"action":"answer"}]`: `fallback_actions must hold at most 100 actions, nested ones included, has 101 or more`,
		`[` + strings.Repeat(" ", MaxBytes) + `]`:                                  `fallback_actions must be at most 65536 bytes, was 65538`,
	} {
		_, err := ParseList(json.RawMessage(body), "fallback_actions")
		require.EqualError(t, err, want)
		var refused *Error
		require.ErrorAs(t, err, &refused)
	}

	var refused *Error
	_, err = ParseList(json.RawMessage(`[{"action":"answer"},{"action":"pause","seconds":"1","x":1}]`), "actions")
	require.ErrorAs(t, err, &refused)
	require.Equal(t, 1, refused.Index)
	require.Equal(t, "x", refused.Field)
	_, err = ParseList(json.RawMessage(`[{"action":"answer"},{"action":"pause","seconds":1,"seconds":2}]`), "fallback_actions")
	require.ErrorAs(t, err, &refused)
	require.Equal(t, 1, refused.Index)
}

func TestParseWait(t *testing.T) {
	t.Parallel()
	list, err := ParseWait(json.RawMessage(`[{"action":"say","text":"One moment"},{"action":"play","tone":"ringback_us"},{"action":"wait","seconds":2}]`))
	require.NoError(t, err)
	require.Equal(t, []Action{
		&Say{Text: "One moment", Language: "en-US", Loop: 1}, &Play{Tone: "ringback_us", Loop: 1}, &Pause{Seconds: 2 * time.Second},
	}, list)

	many := func(n int) string {
		return `[` + strings.TrimSuffix(strings.Repeat(`{"action":"pause"},`, n), ",") + `]`
	}
	_, err = ParseWait(json.RawMessage(many(20)))
	require.NoError(t, err)
	for body, want := range map[string]string{
		`[]`:     `wait_actions: must hold 1 to 20 actions, has none`,
		many(21): `wait_actions must hold at most 20 actions, nested ones included, has 21 or more`,
		`[{"action":"pause"},{"action":"gather"}]`:   `wait_actions[1].gather: is not allowed in wait_actions; allowed: say, play, pause`,
		`[{"action":"say","text":"a","loop":0}]`:     `wait_actions[0].say.loop: must be between 1 and 100 in wait_actions, was 0`,
		`[{"action":"say","text":"a","early":true}]`: `wait_actions[0].say.early: is not allowed in wait_actions`,
		`[{"action":"pause","result_url":"/x"}]`:     `wait_actions[0].pause.result_url: is not allowed in wait_actions`,
		`"none"`:                                     `wait_actions: must be a list of actions, was "none"`,
	} {
		_, err := ParseWait(json.RawMessage(body))
		require.EqualError(t, err, want)
	}
}

func TestParseMachineDetection(t *testing.T) {
	t.Parallel()
	defaults := &MachineDetection{Mode: ModeDetect, Async: true, Timeout: 15 * time.Second, OnMachine: OnMachineContinue}
	for body, want := range map[string]*MachineDetection{
		``: nil, `null`: nil, `false`: nil, `true`: defaults, `{}`: defaults,
		`{"mode":"message_end","async":false,"timeout":60,"on_machine":"hangup"}`: {Mode: ModeMessageEnd, Timeout: time.Minute, OnMachine: OnMachineHangup},
	} {
		found, err := ParseMachineDetection(json.RawMessage(body))
		require.NoError(t, err)
		require.Equal(t, want, found, body)
	}
	stored, err := json.Marshal(defaults)
	require.NoError(t, err)
	require.JSONEq(t, `{"mode":"detect","async":true,"timeout":15,"on_machine":"continue"}`, string(stored))

	for body, want := range map[string]string{
		`1`:                              `machine_detection: must be true, false or an object of settings, was 1`,
		`{"timeout":61}`:                 `machine_detection.timeout: must be between 3 and 60 seconds, was 61`,
		`{"mod":"detect"}`:               `machine_detection.mod: unknown field; did you mean "mode"? allowed: mode, async, timeout, on_machine`,
		`{"action":"machine_detection"}`: `machine_detection.action: unknown field; allowed: mode, async, timeout, on_machine`,
		`{`:                              `machine_detection is not valid JSON: it ends too early`,
	} {
		_, err := ParseMachineDetection(json.RawMessage(body))
		require.EqualError(t, err, want)
	}
}

// TestErrorIsReadByMachines proves that an error tells apart what was there and what is allowed.
func TestErrorIsReadByMachines(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]*Error{
		`[{"action":"answer"},{"action":"dial","to":["+14155550100",{"number":"12"}]}]`: {
			Index: 1, Action: "dial", Field: "to[1].number", Path: "actions[1].dial.to[1].number",
			Message: `must be an E.164 number such as "+14155550100", was "12"`,
			Allowed: `an E.164 number such as "+14155550100"`, Got: `"12"`,
		},
		`[{"action":"gather","max_digits":500}]`: {
			Field: "max_digits", Action: "gather", Path: "actions[0].gather.max_digits", Message: "must be between 1 and 128, was 500",
			Allowed: "a whole number between 1 and 128", Got: "500",
		},
		`[{"action":"conference"}]`: {
			Action: "conference", Field: "name", Path: "actions[0].conference.name",
			Message: "is required; it must be at most 64 letters, digits, -, _ and .", Allowed: "at most 64 letters, digits, -, _ and .",
		},
		`[{"action":"enqueue","name":"a","wait_actions":[{"action":"pause"},{"action":"say","text":1}]}]`: {
			Action: "say", Field: "text", Path: "actions[0].enqueue.wait_actions[1].say.text",
			Message: "must be a string of at most 3000 characters, was 1", Allowed: "a string of at most 3000 characters", Got: "1",
		},
	} {
		_, err := Parse([]byte(body))
		var refused *Error
		require.ErrorAs(t, err, &refused)
		require.Equal(t, want, refused, body)
	}
}

func TestNearest(t *testing.T) {
	t.Parallel()
	for written, want := range map[string]string{
		"tlak": "talk", "Say": "say", "gahter": "gather", "numDigits": "num_digits", "record-call": "record_call", "hang_up": "hangup",
		"conferense": "conference", "shout": "", "": "", "x": "", strings.Repeat("say", 20): "",
	} {
		require.Equal(t, want, nearest(written, []string{"say", "talk", "gather", "num_digits", "record_call", "hangup", "conference"}), written)
	}
}

func TestTones(t *testing.T) {
	t.Parallel()
	names := ToneNames()
	require.IsIncreasing(t, names)
	for _, name := range names {
		spec, ok := ToneSpec(name)
		require.True(t, ok)
		require.Regexp(t, `^%\([0-9]+,[0-9]+(,[0-9.]+)+\)(;%\([0-9]+,[0-9]+(,[0-9.]+)+\))*$`, spec, name)
	}
	_, ok := ToneSpec("%(1000,0,440)")
	require.False(t, ok)
}

func TestCheckResult(t *testing.T) {
	t.Parallel()
	require.NoError(t, CheckResult("gather", map[string]any{"action": "gather", "index": 2, "id": "a", "outcome": "digits", "digits": "12", "tries": 1}))
	require.NoError(t, CheckResult("dial", map[string]any{"dial_status": "busy", "legs": []map[string]any{{"leg_id": "a"}}, "seconds": 0.0}))
	require.NoError(t, CheckResult("pause", map[string]any{"outcome": "done"}))
	require.Error(t, CheckResult("pause", map[string]any{"outcome": "played"}))
	require.EqualError(t, CheckResult("shout", nil), `check a result: no verb "shout"`)
	require.EqualError(t, CheckResult("say", map[string]any{"outcome": "spoken"}),
		`result of say: field "outcome" must be one of played, failed, interrupted, was "spoken"`)
	require.EqualError(t, CheckResult("say", map[string]any{"volume": 1}), `result of say: field "volume" is not documented`)
	require.EqualError(t, CheckResult("say", map[string]any{"played_ms": "1"}), `result of say: field "played_ms" must be a number, was 1`)
	require.EqualError(t, CheckResult("say", map[string]any{"digit": nil}), `result of say: field "digit" must be a string, was null`)
}

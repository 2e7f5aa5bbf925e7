package calls

import (
	"encoding/json"
	"net/http"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"tandem/actions"
	"tandem/esl"
	"tandem/models"
	"tandem/models/modelstest"
)

func TestFreeSWITCHMachineDetection(t *testing.T) {
	t.Parallel()
	onSwitches(t, func(t *testing.T, l *live) {
		for _, tt := range []struct {
			to, mode, verdict string
			beep              bool
		}{
			{"+15550000720", "detect", answeredHuman, false},
			{"+15550000721", "detect", answeredMachine, false},
			{"+15550000721", "message_end", answeredMachine, true},
			{"+15550000722", "message_end", answeredMachine, false},
			{"+15550000723", "detect", answeredUnknown, false},
		} {
			l.answers("/answer", reply(`[{"action":"machine_detection","async":false,"timeout":20,"mode":"`+tt.mode+`","result_url":"/judged"}]`))
			l.answers("/judged", reply(`[]`))
			before := len(l.requests())
			l.create(func(r *CreateRequest) { r.To = tt.to })
			call := l.end()
			require.Equal(t, []any{StatusCompleted, ReasonCompleted}, []any{call.Status, call.Reason}, tt.to)
			require.Equal(t, tt.verdict, call.AnsweredBy, tt.to+" "+tt.mode)
			asks := l.requests()[before:]
			require.Len(t, asks, 2)
			result := asks[1].Result
			require.Equal(t, []any{"done", tt.verdict, tt.beep}, []any{result["outcome"], result["answered_by"], result["beep"]}, tt.to+" "+tt.mode)
			data := l.data(call.ID, "call.machine_detected")
			require.Equal(t, tt.verdict, data["answered_by"])
			t.Logf("%s %s: %s after %v ms", tt.to, tt.mode, tt.verdict, result["after_ms"])
		}
	})
}

// noGreetings checks that no recording of a greeting is left.
func (l *live) noGreetings(t *testing.T) {
	t.Helper()
	left, err := filepath.Glob(filepath.Join(l.manager.cfg.RecordingDir(l.node), "greeting_*"))
	require.NoError(t, err)
	require.Empty(t, left)
}

// TestFreeSWITCHMachineDetectionBeside judges while the call's list goes on.
func TestFreeSWITCHMachineDetectionBeside(t *testing.T) {
	t.Parallel()
	onSwitches(t, func(t *testing.T, l *live) {
		for _, tt := range []struct {
			to, detection, reason, verdict string
			outcomes                       []any
		}{
			{"+15550000720", `"async":true`, ReasonCompleted, answeredHuman, []any{"started"}},
			{"+15550000721", `"async":true,"on_machine":"hangup"`, reasonAnsweredMachine, answeredMachine, []any{"started"}},
			{"+15550000720", `"async":true,"on_machine":"hangup"`, ReasonCompleted, answeredHuman, []any{"started"}},
			{"+15550000721", `"async":false,"on_machine":"hangup"`, reasonAnsweredMachine, answeredMachine, nil},
			{"+15550000723", `"async":false,"timeout":3`, ReasonCompleted, answeredUnknown, []any{"done"}},
			{"+15550000722", `"async":false,"timeout":3,"mode":"message_end"`, ReasonCompleted, answeredMachine, []any{"done"}},
		} {
			after := "6"
			if tt.reason == reasonAnsweredMachine {
				after = "60" // the verdict ends it
			}
			call := l.calledOut(t, tt.to, `[{"action":"machine_detection",`+tt.detection+`},{"action":"pause","seconds":`+after+`}]`)
			require.Equal(t, []any{StatusCompleted, tt.reason, tt.verdict}, []any{call.Status, call.Reason, call.AnsweredBy}, "%s %s", tt.to, tt.detection)
			if tt.reason == reasonAnsweredMachine {
				require.Equal(t, SourcePlatform, call.HangupSource)
			}
			require.Equal(t, tt.outcomes, l.outcomes(call.ID, "machine_detection"), "%s %s", tt.to, tt.detection)
			require.Len(t, l.dataOf(call.ID, "call.machine_detected"), 1)
			require.Equal(t, tt.verdict, l.data(call.ID, "call.machine_detected")["answered_by"])
			require.Equal(t, tt.verdict, l.data(call.ID, "call.completed")["answered_by"])
			l.noGreetings(t)
		}
	})
}

// calledOut calls a number, runs a list and waits for the end.
func (l *live) calledOut(t *testing.T, to, list string) models.Call {
	t.Helper()
	l.answers("/answer", reply(list))
	l.create(func(r *CreateRequest) { r.To = to })
	return l.end()
}

// TestFreeSWITCHMachineDetectionAtAnswer judges calls that were created with machine_detection.
func TestFreeSWITCHMachineDetectionAtAnswer(t *testing.T) {
	t.Parallel()
	onSwitches(t, func(t *testing.T, l *live) {
		l.answers("/answer", reply(`[{"action":"pause","seconds":1}]`))
		for _, tt := range []struct{ to, detection, reason, verdict string }{
			{"+15550000720", `{"async":false,"on_machine":"hangup"}`, ReasonCompleted, answeredHuman},
			{"+15550000721", `{"async":false,"on_machine":"hangup"}`, reasonAnsweredMachine, answeredMachine},
		} {
			before := len(l.requests())
			detection, err := actions.ParseMachineDetection(json.RawMessage(tt.detection))
			require.NoError(t, err)
			l.create(func(r *CreateRequest) { r.To, r.MachineDetection = tt.to, detection })
			call := l.end()
			require.Equal(t, []any{tt.reason, tt.verdict}, []any{call.Reason, call.AnsweredBy}, tt.to)
			asks := l.requests()[before:]
			if tt.verdict == answeredMachine {
				require.Empty(t, asks, "nobody is asked what to say to a machine")
				continue
			}
			require.Len(t, asks, 1)
			require.Equal(t, tt.verdict, asks[0].Call["answered_by"], "the application knows who has answered")
			l.noGreetings(t)
		}
	})
}

// TestFreeSWITCHMachineDetectionInterrupted has live control, or the party, end what is waited for.
func TestFreeSWITCHMachineDetectionInterrupted(t *testing.T) {
	t.Parallel()
	began := make(chan string, 16)
	detecting := func(c *Config) {
		c.OnAction = func(callID string, _ int, action actions.Action) {
			if action.Verb() == "machine_detection" {
				began <- callID
			}
		}
	}
	var one sync.Mutex // both switches tell it to the same channel
	fitting{edit: []func(*Config){detecting}}.onSwitches(t, func(t *testing.T, l *live) {
		one.Lock()
		defer one.Unlock()
		l.answers("/answer", reply(`[{"action":"machine_detection","async":false,"mode":"message_end","timeout":60,"result_url":"/never"}]`))
		replace, err := actions.ParseList([]byte(`[{"action":"say","text":"Never mind."}]`), "actions")
		require.NoError(t, err)
		l.create(func(r *CreateRequest) { r.To = "+15550000721" })
		id := <-began
		_, err = l.manager.Direct(t.Context(), l.customer.ID, id, DirectRequest{Actions: replace})
		require.NoError(t, err)
		call := l.end()
		require.Equal(t, []any{ReasonCompleted, ""}, []any{call.Reason, call.AnsweredBy})
		require.Equal(t, []any{"interrupted"}, l.outcomes(call.ID, "machine_detection"))
		require.Equal(t, []any{"played"}, l.outcomes(call.ID, "say"))
		require.Empty(t, l.dataOf(call.ID, "call.machine_detected"))
		l.noGreetings(t)

		l.create(func(r *CreateRequest) { r.To = "+15550000721" })
		id = <-began
		_, err = l.manager.Cancel(t.Context(), l.customer.ID, id, nil)
		require.NoError(t, err)
		require.Equal(t, ReasonAPIHangup, l.end().Reason)
		l.noGreetings(t)
	})
}

func TestMachineDetectionThatTheSwitchRefuses(t *testing.T) {
	t.Parallel()
	s := newScene(t, modelstest.Open(t))
	s.sw.script("record_start", func(command) error {
		return &esl.CommandError{Command: "uuid_record", Reply: "-ERR Cannot record session!"}
	})
	s.answers("/answer", reply(`[{"action":"machine_detection","async":false,"id":"m","result_url":"/result"}]`))
	s.answers("/result", status(http.StatusNoContent))
	s.create()
	call := s.end()
	require.Equal(t, []any{ReasonCompleted, ""}, []any{call.Reason, call.AnsweredBy})
	require.Equal(t, "failed", s.requests()[1].Result["outcome"])
	data := s.data(call.ID, "call.error")
	require.Equal(t, []any{"action_failed", "machine_detection", "m", 0.0}, []any{data["code"], data["action"], data["id"], data["index"]})
}

package calls

import (
	"testing"

	"github.com/stretchr/testify/require"
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

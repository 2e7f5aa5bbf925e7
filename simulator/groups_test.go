package simulator

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestStaysInConferencesAndQueues(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		action, input, outcome string
		field                  string
		seconds                float64
	}{
		"conference":             {`{"action":"conference","name":"standup","result_url":"/out"}`, ``, "ended", "seconds", 30},
		"conference, shorter":    {`{"action":"conference","name":"standup","result_url":"/out"}`, `{"group":{"outcome":"ended","seconds":12}}`, "ended", "seconds", 12},
		"conference, too long":   {`{"action":"conference","name":"standup","result_url":"/out","max_seconds":20}`, ``, "max_seconds", "seconds", 20},
		"queue":                  {`{"action":"enqueue","name":"help","result_url":"/out"}`, ``, "left", "wait_seconds", 30},
		"queue, heard meanwhile": {`{"action":"enqueue","name":"help","result_url":"/out","wait_actions":[{"action":"pause","seconds":7}]}`, `{"group":{"seconds":60}}`, "left", "wait_seconds", 60},
		"queue, too long":        {`{"action":"enqueue","name":"help","result_url":"/out","max_wait":20}`, ``, "timeout", "wait_seconds", 20},
		"nobody in the queue":    {`{"action":"dequeue","name":"help","result_url":"/out"}`, ``, "timeout", "", 0},
		"does not wait":          {`{"action":"dequeue","name":"help","result_url":"/out","timeout":0}`, ``, "timeout", "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newTheatre(t)
			h.replies["/answer"] = []string{"[" + tt.action + `,{"action":"say","text":"Goodbye"}]`}
			h.replies["/out"] = []string{"[]"}
			report := h.run(`{"input":[` + tt.input + `],"expect":{"status":"completed","reason":"completed"}}`)
			require.True(t, report.OK, report.Problems)
			result := h.bodies[1]["result"].(map[string]any)
			require.Equal(t, tt.outcome, result["outcome"])
			if tt.field != "" {
				require.InDelta(t, tt.seconds, result[tt.field], 1)
			}
			require.Contains(t, commands(report), "sendmsg execute speak flite|slt|Goodbye", "the list goes on")
		})
	}
	for _, action := range []string{`{"action":"conference","name":"standup"}`, `{"action":"enqueue","name":"help"}`, `{"action":"dequeue","name":"help"}`} {
		for _, input := range []string{`{"group":{"outcome":"hangup","seconds":5}}`, `{"hangup":true}`} {
			h := newTheatre(t)
			h.replies["/answer"] = []string{"[" + action + `,{"action":"say","text":"Goodbye"}]`}
			report := h.run(`{"input":[` + input + `],"expect":{"reason":"caller_hangup"}}`)
			require.True(t, report.OK, "%s %s: %v", action, input, report.Problems)
		}
	}
}

package simulator

import (
	"testing"

	"github.com/stretchr/testify/require"

	"tandem/calls"
)

// dialled is the result of the action that a script's last request tells of.
func (h *theatre) lastResult() map[string]any {
	h.t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	result, ok := h.bodies[len(h.bodies)-1]["result"].(map[string]any)
	require.True(h.t, ok, "the last request tells of a result")
	return result
}

func TestMachineDetection(t *testing.T) {
	t.Parallel()
	h := newTheatre(t)
	h.replies["/judged"] = []string{`[]`}
	for _, mode := range []string{"detect", "message_end"} {
		h.replies["/answer"] = []string{`[{"action":"machine_detection","async":false,"timeout":6,"mode":"` + mode + `","result_url":"/judged"}]`}
		for _, who := range []string{"human", "machine", "unknown"} {
			report := h.run(`{"direction":"outbound","input":[{"machine":"` + who + `"}]}`)
			require.True(t, report.OK, "%s %s: %v", mode, who, report.Problems)
			require.Equal(t, who, h.lastResult()["answered_by"], mode)
		}
	}
	h.replies["/answer"] = []string{`[{"action":"machine_detection","on_machine":"hangup"},{"action":"pause","seconds":20}]`}
	report := h.run(`{"direction":"outbound","input":[{"machine":"machine"}],"expect":{"reason":"machine"}}`)
	require.True(t, report.OK, "%v", report.Problems)
}

func TestDialWithMachineDetection(t *testing.T) {
	t.Parallel()
	h := newTheatre(t)
	h.replies["/dialled"] = []string{`[]`}
	for detection, outcomes := range map[string][]string{
		`{"async":false,"on_machine":"hangup"}`: {"answered", "machine"},
		`{"async":true,"on_machine":"hangup"}`:  {"answered", "machine"},
		`{"async":true}`:                        {"answered", "answered"},
		`{"async":false}`:                       {"answered", "answered"},
	} {
		for i, who := range []string{"human", "machine"} {
			h.replies["/answer"] = []string{`[{"action":"dial","to":"+14155550123","machine_detection":` + detection + `,"result_url":"/dialled"}]`}
			report := h.run(`{"input":[{"dial":{"outcome":"answered","seconds":9}},{"machine":"` + who + `"}]}`)
			require.True(t, report.OK, "%s %s: %v", detection, who, report.Problems)
			result := h.lastResult()
			require.Equal(t, []any{outcomes[i], who}, []any{result["dial_status"], result["answered_by"]}, detection+" "+who)
		}
	}
}

func TestTransfers(t *testing.T) {
	t.Parallel()
	h := newTheatre(t)
	h.replies["/answer"] = []string{`[{"action":"answer"},{"action":"transfer","to":"+14155550123"},{"action":"say","text":"Nobody is there."}]`}
	report := h.run(`{"input":[{"dial":{"outcome":"answered","seconds":9}}],"expect":{"status":"completed","actions":["answer","transfer"]}}`)
	require.True(t, report.OK, "%v", report.Problems)
	report = h.run(`{"input":[{"dial":{"outcome":"busy"}}],"expect":{"actions":["answer","transfer","say"]}}`)
	require.True(t, report.OK, "%v", report.Problems)

	h.replies["/answer"] = []string{`[{"action":"answer"},{"action":"transfer","mode":"refer","to":"sip:anna@pbx.example"},{"action":"say","text":"Nobody is there."}]`}
	report = h.run(`{"input":[{"dial":{"outcome":"answered"}}],"expect":{"actions":["answer","transfer"]}}`)
	require.True(t, report.OK, "%v", report.Problems)
	report = h.run(`{"input":[{"dial":{"outcome":"declined"}}],"expect":{"actions":["answer","transfer","say"]}}`)
	require.True(t, report.OK, "%v", report.Problems)
}

func TestSpeech(t *testing.T) {
	t.Parallel()
	h := newTheatre(t, func(c *Config) { c.Recognizer = calls.Recognizer{Engine: "simulated", Module: "simulated"} })
	h.replies["/answer"] = []string{`[{"action":"gather","input":["digits","speech"],"num_digits":1,"result_url":"/said"}]`}
	h.replies["/said"] = []string{`[{"action":"hangup"}]`}
	require.True(t, h.run(`{"input":[{"speech":{"text":"the \"front\" desk","confidence":0.75}}]}`).OK)
	result := h.lastResult()
	require.Equal(t, map[string]any{"text": `the "front" desk`, "confidence": 0.75}, result["speech"])
	require.Equal(t, "speech", result["outcome"])
	report := h.run(`{"input":[{"digits":"4"}]}`)
	require.True(t, report.OK, "%v", report.Problems)
	require.Equal(t, []any{"digits", "4"}, []any{h.lastResult()["outcome"], h.lastResult()["digits"]})
	h.replies["/answer"] = []string{`[{"action":"gather","input":["digits","speech"],"result_url":"/said"}]`}
	report = h.run(`{"input":[{"digits":"4711#"}]}`)
	require.True(t, report.OK, "%v", report.Problems)
	require.Equal(t, []any{"digits", "4711", "#"}, []any{h.lastResult()["outcome"], h.lastResult()["digits"], h.lastResult()["terminator"]})
	require.True(t, h.run(`{"input":[{"silence":true}]}`).OK)
	require.Equal(t, "timeout", h.lastResult()["outcome"])

	deaf := newTheatre(t)
	deaf.replies["/answer"] = []string{`[{"action":"gather","input":["speech"]}]`, `[]`}
	report = deaf.run(`{"input":[{"speech":{"text":"hello"}}]}`)
	require.False(t, report.OK)
	require.Contains(t, report.Problems[1], "not_supported_by_node")
}

func TestConfirmedDialAndRecordedCall(t *testing.T) {
	t.Parallel()
	h := newTheatre(t)
	h.replies["/answer"] = []string{`[{"action":"record_call"},{"action":"play","tone":"beep"},{"action":"dial","to":["+14155550123","sip:anna@pbx.example"],"strategy":"sequential","ringback":"ringback_uk","result_url":"/dialled"},{"action":"record_call","op":"stop"}]`}
	h.replies["/dialled"] = []string{``}
	report := h.run(`{"input":[{"dial":{"to":"+14155550123","outcome":"busy"}},{"dial":{"to":"sip:anna@pbx.example","outcome":"answered","seconds":9}}]}`)
	require.True(t, report.OK, "%v", report.Problems)
	legs, ok := h.lastResult()["legs"].([]any)
	require.True(t, ok)
	require.Len(t, legs, 2)
}

package calls

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var allStatuses = []string{
	"", StatusQueued, StatusDialing, StatusRinging, StatusInProgress, StatusCompleted, StatusBusy, StatusNoAnswer, StatusRejected, StatusCanceled, StatusFailed,
}

var allTriggers = []trigger{onCreate, onEnqueue, onDispatch, onArrive, onProgress, onAnswer, onEnd}

func TestStateTable(t *testing.T) {
	t.Parallel()
	arrows := 0
	for _, from := range allStatuses {
		for _, on := range allTriggers {
			arrow, ok := next(from, on)
			if !ok {
				continue
			}
			arrows++
			require.NotEmpty(t, arrow.event)
			for _, to := range arrow.to {
				require.Contains(t, allStatuses[1:], to)
				require.NotEqual(t, from, to)
			}
			final := !slices.Contains([]string{"", StatusQueued, StatusDialing, StatusRinging, StatusInProgress}, from)
			require.False(t, final, "%s is final, but has an arrow on %s", from, on)
		}
	}
	require.Equal(t, len(transitions), arrows, "no two arrows leave a state on the same trigger")
	for _, live := range allStatuses[1:5] {
		arrow, ok := next(live, onEnd)
		require.True(t, ok, "every live call can end")
		require.Equal(t, live == StatusInProgress, arrow.event == "call.completed")
	}
}

// TestStateTableIsDocumented holds the table of docs/call-states.md to the one in the code.
func TestStateTableIsDocumented(t *testing.T) {
	t.Parallel()
	doc, err := os.ReadFile("../docs/call-states.md")
	require.NoError(t, err)
	var rows []string
	for line := range strings.Lines(string(doc)) {
		if strings.HasPrefix(line, "| `") || strings.HasPrefix(line, "| – |") {
			rows = append(rows, strings.TrimSpace(line))
		}
	}
	want := make([]string, len(transitions))
	for i, tr := range transitions {
		from := "–"
		if tr.from != "" {
			from = "`" + tr.from + "`"
		}
		want[i] = "| " + from + " | " + string(tr.on) + " | `" + strings.Join(tr.to, "`, `") + "` | `" + tr.event + "` |"
	}
	require.Equal(t, want, rows)
	for _, reason := range []string{ReasonAnswerURLFailed, ReasonNodeLost, ReasonInsufficientBalance} {
		require.Contains(t, string(doc), "`"+reason+"`")
	}
}

package calls

import (
	"encoding/binary"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tandem/models"
)

// span is the mean level of a part of a recording's first channel, of 16-bit samples.
func span(t *testing.T, path string, from, to time.Duration) float64 {
	t.Helper()
	f, err := os.Open(path)
	require.NoError(t, err)
	defer func() {
		_ = f.Close()
	}()
	pcm, err := readPCM(f)
	require.NoError(t, err)
	at := func(d time.Duration) int { return min(int(d.Milliseconds())*pcm.rate/1000, len(pcm.samples)) }
	part := pcm.samples[at(from):at(to)]
	require.NotEmpty(t, part, "from %s to %s", from, to)
	return float64(level(part))
}

// channelsOf is what a WAV file says of its channels.
func channelsOf(t *testing.T, path string) int {
	t.Helper()
	raw, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Greater(t, len(raw), 44)
	require.Equal(t, "fmt ", string(raw[12:16]))
	return int(binary.LittleEndian.Uint16(raw[22:]))
}

func TestFreeSWITCHRecordEnds(t *testing.T) {
	t.Parallel()
	onSwitches(t, func(t *testing.T, l *live) {
		for _, tt := range []struct {
			record, outcome string
			least, most     float64
		}{
			{`"max_seconds":3,"silence_seconds":0`, "max", 2.5, 4.5},
			{`"max_seconds":30,"silence_seconds":2`, "silence", 1.5, 6},
			{`"max_seconds":30,"silence_seconds":2,"beep":false`, "silence", 1.5, 6},
		} {
			call := l.calledIn(t, `[{"action":"record","result_url":"/result",`+tt.record+`}]`)
			result := l.results()[len(l.results())-1]
			row := l.recorded(t, call.ID)
			require.Equal(t, []any{tt.outcome, row.ID, row.Seconds}, []any{result["outcome"], result["recording_id"], result["seconds"]}, tt.record)
			require.NotContains(t, result, "key")
			require.Equal(t, []any{1, 1}, []any{row.Channels, channelsOf(t, row.Path)}, tt.record)
			require.GreaterOrEqual(t, row.Seconds, tt.least, tt.record)
			require.LessOrEqual(t, row.Seconds, tt.most, tt.record)
			seconds, err := fileSeconds(row.Path)
			require.NoError(t, err)
			require.InDelta(t, seconds, row.Seconds, 0.001)
		}
	})
}

// TestFreeSWITCHRecordCallMasked records a machine that talks for nine seconds, with a part that is masked.
func TestFreeSWITCHRecordCallMasked(t *testing.T) {
	t.Parallel()
	onSwitches(t, func(t *testing.T, l *live) {
		l.answers("/answer", reply(`[{"action":"record_call"},{"action":"pause","seconds":2},{"action":"record_call","op":"mask"},{"action":"pause","seconds":2.5},
			{"action":"record_call","op":"unmask"},{"action":"pause","seconds":2},{"action":"record_call","op":"stop"},{"action":"record_call","op":"stop","id":"again"},
			{"action":"pause","seconds":1}]`))
		l.create(func(r *CreateRequest) { r.To = "+15550000721" })
		call := l.end()
		row := l.recorded(t, call.ID)
		require.Equal(t, []any{"done", "done", "done", "done", "failed"}, l.outcomes(call.ID, "record_call"))
		for _, result := range l.actionResults(call.ID, "record_call")[:4] {
			require.Equal(t, row.ID, result["recording_id"])
		}
		require.Equal(t, "again", l.data(call.ID, "call.error")["id"])
		require.Equal(t, []any{2, 2}, []any{row.Channels, channelsOf(t, row.Path)})
		require.GreaterOrEqual(t, row.Seconds, 6.0, "masking shortens nothing")
		if l.sim != nil {
			return // it records silence
		}
		before, masked, after := span(t, row.Path, 0, 1500*time.Millisecond), span(t, row.Path, 2800*time.Millisecond, 3800*time.Millisecond),
			span(t, row.Path, time.Duration((row.Seconds-1.2)*float64(time.Second)), time.Duration(row.Seconds*float64(time.Second)))
		t.Logf("levels: %.0f, masked %.0f, %.0f in %.2f s", before, masked, after, row.Seconds)
		require.Greater(t, before, 100.0)
		require.Less(t, masked, 20.0, "a masked span is silent")
		require.Greater(t, after, 100.0)
	})
}

// TestFreeSWITCHRecordCallPaused leaves a part of a call out.
func TestFreeSWITCHRecordCallPaused(t *testing.T) {
	t.Parallel()
	onSwitches(t, func(t *testing.T, l *live) {
		l.answers("/answer", reply(`[{"action":"record_call","channels":"mono"},{"action":"record_call"},{"action":"pause","seconds":2},{"action":"record_call","op":"pause","result_url":"/paused"},
			{"action":"pause","seconds":8},{"action":"record_call","op":"resume"},{"action":"pause","seconds":2},{"action":"record_call","op":"stop"}]`))
		l.answers("/paused", func(w http.ResponseWriter, q asked) {
			rows, err := l.store.RecordingsOfCall(t.Context(), l.customer.ID, q.Call["id"].(string))
			if err == nil && len(rows) == 1 && rows[0].Status == models.RecordingPaused {
				w.WriteHeader(http.StatusNoContent)
				return
			}
			w.WriteHeader(http.StatusBadRequest) // ends the call
		})
		l.create(func(r *CreateRequest) { r.To = "+15550000702" })
		call := l.end()
		require.Equal(t, []any{"done", "failed", "done", "done", "done"}, l.outcomes(call.ID, "record_call"))
		require.Equal(t, "the call is being recorded already", l.data(call.ID, "call.error")["message"])
		row := l.recorded(t, call.ID)
		require.Equal(t, []any{1, 1}, []any{row.Channels, channelsOf(t, row.Path)})
		t.Logf("%.2f s", row.Seconds)
		require.GreaterOrEqual(t, row.Seconds, 3.5)
		require.Less(t, row.Seconds, 8.0, "of more than twelve seconds")
	})
}

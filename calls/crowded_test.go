package calls

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A switch that makes no session for a call is asked again, as long as the call may ring.
func TestFreeSWITCHWithoutRoom(t *testing.T) {
	t.Parallel()
	quick := fitting{edit: []func(*Config){func(c *Config) { c.HangupGrace = 200 * time.Millisecond }}}
	quick.onSwitches(t, func(t *testing.T, l *live) {
		l.answers("/answer", reply(`[{"action":"hangup"}]`))
		fsctl := func(command string) {
			t.Helper()
			_, err := l.esl.API(t.Context(), "fsctl "+command+" outbound")
			require.NoError(t, err)
		}
		fsctl("pause")
		created := l.create(func(r *CreateRequest) { r.To, r.Timeout = "+15550000800", 60 })
		require.Eventually(t, func() bool {
			call, err := l.store.CallByID(t.Context(), created.ID)
			return err == nil && call.LastCommand > 2 // it waits to be dialled, for the third time
		}, patience, 10*time.Millisecond)
		fsctl("resume")
		call := l.end()
		require.Equal(t, []any{created.ID, StatusCompleted, ReasonCompleted}, []any{call.ID, call.Status, call.Reason})
		require.Equal(t, []string{"call.created", "call.ringing", "call.answered", "call.completed"}, l.kinds(call.ID))
		require.Empty(t, l.legs(t, call.ID), "no trunk has failed")

		fsctl("pause")
		began := time.Now()
		l.create(func(r *CreateRequest) { r.To, r.Timeout = "+15550000800", 7 })
		call = l.end()
		require.Equal(t, []any{StatusFailed, ReasonInternalError, SourcePlatform, causeOutOfOrder}, []any{call.Status, call.Reason, call.HangupSource, call.Cause})
		require.Less(t, time.Since(began), 7*time.Second)

		created = l.create(func(r *CreateRequest) { r.To, r.Timeout = "+15550000800", 60 })
		_, err := l.manager.Cancel(t.Context(), l.customer.ID, created.ID, nil)
		require.NoError(t, err)
		require.Equal(t, StatusCanceled, l.end().Status)
		l.noChannels(t)
	})
}

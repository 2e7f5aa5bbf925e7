package calls

import (
	"testing"

	"github.com/stretchr/testify/require"

	"tandem/actions"
	"tandem/models/modelstest"
)

func TestAFaultEndsOnlyItsCall(t *testing.T) {
	t.Parallel()
	s := newScene(t, modelstest.Open(t), func(c *Config) {
		c.OnAction = func(_ string, index int, action actions.Action) {
			if action.Verb() == "dtmf" {
				panic(index)
			}
		}
	})
	s.hold()
	s.create()
	spoken := s.sw.await("execute speak")
	s.answers("/answer", reply(`[{"action":"dtmf","digits":"1"}]`))
	s.create()
	call := s.end()
	require.Equal(t, []any{StatusCompleted, ReasonInternalError, SourcePlatform}, []any{call.Status, call.Reason, call.HangupSource})
	s.manager.cfg.OnAction = nil
	s.sw.complete(spoken)
	require.Equal(t, ReasonCompleted, s.end().Reason)
}

package esl

import (
	"testing"

	"github.com/stretchr/testify/require"

	"tandem/lab"
)

// The switch keeps the token of its controller for all to see, until it is restarted.
func TestFreeSWITCHKnowsItsController(t *testing.T) {
	t.Parallel()
	l := startLive(t, lab.Options{})
	ctx := t.Context()
	token, err := l.Controller(ctx)
	require.NoError(t, err)
	require.Zero(t, token, "nobody has taken it")
	require.NoError(t, l.TakeControl(ctx, 41))
	require.NoError(t, l.TakeControl(ctx, 42))
	other := connectLive(t, l.node, l.carrier)
	token, err = other.Controller(ctx)
	require.NoError(t, err)
	require.EqualValues(t, 42, token)
}

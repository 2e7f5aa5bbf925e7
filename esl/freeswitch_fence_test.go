package esl

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tandem/lab"
)

// whether is an error unless the switch said what it should.
func whether(found, expected int64) error {
	if found != expected {
		return fmt.Errorf("the switch holds %d, not %d", found, expected)
	}
	return nil
}

// The switch keeps the token of its controller for all to see, until it is restarted.
func TestFreeSWITCHKnowsItsController(t *testing.T) {
	t.Parallel()
	l := startLive(t, lab.Options{})
	ctx := t.Context()
	token, err := l.Controller(ctx)
	require.NoError(t, err)
	require.Zero(t, token, "nobody has taken it")
	for _, before := range []int64{0, 41} {
		node, err := NewNode(Config{Addr: l.node.ESLAddr, Password: l.node.Password, Handler: newJournal(), Fence: claimer(func(ctx context.Context, conn *Claim) error {
			found, err := conn.Controller(ctx)
			return errors.Join(err, whether(found, before), conn.Take(ctx, before+41))
		})})
		require.NoError(t, err)
		require.NoError(t, node.Start(ctx))
		require.NoError(t, node.WaitUp(deadlineTB(t, 20*time.Second)))
		node.Stop()
	}
	token, err = l.Controller(ctx)
	require.NoError(t, err)
	require.EqualValues(t, 82, token)
}

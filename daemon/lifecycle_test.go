package daemon

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestLifecycleStopsInReverseAndOnce(t *testing.T) {
	t.Parallel()
	var order []string
	l := lifecycle{logger: slog.New(slog.DiscardHandler)}
	for _, name := range []string{"store", "calls", "api"} {
		l.add(name, func(context.Context) error { order = append(order, name); return nil })
	}
	require.NoError(t, l.stop(time.Second))
	require.NoError(t, l.stop(time.Second))
	require.Equal(t, []string{"api", "calls", "store"}, order)
}

func TestLifecycleGoesOnPastAFailure(t *testing.T) {
	t.Parallel()
	stopped := false
	l := lifecycle{logger: slog.New(slog.DiscardHandler)}
	l.add("store", func(context.Context) error { stopped = true; return nil })
	l.add("api", func(context.Context) error { return errors.New("stuck request") })
	require.EqualError(t, l.stop(time.Second), "stop api: stuck request")
	require.True(t, stopped)
}

func TestLifecycleIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		defer close(release)
		l := lifecycle{logger: slog.New(slog.DiscardHandler)}
		l.add("deaf", func(context.Context) error { <-release; return nil })
		began := time.Now()
		require.ErrorIs(t, l.stop(3*time.Second), context.DeadlineExceeded)
		require.Equal(t, 3*time.Second, time.Since(began))
	})
}

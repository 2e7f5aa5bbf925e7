package esl

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
)

// notSent requires that an error says for sure that nothing was sent.
func notSent(t *testing.T, err, want error) {
	t.Helper()
	require.ErrorIs(t, err, want)
	require.NotErrorIs(t, err, ErrNoReply)
}

// An application that waited for a place on its channel for as long as its caller does was not sent, and says so.
func TestApplicationThatFoundNoPlaceWasNotSent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f, h := newFakeSwitch(), newRecorder()
		var mu sync.Mutex
		sent := 0
		f.intercept = func(_ *fakeConn, m clientMessage) bool {
			mu.Lock()
			defer mu.Unlock()
			if strings.HasPrefix(m.line, "sendmsg ") {
				sent++
			}
			return false
		}
		n := startNode(t, f, h, func(cfg *Config) { cfg.ChannelWindow, cfg.Heartbeat = 2, time.Hour })
		<-h.up
		for range 2 {
			require.NoError(t, n.Execute(t.Context(), "chan", NewEventUUID(), Answer()))
		}
		impatient, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		err := n.Execute(impatient, "chan", NewEventUUID(), Answer())
		notSent(t, err, ErrBusy)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		began := time.Now()
		notSent(t, n.Execute(t.Context(), "chan", NewEventUUID(), Answer()), ErrBusy)
		require.Equal(t, 10*time.Second, time.Since(began), "CommandTimeout, where the caller sets no limit")
		mu.Lock()
		defer mu.Unlock()
		require.Equal(t, 2, sent)
	})
}

// A dial whose caller sets no limit does not wait for its turn for ever.
func TestDialThatFoundNoPlaceWasNotSent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f, h := newFakeSwitch(), newRecorder()
		var mu sync.Mutex
		sent := 0
		f.intercept = func(_ *fakeConn, m clientMessage) bool {
			if !strings.HasPrefix(m.line, "bgapi originate") {
				return false
			}
			mu.Lock()
			defer mu.Unlock()
			sent++
			return true // no answer comes
		}
		n := startNode(t, f, h, func(cfg *Config) { cfg.DialWindow, cfg.Heartbeat, cfg.AbandonLimit = 1, time.Hour, time.Hour })
		<-h.up
		place := func(ctx context.Context) error {
			_, err := n.Originate(ctx, Originate{ChannelID: uuid.NewString(), Gateway: "gateway", Number: "+15550100001", Timeout: time.Minute})
			return err
		}
		patient, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		var first sync.WaitGroup
		first.Go(func() { require.ErrorIs(t, place(patient), ErrNoReply) })
		synctest.Wait()
		began := time.Now()
		notSent(t, place(t.Context()), ErrBusy)
		require.Equal(t, 10*time.Second, time.Since(began))
		mu.Lock()
		require.Equal(t, 1, sent)
		mu.Unlock()
		cancel()
		first.Wait()
	})
}

// A command that the fence let wait was not sent, whatever became of the fence's own questions.
func TestCommandThatTheFenceKeptWasNotSent(t *testing.T) {
	t.Parallel()
	fence := &fenceStub{}
	fence.set(nil, true)
	n, sent := fencedNode(t, fence)
	kill := func(ctx context.Context) error { return n.Kill(ctx, fencedChannel, "NORMAL_CLEARING") }

	fence.set(func(ctx context.Context) error {
		<-ctx.Done()
		return fmt.Errorf("check whose node fs-1 is: %w", context.Cause(ctx))
	}, false)
	impatient, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	err := kill(impatient)
	notSent(t, err, ErrBusy)
	require.ErrorIs(t, err, context.DeadlineExceeded)

	ctx := deadline(t, time.Minute)
	unanswered := fmt.Errorf("whose node fs-1 is cannot be known: %w; %w", ErrDown, ErrNoReply)
	fence.set(func(context.Context) error { return unanswered }, false)
	err = kill(ctx)
	notSent(t, err, ErrDown)
	require.ErrorContains(t, err, unanswered.Error())

	fence.set(func(context.Context) error { return fmt.Errorf("the database is away") }, false)
	err = kill(ctx)
	notSent(t, err, ErrDown)
	require.ErrorContains(t, err, "the database is away")
	require.Empty(t, sent())
}

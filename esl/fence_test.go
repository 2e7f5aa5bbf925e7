package esl

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// fenceStub is a fence that a test opens and closes.
type fenceStub struct {
	mu     sync.Mutex
	held   []bool // what Held says, one after the other; the last stays
	check  func(ctx context.Context) error
	checks int
	claim  func(ctx context.Context, conn *Claim) error
}

// claimer is a fence that claims connections in its own way.
type claimer func(ctx context.Context, conn *Claim) error

func (claimer) Held() bool                                     { return true }
func (claimer) Check(context.Context) error                    { return nil }
func (c claimer) Claim(ctx context.Context, conn *Claim) error { return c(ctx, conn) }

func (f *fenceStub) Held() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	held := f.held[0]
	if len(f.held) > 1 {
		f.held = f.held[1:]
	}
	return held
}

func (f *fenceStub) Check(ctx context.Context) error {
	f.mu.Lock()
	f.checks++
	check := f.check
	f.mu.Unlock()
	return check(ctx)
}

func (f *fenceStub) Claim(ctx context.Context, conn *Claim) error {
	if f.claim == nil {
		return nil
	}
	return f.claim(ctx, conn)
}

func (f *fenceStub) set(check func(ctx context.Context) error, held ...bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.held, f.check, f.checks = held, check, 0
}

func (f *fenceStub) asked() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.checks
}

// fencedNode is a node behind a fence, and the api commands that its switch was given.
func fencedNode(t *testing.T, fence *fenceStub) (n *Node, sent func() []string) {
	t.Helper()
	var mu sync.Mutex
	var lines []string
	f := newFakeSwitch()
	f.intercept = func(c *fakeConn, m clientMessage) bool {
		mu.Lock()
		defer mu.Unlock()
		lines = append(lines, m.line)
		if strings.HasPrefix(m.line, "api global_getvar "+controllerVariable) {
			c.api("7")
			return true
		}
		return false
	}
	handler := newRecorder()
	n = startNode(t, f, handler, func(cfg *Config) { cfg.Fence, cfg.Probe = fence, time.Hour })
	receive(t, handler.up)
	mu.Lock()
	lines = nil
	mu.Unlock()
	return n, func() []string {
		mu.Lock()
		defer mu.Unlock()
		return append([]string(nil), lines...)
	}
}

const fencedChannel = "2f4d0e8c-0000-4000-8000-000000000001"

func TestFenceStopsEveryCommand(t *testing.T) {
	t.Parallel()
	fence := &fenceStub{}
	fence.set(nil, true)
	n, sent := fencedNode(t, fence)
	ctx := deadline(t, time.Minute)
	require.NoError(t, n.Kill(ctx, fencedChannel, "NORMAL_CLEARING"))
	require.Len(t, sent(), 1)

	fence.set(func(context.Context) error { return ErrFenced }, false)
	app, err := Silence(time.Second)
	require.NoError(t, err)
	commands := map[string]func() error{
		"kill":    func() error { return n.Kill(ctx, fencedChannel, "NORMAL_CLEARING") },
		"execute": func() error { return n.Execute(ctx, fencedChannel, NewEventUUID(), app) },
		"channels": func() error {
			_, err := n.Channels(ctx)
			return err
		},
		"originate": func() error {
			_, err := n.Originate(ctx, Originate{ChannelID: fencedChannel, Gateway: "gateway", Number: "+15550100001", Timeout: time.Minute})
			return err
		},
		"status": func() error {
			_, err := n.Status(ctx)
			return err
		},
	}
	for name, command := range commands {
		err := command()
		require.ErrorIs(t, err, ErrFenced, name)
		require.ErrorIs(t, err, ErrDown, "for this process, the node is away")
		require.NotErrorIs(t, err, ErrNoReply, "it is certain that nothing was sent")
	}
	require.Len(t, sent(), 1, "not one")
	require.Equal(t, len(commands), fence.asked())
}

// A lease that runs out between its check and the write is noticed: the command goes back, and is sent when the check says so.
func TestFenceThatClosesOnTheWay(t *testing.T) {
	t.Parallel()
	fence := &fenceStub{}
	fence.set(nil, true)
	n, sent := fencedNode(t, fence)
	ctx := deadline(t, time.Minute)
	fence.set(func(context.Context) error { return ErrFenced }, true, false)
	require.ErrorIs(t, n.Kill(ctx, fencedChannel, "NORMAL_CLEARING"), ErrFenced)
	require.Empty(t, sent())
	// Held, lost on the way, held again.
	fence.set(func(context.Context) error { return nil }, true, false, false, true)
	require.NoError(t, n.Kill(ctx, fencedChannel, "NORMAL_CLEARING"))
	require.Equal(t, []string{"api uuid_kill " + fencedChannel + " NORMAL_CLEARING"}, sent())
	require.Equal(t, 1, fence.asked())
	// The window is whole: as many commands fit as before.
	fence.set(nil, true)
	for range 200 {
		_, err := n.Exists(ctx, fencedChannel)
		require.NoError(t, err)
	}
}

// A fence may ask the switch itself. While nobody knows whose the switch is, only questions pass.
func TestFenceAsksTheSwitch(t *testing.T) {
	t.Parallel()
	fence := &fenceStub{}
	fence.set(nil, true)
	n, sent := fencedNode(t, fence)
	ctx := deadline(t, time.Minute)
	unknown := errors.New("the database is away")
	var told int64
	fence.set(func(ctx context.Context) (err error) {
		told, err = n.Controller(ctx)
		return errors.Join(err, unknown)
	}, false)
	require.ErrorIs(t, n.Kill(ctx, fencedChannel, "NORMAL_CLEARING"), unknown)
	require.EqualValues(t, 7, told)
	require.Equal(t, []string{"api global_getvar tandem_controller"}, sent())
}

// A process that has lost its switch does not connect to it again.
func TestFenceKeepsFromConnecting(t *testing.T) {
	t.Parallel()
	f := newFakeSwitch()
	fence := &fenceStub{}
	asked := make(chan struct{}, 100)
	fence.set(func(context.Context) error { asked <- struct{}{}; return ErrFenced }, false)
	startNode(t, f, newRecorder(), func(cfg *Config) { cfg.Fence, cfg.BackoffMax = fence, time.Millisecond })
	for range 3 {
		receive(t, asked)
	}
	require.Zero(t, f.dialled())
}

// A connection is claimed before anything is commanded on it, and before the switch is asked for its channels: whoever had it before may have
// changed them until then. One that cannot be claimed is no connection.
func TestClaimComesFirst(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var lines []string
	f := newFakeSwitch()
	f.intercept = func(c *fakeConn, m clientMessage) bool {
		mu.Lock()
		defer mu.Unlock()
		if strings.HasPrefix(m.line, "api ") {
			lines = append(lines, m.line)
		}
		switch {
		case strings.HasPrefix(m.line, "api global_getvar "+controllerVariable):
			c.api("7")
		case strings.HasPrefix(m.line, "api global_setvar "):
			c.api("+OK")
		default:
			return false
		}
		return true
	}
	refusals := 2
	var n *Node
	started := make(chan struct{})
	fence := claimer(func(ctx context.Context, conn *Claim) error {
		<-started
		if err := n.Kill(ctx, fencedChannel, "NORMAL_CLEARING"); !errors.Is(err, ErrDown) {
			return fmt.Errorf("a command of somebody else before the claim: %w", err)
		}
		if refusals > 0 {
			refusals--
			return errors.New("not now")
		}
		token, err := conn.Controller(ctx)
		if err != nil {
			return err
		}
		return conn.Take(ctx, token+1)
	})
	handler := newRecorder()
	n = startNode(t, f, handler, func(cfg *Config) { cfg.Fence, cfg.Probe, cfg.BackoffMax = fence, time.Hour, time.Millisecond })
	close(started)
	receive(t, handler.up)
	require.NoError(t, n.Kill(deadline(t, time.Minute), fencedChannel, "NORMAL_CLEARING"))
	mu.Lock()
	defer mu.Unlock()
	require.Equal(t, []string{
		"api global_getvar " + controllerVariable, "api global_setvar " + controllerVariable + "=8", "api global_getvar core_uuid", "api show channels as json",
		"api uuid_kill " + fencedChannel + " NORMAL_CLEARING",
	}, lines)
	require.Equal(t, 6, f.dialled(), "two connections each time")
}

func TestController(t *testing.T) {
	t.Parallel()
	f := newFakeSwitch()
	answers := []string{"12\n", "", "-ERR no reply\n", "twelve"}
	var mu sync.Mutex
	f.intercept = func(c *fakeConn, m clientMessage) bool {
		if m.line != "api global_getvar tandem_controller" {
			return false
		}
		mu.Lock()
		defer mu.Unlock()
		c.api(answers[0])
		answers = answers[1:]
		return true
	}
	handler := newRecorder()
	n := startNode(t, f, handler, nil)
	receive(t, handler.up)
	ctx := deadline(t, time.Minute)
	for _, want := range []int64{12, 0, 0} {
		token, err := n.Controller(ctx)
		require.NoError(t, err)
		require.Equal(t, want, token)
	}
	_, err := n.Controller(ctx)
	require.Error(t, err)
}

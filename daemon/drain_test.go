package daemon

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// fakeInlet is a switch that keeps what it was told.
type fakeInlet struct {
	mu     sync.Mutex
	told   []string
	failed error
}

func (f *fakeInlet) tell(what string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.told = append(f.told, what)
	return f.failed
}

func (f *fakeInlet) Drain(context.Context) error   { return f.tell("drain") }
func (f *fakeInlet) Undrain(context.Context) error { return f.tell("undrain") }

// heard returns what was said since the last time.
func (f *fakeInlet) heard() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	told := f.told
	f.told = nil
	return told
}

// A switch is told once whether it drains, again when it was away or did not take it, and at its first connection also that it does not: an earlier
// controller may have drained it.
func TestDrainage(t *testing.T) {
	t.Parallel()
	conn := &fakeInlet{}
	d := &drainage{conn: conn}
	keep := func(changed bool) {
		t.Helper()
		got, err := d.keep(t.Context())
		require.NoError(t, err)
		require.Equal(t, changed, got)
	}
	keep(false)
	keep(false)
	require.Equal(t, []string{"undrain"}, conn.heard())
	d.wanted.Store(true)
	keep(true)
	keep(false)
	require.Equal(t, []string{"drain"}, conn.heard())
	d.reset()
	keep(false)
	require.Equal(t, []string{"drain"}, conn.heard(), "after a restart")
	d.wanted.Store(false)
	conn.failed = errors.New("no answer")
	_, err := d.keep(t.Context())
	require.Error(t, err)
	conn.failed = nil
	keep(true)
	require.Equal(t, []string{"undrain", "undrain"}, conn.heard())
}

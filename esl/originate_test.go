package esl

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
)

// When the connection breaks, only so many calls may have been dialled without anybody knowing.
func TestFewOriginatesAreUnknownWhenTheConnectionBreaks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const window, orders = 4, 40
		f, h := newFakeSwitch(), newRecorder()
		var mu sync.Mutex
		heard := 0
		var line *fakeConn
		f.intercept = func(c *fakeConn, m clientMessage) bool {
			mu.Lock()
			defer mu.Unlock()
			if !strings.HasPrefix(m.line, "bgapi originate") {
				return false
			}
			heard++
			line = c
			return true // no answer comes
		}
		n := startNode(t, f, h, func(cfg *Config) { cfg.DialWindow, cfg.BackoffMin, cfg.BackoffMax = window, time.Hour, time.Hour })
		<-h.up
		place := func(ctx context.Context) error {
			_, err := n.Originate(ctx, Originate{ChannelID: uuid.NewString(), Gateway: "gateway", Number: "+15550100001", Timeout: time.Minute})
			return err
		}
		errs := make(chan error, orders)
		for range orders {
			go func() { errs <- place(t.Context()) }()
		}
		synctest.Wait()
		impatient, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		require.ErrorIs(t, place(impatient), ErrBusy)
		mu.Lock()
		require.Equal(t, window, heard)
		require.NoError(t, line.Close())
		mu.Unlock()
		unknown := 0
		for range orders {
			err := <-errs
			require.ErrorIs(t, err, ErrDown)
			if errors.Is(err, ErrNoReply) {
				unknown++
			}
		}
		require.Equal(t, window, unknown)
	})
}

package models_test

import (
	"bytes"
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"tandem/models"
	"tandem/models/modelstest"
)

func TestAwayClassifies(t *testing.T) {
	t.Parallel()
	for code, want := range map[string]error{
		"53100": models.ErrStorageFull,
		"57P01": models.ErrUnreachable, "57P02": models.ErrUnreachable, "57P03": models.ErrUnreachable, "53300": models.ErrUnreachable,
		"25006": models.ErrUnreachable, "25P03": models.ErrUnreachable, "08006": models.ErrUnreachable, "57014": models.ErrUnreachable, "58030": models.ErrUnreachable,
		"23505": nil, "42601": nil, "40001": nil, "22001": nil, "28P01": nil,
	} {
		err := fmt.Errorf("save: %w", &pgconn.PgError{Code: code})
		require.Equal(t, want, models.Away(err), code)
	}
	for _, err := range []error{
		io.EOF, io.ErrUnexpectedEOF, driver.ErrBadConn, net.ErrClosed, context.DeadlineExceeded, syscall.ECONNRESET,
		&net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}, &net.OpError{Op: "read", Err: syscall.EPIPE},
	} {
		require.Equal(t, models.ErrUnreachable, models.Away(fmt.Errorf("save: %w", err)), "%v", err)
	}
	for _, err := range []error{nil, errors.New("no such column"), context.Canceled, models.ErrStale, models.ErrNotFound} {
		require.NoError(t, models.Away(err))
	}
}

// separatePostgres is a store on a PostgreSQL that the test may kill.
func separatePostgres(t *testing.T, cfg models.Config) (*modelstest.Separate, *models.Store) {
	t.Helper()
	server := modelstest.StartSeparate(t)
	cfg.URL, cfg.Key = server.URL(), modelstest.Key
	s, err := models.Open(t.Context(), cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	require.NoError(t, s.Migrate(t.Context()))
	return server, s
}

// TestPostgresStopsAndStarts kills the server under transactions, reads, and idle connections: all of it fails as ErrUnreachable
// as long as it is away, and works again without anybody's doing.
func TestPostgresStopsAndStarts(t *testing.T) {
	t.Parallel()
	var log lockedBuffer
	server, s := separatePostgres(t, models.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	ctx := t.Context()
	app := modelstest.Application(t, s, modelstest.Customer(t, s, 0))
	call := modelstest.Call(t, s, app)
	require.NoError(t, s.Away())
	for range 2 {
		err := s.InTx(ctx, func(tx *models.Store) error {
			if err := tx.AppendEvent(ctx, &models.Event{CallID: call.ID, Type: "call.tested"}, body); err != nil {
				return err
			}
			server.Kill()
			return tx.AppendEvent(ctx, &models.Event{CallID: call.ID, Type: "call.tested"}, body)
		})
		require.ErrorIs(t, err, models.ErrUnreachable)
		require.ErrorIs(t, s.Away(), models.ErrUnreachable)
		require.ErrorIs(t, s.AwayFor(0), models.ErrUnreachable)
		require.NoError(t, s.AwayFor(time.Hour))
		_, err = s.Call(ctx, app.CustomerID, call.ID)
		require.ErrorIs(t, err, models.ErrUnreachable)
		require.ErrorIs(t, s.Probe(ctx), models.ErrUnreachable)
		require.ErrorIs(t, s.Ping(ctx), models.ErrUnreachable)

		require.NoError(t, server.Start(ctx))
		require.NoError(t, s.Probe(ctx))
		require.NoError(t, s.Away())
		_, err = s.Call(ctx, app.CustomerID, call.ID)
		require.NoError(t, err)
	}
	events, err := s.CallEvents(ctx, app.CustomerID, call.ID)
	require.NoError(t, err)
	require.Empty(t, events)
	require.Equal(t, 2, strings.Count(log.String(), `msg="database is unreachable"`), "each outage is told once: %s", log.String())
	require.Equal(t, 2, strings.Count(log.String(), `msg="database takes changes again"`))
}

// TestPostgresHangs holds the lock that a transaction waits for, as a server does that does not answer: the caller's deadline ends it.
func TestPostgresHangs(t *testing.T) {
	t.Parallel()
	s := modelstest.OpenPostgres(t)
	app := modelstest.Application(t, s, modelstest.Customer(t, s, 0))
	call := modelstest.Call(t, s, app)
	held, release := make(chan struct{}), make(chan struct{})
	var holder sync.WaitGroup
	holder.Go(func() {
		_ = s.InTx(t.Context(), func(tx *models.Store) error {
			_, err := tx.LockCall(t.Context(), app.CustomerID, call.ID)
			close(held)
			<-release
			return err
		})
	})
	<-held
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	err := s.InTx(ctx, func(tx *models.Store) error {
		return tx.AppendEvent(ctx, &models.Event{CallID: call.ID, Type: "call.tested"}, body)
	})
	close(release)
	holder.Wait()
	require.ErrorIs(t, err, models.ErrUnreachable)
	require.NoError(t, s.Probe(t.Context()))
}

// TestPostgresIsAStandby: a database that takes no changes, as after a failover, is away for changes and can be read.
func TestPostgresIsAStandby(t *testing.T) {
	t.Parallel()
	s := modelstest.OpenPostgres(t)
	app := modelstest.Application(t, s, modelstest.Customer(t, s, 0))
	require.NoError(t, models.Write(t.Context(), s, "SELECT set_config('default_transaction_read_only', 'on', false)"))
	seen := false
	for range 64 { // one of the connections is the standby's
		if err := s.Probe(t.Context()); err != nil {
			require.ErrorIs(t, err, models.ErrUnreachable)
			seen = true
			break
		}
	}
	require.True(t, seen)
	_, err := s.Application(t.Context(), app.CustomerID, app.ID)
	require.NoError(t, err)
}

// TestSQLiteFull fills the file: what does not fit is refused as a whole, what others write in the same commit is kept, and when there is
// room again everything works.
func TestSQLiteFull(t *testing.T) {
	t.Parallel()
	s := modelstest.Open(t)
	ctx := t.Context()
	app := modelstest.Application(t, s, modelstest.Customer(t, s, 0))
	call := modelstest.Call(t, s, app)
	require.NoError(t, models.Write(ctx, s, "PRAGMA max_page_count = 1"), "the least is what is there")
	large := func(int64, string, time.Time) ([]byte, error) { return bytes.Repeat([]byte("x"), 1<<20), nil }
	add := func(body models.EventBody) error {
		return s.InTx(ctx, func(tx *models.Store) error {
			return tx.AppendEvent(ctx, &models.Event{CallID: call.ID, Type: "call.tested"}, body)
		})
	}
	for range 3 {
		require.ErrorIs(t, add(large), models.ErrStorageFull)
	}
	require.ErrorIs(t, s.Away(), models.ErrStorageFull)

	var writers sync.WaitGroup
	results := make([]error, 8)
	for i := range results {
		writers.Go(func() { results[i] = add(large) })
	}
	writers.Wait()
	for _, err := range results {
		require.ErrorIs(t, err, models.ErrStorageFull)
	}
	require.NoError(t, models.Write(ctx, s, "PRAGMA max_page_count = 1073741823"))
	require.NoError(t, add(large))
	require.NoError(t, s.Away())
	events, err := s.CallEvents(ctx, app.CustomerID, call.ID)
	require.NoError(t, err)
	require.Len(t, events, 1, "what was refused left nothing behind")
	require.EqualValues(t, 1, events[0].Sequence)
	var verdict string
	require.NoError(t, models.Reader(s).Raw("PRAGMA integrity_check").Row().Scan(&verdict))
	require.Equal(t, "ok", verdict)
}

// TestDefer writes down a transaction without a database and makes it later: as it was, once.
func TestDefer(t *testing.T) {
	t.Parallel()
	modelstest.Run(t, "", func(t *testing.T, s *models.Store) {
		ctx := t.Context()
		app := modelstest.Application(t, s, modelstest.Customer(t, s, 0))
		call := modelstest.Call(t, s, app)
		leg := models.Leg{ID: models.NewID(models.PrefixLeg), CallID: call.ID, CustomerID: app.CustomerID, Kind: models.LegDial, Status: models.LegDialing}
		tape := models.Recording{ID: models.NewID(models.PrefixRecording), CallID: call.ID, CustomerID: app.CustomerID, Status: models.RecordingRunning}
		now := *call
		mark := models.NewID(models.PrefixEvent)
		deferred, err := s.Defer(ctx, mark, func(tx *models.Store) error {
			now.Status = models.CallRinging
			if err := tx.TransitionCall(ctx, &now, []string{models.CallDialing}); err != nil {
				return err
			}
			for _, kind := range []string{"call.one", "call.two"} {
				if err := tx.AppendEvent(ctx, &models.Event{CallID: call.ID, Type: kind}, body); err != nil {
					return err
				}
			}
			now.Cursor.Index = 3
			return errors.Join(tx.UpdateCall(ctx, &now, "cursor"), tx.SaveLeg(ctx, &leg), tx.SaveRecording(ctx, &tape))
		})
		require.NoError(t, err)
		// What happens to the copies later is of later transactions.
		now.Cursor.Index, leg.Status, tape.Status = 9, models.LegEnded, models.RecordingFailed
		stored, err := s.CallByID(ctx, call.ID)
		require.NoError(t, err)
		require.Equal(t, models.CallDialing, stored.Status, "nothing is written yet")

		write := func(tx *models.Store) error { return deferred.Write(ctx, tx) }
		require.ErrorIs(t, models.LoseCommit(ctx, s, write), models.ErrUnreachable)
		require.NoError(t, s.InTx(ctx, write), "tried again, it is seen to have been made")
		stored, err = s.CallByID(ctx, call.ID)
		require.NoError(t, err)
		require.Equal(t, models.CallRinging, stored.Status)
		require.Equal(t, 3, stored.Cursor.Index)
		events, err := s.CallEvents(ctx, app.CustomerID, call.ID)
		require.NoError(t, err)
		require.Len(t, events, 2)
		require.Equal(t, []string{"call.one", "call.two"}, []string{events[0].Type, events[1].Type})
		require.Equal(t, mark, events[0].ID)
		legs, err := s.LegsOfCall(ctx, app.CustomerID, call.ID)
		require.NoError(t, err)
		require.Len(t, legs, 1)
		require.Equal(t, models.LegDialing, legs[0].Status)
		tapes, err := s.RecordingsOfCall(ctx, app.CustomerID, call.ID)
		require.NoError(t, err)
		require.Len(t, tapes, 1)
		require.Equal(t, models.RecordingRunning, tapes[0].Status)
	})
}

// TestDeferRefuses: what only the database can answer is not deferred.
func TestDeferRefuses(t *testing.T) {
	t.Parallel()
	modelstest.Run(t, "", func(t *testing.T, s *models.Store) {
		ctx := t.Context()
		app := modelstest.Application(t, s, modelstest.Customer(t, s, 0))
		call := modelstest.Call(t, s, app)
		for name, fn := range map[string]func(tx *models.Store) error{
			"read": func(tx *models.Store) error { _, err := tx.CallByID(ctx, call.ID); return err },
			"settle": func(tx *models.Store) error {
				_, err := tx.SettleHold(ctx, app.CustomerID, call.ID, 0, 0)
				return err
			},
			"hold": func(tx *models.Store) error { return tx.Hold(ctx, app.CustomerID, 0) },
			"create": func(tx *models.Store) error {
				return tx.CreateCall(ctx, &models.Call{CustomerID: app.CustomerID, ApplicationID: app.ID})
			},
			"queue": func(tx *models.Store) error {
				_, err := tx.JoinQueue(ctx, &models.QueueEntry{CustomerID: app.CustomerID, CallID: call.ID, Queue: "q"})
				return err
			},
			"leave queue": func(tx *models.Store) error { return tx.LeaveQueue(ctx, "qe_1", "left") },
			"conference": func(tx *models.Store) error {
				_, _, err := tx.OpenConference(ctx, app.CustomerID, "c", "node")
				return err
			},
		} {
			_, err := s.Defer(ctx, "", fn)
			require.ErrorIs(t, err, models.ErrUnreachable, name)
		}
		require.NoError(t, s.Away(), "it says nothing of the database")
	})
}

// lockedBuffer is a log that may be read while it is written.
type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// A process that is stopped in the middle of a transaction holds nobody up for long, and its transaction runs again.
func TestStoppedTransaction(t *testing.T) {
	t.Parallel()
	modelstest.Run(t, "", func(t *testing.T, s *models.Store) {
		if s.Dialect() == models.DialectSQLite {
			t.Skip("all write in one process")
		}
		customer := modelstest.Customer(t, s, 1000)
		held, stopped := make(chan struct{}), make(chan struct{})
		runs, done := 0, make(chan error, 1)
		go func() {
			done <- s.InTx(t.Context(), func(tx *models.Store) error {
				if err := tx.Hold(t.Context(), customer.ID, 1); err != nil {
					return err
				}
				if runs++; runs == 1 {
					close(held)
					<-stopped
				}
				_, err := tx.Customer(t.Context(), customer.ID)
				return err
			})
		}()
		<-held
		require.NoError(t, s.Hold(t.Context(), customer.ID, 10), "it waits for the lock, until that is taken away")
		close(stopped)
		require.NoError(t, <-done)
		require.Equal(t, 2, runs)
		after, err := s.Customer(t.Context(), customer.ID)
		require.NoError(t, err)
		require.EqualValues(t, 11, after.HeldMicros)
	})
}

package models_test

import (
	"encoding/base64"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"tandem/models"
	"tandem/models/modelstest"
)

// readOn reads the journal from a cursor until nothing more is there.
func readOn(t *testing.T, s *models.Store, customerID string, filter models.EventFilter, cursor string, limit int) (events []models.Event, next string) {
	t.Helper()
	for {
		page, err := s.Journal(t.Context(), customerID, filter, models.Page{Limit: limit, Cursor: cursor})
		require.NoError(t, err)
		require.LessOrEqual(t, len(page.Events), limit)
		events, cursor = append(events, page.Events...), page.Next
		if !page.More {
			return events, cursor
		}
		require.Len(t, page.Events, limit, "a page is full where more follows")
	}
}

func idsOf(events []models.Event) []string {
	ids := make([]string, len(events))
	for i := range events {
		ids[i] = events[i].ID
	}
	return ids
}

func TestJournalPages(t *testing.T) {
	t.Parallel()
	modelstest.RunClock(t, "", func(t *testing.T, s *models.Store, clock *modelstest.Clock) {
		ctx := t.Context()
		customer, other := modelstest.Customer(t, s, 0), modelstest.Customer(t, s, 0)
		app, second := modelstest.Application(t, s, customer), modelstest.Application(t, s, customer)
		stranger := modelstest.Call(t, s, modelstest.Application(t, s, other))

		page, err := s.Journal(ctx, customer.ID, models.EventFilter{}, models.Page{})
		require.NoError(t, err)
		require.Empty(t, page.Events)
		require.False(t, page.More)
		empty := page.Next

		call, sibling := modelstest.Call(t, s, app), modelstest.Call(t, s, second)
		var want []string
		var moments []time.Time
		for i := range 7 {
			clock.Advance(time.Second)
			moments = append(moments, clock.Now())
			event := appendEvent(t, s, []*models.Call{call, sibling}[i%2], []string{"call.ringing", "call.answered", "call.notify"}[i%3])
			want = append(want, event.ID)
			appendEvent(t, s, stranger, "call.notify")
		}
		trunk := modelstest.OutboundTrunk(t, s, customer)
		about := &models.Event{CustomerID: customer.ID, ApplicationID: app.ID, SubjectID: trunk.ID, Type: "trunk.registered"}
		require.NoError(t, s.AppendSubjectEvent(ctx, about, false, body))
		want = append(want, about.ID)

		for _, limit := range []int{1, 3, 8, 100} {
			events, next := readOn(t, s, customer.ID, models.EventFilter{}, empty, limit)
			require.Equal(t, want, idsOf(events), "oldest first, across calls, trunks and applications, and nobody else's")
			again, stays := readOn(t, s, customer.ID, models.EventFilter{}, next, limit)
			require.Empty(t, again)
			require.Equal(t, next, stays)
		}
		for name, tc := range map[string]struct {
			filter models.EventFilter
			want   []string
		}{
			"type":                 {models.EventFilter{Types: []string{"call.answered"}}, []string{want[1], want[4]}},
			"types":                {models.EventFilter{Types: []string{"call.answered", "trunk.registered"}}, []string{want[1], want[4], want[7]}},
			"application":          {models.EventFilter{ApplicationID: second.ID}, []string{want[1], want[3], want[5]}},
			"call":                 {models.EventFilter{CallID: call.ID}, []string{want[0], want[2], want[4], want[6]}},
			"a trunk is no call":   {models.EventFilter{CallID: trunk.ID}, nil},
			"somebody else's call": {models.EventFilter{CallID: stranger.ID}, nil},
			"after":                {models.EventFilter{CreatedAfter: &moments[5]}, want[5:]},
			"before":               {models.EventFilter{CreatedBefore: &moments[1]}, want[:2]},
			"all together":         {models.EventFilter{Types: []string{"call.notify"}, ApplicationID: app.ID, CallID: call.ID, CreatedAfter: &moments[1], CreatedBefore: &moments[2]}, want[2:3]},
		} {
			for _, limit := range []int{1, 100} {
				events, next := readOn(t, s, customer.ID, tc.filter, "", limit)
				require.ElementsMatch(t, tc.want, idsOf(events), name)
				page, err := s.Journal(ctx, customer.ID, models.EventFilter{}, models.Page{Cursor: next})
				require.NoError(t, err)
				require.Empty(t, page.Events, "what the filter left out is not looked at again")
			}
		}

		page, err = s.Journal(ctx, customer.ID, models.EventFilter{}, models.Page{Cursor: models.JournalEnd})
		require.NoError(t, err)
		require.Empty(t, page.Events)
		late := appendEvent(t, s, call, "call.completed")
		events, _ := readOn(t, s, customer.ID, models.EventFilter{}, page.Next, 10)
		require.Equal(t, []models.Event{*late}, events)

		for _, bad := range []string{"x", "%", base64.RawURLEncoding.EncodeToString([]byte("journal -1")), base64.RawURLEncoding.EncodeToString([]byte("1 evt_1"))} {
			_, err := s.Journal(ctx, customer.ID, models.EventFilter{}, models.Page{Cursor: bad})
			require.ErrorIs(t, err, models.ErrBadCursor, bad)
		}
	})
}

// TestJournalWaitsForTheSlow has a transaction take its place in the journal and end after another that took a later one: a
// reader that follows gets both, in their order. On SQLite the other waits for its turn, so the first is always first.
func TestJournalWaitsForTheSlow(t *testing.T) {
	t.Parallel()
	s := modelstest.OpenPostgres(t)
	ctx := t.Context()
	customer := modelstest.Customer(t, s, 0)
	app := modelstest.Application(t, s, customer)
	slow, quick := modelstest.Call(t, s, app), modelstest.Call(t, s, app)
	before := appendEvent(t, s, quick, "call.notify")

	placed, end := make(chan string, 1), make(chan bool)
	release := sync.OnceFunc(func() { close(end) })
	defer release()
	var group errgroup.Group
	group.Go(func() error {
		return s.InTx(ctx, func(tx *models.Store) error {
			event := &models.Event{CallID: slow.ID, Type: "call.notify"}
			if err := tx.AppendEvent(ctx, event, body); err != nil {
				return err
			}
			placed <- event.ID
			<-end
			return nil
		})
	})
	first := <-placed
	second := appendEvent(t, s, quick, "call.notify")
	page, err := s.Journal(ctx, customer.ID, models.EventFilter{}, models.Page{})
	require.NoError(t, err)
	require.Equal(t, []string{before.ID}, idsOf(page.Events), "what lies behind an event that is not there yet waits for it")
	require.False(t, page.More)
	now, err := s.Journal(ctx, customer.ID, models.EventFilter{}, models.Page{Cursor: models.JournalEnd})
	require.NoError(t, err)
	require.Equal(t, page.Next, now.Next)

	release()
	require.NoError(t, group.Wait())
	rest, _ := readOn(t, s, customer.ID, models.EventFilter{}, page.Next, 10)
	require.Equal(t, []string{first, second.ID}, idsOf(rest))

	// One that is undone holds nobody up any more.
	require.ErrorIs(t, s.InTx(ctx, func(tx *models.Store) error {
		if err := tx.AppendEvent(ctx, &models.Event{CallID: slow.ID, Type: "call.notify"}, body); err != nil {
			return err
		}
		return errRefused
	}), errRefused)
	last := appendEvent(t, s, quick, "call.notify")
	events, _ := readOn(t, s, customer.ID, models.EventFilter{}, "", 2)
	require.Equal(t, []string{before.ID, first, second.ID, last.ID}, idsOf(events))
}

// TestJournalSkipsNothing has 16 writers, on two stores, with transactions of one to three events of which some are undone, and
// readers that page behind them all the while: each reader gets every event once, and all in one order.
func TestJournalSkipsNothing(t *testing.T) {
	t.Parallel()
	modelstest.RunPair(t, "", func(t *testing.T, s, other *models.Store) {
		customer := modelstest.Customer(t, s, 0)
		app := modelstest.Application(t, s, customer)
		const writers, each, readers = 16, 30, 3
		var written atomic.Int64
		var writing, reading errgroup.Group
		done := make(chan struct{})
		for writer := range writers {
			call := modelstest.Call(t, s, app)
			store := []*models.Store{s, other}[writer%2]
			writing.Go(func() error {
				for turn := range each {
					events := int64(1 + (writer+turn)%3)
					err := store.InTx(t.Context(), func(tx *models.Store) error {
						for range events {
							if err := tx.AppendEvent(t.Context(), &models.Event{CallID: call.ID, Type: "call.notify"}, body); err != nil {
								return err
							}
						}
						if turn%7 == 6 {
							return errRefused
						}
						return nil
					})
					switch {
					case err == nil:
						written.Add(events)
					case turn%7 != 6:
						return err
					}
				}
				return nil
			})
		}
		seen := make([][]string, readers)
		for reader := range readers {
			store := []*models.Store{s, other}[reader%2]
			reading.Go(func() error {
				for cursor, last := "", false; ; {
					select {
					case <-done:
						last = true
					default:
					}
					page, err := store.Journal(t.Context(), customer.ID, models.EventFilter{}, models.Page{Limit: 1 + 5*reader, Cursor: cursor})
					if err != nil {
						return err
					}
					seen[reader] = append(seen[reader], idsOf(page.Events)...)
					if cursor = page.Next; last && !page.More {
						return nil
					}
				}
			})
		}
		require.NoError(t, writing.Wait())
		close(done)
		require.NoError(t, reading.Wait())
		all, _ := readOn(t, s, customer.ID, models.EventFilter{}, "", 100)
		require.Len(t, all, int(written.Load()))
		for reader := range readers {
			require.Equal(t, idsOf(all), seen[reader], "reader %d", reader)
		}
	})
}

// TestJournalOfARestoredDatabase has a backup come back without the place of its sequence: positions go on behind those that are
// there.
func TestJournalOfARestoredDatabase(t *testing.T) {
	t.Parallel()
	s := modelstest.OpenPostgres(t)
	ctx := t.Context()
	customer := modelstest.Customer(t, s, 0)
	call := modelstest.Call(t, s, modelstest.Application(t, s, customer))
	first := appendEvent(t, s, call, "call.notify")
	second := appendEvent(t, s, call, "call.notify")
	require.NoError(t, models.Write(ctx, s, "DROP SEQUENCE events_position"))
	require.NoError(t, s.Migrate(ctx))
	require.NoError(t, s.Migrate(ctx), "a sequence that is in its place is left there")
	third := appendEvent(t, s, call, "call.notify")
	require.Greater(t, third.Position, second.Position)
	events, _ := readOn(t, s, customer.ID, models.EventFilter{}, "", 10)
	require.Equal(t, []string{first.ID, second.ID, third.ID}, idsOf(events))
}

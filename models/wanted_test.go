package models_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	"pgregory.net/rapid"

	"tandem/models"
	"tandem/models/modelstest"
)

func TestWanted(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		kinds []string
		kind  string
		want  bool
	}{
		{nil, "call.created", true}, {nil, "trunk.registered", true}, {nil, "call.dtmf", false}, {nil, "call.action_completed", false},
		{[]string{}, "call.created", false},
		{[]string{"*"}, "call.dtmf", true},
		{[]string{"call.*"}, "call.dtmf", true}, {[]string{"call.*"}, "leg.ended", false}, {[]string{"call.*"}, "callx.created", false},
		{[]string{"leg.ended", "call.dtmf"}, "call.dtmf", true}, {[]string{"call.dtmf"}, "call.dtmf2", false}, {[]string{"call.created"}, "call.create", false},
	} {
		require.Equal(t, test.want, models.Wanted(test.kinds, test.kind), "%v %s", test.kinds, test.kind)
	}
}

// choose has an application want other kinds from now on.
func choose(t require.TestingT, ctx context.Context, s *models.Store, app *models.Application, kinds []string) { //nolint:revive // rapid's T goes first as well
	require.NoError(t, s.InTx(ctx, func(tx *models.Store) error {
		row, err := tx.EditApplication(ctx, app.CustomerID, app.ID)
		if err != nil {
			return err
		}
		row.EventKinds = kinds
		return tx.UpdateApplication(ctx, row)
	}))
}

// TestUnwantedEventsAreJournaledOnly: they take a sequence and are never queued, not even when they are wanted later.
func TestUnwantedEventsAreJournaledOnly(t *testing.T) {
	t.Parallel()
	modelstest.Run(t, "", func(t *testing.T, s *models.Store) {
		ctx := t.Context()
		woken := 0
		s.OnStreamDue(func() { woken++ })
		app := modelstest.Application(t, s, modelstest.Customer(t, s, 0))
		call := modelstest.Call(t, s, app)
		appendEvent(t, s, call, "call.dtmf")
		require.Zero(t, woken)
		claimed, err := s.ClaimStreams(ctx, "w", lease, 4, 4, 4)
		require.NoError(t, err)
		require.Empty(t, claimed)
		choose(t, ctx, s, app, []string{"*"})
		second := appendEvent(t, s, call, "call.dtmf")
		require.Equal(t, int64(2), second.Sequence)
		require.Equal(t, 1, woken)
		choose(t, ctx, s, app, []string{"leg.*"})
		appendEvent(t, s, call, "call.notify")
		fourth := appendEvent(t, s, call, "leg.ended")
		appendEvent(t, s, call, "call.completed")
		require.ErrorIs(t, s.AppendEvent(ctx, &models.Event{CallID: call.ID, Type: "call.failed"}, body), models.ErrStale, "a call ends once, wanted or not")

		for _, want := range []*models.Event{second, fourth} {
			claimed, err := s.ClaimStreams(ctx, "w", lease, 4, 4, 4)
			require.NoError(t, err)
			require.Len(t, claimed, 1)
			require.Equal(t, *want, claimed[0].Event)
			require.NoError(t, s.FinishDeliveries(ctx, []models.Outcome{delivered(&claimed[0])}))
		}
		claimed, err = s.ClaimStreams(ctx, "w", lease, 4, 4, 4)
		require.NoError(t, err)
		require.Empty(t, claimed)
		events, err := s.CallEvents(ctx, call.CustomerID, call.ID)
		require.NoError(t, err)
		require.Len(t, events, 5)
		deliveries, err := s.Deliveries(ctx, call.ID)
		require.NoError(t, err)
		require.Len(t, deliveries, 2)

		page, err := s.CallEventsPage(ctx, call.CustomerID, call.ID, 1, 2)
		require.NoError(t, err)
		require.Equal(t, events[1:3], page)
		page, err = s.CallEventsPage(ctx, call.CustomerID, call.ID, 4, 100)
		require.NoError(t, err)
		require.Equal(t, events[4:], page)
		page, err = s.CallEventsPage(ctx, modelstest.Customer(t, s, 0).ID, call.ID, 0, 100)
		require.NoError(t, err)
		require.Empty(t, page)
	})
}

// TestSubjectEvents: events of a trunk are told to each application in a sequence of its own, and are no call's.
func TestSubjectEvents(t *testing.T) {
	t.Parallel()
	modelstest.RunPair(t, "", func(t *testing.T, s, other *models.Store) {
		ctx := t.Context()
		customer := modelstest.Customer(t, s, 0)
		first, second := modelstest.Application(t, s, customer), modelstest.Application(t, s, customer)
		trunk := modelstest.OutboundTrunk(t, s, customer)
		tell := func(s *models.Store, app *models.Application, kind string, always bool) error {
			return s.AppendSubjectEvent(ctx, &models.Event{CustomerID: app.CustomerID, ApplicationID: app.ID, SubjectID: trunk.ID, Type: kind}, always, body)
		}
		choose(t, ctx, s, second, []string{"call.*"})
		var group errgroup.Group
		for i := range 24 {
			group.Go(func() error {
				return tell([]*models.Store{s, other}[i%2], []*models.Application{first, second}[i/2%2], "trunk.registered", false)
			})
		}
		require.NoError(t, group.Wait())
		require.NoError(t, tell(s, second, "webhook.test", true))

		var sequences []string
		for {
			claimed, err := s.ClaimStreams(ctx, "w", lease, 4, 4, 4)
			require.NoError(t, err)
			if len(claimed) == 0 {
				break
			}
			for i := range claimed {
				event := claimed[i].Event
				require.Equal(t, []string{trunk.ID, "", customer.ID}, []string{event.SubjectID, event.CallID, event.CustomerID})
				name := "first"
				if event.ApplicationID == second.ID {
					name = "second"
				}
				sequences = append(sequences, fmt.Sprintf("%s %s %d", name, event.Type, event.Sequence))
				require.NoError(t, s.FinishDeliveries(ctx, []models.Outcome{delivered(&claimed[i])}))
			}
		}
		want := []string{"second webhook.test 13"}
		for n := range 12 {
			want = append(want, fmt.Sprintf("first trunk.registered %d", n+1))
		}
		require.ElementsMatch(t, want, sequences)
		sequences = slices.DeleteFunc(sequences, func(s string) bool { return s == want[0] })
		require.Equal(t, want[1:], sequences, "in order")

		events, err := s.CallEvents(ctx, customer.ID, trunk.ID)
		require.NoError(t, err)
		require.Empty(t, events, "a trunk is no call")
		foreign := modelstest.Application(t, s, modelstest.Customer(t, s, 0))
		foreign.CustomerID = customer.ID
		require.ErrorIs(t, tell(s, foreign, "trunk.registered", false), models.ErrNotFound)
		require.NoError(t, s.DeleteApplication(ctx, customer.ID, first.ID))
		require.ErrorIs(t, tell(s, first, "trunk.registered", false), models.ErrNotFound)
	})
}

// wantedMachine is the model of one stream: what was wanted when it happened, in order.
type wantedMachine struct {
	s        *models.Store
	ctx      context.Context //nolint:containedctx // a test's
	app      *models.Application
	call     *models.Call
	kinds    []string
	happened int64
	queue    []int64 // sequences
	claimed  *models.ClaimedStream
}

// TestWantedModel changes the choice of kinds in the middle of random histories of events, claims and outcomes: exactly what
// was wanted when it happened is delivered, in order, and the stream never stands still.
func TestWantedModel(t *testing.T) {
	t.Parallel()
	modelstest.Run(t, "", func(t *testing.T, s *models.Store) {
		app := modelstest.Application(t, s, modelstest.Customer(t, s, 0))
		rapid.Check(t, func(rt *rapid.T) {
			m := &wantedMachine{s: s, ctx: t.Context(), app: app, call: modelstest.Call(t, s, app)}
			choose(rt, m.ctx, s, app, nil)
			rt.Repeat(map[string]func(*rapid.T){"choose": m.choose, "happen": m.happen, "claim": m.claim, "finish": m.finish})
			for m.claimed != nil || len(m.queue) > 0 {
				if m.claimed == nil {
					m.claim(rt)
				}
				m.end(rt, models.ResultDelivered)
			}
			m.claim(rt)
		})
	})
}

func (m *wantedMachine) choose(rt *rapid.T) {
	m.kinds = rapid.SampledFrom([][]string{nil, {}, {"*"}, {"call.*"}, {"leg.ended"}, {"call.dtmf", "leg.*"}}).Draw(rt, "kinds")
	choose(rt, m.ctx, m.s, m.app, m.kinds)
}

func (m *wantedMachine) happen(rt *rapid.T) {
	kind := rapid.SampledFrom([]string{"call.dtmf", "call.notify", "leg.ended", "leg.ringing"}).Draw(rt, "kind")
	event := &models.Event{CallID: m.call.ID, Type: kind}
	require.NoError(rt, m.s.AppendEvent(m.ctx, event, body))
	m.happened++
	require.Equal(rt, m.happened, event.Sequence)
	if models.Wanted(m.kinds, kind) {
		m.queue = append(m.queue, m.happened)
	}
}

func (m *wantedMachine) claim(rt *rapid.T) {
	claimed, err := m.s.ClaimStreams(m.ctx, "w", lease, 4, 4, 4)
	require.NoError(rt, err)
	if m.claimed != nil || len(m.queue) == 0 {
		require.Empty(rt, claimed)
		return
	}
	require.Len(rt, claimed, 1)
	require.Equal(rt, m.queue[0], claimed[0].Event.Sequence)
	m.claimed = &claimed[0]
}

func (m *wantedMachine) finish(rt *rapid.T) {
	if m.claimed == nil {
		rt.Skip("nothing is claimed")
	}
	m.end(rt, rapid.SampledFrom([]string{models.ResultDelivered, models.ResultDead, models.ResultSkipped, models.ResultReleased}).Draw(rt, "result"))
}

func (m *wantedMachine) end(rt *rapid.T, result string) {
	outcome := delivered(m.claimed)
	outcome.Result = result
	require.NoError(rt, m.s.FinishDeliveries(m.ctx, []models.Outcome{outcome}))
	m.claimed = nil
	if result != models.ResultReleased {
		m.queue = m.queue[1:]
	}
}

package dialplan

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"tandem/esl"
	"tandem/lab"
	"tandem/models"
	"tandem/models/modelstest"
)

// told returns what was reported of registrations since it was last asked.
func (f *fakeStore) told() (told []string) {
	f.set(func(f *fakeStore) {
		for _, report := range f.reported {
			if report.Registered != nil {
				told = append(told, fmt.Sprintf("%s %v", report.State, *report.Registered))
			}
		}
		f.reported = nil
	})
	return told
}

// TestRegistrationByEventAndPoll: renewing a registration is no end of it, failing is one at once, and a state between the two
// is one when polls find nothing else.
func TestRegistrationByEventAndPoll(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &fakeStore{trunks: []models.Trunk{outbound("trunk_1", "cust_a", "one")}}
		s, control := started(t, store, nil)
		state := func(states ...string) []string {
			for _, state := range states {
				control.set(func(f *fakeSwitch) { f.gateways = []esl.Gateway{{Name: "one", State: state, Status: "UP"}} })
				s.handle("node_1", gatewayState("one", state, "UP"))
				synctest.Wait()
			}
			return store.told()
		}
		wait := func(d time.Duration) []string {
			<-time.After(d)
			synctest.Wait()
			return store.told()
		}
		require.Empty(t, state("UNREGED", "TRYING", "REGISTER"))
		require.Equal(t, []string{"REGED true"}, state("REGED"))
		require.Empty(t, state("UNREGED", "TRYING", "REGISTER"))
		require.Equal(t, []string{"REGED true"}, state("REGED"), "the database knows what is no news")
		require.Equal(t, []string{"TIMEOUT false", "FAILED false", "FAIL_WAIT false"}, state("UNREGED", "TRYING", "TIMEOUT", "FAILED", "FAIL_WAIT"))
		require.Equal(t, []string{"REGED true"}, state("UNREGED", "TRYING", "REGED"))

		// Its events are lost: a poll finds it, once.
		control.set(func(f *fakeSwitch) { f.gateways[0].State = "FAILED" })
		require.Equal(t, []string{"FAILED false"}, wait(30*time.Second))
		require.Empty(t, wait(2*time.Minute))
		require.Equal(t, []string{"REGED true"}, state("REGED"))

		// Between two states for longer than a poll: it is told once, and again if the database did not take it.
		require.Empty(t, state("TRYING"))
		require.Empty(t, wait(30*time.Second))
		s.Changed() // and a poll out of turn says nothing
		require.Empty(t, wait(time.Second))
		store.set(func(f *fakeStore) { f.err = errStore })
		require.Empty(t, wait(30*time.Second))
		store.set(func(f *fakeStore) { f.err = nil })
		require.Equal(t, []string{"TRYING false"}, wait(30*time.Second))
		require.Empty(t, wait(10*time.Minute))
		require.Equal(t, []string{"REGED true"}, state("REGED"))
		// A renewal under way at each of two polls is none that takes so long.
		require.Empty(t, state("TRYING"))
		require.Empty(t, wait(30*time.Second))
		require.Equal(t, []string{"REGED true"}, state("REGED"))
		require.Empty(t, state("UNREGED"))
		require.Empty(t, wait(30*time.Second))

		// It is not loaded any more: the database is asked for what it had.
		ended := func() (n int) {
			store.set(func(f *fakeStore) { n, f.ended = len(f.ended), nil })
			return n
		}
		require.NotZero(t, ended())
		store.set(func(f *fakeStore) { f.trunks[0].IsActive = false })
		s.Changed()
		require.Empty(t, wait(time.Second))
		require.Equal(t, 1, ended())
		s.Stop()
	})
}

// registrationMachine is a gateway as the switch has it, the book that hears of it, and a database that keeps what it is told.
type registrationMachine struct {
	book     *statusBook
	now      time.Time
	state    string
	polled   time.Time
	stored   bool
	storedAt time.Time
	changes  int
	failed   bool // its registration failed, or an event was lost that might have told of it
}

const pollEvery = 30 * time.Second

// TestRegistrationModel runs random histories of a gateway, of which events are lost and writes fail: in the end the database has
// what is true, and a gateway that did nothing but renew was never told to be away.
func TestRegistrationModel(t *testing.T) {
	t.Parallel()
	next := map[string][]string{ // mod_sofia, sofia_reg.c
		"UNREGED": {"TRYING"}, "TRYING": {"REGISTER", "TIMEOUT", "FAILED"}, "REGISTER": {"REGED"}, "REGED": {"UNREGED"}, "TIMEOUT": {"FAILED"},
		"FAILED": {"FAIL_WAIT"}, "FAIL_WAIT": {"UNREGED"},
	}
	rapid.Check(t, func(rt *rapid.T) {
		now := time.Unix(1_000_000, 0)
		m := &registrationMachine{book: newStatusBook(pollEvery * 3 / 4), now: now, state: "UNREGED", polled: now}
		m.book.setGateways(map[string]string{"one": "trunk_1"})
		healthy := rapid.Bool().Draw(rt, "healthy")
		rt.Repeat(map[string]func(*rapid.T){
			"step": func(rt *rapid.T) {
				m.pass(time.Duration(rapid.IntRange(1, 3000).Draw(rt, "ms")) * time.Millisecond)
				states := next[m.state]
				if healthy {
					states = states[:1]
				}
				m.state = rapid.SampledFrom(states).Draw(rt, "state")
				m.failed = m.failed || m.state == "FAILED" || m.state == "TIMEOUT"
				if rapid.IntRange(0, 9).Draw(rt, "lost") == 0 {
					m.failed = true
				} else {
					m.book.report("node_1", "one", m.state, "UP", m.now)
				}
			},
			"wait": func(rt *rapid.T) {
				if m.state != "REGED" && m.state != "FAIL_WAIT" {
					rt.Skip("only these last")
				}
				m.pass(time.Duration(rapid.IntRange(1, 100).Draw(rt, "s")) * time.Second)
			},
			"write": func(rt *rapid.T) { m.write(rapid.IntRange(0, 3).Draw(rt, "fails") == 0) },
			"lose":  func(*rapid.T) { m.book.lose("node_1", m.now) },
		})
		changes := m.changes
		for range 3 {
			m.pass(pollEvery)
		}
		m.write(false)
		require.Equal(rt, m.state == "REGED", m.stored, m.state)
		if !m.failed && m.state == "REGED" {
			require.LessOrEqual(rt, changes, 1, "a registration that never failed begins once")
		}
	})
}

// pass lets time go by, and polls come.
func (m *registrationMachine) pass(d time.Duration) {
	for until := m.now.Add(d); ; {
		at := m.polled.Add(pollEvery)
		if at.After(until) {
			m.now = until
			return
		}
		m.now, m.polled = at, at
		m.book.polled([]models.GatewayStatus{{NodeID: "node_1", TrunkID: "trunk_1", State: m.state, Status: "UP", UpdatedAt: at}})
	}
}

// write does as models.RecordGateways does.
func (m *registrationMachine) write(fails bool) {
	_, reports := m.book.take()
	if fails {
		m.book.failed(reports)
		return
	}
	for _, report := range reports {
		if report.Registered != nil && *report.Registered != m.stored && !report.UpdatedAt.Before(m.storedAt) {
			m.stored, m.storedAt = *report.Registered, report.UpdatedAt
			m.changes++
		}
	}
	m.book.written(reports)
}

// announced is a Syncer on the real store whose changes of registrations come through a channel, once they are stored.
func announced(t *testing.T, store *models.Store, app *models.Application, poll time.Duration) (*Syncer, chan string) {
	t.Helper()
	changes := make(chan string, 100)
	s, err := NewSyncer(Config{Store: store, Poll: poll, Logger: slog.New(slog.DiscardHandler), OnRegistration: func(ctx context.Context, tx *models.Store, c models.RegistrationChange) error {
		event := &models.Event{CustomerID: app.CustomerID, ApplicationID: app.ID, SubjectID: c.Trunk.ID, Type: "trunk.registered"}
		if !c.Registered {
			event.Type = "trunk.unregistered"
		}
		err := tx.AppendSubjectEvent(ctx, event, false, func(int64, string, time.Time) ([]byte, error) { return []byte("{}"), nil })
		if err == nil {
			changes <- fmt.Sprintf("%s %s %s", c.Status.NodeID, event.Type, c.Status.State)
		}
		return err
	}})
	require.NoError(t, err)
	return s, changes
}

// TestRegistrationInTheDatabase: the event is in the transaction of the status, and each node has its own.
func TestRegistrationInTheDatabase(t *testing.T) {
	t.Parallel()
	modelstest.RunClock(t, "", func(t *testing.T, store *models.Store, clock *modelstest.Clock) {
		customer := modelstest.Customer(t, store, 0)
		app, trunk := modelstest.Application(t, store, customer), modelstest.OutboundTrunk(t, store, customer)
		trunk.Register = true
		require.NoError(t, store.UpdateTrunk(t.Context(), trunk))
		s, changes := announced(t, store, app, 0)
		nodes := []*models.Node{modelstest.Node(t, store), modelstest.Node(t, store)}
		for _, node := range nodes {
			s.AddNode(*node, &fakeSwitch{fail: map[string]error{}})
		}
		s.syncAll(t.Context(), false)
		s.recordOnce(t.Context())
		say := func(node *models.Node, state string) {
			clock.Advance(time.Second)
			s.handle(node.ID, gatewayState(trunk.GatewayName, state, "UP"))
			s.recordOnce(t.Context())
		}
		for _, state := range []string{"TRYING", "REGED", "UNREGED", "TRYING", "REGED"} {
			say(nodes[0], state)
		}
		say(nodes[1], "REGED")
		say(nodes[0], "FAILED")
		clock.Advance(models.RegistrationEnds)
		s.recordOnce(t.Context())
		say(nodes[0], "FAIL_WAIT")
		require.NoError(t, store.UpdateTrunk(t.Context(), func() *models.Trunk { trunk.IsActive = false; return trunk }()))
		clock.Advance(time.Second)
		s.syncAll(t.Context(), false)
		s.recordOnce(t.Context())
		for _, want := range []string{
			nodes[0].ID + " trunk.registered REGED", nodes[1].ID + " trunk.registered REGED", nodes[0].ID + " trunk.unregistered FAILED",
			nodes[1].ID + " trunk.unregistered DOWN",
		} {
			require.Equal(t, want, receive(t, changes))
		}
		require.Empty(t, changes)
		deliveries, err := store.Deliveries(t.Context(), trunk.ID)
		require.NoError(t, err)
		require.Len(t, deliveries, 4)
	})
}

// TestFreeSWITCHRegistrationsAreTold has a real switch register with a real carrier, renew, fail, and register again.
func TestFreeSWITCHRegistrationsAreTold(t *testing.T) {
	t.Parallel()
	lab.Require(t)
	carrier := lab.StartCarrier(t)
	switched := lab.StartNode(t, lab.Options{})
	var ahead atomic.Int64 // of the clock
	store := modelstest.OpenNow(t, func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) })
	customer := modelstest.Customer(t, store, 0)
	app, trunk := modelstest.Application(t, store, customer), modelstest.OutboundTrunk(t, store, customer)
	trunk.Register, trunk.Proxy, trunk.Realm, trunk.FromDomain = true, carrier.SIPAddr, lab.CarrierRealm, lab.CarrierRealm
	trunk.Username, trunk.Password = lab.CarrierUsername, secret(lab.CarrierPassword)
	require.NoError(t, store.UpdateTrunk(t.Context(), trunk))
	row := &models.Node{Name: "real", ESLAddr: switched.ESLAddr, Password: models.Secret(switched.Password), ConfDir: switched.ConfDir, IsActive: true}
	require.NoError(t, store.CreateNode(t.Context(), row))

	s, changes := announced(t, store, app, 2*time.Second)
	handler := &registrationHandler{syncer: s, nodeID: row.ID, up: make(chan struct{}, 1), states: make(chan string, 1000)}
	control, err := esl.NewNode(esl.Config{Name: "real", Addr: switched.ESLAddr, Password: switched.Password, Handler: handler})
	require.NoError(t, err)
	require.NoError(t, control.Start(t.Context()))
	t.Cleanup(control.Stop)
	receive(t, handler.up)
	s.AddNode(*row, control)
	s.Start(t.Context())
	t.Cleanup(s.Stop)
	require.Equal(t, row.ID+" trunk.registered REGED", receive(t, changes))

	// Renewed twice: through TRYING, and nothing is told.
	for range 2 {
		handler.drain()
		_, err := control.API(within(t), "sofia profile external register "+trunk.GatewayName)
		require.NoError(t, err)
		handler.await(t, "TRYING")
		handler.await(t, "REGED")
	}
	require.Empty(t, changes)

	change := func(edit func()) {
		t.Helper()
		edit()
		require.NoError(t, store.UpdateTrunk(t.Context(), trunk))
		s.Changed()
	}
	// The end is told when it has lasted for a minute.
	ended := func() {
		t.Helper()
		require.Eventually(t, func() bool {
			known, err := store.TrunkHealths(t.Context(), trunk.ID)
			return err == nil && len(known) == 1 && known[0].Registered != nil && !*known[0].Registered
		}, testTimeout, 100*time.Millisecond)
		require.Empty(t, changes)
		ahead.Add(int64(models.RegistrationEnds))
	}
	change(func() { trunk.Password = "no such password" })
	ended()
	require.Regexp(t, row.ID+" trunk.unregistered FAIL", receive(t, changes))
	again := func() { ahead.Add(int64(models.FlapWindow)) } // one that comes and goes would be told later
	again()
	change(func() { trunk.Password = secret(lab.CarrierPassword) })
	require.Equal(t, row.ID+" trunk.registered REGED", receive(t, changes))
	// A carrier that does not answer: the switch gives up after its timeout.
	silent, err := net.ListenPacket("udp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = silent.Close() })
	change(func() { trunk.Proxy = silent.LocalAddr().String() })
	ended()
	require.Regexp(t, row.ID+" trunk.unregistered (TIMEOUT|FAIL|TRYING)", receive(t, changes))
	again()
	change(func() { trunk.Proxy = carrier.SIPAddr })
	require.Equal(t, row.ID+" trunk.registered REGED", receive(t, changes))
	change(func() { trunk.IsActive = false })
	require.Equal(t, row.ID+" trunk.unregistered DOWN", receive(t, changes))
	require.Empty(t, changes)
}

// registrationHandler passes a switch's events on and notes the states of its gateways.
type registrationHandler struct {
	syncer *Syncer
	nodeID string
	up     chan struct{}
	states chan string
}

func (h *registrationHandler) HandleUp(esl.Snapshot) { signal(h.up) }
func (h *registrationHandler) HandleDown(error)      {}

func (h *registrationHandler) HandleEvent(e *esl.Event) {
	h.syncer.HandleEvent(h.nodeID, e)
	if e.Subclass() == "sofia::gateway_state" {
		h.states <- e.Get("State")
	}
}

func (h *registrationHandler) drain() {
	for len(h.states) > 0 {
		<-h.states
	}
}

func (h *registrationHandler) await(t *testing.T, state string) {
	t.Helper()
	for receive(t, h.states) != state { //nolint:revive // it waits
	}
}

package calls

import (
	"context"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tandem/esl"
	"tandem/models"
	"tandem/models/modelstest"
)

// digitsVariable is where a gather leaves what was typed.
var digitsVariable = regexp.MustCompile(`tandem_digits_\w+`)

// killable is a store on a PostgreSQL that the test may kill and start.
func killable(t *testing.T) (*modelstest.Separate, *models.Store) {
	t.Helper()
	server := modelstest.StartSeparate(t)
	store, err := models.Open(t.Context(), models.Config{URL: server.URL(), Key: modelstest.Key})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	require.NoError(t, store.Migrate(t.Context()))
	return server, store
}

// gate makes an application of the fake switch wait for the test, which takes the next one and completes it.
func (f *fakeSwitch) gate(what string) (take func() command, complete func(c command, pairs ...string)) {
	reached := make(chan command, 64)
	f.script(what, func(c command) error {
		reached <- c
		return nil
	})
	return func() command {
		f.t.Helper()
		select {
		case c := <-reached:
			return c
		case <-time.After(patience):
			require.Failf(f.t, "no command", "waited for %q, saw %q", what, f.log())
			return command{}
		}
	}, f.complete
}

// TestFlowsGoOnWithoutTheDatabase kills PostgreSQL under a call that speaks: it goes on to gather, to record and to dial, and ends,
// while the database is away. When it is back, all of it is written, in order, once.
func TestFlowsGoOnWithoutTheDatabase(t *testing.T) {
	t.Parallel()
	server, store := killable(t)
	s := newScene(t, store)
	s.answers("/answer",
		reply(`[{"action":"say","text":"one"},{"action":"gather","id":"g","num_digits":1},{"action":"hangup"}]`),
		reply(`{"variables":{"picked":"5"},"actions":[{"action":"record","max_seconds":5},{"action":"dial","to":"+15550810701","id":"d"},{"action":"say","text":"bye"},{"action":"hangup"}]}`))
	s.sw.dials(map[string]dialedParty{"/+15550810701": {answers: true, joined: true}})
	speaks, complete := s.sw.gate("execute speak")
	channel := s.callIn()
	say := speaks()
	callID := s.callOn(channel)
	server.Kill()

	gathers, _ := s.sw.gate("execute play_and_get_digits")
	complete(say)
	gather := gathers()
	complete(gather, "variable_"+digitsVariable.FindString(gather.args), "5")
	bye := speaks()
	require.NotEmpty(t, s.bridges(), "it has dialled")
	require.Contains(t, strings.Join(s.sw.log(), "\n"), "execute record ")
	requests := s.requests()
	require.Equal(t, "5", requests[len(requests)-1].Result["digits"])

	// Nobody can be called meanwhile, and nobody who calls is taken.
	_, err := s.manager.Create(t.Context(), CreateRequest{CustomerID: s.customer.ID, ApplicationID: s.app.ID, From: "+15550100001", To: "+15550100002"})
	require.ErrorIs(t, err, models.ErrUnreachable)
	refused := s.callIn()
	for s.sw.await("kill").channel != refused {
	}

	complete(bye)
	for s.sw.await("kill").channel != channel {
	}
	select {
	case <-s.ended:
		require.Fail(t, "the end was told without a database")
	case <-s.manager.outage.ended():
		require.Fail(t, "the outage is over without a database")
	case <-time.After(300 * time.Millisecond): // the end waits: nothing tells that it does
	}
	require.Equal(t, 1, s.manager.LiveCalls(), "its session is kept")

	require.NoError(t, server.Start(t.Context()))
	call := s.end()
	require.Equal(t, callID, call.ID)
	require.Equal(t, []any{StatusCompleted, "5"}, []any{call.Status, call.Variables["picked"]})
	require.Equal(t, []string{
		"call.ringing", "call.answered", "recording.started", "recording.failed", "leg.ringing", "leg.answered", "leg.ended", "call.completed",
	}, slices.DeleteFunc(s.kinds(callID), func(kind string) bool { return kind == "call.error" }))
	customer, err := store.Customer(t.Context(), s.customer.ID)
	require.NoError(t, err)
	require.Zero(t, customer.HeldMicros)
	require.EqualValues(t, startBalance-inboundPrice-outboundPrice, customer.BalanceMicros, "a call of seven seconds and its party, one minute billed for each, once")
	<-s.manager.outage.ended()
	require.Zero(t, s.manager.outage.waiting)
	require.Empty(t, s.manager.outage.behind)

	s.answers("/answer", reply(`[{"action":"hangup"}]`))
	s.create()
	require.Equal(t, StatusCompleted, s.end().Status, "and all goes on as before")
}

// TestCommitsAreLost kills PostgreSQL again and again under calls that change all the time, so that answers to commits are lost:
// no event is written twice, and none is missing.
func TestCommitsAreLost(t *testing.T) {
	t.Parallel()
	server, store := killable(t)
	s := newScene(t, store)
	const calls, says, more = 15, 30, 100_000_000 // money for all of them at once, each with the longest grant
	_, err := store.Credit(t.Context(), s.customer.ID, "more", models.LedgerTopup, more, "")
	require.NoError(t, err)
	s.answers("/answer", reply("["+strings.Repeat(`{"action":"notify","payload":{"n":1}},{"action":"say","text":"x"},`, says)+`{"action":"hangup"}]`))
	var kills sync.WaitGroup
	stop := make(chan struct{})
	quiet := sync.OnceFunc(func() {
		close(stop)
		kills.Wait()
	})
	defer quiet()
	spoken := make(chan string, calls*says)
	s.sw.script("execute speak", func(c command) error {
		spoken <- c.channel
		s.sw.complete(c)
		return nil
	})
	kills.Go(func() {
		// Once all calls are in: after every hundred prompts, in the midst of it all.
		in := map[string]bool{}
		for n := 1; ; n++ {
			select {
			case channel := <-spoken:
				in[channel] = true
			case <-stop:
				return
			}
			if n%100 == 0 && len(in) == calls {
				server.Kill()
				if err := server.Start(context.WithoutCancel(t.Context())); err != nil {
					t.Error(err)
					return
				}
			}
		}
	})
	for range calls {
		s.callIn()
	}
	var ids []string
	for range calls {
		select {
		case ended := <-s.ended:
			ids = append(ids, ended.ID)
		case <-time.After(2 * time.Minute):
			require.Fail(t, "a call has not ended")
		}
	}
	quiet()
	for _, id := range ids {
		call, err := store.CallByID(t.Context(), id)
		require.NoError(t, err)
		s.checkEnded(call)
		require.Equal(t, StatusCompleted, call.Status)
		kinds := map[string]int{}
		for _, kind := range s.allKinds(call.ID) {
			kinds[kind]++
		}
		require.Equal(t, says, kinds["call.notify"])
		require.Equal(t, 1, kinds["call.answered"])
		require.Equal(t, 2*says, kinds["call.action_completed"])
	}
	customer, err := store.Customer(t.Context(), s.customer.ID)
	require.NoError(t, err)
	require.Zero(t, customer.HeldMicros)
	require.EqualValues(t, startBalance+more-calls*inboundPrice, customer.BalanceMicros)
}

// TestBacklogIsBounded: a call whose backlog is full waits, it is not dropped; nor is one for which the manager has no room.
func TestBacklogIsBounded(t *testing.T) {
	t.Parallel()
	for name, limit := range map[string]int{"of a call": 0, "of all calls": 10} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server, store := killable(t)
			s := newScene(t, store, func(c *Config) { c.Limits.Deferred = limit })
			const says = backlogLimit + 20
			s.answers("/answer", reply(`[{"action":"record","max_seconds":1},`+strings.Repeat(`{"action":"say","text":"x"},`, says)+`{"action":"hangup"}]`))
			records, complete := s.sw.gate("execute record")
			s.callIn()
			record := records()
			server.Kill()
			complete(record)
			full := backlogLimit
			if limit != 0 {
				full = limit
			}
			require.Eventually(t, func() bool {
				s.manager.outage.mu.Lock()
				defer s.manager.outage.mu.Unlock()
				return s.manager.outage.waiting == full
			}, patience, 10*time.Millisecond)
			require.NoError(t, server.Start(t.Context()))
			call := s.end()
			require.Equal(t, StatusCompleted, call.Status)
			require.Len(t, s.dataOf(call.ID, "call.action_completed"), 1+says)
		})
	}
}

// TestStorageFull fills the database under a call: it goes on, and its end is written when there is room.
func TestStorageFull(t *testing.T) {
	t.Parallel()
	server, store := killable(t)
	s := newScene(t, store)
	s.answers("/answer", reply(`[{"action":"say","text":"x"},{"action":"notify","payload":{"text":"x"}},{"action":"hangup"}]`))
	speaks, complete := s.sw.gate("execute speak")
	channel := s.callIn()
	say := speaks()
	server.SetFull(t, "events", true)
	complete(say)
	for s.sw.await("kill").channel != channel {
	}
	require.Eventually(t, func() bool { return s.manager.outage.err() == models.ErrStorageFull }, patience, 10*time.Millisecond) //nolint:errorlint // it is the sentinel itself
	_, err := s.manager.Create(t.Context(), CreateRequest{CustomerID: s.customer.ID, ApplicationID: s.app.ID, From: "+15550100001", To: "+15550100002"})
	require.ErrorIs(t, err, models.ErrStorageFull)
	server.SetFull(t, "events", false)
	call := s.end()
	require.Equal(t, StatusCompleted, call.Status)
	require.Len(t, s.dataOf(call.ID, "call.notify"), 1)
}

// TestStopWithoutTheDatabase: a manager that stops while the database is away leaves its calls to the next controller, in time.
func TestStopWithoutTheDatabase(t *testing.T) {
	t.Parallel()
	server, store := killable(t)
	s := newScene(t, store)
	s.answers("/answer", reply(`[{"action":"say","text":"x"},{"action":"hangup"}]`))
	speaks, complete := s.sw.gate("execute speak")
	s.callIn()
	say := speaks()
	server.Kill()
	complete(say)
	s.sw.await("kill")
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	_ = s.manager.Stop(ctx) // that calls are left is an error, or none, by what was under way
	require.Zero(t, s.manager.LiveCalls())
	require.NoError(t, server.Start(t.Context()))
}

// TestNodeIsLostWithoutTheDatabase: what ends calls ends them when the database is back.
func TestNodeIsLostWithoutTheDatabase(t *testing.T) {
	t.Parallel()
	server, store := killable(t)
	s := newScene(t, store, func(c *Config) { c.NodeLostAfter = 50 * time.Millisecond })
	s.answers("/answer", reply(`[{"action":"say","text":"x"},{"action":"hangup"}]`))
	speaks, _ := s.sw.gate("execute speak")
	s.callIn()
	speaks()
	server.Kill()
	s.sw.setDown(true)
	s.sw.handler.HandleDown(esl.ErrDown)
	require.NoError(t, server.Start(t.Context()))
	call := s.end()
	require.Equal(t, []string{StatusCompleted, ReasonNodeLost}, []string{call.Status, call.Reason})
}

// TestFlowsGoOnWhileTheDatabaseHangs: a database that does not answer holds a call up for one try, not for each of its actions.
func TestFlowsGoOnWhileTheDatabaseHangs(t *testing.T) {
	t.Parallel()
	server, store := killable(t)
	s := newScene(t, store)
	const says = 10
	s.answers("/answer", reply("["+strings.Repeat(`{"action":"say","text":"x"},`, says)+`{"action":"hangup"}]`))
	speaks, complete := s.sw.gate("execute speak")
	channel := s.callIn()
	say := speaks()
	release := server.Hang(t, "calls")
	began := time.Now()
	for range says - 1 {
		complete(say)
		say = speaks()
	}
	complete(say)
	for s.sw.await("kill").channel != channel {
	}
	require.Less(t, time.Since(began), 2*storeTimeout, "nine more prompts were spoken")
	release()
	call := s.end()
	require.Equal(t, StatusCompleted, call.Status)
	require.Len(t, s.dataOf(call.ID, "call.action_completed"), says)
}

// TestWhatWaitedIsWrittenBeforeNewCallsAreTaken: the database is back, and many calls are behind.
func TestWhatWaitedIsWrittenBeforeNewCallsAreTaken(t *testing.T) {
	t.Parallel()
	s := newScene(t, modelstest.Open(t))
	behind := func(calls int) {
		o := s.manager.outage
		o.mu.Lock()
		defer o.mu.Unlock()
		o.behind = map[*session]struct{}{}
		for range calls {
			o.behind[new(session)] = struct{}{}
		}
	}
	behind(backlogCalls)
	require.NoError(t, s.manager.Accepting())
	behind(backlogCalls + 1)
	require.ErrorIs(t, s.manager.Accepting(), ErrOverloaded)
	_, err := s.manager.Create(t.Context(), CreateRequest{CustomerID: s.customer.ID, ApplicationID: s.app.ID, From: "+15550100001", To: "+15550100002"})
	require.ErrorIs(t, err, ErrOverloaded)
	behind(0)
	require.NoError(t, s.manager.Accepting())
	s.answers("/answer", reply(`[{"action":"hangup"}]`))
	s.create()
	require.Equal(t, StatusCompleted, s.end().Status)
}

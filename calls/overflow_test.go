package calls

import (
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tandem/models"
	"tandem/models/modelstest"
)

// waits places a call that may wait for room.
func waits(r *CreateRequest) { r.Overflow = true }

// quick makes calls that wait be looked for often.
func quick(c *Config) { c.OverflowInterval = 5 * time.Millisecond }

// busy makes the party of a channel busy.
func (s *scene) busy(channel string) {
	s.sw.hangup(channel, "USER_BUSY", "variable_sip_term_status", "486")
}

// statusOf reads the status of a call.
func (s *scene) statusOf(id string) string {
	s.t.Helper()
	call, err := s.store.CallByID(s.t.Context(), id)
	require.NoError(s.t, err)
	return call.Status
}

// What limits on calls refuse waits where that was asked for, and is dialled in its order when calls end.
func TestOverflowIsDialledInOrder(t *testing.T) {
	t.Parallel()
	modelstest.Run(t, "", func(t *testing.T, store *models.Store) {
		s := newScene(t, store, func(c *Config) { c.OverflowInterval = time.Hour }) // it is the end of a call that wakes
		s.limit(models.CallLimits{MaxCalls: 1})
		s.sw.script("originate", func(command) error { return nil })
		first := s.create(waits)
		require.Equal(t, StatusDialing, first.Status)
		require.NotNil(t, first.QueueUntil)
		_, err := s.manager.Create(t.Context(), CreateRequest{CustomerID: s.customer.ID, ApplicationID: s.app.ID, From: "+15550100001", To: "+15550100002"})
		require.ErrorIs(t, err, models.ErrCustomerFull, "who does not ask for it does not wait")
		var order []string
		for range 3 {
			waiting := s.create(waits)
			require.Equal(t, []any{StatusQueued, int64(0), ""}, []any{waiting.Status, waiting.HoldMicros, waiting.ChannelID})
			require.Nil(t, waiting.TrunkID)
			require.Nil(t, waiting.NodeID)
			require.WithinDuration(t, store.Now().Add(time.Hour), *waiting.QueueUntil, time.Minute)
			order = append(order, waiting.ID)
		}
		later := s.create(func(r *CreateRequest) { r.Queued = true })
		dialled := s.sw.await("originate").channel
		var got []string
		for range 3 {
			s.busy(dialled)
			s.end()
			dialled = s.sw.await("originate").channel
			call, err := store.CallByChannel(t.Context(), dialled)
			require.NoError(t, err)
			require.Positive(t, call.HoldMicros, "the balance is reserved when it is dialled")
			got = append(got, call.ID)
		}
		require.Equal(t, order, got)
		s.busy(dialled)
		s.end()
		require.Equal(t, StatusQueued, s.statusOf(later.ID), "what is to be started by somebody is not dialled by itself")
		require.Equal(t, []string{"call.created", "call.dialing", "call.failed"}, s.kinds(order[0]))
	})
}

// Each limit that leaves room by itself makes calls wait, whosesoever it is; one that does not refuses them.
func TestOverflowOfEachLimit(t *testing.T) {
	t.Parallel()
	daily := models.DailyLimits{MaxCallsPerDay: 1}
	for name, c := range map[string]struct {
		customer models.CallLimits
		app      models.CallLimits
		trunk    models.CallLimits
		waits    bool
	}{
		"customer calls":    {customer: models.CallLimits{MaxCalls: 1}, waits: true},
		"customer rate":     {customer: models.CallLimits{MaxCallsPerSecond: 1}, waits: true},
		"application calls": {app: models.CallLimits{MaxCalls: 1}, waits: true},
		"application rate":  {app: models.CallLimits{MaxCallsPerSecond: 1}, waits: true},
		"trunk calls":       {trunk: models.CallLimits{MaxCalls: 1}, waits: true},
		"trunk rate":        {trunk: models.CallLimits{MaxCallsPerSecond: 1}, waits: true},
		"customer day":      {customer: models.CallLimits{DailyLimits: daily}},
		"application day":   {app: models.CallLimits{DailyLimits: daily}},
		"trunk day":         {trunk: models.CallLimits{DailyLimits: daily}},
		"customer day and calls": {
			customer: models.CallLimits{MaxCalls: 1, DailyLimits: daily},
		},
		"application spend": {app: models.CallLimits{DailyLimits: models.DailyLimits{MaxSpendPerDayMicros: 150_000}}}, // for the least of one call
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			now := time.Now()
			s := newScene(t, modelstest.OpenNow(t, func() time.Time { return now }), quick)
			s.limit(c.customer)
			s.app.Limits, s.trunk.Limits = c.app, c.trunk
			require.NoError(t, s.store.UpdateApplication(t.Context(), s.app))
			require.NoError(t, s.store.UpdateTrunk(t.Context(), s.trunk))
			s.sw.script("originate", func(command) error { return nil })
			first := s.create(waits)
			require.Equal(t, StatusDialing, first.Status)
			second, err := s.manager.Create(t.Context(), CreateRequest{
				CustomerID: s.customer.ID, ApplicationID: s.app.ID, From: "+15550100001", To: "+15550100002", Overflow: true,
			})
			if c.waits {
				require.NoError(t, err)
				require.Equal(t, StatusQueued, second.Status)
			} else {
				require.ErrorIs(t, err, models.ErrLimit)
			}
			s.busy(s.sw.await("originate").channel)
			s.end()
		})
	}
}

// A call that has waited out is canceled; one that is canceled is never dialled; one without money, or to where the customer may not call any more, ends as
// failed.
func TestOverflowEnds(t *testing.T) {
	t.Parallel()
	modelstest.RunClock(t, "", func(t *testing.T, store *models.Store, clock *modelstest.Clock) {
		s := newScene(t, store, quick)
		s.limit(models.CallLimits{MaxCalls: 1})
		s.sw.script("originate", func(command) error { return nil })
		s.create(waits)
		channel := s.sw.await("originate").channel
		out := s.create(func(r *CreateRequest) { r.Overflow, r.QueueTimeout = true, 60 })
		poor := s.create(waits)
		canceled := s.create(waits)
		foreign := s.create(func(r *CreateRequest) { r.Overflow, r.To = true, "+4930123456" })
		_, err := s.manager.Cancel(t.Context(), s.customer.ID, canceled.ID, nil)
		require.NoError(t, err)
		require.Equal(t, ReasonCanceled, s.end().Reason)

		clock.Advance(59 * time.Second)
		require.Equal(t, StatusQueued, s.statusOf(out.ID))
		clock.Advance(time.Second)
		ended := s.end()
		require.Equal(t, []any{out.ID, StatusCanceled, ReasonQueueTimeout, SourcePlatform}, []any{ended.ID, ended.Status, ended.Reason, ended.HangupSource})
		require.Equal(t, []string{"call.created", "call.failed"}, s.kinds(out.ID))

		customer, err := store.Customer(t.Context(), s.customer.ID)
		require.NoError(t, err)
		_, err = store.Credit(t.Context(), s.customer.ID, "gone", models.LedgerAdjust, -(customer.BalanceMicros - customer.HeldMicros), "")
		require.NoError(t, err)
		s.limit(models.CallLimits{MaxCalls: 2, Destinations: models.Destinations{DeniedDestinations: []string{"DE"}}})
		ended = s.end()
		require.Equal(t, []any{poor.ID, StatusFailed, ReasonInsufficientBalance}, []any{ended.ID, ended.Status, ended.Reason})
		ended = s.end()
		require.Equal(t, []any{foreign.ID, StatusFailed, ReasonDestination}, []any{ended.ID, ended.Status, ended.Reason})
		s.busy(channel)
		s.end()
	})
}

// A customer, or an application, whose calls wait delays no other.
func TestOverflowDelaysNobodyElse(t *testing.T) {
	t.Parallel()
	modelstest.Run(t, "", func(t *testing.T, store *models.Store) {
		s := newScene(t, store, quick)
		s.limit(models.CallLimits{MaxCalls: 2})
		s.app.Limits = models.CallLimits{MaxCalls: 1}
		require.NoError(t, store.UpdateApplication(t.Context(), s.app))
		s.sw.script("originate", func(command) error { return nil })
		held := s.create(waits)
		for range 20 {
			require.Equal(t, StatusQueued, s.create(waits).Status)
		}
		require.Equal(t, held.ChannelID, s.sw.await("originate").channel)

		// Another application of the customer's.
		other := *s.app
		other.ID, other.Limits = "", models.CallLimits{}
		require.NoError(t, store.CreateApplication(t.Context(), &other))
		mine := s.create(func(r *CreateRequest) { r.Overflow, r.ApplicationID = true, other.ID })
		require.Equal(t, StatusQueued, mine.Status, "others of the customer wait already")
		dialled := s.sw.await("originate").channel
		call, err := store.CallByChannel(t.Context(), dialled)
		require.NoError(t, err)
		require.Equal(t, mine.ID, call.ID)

		// Another customer, whose first call has to wait as well.
		stranger := modelstest.Customer(t, store, startBalance)
		stranger.Limits.CallLimits = models.CallLimits{MaxCalls: 1}
		require.NoError(t, store.SetLimits(t.Context(), stranger))
		strange := *s.app
		strange.ID, strange.CustomerID, strange.Limits = "", stranger.ID, models.CallLimits{}
		require.NoError(t, store.CreateApplication(t.Context(), &strange))
		modelstest.OutboundTrunk(t, store, stranger)
		theirs := func(r *CreateRequest) { r.Overflow, r.CustomerID, r.ApplicationID = true, stranger.ID, strange.ID }
		first := s.create(theirs)
		require.Equal(t, first.ChannelID, s.sw.await("originate").channel)
		second := s.create(theirs)
		require.Equal(t, StatusQueued, second.Status)
		s.busy(first.ChannelID)
		<-s.ended
		call, err = store.CallByChannel(t.Context(), s.sw.await("originate").channel)
		require.NoError(t, err)
		require.Equal(t, second.ID, call.ID)
		for _, channel := range []string{call.ChannelID, dialled} {
			s.busy(channel)
			<-s.ended
		}
	})
}

// Three controllers on one database dial what waits: each call once, never more at a time than may live.
func TestOverflowOfSeveralControllers(t *testing.T) {
	t.Parallel()
	modelstest.RunURL(t, "", func(t *testing.T, location string) {
		const most, tries = 3, 40
		var scenes []*scene
		open := func() *models.Store {
			store, err := models.Open(t.Context(), models.Config{URL: location, Key: modelstest.Key})
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, store.Close()) })
			return store
		}
		s := newScene(t, open(), quick)
		scenes = append(scenes, s)
		for range 2 {
			again := &scene{
				t: t, store: open(), sw: newFakeSwitch(t), ended: s.ended,
				node: models.Node{Name: models.NewID("node"), ESLAddr: "127.0.0.1:8021", Password: "secret", ConfDir: t.TempDir(), IsActive: true},
			}
			require.NoError(t, again.store.CreateNode(t.Context(), &again.node))
			again.start(quick)
			scenes = append(scenes, again)
		}
		_, err := s.store.Credit(t.Context(), s.customer.ID, "more", models.LedgerTopup, 100*startBalance, "")
		require.NoError(t, err)
		s.limit(models.CallLimits{MaxCalls: most})
		var mu sync.Mutex
		live, dialled, crowded := 0, []string{}, 0
		for _, at := range scenes {
			at.sw.script("originate", func(c command) error {
				mu.Lock()
				defer mu.Unlock()
				live++
				crowded = max(crowded, live)
				dialled = append(dialled, c.channel)
				time.AfterFunc(2*time.Millisecond, func() {
					mu.Lock()
					live-- // before the database knows: it is the database that must not let in too many
					mu.Unlock()
					at.busy(c.channel)
				})
				return nil
			})
		}
		var all sync.WaitGroup
		fail := make(chan error, tries)
		for i := range tries {
			all.Go(func() {
				_, err := scenes[i%len(scenes)].manager.Create(t.Context(), CreateRequest{
					CustomerID: s.customer.ID, ApplicationID: s.app.ID, From: "+15550100001", To: "+15550100002", Overflow: true,
				})
				if err != nil {
					fail <- err
				}
			})
		}
		all.Wait()
		close(fail)
		for err := range fail {
			require.NoError(t, err)
		}
		for range tries {
			require.Equal(t, ReasonBusy, s.end().Reason)
		}
		mu.Lock()
		defer mu.Unlock()
		require.Len(t, dialled, tries)
		slices.Sort(dialled)
		require.Len(t, slices.Compact(dialled), tries, "each once")
		require.LessOrEqual(t, crowded, most)
		wait, err := s.store.CallsWait(t.Context(), s.customer.ID)
		require.NoError(t, err)
		require.False(t, wait)
	})
}

// Nobody looks because calls end while none waits, and a manager that is stopped looks no more.
func TestOverflowWakesForWhoWaits(t *testing.T) {
	t.Parallel()
	o := newOverflow(&Manager{})
	o.ended()
	require.Empty(t, o.woken)
	o.waiting.Store(true)
	o.ended()
	o.ended()
	require.Len(t, o.woken, 1)
}

func TestCreateRefusesQueueFields(t *testing.T) {
	t.Parallel()
	s := newScene(t, modelstest.Open(t))
	for field, edit := range map[string]func(*CreateRequest){
		"queue":         func(r *CreateRequest) { r.Queued, r.Overflow = true, true },
		"queue_timeout": func(r *CreateRequest) { r.QueueTimeout = 5 },
	} {
		req := CreateRequest{CustomerID: s.customer.ID, ApplicationID: s.app.ID, From: "+15550100001", To: "+15550100002"}
		edit(&req)
		_, err := s.manager.Create(t.Context(), req)
		var refused *RequestError
		require.ErrorAs(t, err, &refused)
		require.Equal(t, field, refused.Field)
	}
	_, err := s.manager.Create(t.Context(), CreateRequest{CustomerID: s.customer.ID, ApplicationID: s.app.ID, From: "+15550100001", To: "+15550100002", Overflow: true, QueueTimeout: 86_401})
	require.Error(t, err)
}

// The least of the limits on the length of a call is its own, however it begins.
func TestLongestCallOfLimits(t *testing.T) {
	t.Parallel()
	modelstest.Run(t, "", func(t *testing.T, store *models.Store) {
		s := newScene(t, store)
		s.sw.script("originate", func(command) error { return nil })
		inbound, err := store.InboundTrunkByAddress(t.Context(), netip.MustParseAddr(s.source))
		require.NoError(t, err)
		for _, c := range []struct{ customer, app, trunk, want int }{{0, 0, 0, 0}, {300, 0, 0, 300}, {300, 200, 0, 200}, {300, 200, 100, 100}, {0, 0, 50, 50}, {20, 200, 100, 20}} {
			s.limit(models.CallLimits{DailyLimits: models.DailyLimits{MaxCallSeconds: c.customer}})
			s.app.Limits.MaxCallSeconds, s.trunk.Limits.MaxCallSeconds, inbound.Limits.MaxCallSeconds = c.app, c.trunk, c.trunk
			require.NoError(t, store.UpdateApplication(t.Context(), s.app))
			require.NoError(t, store.UpdateTrunk(t.Context(), s.trunk))
			require.NoError(t, store.UpdateTrunk(t.Context(), inbound))
			queued := s.create(func(r *CreateRequest) { r.Queued = true })
			s.create()
			_, err := s.manager.StartCall(t.Context(), s.customer.ID, queued.ID, nil)
			require.NoError(t, err)
			for range 2 {
				s.busy(s.sw.await("originate").channel)
				require.Equal(t, c.want, s.end().MaxSeconds)
			}
			s.answers("/answer", reply(`[{"action":"reject"}]`))
			s.callIn()
			require.Equal(t, c.want, s.end().MaxSeconds)
		}
	})
}

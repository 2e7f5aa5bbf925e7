package webhooks

import (
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tandem/models"
	"tandem/models/modelstest"
)

func unmarshal(body string, into any) error { return json.Unmarshal([]byte(body), into) }

func TestDelivery(t *testing.T) {
	t.Parallel()
	modelstest.RunClock(t, "", func(t *testing.T, s *models.Store, clock *modelstest.Clock) {
		r := newRig(t, s, clock)
		answer := strings.Repeat("é", 1000) // 2,000 bytes
		rec := newReceiver(t, func(w http.ResponseWriter, _ request) {
			w.WriteHeader(http.StatusCreated)
			_, _ = w.Write([]byte("ok\x00\xff" + answer))
		})
		app := r.application(rec.URL + "/hook?token=1")
		r.worker()
		_, events := r.call(app, 1)
		got := r.next()

		require.Equal(t, models.ResultDelivered, got.Result)
		require.Equal(t, Attempt{
			EventID: events[0].ID, SubjectID: events[0].CallID, ApplicationID: app.ID, Type: KindNotify, Sequence: 1, Number: 1,
			Status: http.StatusCreated, Latency: got.Latency, Result: models.ResultDelivered,
		}, got)
		req := r.arrived(rec)
		require.Equal(t, string(events[0].Body), req.body)
		require.Equal(t, "application/json", req.header.Get("Content-Type"))
		require.Equal(t, events[0].ID, req.id())
		require.NotContains(t, req.id(), ".")
		require.NoError(t, Verify(string(app.WebhookSecret), req.header, []byte(req.body), clock.Now()))

		require.Equal(t, models.DeliveryDelivered, r.delivery(events[0]).State)
		attempts := r.recorded(events[0])
		require.Len(t, attempts, 1)
		require.Equal(t, 1, attempts[0].Number)
		require.Equal(t, http.StatusCreated, attempts[0].Status)
		require.Empty(t, attempts[0].Error)
		require.Equal(t, clock.Now(), attempts[0].StartedAt)
		require.Positive(t, attempts[0].LatencyMS)
		require.True(t, strings.HasPrefix(attempts[0].Response, "ok"))
		require.LessOrEqual(t, len(attempts[0].Response), 1024)
		require.Greater(t, len(attempts[0].Response), 1000, "the first KiB is kept")
	})
}

// TestOrder injects failures and proves that a call's events are never overtaken, while calls do not wait for each other.
func TestOrder(t *testing.T) {
	t.Parallel()
	modelstest.RunClock(t, "", func(t *testing.T, s *models.Store, clock *modelstest.Clock) {
		const calls, perCall = 6, 5
		r := newRig(t, s, clock)
		var mu sync.Mutex
		tries, done := map[string]int{}, map[string]int64{}
		var overtaken []string
		rec := newReceiver(t, func(w http.ResponseWriter, req request) {
			mu.Lock()
			defer mu.Unlock()
			callID, seq := sequence(t, req.body)
			if seq != done[callID]+1 {
				overtaken = append(overtaken, req.body)
			}
			tries[req.id()]++
			// Each event fails up to twice, differently from event to event.
			if tries[req.id()] <= int(seq+int64(callID[len(callID)-1]))%3 {
				w.WriteHeader(http.StatusInternalServerError)
				return
			}
			done[callID] = seq
		})
		app := r.application(rec.URL)
		w := r.worker()
		for range calls {
			r.call(app, perCall)
		}
		for delivered := 0; delivered < calls*perCall; {
			switch a := r.next(); a.Result {
			case models.ResultDelivered:
				delivered++
			case models.ResultRetry:
				r.advance(time.Minute, w)
			default:
				require.FailNow(t, "unexpected result", "%+v", a)
			}
		}
		mu.Lock()
		defer mu.Unlock()
		require.Empty(t, overtaken)
		require.Len(t, done, calls)
		for _, last := range done {
			require.EqualValues(t, perCall, last)
		}
	})
}

// TestDeadEndpointDelaysNobody hangs every request of one endpoint and proves that another's events go out meanwhile, and
// that an endpoint that failed three times in a row gets one request at a time.
func TestDeadEndpointDelaysNobody(t *testing.T) {
	t.Parallel()
	modelstest.RunClock(t, "", func(t *testing.T, s *models.Store, clock *modelstest.Clock) {
		r := newRig(t, s, clock)
		hang := newGate()
		var under, most atomic.Int64
		dead := newReceiver(t, func(w http.ResponseWriter, req request) {
			most.Store(max(most.Load(), under.Add(1)))
			hang.wait(req)
			under.Add(-1)
			w.WriteHeader(http.StatusInternalServerError)
		})
		healthy := newReceiver(t, nil)
		deadApp, healthyApp := r.application(dead.URL), r.application(healthy.URL)
		for range 20 {
			r.call(deadApp, 1)
		}
		w := r.worker()
		for range 4 {
			r.arrived(dead)
		}
		for range 20 {
			r.call(healthyApp, 2)
		}
		for range 40 {
			a := r.next()
			require.Equal(t, healthyApp.ID, a.ApplicationID)
			require.Equal(t, models.ResultDelivered, a.Result)
		}
		require.EqualValues(t, 4, under.Load(), "the dead endpoint holds its slots, and no more")

		hang.release()
		for range 4 {
			require.Equal(t, models.ResultRetry, r.next().Result)
		}
		require.GreaterOrEqual(t, r.endpoint(deadApp).ConsecutiveFailures, models.FailingThreshold)
		for range 16 {
			require.Equal(t, deadApp.ID, r.next().ApplicationID)
		}
		most.Store(0)
		r.advance(time.Hour, w)
		for range 20 {
			require.Equal(t, models.ResultRetry, r.next().Result)
		}
		require.EqualValues(t, 1, most.Load(), "a failing endpoint is probed with one request at a time")
	})
}

// TestRecovery proves that the first success of a failing endpoint brings its waiting events forward.
func TestRecovery(t *testing.T) {
	t.Parallel()
	modelstest.RunClock(t, "", func(t *testing.T, s *models.Store, clock *modelstest.Clock) {
		r := newRig(t, s, clock)
		var broken atomic.Bool
		broken.Store(true)
		rec := newReceiver(t, func(w http.ResponseWriter, _ request) {
			if broken.Load() {
				w.WriteHeader(http.StatusServiceUnavailable)
			}
		})
		app := r.application(rec.URL)
		w := r.worker(func(c *Config) { c.Schedule = []time.Duration{time.Second, 10 * time.Hour} })
		for range 5 {
			r.call(app, 1)
		}
		for range 5 {
			require.Equal(t, models.ResultRetry, r.next().Result)
		}
		r.advance(time.Second, w)
		for range 5 {
			require.Equal(t, clock.Now().Add(10*time.Hour), r.next().RetryAt)
		}
		broken.Store(false)
		r.call(app, 1)
		for range 6 {
			require.Equal(t, models.ResultDelivered, r.next().Result, "ten hours early")
		}
		require.Zero(t, r.endpoint(app).ConsecutiveFailures)
	})
}

// TestScheduleToTheEnd follows one event through all twelve attempts to its death, and the next event that takes over.
func TestScheduleToTheEnd(t *testing.T) {
	t.Parallel()
	modelstest.RunClock(t, "", func(t *testing.T, s *models.Store, clock *modelstest.Clock) {
		r := newRig(t, s, clock)
		var dying atomic.Value
		rec := newReceiver(t, func(w http.ResponseWriter, req request) {
			if req.id() == dying.Load() {
				w.WriteHeader(http.StatusBadGateway)
			}
		})
		app := r.application(rec.URL)
		call, events := r.call(app, 2)
		dying.Store(events[0].ID)
		w := r.worker()
		for i, delay := range DefaultSchedule() {
			a := r.next()
			require.Equal(t, i+1, a.Number)
			require.Equal(t, events[0].ID, a.EventID)
			require.Equal(t, models.ResultRetry, a.Result)
			require.Equal(t, clock.Now().Add(delay), a.RetryAt)
			require.Equal(t, models.DeliveryPending, r.delivery(events[0]).State)
			r.advance(delay-time.Millisecond, w)
			r.advance(time.Millisecond, w)
		}
		a := r.next()
		require.Equal(t, 12, a.Number)
		require.Equal(t, models.ResultDead, a.Result)
		require.Equal(t, models.DeliveryDead, r.delivery(events[0]).State)
		require.Len(t, r.recorded(events[0]), 12)

		a = r.next()
		require.Equal(t, events[1].ID, a.EventID)
		require.Equal(t, models.ResultDelivered, a.Result)
		r.emit(call, 1)
		require.Equal(t, models.ResultDelivered, r.next().Result)
		for _, req := range rec.seen()[:12] {
			require.Equal(t, events[0].ID, req.id(), "every retry has the same id")
		}
	})
}

func TestRedirectIsAFailure(t *testing.T) {
	t.Parallel()
	modelstest.RunClock(t, "", func(t *testing.T, s *models.Store, clock *modelstest.Clock) {
		r := newRig(t, s, clock)
		target := newReceiver(t, nil)
		for _, code := range []int{http.StatusMovedPermanently, http.StatusFound, http.StatusTemporaryRedirect, http.StatusPermanentRedirect} {
			rec := newReceiver(t, func(w http.ResponseWriter, _ request) {
				w.Header().Set("Location", target.URL)
				w.WriteHeader(code)
			})
			w := r.worker()
			_, events := r.call(r.application(rec.URL), 1)
			a := r.next()
			require.Equal(t, models.ResultRetry, a.Result)
			require.Equal(t, code, a.Status)
			require.Equal(t, "status: the endpoint answered "+itoa(code), r.recorded(events[0])[0].Error)
			r.stop(w)
		}
		require.Empty(t, target.seen())
	})
}

func TestGoneDisables(t *testing.T) {
	t.Parallel()
	modelstest.RunClock(t, "", func(t *testing.T, s *models.Store, clock *modelstest.Clock) {
		r := newRig(t, s, clock)
		var code atomic.Int64
		code.Store(http.StatusGone)
		rec := newReceiver(t, func(w http.ResponseWriter, _ request) { w.WriteHeader(int(code.Load())) })
		other := newReceiver(t, nil)
		app, otherApp := r.application(rec.URL), r.application(other.URL)
		w := r.worker()
		call, events := r.call(app, 1)
		require.Equal(t, DisabledGone, r.next().Disabled)
		state := r.endpoint(app)
		require.Equal(t, clock.Now(), *state.DisabledAt)
		require.Equal(t, DisabledGone, state.DisabledReason)

		// Nothing more is sent, however long it takes; another endpoint's delivery proves that the worker looked.
		r.emit(call, 1)
		r.advance(48*time.Hour, w)
		r.call(otherApp, 1)
		require.Equal(t, otherApp.ID, r.next().ApplicationID)
		require.Len(t, rec.seen(), 1)

		code.Store(http.StatusOK)
		require.NoError(t, s.EnableEndpoint(t.Context(), app.ID))
		a := r.next()
		require.Equal(t, events[0].ID, a.EventID, "the event that met the 410 was kept")
		require.Equal(t, models.ResultDelivered, a.Result)
		require.EqualValues(t, 2, r.next().Sequence)
	})
}

// TestFiveDaysOfFailuresDisable also proves that one success starts the count again.
func TestFiveDaysOfFailuresDisable(t *testing.T) {
	t.Parallel()
	modelstest.RunClock(t, "", func(t *testing.T, s *models.Store, clock *modelstest.Clock) {
		r := newRig(t, s, clock)
		var healthy atomic.Bool
		rec := newReceiver(t, func(w http.ResponseWriter, _ request) {
			if !healthy.Load() {
				w.WriteHeader(http.StatusInternalServerError)
			}
		})
		app := r.application(rec.URL)
		const step = 23 * time.Hour
		w := r.worker(func(c *Config) {
			c.Schedule = []time.Duration{step, step, step, step, step, step, step, step, step, step}
		})
		r.call(app, 1)
		for range 5 { // until 92 h after the first failure
			require.Empty(t, r.next().Disabled)
			r.advance(step, w)
		}
		healthy.Store(true)
		r.call(app, 1)
		for range 2 {
			a := r.next()
			if a.Result == models.ResultRetry { // the sixth failure, 115 h after the first, was under way
				a = r.next()
			}
			require.Equal(t, models.ResultDelivered, a.Result)
		}
		healthy.Store(false)
		r.call(app, 1)
		for hours := 0; hours < 120; hours += 23 {
			a := r.next()
			require.Empty(t, a.Disabled, "%d hours after the success", hours)
			r.advance(step, w)
		}
		require.Equal(t, DisabledFailing, r.next().Disabled)
		require.Equal(t, DisabledFailing, r.endpoint(app).DisabledReason)
	})
}

func TestRetryAfterAndSlowDown(t *testing.T) {
	t.Parallel()
	modelstest.RunClock(t, "", func(t *testing.T, s *models.Store, clock *modelstest.Clock) {
		r := newRig(t, s, clock)
		for _, tc := range []struct {
			status int
			header string
			want   time.Duration
		}{
			{http.StatusServiceUnavailable, "3600", time.Hour},
			{http.StatusServiceUnavailable, "9999999", 24 * time.Hour},
			{http.StatusServiceUnavailable, "1", 5 * time.Second},
			{http.StatusTooManyRequests, "", time.Minute},
			{http.StatusTooManyRequests, "90", 90 * time.Second},
		} {
			rec := newReceiver(t, func(w http.ResponseWriter, _ request) {
				w.Header().Set("Retry-After", tc.header)
				w.WriteHeader(tc.status)
			})
			w := r.worker()
			r.call(r.application(rec.URL), 1)
			require.Equal(t, clock.Now().Add(tc.want), r.next().RetryAt, "%d %s", tc.status, tc.header)
			r.stop(w)
		}

		hang := newGate()
		rec := newReceiver(t, func(_ http.ResponseWriter, req request) { hang.wait(req) })
		r.worker(func(c *Config) { c.Timeout = 50 * time.Millisecond })
		_, events := r.call(r.application(rec.URL), 1)
		a := r.next()
		require.Equal(t, clock.Now().Add(time.Minute), a.RetryAt)
		require.Equal(t, "timeout", a.Failure)
		require.Equal(t, "timeout", r.recorded(events[0])[0].Error)
		require.Zero(t, a.Status)
	})
}

func TestRotationSignsWithBoth(t *testing.T) {
	t.Parallel()
	modelstest.RunClock(t, "", func(t *testing.T, s *models.Store, clock *modelstest.Clock) {
		r := newRig(t, s, clock)
		rec := newReceiver(t, nil)
		app := r.application(rec.URL)
		old, fresh := string(app.WebhookSecret), NewSecret()
		w := r.worker()
		call, _ := r.call(app, 1)
		r.next()
		require.Len(t, strings.Fields(r.arrived(rec).header.Get(HeaderSignature)), 1)

		require.NoError(t, s.RotateWebhookSecret(t.Context(), app.CustomerID, app.ID, models.Secret(fresh), 24*time.Hour))
		r.emit(call, 1)
		r.next()
		both := r.arrived(rec)
		require.Len(t, strings.Fields(both.header.Get(HeaderSignature)), 2)
		require.NoError(t, Verify(old, both.header, []byte(both.body), clock.Now()))
		require.NoError(t, Verify(fresh, both.header, []byte(both.body), clock.Now()))

		r.advance(24*time.Hour, w)
		r.emit(call, 1)
		r.next()
		one := r.arrived(rec)
		require.Len(t, strings.Fields(one.header.Get(HeaderSignature)), 1)
		require.NoError(t, Verify(fresh, one.header, []byte(one.body), clock.Now()))
		require.ErrorIs(t, Verify(old, one.header, []byte(one.body), clock.Now()), ErrSignature)
	})
}

func TestApplicationWithoutURLIsSkipped(t *testing.T) {
	t.Parallel()
	modelstest.RunClock(t, "", func(t *testing.T, s *models.Store, clock *modelstest.Clock) {
		r := newRig(t, s, clock)
		app := r.application("")
		r.worker()
		_, events := r.call(app, 2)
		for i := range 2 {
			require.Equal(t, models.ResultSkipped, r.next().Result)
			require.Equal(t, models.DeliverySkipped, r.delivery(events[i]).State)
			require.Empty(t, r.recorded(events[i]))
		}
		require.Zero(t, r.endpoint(app).ConsecutiveFailures)
	})
}

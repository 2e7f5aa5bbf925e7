package webhooks

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tandem/models"
	"tandem/models/modelstest"
)

// badServer is a way in which a customer's server can be bad.
type badServer struct {
	name string
	// serve starts the server and returns its URL; requests that hang do so until hang is released.
	serve func(t *testing.T, hang *gate) string
	// hangs says that each request holds its slot.
	hangs bool
	// failure begins what is recorded of an attempt, result is what becomes of the event, wait how long it waits, where it does.
	failure, result string
	status          int
	wait            time.Duration
	disabled        string
}

// answering is a server that answers with a status and a header.
func answering(status int, header, value string) func(t *testing.T, _ *gate) string {
	return func(t *testing.T, _ *gate) string {
		t.Helper()
		return newReceiver(t, func(w http.ResponseWriter, _ request) {
			if header != "" {
				w.Header().Set(header, value)
			}
			w.WriteHeader(status)
		}).URL
	}
}

var badServers = []badServer{
	{
		name: "dead", failure: "refused: ", result: models.ResultRetry, wait: 5 * time.Second,
		serve: func(t *testing.T, _ *gate) string {
			t.Helper()
			server := httptest.NewServer(http.NotFoundHandler())
			server.Close()
			return server.URL
		},
	},
	{
		name: "silent", hangs: true, failure: "network: ", result: models.ResultRetry, wait: 5 * time.Second,
		serve: func(t *testing.T, hang *gate) string {
			t.Helper()
			return newReceiver(t, func(_ http.ResponseWriter, r request) {
				hang.wait(r)
				panic(http.ErrAbortHandler) // closes the connection without an answer
			}).URL
		},
	},
	{
		name: "slow", hangs: true, result: models.ResultDelivered, status: http.StatusOK,
		serve: func(t *testing.T, hang *gate) string {
			t.Helper()
			return newReceiver(t, func(_ http.ResponseWriter, r request) { hang.wait(r) }).URL
		},
	},
	{
		name: "a body that drips", hangs: true, result: models.ResultDelivered, status: http.StatusOK,
		serve: func(t *testing.T, hang *gate) string {
			t.Helper()
			return newReceiver(t, func(w http.ResponseWriter, r request) {
				_, _ = w.Write([]byte("."))
				_ = http.NewResponseController(w).Flush()
				hang.wait(r)
			}).URL
		},
	},
	{
		name: "an endless body", result: models.ResultDelivered, status: http.StatusOK,
		serve: func(t *testing.T, _ *gate) string {
			t.Helper()
			return newReceiver(t, func(w http.ResponseWriter, _ request) {
				for block := make([]byte, 32<<10); ; {
					if _, err := w.Write(block); err != nil {
						return // the worker has read enough
					}
				}
			}).URL
		},
	},
	{
		name: "an endless body of an error", result: models.ResultRetry, failure: "status: the endpoint answered 500", status: http.StatusInternalServerError, wait: 5 * time.Second,
		serve: func(t *testing.T, _ *gate) string {
			t.Helper()
			return newReceiver(t, func(w http.ResponseWriter, _ request) {
				w.WriteHeader(http.StatusInternalServerError)
				for block := make([]byte, 32<<10); ; {
					if _, err := w.Write(block); err != nil {
						return
					}
				}
			}).URL
		},
	},
	{
		name: "500", failure: "status: the endpoint answered 500", result: models.ResultRetry, status: http.StatusInternalServerError, wait: 5 * time.Second,
		serve: answering(http.StatusInternalServerError, "", ""),
	},
	{
		name: "429", failure: "status: the endpoint answered 429", result: models.ResultRetry, status: http.StatusTooManyRequests, wait: 90 * time.Second,
		serve: answering(http.StatusTooManyRequests, "Retry-After", "90"),
	},
	{
		name: "410", failure: "status: the endpoint answered 410", result: models.ResultRetry, status: http.StatusGone, wait: 5 * time.Second, disabled: DisabledGone,
		serve: answering(http.StatusGone, "", ""),
	},
	{
		name: "redirect", failure: "status: the endpoint answered 302", result: models.ResultRetry, status: http.StatusFound, wait: 5 * time.Second,
		serve: func(t *testing.T, hang *gate) string {
			t.Helper()
			target := newReceiver(t, nil)
			t.Cleanup(func() { require.Empty(t, target.seen(), "a redirect is not followed") })
			return answering(http.StatusFound, "Location", target.URL)(t, hang)
		},
	},
	{
		name: "bad TLS", failure: "tls: ", result: models.ResultRetry, wait: 5 * time.Second,
		serve: func(t *testing.T, _ *gate) string {
			t.Helper()
			server := httptest.NewUnstartedServer(http.NotFoundHandler())
			server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
			server.StartTLS()
			t.Cleanup(server.Close)
			return server.URL
		},
	},
	{
		name: "TLS that is none", failure: "network: ", result: models.ResultRetry, wait: 5 * time.Second,
		serve: func(t *testing.T, _ *gate) string {
			t.Helper()
			return strings.Replace(newReceiver(t, nil).URL, "http://", "https://", 1)
		},
	},
	{
		name: "a private address", failure: "blocked: ", result: models.ResultRetry, wait: 5 * time.Second,
		serve: func(*testing.T, *gate) string { return "http://10.0.0.1/hook" },
	},
	{
		name: "no such host", failure: "dns: ", result: models.ResultRetry, wait: 5 * time.Second,
		serve: func(*testing.T, *gate) string { return "http://no-such-host.invalid/hook" },
	},
}

// check holds an attempt at a bad server to what is known of it.
func (b *badServer) check(t *testing.T, a Attempt, now time.Time) {
	t.Helper()
	require.Equal(t, b.result, a.Result, b.name)
	require.Equal(t, b.status, a.Status, b.name)
	require.True(t, strings.HasPrefix(a.Failure, b.failure), "%s: %s", b.name, a.Failure)
	require.Equal(t, b.failure == "", a.Failure == "", "%s: %s", b.name, a.Failure)
	if b.result == models.ResultRetry {
		require.Equal(t, now.Add(b.wait), a.RetryAt, b.name)
	}
}

// TestBadServersSlowNobody has, for each sort of bad server, a healthy one beside it with as many events: all of these are
// delivered, in order, while the bad one does its worst; and the bad one's events wait as they should.
func TestBadServersSlowNobody(t *testing.T) {
	t.Parallel()
	const calls, each, slots = 12, 2, 4
	for _, bad := range badServers {
		modelstest.RunClock(t, bad.name, func(t *testing.T, s *models.Store, clock *modelstest.Clock) {
			r := newRig(t, s, clock)
			hang, healthy := newGate(), newReceiver(t, nil)
			badApp, healthyApp := r.application(bad.serve(t, hang)), r.application(healthy.URL)
			for range calls {
				r.call(badApp, each)
				r.call(healthyApp, each)
			}
			var under atomic.Int64
			w := r.worker(func(c *Config) {
				c.Workers, c.PerEndpoint = 2*slots, slots
				c.Client = counted(c.Client, badApp.WebhookURL, &under)
			})
			good, seen := 0, 0
			for good < calls*each {
				a := r.next()
				if a.ApplicationID == healthyApp.ID {
					require.Equal(t, models.ResultDelivered, a.Result)
					good++
					continue
				}
				require.False(t, bad.hangs, "it hangs")
				bad.check(t, a, clock.Now())
				seen++
			}
			if bad.hangs {
				require.LessOrEqual(t, under.Load(), int64(slots), "it holds its slots, and no more")
			}
			hang.release()
			if seen == 0 {
				bad.check(t, r.next(), clock.Now())
			}
			r.stop(w)
			state := r.endpoint(badApp)
			require.Equal(t, bad.disabled, state.DisabledReason)
			if bad.result == models.ResultDelivered {
				require.Zero(t, state.ConsecutiveFailures)
			} else {
				require.Positive(t, state.ConsecutiveFailures)
			}
			require.Zero(t, r.endpoint(healthyApp).ConsecutiveFailures)
			last := map[string]int64{}
			for _, request := range healthy.seen() {
				call, number := sequence(t, request.body)
				require.Equal(t, last[call]+1, number, "in order")
				last[call] = number
			}
			require.Len(t, last, calls)
		})
	}
}

// counted counts the requests to a URL that are under way.
func counted(client *http.Client, target string, under *atomic.Int64) *http.Client {
	copied := *client
	copied.Transport = counting{client.Transport, target, under}
	return &copied
}

type counting struct {
	http.RoundTripper
	target string
	under  *atomic.Int64
}

func (c counting) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.String() == c.target {
		c.under.Add(1)
		defer c.under.Add(-1)
	}
	return c.RoundTripper.RoundTrip(r)
}

// TestAllBadServersTogether has every sort of bad server at once, and one healthy one that waits for none of them.
func TestAllBadServersTogether(t *testing.T) {
	t.Parallel()
	modelstest.RunClock(t, "", func(t *testing.T, s *models.Store, clock *modelstest.Clock) {
		r := newRig(t, s, clock)
		hang, healthy := newGate(), newReceiver(t, nil)
		sorts := map[string]*badServer{}
		for i := range badServers {
			app := r.application(badServers[i].serve(t, hang))
			sorts[app.ID] = &badServers[i]
			for range 6 {
				r.call(app, 1)
			}
		}
		app := r.application(healthy.URL)
		w := r.worker(func(c *Config) { c.Workers, c.PerEndpoint = 4*len(badServers), 4 })
		for range 30 {
			r.call(app, 1)
		}
		for good := 0; good < 30; {
			a := r.next()
			if a.ApplicationID == app.ID {
				require.Equal(t, models.ResultDelivered, a.Result)
				good++
				continue
			}
			require.False(t, sorts[a.ApplicationID].hangs)
			sorts[a.ApplicationID].check(t, a, clock.Now())
		}
		hang.release()
		r.stop(w)
	})
}

// TestManySlowServers has more slow endpoints than there are slots for: what is kept in reserve is enough for one that is quick.
func TestManySlowServers(t *testing.T) {
	t.Parallel()
	modelstest.RunClock(t, "", func(t *testing.T, s *models.Store, clock *modelstest.Clock) {
		r := newRig(t, s, clock)
		hang := newGate()
		var under atomic.Int64
		slow := newReceiver(t, func(_ http.ResponseWriter, req request) {
			under.Add(1)
			hang.wait(req)
		})
		const slots, perEndpoint, endpoints = 16, 4, 6
		for range endpoints {
			app := r.application(slow.URL)
			for range perEndpoint {
				r.call(app, 1)
			}
		}
		w := r.worker(func(c *Config) { c.Workers, c.PerEndpoint = slots, perEndpoint })
		for range slots - slots/reserve {
			r.arrived(slow)
		}
		quick := newReceiver(t, nil)
		app := r.application(quick.URL)
		for range 20 {
			r.call(app, 1)
			a := r.next()
			require.Equal(t, []any{app.ID, models.ResultDelivered}, []any{a.ApplicationID, a.Result})
		}
		require.EqualValues(t, slots-slots/reserve, under.Load(), "and no slow one has taken of it")
		hang.release()
		for range endpoints * perEndpoint {
			require.Equal(t, models.ResultDelivered, r.next().Result)
		}
		r.stop(w)
	})
}

// TestFlappingServer answers every second request with an error: all events arrive in their order, none is given up, the endpoint
// is neither probed nor disabled, and another endpoint waits for nothing.
func TestFlappingServer(t *testing.T) {
	t.Parallel()
	modelstest.RunClock(t, "", func(t *testing.T, s *models.Store, clock *modelstest.Clock) {
		r := newRig(t, s, clock)
		var requests atomic.Int64
		flapping := newReceiver(t, func(w http.ResponseWriter, _ request) {
			if requests.Add(1)%2 == 1 {
				w.WriteHeader(http.StatusBadGateway)
			}
		})
		healthy := newReceiver(t, nil)
		flappingApp, healthyApp := r.application(flapping.URL), r.application(healthy.URL)
		_, events := r.call(flappingApp, 5)
		w := r.worker()
		for i, event := range events {
			a := r.next()
			require.Equal(t, []any{event.ID, models.ResultRetry, http.StatusBadGateway}, []any{a.EventID, a.Result, a.Status})
			r.call(healthyApp, 1)
			require.Equal(t, healthyApp.ID, r.next().ApplicationID, "while the other waits for its retry")
			require.Equal(t, 1, r.endpoint(flappingApp).ConsecutiveFailures, "each success begins the count again")
			r.advance(5*time.Second, w)
			a = r.next()
			require.Equal(t, []any{event.ID, models.ResultDelivered}, []any{a.EventID, a.Result}, fmt.Sprint("event ", i))
		}
		require.Nil(t, r.endpoint(flappingApp).DisabledAt)
	})
}

// TestHalfBrokenServer takes the events of one call and fails those of others, as behind a balancer of which one server is sick: each
// success of the failing endpoint has all that waits tried again, but not all the time, and it costs them nothing.
func TestHalfBrokenServer(t *testing.T) {
	t.Parallel()
	modelstest.RunClock(t, "", func(t *testing.T, s *models.Store, clock *modelstest.Clock) {
		r := newRig(t, s, clock)
		var well atomic.Value
		well.Store("")
		rec := newReceiver(t, func(w http.ResponseWriter, req request) {
			if call, _ := sequence(t, req.body); call != well.Load() && well.Load() != "all" {
				w.WriteHeader(http.StatusInternalServerError)
			}
		})
		app := r.application(rec.URL)
		w := r.worker(func(c *Config) { c.Schedule = []time.Duration{time.Minute, time.Minute, time.Minute, 10 * time.Hour} })
		var sick []*models.Event
		for range models.FailingThreshold {
			_, events := r.call(app, 1)
			sick = append(sick, events...)
		}
		for range sick {
			require.Equal(t, clock.Now().Add(time.Minute), r.next().RetryAt)
		}
		healthy, _ := r.call(app, 0)
		well.Store(healthy.ID)
		begun := clock.Now()
		for range 50 { // seconds
			r.emit(healthy, 1)
			for a := r.next(); a.SubjectID != healthy.ID; a = r.next() {
				require.Equal(t, begun.Add(time.Minute), a.RetryAt, "it is due again when it would have been")
			}
			r.advance(time.Second, w)
		}
		for _, event := range sick {
			delivery := r.delivery(event)
			require.Equal(t, models.DeliveryPending, delivery.State)
			require.Greater(t, delivery.Attempts, 1)
			require.LessOrEqual(t, delivery.Attempts, 1+50/5+1)
		}
		well.Store("all")
		r.emit(healthy, 1)
		r.advance(time.Minute, w)
		for left := len(sick) + 1; left > 0; {
			if r.next().Result == models.ResultDelivered {
				left--
			}
		}
		for _, event := range sick {
			require.Equal(t, models.DeliveryDelivered, r.delivery(event).State)
		}
	})
}

// TestRedeliveredEventsArrive delivers dead events again: the same ids and bodies, beside the call's own, in their order.
func TestRedeliveredEventsArrive(t *testing.T) {
	t.Parallel()
	modelstest.RunClock(t, "", func(t *testing.T, s *models.Store, clock *modelstest.Clock) {
		r := newRig(t, s, clock)
		var up atomic.Bool
		rec := newReceiver(t, func(w http.ResponseWriter, _ request) {
			if !up.Load() {
				w.WriteHeader(http.StatusInternalServerError)
			}
		})
		app := r.application(rec.URL)
		call, events := r.call(app, 2)
		r.worker(func(c *Config) { c.Schedule = []time.Duration{} })
		for range events {
			require.Equal(t, models.ResultDead, r.next().Result)
		}
		up.Store(true)
		filter := models.DeliveryFilter{State: models.DeliveryDead, EventFilter: models.EventFilter{ApplicationID: app.ID}}
		count, more, err := s.RedeliverAll(t.Context(), app.CustomerID, filter, 10)
		require.NoError(t, err)
		require.Equal(t, []any{2, false}, []any{count, more})
		for i, event := range events {
			a := r.next()
			require.Equal(t, []any{event.ID, call.ID, int64(i + 1), 2, models.ResultDelivered}, []any{a.EventID, a.SubjectID, a.Sequence, a.Number, a.Result})
		}
		r.emit(call, 1)
		require.EqualValues(t, 3, r.next().Sequence, "the call's own events are numbered on")
		seen := rec.seen()
		require.Len(t, seen, 5)
		for i := range events {
			require.Equal(t, []string{seen[i].id(), seen[i].body}, []string{seen[i+2].id(), seen[i+2].body})
			require.NoError(t, Verify(string(app.WebhookSecret), seen[i+2].header, []byte(seen[i+2].body), clock.Now()))
		}
	})
}

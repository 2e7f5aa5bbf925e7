package webhooks

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tandem/egress"
	"tandem/models"
	"tandem/models/modelstest"
)

// queue is a store of which a test can intercept some methods.
type queue struct {
	*models.Store
	finish      func(ctx context.Context, outcomes []models.Outcome) error
	application func(ctx context.Context, id string) (*models.Application, error)
	claim       func() error
}

func (q *queue) FinishDeliveries(ctx context.Context, outcomes []models.Outcome) error {
	if q.finish == nil {
		return q.Store.FinishDeliveries(ctx, outcomes)
	}
	return q.finish(ctx, outcomes)
}

func (q *queue) ApplicationByID(ctx context.Context, id string) (*models.Application, error) {
	if q.application == nil {
		return q.Store.ApplicationByID(ctx, id)
	}
	return q.application(ctx, id)
}

func (q *queue) ClaimStreams(ctx context.Context, owner string, lease time.Duration, perEndpoint, probe, limit int) ([]models.ClaimedStream, error) {
	if q.claim != nil {
		if err := q.claim(); err != nil {
			return nil, err
		}
	}
	return q.Store.ClaimStreams(ctx, owner, lease, perEndpoint, probe, limit)
}

// TestCrashBetweenPostAndFinish has a worker die after the endpoint answered and before that is stored: another worker
// sends the same event, with the same id, once the lease is over, and not before.
func TestCrashBetweenPostAndFinish(t *testing.T) {
	t.Parallel()
	modelstest.RunClock(t, "", func(t *testing.T, s *models.Store, clock *modelstest.Clock) {
		r := newRig(t, s, clock)
		rec := newReceiver(t, nil)
		app := r.application(rec.URL)
		posted := make(chan struct{}, 1)
		crashed := &queue{Store: s, finish: func(context.Context, []models.Outcome) error {
			select {
			case posted <- struct{}{}:
			default:
			}
			return errors.New("the process is gone")
		}}
		const lease = time.Hour
		first := r.worker(func(c *Config) { c.Store, c.Lease = crashed, lease })
		_, events := r.call(app, 2)
		r.arrived(rec)
		<-posted
		r.stop(first)
		require.Equal(t, models.DeliveryPending, r.delivery(events[0]).State)

		second := r.worker()
		other := newReceiver(t, nil)
		r.call(r.application(other.URL), 1)
		r.next()
		require.Len(t, rec.seen(), 1, "the lease still holds")

		r.advance(lease, second)
		require.Equal(t, events[0].ID, r.next().EventID)
		require.Equal(t, events[1].ID, r.next().EventID)
		seen := rec.seen()
		require.Len(t, seen, 3)
		require.Equal(t, seen[0].id(), seen[1].id())
		require.Equal(t, seen[0].body, seen[1].body)
		require.Equal(t, models.DeliveryDelivered, r.delivery(events[0]).State)
	})
}

// TestLostLease has a worker answer so late that another has delivered the event meanwhile: its result changes nothing.
func TestLostLease(t *testing.T) {
	t.Parallel()
	modelstest.RunClock(t, "", func(t *testing.T, s *models.Store, clock *modelstest.Clock) {
		r := newRig(t, s, clock)
		slow := newGate()
		var requests atomic.Int64
		rec := newReceiver(t, func(w http.ResponseWriter, req request) {
			if requests.Add(1) == 1 {
				slow.wait(req)
				w.WriteHeader(http.StatusGone)
			}
		})
		app := r.application(rec.URL)
		const lease = time.Hour
		r.worker(func(c *Config) { c.Lease = lease })
		_, events := r.call(app, 1)
		r.arrived(rec)
		second := r.worker(func(c *Config) { c.Lease = lease })
		r.advance(lease, second)
		require.Equal(t, models.ResultDelivered, r.next().Result)
		slow.release()
		require.Equal(t, http.StatusGone, r.next().Status)

		delivery := r.delivery(events[0])
		require.Equal(t, models.DeliveryDelivered, delivery.State)
		require.Equal(t, 1, delivery.Attempts)
		require.Nil(t, r.endpoint(app).DisabledAt, "a result without a lease says nothing of the endpoint")
		require.Len(t, r.recorded(events[0]), 2, "but the request was made, and is recorded")
	})
}

// TestStopReturnsClaims stops a worker whose request hangs: it returns, and another worker has the event at once.
func TestStopReturnsClaims(t *testing.T) {
	t.Parallel()
	modelstest.RunClock(t, "", func(t *testing.T, s *models.Store, clock *modelstest.Clock) {
		r := newRig(t, s, clock)
		hang := newGate()
		var requests atomic.Int64
		rec := newReceiver(t, func(_ http.ResponseWriter, req request) {
			if requests.Add(1) == 1 {
				hang.wait(req)
			}
		})
		app := r.application(rec.URL)
		first := r.worker()
		_, events := r.call(app, 1)
		r.arrived(rec)
		r.stop(first)
		r.stop(first) // again does nothing
		require.Equal(t, models.ResultReleased, r.next().Result)
		require.Empty(t, r.recorded(events[0]))
		require.Zero(t, r.endpoint(app).ConsecutiveFailures)

		r.worker()
		a := r.next()
		require.Equal(t, models.ResultDelivered, a.Result)
		require.Equal(t, events[0].ID, a.EventID)
		require.Equal(t, 1, a.Number)
	})
}

// TestStopLetsRequestsEnd gives a request under way the time that Stop is given.
func TestStopLetsRequestsEnd(t *testing.T) {
	t.Parallel()
	modelstest.RunClock(t, "", func(t *testing.T, s *models.Store, clock *modelstest.Clock) {
		r := newRig(t, s, clock)
		slow := newGate()
		rec := newReceiver(t, func(_ http.ResponseWriter, req request) { slow.wait(req) })
		w := r.worker()
		_, events := r.call(r.application(rec.URL), 1)
		r.arrived(rec)
		stopped := make(chan struct{})
		go func() {
			defer close(stopped)
			w.Stop(context.WithoutCancel(t.Context()))
		}()
		select {
		case <-stopped:
			require.FailNow(t, "Stop did not wait for the request")
		default:
		}
		slow.release()
		<-stopped
		require.Equal(t, models.ResultDelivered, r.next().Result)
		require.Equal(t, models.DeliveryDelivered, r.delivery(events[0]).State)
	})
}

// TestDatabaseAway has the database refuse results for a while: they are stored when it is back, and nothing is sent twice.
func TestDatabaseAway(t *testing.T) {
	t.Parallel()
	modelstest.RunClock(t, "", func(t *testing.T, s *models.Store, clock *modelstest.Clock) {
		r := newRig(t, s, clock)
		rec := newReceiver(t, nil)
		var refused atomic.Int64
		away := &queue{Store: s, finish: func(ctx context.Context, outcomes []models.Outcome) error {
			if refused.Add(1) <= 3 {
				return errors.New("database is away")
			}
			return s.FinishDeliveries(ctx, outcomes)
		}}
		var out logs
		r.worker(func(c *Config) {
			c.Store, c.Poll = away, time.Millisecond
			c.Logger = slog.New(slog.NewJSONHandler(&out, nil))
		})
		_, events := r.call(r.application(rec.URL), 1)
		require.Equal(t, models.ResultDelivered, r.next().Result)
		require.Len(t, rec.seen(), 1)
		require.Len(t, r.recorded(events[0]), 1)
		require.Equal(t, 1, strings.Count(out.String(), "webhook results could not be stored"), "told once")
	})
}

// TestUnreadableApplication has an application that cannot be read: its events wait for the lease instead of going round
// in circles, and others are delivered.
func TestUnreadableApplication(t *testing.T) {
	t.Parallel()
	modelstest.RunClock(t, "", func(t *testing.T, s *models.Store, clock *modelstest.Clock) {
		r := newRig(t, s, clock)
		rec := newReceiver(t, nil)
		broken, healthy := r.application(rec.URL), r.application(rec.URL)
		var reads atomic.Int64
		unreadable := &queue{Store: s, application: func(ctx context.Context, id string) (*models.Application, error) {
			if id == broken.ID && reads.Add(1) == 1 {
				return nil, errors.New("not sealed with this key")
			}
			return s.ApplicationByID(ctx, id)
		}}
		_, events := r.call(broken, 1)
		const lease = time.Hour
		w := r.worker(func(c *Config) { c.Store, c.Lease = unreadable, lease })
		for range 10 {
			r.call(healthy, 1)
			require.Equal(t, healthy.ID, r.next().ApplicationID)
		}
		require.EqualValues(t, 1, reads.Load())
		r.advance(lease, w)
		require.Equal(t, events[0].ID, r.next().EventID)
		require.Zero(t, r.endpoint(broken).ConsecutiveFailures)
	})
}

// TestClaimsFailForAWhile proves that the worker goes on once the database answers again.
func TestClaimsFailForAWhile(t *testing.T) {
	t.Parallel()
	modelstest.RunClock(t, "", func(t *testing.T, s *models.Store, clock *modelstest.Clock) {
		r := newRig(t, s, clock)
		rec := newReceiver(t, nil)
		r.call(r.application(rec.URL), 1)
		var claims atomic.Int64
		away := &queue{Store: s, claim: func() error {
			if claims.Add(1) <= 3 {
				return errors.New("database is away")
			}
			return nil
		}}
		var out logs
		r.worker(func(c *Config) {
			c.Store, c.Poll = away, time.Millisecond
			c.Logger = slog.New(slog.NewJSONHandler(&out, nil))
		})
		require.Equal(t, models.ResultDelivered, r.next().Result)
		require.Equal(t, 1, strings.Count(out.String(), "webhook streams could not be claimed"))
	})
}

func TestStopBeforeStart(t *testing.T) {
	t.Parallel()
	w, err := NewWorker(Config{Store: modelstest.Open(t), Client: http.DefaultClient})
	require.NoError(t, err)
	w.Stop(t.Context())
	w.Start(t.Context()) // does nothing any more
	w.Stop(t.Context())
}

func TestNewWorkerValidates(t *testing.T) {
	t.Parallel()
	s := modelstest.Open(t)
	for _, cfg := range []Config{
		{},
		{Store: s},
		{Client: http.DefaultClient},
		{Store: s, Client: http.DefaultClient, Workers: -1},
		{Store: s, Client: http.DefaultClient, PerEndpoint: -1},
		{Store: s, Client: http.DefaultClient, Lease: time.Millisecond},
		{Store: s, Client: http.DefaultClient, Lease: -time.Second},
	} {
		_, err := NewWorker(cfg)
		require.Error(t, err)
	}
	w, err := NewWorker(Config{Store: s, Client: http.DefaultClient, Timeout: time.Hour})
	require.NoError(t, err)
	require.Equal(t, 5*time.Second, w.cfg.Lease, "whatever the timeout: leases are extended")
	require.Equal(t, DefaultSchedule(), w.cfg.Schedule)
	require.Equal(t, 256, w.cfg.Workers)
}

// TestNothingSecretIsKept looks for secrets and for the query of the URL in logs and attempts, over every sort of failure.
func TestNothingSecretIsKept(t *testing.T) {
	t.Parallel()
	modelstest.RunClock(t, "", func(t *testing.T, s *models.Store, clock *modelstest.Clock) {
		const token = "token-of-the-customer"
		r := newRig(t, s, clock)
		var out logs
		old := "an old secret of the customer"
		fresh := NewSecret()
		echo := newReceiver(t, func(w http.ResponseWriter, _ request) {
			w.WriteHeader(http.StatusGone)
			_, _ = w.Write([]byte("your secrets: " + fresh + " and " + old))
		})
		untrusted := httptest.NewUnstartedServer(http.NotFoundHandler())
		untrusted.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
		untrusted.StartTLS()
		t.Cleanup(untrusted.Close)
		closed := httptest.NewServer(http.NotFoundHandler())
		closed.Close()
		r.worker(func(c *Config) {
			c.Logger = slog.New(slog.NewJSONHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug}))
			c.Schedule = []time.Duration{} // the first failure is the last
		})
		for _, tc := range []struct{ url, failure string }{
			{echo.URL, "status: the endpoint answered 410"},
			{closed.URL, "refused: connection refused"},
			{"http://10.0.0.1", "blocked: the address of webhook_url is not allowed"},
			{untrusted.URL, "tls: "},
			{"http://no-such-host.invalid", "dns: "},
			{"ftp://files.example", "url: webhook_url must begin with http:// or https://"},
		} {
			app := r.application(tc.url + "/?token=" + token)
			app.WebhookSecret = models.Secret(old)
			require.NoError(t, s.UpdateApplication(t.Context(), app))
			require.NoError(t, s.RotateWebhookSecret(t.Context(), app.CustomerID, app.ID, models.Secret(fresh), time.Hour))
			_, events := r.call(app, 1)
			a := r.next()
			require.Equal(t, models.ResultDead, a.Result)
			require.True(t, strings.HasPrefix(a.Failure, tc.failure), "%s: %s", tc.url, a.Failure)
			kept := fmt.Sprintf("%+v %+v", a, r.recorded(events[0]))
			for _, secret := range []string{token, old, fresh, "10.0.0.1"} {
				require.NotContains(t, kept, secret)
			}
		}
		require.Contains(t, out.String(), "webhook event is dead")
		require.Contains(t, out.String(), "webhook endpoint disabled")
		for _, secret := range []string{token, old, fresh} {
			require.NotContains(t, out.String(), secret)
		}
	})
}

func TestClassify(t *testing.T) {
	t.Parallel()
	wrap := func(err error) error { return &url.Error{Op: "Post", URL: "https://a.example/?token=x", Err: err} }
	for _, tc := range []struct {
		err            error
		reason, detail string
	}{
		{context.DeadlineExceeded, "timeout", ""},
		{&net.OpError{Op: "dial", Err: os.ErrDeadlineExceeded}, "timeout", ""},
		{fmt.Errorf("%w: 10.0.0.1", egress.ErrBlocked), "blocked", "the address of webhook_url is not allowed"},
		{&net.DNSError{Name: "internal.example", Server: "10.0.0.53:53", IsNotFound: true}, "dns", "no such host"},
		{&net.DNSError{Name: "internal.example", Server: "10.0.0.53:53", IsTimeout: true}, "dns", "the name server did not answer"},
		{&net.OpError{Op: "dial", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}, "refused", "connection refused"},
		{tls.AlertError(40), "tls", "tls: handshake failure"},
		{errors.New("http: server closed the connection"), "network", "http: server closed the connection"},
	} {
		reason, detail := classify(wrap(tc.err))
		require.Equal(t, tc.reason, reason)
		require.Equal(t, tc.detail, detail)
	}
}

// TestBrokenAnswers covers answers that end too early: a 2xx was received, so it counts; anything else failed.
func TestBrokenAnswers(t *testing.T) {
	t.Parallel()
	modelstest.RunClock(t, "", func(t *testing.T, s *models.Store, clock *modelstest.Clock) {
		r := newRig(t, s, clock)
		r.worker()
		for code, want := range map[int]string{http.StatusOK: models.ResultDelivered, http.StatusInternalServerError: models.ResultRetry} {
			rec := newReceiver(t, func(w http.ResponseWriter, _ request) {
				w.Header().Set("Content-Length", "100")
				w.WriteHeader(code)
				_, _ = w.Write([]byte("half"))
			})
			_, events := r.call(r.application(rec.URL), 1)
			a := r.next()
			require.Equal(t, want, a.Result)
			require.Equal(t, code, a.Status)
			require.Equal(t, "half", r.recorded(events[0])[0].Response)
		}
		// An endless answer is read only so far.
		rec := newReceiver(t, func(w http.ResponseWriter, _ request) {
			for range 4 * maxAnswer / 1024 {
				if _, err := w.Write(make([]byte, 1024)); err != nil {
					return
				}
			}
		})
		_, events := r.call(r.application(rec.URL), 1)
		require.Equal(t, models.ResultDelivered, r.next().Result)
		require.LessOrEqual(t, len(r.recorded(events[0])[0].Response), 1024)
	})
}

func TestShorten(t *testing.T) {
	t.Parallel()
	require.Equal(t, "abc", shorten("abc", 3))
	require.Equal(t, "ab", shorten("abc", 2))
	require.Equal(t, "a", shorten("aé", 2), "no character is cut")
	app := &models.Application{WebhookSecret: "s3cret"}
	require.Equal(t, "a\uFFFDb[redacted]\uFFFD", storable([]byte("a\x00bs3cret\xff"), app))
}

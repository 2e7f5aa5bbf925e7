package webhooks

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"tandem/models"
	"tandem/models/modelstest"
)

var errAway = errors.New("database is away")

// oneClaim is a queue in memory with one stream, which is claimed once: time in it is the test's.
type oneClaim struct {
	mu        sync.Mutex
	claimed   bool
	claims    int
	extension func() (ok bool, err error)
	extended  []time.Duration // after the start
	store     func() error
	results   []models.Outcome
	began     time.Time
}

func (q *oneClaim) lease() models.Lease {
	return models.Lease{SubjectID: "call_1", EndpointID: "app_1", Token: 7}
}

func (q *oneClaim) ClaimStreams(context.Context, string, time.Duration, int, int, int) ([]models.ClaimedStream, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.claims++
	if q.claimed {
		return nil, nil
	}
	q.claimed = true
	return []models.ClaimedStream{{
		Stream: models.Stream{SubjectID: "call_1", EndpointID: "app_1", LeaseToken: 7},
		Event:  models.Event{ID: "evt_1", SubjectID: "call_1", CallID: "call_1", Body: []byte("{}")},
	}}, nil
}

func (q *oneClaim) ExtendLeases(_ context.Context, leases []models.Lease, _ time.Duration) (extended, lost []models.Lease, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.extended = append(q.extended, time.Since(q.began))
	if len(leases) != 1 || leases[0] != q.lease() {
		return nil, nil, errors.New("not the lease that was claimed")
	}
	ok, err := true, error(nil)
	if q.extension != nil {
		ok, err = q.extension()
	}
	switch {
	case err != nil:
		return nil, nil, err
	case ok:
		return leases, nil, nil
	default:
		return nil, leases, nil
	}
}

func (q *oneClaim) FinishDeliveries(_ context.Context, outcomes []models.Outcome) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.store != nil {
		if err := q.store(); err != nil {
			return err
		}
	}
	q.results = append(q.results, outcomes...)
	return nil
}

func (q *oneClaim) NextDue(context.Context) (time.Time, bool, error) { return time.Time{}, false, nil }

func (q *oneClaim) EndpointState(context.Context, string) (*models.Endpoint, error) {
	return &models.Endpoint{ApplicationID: "app_1"}, nil
}

func (q *oneClaim) ApplicationByID(_ context.Context, id string) (*models.Application, error) {
	return &models.Application{ID: id, WebhookURL: "http://hooks.example/"}, nil
}

func (q *oneClaim) OnStreamDue(func()) {}
func (q *oneClaim) Now() time.Time     { return time.Now() }

// roundTrip is an endpoint without a network.
type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// answersAfter is an endpoint that takes its time.
func answersAfter(d time.Duration) roundTrip {
	return func(r *http.Request) (*http.Response, error) {
		select {
		case <-time.After(d):
			return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody, Request: r}, nil
		case <-r.Context().Done():
			return nil, r.Context().Err()
		}
	}
}

// ofOneClaim runs a worker with the product's settings on the queue and returns its only attempt, and when it was stored.
func ofOneClaim(t *testing.T, q *oneClaim, endpoint roundTrip) (a Attempt, after time.Duration, logged string) {
	t.Helper()
	var out logs
	attempts := make(chan Attempt, 1)
	w, err := NewWorker(Config{
		Store: q, Client: &http.Client{Transport: endpoint}, Logger: slog.New(slog.NewTextHandler(&out, nil)),
		OnAttempt: func(a Attempt) { attempts <- a },
	})
	require.NoError(t, err)
	q.began = time.Now()
	w.Start(t.Context())
	a = <-attempts
	after = time.Since(q.began)
	w.Stop(t.Context())
	require.Len(t, q.results, 1)
	require.Equal(t, q.lease().Token, q.results[0].LeaseToken)
	beats := len(q.extended)
	<-time.After(time.Minute)
	require.Len(t, q.extended, beats, "nothing is extended after the worker has stopped")
	return a, after, out.String()
}

// TestLeaseIsExtended: an attempt may take nearly three leases.
func TestLeaseIsExtended(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := &oneClaim{}
		a, after, logged := ofOneClaim(t, q, answersAfter(14*time.Second))
		require.Equal(t, models.ResultDelivered, a.Result)
		require.Equal(t, 14*time.Second, after)
		require.Len(t, q.extended, 8, "every third of five seconds")
		for i, at := range q.extended {
			require.Equal(t, time.Duration(i+1)*(defaultLease/3), at)
		}
		require.Empty(t, logged)
	})
}

// TestTwoHeartbeatsMayFail: the third comes in time.
func TestTwoHeartbeatsMayFail(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := &oneClaim{}
		q.extension = func() (bool, error) {
			if len(q.extended)%3 != 0 {
				return false, errAway
			}
			return true, nil
		}
		a, after, logged := ofOneClaim(t, q, answersAfter(14*time.Second))
		require.Equal(t, models.ResultDelivered, a.Result)
		require.Equal(t, 14*time.Second, after)
		require.Equal(t, 6, strings.Count(logged, "webhook leases could not be extended"))
	})
}

// TestAttemptEndsWithItsLease: while the database is away another worker may have it back and send the same event and those
// after it, so the attempt ends before its lease does.
func TestAttemptEndsWithItsLease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := &oneClaim{extension: func() (bool, error) { return false, errAway }}
		a, after, logged := ofOneClaim(t, q, answersAfter(14*time.Second))
		require.Equal(t, models.ResultReleased, a.Result)
		require.Equal(t, defaultLease, after)
		require.Equal(t, "canceled: the lease was lost", a.Failure)
		require.Contains(t, logged, "webhook attempt given up, its lease was lost")
	})
}

// TestAttemptEndsWhenItsLeaseIsTaken: by a worker whose clock is ahead.
func TestAttemptEndsWhenItsLeaseIsTaken(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := &oneClaim{extension: func() (bool, error) { return false, nil }}
		a, after, _ := ofOneClaim(t, q, answersAfter(14*time.Second))
		require.Equal(t, models.ResultReleased, a.Result)
		require.Equal(t, defaultLease/3, after)
	})
}

// TestWaitingResultsKeepTheirLease has the database refuse results longer than a lease: the lease is extended meanwhile, and
// nothing is claimed, because it would be what waits.
func TestWaitingResultsKeepTheirLease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := &oneClaim{}
		var claims []int // before each try to store
		q.store = func() error {
			claims = append(claims, q.claims)
			if time.Since(q.began) < 20*time.Second {
				return errAway
			}
			return nil
		}
		a, after, logged := ofOneClaim(t, q, answersAfter(time.Second))
		require.Equal(t, models.ResultDelivered, a.Result)
		require.Equal(t, 20*time.Second, after)
		require.Len(t, q.extended, 12, "every third of five seconds")
		require.Len(t, claims, 39, "every half second")
		// One claim may have been under way when the first try failed.
		require.LessOrEqual(t, claims[len(claims)-1], claims[0]+1)
		require.NotContains(t, logged, "lost")
	})
}

// TestResultsAreKeptForAWhile gives results up in the end that the database refuses for ever; they are delivered again.
func TestResultsAreKeptForAWhile(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := &oneClaim{store: func() error { return errAway }}
		var out logs
		w, err := NewWorker(Config{Store: q, Client: &http.Client{Transport: answersAfter(0)}, Logger: slog.New(slog.NewTextHandler(&out, nil))})
		require.NoError(t, err)
		w.Start(t.Context())
		<-time.After(storeTime + time.Second)
		synctest.Wait()
		require.Contains(t, out.String(), "webhook results are lost and will be delivered again")
		beats := len(q.extended)
		<-time.After(time.Minute)
		synctest.Wait()
		require.Len(t, q.extended, beats, "the lease runs out")
		require.Greater(t, q.claims, 100, "and the worker goes on")
		w.Stop(t.Context())
	})
}

// TestShortLease has requests outlast their leases by far while two workers claim: each event is sent once. On real databases;
// the clock of the queue moves by two thirds of a lease for each heartbeat.
func TestShortLease(t *testing.T) {
	t.Parallel()
	modelstest.RunClock(t, "", func(t *testing.T, s *models.Store, clock *modelstest.Clock) {
		r := newRig(t, s, clock)
		hang := newGate()
		rec := newReceiver(t, func(_ http.ResponseWriter, req request) { hang.wait(req) })
		app := r.application(rec.URL)
		const lease = time.Hour
		first := r.worker(func(c *Config) { c.Lease = lease })
		var events []*models.Event
		for range 3 {
			_, one := r.call(app, 1)
			events = append(events, one...)
			r.arrived(rec)
		}
		second := r.worker(func(c *Config) { c.Lease = lease })
		other := r.application(newReceiver(t, nil).URL)
		for range 5 {
			first.beat(t.Context())
			second.beat(t.Context())
			r.advance(lease*2/3, first, second)
			r.call(other, 1)
			require.Equal(t, other.ID, r.next().ApplicationID, "a worker has looked")
		}
		require.Len(t, rec.seen(), 3)
		hang.release()
		for range events {
			require.Equal(t, models.ResultDelivered, r.next().Result)
		}
		for _, event := range events {
			require.Equal(t, models.DeliveryDelivered, r.delivery(event).State)
			require.Len(t, r.recorded(event), 1)
		}
	})
}

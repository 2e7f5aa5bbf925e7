package api

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"

	"tandem/models"
	"tandem/models/modelstest"
)

// throttleBench is a bench whose clock the test moves, with what was refused.
func throttleBench(t *testing.T, store *models.Store, cfg Config) (b *bench, clock *modelstest.Clock, refused func() []string) {
	t.Helper()
	clock = modelstest.NewClock()
	var mu sync.Mutex
	var kinds []string
	cfg.Now = clock.Now
	cfg.OnRefused = func(kind string) {
		mu.Lock()
		defer mu.Unlock()
		kinds = append(kinds, kind)
	}
	return newBench(t, store, cfg), clock, func() []string {
		mu.Lock()
		defer mu.Unlock()
		return append([]string(nil), kinds...)
	}
}

// allowed are the three fields of an answer.
func allowed(t *testing.T, got response) [3]int {
	t.Helper()
	var values [3]int
	for i, name := range []string{headerLimit, headerRemaining, headerReset} {
		value, err := strconv.Atoi(got.header.Get(name))
		require.NoError(t, err, "%s of %d %s", name, got.status, got.body)
		values[i] = value
	}
	return values
}

// TestRateOfAKey: a key may make as many requests as its customer was given, or the rule says, and gets them back over time.
func TestRateOfAKey(t *testing.T) {
	t.Parallel()
	modelstest.Run(t, "", func(t *testing.T, store *models.Store) {
		b, clock, refused := throttleBench(t, store, Config{Rates: Rates{Key: 60, Address: 100}})
		other := b.newKey(b.customer)
		require.Equal(t, [3]int{60, 59, 1}, allowed(t, b.get("/v1/me").is(200)))
		for range 58 {
			b.get("/v1/me").is(200)
		}
		require.Equal(t, [3]int{60, 0, 60}, allowed(t, b.get("/v1/calls/call_none").refused(codeNotFound, "")), "a failure counts, and says so")
		for range 3 {
			got := b.get("/v1/me").refused(codeRateLimited, "")
			require.Equal(t, http.StatusTooManyRequests, got.status)
			require.Equal(t, "1", got.header.Get("Retry-After"))
			require.Equal(t, [3]int{60, 0, 60}, allowed(t, got), "what is refused costs nothing")
		}
		require.Equal(t, []string{"key_rate", "key_rate", "key_rate"}, refused())
		require.Equal(t, [3]int{60, 59, 1}, allowed(t, b.do(exchange{method: "GET", path: "/v1/me", key: &other}).is(200)), "another key has its own")
		clock.Advance(1500 * time.Millisecond)
		require.Equal(t, [3]int{60, 0, 60}, allowed(t, b.get("/v1/me").is(200)))
		b.get("/v1/me").refused(codeRateLimited, "")
		clock.Advance(time.Hour)
		require.Equal(t, [3]int{60, 59, 1}, allowed(t, b.get("/v1/me").is(200)), "no more than a minute's are kept")

		b.customer.Limits.RequestsPerMinute = 10
		require.NoError(t, store.SetLimits(t.Context(), b.customer))
		require.Equal(t, 10, allowed(t, b.get("/v1/me").is(200))[0])
		for range 9 {
			b.get("/v1/me").is(200)
		}
		got := b.get("/v1/me").refused(codeRateLimited, "")
		require.Equal(t, "6", got.header.Get("Retry-After"), "rounded up")
		clock.Advance(6 * time.Second)
		b.get("/v1/me").is(200)

		// Operators' tokens have the rule's.
		o := operatorBench(b, models.RoleViewer)
		require.Equal(t, [3]int{60, 59, 1}, allowed(t, o.get("/operator/v1/me").is(200)))
	})
}

// TestRateOfAnAddress: whoever guesses keys is soon refused before they are looked at, and keeps nobody from working whose key was good.
func TestRateOfAnAddress(t *testing.T) {
	t.Parallel()
	b, clock, refused := throttleBench(t, modelstest.Open(t), Config{Rates: Rates{Address: 12}})
	fresh := b.newKey(b.customer)
	b.get("/v1/me").is(200)
	none := ""
	require.Equal(t, [3]int{12, 11, 5}, allowed(t, b.do(exchange{method: "GET", path: "/v1/openapi.json", key: &none}).is(200)))
	require.Equal(t, [3]int{12, 10, 10}, allowed(t, b.do(exchange{method: "GET", path: "/v1/me", key: &none}).refused(codeUnauthorized, "")))
	require.Equal(t, [3]int{12, 9, 15}, allowed(t, b.do(exchange{method: "GET", path: "/v1/nothing", key: &none}).refused(codeNotFound, "")))
	for i, left := range []int{5, 1, 0} {
		guess := fmt.Sprintf("tandem_guess%d", i)
		require.Equal(t, left, allowed(t, b.do(exchange{method: "GET", path: "/v1/me", key: &guess}).refused(codeUnauthorized, ""))[1])
	}
	for _, key := range []string{"tandem_guess", fresh, none} {
		got := b.do(exchange{method: "GET", path: "/v1/me", key: &key}).refused(codeRateLimited, "")
		require.Equal(t, "20", got.header.Get("Retry-After"), "one more than it had is owed, and one is to be there")
	}
	got := b.do(exchange{method: "GET", path: "/operator/v1/me", key: &none})
	require.Equal(t, http.StatusTooManyRequests, got.status)
	require.Len(t, refused(), 4)
	b.get("/v1/me").is(200)
	clock.Advance(20 * time.Second)
	b.do(exchange{method: "GET", path: "/v1/me", key: &fresh}).is(200)

	// Once it is revoked, a key that was good is a guess like any other.
	keys, err := b.store.ListAPIKeys(t.Context(), b.customer.ID, "")
	require.NoError(t, err)
	for i := range keys {
		require.NoError(t, b.store.RevokeAPIKey(t.Context(), b.customer.ID, "", keys[i].ID))
	}
	b.get("/v1/me").refused(codeUnauthorized, "")
	b.get("/v1/me").refused(codeRateLimited, "")
}

// TestKeysThatCannotBeCheckedAreNotCounted: while the database is away, a key that may be good costs its address nothing.
func TestKeysThatCannotBeCheckedAreNotCounted(t *testing.T) {
	t.Parallel()
	b, _, refused := throttleBench(t, modelstest.Open(t), Config{Rates: Rates{Address: 5}})
	require.NoError(t, b.store.Close())
	for range 20 {
		require.GreaterOrEqual(t, b.get("/v1/me").status, 500)
	}
	none := ""
	for range 5 {
		b.do(exchange{method: "GET", path: "/v1/me", key: &none}).refused(codeUnauthorized, "")
	}
	b.do(exchange{method: "GET", path: "/v1/me", key: &none}).refused(codeRateLimited, "")
	require.Len(t, refused(), 1)
}

// TestWhatHasNoRate: nodes and health checks are not limited, and nobody is where nothing is configured.
func TestWhatHasNoRate(t *testing.T) {
	t.Parallel()
	health := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })
	b := newBench(t, modelstest.Open(t), Config{Rates: Rates{Key: 1, Address: 1}, Mount: map[string]http.Handler{"/healthz": health}})
	for range 5 {
		for _, c := range []struct {
			method, path string
			status       int
		}{{"GET", "/healthz", http.StatusOK}, {"POST", CDRPath, http.StatusUnauthorized}} {
			got, err := b.server.App().Test(httptest.NewRequest(c.method, c.path, nil), -1)
			require.NoError(t, err)
			require.Equal(t, c.status, got.StatusCode, c.path)
			require.Empty(t, got.Header.Get(headerLimit))
			require.NoError(t, got.Body.Close())
		}
	}
	free := newBench(t, modelstest.Open(t), Config{})
	for range 100 {
		require.Empty(t, free.get("/v1/me").is(200).header.Get(headerLimit))
	}
}

func TestClientAddress(t *testing.T) {
	t.Parallel()
	s := &Server{proxies: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/8")}}
	app := fiber.New()
	for _, c := range []struct {
		peer, forwarded, want string
	}{
		{"192.0.2.1", "", "192.0.2.1"},
		{"192.0.2.1", "203.0.113.9", "192.0.2.1"}, // a client that says so itself
		{"10.0.0.1", "", "10.0.0.1"},
		{"10.0.0.1", "203.0.113.9", "203.0.113.9"},
		{"10.0.0.1", "198.51.100.1, 203.0.113.9", "203.0.113.9"}, // the first is what the client wrote
		{"10.0.0.1", "203.0.113.9, 10.2.3.4", "203.0.113.9"},
		{"10.0.0.1", "203.0.113.9:4711, fd00::1", "203.0.113.9"},
		{"10.0.0.1", "[2001:db8::7]:4711", "2001:db8::7"},
		{"10.0.0.1", "::ffff:203.0.113.9", "203.0.113.9"},
		{"10.0.0.1", "203.0.113.9, nonsense, 10.2.3.4", "10.2.3.4"},
		{"10.0.0.1", "10.9.9.9", "10.9.9.9"},
		{"fd00::5", "2001:db8::7%eth0", "2001:db8::7"},
	} {
		request := &fasthttp.RequestCtx{}
		request.SetRemoteAddr(net.TCPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(c.peer), 4000)))
		if c.forwarded != "" {
			request.Request.Header.Set(fiber.HeaderXForwardedFor, c.forwarded)
		}
		ctx := app.AcquireCtx(request)
		require.Equal(t, c.want, s.clientAddress(ctx).String(), c)
		app.ReleaseCtx(ctx)
	}
	require.Equal(t, "2001:db8:1:2::/64", neighbourhood(netip.MustParseAddr("2001:db8:1:2:3::4")))
	require.Equal(t, "192.0.2.1", neighbourhood(netip.MustParseAddr("192.0.2.1")))
}

// A bucket refills evenly, is never fuller than it was made, and what is owed is paid first, but no more than it holds.
func TestBucket(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBucket(60)
		for range 60 {
			require.True(t, b.take(time.Now(), 1))
		}
		require.False(t, b.take(time.Now(), 1))
		require.Equal(t, allowance{60, 0, time.Minute, time.Second}, b.stands(time.Now(), 1))
		<-time.After(2500 * time.Millisecond)
		require.True(t, b.take(time.Now(), 2))
		require.False(t, b.take(time.Now(), 1))
		for range 100 {
			b.charge(time.Now(), 40)
		}
		require.LessOrEqual(t, b.stands(time.Now(), 1).retry, 101*time.Second)
		<-time.After(time.Hour)
		require.Equal(t, allowance{60, 60, 0, 0}, b.stands(time.Now(), 1))
		require.EqualValues(t, 62+2*40, b.spent.Load())
		b.owe(time.Now(), 150)
		require.Equal(t, 150*time.Second, b.stands(time.Now(), 0).reset)
	})
}

// A ledger keeps what is used and is bounded.
func TestLedgerIsBounded(t *testing.T) {
	t.Parallel()
	l := newLedger[int, *int](100)
	made := 0
	fresh := func() *int { made++; return new(int) }
	often := l.get(-1, fresh)
	for i := range 10_000 {
		l.get(i, fresh)
		if i%50 == 0 {
			require.Same(t, often, l.get(-1, fresh))
		}
		require.LessOrEqual(t, len(l.young)+len(l.old), 200)
	}
	require.Equal(t, 10_001, made)
	_, ok := l.find(3)
	require.False(t, ok)
	_, ok = l.find(9_999)
	require.True(t, ok)
	l.forget(9_999)
	_, ok = l.find(9_999)
	require.False(t, ok)
	seen := 0
	l.each(func(int, *int) { seen++ })
	require.LessOrEqual(t, seen, 200)
	require.Greater(t, seen, 90)
}

// TestSharedRate: controllers tell each other what was spent; together they let through what one would, and what each did not know of yet.
func TestSharedRate(t *testing.T) {
	t.Parallel()
	modelstest.RunPair(t, "", func(t *testing.T, store, second *models.Store) {
		const perMinute = 100
		clock := modelstest.NewClock()
		at := func(s *models.Store) (*throttle, *sharing) {
			th := newThrottle(Rates{Key: perMinute, Address: perMinute}, clock.Now, func(string) {})
			return th, &sharing{throttle: th, store: s, controller: models.NewID("ctl_"), last: map[string]int64{}, seen: map[[2]string]int64{}}
		}
		one, oneShares := at(store)
		two, twoShares := at(second)
		spend := func(th *throttle, n int) (passed int) {
			for range n {
				if th.ofKey("key_1", 0).take(clock.Now(), 1) {
					passed++
				}
			}
			return passed
		}
		exchange := func(all ...*sharing) {
			for _, sh := range all {
				require.NoError(t, sh.exchange(t.Context()))
			}
		}
		require.Equal(t, 60, spend(one, 60))
		exchange(oneShares, twoShares)
		require.Equal(t, 40, two.ofKey("key_1", 0).stands(clock.Now(), 1).remaining, "also of a key that has not been here")
		require.Equal(t, 40, spend(two, 60))
		exchange(twoShares, oneShares, twoShares, oneShares)
		require.Zero(t, spend(one, 10), "nothing is taken off twice, and nothing is left")
		require.Equal(t, 60*time.Second, one.ofKey("key_1", 0).stands(clock.Now(), 1).reset)

		// A report that is overwritten before it was read is in the next one.
		clock.Advance(time.Minute)
		require.Equal(t, 10, spend(one, 10))
		exchange(oneShares)
		require.Equal(t, 20, spend(one, 20))
		exchange(oneShares, twoShares)
		require.Equal(t, 70, two.ofKey("key_1", 0).stands(clock.Now(), 1).remaining)

		// Both at full speed through both: over ten minutes no more than what one would have let through, and a minute's for each before it knew.
		clock.Advance(time.Minute)
		passed := 0
		for range 300 {
			passed += spend(one, 50) + spend(two, 50)
			exchange(oneShares, twoShares)
			clock.Advance(shareEvery)
		}
		require.LessOrEqual(t, passed, 12*perMinute)
		require.GreaterOrEqual(t, passed, 9*perMinute)

		// Guesses at one controller count at the other.
		for range 30 {
			one.ofAddress("192.0.2.1").charge(clock.Now(), wrongKeyCost)
		}
		exchange(oneShares, twoShares)
		require.Positive(t, two.ofAddress("192.0.2.1").stands(clock.Now(), 1).retry)
	})
}

// What could not be reported is reported later.
func TestSharedRateSurvivesAnOutage(t *testing.T) {
	t.Parallel()
	store := modelstest.Open(t)
	th := newThrottle(Rates{Key: 10}, time.Now, func(string) {})
	sh := &sharing{throttle: th, store: store, controller: "one", last: map[string]int64{}, seen: map[[2]string]int64{}}
	require.True(t, th.ofKey("key_1", 0).take(time.Now(), 4))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.Error(t, sh.exchange(ctx))
	require.EqualValues(t, 4, th.ofKey("key_1", 0).spent.Load())
	require.NoError(t, sh.exchange(t.Context()))
	require.Zero(t, th.ofKey("key_1", 0).spent.Load())
	told, err := store.ShareUsage(t.Context(), "two", nil)
	require.NoError(t, err)
	require.Equal(t, []models.Usage{{Bucket: "key:key_1", Controller: "one", Round: 2, Used: 4}}, told)
}

// TestShareLimits: the loop reports by itself, and ends with its context. A key with a rate of its own is shared where there is no rule, too.
func TestShareLimits(t *testing.T) {
	t.Parallel()
	b := newBench(t, modelstest.Open(t), Config{})
	b.customer.Limits.RequestsPerMinute = 50
	require.NoError(t, b.store.SetLimits(t.Context(), b.customer))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		b.server.ShareLimits(ctx)
	}()
	for range 20 {
		b.get("/v1/me").is(200)
	}
	other := newThrottle(Rates{}, time.Now, func(string) {})
	sh := &sharing{throttle: other, store: b.store, controller: "two", last: map[string]int64{}, seen: map[[2]string]int64{}}
	key, err := b.store.AuthenticateKey(t.Context(), b.key)
	require.NoError(t, err)
	mine := other.ofKey(key.ID, key.RequestsPerMinute)
	require.Eventually(t, func() bool {
		require.NoError(t, sh.exchange(t.Context()))
		return mine.stands(time.Now(), 1).remaining <= 35
	}, 20*time.Second, 100*time.Millisecond)
	cancel()
	<-done
}

// BenchmarkThrottle is what a request pays for its limits: with a key that is known, and without one.
func BenchmarkThrottle(b *testing.B) {
	th := newThrottle(Rates{Key: 1_000_000, Address: 1_000_000}, time.Now, func(string) {})
	th.good.get(th.hash("tandem_secret"), func() struct{} { return struct{}{} })
	b.Run("key", func(b *testing.B) {
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				source := th.ofAddress("192.0.2.1")
				if !th.knows("tandem_secret") || source == nil {
					b.Fail()
				}
				bucket := th.ofKey("key_1", 0)
				bucket.take(th.now(), 1)
				th.good.get(th.hash("tandem_secret"), func() struct{} { return struct{}{} })
				bucket.stands(th.now(), 1)
			}
		})
	})
	b.Run("no key", func(b *testing.B) {
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				source := th.ofAddress("192.0.2.1")
				source.stands(th.now(), 1)
				source.charge(th.now(), 1)
				source.stands(th.now(), 1)
			}
		})
	})
}

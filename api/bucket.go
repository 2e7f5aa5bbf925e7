package api

import (
	"math"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
)

// bucket holds the requests that may still be made: as many as in a minute at most, refilled evenly over time.
type bucket struct {
	limiter *rate.Limiter
	spent   atomic.Int64 // here, since it was last shared with other controllers
}

// allowance is how a bucket stands after a request.
type allowance struct {
	limit, remaining int
	// reset is how long it takes until all of it is there again, retry until there is some; both are 0 where that is so.
	reset, retry time.Duration
}

// take takes n requests where they are there, and says whether they were.
func (b *bucket) take(now time.Time, n int) bool {
	if !b.limiter.AllowN(now, n) {
		return false
	}
	b.spent.Add(int64(n))
	return true
}

// charge takes n requests whether they are there or not: what is missing has to be waited for, for no longer than it takes to fill the bucket.
func (b *bucket) charge(now time.Time, n int) {
	if b.limiter.TokensAt(now) < -float64(b.limiter.Burst()) {
		return
	}
	b.owe(now, int64(n))
	b.spent.Add(int64(n))
}

// owe takes what was spent elsewhere.
func (b *bucket) owe(now time.Time, n int64) {
	for n > 0 {
		part := min(n, int64(b.limiter.Burst()))
		if part == 0 {
			return
		}
		b.limiter.ReserveN(now, int(part))
		n -= part
	}
}

// stands says how the bucket stands for who wants n requests.
func (b *bucket) stands(now time.Time, n int) allowance {
	tokens, full := b.limiter.TokensAt(now), float64(b.limiter.Burst())
	wait := func(missing float64) time.Duration {
		if missing <= 0 {
			return 0
		}
		return time.Duration(math.Ceil(missing / float64(b.limiter.Limit()) * float64(time.Second)))
	}
	return allowance{limit: b.limiter.Burst(), remaining: max(int(tokens), 0), reset: wait(full - tokens), retry: wait(float64(n) - tokens)}
}

// bucketsKept is how many entries a generation of a ledger has: with two generations, as many again are kept at most.
const bucketsKept = 50_000

// ledger is a bounded map: when one generation is full, the entries that were not used since the last one was are forgotten. A bucket that is forgotten is
// full again, which it nearly always is when nobody has used it for so long.
type ledger[K comparable, V any] struct {
	mu         sync.Mutex
	kept       int
	young, old map[K]V
}

func newLedger[K comparable, V any](kept int) *ledger[K, V] {
	return &ledger[K, V]{kept: kept, young: map[K]V{}}
}

// get returns the entry of a key, made where there is none.
func (l *ledger[K, V]) get(key K, fresh func() V) V {
	l.mu.Lock()
	defer l.mu.Unlock()
	if v, ok := l.young[key]; ok {
		return v
	}
	v, ok := l.old[key]
	if !ok {
		v = fresh()
	}
	if len(l.young) >= l.kept {
		l.young, l.old = make(map[K]V), l.young
	}
	l.young[key] = v
	return v
}

// find returns the entry of a key where there is one.
func (l *ledger[K, V]) find(key K) (V, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	v, ok := l.young[key]
	if !ok {
		v, ok = l.old[key]
	}
	return v, ok
}

// forget removes the entry of a key.
func (l *ledger[K, V]) forget(key K) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.young, key)
	delete(l.old, key)
}

// each calls fn with every entry, on a copy.
func (l *ledger[K, V]) each(fn func(key K, v V)) {
	l.mu.Lock()
	all := make(map[K]V, len(l.young)+len(l.old))
	for k, v := range l.old {
		all[k] = v
	}
	for k, v := range l.young {
		all[k] = v
	}
	l.mu.Unlock()
	for k, v := range all {
		fn(k, v)
	}
}

package billing

import (
	"math"
	"sort"
	"time"

	"tandem/models"
)

// Running is a leg whose cost grows: since it was answered, or, while it is not, since now, for it may be at any moment.
type Running struct {
	Rate  models.Rate
	Since time.Time
}

// Account is what a call costs as it goes on: what its ended legs have cost, and the legs that run. The first is the call's own, where it runs.
type Account struct {
	SpentMicros int64
	Legs        []Running
}

// Cost is what the call will have cost if it ends at a moment, as its switch may count the seconds at most; math.MaxInt64 where that does not fit.
func (a *Account) Cost(at time.Time) int64 {
	sum := a.SpentMicros
	for i := range a.Legs {
		cost := a.Legs[i].Rate.Cost(true, secondsUp(at.Sub(a.Legs[i].Since)))
		if cost > math.MaxInt64-sum {
			return math.MaxInt64
		}
		sum += cost
	}
	return sum
}

// Until is the last moment at which a hold still covers the call: whole seconds from the beginning of its first leg, at most limit. Where it covers
// not even now, that is the last whole second before now.
func (a *Account) Until(hold int64, now, limit time.Time) time.Time {
	origin := now
	if len(a.Legs) > 0 {
		origin = a.Legs[0].Since
	}
	base := int(max(now.Sub(origin), 0) / time.Second)
	most := int(max(limit.Sub(origin), 0) / time.Second)
	at := func(seconds int) time.Time { return origin.Add(time.Duration(seconds) * time.Second) }
	if most <= base || a.Cost(at(most)) <= hold {
		return at(most)
	}
	ahead := sort.Search(most-base, func(ahead int) bool { return a.Cost(at(base+ahead)) > hold })
	return at(base + max(ahead-1, 0))
}

// secondsUp is a length of time in whole seconds, rounded up.
func secondsUp(d time.Duration) int {
	if d <= 0 {
		return 0
	}
	return int((d + time.Second - 1) / time.Second)
}

package api

import (
	"context"
	"slices"
	"strings"
	"time"

	"tandem/models"
)

const (
	// shareEvery is how often controllers tell each other what was spent. In that time each lets through what its own buckets hold.
	shareEvery = 2 * time.Second
	// shareMost is how many buckets a controller reports at a time, those that most was spent of first.
	shareMost = 2000
	// shareForget is after how many rounds what controllers that are gone have left is deleted.
	shareForget = 300
)

// sharing tells other controllers what was spent here and takes off what was spent there.
type sharing struct {
	throttle   *throttle
	store      *models.Store
	controller string
	round      int64
	last       map[string]int64    // spent here in the last round, by bucket
	seen       map[[2]string]int64 // the last round of a controller that was taken off a bucket
}

// ShareLimits tells the other controllers of the database every two seconds what keys and addresses have spent here, and learns what they have spent there,
// until ctx ends. A limit holds for all controllers together but for what comes within such a time; what was too much is taken off afterwards.
func (s *Server) ShareLimits(ctx context.Context) {
	sh := &sharing{
		throttle: s.throttle, store: s.store, controller: models.NewID("ctl_"), last: map[string]int64{}, seen: map[[2]string]int64{},
	}
	ticker := time.NewTicker(shareEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if err := sh.exchange(ctx); err != nil && ctx.Err() == nil {
			s.logger.Debug("limits not shared", "error", err) // an outage is told of by whoever finds it first
		}
	}
}

// The buckets of keys and of addresses share a table.
const keyBucket, addressBucket = "key:", "address:"

// exchange is one round. What could not be reported is reported with the next one.
func (sh *sharing) exchange(ctx context.Context) error {
	sh.round++
	var spent []models.Usage
	collect := func(prefix string, of *ledger[string, *bucket]) {
		of.each(func(name string, b *bucket) {
			if n := b.spent.Swap(0); n > 0 {
				spent = append(spent, models.Usage{Bucket: prefix + name, Round: sh.round, Used: n, UsedBefore: sh.last[prefix+name]})
			}
		})
	}
	collect(keyBucket, sh.throttle.keys)
	collect(addressBucket, sh.throttle.addresses)
	slices.SortFunc(spent, func(a, b models.Usage) int { return int(b.Used - a.Used) })
	most := min(len(spent), shareMost)
	sh.later(spent[most:])
	spent = spent[:most]
	ctx, cancel := context.WithTimeout(ctx, shareEvery)
	defer cancel()
	others, err := sh.store.ShareUsage(ctx, sh.controller, spent)
	if err != nil {
		sh.later(spent)
		return err
	}
	clear(sh.last)
	for i := range spent {
		sh.last[spent[i].Bucket] = spent[i].Used
	}
	sh.takeOff(others)
	if sh.round%shareForget == 0 {
		return sh.store.ForgetUsage(ctx)
	}
	return nil
}

// takeOff takes what was spent elsewhere off the buckets here. A report has the round before it too, which may have been overwritten unread.
func (sh *sharing) takeOff(others []models.Usage) {
	now := sh.throttle.now()
	fresh := make(map[[2]string]int64, len(others))
	for i := range others {
		u := &others[i]
		place := [2]string{u.Bucket, u.Controller}
		fresh[place] = u.Round
		last, known := sh.seen[place]
		owed := u.Used
		switch {
		case known && last >= u.Round:
			continue
		case !known || last < u.Round-1:
			owed += u.UsedBefore
		}
		if b := sh.bucketOf(u.Bucket); b != nil {
			b.owe(now, owed)
		}
	}
	sh.seen = fresh
}

// bucketOf is the bucket with a name of the table. Whoever has spent elsewhere may come here next: the bucket is made where it is not there, of the rule's
// size until the key says that it has one of its own. nil where there is none, and no rule.
func (sh *sharing) bucketOf(name string) *bucket {
	of, perMinute := sh.throttle.addresses, sh.throttle.rates.Address
	name, isKey := strings.CutPrefix(name, keyBucket)
	if isKey {
		of, perMinute = sh.throttle.keys, sh.throttle.rates.Key
	}
	name = strings.TrimPrefix(name, addressBucket)
	if perMinute == 0 {
		b, _ := of.find(name)
		return b
	}
	return of.get(name, func() *bucket { return newBucket(perMinute) })
}

// later has spent requests reported with the next round.
func (sh *sharing) later(spent []models.Usage) {
	for i := range spent {
		if b := sh.bucketOf(spent[i].Bucket); b != nil {
			b.spent.Add(spent[i].Used)
		}
	}
}

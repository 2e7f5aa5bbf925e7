package api

import (
	"cmp"
	"hash/maphash"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"
	"golang.org/x/time/rate"
)

// Rates bound the requests to the API; 0 is no bound. Each is per minute: a bucket holds as many as that, and is refilled evenly.
type Rates struct {
	// Key is how many requests an API key, or an operator's token, may make.
	Key int
	// Address is how many requests without a valid key may come from an address (of IPv6: a /64). One with a wrong key counts as wrongKeyCost.
	Address int
}

// wrongKeyCost is what a request with a wrong key counts for among those of its address, so that guessing is slow.
const wrongKeyCost = 4

// Kinds of what is refused, for Config.OnRefused.
const (
	RefusedKeyRate     = "key_rate"
	RefusedAddressRate = "address_rate"
)

// The fields of draft-ietf-httpapi-ratelimit-headers up to its sixth version, which clients know. Later versions have other names and another syntax, and
// are no standard yet.
const (
	headerLimit     = "RateLimit-Limit"
	headerRemaining = "RateLimit-Remaining"
	headerReset     = "RateLimit-Reset"
)

// throttle holds the buckets of keys and addresses. It asks no database: other controllers are told later, see share.
type throttle struct {
	rates   Rates
	now     func() time.Time
	refused func(kind string)

	keys, addresses *ledger[string, *bucket]
	// good are hashes of secrets that were valid: whoever has one gets on while somebody else at the same address guesses.
	good *ledger[uint64, struct{}]
	seed maphash.Seed
}

func newThrottle(rates Rates, now func() time.Time, refused func(kind string)) *throttle {
	return &throttle{
		rates: rates, now: now, refused: refused, keys: newLedger[string, *bucket](bucketsKept), addresses: newLedger[string, *bucket](bucketsKept),
		good: newLedger[uint64, struct{}](bucketsKept), seed: maphash.MakeSeed(),
	}
}

func newBucket(perMinute int) *bucket {
	return &bucket{limiter: rate.NewLimiter(rate.Limit(float64(perMinute)/time.Minute.Seconds()), perMinute)}
}

// ofKey is the bucket of a key or token; own is what its customer was given, 0 for the rule. nil has no bound.
func (t *throttle) ofKey(id string, own int) *bucket {
	perMinute := cmp.Or(own, t.rates.Key)
	if perMinute == 0 {
		return nil
	}
	b := t.keys.get(id, func() *bucket { return newBucket(perMinute) })
	if b.limiter.Burst() != perMinute { // an operator has changed it
		now := t.now()
		b.limiter.SetBurstAt(now, perMinute)
		b.limiter.SetLimitAt(now, rate.Limit(float64(perMinute)/time.Minute.Seconds()))
	}
	return b
}

func (t *throttle) ofAddress(source string) *bucket {
	if t.rates.Address == 0 {
		return nil
	}
	return t.addresses.get(source, func() *bucket { return newBucket(t.rates.Address) })
}

func (t *throttle) hash(secret string) uint64 { return maphash.String(t.seed, secret) }

func (t *throttle) knows(secret string) bool {
	if secret == "" {
		return false
	}
	_, ok := t.good.find(t.hash(secret))
	return ok
}

// limited says whether a path is one that has limits: the API of customers and that of operators.
func limited(path string) bool {
	return strings.HasPrefix(path, "/v1/") || strings.HasPrefix(path, "/operator/v1/")
}

// tooMany refuses a request.
func (t *throttle) tooMany(kind, message string, stands allowance) *Error {
	t.refused(kind)
	return &Error{Code: codeRateLimited, Message: message, RetryAfter: wholeSeconds(max(stands.retry, time.Second))}
}

// throttled runs the rest of the chain for a request that its address may still make, and tells how its key, or without one its address, stands.
func (s *Server) throttled(c *fiber.Ctx) error {
	t := s.throttle
	if !limited(c.Path()) {
		return s.admitted(c)
	}
	source := t.ofAddress(neighbourhood(s.clientAddress(c)))
	secret := bearer(c)
	known := t.knows(secret)
	if source != nil && !known {
		if stands := source.stands(t.now(), 1); stands.retry > 0 {
			writeAllowance(c, stands)
			return t.tooMany(RefusedAddressRate, "too many requests without a valid key came from your address", stands)
		}
	}
	err := s.admitted(c)
	if b, ok := c.Locals(localBucket).(*bucket); ok {
		t.good.get(t.hash(secret), func() struct{} { return struct{}{} })
		if b != nil {
			writeAllowance(c, b.stands(t.now(), 1))
		}
		return err
	}
	cost := 1
	switch status := statusOf(err); {
	case status == http.StatusUnauthorized:
		t.good.forget(t.hash(secret))
		known = false
		if secret != "" {
			cost = wrongKeyCost
		}
	case status >= http.StatusInternalServerError && secret != "":
		cost = 0 // the key may be good: it is we who cannot tell now
	}
	if source != nil {
		if !known && cost > 0 {
			source.charge(t.now(), cost)
		}
		writeAllowance(c, source.stands(t.now(), 1))
	}
	return err
}

// statusOf is the status that a request is answered with, 0 where that is no error.
func statusOf(err error) int {
	if err == nil {
		return 0
	}
	return asError(err).Status()
}

// spend takes a request from the bucket of whoever makes it, who has been found to be who they say.
func (s *Server) spend(c *fiber.Ctx, id string, own int) error {
	b := s.throttle.ofKey(id, own)
	c.Locals(localBucket, b)
	if b == nil || b.take(s.throttle.now(), 1) {
		return nil
	}
	return s.throttle.tooMany(RefusedKeyRate, "too many requests were made with your key", b.stands(s.throttle.now(), 1))
}

func writeAllowance(c *fiber.Ctx, a allowance) {
	c.Set(headerLimit, strconv.Itoa(a.limit))
	c.Set(headerRemaining, strconv.Itoa(a.remaining))
	c.Set(headerReset, strconv.Itoa(wholeSeconds(a.reset)))
}

// wholeSeconds rounds up: whoever waits that long has waited long enough.
func wholeSeconds(d time.Duration) int { return int((d + time.Second - 1) / time.Second) }

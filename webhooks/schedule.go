package webhooks

import (
	"net/http"
	"strconv"
	"time"
)

const (
	// jitter is by how much of itself a delay may be longer or shorter.
	jitter = 0.2
	// maxRetryAfter bounds how long an endpoint can put us off with Retry-After.
	maxRetryAfter = 24 * time.Hour
	// slowDown is the shortest delay after a 429 or a timeout: both say that the endpoint is overloaded.
	slowDown = time.Minute
	// disableAfter is how long an endpoint may do nothing but fail before it is disabled.
	disableAfter = 5 * 24 * time.Hour
)

// DefaultSchedule returns the delays between attempts; with the first attempt they make twelve attempts in about 75
// hours.
func DefaultSchedule() []time.Duration {
	return []time.Duration{
		5 * time.Second, 15 * time.Second, time.Minute, 5 * time.Minute, 30 * time.Minute,
		2 * time.Hour, 5 * time.Hour, 10 * time.Hour, 14 * time.Hour, 20 * time.Hour, 24 * time.Hour,
	}
}

// delay returns how long to wait after an attempt failed, and false when the schedule is at its end. random is in [0,1).
func (w *Worker) delay(number int, a *exchange, random float64) (time.Duration, bool) {
	if number > len(w.cfg.Schedule) {
		return 0, false
	}
	scheduled := w.cfg.Schedule[number-1]
	d := scheduled + time.Duration(float64(scheduled)*jitter*(2*random-1))
	if a.timeout || a.status == http.StatusTooManyRequests {
		d = max(d, slowDown)
	}
	return max(d, a.retryAfter), true
}

// retryAfter reads the header of RFC 9110 §10.2.3: seconds or a date. Nonsense and the past are zero; more than a day is
// a day.
func retryAfter(header string, now time.Time) time.Duration {
	var d time.Duration
	if seconds, err := strconv.ParseInt(header, 10, 64); err == nil {
		d = time.Duration(min(seconds, int64(maxRetryAfter/time.Second))) * time.Second
	} else if date, err := http.ParseTime(header); err == nil {
		d = date.Sub(now)
	}
	return min(max(d, 0), maxRetryAfter)
}

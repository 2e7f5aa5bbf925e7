package dialplan

import (
	"log/slog"
	"strings"
	"sync"

	"golang.org/x/time/rate"
)

// Refusal is why a call was refused in the dialplan.
type Refusal string

// The refusals.
const (
	RefusedUninvited Refusal = "uninvited"        // from an address that belongs to nobody we know
	RefusedUnknown   Refusal = "unknown_number"   // to a number that is not the caller's to call, or nobody's
	RefusedSuspended Refusal = "suspended_number" // to a number that is suspended
	RefusedUnsteered Refusal = "not_taking_calls" // while no controller took calls
)

var refusals = map[string]Refusal{
	refuseUninvited: RefusedUninvited,
	refuseUnknown:   RefusedUnknown,
	refuseSuspended: RefusedSuspended,
	refuseUnsteered: RefusedUnsteered,
}

// Scanners call a thousand times; the log tells of a few and how many more there were.
const (
	loggedPerSecond = 5
	loggedAtOnce    = 20
	longestLogged   = 64 // bytes of a number that a stranger chose
)

// ledger counts refused calls and logs them within limits.
type ledger struct {
	logger  *slog.Logger
	limiter *rate.Limiter

	mu      sync.Mutex
	counts  map[Refusal]uint64
	skipped uint64
}

func newLedger(logger *slog.Logger) *ledger {
	return &ledger{logger: logger, limiter: rate.NewLimiter(loggedPerSecond, loggedAtOnce), counts: map[Refusal]uint64{}}
}

// note looks at a call's end. A refusal is an inbound channel whose last application was one of our answers; nothing a caller
// sends gets there.
func (l *ledger) note(node string, e event) {
	if e.Get("Caller-Direction") != "inbound" || e.Get("variable_current_application") != "respond" {
		return
	}
	reason, found := refusals[e.Get("variable_current_application_data")]
	if !found {
		return
	}
	l.mu.Lock()
	l.counts[reason]++
	allowed := l.limiter.Allow()
	skipped := l.skipped
	if allowed {
		l.skipped = 0
	} else {
		l.skipped++
	}
	l.mu.Unlock()
	if !allowed {
		return
	}
	l.logger.Warn("call refused", "node_id", node, "reason", string(reason),
		"source_ip", shortened(e.Get("Caller-Network-Addr")), "number", shortened(e.Get("Caller-Destination-Number")),
		"source", shortened(e.Get("variable_acl_token")), "not_logged_before", skipped)
}

func (l *ledger) snapshot() map[Refusal]uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	counts := map[Refusal]uint64{}
	for _, reason := range refusals {
		counts[reason] = l.counts[reason]
	}
	return counts
}

func shortened(s string) string {
	if len(s) > longestLogged {
		s = s[:longestLogged]
	}
	return strings.ToValidUTF8(s, "?")
}

package dialplan

import (
	"log/slog"
	"strings"
	"sync"

	"golang.org/x/time/rate"

	"tandem/models"
)

// Refusal is why a call was refused in the dialplan.
type Refusal string

// The refusals.
const (
	RefusedUninvited Refusal = "uninvited"        // from an address that belongs to nobody we know
	RefusedUnknown   Refusal = "unknown_number"   // to a number that is not the caller's to call, or nobody's
	RefusedSuspended Refusal = "suspended_number" // to a number that is suspended
	RefusedUnsteered Refusal = "not_taking_calls" // while no controller took calls
	// RefusedBlocked: from a blocked address, by the SIP profile, before any dialplan. Nothing but the end of its channel tells of such a call, and not
	// where it came from.
	RefusedBlocked Refusal = "blocked"
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

// refusedBlocked tells whether an end is that of a call from a blocked address. Its channel has no caller profile yet: that is made after the access
// lists were asked (sofia.c, sofia_handle_sip_i_invite), and with it come the headers that begin with Caller-. No call that gets further lacks them.
func refusedBlocked(e event) bool {
	return e.Get("Call-Direction") == "inbound" && e.Get("Caller-Direction") == "" && e.Get("Hangup-Cause") == "CALL_REJECTED" &&
		e.Get("variable_current_application") == ""
}

// note looks at a call's end. A refusal is an inbound channel whose last application was one of our answers; nothing a caller
// sends gets there. It returns why, empty where it is no refusal.
func (l *ledger) note(node string, e event) Refusal {
	if refusedBlocked(e) {
		l.mu.Lock()
		l.counts[RefusedBlocked]++
		l.mu.Unlock()
		return RefusedBlocked
	}
	if e.Get("Caller-Direction") != "inbound" || e.Get("variable_current_application") != "respond" {
		return ""
	}
	reason, found := refusals[e.Get("variable_current_application_data")]
	if !found {
		return ""
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
		return reason
	}
	l.logger.Warn("call refused", "node_id", node, "reason", string(reason),
		"source_ip", shortened(e.Get("Caller-Network-Addr")), "number", models.MaskedNumber(shortened(e.Get("Caller-Destination-Number"))),
		"source", shortened(e.Get("variable_acl_token")), "not_logged_before", skipped)
	return reason
}

func (l *ledger) snapshot() map[Refusal]uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	counts := map[Refusal]uint64{RefusedBlocked: l.counts[RefusedBlocked]}
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

package models

import (
	"crypto/rand"
	"strings"
	"sync"
	"time"

	"github.com/oklog/ulid/v2"
)

// Prefixes of identifiers; the first five are the contract's (spec §1, §6).
const (
	PrefixCustomer    = "cust_"
	PrefixApplication = "app_"
	PrefixDID         = "did_"
	PrefixTrunk       = "trunk_"
	PrefixCall        = "call_"
	PrefixEvent       = "evt_"
	PrefixKey         = "key_"
	PrefixNode        = "node_"
	PrefixLedger      = "led_"
	PrefixAttempt     = "att_"
	PrefixRecording   = "rec_"
	PrefixLeg         = "leg_"
	PrefixQueueEntry  = "qe_"
	PrefixConference  = "conf_"
	PrefixMember      = "cm_"
	PrefixCommand     = "cmd_"
	PrefixChange      = "tch_"
	PrefixDrift       = "drift_"
	PrefixOrder       = "order_"
	PrefixImport      = "imp_"
	PrefixOperator    = "oper_"
	PrefixAudit       = "aud_"
	PrefixRequest     = "ask_"
	PrefixBlock       = "block_"
	PrefixException   = "never_"
	PrefixDeck        = "deck_"
	PrefixRate        = "rate_"
)

var ids = struct {
	sync.Mutex
	entropy *ulid.MonotonicEntropy
}{entropy: ulid.Monotonic(rand.Reader, 0)}

// NewID returns the prefix and a lower-case ULID: unique, and sorted by time of making, also within a millisecond of one
// process.
func NewID(prefix string) string {
	ids.Lock()
	defer ids.Unlock()
	return prefix + strings.ToLower(ulid.MustNew(ulid.Timestamp(time.Now()), ids.entropy).String())
}

package calls

import (
	"cmp"
	"strconv"
	"strings"
	"time"
)

// Who ended a call, as `hangup_source` tells.
const (
	SourceCaller   = "caller"
	SourceCallee   = "callee"
	SourceAPI      = "api"
	SourceActions  = "actions"
	SourcePlatform = "platform"
	SourceCarrier  = "carrier"
)

// Why a call ended, as `reason` tells. The list is closed: it is used in webhooks and as a metric label.
const (
	ReasonCompleted           = "completed"
	ReasonCallerHangup        = "caller_hangup"
	ReasonCalleeHangup        = "callee_hangup"
	ReasonAPIHangup           = "api_hangup"
	ReasonTimeLimit           = "time_limit"
	ReasonMediaTimeout        = "media_timeout"
	ReasonBusy                = "busy"
	ReasonNoAnswer            = "no_answer"
	ReasonUnavailable         = "unavailable"
	ReasonDeclined            = "declined"
	ReasonNotFound            = "not_found"
	ReasonCanceled            = "canceled"
	ReasonTrunkAuthFailed     = "trunk_auth_failed"
	ReasonCarrierRejected     = "carrier_rejected"
	ReasonInvalidNumber       = "invalid_number"
	ReasonCarrierError        = "carrier_error"
	ReasonTrunkUnavailable    = "trunk_unavailable"
	ReasonCodecMismatch       = "codec_mismatch"
	ReasonNodeLost            = "node_lost"
	ReasonAnswerURLFailed     = "answer_url_failed"
	ReasonInsufficientBalance = "insufficient_balance"
	ReasonTrunkLimit          = "trunk_limit"
	ReasonCustomerLimit       = "customer_limit"
	ReasonSuspended           = "account_suspended"
	ReasonApplicationLimit    = "application_limit"
	ReasonSpendLimit          = "spend_limit"
	ReasonQueueTimeout        = "queue_timeout"
	ReasonDestination         = "destination_not_allowed"
	ReasonInternalError       = "internal_error"
	ReasonShutdown            = "shutdown"
)

// FreeSWITCH's names of the causes that this package gives (switch_types.h, switch_call_cause_t).
const (
	causeNormal        = "NORMAL_CLEARING"
	causeBusy          = "USER_BUSY"
	causeNoAnswer      = "NO_ANSWER"
	causeRejected      = "CALL_REJECTED"
	causeUnallocated   = "UNALLOCATED_NUMBER"
	causeCancel        = "ORIGINATOR_CANCEL"
	causeTempFailure   = "NORMAL_TEMPORARY_FAILURE"
	causeTimeLimit     = "ALLOTTED_TIMEOUT"
	causeMediaTimeout  = "MEDIA_TIMEOUT"
	causeManager       = "MANAGER_REQUEST"
	causeNoGateway     = "INVALID_GATEWAY"
	causeGatewayDown   = "GATEWAY_DOWN"
	causeNoProfile     = "INVALID_PROFILE"
	causeOutOfOrder    = "DESTINATION_OUT_OF_ORDER"
	causeProgressLimit = "PROGRESS_TIMEOUT"
	causeLoseRace      = "LOSE_RACE"
	causePickedOff     = "PICKED_OFF"
	causeUnspecified   = "NORMAL_UNSPECIFIED"
)

// verdict is what one cause means for a call that nobody answered.
type verdict struct {
	status string
	reason string
	source string
}

// verdicts maps FreeSWITCH's hangup causes of an outbound leg that was not answered. What is missing is a carrier
// error: the leg failed for a reason that is the carrier's to explain.
var verdicts = map[string]verdict{
	"USER_BUSY":       {StatusBusy, ReasonBusy, SourceCallee},
	"BUSY_EVERYWHERE": {StatusBusy, ReasonBusy, SourceCallee},

	"NO_ANSWER":         {StatusNoAnswer, ReasonNoAnswer, SourceCallee},
	"ALLOTTED_TIMEOUT":  {StatusNoAnswer, ReasonNoAnswer, SourcePlatform},
	"PROGRESS_TIMEOUT":  {StatusNoAnswer, ReasonNoAnswer, SourcePlatform},
	"NO_USER_RESPONSE":  {StatusNoAnswer, ReasonUnavailable, SourceCallee},
	"SUBSCRIBER_ABSENT": {StatusNoAnswer, ReasonUnavailable, SourceCallee},

	"CALL_REJECTED": {StatusRejected, ReasonDeclined, SourceCallee},
	"DECLINE":       {StatusRejected, ReasonDeclined, SourceCallee},
	"REJECT_ALL":    {StatusRejected, ReasonDeclined, SourceCallee},
	"UNWANTED":      {StatusRejected, ReasonDeclined, SourceCallee},

	"UNALLOCATED_NUMBER":      {StatusFailed, ReasonInvalidNumber, SourceCarrier},
	"NO_ROUTE_TRANSIT_NET":    {StatusFailed, ReasonInvalidNumber, SourceCarrier},
	"NO_ROUTE_DESTINATION":    {StatusFailed, ReasonInvalidNumber, SourceCarrier},
	"NUMBER_CHANGED":          {StatusFailed, ReasonInvalidNumber, SourceCarrier},
	"INVALID_NUMBER_FORMAT":   {StatusFailed, ReasonInvalidNumber, SourceCarrier},
	"DOES_NOT_EXIST_ANYWHERE": {StatusFailed, ReasonInvalidNumber, SourceCarrier},

	"GATEWAY_DOWN":    {StatusFailed, ReasonTrunkUnavailable, SourceCarrier},
	"INVALID_GATEWAY": {StatusFailed, ReasonTrunkUnavailable, SourcePlatform},
	"INVALID_PROFILE": {StatusFailed, ReasonTrunkUnavailable, SourcePlatform},

	"INCOMPATIBLE_DESTINATION": {StatusFailed, ReasonCodecMismatch, SourceCarrier},
	"NOT_ACCEPTABLE":           {StatusFailed, ReasonCodecMismatch, SourceCarrier},

	"OUTGOING_CALL_BARRED": {StatusFailed, ReasonCarrierRejected, SourceCarrier},
	"INCOMING_CALL_BARRED": {StatusFailed, ReasonCarrierRejected, SourceCarrier},

	"ORIGINATOR_CANCEL": {StatusCanceled, ReasonCanceled, SourceCaller},
	"MANAGER_REQUEST":   {StatusCanceled, ReasonCanceled, SourcePlatform},
}

// rejections tells apart what FreeSWITCH folds into CALL_REJECTED (sofia_glue.c, sofia_glue_sip_cause_to_freeswitch),
// by the SIP status of the refusal.
var rejections = map[int]verdict{
	401: {StatusFailed, ReasonTrunkAuthFailed, SourceCarrier},
	407: {StatusFailed, ReasonTrunkAuthFailed, SourceCarrier},
	402: {StatusFailed, ReasonCarrierRejected, SourceCarrier},
	403: {StatusFailed, ReasonCarrierRejected, SourceCarrier},
}

// unansweredVerdict says what a cause and a SIP status mean for an outbound leg that was not answered.
func unansweredVerdict(cause string, sip int) verdict {
	if v, ok := rejections[sip]; ok && (cause == causeRejected || verdicts[cause].status == "") {
		return v
	}
	if v, ok := verdicts[cause]; ok {
		return v
	}
	return verdict{StatusFailed, ReasonCarrierError, SourceCarrier}
}

// q850 are the ITU-T Q.850 values of the causes for which an ending may have to be reported without the switch's own
// hangup event, which carries the value (switch_channel.c, CAUSE_CHART).
var q850 = map[string]int{
	"UNALLOCATED_NUMBER": 1, "NO_ROUTE_TRANSIT_NET": 2, "NO_ROUTE_DESTINATION": 3, "NORMAL_CLEARING": 16, "USER_BUSY": 17,
	"NO_USER_RESPONSE": 18, "NO_ANSWER": 19, "SUBSCRIBER_ABSENT": 20, "CALL_REJECTED": 21, "NUMBER_CHANGED": 22,
	"DESTINATION_OUT_OF_ORDER": 27, "INVALID_NUMBER_FORMAT": 28, "NORMAL_UNSPECIFIED": 31, "NORMAL_CIRCUIT_CONGESTION": 34,
	"NETWORK_OUT_OF_ORDER": 38, "NORMAL_TEMPORARY_FAILURE": 41, "SWITCH_CONGESTION": 42, "REQUESTED_CHAN_UNAVAIL": 44,
	"OUTGOING_CALL_BARRED": 52, "INCOMING_CALL_BARRED": 54, "SERVICE_UNAVAILABLE": 63, "INCOMPATIBLE_DESTINATION": 88,
	"RECOVERY_ON_TIMER_EXPIRE": 102, "INTERWORKING": 127, "ORIGINATOR_CANCEL": 16,
}

// refusals are the causes that make FreeSWITCH answer an unanswered INVITE with a given status (mod_sofia.c,
// hangup_cause_to_sip), for the statuses we send most. Others go through the respond application.
var refusals = map[int]string{
	404: causeUnallocated,
	480: causeNoAnswer,
	486: causeBusy,
	503: causeTempFailure,
	603: causeRejected,
}

// hangupFacts is what the switch's hangup event, or the result of an originate, says about the end of a leg.
type hangupFacts struct {
	cause       string
	q850        int
	sip         int    // status that ended the dialog, 0 when the switch names none
	disposition string // sip_hangup_disposition: who sent BYE, CANCEL or the refusal
	billed      int    // billable seconds
	recordedMS  int    // length of the last recording on the channel
	answeredAt  time.Time
	endedAt     time.Time // where that was some time before it was heard of
}

// attributes is the part of an *esl.Event that facts are read from.
type attributes interface {
	Get(header string) string
	Variable(name string) string
}

// readFacts reads a CHANNEL_HANGUP_COMPLETE.
func readFacts(ev attributes) hangupFacts {
	f := hangupFacts{cause: ev.Get("Hangup-Cause"), disposition: ev.Variable("sip_hangup_disposition")}
	if c := ev.Variable("hangup_cause"); c != "" {
		f.cause = c
	}
	f.q850 = number(ev.Variable("hangup_cause_q850"))
	f.billed = max(0, number(ev.Variable("billsec")))
	f.recordedMS = number(ev.Variable("record_ms"))
	f.sip = sipStatus(ev)
	f.answeredAt = microTime(ev.Get("Caller-Channel-Answered-Time"))
	return f
}

// sipStatus returns the SIP status that ended a leg. A leg that bridged keeps the status of the leg it called in
// sip_invite_failure_status, so that one counts only where this leg's own INVITE was refused or canceled.
func sipStatus(ev attributes) int {
	if code := number(ev.Variable("sip_term_status")); code > 0 {
		return code
	}
	switch ev.Variable("sip_hangup_disposition") {
	case "recv_refuse", "recv_cancel", "send_cancel":
		if code := number(ev.Variable("sip_invite_failure_status")); code > 0 {
			return code
		}
		return protocolStatus(ev.Variable("proto_specific_hangup_cause"))
	default:
		return 0
	}
}

// protocolStatus reads FreeSWITCH's "sip:486".
func protocolStatus(s string) int {
	return number(strings.TrimPrefix(s, "sip:"))
}

// number reads a decimal number; anything else is 0.
func number(s string) int {
	n, err := strconv.Atoi(s)
	if err != nil {
		return 0
	}
	return n
}

// intent is a wish of ours that a call ends: why, for whom, and with which cause on the switch.
type intent struct {
	reason  string
	early   string // the reason of a call that was not answered, where it is another
	source  string
	status  string // the state of a call that was not answered; "" leaves it to the cause
	cause   string
	sip     int  // the status that refuses an unanswered inbound leg, 0 for the cause's own
	respond bool // the status cannot be had by a cause, so the respond application sends it
}

// ending is the last word on a call.
type ending struct {
	status string
	reason string
	source string
	cause  string
	q850   int
	sip    int
	billed int
	// reached says that the other side has answered the call or its request, whatever it said.
	reached bool
}

// conclude decides what an ended leg is told as. asked is our own wish to end it, nil when there was none: it is
// believed unless the switch says that the other side was faster.
func conclude(direction string, answered bool, f hangupFacts, asked *intent) ending {
	e := ending{cause: f.cause, q850: f.q850, sip: f.sip, billed: f.billed, reached: answered || direction == DirectionInbound || f.sip > 0}
	if e.q850 == 0 {
		e.q850 = q850[f.cause]
	}
	remote := f.disposition == "recv_bye" || f.disposition == "recv_cancel" || f.disposition == "recv_refuse"
	if remote {
		asked = nil
	}
	if answered {
		e.status = StatusCompleted
		e.sip = 200
		e.reason, e.source = answeredEnd(direction, f, asked)
		return e
	}
	e.billed = 0
	switch {
	case asked != nil:
		e.status, e.reason, e.source = asked.status, cmp.Or(asked.early, asked.reason), asked.source
		if e.status == "" {
			e.status = unansweredVerdict(f.cause, f.sip).status
		}
		if e.sip == 0 {
			e.sip = asked.sip
		}
	case direction == DirectionInbound && (f.cause == causeCancel || f.disposition == "recv_cancel"):
		e.status, e.reason, e.source = StatusCanceled, ReasonCallerHangup, SourceCaller
	case direction == DirectionInbound && f.cause == causeTempFailure:
		// Nobody but us refuses with it: the database did not say that it had the call, or the controller has died since.
		e.status, e.reason, e.source = StatusFailed, ReasonInternalError, SourcePlatform
	case direction == DirectionInbound:
		v := unansweredVerdict(f.cause, 0)
		e.status, e.reason, e.source = v.status, v.reason, SourcePlatform
	case f.cause == causeNoAnswer && f.disposition == "send_cancel":
		e.status, e.reason, e.source = StatusNoAnswer, ReasonNoAnswer, SourcePlatform
	default:
		v := unansweredVerdict(f.cause, f.sip)
		e.status, e.reason, e.source = v.status, v.reason, v.source
	}
	return e
}

// answeredEnd names why and by whom a call that was answered ended.
func answeredEnd(direction string, f hangupFacts, asked *intent) (reason, source string) {
	switch {
	case f.cause == causeTimeLimit:
		return ReasonTimeLimit, SourcePlatform
	case f.cause == causeMediaTimeout:
		return ReasonMediaTimeout, SourcePlatform
	case asked != nil:
		return asked.reason, asked.source
	case strings.HasPrefix(f.disposition, "send_"):
		// The switch sent the BYE and nobody here asked for it: an operator, or the switch itself.
		return ReasonCompleted, SourcePlatform
	case direction == DirectionInbound:
		return ReasonCallerHangup, SourceCaller
	default:
		return ReasonCalleeHangup, SourceCallee
	}
}

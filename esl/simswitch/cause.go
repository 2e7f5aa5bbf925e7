package simswitch

import (
	"strconv"
	"strings"
)

// cause is a hang-up cause: a Q.850 number, or one of FreeSWITCH's own above 127 (switch_types.h, switch_call_cause_t).
type cause int

const (
	causeNone               cause = 0
	causeUnallocated        cause = 1
	causeNoRoute            cause = 3
	causeNormalClearing     cause = 16
	causeNoUserResponse     cause = 18
	causeNoAnswer           cause = 19
	causeOutOfOrder         cause = 27
	causeExchangeRouting    cause = 25
	causeNormalUnspecified  cause = 31
	causeChanNotImplemented cause = 66
	causeSuccess            cause = 142
	causeOriginatorCancel   cause = 487
	causeSystemShutdown     cause = 701
	causeLoseRace           cause = 702
	causeManagerRequest     cause = 703
	causeBlindTransfer      cause = 800
	causeAllottedTimeout    cause = 802
	causeMediaTimeout       cause = 804
	causeInvalidGateway     cause = 808
	causeGatewayDown        cause = 809
	causeInvalidURL         cause = 810
	causeInvalidProfile     cause = 811
)

// causeNames is CAUSE_CHART of switch_channel.c.
var causeNames = map[cause]string{
	0: "NONE", 1: "UNALLOCATED_NUMBER", 2: "NO_ROUTE_TRANSIT_NET", 3: "NO_ROUTE_DESTINATION", 6: "CHANNEL_UNACCEPTABLE",
	7: "CALL_AWARDED_DELIVERED", 16: "NORMAL_CLEARING", 17: "USER_BUSY", 18: "NO_USER_RESPONSE", 19: "NO_ANSWER",
	20: "SUBSCRIBER_ABSENT", 21: "CALL_REJECTED", 22: "NUMBER_CHANGED", 23: "REDIRECTION_TO_NEW_DESTINATION",
	25: "EXCHANGE_ROUTING_ERROR", 27: "DESTINATION_OUT_OF_ORDER", 28: "INVALID_NUMBER_FORMAT", 29: "FACILITY_REJECTED",
	30: "RESPONSE_TO_STATUS_ENQUIRY", 31: "NORMAL_UNSPECIFIED", 34: "NORMAL_CIRCUIT_CONGESTION", 38: "NETWORK_OUT_OF_ORDER",
	41: "NORMAL_TEMPORARY_FAILURE", 42: "SWITCH_CONGESTION", 43: "ACCESS_INFO_DISCARDED", 44: "REQUESTED_CHAN_UNAVAIL",
	45: "PRE_EMPTED", 50: "FACILITY_NOT_SUBSCRIBED", 52: "OUTGOING_CALL_BARRED", 54: "INCOMING_CALL_BARRED",
	57: "BEARERCAPABILITY_NOTAUTH", 58: "BEARERCAPABILITY_NOTAVAIL", 63: "SERVICE_UNAVAILABLE", 65: "BEARERCAPABILITY_NOTIMPL",
	66: "CHAN_NOT_IMPLEMENTED", 69: "FACILITY_NOT_IMPLEMENTED", 79: "SERVICE_NOT_IMPLEMENTED", 81: "INVALID_CALL_REFERENCE",
	88: "INCOMPATIBLE_DESTINATION", 95: "INVALID_MSG_UNSPECIFIED", 96: "MANDATORY_IE_MISSING", 97: "MESSAGE_TYPE_NONEXIST",
	98: "WRONG_MESSAGE", 99: "IE_NONEXIST", 100: "INVALID_IE_CONTENTS", 101: "WRONG_CALL_STATE", 102: "RECOVERY_ON_TIMER_EXPIRE",
	103: "MANDATORY_IE_LENGTH_ERROR", 111: "PROTOCOL_ERROR", 127: "INTERWORKING", 142: "SUCCESS", 487: "ORIGINATOR_CANCEL",
	700: "CRASH", 701: "SYSTEM_SHUTDOWN", 702: "LOSE_RACE", 703: "MANAGER_REQUEST", 800: "BLIND_TRANSFER",
	801: "ATTENDED_TRANSFER", 802: "ALLOTTED_TIMEOUT", 803: "USER_CHALLENGE", 804: "MEDIA_TIMEOUT", 805: "PICKED_OFF",
	806: "USER_NOT_REGISTERED", 807: "PROGRESS_TIMEOUT", 808: "INVALID_GATEWAY", 809: "GATEWAY_DOWN", 810: "INVALID_URL",
	811: "INVALID_PROFILE", 812: "NO_PICKUP", 813: "SRTP_READ_ERROR", 814: "BOWOUT", 815: "BUSY_EVERYWHERE", 816: "DECLINE",
	817: "DOES_NOT_EXIST_ANYWHERE", 818: "NOT_ACCEPTABLE", 819: "UNWANTED", 820: "NO_IDENTITY", 821: "BAD_IDENTITY_INFO",
	822: "UNSUPPORTED_CERTIFICATE", 823: "INVALID_IDENTITY", 824: "STALE_DATE", 825: "REJECT_ALL",
}

var causesByName = func() map[string]cause {
	byName := make(map[string]cause, len(causeNames))
	for c, name := range causeNames {
		byName[name] = c
	}
	return byName
}()

// String is switch_channel_cause2str.
func (c cause) String() string {
	if name, ok := causeNames[c]; ok {
		return name
	}
	return "UNKNOWN"
}

// q850 is switch_channel_get_cause_q850: FreeSWITCH's own causes count as a normal clearing.
func (c cause) q850() int {
	if c <= 127 {
		return int(c)
	}
	return int(causeNormalClearing)
}

// parseCause is switch_channel_str2cause: a name in any case or a number, and NORMAL_CLEARING for what it does not know.
func parseCause(s string) cause {
	if s == "" {
		return causeNormalClearing
	}
	if s[0] >= '0' && s[0] <= '9' {
		return cause(leadingInt(s))
	}
	if c, ok := causesByName[strings.ToUpper(s)]; ok {
		return c
	}
	return causeNormalClearing
}

// causeOfSIP is sofia_glue_sip_cause_to_freeswitch (mod_sofia/sofia_glue.c).
func causeOfSIP(status int) cause {
	switch status {
	case 200:
		return causeNormalClearing
	case 401, 402, 403, 407, 603, 608:
		return 21
	case 607:
		return 819
	case 404:
		return causeUnallocated
	case 485, 604:
		return causeNoRoute
	case 408, 504:
		return 102
	case 410:
		return 22
	case 413, 414, 416, 420, 421, 423, 505, 513:
		return 127
	case 480:
		return causeNoUserResponse
	case 400, 481, 500, 503:
		return 41
	case 486, 600:
		return 17
	case 484:
		return 28
	case 488, 606:
		return 88
	case 502:
		return 38
	case 405:
		return 63
	case 406, 415, 501:
		return 79
	case 482, 483:
		return 25
	case 487:
		return causeOriginatorCancel
	default:
		return causeNormalUnspecified
	}
}

// sipOfCause is hangup_cause_to_sip (mod_sofia/mod_sofia.c): the status with which an unanswered INVITE is refused.
func sipOfCause(c cause) int {
	switch c {
	case 1, 2, 3:
		return 404
	case 17:
		return 486
	case 18:
		return 408
	case 19, 20:
		return 480
	case 21, 816, 825:
		return 603
	case 22, 23:
		return 410
	case 27, 811:
		return 502
	case 28, 810, 808:
		return 484
	case 29, 69, 79:
		return 501
	case 34, 38, 41, 42, 44, 58, 809:
		return 503
	case 52, 54, 57, 824:
		return 403
	case 65, 88:
		return 488
	case 102:
		return 504
	case 487:
		return 487
	case 25:
		return 483
	case 815:
		return 600
	case 817:
		return 604
	case 818:
		return 606
	case 819:
		return 607
	default:
		return 480
	}
}

// sipPhrases are the reason phrases FreeSWITCH's SIP stack sends and stores (sofia-sip, sip_status.c).
var sipPhrases = map[int]string{
	200: "OK", 400: "Bad Request", 401: "Unauthorized", 402: "Payment Required", 403: "Forbidden", 404: "Not Found",
	408: "Request Timeout", 410: "Gone", 480: "Temporarily Unavailable", 481: "Call Does Not Exist", 484: "Address Incomplete",
	486: "Busy Here", 487: "Request Terminated", 488: "Not Acceptable Here", 500: "Internal Server Error", 501: "Not Implemented",
	502: "Bad Gateway", 503: "Service Unavailable", 504: "Server Time-out", 600: "Busy Everywhere", 603: "Decline",
	604: "Does Not Exist Anywhere", 606: "Not Acceptable", 607: "Unwanted",
}

func sipPhrase(status int) string {
	if phrase, ok := sipPhrases[status]; ok {
		return phrase
	}
	return "SIP Status " + strconv.Itoa(status)
}

// leadingInt is C's atoi: leading blanks, a sign, digits, and zero for anything else. It saturates.
func leadingInt(s string) int {
	s = strings.TrimLeft(s, " \t")
	neg := false
	if s != "" && (s[0] == '-' || s[0] == '+') {
		neg = s[0] == '-'
		s = s[1:]
	}
	n := 0
	for i := 0; i < len(s) && s[i] >= '0' && s[i] <= '9'; i++ {
		if n < 1<<31 {
			n = n*10 + int(s[i]-'0')
		}
	}
	if neg {
		return -n
	}
	return n
}

// isFalse is switch_false; an empty string is not false.
func isFalse(s string) bool {
	switch strings.ToLower(s) {
	case "no", "off", "false", "f", "disabled", "inactive", "disallow":
		return true
	}
	return s != "" && s[0] >= '0' && s[0] <= '9' && leadingInt(s) == 0
}

// isTrue is switch_true.
func isTrue(s string) bool {
	switch strings.ToLower(s) {
	case "yes", "on", "true", "t", "enabled", "active", "allow":
		return true
	}
	return s != "" && s[0] >= '0' && s[0] <= '9' && leadingInt(s) != 0
}

package calls

import (
	"bufio"
	"compress/gzip"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tandem/esl"
)

// TestCapturedEndings reads the hangups that a real FreeSWITCH sent.
func TestCapturedEndings(t *testing.T) {
	t.Parallel()
	cancel := cancelIntent()
	hangup := &intent{reason: ReasonCompleted, source: SourceActions, cause: causeNormal}
	for file, tt := range map[string]struct {
		direction string
		answered  bool
		asked     *intent
		want      ending
	}{
		"originate-busy-486":                    {DirectionOutbound, false, nil, ending{StatusBusy, ReasonBusy, SourceCallee, "USER_BUSY", 17, 486, 0, true}},
		"originate-decline-603":                 {DirectionOutbound, false, nil, ending{StatusRejected, ReasonDeclined, SourceCallee, "CALL_REJECTED", 21, 603, 0, true}},
		"originate-notfound-404":                {DirectionOutbound, false, nil, ending{StatusFailed, ReasonInvalidNumber, SourceCarrier, "UNALLOCATED_NUMBER", 1, 404, 0, true}},
		"originate-unavailable-503":             {DirectionOutbound, false, nil, ending{StatusFailed, ReasonCarrierError, SourceCarrier, "NORMAL_TEMPORARY_FAILURE", 41, 503, 0, true}},
		"originate-no-answer-timeout":           {DirectionOutbound, false, nil, ending{StatusNoAnswer, ReasonNoAnswer, SourcePlatform, "NO_ANSWER", 19, 487, 0, true}},
		"originate-cancelled-while-ringing":     {DirectionOutbound, false, cancel, ending{StatusCanceled, ReasonCanceled, SourceAPI, "ORIGINATOR_CANCEL", 16, 487, 0, true}},
		"originate-answer-we-hang-up":           {DirectionOutbound, true, hangup, ending{StatusCompleted, ReasonCompleted, SourceActions, "NORMAL_CLEARING", 16, 200, 1, true}},
		"originate-answer-callee-hangs-up":      {DirectionOutbound, true, hangup, ending{StatusCompleted, ReasonCalleeHangup, SourceCallee, "NORMAL_CLEARING", 16, 200, 2, true}},
		"originate-early-media-183":             {DirectionOutbound, true, nil, ending{StatusCompleted, ReasonCalleeHangup, SourceCallee, "NORMAL_CLEARING", 16, 200, 3, true}},
		"inbound-caller-cancels-before-answer":  {DirectionInbound, false, nil, ending{StatusCanceled, ReasonCallerHangup, SourceCaller, "ORIGINATOR_CANCEL", 16, 487, 0, true}},
		"inbound-caller-hangs-up-during-play":   {DirectionInbound, true, nil, ending{StatusCompleted, ReasonCallerHangup, SourceCaller, "NORMAL_CLEARING", 16, 200, 1, true}},
		"inbound-reject-busy":                   {DirectionInbound, false, &intent{reason: "busy", source: SourceActions, status: StatusRejected, sip: 486}, ending{StatusRejected, "busy", SourceActions, "USER_BUSY", 17, 486, 0, true}},
		"inbound-bridge-busy":                   {DirectionInbound, false, &intent{reason: "declined", source: SourceActions, status: StatusRejected, sip: 603}, ending{StatusRejected, "declined", SourceActions, "NORMAL_CLEARING", 16, 603, 0, true}},
		"inbound-gather-dtmf":                   {DirectionInbound, true, hangup, ending{StatusCompleted, ReasonCompleted, SourceActions, "NORMAL_CLEARING", 16, 200, 5, true}},
		"inbound-caller-hangs-up-during-play#2": {DirectionInbound, true, hangup, ending{StatusCompleted, ReasonCallerHangup, SourceCaller, "NORMAL_CLEARING", 16, 200, 1, true}},
	} {
		name, _, _ := strings.Cut(file, "#")
		ev := lastHangup(t, name, tt.direction)
		require.Equal(t, tt.want, conclude(tt.direction, tt.answered, readFacts(ev), tt.asked), file)
	}
}

// lastHangup is the last CHANNEL_HANGUP_COMPLETE of a capture whose channel has a direction.
func lastHangup(t *testing.T, name, direction string) *esl.Event {
	t.Helper()
	f, err := os.Open(filepath.Join("..", "esl", "testdata", "captures", "json", name+".jsonl.gz"))
	require.NoError(t, err)
	defer func() { require.NoError(t, f.Close()) }()
	var last *esl.Event
	plain, err := gzip.NewReader(f)
	require.NoError(t, err)
	lines := bufio.NewScanner(plain)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var frame struct{ From, Raw string }
		require.NoError(t, json.Unmarshal(lines.Bytes(), &frame))
		_, body, _ := strings.Cut(frame.Raw, "\n\n")
		if frame.From != "switch" || !strings.Contains(body, `"CHANNEL_HANGUP_COMPLETE"`) {
			continue
		}
		ev, err := esl.ParseEvent(body)
		require.NoError(t, err)
		if ev.Get("Call-Direction") == direction {
			last = ev
		}
	}
	require.NoError(t, lines.Err())
	require.NotNil(t, last)
	return last
}

// TestVerdicts checks that every cause leads to a state that an unanswered call may end in, and every row of the mapping.
func TestVerdicts(t *testing.T) {
	t.Parallel()
	for cause, v := range verdicts {
		require.Contains(t, unanswered, v.status, cause)
		require.NotEmpty(t, v.reason, cause)
		require.Contains(t, []string{SourceCaller, SourceCallee, SourceCarrier, SourcePlatform}, v.source, cause)
	}
	for _, tt := range []struct {
		causes []string
		sip    int
		status string
		reason string
	}{
		{[]string{"USER_BUSY"}, 0, StatusBusy, ReasonBusy},
		{[]string{"NO_ANSWER"}, 0, StatusNoAnswer, ReasonNoAnswer},
		{[]string{"NO_USER_RESPONSE", "SUBSCRIBER_ABSENT"}, 480, StatusNoAnswer, ReasonUnavailable},
		{[]string{"CALL_REJECTED"}, 603, StatusRejected, ReasonDeclined},
		{[]string{"CALL_REJECTED"}, 608, StatusRejected, ReasonDeclined},
		{[]string{"CALL_REJECTED"}, 401, StatusFailed, ReasonTrunkAuthFailed},
		{[]string{"CALL_REJECTED"}, 407, StatusFailed, ReasonTrunkAuthFailed},
		{[]string{"CALL_REJECTED"}, 402, StatusFailed, ReasonCarrierRejected},
		{[]string{"CALL_REJECTED"}, 403, StatusFailed, ReasonCarrierRejected},
		{[]string{"UNALLOCATED_NUMBER", "NO_ROUTE_DESTINATION", "NUMBER_CHANGED", "INVALID_NUMBER_FORMAT"}, 0, StatusFailed, ReasonInvalidNumber},
		{[]string{"NORMAL_TEMPORARY_FAILURE", "NETWORK_OUT_OF_ORDER", "RECOVERY_ON_TIMER_EXPIRE", "NORMAL_CIRCUIT_CONGESTION", "SWITCH_CONGESTION"}, 0, StatusFailed, ReasonCarrierError},
		{[]string{"GATEWAY_DOWN", "INVALID_GATEWAY"}, 0, StatusFailed, ReasonTrunkUnavailable},
		{[]string{"INCOMPATIBLE_DESTINATION"}, 488, StatusFailed, ReasonCodecMismatch},
		{[]string{"ORIGINATOR_CANCEL"}, 487, StatusCanceled, ReasonCanceled},
	} {
		for _, cause := range tt.causes {
			v := unansweredVerdict(cause, tt.sip)
			require.Equal(t, []string{tt.status, tt.reason}, []string{v.status, v.reason}, "%s %d", cause, tt.sip)
		}
	}
}

func TestDialStatusForEveryEnding(t *testing.T) {
	t.Parallel()
	for _, s := range unanswered {
		require.True(t, slices.Contains([]string{"busy", "no_answer", "failed", "canceled"}, dialStatuses[s]), s)
	}
}

// A call that was refused while it was not known that it had been stored is told of as what it is.
func TestInboundCallThatWasRefusedUnknown(t *testing.T) {
	t.Parallel()
	got := conclude(DirectionInbound, false, hangupFacts{cause: causeTempFailure, disposition: "send_refuse"}, nil)
	require.Equal(t, ending{status: StatusFailed, reason: ReasonInternalError, source: SourcePlatform, cause: causeTempFailure, q850: 41, reached: true}, got)
}

package api

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"tandem/billing"
	"tandem/models"
	"tandem/webhooks"
)

func (s *Server) traceCall(r *request) (any, error) {
	story, err := s.store.StoryOf(r.ctx, r.params["id"])
	if err != nil {
		return nil, orNotFound(err, "call")
	}
	nodes, err := s.nodeNames(r)
	if err != nil {
		return nil, err
	}
	now := s.store.Now()
	return storyObject{
		Call: toCallDetail(&story.Call, nodes), Verdict: verdict(story, nodes, now), Problems: problems(story, now), Steps: tell(story),
	}, nil
}

// verdict says how a call stands or ended.
func verdict(story *models.CallStory, nodes map[string]string, now time.Time) string {
	call := &story.Call
	if call.Live() {
		where := "no node"
		if call.NodeID != nil {
			where = "node " + cmp.Or(nodes[*call.NodeID], *call.NodeID)
		}
		return fmt.Sprintf("%s for %s on %s.", strings.ReplaceAll(call.Status, "_", " "), span(since(call, now)), where)
	}
	text := call.Status
	if call.Reason != call.Status {
		text += ": " + cmp.Or(call.Reason, "no reason is known")
	}
	if call.HangupSource != "" {
		text += ", ended by the " + call.HangupSource
	}
	var codes []string
	if call.SIPCode != 0 {
		codes = append(codes, fmt.Sprintf("SIP %d", call.SIPCode))
	}
	if call.Cause != "" {
		codes = append(codes, call.Cause)
	}
	if len(codes) > 0 {
		text += " (" + strings.Join(codes, ", ") + ")"
	}
	if call.AnsweredAt != nil && call.EndedAt != nil {
		text += fmt.Sprintf("; answered for %s", span(call.EndedAt.Sub(*call.AnsweredAt)))
	}
	return text + "; cost " + billing.FormatAmount(call.CostMicros) + "."
}

// since is how long a live call has been in its state.
func since(call *models.Call, now time.Time) time.Duration {
	at := call.CreatedAt
	switch {
	case call.Status == models.CallInProgress && call.AnsweredAt != nil:
		at = *call.AnsweredAt
	case call.Status == models.CallRinging && call.RingingAt != nil:
		at = *call.RingingAt
	}
	return now.Sub(at)
}

func span(d time.Duration) string { return d.Round(100 * time.Millisecond).String() }

// settleWithin is how long after its end a call may take to be settled before that is worth a word.
const settleWithin = time.Minute

// problems says what went wrong, most telling first.
func problems(story *models.CallStory, now time.Time) []string {
	found := []string{}
	say := func(format string, args ...any) { found = append(found, fmt.Sprintf(format, args...)) }
	failed := map[string]int{}
	for i := range story.Requests {
		if request := &story.Requests[i]; request.Failed() {
			if failed[request.URL]++; failed[request.URL] == 1 {
				say("%s gave no actions: %s.", request.URL, request.Error)
			}
		}
	}
	for i := range story.Events {
		event := &story.Events[i]
		if event.Type != webhooks.KindError {
			continue
		}
		data := eventData(event)
		if url, _ := data["url"].(string); failed[url] > 0 {
			continue // told above
		}
		say("%v: %v.", data["code"], data["message"])
	}
	dead, pending := 0, 0
	for i := range story.Deliveries {
		switch delivery := &story.Deliveries[i]; {
		case delivery.State == models.DeliveryDead:
			dead++
		case delivery.State == models.DeliveryPending && delivery.Attempts > 0:
			pending++
		}
	}
	if dead > 0 {
		say("%d webhooks were given up; redeliver them once the receiver works.", dead)
	}
	if pending > 0 {
		say("%d webhooks are being tried again.", pending)
	}
	for i := range story.CDRs {
		if cdr := &story.CDRs[i]; silent(cdr) {
			say("No sound came from the other side of channel %s in %d s: look at NAT, and at the address in the SDP of %s.", cdr.ChannelID, cdr.BilledSeconds, cmp.Or(cdr.Peer, "its peer"))
		}
	}
	if d := story.Difference; d != nil {
		say("Billed %d s, but the switch recorded %d s.", d.BilledSeconds, d.CDRSeconds)
	}
	if call := &story.Call; call.EndedAt != nil && call.SettledAt == nil && now.Sub(*call.EndedAt) > settleWithin {
		say("Ended at %s and not settled yet.", stamp(*call.EndedAt))
	}
	return found
}

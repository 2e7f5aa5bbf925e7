package api

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"tandem/billing"
	"tandem/models"
	"tandem/webhooks"
)

// Lanes of a call's story.
const (
	laneOperator = "operator"
	laneCall     = "call"
	laneSIP      = "sip"
	laneSwitch   = "switch"
	laneAnswer   = "answer_url"
	laneAction   = "action"
	laneMoney    = "money"
	laneWebhook  = "webhook"
)

// Where a step comes from, in the order in which what happened at the same time is told: the journal has one order, whatever its lanes.
const (
	fromAudit = iota
	fromJournal
	fromSignalling
	fromRequests
	fromMoney
	fromAttempts
)

// storyTime has the milliseconds that a story is told in.
const storyTime = "2006-01-02T15:04:05.000Z"

// storyObject is the story of a call.
type storyObject struct {
	Call     callDetail  `json:"call"`
	Verdict  string      `json:"verdict" doc:"How the call stands or ended, in a sentence."`
	Problems []string    `json:"problems" doc:"What went wrong on the way, in sentences."`
	Steps    []storyStep `json:"steps" doc:"What happened, oldest first."`
}

// storyStep is one thing that happened.
type storyStep struct {
	ID     string `json:"id" doc:"What is told: an event, a request, an attempt, a ledger entry; for sip and switch a name of its own." example:"evt_01jd3v5q8n6w4x2y0z9a8b7c6d"`
	At     string `json:"at" format:"date-time" doc:"With milliseconds."`
	Offset int64  `json:"offset_ms" doc:"Milliseconds since the call began."`
	Lane   string `json:"lane" enum:"operator,call,sip,switch,answer_url,action,money,webhook"`
	OK     bool   `json:"ok" doc:"false where something went wrong."`
	Text   string `json:"text" doc:"What happened, for people."`
}

// storyteller collects the steps of a story.
type storyteller struct {
	story *models.CallStory
	steps []timedStep
}

// timedStep is a step with its exact time, and where it comes from.
type timedStep struct {
	storyStep
	at   time.Time
	from int
}

// tell makes the steps of a story, in order.
func tell(story *models.CallStory) []storyStep {
	t := &storyteller{story: story}
	t.events()
	t.requests()
	t.signalling()
	t.webhooks()
	t.money()
	t.operators()
	slices.SortStableFunc(t.steps, func(a, b timedStep) int { return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.from, b.from)) })
	steps := make([]storyStep, len(t.steps))
	for i := range t.steps {
		steps[i] = t.steps[i].storyStep
	}
	return steps
}

// add adds a step.
func (t *storyteller) add(from int, at time.Time, lane, id string, fine bool, format string, args ...any) {
	t.steps = append(t.steps, timedStep{at: at, from: from, storyStep: storyStep{
		ID: id, At: at.UTC().Format(storyTime), Offset: at.Sub(t.story.Call.CreatedAt).Milliseconds(), Lane: lane, OK: fine,
		Text: fmt.Sprintf(format, args...),
	}})
}

// operators tells what operators did to the call.
func (t *storyteller) operators() {
	for i := range t.story.Commands {
		entry := &t.story.Commands[i]
		t.add(fromAudit, entry.CreatedAt, laneOperator, entry.ID, true, "%s by %s", entry.Action, cmp.Or(entry.ActorName, entry.ActorID))
	}
}

// requests tells what the application was asked.
func (t *storyteller) requests() {
	for i := range t.story.Requests {
		request := &t.story.Requests[i]
		said := "no answer"
		if request.Status != 0 {
			said = fmt.Sprint(request.Status)
		}
		text := fmt.Sprintf("POST %s (%s, attempt %d) -> %s in %.0f ms", request.URL, request.Kind, request.Attempt, said, request.LatencyMS)
		switch {
		case request.Error != "":
			text += ": " + request.Error
		case len(request.Actions) == 0:
			text += ": no actions"
		default:
			text += ": " + strings.Join(request.Actions, ", ")
		}
		t.add(fromRequests, request.StartedAt, laneAnswer, request.ID, !request.Failed(), "%s", text)
	}
}

// money tells what was reserved and charged.
func (t *storyteller) money() {
	call := &t.story.Call
	if call.HoldMicros > 0 {
		t.add(fromMoney, call.CreatedAt, laneMoney, "hold", true, "holds %s for at most %d s, at %s a minute", billing.FormatAmount(call.HoldMicros), call.GrantedSeconds,
			billing.FormatAmount(call.PricePerMinuteMicros))
	}
	for i := range t.story.Ledger {
		entry := &t.story.Ledger[i]
		t.add(fromMoney, entry.CreatedAt, laneMoney, entry.ID, true, "%s %s, balance %s", entry.Kind, billing.FormatAmount(entry.AmountMicros), billing.FormatAmount(entry.BalanceMicros))
	}
	if call.SettledAt != nil {
		t.add(fromMoney, *call.SettledAt, laneMoney, "settled", true, "settled: %d s cost %s, what was held is free", call.BilledSeconds, billing.FormatAmount(call.CostMicros))
	}
	if d := t.story.Difference; d != nil {
		t.add(fromMoney, d.FoundAt, laneMoney, "difference", false, "billed %d s, but the switch recorded %d s", d.BilledSeconds, d.CDRSeconds)
	}
}

// webhooks tells of the attempts to deliver events, and of what is not delivered.
func (t *storyteller) webhooks() {
	kinds := map[string]string{}
	for i := range t.story.Events {
		kinds[t.story.Events[i].ID] = t.story.Events[i].Type
	}
	for i := range t.story.Attempts {
		attempt := &t.story.Attempts[i]
		said := cmp.Or(attempt.Error, fmt.Sprint(attempt.Status))
		t.add(fromAttempts, attempt.StartedAt, laneWebhook, attempt.ID, attempt.Error == "", "%s (attempt %d) -> %s in %.0f ms", kinds[attempt.EventID], attempt.Number, said, attempt.LatencyMS)
	}
	for i := range t.story.Deliveries {
		delivery := &t.story.Deliveries[i]
		if delivery.GivenUpAt != nil && delivery.State != models.DeliveryDelivered {
			t.add(fromAttempts, *delivery.GivenUpAt, laneWebhook, delivery.EventID+"/given-up", false, "%s is %s: %s", kinds[delivery.EventID], delivery.State, map[string]string{
				models.DeliveryDead: "given up", models.DeliverySkipped: "there was no webhook_url",
			}[delivery.State])
		}
	}
}

// eventData is what an event's body says beside the call.
func eventData(event *models.Event) map[string]any {
	var body struct {
		Data map[string]any `json:"data"`
	}
	if json.Unmarshal(event.Body, &body) != nil {
		return nil
	}
	return body.Data
}

// laneOf is the lane of a kind of event.
func laneOf(kind string) string {
	switch kind {
	case webhooks.KindCreated, webhooks.KindDialing, webhooks.KindRinging, webhooks.KindAnswered, webhooks.KindCompleted, webhooks.KindFailed:
		return laneCall
	case webhooks.KindRerouted, webhooks.KindLegRinging, webhooks.KindLegAnswered, webhooks.KindLegEnded:
		return laneSwitch
	default:
		return laneAction
	}
}

// events tells the call's journal.
func (t *storyteller) events() {
	for i := range t.story.Events {
		event := &t.story.Events[i]
		t.add(fromJournal, event.CreatedAt, laneOf(event.Type), event.ID, event.Type != webhooks.KindError, "%s", t.eventText(event))
	}
}

// eventText says what an event tells, in a line: the members of its data that are short, in a fixed order.
func (t *storyteller) eventText(event *models.Event) string {
	call, data := &t.story.Call, eventData(event)
	delete(data, "call")
	text := event.Type
	if event.Type == webhooks.KindCreated || event.Type == webhooks.KindRinging && event.Sequence == 1 {
		text += fmt.Sprintf(" %s, %s -> %s", call.Direction, call.From, call.To)
	}
	names := make([]string, 0, len(data))
	for name := range data {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		raw, err := json.Marshal(data[name])
		if err != nil || string(raw) == `""` || string(raw) == "null" {
			continue
		}
		value := string(raw)
		if plain, ok := data[name].(string); ok && !strings.ContainsAny(plain, " \"") {
			value = plain
		}
		if len(value) > maxAuditValue {
			value = fmt.Sprintf("(%d bytes)", len(value))
		}
		text += " " + name + "=" + value
	}
	return text
}

// Package webhooks tells customers what happens to their calls: it writes the bodies of events, signs them by the
// Standard Webhooks rules and delivers them at least once, in order for each call and endpoint. The queue is the
// database (models); an event is queued in the transaction that makes the change it tells of.
package webhooks

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"time"

	"tandem/models"
)

// ISO 8601 in UTC: events carry milliseconds, objects seconds as the API writes them (spec §2 and §6).
const (
	eventTime  = "2006-01-02T15:04:05.000Z"
	objectTime = "2006-01-02T15:04:05Z"
)

// Call is the call as customers see it in events and answer_url requests: the fields of the API's call object but for the
// variables, which stand beside it. What is not known yet is null.
type Call struct {
	ID             string            `json:"id"`
	CustomerID     string            `json:"customer_id"`
	ApplicationID  string            `json:"application_id"`
	TrunkID        *string           `json:"trunk_id"`
	DIDID          *string           `json:"did_id"`
	Direction      string            `json:"direction"`
	Status         string            `json:"status"`
	From           string            `json:"from"`
	To             string            `json:"to"`
	Record         bool              `json:"record"`
	Metadata       map[string]string `json:"metadata"`
	TimeoutSeconds int               `json:"timeout"`
	// RetryOf is the ended call that this one repeats; AnsweredBy what machine detection heard (human, machine, unknown).
	RetryOf    *string `json:"retry_of"`
	AnsweredBy *string `json:"answered_by"`
	// Reason says how the call ended and HangupSource who ended it (caller, callee, api, actions, platform, carrier).
	Reason       *string `json:"reason"`
	HangupSource *string `json:"hangup_source"`
	// Cause is FreeSWITCH's name of the cause, Q850 its number, SIPCode the final status of the SIP dialogue.
	Cause   *string `json:"cause"`
	Q850    *int    `json:"q850"`
	SIPCode *int    `json:"sip_code"`
	// PricePerMinuteMicros and CostMicros are millionths of the account's currency unit.
	PricePerMinuteMicros int64 `json:"price_per_minute_micros"`
	BilledSeconds        int   `json:"billed_seconds"`
	CostMicros           int64 `json:"cost_micros"`
	// MaxCallSeconds is how long the call may last by the limits, nil where they do not say; QueueUntil until when it waits for room under them.
	MaxCallSeconds *int    `json:"max_call_seconds"`
	QueueUntil     *string `json:"queue_until"`
	CreatedAt      string  `json:"created_at"`
	UpdatedAt      string  `json:"updated_at"`
	RingingAt      *string `json:"ringing_at"`
	AnsweredAt     *string `json:"answered_at"`
	EndedAt        *string `json:"ended_at"`
}

// CallObject returns the call as customers see it.
func CallObject(call *models.Call) Call {
	var queueUntil *string
	if call.Status == models.CallQueued {
		queueUntil = moment(call.QueueUntil)
	}
	return Call{
		ID: call.ID, CustomerID: call.CustomerID, ApplicationID: call.ApplicationID, TrunkID: call.TrunkID, DIDID: call.DIDID,
		Direction: call.Direction, Status: call.Status, From: call.From, To: call.To, Record: call.Record,
		Metadata: orEmpty(call.Metadata), TimeoutSeconds: call.TimeoutSeconds,
		RetryOf: call.RetryOf, AnsweredBy: known(call.AnsweredBy),
		Reason: known(call.Reason), HangupSource: known(call.HangupSource),
		Cause: known(call.Cause), Q850: known(call.Q850), SIPCode: known(call.SIPCode),
		PricePerMinuteMicros: call.PricePerMinuteMicros, BilledSeconds: call.BilledSeconds, CostMicros: call.CostMicros,
		MaxCallSeconds: known(call.MaxSeconds), QueueUntil: queueUntil,
		CreatedAt: call.CreatedAt.UTC().Format(objectTime), UpdatedAt: call.UpdatedAt.UTC().Format(objectTime),
		RingingAt: moment(call.RingingAt), AnsweredAt: moment(call.AnsweredAt), EndedAt: moment(call.EndedAt),
	}
}

// known is nil for what is not known yet.
func known[T comparable](value T) *T {
	var zero T
	if value == zero {
		return nil
	}
	return &value
}

func orEmpty(m map[string]string) map[string]string {
	if m == nil {
		return map[string]string{}
	}
	return m
}

func moment(t *time.Time) *string {
	if t == nil {
		return nil
	}
	s := t.UTC().Format(objectTime)
	return &s
}

// body is the union of both shapes of the contract (spec §6): a receiver of either finds its fields. Events that are of no call
// have null for it, and no variables; those that are kept but not told have null for their sequence.
type body struct {
	ID        string            `json:"id"`
	Type      string            `json:"type"`
	Event     string            `json:"event"`
	CreatedAt string            `json:"created_at"`
	Sequence  *int64            `json:"sequence"`
	Call      *Call             `json:"call"`
	Variables map[string]string `json:"variables"`
	Data      map[string]any    `json:"data"`
}

// Emit appends an event to a call and, if the application wants its kind, queues it for its webhook_url, in the caller's
// transaction. The body carries the call as it is given, its variables, and data with the call added; data is not changed.
// models.ErrStale when the call already has its one terminal event, or is another controller's by now (models.Call.Fence).
func Emit(ctx context.Context, tx *models.Store, call *models.Call, kind string, data map[string]any) (*models.Event, error) {
	event := &models.Event{CallID: call.ID, Type: kind, Fence: call.Fence}
	err := tx.AppendEvent(ctx, event, func(told int64, id string, at time.Time) ([]byte, error) {
		return marshalBody(call, kind, data, told, id, at)
	})
	if err != nil {
		return nil, fmt.Errorf("emit %s of call %q: %w", kind, call.ID, err)
	}
	return event, nil
}

func marshalBody(call *models.Call, kind string, data map[string]any, told int64, id string, at time.Time) ([]byte, error) {
	b := body{
		ID: id, Type: kind, Event: kind, CreatedAt: at.UTC().Format(eventTime),
		Variables: map[string]string{}, Data: maps.Clone(data),
	}
	if told > 0 {
		b.Sequence = &told
	}
	if b.Data == nil {
		b.Data = map[string]any{}
	}
	if call != nil {
		object := CallObject(call)
		b.Call, b.Data["call"], b.Variables = &object, object, orEmpty(call.Variables)
	}
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false) // it would lengthen the body and serve no receiver of JSON
	err := enc.Encode(b)
	return bytes.TrimRight(buf.Bytes(), "\n"), err
}

// EmitTrunk tells every application of the trunk's customer that has a webhook_url, and wants the kind, what happened to a
// trunk, in the caller's transaction. The body carries data with the trunk added. Each application has its own event, with its
// own sequence of this trunk's events.
func EmitTrunk(ctx context.Context, tx *models.Store, trunk *models.Trunk, kind string, data map[string]any) ([]models.Event, error) {
	told := maps.Clone(data)
	if told == nil {
		told = map[string]any{}
	}
	told["trunk"] = map[string]any{"id": trunk.ID, "name": trunk.Name, "gateway_name": trunk.GatewayName}
	return emitToAll(ctx, tx, trunk.CustomerID, trunk.ID, kind, told)
}

// EmitBalance tells every application of a customer that has a webhook_url, and wants the kind, how far down its account has come, in the transaction
// that brought it there: it is what models.Store.OnBalance takes. Each application has its own event, with its own sequence of the account's events.
func EmitBalance(ctx context.Context, tx *models.Store, customer *models.Customer, level models.BalanceLevel) error {
	kind, data := KindBalanceExhausted, balanceData(customer)
	if level == models.BalanceLow && customer.LowBalanceMicros != nil {
		kind, data["low_balance_micros"] = KindBalanceLow, *customer.LowBalanceMicros
	}
	_, err := emitToAll(ctx, tx, customer.ID, customer.ID, kind, data)
	return err
}

// EmitCallShort tells the application of a call that the balance does not pay for it any longer, and in how many seconds it will end.
func EmitCallShort(ctx context.Context, tx *models.Store, call *models.Call, customer *models.Customer, secondsLeft int) error {
	data := balanceData(customer)
	data["seconds_left"] = secondsLeft
	_, err := Emit(ctx, tx, call, KindBalanceLow, data)
	return err
}

// balanceData is what all events say of an account.
func balanceData(customer *models.Customer) map[string]any {
	return map[string]any{
		"customer_id": customer.ID, "currency": customer.Currency, "balance_micros": customer.BalanceMicros, "credit_limit_micros": customer.CreditLimitMicros,
		"held_micros": customer.HeldMicros, "available_micros": customer.FreeMicros(),
	}
}

// emitToAll tells every application of a customer that has a webhook_url, and wants the kind, what happened to a subject.
func emitToAll(ctx context.Context, tx *models.Store, customerID, subjectID, kind string, data map[string]any) ([]models.Event, error) {
	apps, err := tx.ApplicationsWithWebhook(ctx, customerID)
	if err != nil {
		return nil, fmt.Errorf("emit %s of %q: %w", kind, subjectID, err)
	}
	events := make([]models.Event, 0, len(apps))
	for _, id := range apps {
		event := models.Event{CustomerID: customerID, ApplicationID: id, SubjectID: subjectID, Type: kind}
		if err := appendOther(ctx, tx, &event, false, data); err != nil {
			return nil, fmt.Errorf("emit %s of %q: %w", kind, subjectID, err)
		}
		events = append(events, event)
	}
	return events, nil
}

// testMessage is what a webhook.test says.
const testMessage = "This is a test of the webhook_url. Nothing happened."

// EmitTest queues a webhook.test for an application, whatever kinds it wants, in the caller's transaction: signed, delivered
// and tried again as every event is. models.ErrNotFound where the application is deleted.
func EmitTest(ctx context.Context, tx *models.Store, app *models.Application) (*models.Event, error) {
	event := &models.Event{CustomerID: app.CustomerID, ApplicationID: app.ID, SubjectID: app.ID, Type: KindTest}
	err := appendOther(ctx, tx, event, true, map[string]any{"application_id": app.ID, "message": testMessage})
	if err != nil {
		return nil, fmt.Errorf("emit %s of application %q: %w", KindTest, app.ID, err)
	}
	return event, nil
}

// appendOther appends an event that is of no call.
func appendOther(ctx context.Context, tx *models.Store, event *models.Event, always bool, data map[string]any) error {
	return tx.AppendSubjectEvent(ctx, event, always, func(told int64, id string, at time.Time) ([]byte, error) {
		return marshalBody(nil, event.Type, data, told, id, at)
	})
}

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

// Kinds of events.
const (
	KindCreated   = "call.created"
	KindDialing   = "call.dialing"
	KindRinging   = "call.ringing"
	KindAnswered  = "call.answered"
	KindCompleted = "call.completed"
	KindFailed    = "call.failed"
	KindError     = "call.error"
	KindNotify    = "call.notify"
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
	// Reason says how the call ended and HangupSource who ended it (caller, callee, api, actions, platform, carrier).
	Reason       *string `json:"reason"`
	HangupSource *string `json:"hangup_source"`
	// Cause is FreeSWITCH's name of the cause, Q850 its number, SIPCode the final status of the SIP dialogue.
	Cause   *string `json:"cause"`
	Q850    *int    `json:"q850"`
	SIPCode *int    `json:"sip_code"`
	// PricePerMinuteMicros and CostMicros are millionths of the account's currency unit.
	PricePerMinuteMicros int64   `json:"price_per_minute_micros"`
	BilledSeconds        int     `json:"billed_seconds"`
	CostMicros           int64   `json:"cost_micros"`
	CreatedAt            string  `json:"created_at"`
	UpdatedAt            string  `json:"updated_at"`
	RingingAt            *string `json:"ringing_at"`
	AnsweredAt           *string `json:"answered_at"`
	EndedAt              *string `json:"ended_at"`
}

// CallObject returns the call as customers see it.
func CallObject(call *models.Call) Call {
	return Call{
		ID: call.ID, CustomerID: call.CustomerID, ApplicationID: call.ApplicationID, TrunkID: call.TrunkID, DIDID: call.DIDID,
		Direction: call.Direction, Status: call.Status, From: call.From, To: call.To, Record: call.Record,
		Metadata: orEmpty(call.Metadata), TimeoutSeconds: call.TimeoutSeconds,
		Reason: known(call.Reason), HangupSource: known(call.HangupSource),
		Cause: known(call.Cause), Q850: known(call.Q850), SIPCode: known(call.SIPCode),
		PricePerMinuteMicros: call.PricePerMinuteMicros, BilledSeconds: call.BilledSeconds, CostMicros: call.CostMicros,
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

// body is the union of both shapes of the contract (spec §6): a receiver of either finds its fields.
type body struct {
	ID        string            `json:"id"`
	Type      string            `json:"type"`
	Event     string            `json:"event"`
	CreatedAt string            `json:"created_at"`
	Sequence  int64             `json:"sequence"`
	Call      Call              `json:"call"`
	Variables map[string]string `json:"variables"`
	Data      map[string]any    `json:"data"`
}

// Emit appends an event to a call and queues it for the application's webhook_url, in the caller's transaction. The body
// carries the call as it is given, its variables, and data with the call added; data is not changed. models.ErrStale when the call already has its one terminal event.
func Emit(ctx context.Context, tx *models.Store, call *models.Call, kind string, data map[string]any) (*models.Event, error) {
	event := &models.Event{CallID: call.ID, Type: kind}
	err := tx.AppendEvent(ctx, event, func(sequence int64, id string, at time.Time) ([]byte, error) {
		return marshalBody(call, kind, data, sequence, id, at)
	})
	if err != nil {
		return nil, fmt.Errorf("emit %s of call %q: %w", kind, call.ID, err)
	}
	return event, nil
}

func marshalBody(call *models.Call, kind string, data map[string]any, sequence int64, id string, at time.Time) ([]byte, error) {
	object := CallObject(call)
	merged := maps.Clone(data)
	if merged == nil {
		merged = map[string]any{}
	}
	merged["call"] = object

	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false) // it would lengthen the body and serve no receiver of JSON
	err := enc.Encode(body{
		ID: id, Type: kind, Event: kind, CreatedAt: at.UTC().Format(eventTime), Sequence: sequence,
		Call: object, Variables: orEmpty(call.Variables), Data: merged,
	})
	return bytes.TrimRight(buf.Bytes(), "\n"), err
}

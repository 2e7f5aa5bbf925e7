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

// timeLayout is ISO 8601 in UTC with milliseconds.
const timeLayout = "2006-01-02T15:04:05.000Z07:00"

// Timestamp formats a time as it appears in events: UTC, with milliseconds.
func Timestamp(t time.Time) string { return t.UTC().Format(timeLayout) }

// Call is the call as customers see it, in events, answer_url requests and the API. What is not known yet is left out.
type Call struct {
	ID            string            `json:"id"`
	CustomerID    string            `json:"customer_id"`
	ApplicationID string            `json:"application_id"`
	Status        string            `json:"status"`
	Direction     string            `json:"direction"`
	From          string            `json:"from"`
	To            string            `json:"to"`
	TrunkID       string            `json:"trunk_id,omitempty"`
	DIDID         string            `json:"did_id,omitempty"`
	Record        bool              `json:"record"`
	Metadata      map[string]string `json:"metadata"`
	CreatedAt     string            `json:"created_at"`
	RingingAt     string            `json:"ringing_at,omitempty"`
	AnsweredAt    string            `json:"answered_at,omitempty"`
	EndedAt       string            `json:"ended_at,omitempty"`
	// Reason says how the call ended and HangupSource who ended it (caller, callee, api, actions, platform, carrier).
	Reason       string `json:"reason,omitempty"`
	HangupSource string `json:"hangup_source,omitempty"`
	// Cause is FreeSWITCH's name of the cause, Q850 its number, SIPCode the final status of the SIP dialogue.
	Cause   string `json:"cause,omitempty"`
	Q850    int    `json:"q850,omitempty"`
	SIPCode int    `json:"sip_code,omitempty"`
	// DurationSeconds is from creation to the end, TalkSeconds from the answer to the end; both once the call ended.
	DurationSeconds *float64 `json:"duration_seconds,omitempty"`
	TalkSeconds     *float64 `json:"talk_seconds,omitempty"`
	BilledSeconds   *int     `json:"billed_seconds,omitempty"`
	// PricePerMinuteMicros and CostMicros are millionths of the account's currency unit; the cost once the call is settled.
	PricePerMinuteMicros int64  `json:"price_per_minute_micros"`
	CostMicros           *int64 `json:"cost_micros,omitempty"`
}

// CallObject returns the call as customers see it.
func CallObject(call *models.Call) Call {
	object := Call{
		ID:                   call.ID,
		CustomerID:           call.CustomerID,
		ApplicationID:        call.ApplicationID,
		Status:               call.Status,
		Direction:            call.Direction,
		From:                 call.From,
		To:                   call.To,
		TrunkID:              deref(call.TrunkID),
		DIDID:                deref(call.DIDID),
		Record:               call.Record,
		Metadata:             orEmpty(call.Metadata),
		CreatedAt:            Timestamp(call.CreatedAt),
		RingingAt:            timestamp(call.RingingAt),
		AnsweredAt:           timestamp(call.AnsweredAt),
		EndedAt:              timestamp(call.EndedAt),
		Reason:               call.Reason,
		HangupSource:         call.HangupSource,
		Cause:                call.Cause,
		Q850:                 call.Q850,
		SIPCode:              call.SIPCode,
		PricePerMinuteMicros: call.PricePerMinuteMicros,
	}
	if call.EndedAt != nil {
		duration, talk := call.EndedAt.Sub(call.CreatedAt), time.Duration(0)
		if call.AnsweredAt != nil {
			talk = call.EndedAt.Sub(*call.AnsweredAt)
		}
		object.DurationSeconds, object.TalkSeconds = seconds(duration), seconds(talk)
		object.BilledSeconds = &call.BilledSeconds
	}
	if call.SettledAt != nil {
		object.CostMicros = &call.CostMicros
	}
	return object
}

func deref(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

func orEmpty(m map[string]string) map[string]string {
	if m == nil {
		return map[string]string{}
	}
	return m
}

func timestamp(t *time.Time) string {
	if t == nil {
		return ""
	}
	return Timestamp(*t)
}

// seconds rounds to milliseconds, so that a duration reads like the timestamps it is the difference of.
func seconds(d time.Duration) *float64 {
	s := d.Round(time.Millisecond).Seconds()
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
// carries the call as it is given, its variables, and data with the call added; once the call has ended, data also says
// why and how long. data is not changed. models.ErrStale when the call already has its one terminal event.
func Emit(ctx context.Context, tx *models.Store, call *models.Call, kind string, data map[string]any) (*models.CallEvent, error) {
	event := &models.CallEvent{CallID: call.ID, Type: kind}
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
	merged := map[string]any{}
	if call.EndedAt != nil {
		merged["reason"] = object.Reason
		merged["hangup_source"] = object.HangupSource
		merged["cause"] = object.Cause
		merged["q850"] = object.Q850
		merged["sip_code"] = object.SIPCode
		merged["duration_seconds"] = object.DurationSeconds
		merged["talk_seconds"] = object.TalkSeconds
		merged["billed_seconds"] = object.BilledSeconds
	}
	maps.Copy(merged, data)
	merged["call"] = object

	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false) // it would lengthen the body and serve no receiver of JSON
	err := enc.Encode(body{
		ID: id, Type: kind, Event: kind, CreatedAt: Timestamp(at), Sequence: sequence,
		Call: object, Variables: orEmpty(call.Variables), Data: merged,
	})
	return bytes.TrimRight(buf.Bytes(), "\n"), err
}

package calls

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"tandem/esl"
	"tandem/models"
)

// The progress of a call is what another controller needs to go on with it: the list and the place in it, what the place's verb
// needs to know, and which application of ours the channel was last given. It is stored with every change of the call, so that what was
// told of the call and where it stands never part.

// progress is where a flow stands within the action at its index.
type progress struct {
	step        int             // applications of the action before the one that event names
	event       string          // Event-UUID of the application that was begun last, empty before the first
	application string          // its trace
	begunAt     time.Time       // when the action began
	state       json.RawMessage // the verb's own
	done        bool            // the action is over and was told of
	ask         *question       // what its result asks, while that has no answer
	again       bool            // its result must not be stored: the action is repeated
	changed     bool            // since it was stored
}

// storedQuestion is a question as the cursor keeps it.
type storedQuestion struct {
	Kind   string         `json:"kind"`
	URL    string         `json:"url"`
	Result map[string]any `json:"result,omitempty"`
}

// storedIntent is a hangup as the cursor keeps it.
type storedIntent struct {
	Reason  string `json:"reason"`
	Early   string `json:"early,omitempty"`
	Source  string `json:"source"`
	Status  string `json:"status,omitempty"`
	Cause   string `json:"cause"`
	SIP     int    `json:"sip,omitempty"`
	Respond bool   `json:"respond,omitempty"`
}

// cursor writes the progress for the database.
func (s *session) cursor() models.Cursor {
	f := &s.flow
	c := models.Cursor{
		List: f.raw, Index: f.index, EventUUID: f.at.event, Begun: f.at.event != "", Request: s.call.Cursor.Request,
		Step: f.at.step, Application: f.at.application, State: f.at.state, Done: f.at.done && !f.at.again,
		Last: f.last, Idle: f.idle, FellBack: f.fellBack, Detecting: len(s.detections) > 0,
	}
	if f.at.done && f.at.again {
		c.EventUUID, c.Begun, c.Step, c.Application, c.State = "", false, 0, "", nil
	}
	if !f.at.begunAt.IsZero() {
		c.BegunAt = &f.at.begunAt
	}
	if f.at.ask != nil && c.Done {
		c.Ask = s.encode(storedQuestion{Kind: f.at.ask.kind, URL: f.at.ask.url, Result: f.at.ask.result})
	}
	c.Later, c.Ending = s.encodeIntent(s.later), s.encodeIntent(s.asked)
	return c
}

func (s *session) encodeIntent(i *intent) json.RawMessage {
	if i == nil {
		return nil
	}
	return s.encode(storedIntent{Reason: i.reason, Early: i.early, Source: i.source, Status: i.status, Cause: i.cause, SIP: i.sip, Respond: i.respond})
}

// readIntent reads a hangup that the cursor keeps, nil without one.
func readIntent(raw json.RawMessage) (*intent, error) {
	if len(raw) == 0 {
		return nil, nil
	}
	var i storedIntent
	if err := json.Unmarshal(raw, &i); err != nil {
		return nil, fmt.Errorf("read a stored hangup: %w", err)
	}
	return &intent{reason: i.Reason, early: i.Early, source: i.Source, status: i.Status, cause: i.Cause, sip: i.SIP, respond: i.Respond}, nil
}

// wishOf is why we ended a call, or had the switch end it, as far as its cursor says; nil where it says nothing.
func wishOf(c *models.Cursor) *intent {
	for _, raw := range []json.RawMessage{c.Ending, c.Later} {
		if wish, err := readIntent(raw); err == nil && wish != nil {
			return wish
		}
	}
	return nil
}

// encode writes a part of the cursor. What we made ourselves can be written.
func (s *session) encode(part any) json.RawMessage {
	raw, err := json.Marshal(part)
	if err != nil {
		s.log.Error("progress of the call not stored", "error", err)
		return nil
	}
	return raw
}

// saveProgress writes the cursor with a change of the call, where it has moved.
func (s *session) saveProgress(ctx context.Context, tx *models.Store, call *models.Call) error {
	if !s.flow.at.changed && len(s.orders.taken) == 0 {
		return nil
	}
	if err := s.storeOrders(ctx, tx); err != nil {
		return err
	}
	call.Cursor = s.cursor()
	if err := tx.UpdateCall(ctx, call, "cursor", "variables"); err != nil {
		return fmt.Errorf("store the cursor: %w", err)
	}
	return nil
}

// keep stores the progress and the events that wait, where there is something to store.
func (s *session) keep() error {
	if !s.flow.at.changed && len(s.notes) == 0 && len(s.orders.taken) == 0 {
		return nil
	}
	return s.change("cursor", func(context.Context, *models.Store, *models.Call) error { return nil })
}

// enter begins the action at the index.
func (s *session) enter() {
	s.flow.at = progress{begunAt: s.m.cfg.Now(), changed: true}
}

// remember gives the cursor what the verb needs to go on; it is stored with the next change.
func (s *session) remember(state any) {
	s.flow.at.state, s.flow.at.changed = s.encode(state), true
}

// recalls reads what the verb has remembered, and says whether there was anything.
func (s *session) recalls(state any) bool {
	if len(s.flow.at.state) == 0 {
		return false
	}
	if err := json.Unmarshal(s.flow.at.state, state); err != nil {
		s.log.Error("progress of the action not read", "error", err)
		return false
	}
	return true
}

// nextID is the Event-UUID of the next application of the list: that of the interrupted one where the call was taken over within it.
func (s *session) nextID() string {
	if s.resumed != nil {
		return s.resumed.event
	}
	if s.next == "" {
		s.next = esl.NewEventUUID()
	}
	return s.next
}

// rounds is how many applications of the action at the cursor are over, and since when it runs. A wait action is none of the list.
func (s *session) rounds() (over int, since time.Time) {
	if s.waiting {
		return 0, s.m.cfg.Now()
	}
	return s.flow.at.step, s.flow.at.begunAt
}

// begin stores that the action at the cursor is about to run an application on the switch, and returns its Event-UUID.
func (s *session) begin(app esl.App) (string, error) { return s.beginWith(app, nil) }

// beginWith is begin with something else that belongs in the same transaction. When the call was taken over while this very application
// ran, or after it had, nothing is stored, and execute will not run it again.
func (s *session) beginWith(app esl.App, also transaction) (string, error) {
	id := s.nextID()
	s.next = ""
	if s.waiting {
		return id, nil // a wait action: the cursor stays where the call's list is
	}
	r := s.resumed
	s.resumed = nil
	switch {
	case r != nil && r.ran:
		s.underway = id
		return id, nil
	case r == nil && s.flow.at.event != "":
		s.flow.at.step++ // the one before is over
	}
	s.flow.at.event, s.flow.at.application, s.flow.at.changed = id, trace(app.Name(), app.Args()), true
	return id, s.change("cursor", func(ctx context.Context, tx *models.Store, call *models.Call) error {
		if also == nil {
			return nil
		}
		return also(ctx, tx, call)
	})
}

// trace is what is kept of an application to know it again: a channel says which it ran last, and with what
// (switch_core_session.c, switch_core_session_exec). What was said stays out of the database.
func trace(name, args string) string {
	if name == "" {
		return ""
	}
	sum := sha256.Sum256([]byte(args))
	return name + " " + hex.EncodeToString(sum[:8])
}

// lastTrace is the trace that a channel bears.
func lastTrace(channel attributes) string {
	return trace(channel.Variable("current_application"), channel.Variable("current_application_data"))
}

// took says whether a channel was given an application: it was the last that ran, or the marker behind it was.
func took(channel attributes, event, application string) bool {
	if strings.HasPrefix(channel.Variable("current_application"), "avmd_") {
		return true // the detector of beeps is turned on and off beside the list
	}
	last := lastTrace(channel)
	return last != "" && (last == application || last == trace(markerOf(event).Name(), markerOf(event).Args()))
}

// markerOf is the application that tells, by its own completion, that the one before it is over.
func markerOf(event string) esl.App { return esl.Marker(event) }

package api

import (
	"encoding/json"
	"strconv"

	"tandem/actions"
	"tandem/calls"
	"tandem/models"
)

type callDirectCreate struct {
	Actions json.RawMessage `json:"actions" raw:"list" required:"true" doc:"What the call shall do, as an answer_url would say it: 1 to 100 actions."`
	Mode    *string         `json:"mode" enum:"replace,append" doc:"replace (the default) interrupts what runs and drops the rest of the list; append runs the actions after it."`
}

// eventObject is an event as its webhook carries it.
type eventObject struct {
	json.RawMessage
}

// eventShape says what is in an event, for the document.
type eventShape struct {
	ID        string            `json:"id" example:"evt_01jd3v5q8n6w4x2y0z9a8b7c6d"`
	Type      string            `json:"type" doc:"The kind." example:"call.completed"`
	Event     string            `json:"event" doc:"The kind, once more."`
	CreatedAt string            `json:"created_at" format:"date-time"`
	Sequence  *int64            `json:"sequence" doc:"Counts from 1 what the application is told of the call; null for a kind that it does not want."`
	Call      json.RawMessage   `json:"call" raw:"object" nullable:"true" doc:"The call as it was; null where the event is of none."`
	Variables map[string]string `json:"variables"`
	Data      json.RawMessage   `json:"data" raw:"object" doc:"What docs/webhooks.md gives for the kind, and the call."`
}

// legObject is another party of a call.
type legObject struct {
	ID         string  `json:"id" example:"leg_01jd3v5q8n6w4x2y0z9a8b7c6d"`
	CallID     string  `json:"call_id"`
	Kind       string  `json:"kind" enum:"dial,transfer,queue,attempt"`
	To         string  `json:"to" doc:"The number or SIP URI that was called; for a queue the other call."`
	TrunkID    *string `json:"trunk_id"`
	Status     string  `json:"status" enum:"dialing,ringing,answered,ended"`
	DialStatus *string `json:"dial_status" doc:"What became of it, once it has ended: answered, busy, no_answer, failed, canceled or machine."`
	Reason     *string `json:"reason"`
	Cause      *string `json:"cause" doc:"FreeSWITCH's name of the hangup cause."`
	Q850       *int    `json:"q850"`
	SIPCode    *int    `json:"sip_code"`
	AnsweredBy *string `json:"answered_by" doc:"The verdict of machine detection: human, machine or unknown."`
	Seconds    float64 `json:"seconds" doc:"How long the parties were connected."`
	CreatedAt  string  `json:"created_at" format:"date-time"`
	RingingAt  *string `json:"ringing_at" format:"date-time"`
	AnsweredAt *string `json:"answered_at" format:"date-time"`
	EndedAt    *string `json:"ended_at" format:"date-time"`
}

func toLeg(l *models.Leg) legObject {
	return legObject{
		ID: l.ID, CallID: l.CallID, Kind: l.Kind, To: l.To, TrunkID: l.TrunkID, Status: l.Status, DialStatus: orNil(l.DialStatus),
		Reason: orNil(l.Reason), Cause: orNil(l.Cause), Q850: orNilNumber(l.Q850), SIPCode: orNilNumber(l.SIPCode),
		AnsweredBy: orNil(l.AnsweredBy), Seconds: l.Seconds, CreatedAt: stamp(l.CreatedAt), RingingAt: stampOrNil(l.RingingAt),
		AnsweredAt: stampOrNil(l.AnsweredAt), EndedAt: stampOrNil(l.EndedAt),
	}
}

// recordingObject is a recording of a call.
type recordingObject struct {
	ID        string  `json:"id" example:"rec_01jd3v5q8n6w4x2y0z9a8b7c6d"`
	CallID    string  `json:"call_id"`
	Status    string  `json:"status" enum:"recording,paused,available,failed"`
	Format    string  `json:"format" enum:"wav,mp3"`
	Channels  int     `json:"channels" doc:"1, or 2 where each side has a channel of its own."`
	Seconds   float64 `json:"seconds"`
	CreatedAt string  `json:"created_at" format:"date-time"`
	EndedAt   *string `json:"ended_at" format:"date-time"`
}

func toRecording(r *models.Recording) recordingObject {
	return recordingObject{
		ID: r.ID, CallID: r.CallID, Status: r.Status, Format: r.Format, Channels: max(r.Channels, 1), Seconds: r.Seconds,
		CreatedAt: stamp(r.CreatedAt), EndedAt: stampOrNil(r.EndedAt),
	}
}

func (s *Server) directCall(r *request) (any, error) {
	in := body[callDirectCreate](r)
	c := &checks{}
	mode := c.oneOf("mode", in.Mode, calls.ModeReplace, calls.ModeAppend)
	if len(in.Actions) == 0 {
		c.refuse("actions", "actions is required")
	}
	if err := c.failed(); err != nil {
		return nil, err
	}
	list, err := actions.ParseList(in.Actions, "actions")
	if err != nil {
		return nil, actionError("actions", err)
	}
	if len(list) == 0 {
		return nil, invalid("actions", "actions must hold at least one action")
	}
	return s.commandCall(r, accepted, func(keep func(tx *models.Store, call *models.Call) error) (*models.Call, error) {
		return s.calls.Direct(r.ctx, r.customer, r.params["id"], calls.DirectRequest{Actions: list, Mode: mode, InTx: keep})
	})
}

func (s *Server) startCall(r *request) (any, error) {
	return s.commandCall(r, accepted, func(keep func(tx *models.Store, call *models.Call) error) (*models.Call, error) {
		return s.calls.StartCall(r.ctx, r.customer, r.params["id"], keep)
	})
}

func (s *Server) retryCall(r *request) (any, error) {
	return s.commandCall(r, created, func(keep func(tx *models.Store, call *models.Call) error) (*models.Call, error) {
		return s.calls.Retry(r.ctx, r.customer, r.params["id"], keep)
	})
}

// commandCall runs a command to a call and answers with the call as it was when the command was accepted.
func (s *Server) commandCall(r *request, status int, send func(keep func(tx *models.Store, call *models.Call) error) (*models.Call, error)) (any, error) {
	var answer callObject
	call, err := send(func(tx *models.Store, call *models.Call) error {
		answer = toCall(call)
		return r.keep(tx, status, answer)
	})
	if err != nil {
		return nil, orNotFound(err, "call")
	}
	if answer.ID != call.ID {
		answer = toCall(call)
	}
	return answer, nil
}

// ownCall returns a call of the customer's, or 404.
func (s *Server) ownCall(r *request) (*models.Call, error) {
	call, err := s.store.Call(r.ctx, r.customer, r.params["id"])
	if err != nil {
		return nil, orNotFound(err, "call")
	}
	return call, nil
}

// listEvents answers with the journal of a call, oldest first. The cursor is the place in the journal of the last event of a page.
func (s *Server) listEvents(r *request) (any, error) {
	page, err := r.page()
	if err != nil {
		return nil, err
	}
	after := int64(0)
	if page.Cursor != "" {
		if after, err = strconv.ParseInt(page.Cursor, 10, 64); err != nil || after < 0 {
			return nil, models.ErrBadCursor
		}
	}
	call, err := s.ownCall(r)
	if err != nil {
		return nil, err
	}
	rows, err := s.store.CallEventsPage(r.ctx, r.customer, call.ID, after, page.Limit+1)
	if err != nil {
		return nil, err
	}
	next := ""
	if len(rows) > page.Limit {
		rows = rows[:page.Limit]
		next = strconv.FormatInt(rows[len(rows)-1].Sequence, 10)
	}
	return listOf(rows, next, toEvent), nil
}

func (s *Server) listLegs(r *request) (any, error) {
	call, err := s.ownCall(r)
	if err != nil {
		return nil, err
	}
	rows, err := s.store.LegsOfCall(r.ctx, r.customer, call.ID)
	if err != nil {
		return nil, err
	}
	return listOf(rows, "", toLeg), nil
}

func (s *Server) listRecordings(r *request) (any, error) {
	call, err := s.ownCall(r)
	if err != nil {
		return nil, err
	}
	rows, err := s.store.RecordingsOfCall(r.ctx, r.customer, call.ID)
	if err != nil {
		return nil, err
	}
	return listOf(rows, "", toRecording), nil
}

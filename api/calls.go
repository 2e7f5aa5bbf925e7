package api

import (
	"encoding/json"
	"errors"

	"tandem/actions"
	"tandem/calls"
	"tandem/models"
)

// Bounds of a call's timeout: how long it may ring, in seconds.
const (
	minTimeout = 5
	maxTimeout = 600
)

type callCreate struct {
	ApplicationID *string           `json:"application_id" required:"true" doc:"The application that supplies answer_url, webhook_url and the call's behaviour." example:"app_01jd3v5q8n6w4x2y0z9a8b7c6d"`
	From          *string           `json:"from" required:"true" pattern:"^\\+[1-9][0-9]{6,14}$" doc:"Caller's number." example:"+31201234567"`
	To            *string           `json:"to" required:"true" pattern:"^\\+[1-9][0-9]{6,14}$" doc:"Number to call." example:"+31207654321"`
	Record        *bool             `json:"record" doc:"Record the whole call. Default false."`
	Metadata      map[string]string `json:"metadata" doc:"Your own strings, returned with the call: at most 50, names of at most 64 characters, values of at most 1024 bytes."`
	Start         *bool             `json:"start" doc:"false stores the call with status queued, until POST /v1/calls/:id/start. Default true."`
	Queue         *bool             `json:"queue" doc:"true stores the call with status queued where max_calls or max_calls_per_second refuse it now, and dials it by itself when there is room, behind those of the account that wait already. Default false."`
	QueueTimeout  *int              `json:"queue_timeout" minimum:"1" maximum:"86400" doc:"With queue: seconds after which a call that still waits is canceled. Default 3600."`
	Detection     json.RawMessage   `json:"machine_detection" raw:"any" nullable:"true" doc:"Judges whether a human or a machine answers: true for the defaults, or an object with mode, async, timeout and on_machine."`
	Timeout       *int              `json:"timeout" minimum:"5" maximum:"600" doc:"Seconds the call may ring. Default 60."`
	DryRun        *bool             `json:"dry_run" doc:"true makes no call: the answer (200) says by what way it would be dialled, at what price, what would be held, and how long the balance would last."`
}

type callCancel struct{}

// callObject is the contract's Call (section 2.4) with what the contract leaves open.
type callObject struct {
	ID                  string            `json:"id" example:"call_01jd3v5q8n6w4x2y0z9a8b7c6d"`
	CustomerID          string            `json:"customer_id"`
	ApplicationID       string            `json:"application_id"`
	TrunkID             *string           `json:"trunk_id"`
	DIDID               *string           `json:"did_id" doc:"The DID that was called; inbound only."`
	Direction           string            `json:"direction" enum:"outbound,inbound"`
	Status              string            `json:"status" enum:"queued,dialing,ringing,in_progress,completed,busy,no_answer,rejected,canceled,failed" doc:"The first four are live, the others final."`
	From                string            `json:"from" doc:"E.164 number; on inbound calls what the caller showed."`
	To                  string            `json:"to" doc:"E.164 number."`
	Record              bool              `json:"record"`
	RetryOf             *string           `json:"retry_of" doc:"The call that this one repeats."`
	AnsweredBy          *string           `json:"answered_by" doc:"The verdict of machine detection: human, machine or unknown."`
	Metadata            map[string]string `json:"metadata"`
	Variables           map[string]string `json:"variables" doc:"The call's variables, as its actions set them."`
	TimeoutSeconds      int               `json:"timeout"`
	Reason              *string           `json:"reason" doc:"Why the call ended, such as completed, caller_hangup or busy; null while it lives."`
	HangupSource        *string           `json:"hangup_source" doc:"Who ended the call: caller, callee, api, actions, platform or carrier."`
	Cause               *string           `json:"cause" doc:"FreeSWITCH's name of the hangup cause."`
	Q850                *int              `json:"q850" doc:"Q.850 cause code."`
	SIPCode             *int              `json:"sip_code" doc:"Final SIP status of the call's leg, where there was one."`
	PricePerMinuteMicro int64             `json:"price_per_minute_micros" doc:"The price when the call was created, in millionths of the currency's unit."`
	BilledSeconds       int               `json:"billed_seconds"`
	CostMicros          int64             `json:"cost_micros" doc:"What the call cost, in millionths of the currency's unit; final once the call has ended."`
	MaxCallSeconds      *int              `json:"max_call_seconds" doc:"How long the call may last from its answer, by the limits of account, application and trunk; null: as the configuration says."`
	QueueUntil          *string           `json:"queue_until" format:"date-time" doc:"Until when a call with status queued waits for room under the limits; null for one that waits to be started, and for any other."`
	CreatedAt           string            `json:"created_at" format:"date-time"`
	UpdatedAt           string            `json:"updated_at" format:"date-time"`
	RingingAt           *string           `json:"ringing_at" format:"date-time"`
	AnsweredAt          *string           `json:"answered_at" format:"date-time"`
	EndedAt             *string           `json:"ended_at" format:"date-time"`
}

func toCall(call *models.Call) callObject {
	var queueUntil *string
	if call.Status == models.CallQueued {
		queueUntil = stampOrNil(call.QueueUntil)
	}
	return callObject{
		ID: call.ID, CustomerID: call.CustomerID, ApplicationID: call.ApplicationID, TrunkID: call.TrunkID, DIDID: call.DIDID,
		Direction: call.Direction, Status: call.Status, From: call.From, To: call.To, Record: call.Record,
		RetryOf: call.RetryOf, AnsweredBy: orNil(call.AnsweredBy),
		Metadata: orEmpty(call.Metadata), Variables: orEmpty(call.Variables), TimeoutSeconds: call.TimeoutSeconds,
		Reason: orNil(call.Reason), HangupSource: orNil(call.HangupSource), Cause: orNil(call.Cause),
		Q850: orNilNumber(call.Q850), SIPCode: orNilNumber(call.SIPCode),
		PricePerMinuteMicro: call.PricePerMinuteMicros, BilledSeconds: call.BilledSeconds, CostMicros: call.CostMicros,
		MaxCallSeconds: bound(call.MaxSeconds), QueueUntil: queueUntil,
		CreatedAt: stamp(call.CreatedAt), UpdatedAt: stamp(call.UpdatedAt),
		RingingAt: stampOrNil(call.RingingAt), AnsweredAt: stampOrNil(call.AnsweredAt), EndedAt: stampOrNil(call.EndedAt),
	}
}

// orEmpty shows a missing map as {}: clients read members without asking first.
func orEmpty(values map[string]string) map[string]string {
	if values == nil {
		return map[string]string{}
	}
	return values
}

// orNilNumber shows zero, which is neither a SIP status nor a cause that says anything, as null.
func orNilNumber(value int) *int {
	if value == 0 {
		return nil
	}
	return &value
}

func (s *Server) createCall(r *request) (any, error) {
	in := body[callCreate](r)
	c := &checks{}
	c.required("application_id", in.ApplicationID)
	request := calls.CreateRequest{
		CustomerID: r.customer,
		From:       c.number("from", in.From),
		To:         c.number("to", in.To),
		Record:     in.Record != nil && *in.Record,
		Metadata:   c.metadata("metadata", in.Metadata),
		Timeout:    c.between("timeout", in.Timeout, minTimeout, maxTimeout),
		Queued:     in.Start != nil && !*in.Start,
		Overflow:   in.Queue != nil && *in.Queue, QueueTimeout: c.queueTimeout(in.QueueTimeout),
	}
	if err := c.failed(); err != nil {
		return nil, err
	}
	detection, err := actions.ParseMachineDetection(in.Detection)
	if err != nil {
		return nil, actionError("machine_detection", err)
	}
	request.MachineDetection = detection
	if err := ownsApplication(r, s.store, in.ApplicationID); err != nil {
		return nil, err
	}
	request.ApplicationID = *in.ApplicationID
	if in.DryRun != nil && *in.DryRun {
		return s.foresee(r, request)
	}
	var answer callObject
	request.InTx = func(tx *models.Store, call *models.Call) error {
		answer = toCall(call)
		return r.keep(tx, created, answer)
	}
	call, err := s.calls.Create(r.ctx, request)
	if errors.Is(err, models.ErrNotFound) {
		return nil, noApplication() // deleted since it was looked up
	}
	if err != nil {
		return nil, err
	}
	if answer.ID != call.ID {
		answer = toCall(call)
	}
	return answer, nil
}

func (s *Server) listCalls(r *request) (any, error) {
	filter, err := r.callFilter()
	if err != nil {
		return nil, err
	}
	page, err := r.page()
	if err != nil {
		return nil, err
	}
	rows, next, err := s.store.ListCalls(r.ctx, r.customer, filter, page)
	if err != nil {
		return nil, err
	}
	return listOf(rows, next, toCall), nil
}

func (r *request) callFilter() (models.CallFilter, error) {
	c := &checks{}
	filter := models.CallFilter{
		Status:        c.oneOf("status", r.param("status"), callStatuses...),
		Direction:     c.oneOf("direction", r.param("direction"), models.Outbound, models.Inbound),
		From:          plus(c.text("from", r.param("from"), maxNameLength)),
		To:            plus(c.text("to", r.param("to"), maxNameLength)),
		ApplicationID: c.id("application_id", r.param("application_id")),
		TrunkID:       c.id("trunk_id", r.param("trunk_id")),
	}
	if err := c.failed(); err != nil {
		return filter, err
	}
	var err error
	filter.CreatedAfter, filter.CreatedBefore, err = r.created()
	return filter, err
}

// callStatuses are the statuses of DESIGN §6, live ones first.
var callStatuses = []string{
	models.CallQueued, models.CallDialing, models.CallRinging, models.CallInProgress,
	models.CallCompleted, models.CallBusy, models.CallNoAnswer, models.CallRejected, models.CallCanceled, models.CallFailed,
}

func (s *Server) getCall(r *request) (any, error) {
	call, err := s.store.Call(r.ctx, r.customer, r.params["id"])
	if err != nil {
		return nil, orNotFound(err, "call")
	}
	return toCall(call), nil
}

func (s *Server) cancelCall(r *request) (any, error) { return s.cancel(r, r.params["id"]) }

// cancel ends a call of the customer's.
func (s *Server) cancel(r *request, callID string) (any, error) {
	return s.commandCall(r, accepted, func(keep func(tx *models.Store, call *models.Call) error) (*models.Call, error) {
		return s.calls.Cancel(r.ctx, r.customer, callID, keep)
	})
}

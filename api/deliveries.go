package api

import (
	"encoding/json"
	"errors"
	"time"

	"tandem/models"
)

// maxRedeliveries is how many events one request delivers again at most.
const maxRedeliveries = 1000

var deliveryStates = []string{models.DeliveryPending, models.DeliveryDelivered, models.DeliveryDead, models.DeliverySkipped}

var deliveryFilters = append([]param{
	{name: "state", kind: "string", enum: deliveryStates, doc: "dead: given up; skipped: there was no webhook_url."},
	{name: "type", kind: "string", doc: "Kinds of events, separated by commas: names such as call.completed, or families such as call.*."},
	{name: "application_id", kind: "string"},
	{name: "call_id", kind: "string"},
	{name: "created_after", kind: "time", doc: "Only deliveries of events created at or after this time."},
	{name: "created_before", kind: "time", doc: "Only deliveries of events created at or before this time."},
}, paging...)

// deliveryObject is what became of an event that was to be told. Its id is the event's.
type deliveryObject struct {
	ID            string  `json:"id" doc:"The event's id, which its webhook carries as webhook-id." example:"evt_01jd3v5q8n6w4x2y0z9a8b7c6d"`
	Type          string  `json:"type" example:"call.completed"`
	ApplicationID string  `json:"application_id"`
	SubjectID     string  `json:"subject_id" doc:"What the event tells of: a call, a trunk or an application."`
	CallID        *string `json:"call_id" doc:"null where that is no call."`
	Sequence      int64   `json:"sequence" doc:"As in the event."`
	State         string  `json:"state" enum:"pending,delivered,dead,skipped" doc:"pending: still to be delivered; dead: given up; skipped: there was no webhook_url."`
	Redelivered   bool    `json:"redelivered" doc:"Whether it was asked to be delivered again."`
	Attempts      int     `json:"attempt_count"`
	LastStatus    *int    `json:"last_status" doc:"The HTTP status of the last attempt, null where none came."`
	NextAttemptAt *string `json:"next_attempt_at" format:"date-time" doc:"null when it is done, under way, behind an earlier event of its call, or the endpoint is disabled."`
	CreatedAt     string  `json:"created_at" format:"date-time" doc:"When the event happened."`
	DeliveredAt   *string `json:"delivered_at" format:"date-time" doc:"When it was taken last."`
	GivenUpAt     *string `json:"given_up_at" format:"date-time" doc:"When it died or was passed over."`
}

// attemptObject is one request to a webhook_url.
type attemptObject struct {
	Number    int     `json:"number" doc:"Counts from 1, redeliveries included."`
	StartedAt string  `json:"started_at" format:"date-time" doc:"With milliseconds."`
	LatencyMS float64 `json:"latency_ms"`
	Status    *int    `json:"status" doc:"null where no answer came."`
	Error     *string `json:"error" doc:"What went wrong: a reason such as timeout, refused, dns, tls, blocked or status, a colon and the detail; null on success."`
	Response  string  `json:"response" doc:"The first KiB of the answer."`
}

type deliveryWithAttempts struct {
	deliveryObject
	AttemptList []attemptObject `json:"attempts" doc:"Oldest first; those that are older than the operator keeps are gone."`
	Event       json.RawMessage `json:"event" raw:"object" doc:"The body, as it is sent."`
}

type redeliverCreate struct {
	ApplicationID *string `json:"application_id" required:"true" doc:"Whose events."`
	State         *string `json:"state" enum:"dead,skipped" doc:"Which deliveries. Default dead."`
	Type          *string `json:"type" max:"2048" doc:"Kinds of events, separated by commas: names or families."`
	CallID        *string `json:"call_id" doc:"Only events of this call."`
	CreatedAfter  *string `json:"created_after" format:"date-time" doc:"Only events created at or after this time."`
	CreatedBefore *string `json:"created_before" format:"date-time" doc:"Only events created at or before this time."`
	Limit         *int    `json:"limit" minimum:"1" maximum:"1000" doc:"How many at most, oldest first. Default 1000."`
}

type redeliveredObject struct {
	Count   int  `json:"count" doc:"How many are delivered again."`
	HasMore bool `json:"has_more" doc:"Whether more are left, for another request."`
}

func toDelivery(d *models.DeliveryDetail) deliveryObject {
	return deliveryObject{
		ID: d.EventID, Type: d.Type, ApplicationID: d.EndpointID, SubjectID: d.Subject, CallID: orNil(d.CallID), Sequence: d.Sequence,
		State: d.State, Redelivered: d.Told != nil, Attempts: d.Attempts, LastStatus: orNilNumber(d.LastStatus),
		NextAttemptAt: stampOrNil(d.NextAttemptAt), CreatedAt: stamp(d.CreatedAt), DeliveredAt: stampOrNil(d.DeliveredAt), GivenUpAt: stampOrNil(d.GivenUpAt),
	}
}

func toAttempt(a *models.Attempt) attemptObject {
	return attemptObject{
		Number: a.Number, StartedAt: a.StartedAt.UTC().Format("2006-01-02T15:04:05.000Z"), LatencyMS: a.LatencyMS,
		Status: orNilNumber(a.Status), Error: orNil(a.Error), Response: a.Response,
	}
}

func (s *Server) listDeliveries(r *request) (any, error) {
	rows, next, err := s.deliveries(r, r.customer)
	if err != nil {
		return nil, err
	}
	return listOf(rows, next, toDelivery), nil
}

// deliveries finds the deliveries of a customer, or models.AnyCustomer, that a request asks for.
func (s *Server) deliveries(r *request, customer string) ([]models.DeliveryDetail, string, error) {
	page, err := r.page()
	if err != nil {
		return nil, "", err
	}
	c := &checks{}
	filter := models.DeliveryFilter{State: c.oneOf("state", r.param("state"), deliveryStates...)}
	if err := c.failed(); err != nil {
		return nil, "", err
	}
	if filter.EventFilter, err = r.eventFilter(); err != nil {
		return nil, "", err
	}
	return s.store.ListDeliveries(r.ctx, customer, filter, page)
}

func (s *Server) getDelivery(r *request) (any, error) {
	customer, err := s.customerOfEvent(r, r.params["id"])
	if err != nil {
		return nil, err
	}
	found, err := s.store.DeliveryByEvent(r.ctx, customer, r.params["id"])
	if err != nil {
		return nil, orNotFound(err, "delivery")
	}
	event, err := s.store.EventByID(r.ctx, customer, found.EventID)
	if err != nil {
		return nil, orNotFound(err, "delivery")
	}
	attempts, err := s.store.Attempts(r.ctx, found.EventID)
	if err != nil {
		return nil, err
	}
	answer := deliveryWithAttempts{deliveryObject: toDelivery(found), AttemptList: make([]attemptObject, len(attempts)), Event: event.Body}
	for i := range attempts {
		answer.AttemptList[i] = toAttempt(&attempts[i])
	}
	return answer, nil
}

func (s *Server) redeliver(r *request) (any, error) {
	customer, err := s.customerOfEvent(r, r.params["id"])
	if err != nil {
		return nil, err
	}
	var answer deliveryObject
	err = s.store.InTx(r.ctx, func(tx *models.Store) error {
		queued, err := tx.Redeliver(r.ctx, customer, r.params["id"])
		if err != nil {
			return orNotFound(err, "delivery")
		}
		answer = toDelivery(queued)
		return r.keep(tx, accepted, answer)
	})
	return answer, err
}

func (s *Server) redeliverAll(r *request) (any, error) {
	in := body[redeliverCreate](r)
	c := &checks{}
	c.required("application_id", in.ApplicationID)
	filter := models.DeliveryFilter{State: c.oneOf("state", in.State, models.DeliveryDead, models.DeliverySkipped)}
	if filter.State == "" {
		filter.State = models.DeliveryDead
	}
	filter.ApplicationID, filter.CallID = c.id("application_id", in.ApplicationID), c.id("call_id", in.CallID)
	filter.CreatedAfter, filter.CreatedBefore = c.time("created_after", in.CreatedAfter), c.time("created_before", in.CreatedBefore)
	limit := c.between("limit", in.Limit, 1, maxRedeliveries)
	if err := c.failed(); err != nil {
		return nil, err
	}
	if limit == 0 {
		limit = maxRedeliveries
	}
	var err error
	if filter.Types, err = eventTypes(in.Type); err != nil {
		return nil, err
	}
	customer, err := s.customerOfApplication(r, filter.ApplicationID)
	if err != nil {
		return nil, err
	}
	var answer redeliveredObject
	err = s.store.InTx(r.ctx, func(tx *models.Store) error {
		count, more, err := tx.RedeliverAll(r.ctx, customer, filter, limit)
		if errors.Is(err, models.ErrNotFound) {
			return noApplication()
		}
		if err != nil {
			return err
		}
		answer = redeliveredObject{Count: count, HasMore: more}
		return r.keep(tx, accepted, answer)
	})
	return answer, err
}

// time accepts an ISO 8601 timestamp in a body.
func (c *checks) time(field string, value *string) *time.Time {
	if value == nil {
		return nil
	}
	at, err := time.Parse(time.RFC3339, *value)
	if err != nil {
		c.refuse(field, "%s must be a timestamp such as 2026-01-31T12:00:00Z", field)
		return nil
	}
	at = at.UTC()
	return &at
}

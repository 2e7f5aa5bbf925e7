package api

import (
	"encoding/json"
	"net/http"

	"tandem/models"
)

// auditObject is one entry of the audit trail.
type auditObject struct {
	ID         string          `json:"id" example:"aud_01jd3v5q8n6w4x2y0z9a8b7c6d"`
	CreatedAt  string          `json:"created_at" format:"date-time" doc:"When the request came."`
	ActorKind  string          `json:"actor_kind" enum:"operator,api_key,command" doc:"command: somebody ran a command of tandem on the database itself."`
	ActorID    string          `json:"actor_id" doc:"The operator's or the key's id; for command the user and host."`
	ActorName  string          `json:"actor_name" doc:"What the operator or the key was called then."`
	Action     string          `json:"action" doc:"The operationId of the endpoint, or the command." example:"updateTrunk"`
	CustomerID *string         `json:"customer_id" doc:"Whose things were changed, where they are a customer's."`
	ObjectID   *string         `json:"object_id" doc:"What was changed."`
	Detail     json.RawMessage `json:"detail" raw:"object" doc:"What was asked for; secrets are hidden and long values left out."`
	RequestID  *string         `json:"request_id" doc:"Finds the request in the log."`
	Remote     *string         `json:"remote" doc:"The address that the request came from."`
}

func toAudit(e *models.AuditEntry) auditObject {
	detail := e.Detail
	if detail == nil {
		detail = json.RawMessage("{}")
	}
	return auditObject{
		ID: e.ID, CreatedAt: stamp(e.CreatedAt), ActorKind: e.ActorKind, ActorID: e.ActorID, ActorName: e.ActorName, Action: e.Action,
		CustomerID: orNil(e.CustomerID), ObjectID: orNil(e.ObjectID), Detail: detail, RequestID: orNil(e.RequestID), Remote: orNil(e.Remote),
	}
}

var auditFilters = append([]param{
	{name: "actor_kind", kind: "string", enum: []string{models.ActorOperator, models.ActorKey, models.ActorCommand}},
	{name: "actor_id", kind: "string", doc: "The operator, the API key, or user@host."},
	{name: "action", kind: "string", doc: "An operationId, such as updateTrunk."},
	{name: "customer_id", kind: "string"},
	{name: "object_id", kind: "string", doc: "What was changed: an id, or a node's name."},
	{name: "created_after", kind: "time", doc: "Only entries of this time or later."},
	{name: "created_before", kind: "time", doc: "Only entries of this time or earlier."},
}, paging...)

func (s *Server) operatorAuditRoutes() []route {
	return []route{
		{method: http.MethodGet, path: "/operator/v1/audit", id: "listAudit", tag: "audit", summary: "Who changed what, newest first",
			details: "Every request of operators, and of customers but for commands to calls, that changed something; and commands of tandem that changed the database themselves. An entry is written in the transaction of its change.",
			role:    models.RoleViewer, query: auditFilters, status: ok, response: list[auditObject]{}, handle: s.listAudit},
	}
}

func (s *Server) listAudit(r *request) (any, error) {
	page, err := r.page()
	if err != nil {
		return nil, err
	}
	c := &checks{}
	filter := models.AuditFilter{
		ActorKind: c.oneOf("actor_kind", r.param("actor_kind"), models.ActorOperator, models.ActorKey, models.ActorCommand),
		ActorID:   c.text("actor_id", r.param("actor_id"), maxNameLength), Action: c.text("action", r.param("action"), maxNameLength),
		CustomerID: c.id("customer_id", r.param("customer_id")), ObjectID: c.text("object_id", r.param("object_id"), maxNameLength),
	}
	if err := c.failed(); err != nil {
		return nil, err
	}
	if filter.CreatedAfter, filter.CreatedBefore, err = r.created(); err != nil {
		return nil, err
	}
	rows, next, err := s.store.ListAudit(r.ctx, filter, page)
	if err != nil {
		return nil, err
	}
	return listOf(rows, next, toAudit), nil
}

package api

import (
	"encoding/json"
	"net/http"
	"time"

	"tandem/models"
)

// operatorObject describes an operator without the token: its first characters tell which one it is.
type operatorObject struct {
	ID         string  `json:"id" example:"oper_01jd3v5q8n6w4x2y0z9a8b7c6d"`
	Name       string  `json:"name" example:"ana"`
	Role       string  `json:"role" enum:"viewer,operator,admin"`
	Prefix     string  `json:"prefix" doc:"The first characters of the token."`
	CreatedAt  string  `json:"created_at" format:"date-time"`
	ExpiresAt  *string `json:"expires_at" format:"date-time" doc:"When the token stops working; null for never."`
	LastUsedAt *string `json:"last_used_at" format:"date-time" doc:"Exact to the minute."`
	RevokedAt  *string `json:"revoked_at" format:"date-time"`
}

type operatorCreated struct {
	operatorObject
	Token string `json:"token" doc:"Shown this once; save it."`
}

type operatorCreate struct {
	Name      *string `json:"name" required:"true" max:"100" doc:"Who or what the token is for."`
	Role      *string `json:"role" required:"true" enum:"viewer,operator,admin"`
	ExpiresAt *string `json:"expires_at" format:"date-time" doc:"When the token stops working. Default never."`
}

func toOperator(o *models.Operator) operatorObject {
	return operatorObject{
		ID: o.ID, Name: o.Name, Role: o.Role, Prefix: o.Prefix, CreatedAt: stamp(o.CreatedAt),
		ExpiresAt: stampOrNil(o.ExpiresAt), LastUsedAt: stampOrNil(o.LastUsedAt), RevokedAt: stampOrNil(o.RevokedAt),
	}
}

func (s *Server) operatorTokenRoutes() []route {
	return []route{
		{method: http.MethodPost, path: "/operator/v1/operators", id: "createOperator", tag: "operators", summary: "Create an operator with a token",
			details: "The answer holds the token, this once.",
			role:    models.RoleAdmin, request: operatorCreate{}, status: created, response: operatorCreated{}, handle: s.createOperator},
		{method: http.MethodPost, path: "/operator/v1/operators/:id/rotate", id: "rotateOperator", tag: "operators", summary: "Replace an operator's token",
			details: "Makes a new operator of the same name and role with a token; the old token goes on working for grace_seconds. The answer holds the new token, this once.",
			role:    models.RoleAdmin, request: operatorRotate{}, bodyOptional: true, status: created, response: operatorRotated{}, handle: s.rotateOperator,
			codes: []string{codeKeyNotActive}},
		{method: http.MethodGet, path: "/operator/v1/operators", id: "listOperators", tag: "operators", summary: "List operators, newest first, revoked ones too",
			role: models.RoleViewer, query: paging, status: ok, response: list[operatorObject]{}, handle: s.listOperators},
		{method: http.MethodDelete, path: "/operator/v1/operators/:id", id: "revokeOperator", tag: "operators", summary: "Revoke an operator's token, at once",
			role: models.RoleAdmin, status: noContent, handle: s.revokeOperator},
	}
}

func (s *Server) operatorMe(r *request) (any, error) { return toOperator(r.operator), nil }

// operatorOpenapi serves the document, which New has made.
func (s *Server) operatorOpenapi(*request) (any, error) {
	return json.RawMessage(s.operatorDocument), nil
}

func (s *Server) createOperator(r *request) (any, error) {
	in := body[operatorCreate](r)
	c := &checks{}
	operator := &models.Operator{Name: c.name("name", in.Name)}
	c.required("role", in.Role)
	operator.Role = c.oneOf("role", in.Role, models.Roles...)
	operator.ExpiresAt = c.future("expires_at", in.ExpiresAt, s.store.Now())
	if err := c.failed(); err != nil {
		return nil, err
	}
	var answer operatorCreated
	err := s.store.InTx(r.ctx, func(tx *models.Store) error {
		row := *operator
		token, err := tx.CreateOperator(r.ctx, &row)
		if err != nil {
			return err
		}
		answer = operatorCreated{operatorObject: toOperator(&row), Token: token}
		return r.keep(tx, created, answer)
	})
	return answer, err
}

func (s *Server) listOperators(r *request) (any, error) {
	page, err := r.page()
	if err != nil {
		return nil, err
	}
	rows, next, err := s.store.ListOperators(r.ctx, page)
	if err != nil {
		return nil, err
	}
	return listOf(rows, next, toOperator), nil
}

func (s *Server) revokeOperator(r *request) (any, error) {
	_, err := s.store.RevokeOperator(r.ctx, r.params["id"])
	return nil, orNotFound(err, "operator")
}

// future accepts a timestamp that has not come yet.
func (c *checks) future(field string, value *string, now time.Time) *time.Time {
	at := c.time(field, value)
	if at != nil && !at.After(now) {
		c.refuse(field, "%s must lie in the future", field)
		return nil
	}
	return at
}

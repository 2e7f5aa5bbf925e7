package api

import (
	"time"

	"tandem/models"
)

// How long a key or token that is replaced goes on working.
const (
	defaultGraceSeconds = 24 * 60 * 60
	maxGraceSeconds     = 90 * 24 * 60 * 60
)

type keyRotate struct {
	GraceSeconds *int `json:"grace_seconds" minimum:"0" maximum:"7776000" doc:"How long the old key goes on working; 0 revokes it at once. Default 86400, a day."`
}

type keyRotated struct {
	keyCreated
	PreviousID         string `json:"previous_id" doc:"The key that is replaced."`
	PreviousValidUntil string `json:"previous_valid_until" format:"date-time" doc:"From then on the key that is replaced does not work."`
}

type operatorRotate struct {
	GraceSeconds *int    `json:"grace_seconds" minimum:"0" maximum:"7776000" doc:"How long the old token goes on working; 0 revokes it at once. Default 86400, a day."`
	ExpiresAt    *string `json:"expires_at" format:"date-time" doc:"When the new token stops working. Required where the old one has an end, otherwise never by default."`
}

type operatorRotated struct {
	operatorCreated
	PreviousID         string `json:"previous_id" doc:"The operator whose token is replaced."`
	PreviousValidUntil string `json:"previous_valid_until" format:"date-time" doc:"From then on the token that is replaced does not work."`
}

// grace accepts how long what is replaced goes on working.
func (c *checks) grace(value *int) time.Duration {
	if value == nil {
		return defaultGraceSeconds * time.Second
	}
	return time.Duration(c.between("grace_seconds", value, 0, maxGraceSeconds)) * time.Second
}

func (s *Server) rotateCustomerKey(r *request) (any, error) {
	c := &checks{}
	grace := c.grace(body[keyRotate](r).GraceSeconds)
	if err := c.failed(); err != nil {
		return nil, err
	}
	customer, old := r.params["id"], r.params["kid"]
	var answer keyRotated
	err := s.store.InTx(r.ctx, func(tx *models.Store) error {
		key, secret, until, err := tx.RotateAPIKey(r.ctx, customer, old, grace)
		if err != nil {
			return orNotFound(err, "API key")
		}
		answer = keyRotated{keyCreated: keyCreated{keyObject: toKey(key), APIKey: secret}, PreviousID: old, PreviousValidUntil: stamp(until)}
		r.concerns(customer, old)
		r.auditNote("new_id", key.ID)
		return nil
	})
	return answer, err
}

func (s *Server) rotateOperator(r *request) (any, error) {
	in := body[operatorRotate](r)
	c := &checks{}
	grace := c.grace(in.GraceSeconds)
	expires := c.future("expires_at", in.ExpiresAt, s.store.Now())
	if err := c.failed(); err != nil {
		return nil, err
	}
	var answer operatorRotated
	err := s.store.InTx(r.ctx, func(tx *models.Store) error {
		old, err := tx.Operator(r.ctx, r.params["id"])
		if err != nil {
			return orNotFound(err, "operator")
		}
		if old.ExpiresAt != nil && expires == nil {
			return invalid("expires_at", "expires_at is required: the token that is replaced has an end, too, %s", stamp(*old.ExpiresAt))
		}
		operator, token, until, err := tx.RotateOperator(r.ctx, old.ID, expires, grace)
		if err != nil {
			return err
		}
		answer = operatorRotated{
			operatorCreated: operatorCreated{operatorObject: toOperator(operator), Token: token}, PreviousID: old.ID, PreviousValidUntil: stamp(until),
		}
		r.auditNote("new_id", operator.ID)
		return nil
	})
	return answer, err
}

package api

import (
	"context"
	"fmt"
	"net/http"

	"tandem/models"
	"tandem/numbering"
)

// Bounds of what a customer may be limited to; docs/operator-api.md lists them.
const (
	minRequestsPerMinute = 10
	maxRequestsPerMinute = 1_000_000
)

// limitsUpdate are the fields of a request that bound what a customer may do.
type limitsUpdate struct {
	callLimits
	RequestsPerMinute *int `json:"requests_per_minute" nullable:"true" minimum:"10" maximum:"1000000" doc:"How many requests each API key may make. null: as the configuration says."`
}

// limitsObject are the limits of a customer as operators, and the customer, see them.
type limitsObject struct {
	callBounds
	RequestsPerMinute *int `json:"requests_per_minute" doc:"How many requests each API key may make; null: as the configuration says."`
}

func toLimits(l *models.CustomerLimits) limitsObject {
	object := limitsObject{toCallBounds(&l.CallLimits), bound(l.RequestsPerMinute)}
	if object.AllowedTypes == nil {
		object.AllowedTypes = &[]string{} // a customer has nobody whose types it might have
	}
	return object
}

// customerLimits changes what the request names.
func (c *checks) customerLimits(in *limitsUpdate, given fieldSet, to *models.CustomerLimits) {
	c.callLimits(&in.callLimits, given, &to.CallLimits)
	if given.has("requests_per_minute") {
		to.RequestsPerMinute = c.between("requests_per_minute", in.RequestsPerMinute, minRequestsPerMinute, maxRequestsPerMinute)
	}
}

func (s *Server) operatorLimitRoutes() []route {
	return []route{
		{method: http.MethodGet, path: "/operator/v1/customers/:id/limits", id: "getCustomerLimits", tag: "customers", summary: "Get the limits of a customer",
			role: models.RoleViewer, status: ok, response: limitsObject{}, handle: s.getCustomerLimits},
		{method: http.MethodPatch, path: "/operator/v1/customers/:id/limits", id: "updateCustomerLimits", tag: "customers", summary: "Change the limits of a customer",
			details: "They count for what begins from then on: calls that live are not cut.",
			role:    models.RoleAdmin, request: limitsUpdate{}, status: ok, response: limitsObject{}, handle: s.updateCustomerLimits},
	}
}

func (s *Server) getCustomerLimits(r *request) (any, error) {
	limits, err := s.store.LimitsOf(r.ctx, r.params["id"])
	if err != nil {
		return nil, orNotFound(err, "customer")
	}
	return toLimits(&limits), nil
}

func (s *Server) updateCustomerLimits(r *request) (any, error) {
	in := body[limitsUpdate](r)
	var answer limitsObject
	err := s.store.InTx(r.ctx, func(tx *models.Store) error {
		customer, err := tx.EditCustomer(r.ctx, r.params["id"])
		if err != nil {
			return orNotFound(err, "customer")
		}
		c := &checks{}
		c.customerLimits(in, r.given, &customer.Limits)
		if err := c.failed(); err != nil {
			return err
		}
		if err := tx.SetLimits(r.ctx, customer); err != nil {
			return err
		}
		answer = toLimits(&customer.Limits)
		r.concerns(customer.ID, customer.ID)
		return nil
	})
	return answer, err
}

// notAllowed refuses a destination by the limits of the account.
func notAllowed(field, why string) *Error {
	return &Error{Code: codeDestination, Field: field, Message: "your account may not call there (" + why + "): see limits in GET /v1/me"}
}

// mayCall refuses a number, or a SIP URI where that is empty, that the limits of a customer do not allow.
func mayCall(ctx context.Context, store *models.Store, customerID, field, number, uri string) error {
	limits, err := store.LimitsOf(ctx, customerID)
	if err != nil {
		return fmt.Errorf("read the limits: %w", err)
	}
	policy := numbering.Policy{Allow: limits.AllowedDestinations, Deny: limits.DeniedDestinations, Types: limits.AllowedDestinationTypes}
	verdict := policy.Number(number)
	if number == "" {
		verdict = policy.SIP(uri)
	}
	if !verdict.Allowed {
		return notAllowed(field, verdict.String())
	}
	return nil
}

package api

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"tandem/models"
	"tandem/numbering"
)

// Bounds of what a customer may be limited to; docs/operator-api.md lists them.
const (
	maxCustomerCalls          = 1_000_000
	maxCustomerCallsPerSecond = 10_000
	minRequestsPerMinute      = 10
	maxRequestsPerMinute      = 1_000_000
)

// limitsUpdate are the fields of a request that bound what a customer may do.
type limitsUpdate struct {
	MaxCalls            *int     `json:"max_calls" nullable:"true" minimum:"1" maximum:"1000000" doc:"How many calls of both directions, and parties that they have dialled, may live at a time. null: any number."`
	MaxCallsPerSecond   *int     `json:"max_calls_per_second" nullable:"true" minimum:"1" maximum:"10000" doc:"How many outbound calls and dialled parties may begin in any one second. null: any number."`
	AllowedDestinations []string `json:"allowed_destinations" nullable:"true" doc:"Where calls may go: prefixes (+44), countries (US), sip:HOST, sip:* and *. null: everywhere; []: nowhere."`
	DeniedDestinations  []string `json:"denied_destinations" nullable:"true" doc:"Where they may not go all the same, in the same words. The longest entry of both lists counts, of two as long this one."`
	AllowedTypes        []string `json:"allowed_destination_types" nullable:"true" doc:"Which numbers may be called of those that cost more: premium, satellite and shared_cost. A number of another of these types is refused, whatever else is allowed. null and []: none."`
	RequestsPerMinute   *int     `json:"requests_per_minute" nullable:"true" minimum:"10" maximum:"1000000" doc:"How many requests each API key may make. null: as the configuration says."`
	dailyLimits
}

// limitsObject are the limits of a customer as operators, and the customer, see them.
type limitsObject struct {
	MaxCalls            *int      `json:"max_calls" doc:"How many calls of both directions, and parties that they have dialled, may live at a time; null: any number."`
	MaxCallsPerSecond   *int      `json:"max_calls_per_second" doc:"How many outbound calls and dialled parties may begin in any one second; null: any number."`
	AllowedDestinations *[]string `json:"allowed_destinations" doc:"Where calls may go; null: everywhere."`
	DeniedDestinations  []string  `json:"denied_destinations" doc:"Where they may not go all the same."`
	AllowedTypes        []string  `json:"allowed_destination_types" doc:"Which numbers may be called of those that cost more: premium, satellite, shared_cost."`
	RequestsPerMinute   *int      `json:"requests_per_minute" doc:"How many requests each API key may make; null: as the configuration says."`
	dailyBounds
}

func toLimits(l *models.CustomerLimits) limitsObject {
	var allowed *[]string
	if l.AllowedDestinations != nil {
		allowed = &l.AllowedDestinations
	}
	return limitsObject{
		MaxCalls: bound(l.MaxCalls), MaxCallsPerSecond: bound(l.MaxCallsPerSecond), AllowedDestinations: allowed,
		DeniedDestinations: append([]string{}, l.DeniedDestinations...), AllowedTypes: append([]string{}, l.AllowedDestinationTypes...),
		RequestsPerMinute: bound(l.RequestsPerMinute), dailyBounds: toDaily(&l.DailyLimits),
	}
}

// customerLimits changes what the request names.
func (c *checks) customerLimits(in *limitsUpdate, given fieldSet, to *models.CustomerLimits) {
	if given.has("max_calls") {
		to.MaxCalls = c.between("max_calls", in.MaxCalls, 1, maxCustomerCalls)
	}
	if given.has("max_calls_per_second") {
		to.MaxCallsPerSecond = c.between("max_calls_per_second", in.MaxCallsPerSecond, 1, maxCustomerCallsPerSecond)
	}
	if given.has("allowed_destinations") {
		to.AllowedDestinations = c.destinations("allowed_destinations", in.AllowedDestinations, given["allowed_destinations"])
	}
	if given.has("denied_destinations") {
		to.DeniedDestinations = c.destinations("denied_destinations", in.DeniedDestinations, given["denied_destinations"])
	}
	if given.has("allowed_destination_types") {
		to.AllowedDestinationTypes = c.destinationTypes(in.AllowedTypes)
	}
	c.daily(&in.dailyLimits, given, &to.DailyLimits)
	if given.has("requests_per_minute") {
		to.RequestsPerMinute = c.between("requests_per_minute", in.RequestsPerMinute, minRequestsPerMinute, maxRequestsPerMinute)
	}
}

// destinations accepts the entries of a numbering.Policy, nil for null.
func (c *checks) destinations(field string, list []string, valued bool) []string {
	if !valued {
		return nil
	}
	if len(list) > numbering.MaxEntries {
		c.refuse(field, "%s must hold at most %d entries", field, numbering.MaxEntries)
		return nil
	}
	normal := make([]string, len(list))
	for i := range list {
		var err error
		if normal[i], err = numbering.ParseEntry(list[i]); err != nil {
			place := fmt.Sprintf("%s[%d]", field, i)
			c.refuse(place, "%s %s", place, err)
			return nil
		}
	}
	return normal
}

// destinationTypes accepts types of numbers, each once.
func (c *checks) destinationTypes(list []string) []string {
	for i, kind := range list {
		if !slices.Contains(numbering.Types, kind) || slices.Contains(list[:i], kind) {
			place := fmt.Sprintf("allowed_destination_types[%d]", i)
			c.refuse(place, "%s must be one of %s, each once", place, strings.Join(numbering.Types, ", "))
			return nil
		}
	}
	return list
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

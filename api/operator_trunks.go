package api

import (
	"errors"
	"net/http"

	"tandem/models"
)

// gatewayObject is what one node says of a trunk's gateway.
type gatewayObject struct {
	Node      string  `json:"node" doc:"The name of the node."`
	State     string  `json:"state" doc:"As the switch spells it: REGED, TRYING, FAIL_WAIT, NOREG, …" example:"REGED"`
	Status    string  `json:"status" doc:"UP or DOWN, by OPTIONS pings." example:"UP"`
	PingMS    float64 `json:"ping_ms" doc:"Round trip of the last ping."`
	UpdatedAt string  `json:"updated_at" format:"date-time"`
}

// operatorTrunk is a trunk as operators see one: customers are not shown decks.
type operatorTrunk struct {
	trunkObject
	RateDeckID *string `json:"rate_deck_id" doc:"The rate deck of what goes over the trunk; null: that of the customer."`
}

// trunkDetail is a trunk with what the nodes say.
type trunkDetail struct {
	operatorTrunk
	Gateways []gatewayObject `json:"gateways" doc:"What each node says of it; empty for an inbound trunk, and while no node reports."`
}

var operatorTrunkFilters = append([]param{
	{name: "customer_id", kind: "string"},
	{name: "direction", kind: "string", enum: []string{models.Outbound, models.Inbound}},
	{name: "gateway_name", kind: "string"},
	{name: "active", kind: "string", enum: []string{"true", "false"}},
}, paging...)

func (s *Server) operatorTrunkRoutes() []route {
	return []route{
		{method: http.MethodGet, path: "/operator/v1/trunks", id: "findTrunks", tag: "trunks", summary: "List the trunks of all customers, newest first",
			role: models.RoleViewer, query: operatorTrunkFilters, status: ok, response: list[operatorTrunk]{}, handle: s.findTrunks},
		{method: http.MethodPost, path: "/operator/v1/trunks", id: "createCustomerTrunk", tag: "trunks", summary: "Create a trunk of a customer",
			details: "As POST /v1/trunks, with the customer_id beside its fields: with proxy it is outbound, with inbound_ip inbound.",
			role:    models.RoleOperator, request: customerTrunkCreate{}, status: created, response: operatorTrunk{}, handle: s.createCustomerTrunk,
			codes: []string{codeGatewayNameExists, codeInboundIPExists, codeNotFound}},
		{method: http.MethodGet, path: "/operator/v1/trunks/:id", id: "findTrunk", tag: "trunks", summary: "Get a trunk with what each node says of it",
			role: models.RoleViewer, status: ok, response: trunkDetail{}, handle: s.findTrunk},
		{method: http.MethodPatch, path: "/operator/v1/trunks/:id", id: "switchTrunk", tag: "trunks", summary: "Take a trunk out of use, or back into it",
			details: "Live calls go on. Everything else of a trunk is its customer's to change.",
			role:    models.RoleOperator, request: trunkSwitchUpdate{}, status: ok, response: trunkDetail{}, handle: s.switchTrunk},
	}
}

type customerTrunkCreate struct {
	CustomerID *string `json:"customer_id" required:"true" doc:"Whose trunk it is to be."`
	trunkCreate
}

func (s *Server) createCustomerTrunk(r *request) (any, error) {
	in := body[customerTrunkCreate](r)
	c := &checks{}
	c.required("customer_id", in.CustomerID)
	customer := c.id("customer_id", in.CustomerID)
	if err := c.failed(); err != nil {
		return nil, err
	}
	_, err := s.store.Customer(r.ctx, customer)
	if errors.Is(err, models.ErrNotFound) {
		return nil, &Error{Code: codeNotFound, Field: "customer_id", Message: "customer_id names no customer"}
	}
	if err != nil {
		return nil, err
	}
	r.customer = customer
	r.concerns(customer, "") // what was made, makeTrunk says
	made, err := s.makeTrunk(r, &in.trunkCreate)
	if problem, ok := errors.AsType[*Error](err); ok && problem.Code == codeNotFound && problem.Field == "application_id" {
		return nil, &Error{Code: codeNotFound, Field: problem.Field, Message: "application_id names no application of the customer"}
	}
	if err != nil {
		return nil, err
	}
	return operatorTrunk{trunkObject: made}, nil // a new trunk has no deck
}

type trunkSwitchUpdate struct {
	IsActive *bool `json:"is_active" required:"true" doc:"Whether calls go through it: false unloads its gateway, or refuses its addresses."`
}

func (s *Server) switchTrunk(r *request) (any, error) {
	active := body[trunkSwitchUpdate](r).IsActive
	if active == nil {
		return nil, invalid("is_active", "is_active is required")
	}
	err := s.store.InTx(r.ctx, func(tx *models.Store) error {
		found, err := tx.TrunkByID(r.ctx, r.params["id"])
		if err != nil {
			return orNotFound(err, "trunk")
		}
		trunk, err := tx.EditTrunk(r.ctx, found.CustomerID, found.ID)
		if err != nil {
			return orNotFound(err, "trunk")
		}
		trunk.IsActive = *active
		if err := tx.UpdateTrunk(r.ctx, trunk); err != nil {
			return err
		}
		r.concerns(trunk.CustomerID, trunk.ID)
		return nil
	})
	if err != nil {
		return nil, err
	}
	s.dialplanChanged()
	return s.findTrunk(r)
}

// ofCustomer is the customer that a request is narrowed to, or all of them.
func (c *checks) ofCustomer(r *request) string {
	if customer := c.id("customer_id", r.param("customer_id")); customer != "" {
		return customer
	}
	return models.AnyCustomer
}

func (s *Server) findTrunks(r *request) (any, error) {
	page, err := r.page()
	if err != nil {
		return nil, err
	}
	c := &checks{}
	customer := c.ofCustomer(r)
	filter := models.TrunkFilter{
		Direction: c.oneOf("direction", r.param("direction"), models.Outbound, models.Inbound), GatewayName: c.gatewayName("gateway_name", r.param("gateway_name")),
	}
	if active := c.oneOf("active", r.param("active"), "true", "false"); active != "" {
		is := active == "true"
		filter.Active = &is
	}
	if err := c.failed(); err != nil {
		return nil, err
	}
	rows, next, err := s.store.FindTrunks(r.ctx, customer, filter, page)
	if err != nil {
		return nil, err
	}
	shown := listOf(rows, next, toTrunk)
	if err := s.withStatus(r, shown.Data); err != nil {
		return nil, err
	}
	answer := list[operatorTrunk]{Data: make([]operatorTrunk, len(rows)), Count: shown.Count, HasMore: shown.HasMore, NextCursor: shown.NextCursor}
	for i := range rows {
		answer.Data[i] = operatorTrunk{trunkObject: shown.Data[i], RateDeckID: orNil(rows[i].RateDeckID)}
	}
	return answer, nil
}

func (s *Server) findTrunk(r *request) (any, error) {
	trunk, err := s.store.TrunkByID(r.ctx, r.params["id"])
	if err != nil {
		return nil, orNotFound(err, "trunk")
	}
	if trunk.DeletedAt != nil {
		return nil, notFound("trunk")
	}
	shown := []trunkObject{toTrunk(trunk)}
	if err := s.withStatus(r, shown); err != nil {
		return nil, err
	}
	reports, err := s.store.GatewayStatusesOf(r.ctx, trunk.ID)
	if err != nil {
		return nil, err
	}
	nodes, err := s.nodeNames(r)
	if err != nil {
		return nil, err
	}
	detail := trunkDetail{operatorTrunk: operatorTrunk{trunkObject: shown[0], RateDeckID: orNil(trunk.RateDeckID)}, Gateways: []gatewayObject{}}
	for _, report := range reports {
		detail.Gateways = append(detail.Gateways, gatewayObject{
			Node: nodes[report.NodeID], State: report.State, Status: report.Status, PingMS: report.PingMS, UpdatedAt: stamp(report.UpdatedAt),
		})
	}
	return detail, nil
}

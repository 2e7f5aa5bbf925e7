package api

import (
	"net/http"

	"tandem/models"
)

// callDetail is a call as operators see one: with the node that carries it and its channel there.
type callDetail struct {
	callObject
	NodeID         *string `json:"node_id" doc:"The node that carries it; null before it has one."`
	NodeName       *string `json:"node_name"`
	ChannelID      *string `json:"channel_id" doc:"The UUID of its channel on the node."`
	HoldMicros     int64   `json:"hold_micros" doc:"What is reserved of the balance for it, or was."`
	GrantedSeconds int     `json:"granted_seconds" doc:"After how long the switch ends it."`
	SettledAt      *string `json:"settled_at" format:"date-time" doc:"When it was charged."`
}

func toCallDetail(call *models.Call, nodes map[string]string) callDetail {
	detail := callDetail{
		callObject: toCall(call), NodeID: call.NodeID, ChannelID: orNil(call.ChannelID), HoldMicros: call.HoldMicros,
		GrantedSeconds: call.GrantedSeconds, SettledAt: stampOrNil(call.SettledAt),
	}
	if call.NodeID != nil {
		detail.NodeName = orNil(nodes[*call.NodeID])
	}
	return detail
}

// States that calls are chosen by.
const (
	stateLive  = "live"
	stateEnded = "ended"
)

var operatorCallFilters = append([]param{
	{name: "state", kind: "string", enum: []string{stateLive, stateEnded}},
	{name: "customer_id", kind: "string"},
	{name: "node", kind: "string", doc: "The name of the node that carries them."},
}, callFilters...)

func (s *Server) operatorCallRoutes() []route {
	return []route{
		{method: http.MethodGet, path: "/operator/v1/calls", id: "findCalls", tag: "calls", summary: "List the calls of all customers, newest first",
			details: "Narrow what is ended by created_after: among millions of calls, a number is looked for one call after the other.",
			role:    models.RoleViewer, query: operatorCallFilters, status: ok, response: list[callDetail]{}, handle: s.findCalls,
			codes: []string{codeNotFound}},
		{method: http.MethodGet, path: "/operator/v1/calls/:id", id: "findCall", tag: "calls", summary: "Get a call",
			role: models.RoleViewer, status: ok, response: callDetail{}, handle: s.findCall},
		{method: http.MethodGet, path: "/operator/v1/calls/:id/trace", id: "traceCall", tag: "calls", summary: "The story of a call, in order",
			details: "SIP as the switch's record tells it, the call's states and legs, what the application was asked, actions, webhooks and money, while the call lives and afterwards. " +
				"What is older than the operator keeps is gone.",
			role: models.RoleViewer, status: ok, response: storyObject{}, handle: s.traceCall},
		{method: http.MethodPost, path: "/operator/v1/calls/:id/hangup", id: "hangupCall", tag: "calls", summary: "End a call in any live state",
			details: "Accepted, not yet done: the call's final event tells when it has ended.",
			role:    models.RoleOperator, request: emptyCreate{}, bodyOptional: true, status: accepted, response: callDetail{}, handle: s.hangupCall,
			codes: []string{codeCallNotActive, codeNoNodeAvailable}},
	}
}

func (s *Server) findCalls(r *request) (any, error) {
	page, err := r.page()
	if err != nil {
		return nil, err
	}
	var filter models.OperatorCallFilter
	if filter.CallFilter, err = r.callFilter(); err != nil {
		return nil, err
	}
	c := &checks{}
	filter.CustomerID = c.id("customer_id", r.param("customer_id"))
	state := c.oneOf("state", r.param("state"), stateLive, stateEnded)
	filter.Live, filter.Ended = state == stateLive, state == stateEnded
	node := c.text("node", r.param("node"), maxNameLength)
	if err := c.failed(); err != nil {
		return nil, err
	}
	if node != "" {
		found, err := s.store.NodeByName(r.ctx, node)
		if err != nil {
			return nil, orNotFound(err, "node")
		}
		filter.NodeID = found.ID
	}
	rows, next, err := s.store.FindCalls(r.ctx, filter, page)
	if err != nil {
		return nil, err
	}
	nodes, err := s.nodeNames(r)
	if err != nil {
		return nil, err
	}
	return listOf(rows, next, func(call *models.Call) callDetail { return toCallDetail(call, nodes) }), nil
}

// nodeNames returns the names of the nodes, by their ids.
func (s *Server) nodeNames(r *request) (map[string]string, error) {
	nodes, err := s.store.Nodes(r.ctx)
	if err != nil {
		return nil, err
	}
	names := make(map[string]string, len(nodes))
	for i := range nodes {
		names[nodes[i].ID] = nodes[i].Name
	}
	return names, nil
}

func (s *Server) findCall(r *request) (any, error) {
	call, err := s.store.CallByID(r.ctx, r.params["id"])
	if err != nil {
		return nil, orNotFound(err, "call")
	}
	return s.callDetail(r, call)
}

func (s *Server) callDetail(r *request, call *models.Call) (any, error) {
	nodes, err := s.nodeNames(r)
	if err != nil {
		return nil, err
	}
	return toCallDetail(call, nodes), nil
}

func (s *Server) hangupCall(r *request) (any, error) {
	call, err := s.store.CallByID(r.ctx, r.params["id"])
	if err != nil {
		return nil, orNotFound(err, "call")
	}
	r.concerns(call.CustomerID, call.ID)
	r.audit.Later = true // until it is accepted
	canceled, err := s.calls.Cancel(r.ctx, call.CustomerID, call.ID, func(*models.Store, *models.Call) error {
		r.audit.Later = false
		return nil
	})
	if err != nil {
		return nil, orNotFound(err, "call")
	}
	return s.callDetail(r, canceled)
}

package api

import (
	"net/http"

	"tandem/models"
)

var operatorEventFilters = append([]param{{name: "customer_id", kind: "string"}}, eventFilters...)

func (s *Server) operatorEventRoutes() []route {
	return []route{
		{method: http.MethodGet, path: "/operator/v1/events", id: "findEvents", tag: "events", summary: "Read the journal of all customers, oldest first",
			details: "next_cursor is there on the last page too: it reads on with what happens next. cursor now begins with that.",
			role:    models.RoleViewer, query: operatorEventFilters, status: ok, response: list[eventObject]{}, handle: s.findEvents},
	}
}

func (s *Server) findEvents(r *request) (any, error) {
	c := &checks{}
	customer := c.ofCustomer(r)
	if err := c.failed(); err != nil {
		return nil, err
	}
	return s.journal(r, customer)
}

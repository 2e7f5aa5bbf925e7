package api

import (
	"net/http"

	"tandem/models"
)

// customerDelivery is a delivery as operators see one.
type customerDelivery struct {
	deliveryObject
	CustomerID string `json:"customer_id"`
}

func toCustomerDelivery(d *models.DeliveryDetail) customerDelivery {
	return customerDelivery{deliveryObject: toDelivery(d), CustomerID: d.CustomerID}
}

var operatorDeliveryFilters = append([]param{{name: "customer_id", kind: "string"}}, deliveryFilters...)

func (s *Server) operatorWebhookRoutes() []route {
	return []route{
		{method: http.MethodGet, path: "/operator/v1/webhook-deliveries", id: "findDeliveries", tag: "webhooks", summary: "List deliveries of events of all customers, those of the newest events first",
			role: models.RoleViewer, query: operatorDeliveryFilters, status: ok, response: list[customerDelivery]{}, handle: s.findDeliveries},
		{method: http.MethodPost, path: "/operator/v1/webhook-deliveries/redeliver", id: "redeliverCustomerEvents", tag: "webhooks", summary: "Deliver the dead events of an application again",
			details: "At most 1000 in one request, oldest first; has_more says whether to ask again.",
			role:    models.RoleOperator, request: redeliverCreate{}, status: accepted, response: redeliveredObject{}, handle: s.redeliverAll,
			codes: []string{codeNotFound, codeEndpointDisabled, codeNoWebhookURL}},
		{method: http.MethodGet, path: "/operator/v1/webhook-deliveries/:id", id: "findDelivery", tag: "webhooks", summary: "Get the delivery of an event, with every attempt",
			role: models.RoleViewer, status: ok, response: deliveryWithAttempts{}, handle: s.getDelivery},
		{method: http.MethodPost, path: "/operator/v1/webhook-deliveries/:id/redeliver", id: "redeliverCustomerEvent", tag: "webhooks", summary: "Deliver an event again, under the same id",
			role: models.RoleOperator, request: emptyCreate{}, bodyOptional: true, status: accepted, response: deliveryObject{}, handle: s.redeliver,
			codes: []string{codeDeliveryPending, codeEndpointDisabled, codeNoWebhookURL}},
	}
}

func (s *Server) findDeliveries(r *request) (any, error) {
	c := &checks{}
	customer := c.ofCustomer(r)
	if err := c.failed(); err != nil {
		return nil, err
	}
	rows, next, err := s.deliveries(r, customer)
	if err != nil {
		return nil, err
	}
	return listOf(rows, next, toCustomerDelivery), nil
}

// customerOfEvent is whose an event is: the key's customer, or, for an operator, the event's.
func (s *Server) customerOfEvent(r *request, eventID string) (string, error) {
	if r.operator == nil {
		return r.customer, nil
	}
	event, err := s.store.EventByID(r.ctx, models.AnyCustomer, eventID)
	if err != nil {
		return "", orNotFound(err, "delivery")
	}
	r.concerns(event.CustomerID, event.ID)
	return event.CustomerID, nil
}

// customerOfApplication is whose an application is: the key's customer, or, for an operator, the application's.
func (s *Server) customerOfApplication(r *request, applicationID string) (string, error) {
	if r.operator == nil {
		r.concerns(r.customer, applicationID)
		return r.customer, nil
	}
	app, err := s.store.ApplicationByID(r.ctx, applicationID)
	if err != nil {
		return "", orNotFound(err, "application")
	}
	r.concerns(app.CustomerID, app.ID)
	return app.CustomerID, nil
}

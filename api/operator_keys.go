package api

import (
	"net/http"

	"tandem/models"
)

type customerKeyCreate struct {
	Name          *string `json:"name" required:"true" max:"100" doc:"What the key is for." example:"staging server"`
	ApplicationID *string `json:"application_id" doc:"The application that the key belongs to. Default: none."`
}

func (s *Server) operatorKeyRoutes() []route {
	return []route{
		{method: http.MethodPost, path: "/operator/v1/customers/:id/api-keys", id: "createCustomerKey", tag: "keys", summary: "Create an API key of a customer",
			details: "The answer holds the key, this once.",
			role:    models.RoleAdmin, request: customerKeyCreate{}, status: created, response: keyCreated{}, handle: s.createCustomerKey},
		{method: http.MethodPost, path: "/operator/v1/customers/:id/api-keys/:kid/rotate", id: "rotateCustomerKey", tag: "keys", summary: "Replace an API key",
			details: "Makes a new key of the same name and application; the old one goes on working for grace_seconds. The answer holds the new key, this once.",
			role:    models.RoleAdmin, request: keyRotate{}, bodyOptional: true, status: created, response: keyRotated{}, handle: s.rotateCustomerKey,
			codes: []string{codeKeyNotActive}},
		{method: http.MethodGet, path: "/operator/v1/customers/:id/api-keys", id: "listCustomerKeys", tag: "keys", summary: "List a customer's API keys, revoked ones too",
			role: models.RoleViewer, status: ok, response: list[keyObject]{}, handle: s.listCustomerKeys},
		{method: http.MethodDelete, path: "/operator/v1/customers/:id/api-keys/:kid", id: "revokeCustomerKey", tag: "keys", summary: "Revoke an API key, at once",
			role: models.RoleAdmin, status: noContent, handle: s.revokeCustomerKey},
	}
}

func (s *Server) createCustomerKey(r *request) (any, error) {
	in := body[customerKeyCreate](r)
	c := &checks{}
	key := models.APIKey{CustomerID: r.params["id"], Name: c.name("name", in.Name)}
	if application := c.id("application_id", in.ApplicationID); application != "" {
		key.ApplicationID = &application
	}
	if err := c.failed(); err != nil {
		return nil, err
	}
	var answer keyCreated
	err := s.store.InTx(r.ctx, func(tx *models.Store) error {
		if _, err := tx.Customer(r.ctx, key.CustomerID); err != nil {
			return orNotFound(err, "customer")
		}
		if key.ApplicationID != nil {
			if _, err := tx.Application(r.ctx, key.CustomerID, *key.ApplicationID); err != nil {
				return orNotFound(err, "application")
			}
		}
		row := key
		secret, err := tx.CreateAPIKey(r.ctx, &row, "")
		if err != nil {
			return err
		}
		answer = keyCreated{keyObject: toKey(&row), APIKey: secret}
		r.concerns(row.CustomerID, row.ID)
		return nil
	})
	return answer, err
}

func (s *Server) listCustomerKeys(r *request) (any, error) {
	if _, err := s.store.Customer(r.ctx, r.params["id"]); err != nil {
		return nil, orNotFound(err, "customer")
	}
	keys, err := s.store.ListAPIKeys(r.ctx, r.params["id"], "")
	if err != nil {
		return nil, err
	}
	return listOf(keys, "", toKey), nil
}

func (s *Server) revokeCustomerKey(r *request) (any, error) {
	r.concerns(r.params["id"], r.params["kid"])
	return nil, orNotFound(s.store.RevokeAPIKey(r.ctx, r.params["id"], "", r.params["kid"]), "API key")
}

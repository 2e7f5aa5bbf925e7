package api

import "tandem/models"

type keyCreate struct {
	Name *string `json:"name" max:"100" doc:"What the key is for." example:"staging server"`
}

// keyObject describes a key without the secret: its first characters tell which one it is.
type keyObject struct {
	ID            string  `json:"id" example:"key_01jd3v5q8n6w4x2y0z9a8b7c6d"`
	ApplicationID *string `json:"application_id"`
	Name          string  `json:"name"`
	Prefix        string  `json:"prefix" doc:"The first characters of the secret."`
	CreatedAt     string  `json:"created_at" format:"date-time"`
	LastUsedAt    *string `json:"last_used_at" format:"date-time"`
	ExpiresAt     *string `json:"expires_at" format:"date-time" doc:"When a key that was rotated stops working; null for never."`
	RevokedAt     *string `json:"revoked_at" format:"date-time"`
}

type keyCreated struct {
	keyObject
	APIKey string `json:"api_key" doc:"The bearer secret. Shown this once; save it."`
}

func toKey(k *models.APIKey) keyObject {
	return keyObject{
		ID: k.ID, ApplicationID: k.ApplicationID, Name: k.Name, Prefix: k.Prefix,
		CreatedAt: stamp(k.CreatedAt), LastUsedAt: stampOrNil(k.LastUsedAt), ExpiresAt: stampOrNil(k.ExpiresAt), RevokedAt: stampOrNil(k.RevokedAt),
	}
}

func (s *Server) createKey(r *request) (any, error) {
	c := &checks{}
	name := c.text("name", body[keyCreate](r).Name, maxNameLength)
	if err := c.failed(); err != nil {
		return nil, err
	}
	var answer keyCreated
	err := s.store.InTx(r.ctx, func(tx *models.Store) error {
		app, err := tx.Application(r.ctx, r.customer, r.params["id"])
		if err != nil {
			return orNotFound(err, "application")
		}
		key := &models.APIKey{CustomerID: r.customer, ApplicationID: &app.ID, Name: name}
		secret, err := tx.CreateAPIKey(r.ctx, key, "")
		if err != nil {
			return err
		}
		answer = keyCreated{keyObject: toKey(key), APIKey: secret}
		return r.keep(tx, created, answer)
	})
	return answer, err
}

func (s *Server) listKeys(r *request) (any, error) {
	if _, err := s.store.Application(r.ctx, r.customer, r.params["id"]); err != nil {
		return nil, orNotFound(err, "application")
	}
	keys, err := s.store.ListAPIKeys(r.ctx, r.customer, r.params["id"])
	if err != nil {
		return nil, err
	}
	return listOf(keys, "", toKey), nil
}

func (s *Server) revokeKey(r *request) (any, error) {
	err := s.store.RevokeAPIKey(r.ctx, r.customer, r.params["id"], r.params["kid"])
	return nil, orNotFound(err, "API key")
}

package api

import "tandem/models"

// Bounds and default of reject_code, the SIP status of a refused call.
const (
	minRejectCode     = 400
	maxRejectCode     = 699
	defaultRejectCode = 603
)

type didCreate struct {
	NumberE164    *string `json:"number_e164" required:"true" pattern:"^\\+[1-9][0-9]{6,14}$" doc:"The number, unique among all DIDs." example:"+31201234567"`
	ApplicationID *string `json:"application_id" nullable:"true" doc:"Handles the number's calls; required with route_mode webhook."`
	Provider      *string `json:"provider" max:"100" doc:"Name of the number provider."`
	Status        *string `json:"status" enum:"active,suspended" doc:"Default active. Calls to a suspended number are refused."`
	RouteMode     *string `json:"route_mode" enum:"webhook,sip,reject" doc:"Default webhook: the application's answer_url decides."`
	SIPURI        *string `json:"sip_uri" nullable:"true" max:"255" doc:"Where calls go; required with route_mode sip." example:"sip:desk@pbx.example.com"`
	RejectCode    *int    `json:"reject_code" minimum:"400" maximum:"699" doc:"SIP status of the refusal with route_mode reject. Default 603."`
}

type didUpdate struct {
	ApplicationID *string `json:"application_id" nullable:"true"`
	Provider      *string `json:"provider" max:"100"`
	Status        *string `json:"status" enum:"active,suspended"`
	RouteMode     *string `json:"route_mode" enum:"webhook,sip,reject"`
	SIPURI        *string `json:"sip_uri" nullable:"true" max:"255"`
	RejectCode    *int    `json:"reject_code" minimum:"400" maximum:"699"`
}

// didObject is the contract's DID (section 2.2), with the fields that configure the two other route modes.
type didObject struct {
	ID            string  `json:"id" example:"did_01jd3v5q8n6w4x2y0z9a8b7c6d"`
	CustomerID    string  `json:"customer_id"`
	ApplicationID *string `json:"application_id"`
	NumberE164    string  `json:"number_e164" example:"+31201234567"`
	Provider      string  `json:"provider"`
	Status        string  `json:"status" enum:"active,suspended"`
	RouteMode     string  `json:"route_mode" enum:"webhook,sip,reject"`
	SIPURI        *string `json:"sip_uri,omitempty" doc:"With route_mode sip only."`
	RejectCode    *int    `json:"reject_code,omitempty" doc:"With route_mode reject only."`
	CreatedAt     string  `json:"created_at" format:"date-time"`
	UpdatedAt     string  `json:"updated_at" format:"date-time"`
}

func toDID(d *models.DID) didObject {
	object := didObject{
		ID: d.ID, CustomerID: d.CustomerID, ApplicationID: d.ApplicationID, NumberE164: d.NumberE164, Provider: d.Provider,
		Status: d.Status, RouteMode: d.RouteMode, CreatedAt: stamp(d.CreatedAt), UpdatedAt: stamp(d.UpdatedAt),
	}
	switch d.RouteMode {
	case models.RouteSIP:
		object.SIPURI = &d.SIPURI
	case models.RouteReject:
		object.RejectCode = &d.RejectCode
	}
	return object
}

// apply checks the fields that creation and change share and sets those that the body named.
func (c *checks) applyDID(r *request, in *didUpdate, did *models.DID) {
	change(r, "provider", &did.Provider, c.text("provider", in.Provider, maxNameLength))
	change(r, "status", &did.Status, c.oneOf("status", in.Status, models.DIDActive, models.DIDSuspended))
	change(r, "route_mode", &did.RouteMode, c.oneOf("route_mode", in.RouteMode, models.RouteWebhook, models.RouteSIP, models.RouteReject))
	change(r, "sip_uri", &did.SIPURI, c.sipURI("sip_uri", in.SIPURI))
	change(r, "reject_code", &did.RejectCode, c.between("reject_code", in.RejectCode, minRejectCode, maxRejectCode))
	change(r, "application_id", &did.ApplicationID, in.ApplicationID)
	switch {
	case did.RouteMode == models.RouteWebhook && did.ApplicationID == nil:
		c.refuse("application_id", "application_id is required with route_mode webhook")
	case did.RouteMode == models.RouteSIP && did.SIPURI == "":
		c.refuse("sip_uri", "sip_uri is required with route_mode sip")
	}
}

// mayRoute refuses to send calls to where the limits of the account do not let them go. The nodes bridge them without asking: so it is said here.
func mayRoute(r *request, tx *models.Store, did *models.DID) error {
	if did.RouteMode != models.RouteSIP || !r.given.has("sip_uri") && !r.given.has("route_mode") {
		return nil
	}
	return mayCall(r.ctx, tx, did.CustomerID, "sip_uri", "", did.SIPURI)
}

func (s *Server) createDID(r *request) (any, error) {
	in := body[didCreate](r)
	c := &checks{}
	did := models.DID{CustomerID: r.customer, NumberE164: c.number("number_e164", in.NumberE164), Status: models.DIDActive, RouteMode: models.RouteWebhook, RejectCode: defaultRejectCode}
	c.applyDID(r, &didUpdate{
		ApplicationID: in.ApplicationID, Provider: in.Provider, Status: in.Status, RouteMode: in.RouteMode, SIPURI: in.SIPURI, RejectCode: in.RejectCode,
	}, &did)
	if err := c.failed(); err != nil {
		return nil, err
	}
	var answer didObject
	err := s.store.InTx(r.ctx, func(tx *models.Store) error {
		did := did // this function may run again, from the start
		if err := ownsApplication(r, tx, did.ApplicationID); err != nil {
			return err
		}
		if err := mayRoute(r, tx, &did); err != nil {
			return err
		}
		if err := tx.CreateDID(r.ctx, &did); err != nil {
			return err
		}
		answer = toDID(&did)
		return r.keep(tx, created, answer)
	})
	if err != nil {
		return nil, err
	}
	s.dialplanChanged()
	return answer, nil
}

func (s *Server) listDIDs(r *request) (any, error) {
	page, err := r.page()
	if err != nil {
		return nil, err
	}
	rows, next, err := s.store.ListDIDs(r.ctx, r.customer, page)
	if err != nil {
		return nil, err
	}
	return listOf(rows, next, toDID), nil
}

func (s *Server) getDID(r *request) (any, error) {
	did, err := s.store.DID(r.ctx, r.customer, r.params["id"])
	if err != nil {
		return nil, orNotFound(err, "DID")
	}
	return toDID(did), nil
}

func (s *Server) getDIDByNumber(r *request) (any, error) {
	number := r.params["number"]
	if !models.IsE164(number) {
		return nil, notFound("DID")
	}
	did, err := s.store.DIDByNumber(r.ctx, r.customer, number)
	if err != nil {
		return nil, orNotFound(err, "DID")
	}
	return toDID(did), nil
}

func (s *Server) updateDID(r *request) (any, error) {
	in := body[didUpdate](r)
	var answer didObject
	err := s.store.InTx(r.ctx, func(tx *models.Store) error {
		did, err := tx.EditDID(r.ctx, r.customer, r.params["id"])
		if err != nil {
			return orNotFound(err, "DID")
		}
		c := &checks{}
		c.applyDID(r, in, did)
		if err := c.failed(); err != nil {
			return err
		}
		if err := ownsApplication(r, tx, in.ApplicationID); err != nil {
			return err
		}
		if err := mayRoute(r, tx, did); err != nil {
			return err
		}
		if err := tx.UpdateDID(r.ctx, did); err != nil {
			return err
		}
		answer = toDID(did)
		return nil
	})
	if err != nil {
		return nil, err
	}
	s.dialplanChanged()
	return answer, nil
}

func (s *Server) deleteDID(r *request) (any, error) {
	if err := s.store.DeleteDID(r.ctx, r.customer, r.params["id"]); err != nil {
		return nil, orNotFound(err, "DID")
	}
	s.dialplanChanged()
	return nil, nil
}

package api

import (
	"errors"
	"slices"

	"tandem/dialplan"
	"tandem/models"
)

// statusUnknown is the registration_status of a trunk on which no node has reported yet.
const statusUnknown = "UNKNOWN"

// trunkCreate holds the contract's request fields (section 2.1) and those it leaves open: inbound_ip, inbound_ips,
// application_id and register. With proxy the trunk is outbound, with inbound_ip inbound.
type trunkCreate struct {
	Name          *string  `json:"name" required:"true" max:"100" doc:"A name for people." example:"Carrier A"`
	Proxy         *string  `json:"proxy" max:"255" doc:"SIP proxy: host or host:port, with ;transport=udp, tcp or tls behind it where the default will not do. Makes the trunk outbound." example:"sip.carrier.example"`
	Username      *string  `json:"username" max:"128" doc:"SIP credential user name; outbound only."`
	Password      *string  `json:"password" max:"128" doc:"SIP credential; never returned."`
	Realm         *string  `json:"realm" max:"128" doc:"Digest realm, when it is not the proxy's name."`
	FromDomain    *string  `json:"from_domain" max:"255" doc:"Domain of the From header, when it is not the proxy's name."`
	Register      *bool    `json:"register" doc:"Whether to register with the proxy. Default: true when there is a user name and a password."`
	IsActive      *bool    `json:"is_active" doc:"Default true."`
	GatewayName   *string  `json:"gateway_name" max:"64" pattern:"^[A-Za-z0-9._-]+$" doc:"Name of the gateway on the nodes, unique among all trunks. Default: the trunk's id." example:"carrier-a"`
	InboundIP     *string  `json:"inbound_ip" doc:"Address or network (CIDR) that calls come from. Makes the trunk inbound." example:"192.0.2.10"`
	InboundIPs    []string `json:"inbound_ips" doc:"Instead of inbound_ip: several addresses and networks, at most 64."`
	ApplicationID *string  `json:"application_id" nullable:"true" doc:"Inbound only: handles calls to numbers that are not DIDs."`
	Transport     *string  `json:"transport" nullable:"true" enum:"udp,tcp,tls" doc:"Outbound only, where the proxy names none. Default: what DNS says (NAPTR, SRV), otherwise udp."`
	Port          *int     `json:"port" nullable:"true" minimum:"1" maximum:"65535" doc:"Outbound only, where the proxy names none. Default: what DNS says (SRV), otherwise 5060, with tls 5061."`
	trunkRouting
	callLimits
}

type trunkUpdate struct {
	Name          *string  `json:"name" max:"100"`
	Proxy         *string  `json:"proxy" max:"255" doc:"Outbound only."`
	Username      *string  `json:"username" max:"128" nullable:"true" doc:"Outbound only; null removes it."`
	Password      *string  `json:"password" max:"128" nullable:"true" doc:"Outbound only; null removes it. Never returned."`
	Realm         *string  `json:"realm" max:"128" nullable:"true" doc:"Outbound only; null removes it."`
	FromDomain    *string  `json:"from_domain" max:"255" nullable:"true" doc:"Outbound only; null removes it."`
	Register      *bool    `json:"register" doc:"Outbound only."`
	IsActive      *bool    `json:"is_active"`
	GatewayName   *string  `json:"gateway_name" max:"64" pattern:"^[A-Za-z0-9._-]+$"`
	InboundIP     *string  `json:"inbound_ip" doc:"Inbound only; replaces all addresses by this one."`
	InboundIPs    []string `json:"inbound_ips" doc:"Inbound only; replaces all addresses."`
	ApplicationID *string  `json:"application_id" nullable:"true" doc:"Inbound only; null removes it."`
	Transport     *string  `json:"transport" nullable:"true" enum:"udp,tcp,tls" doc:"Outbound only; null removes it."`
	Port          *int     `json:"port" nullable:"true" minimum:"1" maximum:"65535" doc:"Outbound only; null removes it."`
	trunkRouting
	callLimits
}

// trunkObject is the contract's Trunk as responses show it: without password, realm and from_domain.
type trunkObject struct {
	ID                 string   `json:"id" example:"trunk_01jd3v5q8n6w4x2y0z9a8b7c6d"`
	CustomerID         string   `json:"customer_id"`
	Name               string   `json:"name"`
	Direction          string   `json:"direction" enum:"outbound,inbound"`
	GatewayName        string   `json:"gateway_name"`
	Proxy              string   `json:"proxy" doc:"Empty on inbound trunks."`
	Username           string   `json:"username" doc:"Empty on inbound trunks."`
	IsActive           bool     `json:"is_active"`
	Register           *bool    `json:"register,omitempty" doc:"Outbound trunks only."`
	InboundIP          string   `json:"inbound_ip,omitempty" doc:"Inbound trunks only: the first address or network, in its normal form."`
	InboundIPs         []string `json:"inbound_ips,omitempty" doc:"Inbound trunks only: all of them."`
	ApplicationID      *string  `json:"application_id,omitempty" doc:"Inbound trunks only, when one is set."`
	RegistrationStatus string   `json:"registration_status,omitempty" doc:"In lists and single reads. The gateway's state as the switch spells it: REGED, TRYING, FAIL_WAIT, NOREG, …; UNKNOWN while no node reports. Outbound trunks only." example:"REGED"`
	PingStatus         string   `json:"ping_status,omitempty" enum:"UP,DOWN,UNKNOWN" doc:"Where registration_status is: whether the carrier answers the node's OPTIONS pings."`
	CreatedAt          string   `json:"created_at" format:"date-time"`
	UpdatedAt          string   `json:"updated_at" format:"date-time"`
	Transport          string   `json:"transport,omitempty" enum:"udp,tcp,tls" doc:"Outbound trunks only, when one is set."`
	Port               int      `json:"port,omitempty" doc:"Outbound trunks only, when one is set."`
	trunkRoutes
	trunkBounds
}

func toTrunk(t *models.Trunk) trunkObject {
	object := trunkObject{
		ID: t.ID, CustomerID: t.CustomerID, Name: t.Name, Direction: t.Direction, GatewayName: t.GatewayName,
		Proxy: t.Proxy, Username: t.Username, IsActive: t.IsActive,
		InboundIPs: t.InboundIPs, ApplicationID: t.ApplicationID,
		CreatedAt: stamp(t.CreatedAt), UpdatedAt: stamp(t.UpdatedAt), Transport: t.Transport, Port: t.Port,
		trunkRoutes: toRoutes(t), trunkBounds: toBounds(t),
	}
	if len(t.InboundIPs) > 0 {
		object.InboundIP = t.InboundIPs[0]
	}
	if t.Direction == models.Outbound {
		register := t.Register
		object.Register = &register
	}
	return object
}

// What the parts of a SIP login cannot hold: quotes, colons and backslashes are syntax in FreeSWITCH's own notation of
// credentials (scheme:"realm":user:password), markup would break its gateway list (mod_sofia.c, xml_gateway_status), and the
// realm stands in a URI besides.
const (
	notInUsername = " \"\\:<>&"
	notInRealm    = " \"\\<>&@;?/,"
)

// trunkFields are the fields that creation and change share, checked.
type trunkFields struct {
	name, proxy, username, realm, fromDomain, gatewayName string
	transport                                             string
	port                                                  int
	password                                              models.Secret
	inboundIPs                                            []string
}

func (c *checks) trunk(in *trunkUpdate, given fieldSet) trunkFields {
	var f trunkFields
	if given.has("name") {
		f.name = c.name("name", in.Name)
	}
	f.proxy = c.proxy("proxy", in.Proxy)
	f.username = c.credential("username", in.Username, notInUsername)
	f.password = models.Secret(c.credential("password", in.Password, ""))
	f.realm = c.credential("realm", in.Realm, notInRealm)
	f.fromDomain = c.optionalHost("from_domain", in.FromDomain)
	f.gatewayName = c.gatewayName("gateway_name", in.GatewayName)
	f.inboundIPs = c.addresses(in.InboundIP, in.InboundIPs, given)
	f.transport = c.oneOf("transport", in.Transport, models.Transports...)
	f.port = c.between("port", in.Port, 1, 65535)
	return f
}

// endpoint refuses a port or a transport beside a proxy that names its own.
func (c *checks) endpoint(t *models.Trunk) {
	if t.Direction != models.Outbound || t.Port == 0 && t.Transport == "" {
		return
	}
	field := "transport"
	alone := *t
	alone.Transport = ""
	if _, err := dialplan.ProxyOf(&alone); err != nil {
		field = "port"
	}
	if _, err := dialplan.ProxyOf(t); err != nil {
		c.refuse(field, "%s must not be given beside a proxy that names one", field)
	}
}

// optionalHost accepts a host, or nothing.
func (c *checks) optionalHost(field string, value *string) string {
	if value != nil && *value == "" {
		return ""
	}
	return c.host(field, value)
}

// oneDirection refuses the fields that have no meaning for a trunk of the given direction.
func (c *checks) oneDirection(direction string, given fieldSet) {
	foreign, other := append([]string{"proxy", "transport", "port", "username", "password", "realm", "from_domain", "register"}, slices.Concat(routingFields, destinationFields)...), models.Outbound
	if direction == models.Outbound {
		foreign, other = []string{"inbound_ip", "inbound_ips", "application_id"}, models.Inbound
	}
	for _, field := range foreign {
		if given[field] {
			c.refuse(field, "%s is a field of %s trunks; this trunk is %s", field, other, direction)
		}
	}
}

// login refuses a registration that could never succeed.
func (c *checks) login(t *models.Trunk) {
	switch {
	case t.Password != "" && t.Username == "":
		c.refuse("username", "username is required with a password")
	case t.Register && t.Username == "":
		c.refuse("username", "username is required to register")
	case t.Register && t.Password == "":
		c.refuse("password", "password is required to register")
	}
}

func (s *Server) createTrunk(r *request) (any, error) { return s.makeTrunk(r, body[trunkCreate](r)) }

// makeTrunk creates a trunk of the request's customer.
func (s *Server) makeTrunk(r *request, in *trunkCreate) (trunkObject, error) {
	c := &checks{}
	c.required("name", in.Name)
	direction := models.Outbound
	switch {
	case in.Proxy != nil && in.InboundIP != nil:
		c.refuse("inbound_ip", "inbound_ip and proxy cannot both be given: a trunk is either inbound or outbound")
	case in.Proxy != nil && r.given.has("inbound_ips"):
		c.refuse("inbound_ips", "inbound_ips and proxy cannot both be given: a trunk is either inbound or outbound")
	case in.InboundIP != nil, r.given.has("inbound_ips"):
		direction = models.Inbound
	case in.Proxy == nil:
		c.refuse("proxy", "proxy is required (or inbound_ip, for an inbound trunk)")
	}
	f := c.trunk((*trunkUpdate)(in), r.given)
	c.oneDirection(direction, r.given)
	trunk := models.Trunk{
		ID: models.NewID(models.PrefixTrunk), CustomerID: r.customer, Name: f.name, Direction: direction, GatewayName: f.gatewayName,
		Proxy: f.proxy, Username: f.username, Password: f.password, Realm: f.realm, FromDomain: f.fromDomain,
		InboundIPs: f.inboundIPs, ApplicationID: in.ApplicationID, IsActive: in.IsActive == nil || *in.IsActive,
		Register: f.username != "" && f.password != "", Transport: f.transport, Port: f.port,
	}
	if in.Register != nil {
		trunk.Register = *in.Register
	}
	if trunk.GatewayName == "" {
		trunk.GatewayName = trunk.ID
	}
	c.login(&trunk)
	trunk.Routing.Priority = models.DefaultTrunkPriority
	c.routing(&in.trunkRouting, r.given, &trunk.Routing)
	c.trunkLimits(&in.callLimits, r.given, &trunk.Limits)
	c.endpoint(&trunk)
	if err := c.failed(); err != nil {
		return trunkObject{}, err
	}
	var answer trunkObject
	err := s.store.InTx(r.ctx, func(tx *models.Store) error {
		trunk := trunk // this function may run again, from the start
		if err := ownsApplication(r, tx, trunk.ApplicationID); err != nil {
			return err
		}
		if err := tx.CreateTrunk(r.ctx, &trunk); err != nil {
			return err
		}
		answer = toTrunk(&trunk)
		return r.keep(tx, created, answer)
	})
	if err != nil {
		return trunkObject{}, err
	}
	s.dialplanChanged()
	return answer, nil
}

// ownsApplication refuses a reference to an application that the customer does not have.
func ownsApplication(r *request, store *models.Store, id *string) error {
	if id == nil {
		return nil
	}
	if !isID(*id) {
		return noApplication()
	}
	_, err := store.Application(r.ctx, r.customer, *id)
	if errors.Is(err, models.ErrNotFound) {
		return noApplication()
	}
	return err
}

func (s *Server) dialplanChanged() {
	if s.dialplan != nil {
		s.dialplan.Changed()
	}
}

// withStatus adds to trunks what the nodes report of them.
func (s *Server) withStatus(r *request, trunks []trunkObject) error {
	ids := make([]string, 0, len(trunks))
	for _, trunk := range trunks {
		if trunk.Direction == models.Outbound {
			ids = append(ids, trunk.ID)
		}
	}
	statuses, err := s.store.GatewayStatuses(r.ctx, ids)
	if err != nil {
		return err
	}
	for i := range trunks {
		if trunks[i].Direction != models.Outbound {
			continue
		}
		trunks[i].RegistrationStatus, trunks[i].PingStatus = statusUnknown, statusUnknown
		if status, ok := statuses[trunks[i].ID]; ok && status.State != "" {
			trunks[i].RegistrationStatus, trunks[i].PingStatus = status.State, pingStatus(status.Status)
		}
	}
	return nil
}

func (s *Server) listTrunks(r *request) (any, error) {
	page, err := r.page()
	if err != nil {
		return nil, err
	}
	rows, next, err := s.store.ListTrunks(r.ctx, r.customer, page)
	if err != nil {
		return nil, err
	}
	answer := listOf(rows, next, toTrunk)
	return answer, s.withStatus(r, answer.Data)
}

func (s *Server) getTrunk(r *request) (any, error) {
	trunk, err := s.store.Trunk(r.ctx, r.customer, r.params["id"])
	if err != nil {
		return nil, orNotFound(err, "trunk")
	}
	answer := []trunkObject{toTrunk(trunk)}
	if err := s.withStatus(r, answer); err != nil {
		return nil, err
	}
	return answer[0], nil
}

func (s *Server) updateTrunk(r *request) (any, error) {
	in := body[trunkUpdate](r)
	checked := &checks{}
	f := checked.trunk(in, r.given)
	if err := checked.failed(); err != nil {
		return nil, err
	}
	var answer trunkObject
	err := s.store.InTx(r.ctx, func(tx *models.Store) error {
		trunk, err := tx.EditTrunk(r.ctx, r.customer, r.params["id"])
		if err != nil {
			return orNotFound(err, "trunk")
		}
		if err := ownsApplication(r, tx, in.ApplicationID); err != nil {
			return err
		}
		change(r, "name", &trunk.Name, f.name)
		change(r, "proxy", &trunk.Proxy, f.proxy)
		change(r, "username", &trunk.Username, f.username)
		change(r, "password", &trunk.Password, f.password)
		change(r, "realm", &trunk.Realm, f.realm)
		change(r, "from_domain", &trunk.FromDomain, f.fromDomain)
		change(r, "transport", &trunk.Transport, f.transport)
		change(r, "port", &trunk.Port, f.port)
		change(r, "gateway_name", &trunk.GatewayName, f.gatewayName)
		change(r, "inbound_ip", &trunk.InboundIPs, f.inboundIPs)
		change(r, "inbound_ips", &trunk.InboundIPs, f.inboundIPs)
		change(r, "application_id", &trunk.ApplicationID, in.ApplicationID)
		if in.Register != nil {
			trunk.Register = *in.Register
		}
		if in.IsActive != nil {
			trunk.IsActive = *in.IsActive
		}
		c := &checks{}
		c.oneDirection(trunk.Direction, r.given)
		c.login(trunk)
		c.routing(&in.trunkRouting, r.given, &trunk.Routing)
		c.trunkLimits(&in.callLimits, r.given, &trunk.Limits)
		c.endpoint(trunk)
		if err := c.failed(); err != nil {
			return err
		}
		if err := tx.UpdateTrunk(r.ctx, trunk); err != nil {
			return err
		}
		answer = toTrunk(trunk)
		return nil
	})
	if err != nil {
		return nil, err
	}
	s.dialplanChanged()
	changed := []trunkObject{answer}
	if err := s.withStatus(r, changed); err != nil {
		return nil, err
	}
	return changed[0], nil
}

func (s *Server) deleteTrunk(r *request) (any, error) {
	if err := s.store.DeleteTrunk(r.ctx, r.customer, r.params["id"]); err != nil {
		return nil, inUse(orNotFound(err, "trunk"), "the trunk still has live calls")
	}
	s.dialplanChanged()
	return nil, nil
}

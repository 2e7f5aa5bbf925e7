package api

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"tandem/dialplan"
	"tandem/models"
)

// Numbers tells what the nodes do with calls to numbers.
type Numbers interface {
	// Explain follows a call to a number, as dialed, from an address.
	Explain(ctx context.Context, dialed string, from netip.Addr) (*dialplan.Explanation, error)
	// Providers are the networks of the operator's providers.
	Providers() []netip.Prefix
}

var _ Numbers = (*dialplan.Syncer)(nil)

// maxTestedSources is how many addresses a test without an address of its own calls from.
const maxTestedSources = 10

type didsCreate struct {
	Numbers       []string `json:"numbers" required:"true" doc:"Numbers and ranges, such as +4930123400-+4930123499 or +4930123400-99; at most 10000 numbers in all." example:"+4930123400-99"`
	CustomerID    *string  `json:"customer_id" required:"true"`
	ApplicationID *string  `json:"application_id" nullable:"true" doc:"Required with route_mode webhook."`
	Provider      *string  `json:"provider" max:"100"`
	Status        *string  `json:"status" enum:"active,suspended" doc:"Default active."`
	RouteMode     *string  `json:"route_mode" enum:"webhook,sip,reject" doc:"Default webhook."`
	SIPURI        *string  `json:"sip_uri" nullable:"true" max:"255" doc:"Required with route_mode sip."`
	RejectCode    *int     `json:"reject_code" minimum:"400" maximum:"699" doc:"Default 603."`
}

type didsReassignUpdate struct {
	Numbers       []string `json:"numbers" required:"true" doc:"Numbers and ranges that exist; at most 10000 numbers in all."`
	CustomerID    *string  `json:"customer_id" doc:"The new customer. A number that changes hands gets a new id, and keeps no application of the old one's."`
	ApplicationID *string  `json:"application_id" nullable:"true"`
	Provider      *string  `json:"provider" max:"100"`
	Status        *string  `json:"status" enum:"active,suspended"`
	RouteMode     *string  `json:"route_mode" enum:"webhook,sip,reject"`
	SIPURI        *string  `json:"sip_uri" nullable:"true" max:"255"`
	RejectCode    *int     `json:"reject_code" minimum:"400" maximum:"699"`
}

type didsReleaseCreate struct {
	Numbers []string `json:"numbers" required:"true" doc:"Numbers and ranges; at most 10000 numbers in all. Those that nobody has are passed over."`
}

// didsChanged says what became of many numbers.
type didsChanged struct {
	Created    int `json:"created"`
	Updated    int `json:"updated"`
	Reassigned int `json:"reassigned" doc:"Numbers that are another customer's than before."`
	Unchanged  int `json:"unchanged"`
	Deleted    int `json:"deleted"`
}

// outcomeObject is what becomes of a call.
type outcomeObject struct {
	Outcome   string  `json:"outcome" enum:"application,bridge,refuse" doc:"application: parked for the controller, which asks the application. bridge: connected with target by the switch. refuse: answered with sip_status by the switch."`
	SIPStatus *int    `json:"sip_status,omitempty" doc:"With refuse only."`
	Phrase    *string `json:"phrase,omitempty" doc:"With a refusal that is Tandem's own; a reject route has the phrase of its status."`
	Target    *string `json:"target,omitempty" doc:"With bridge only."`
}

// stepObject is an extension of the dialplan that takes the call.
type stepObject struct {
	Context     string `json:"context"`
	Extension   string `json:"extension"`
	Destination string `json:"destination" doc:"The number as it is in this context."`
	Application string `json:"application"`
	Data        string `json:"data"`
}

// didCaseObject is a call from one address.
type didCaseObject struct {
	FromIP            string        `json:"from_ip"`
	CustomerID        *string       `json:"customer_id" doc:"Whose trunk the address is; null where it is nobody's or a provider's."`
	TrunkID           *string       `json:"trunk_id"`
	Provider          *string       `json:"provider" doc:"The provider's network that the address belongs to."`
	Result            outcomeObject `json:"result"`
	Block             *blockObject  `json:"block" doc:"The block that refuses the address before anything else; null where none does."`
	WithoutController outcomeObject `json:"without_controller" doc:"While no controller takes calls."`
	Steps             []stepObject  `json:"steps"`
	Why               []string      `json:"why"`
}

// didTestObject is what happens to calls to a number.
type didTestObject struct {
	Dialed string          `json:"dialed"`
	Number *string         `json:"number" doc:"In E.164 form; null where it has none."`
	DID    *didObject      `json:"did" doc:"Whose the number is; null where it is nobody's."`
	Cases  []didCaseObject `json:"cases" doc:"From the address asked for; else from each provider and each address of the owner's trunks, at most 10. Empty where there are none: nobody can call the number."`
}

func (s *Server) operatorDIDRoutes() []route {
	filters := []param{
		{name: "customer_id", kind: "string"}, {name: "application_id", kind: "string"}, {name: "provider", kind: "string"},
		{name: "status", kind: "string", enum: []string{models.DIDActive, models.DIDSuspended}},
		{name: "route_mode", kind: "string", enum: []string{models.RouteWebhook, models.RouteSIP, models.RouteReject}},
		{name: "prefix", kind: "string", doc: "How the number begins, in E.164 form, such as +4930."},
	}
	return []route{
		{method: http.MethodGet, path: "/operator/v1/dids", id: "listAllDIDs", tag: "dids", summary: "List the phone numbers of all customers, in the order of the numbers",
			role: models.RoleViewer, query: append(filters, paging...), status: ok, response: list[didObject]{}, handle: s.listAllDIDs},
		{method: http.MethodPost, path: "/operator/v1/dids", id: "createDIDs", tag: "dids", summary: "Add numbers and ranges of numbers to a customer",
			details: "All of them or, where one exists already, none.",
			role:    models.RoleOperator, request: didsCreate{}, status: created, response: didsChanged{}, handle: s.createDIDs,
			codes: []string{codeNumberExists, codeNotFound}},
		{method: http.MethodPost, path: "/operator/v1/dids/reassign", id: "reassignDIDs", tag: "dids", summary: "Change the customer, the routing or the status of many numbers",
			details: "All of them or none. Fields that are not given stay as they are in each number. Calls that are live go on.",
			role:    models.RoleOperator, request: didsReassignUpdate{}, status: ok, response: didsChanged{}, handle: s.reassignDIDs,
			codes: []string{codeNotFound}},
		{method: http.MethodPost, path: "/operator/v1/dids/release", id: "releaseDIDs", tag: "dids", summary: "Delete many numbers",
			details: "They are free again. Calls that are live go on.",
			role:    models.RoleOperator, request: didsReleaseCreate{}, status: ok, response: didsChanged{}, handle: s.releaseDIDs},
		{method: http.MethodGet, path: "/operator/v1/dids/by-number/:number", id: "getAnyDIDByNumber", tag: "dids", summary: "Get a phone number by the number, whosesoever it is",
			role: models.RoleViewer, status: ok, response: didObject{}, handle: s.getAnyDIDByNumber},
		{method: http.MethodGet, path: "/operator/v1/dids/by-number/:number/test", id: "testDID", tag: "dids", summary: "What happens to a call to a number, and why",
			details: "The number as dialed, also one that is nobody's. What the nodes have is rendered and followed; no call is made.",
			role:    models.RoleViewer, query: []param{{name: "from_ip", kind: "string", doc: "Address that the INVITE comes from."}},
			status: ok, response: didTestObject{}, handle: s.testDID},
	}
}

// numbers accepts a list of numbers and ranges, and returns every number.
func (c *checks) numbers(field string, list []string) []string {
	if len(list) == 0 {
		c.refuse(field, "%s is required", field)
		return nil
	}
	blocks := make([]models.NumberRange, len(list))
	var count int64
	for i, text := range list {
		block, err := models.ParseNumberRange(text)
		if err != nil {
			c.refuse(fmt.Sprintf("%s[%d]", field, i), "%s[%d] %s", field, i, err)
			return nil
		}
		if count += block.Len(); count > models.MaxDIDs {
			c.refuse(field, "%s must hold at most %d numbers", field, models.MaxDIDs)
			return nil
		}
		blocks[i] = block
	}
	var all []string
	for _, block := range blocks {
		all = slices.AppendSeq(all, block.Numbers)
	}
	return all
}

func (s *Server) listAllDIDs(r *request) (any, error) {
	page, err := r.page()
	if err != nil {
		return nil, err
	}
	c := &checks{}
	filter := models.DIDFilter{
		CustomerID: c.id("customer_id", r.param("customer_id")), ApplicationID: c.id("application_id", r.param("application_id")),
		Provider: c.text("provider", r.param("provider"), maxNameLength),
		Status:   c.oneOf("status", r.param("status"), models.DIDActive, models.DIDSuspended),
		RouteMode: c.oneOf("route_mode", r.param("route_mode"),
			models.RouteWebhook, models.RouteSIP, models.RouteReject),
		Prefix: plus(r.query["prefix"]),
	}
	if filter.Prefix != "" && (filter.Prefix[0] != '+' || strings.Trim(filter.Prefix[1:], "0123456789") != "") {
		c.refuse("prefix", "prefix must be a plus sign and digits")
	}
	after := plus(page.Cursor)
	if after != "" && !models.IsE164(after) {
		return nil, models.ErrBadCursor
	}
	if err := c.failed(); err != nil {
		return nil, err
	}
	rows, err := s.store.AllDIDs(r.ctx, filter, after, page.Limit+1)
	if err != nil {
		return nil, err
	}
	next := ""
	if len(rows) > page.Limit {
		rows = rows[:page.Limit]
		next = rows[page.Limit-1].NumberE164
	}
	return listOf(rows, next, toDID), nil
}

func (s *Server) createDIDs(r *request) (any, error) {
	in := body[didsCreate](r)
	c := &checks{}
	numbers := c.numbers("numbers", in.Numbers)
	c.required("customer_id", in.CustomerID)
	like := models.DID{CustomerID: c.id("customer_id", in.CustomerID), Status: models.DIDActive, RouteMode: models.RouteWebhook, RejectCode: defaultRejectCode}
	c.applyDID(r, &didUpdate{
		ApplicationID: in.ApplicationID, Provider: in.Provider, Status: in.Status, RouteMode: in.RouteMode, SIPURI: in.SIPURI, RejectCode: in.RejectCode,
	}, &like)
	if err := c.failed(); err != nil {
		return nil, err
	}
	var answer didsChanged
	err := s.store.InTx(r.ctx, func(tx *models.Store) error {
		rows := make([]models.DID, len(numbers))
		for i, number := range numbers {
			rows[i] = like
			rows[i].NumberE164 = number
		}
		results, err := tx.PutDIDs(r.ctx, rows, models.DIDSkip)
		if err != nil {
			return err
		}
		answer = didsChanged{}
		for i, result := range results {
			if result != models.DIDCreated {
				return didRefused(result, numbers[i])
			}
			answer.Created++
		}
		r.concernsNumbers(like.CustomerID, numbers)
		return nil
	})
	if err != nil {
		return nil, err
	}
	s.dialplanChanged()
	return answer, nil
}

// didRefused is the error of a number that could not be put where it was to be.
func didRefused(result models.DIDResult, number string) error {
	switch result {
	case models.DIDNoCustomer:
		return &Error{Code: codeNotFound, Field: "customer_id", Message: "customer_id names no customer"}
	case models.DIDNoApplication:
		return &Error{Code: codeNotFound, Field: "application_id", Message: "application_id names no application of the customer's"}
	default:
		return &Error{Code: codeNumberExists, Field: "numbers", Message: number + " is in use already"}
	}
}

func (s *Server) reassignDIDs(r *request) (any, error) {
	in := body[didsReassignUpdate](r)
	c := &checks{}
	numbers := c.numbers("numbers", in.Numbers)
	customer := c.id("customer_id", in.CustomerID)
	if len(r.given) < 2 {
		c.refuse("", "a field besides numbers is required: what is to change")
	}
	if err := c.failed(); err != nil {
		return nil, err
	}
	update := &didUpdate{
		ApplicationID: in.ApplicationID, Provider: in.Provider, Status: in.Status, RouteMode: in.RouteMode, SIPURI: in.SIPURI, RejectCode: in.RejectCode,
	}
	var answer didsChanged
	err := s.store.InTx(r.ctx, func(tx *models.Store) error {
		answer = didsChanged{}
		found, err := tx.EditDIDs(r.ctx, numbers)
		if err != nil {
			return err
		}
		rows := make([]models.DID, len(numbers))
		for i, number := range numbers {
			there := found[number]
			if there == nil {
				return &Error{Code: codeNotFound, Field: "numbers", Message: number + " is nobody's number"}
			}
			rows[i] = *there
			if customer != "" && customer != there.CustomerID {
				rows[i].CustomerID, rows[i].ApplicationID = customer, nil
			}
			c := &checks{}
			c.applyDID(r, update, &rows[i])
			if c.first != nil {
				return invalid(c.first.Field, "%s: %s", number, c.first.Message)
			}
		}
		results, err := tx.PutDIDs(r.ctx, rows, models.DIDReassign)
		if err != nil {
			return err
		}
		r.concernsNumbers(customer, numbers)
		return answer.count(results, numbers)
	})
	if err != nil {
		return nil, err
	}
	s.dialplanChanged()
	return answer, nil
}

// count counts the results, or returns the error of one that is none.
func (d *didsChanged) count(results []models.DIDResult, numbers []string) error {
	for i, result := range results {
		switch result {
		case models.DIDCreated:
			d.Created++
		case models.DIDUpdated:
			d.Updated++
		case models.DIDReassigned:
			d.Reassigned++
		case models.DIDUnchanged:
			d.Unchanged++
		default:
			return didRefused(result, numbers[i])
		}
	}
	return nil
}

func (s *Server) releaseDIDs(r *request) (any, error) {
	c := &checks{}
	in := body[didsReleaseCreate](r)
	numbers := c.numbers("numbers", in.Numbers)
	if err := c.failed(); err != nil {
		return nil, err
	}
	r.concernsNumbers("", numbers)
	deleted, err := s.store.DeleteDIDs(r.ctx, numbers)
	if err != nil {
		return nil, err
	}
	s.dialplanChanged()
	return didsChanged{Deleted: deleted}, nil
}

func (s *Server) getAnyDIDByNumber(r *request) (any, error) {
	number := r.params["number"]
	if !models.IsE164(number) {
		return nil, notFound("DID")
	}
	did, err := s.store.RouteDID(r.ctx, number)
	if err != nil {
		return nil, orNotFound(err, "DID")
	}
	return toDID(did), nil
}

func (s *Server) testDID(r *request) (any, error) {
	dialed := r.params["number"]
	if len(dialed) > maxSIPURILength || strings.IndexFunc(dialed, isControl) >= 0 {
		return nil, invalid("number", "number must be at most %d characters long, without control characters", maxSIPURILength)
	}
	if s.numbers == nil {
		return nil, &Error{Code: codeUnavailable, Message: "this server has no dialplan"}
	}
	from, err := s.sources(r, dialed)
	if err != nil {
		return nil, err
	}
	answer := didTestObject{Dialed: dialed, Cases: []didCaseObject{}}
	for _, address := range from {
		x, err := s.numbers.Explain(r.ctx, dialed, address)
		if err != nil {
			return nil, err
		}
		answer.Cases = append(answer.Cases, toCase(x, s.store.Now()))
	}
	if number := dialplan.Dialed(dialed); number != "" {
		answer.Number = &number
		did, err := s.store.RouteDID(r.ctx, number)
		if err == nil {
			object := toDID(did)
			answer.DID = &object
		} else if err = orNotFound(err, "DID"); asError(err).Code != codeNotFound {
			return nil, err
		}
	}
	return answer, nil
}

// sources are the addresses that a test calls from: the one that is asked for, or those that may call the number at all.
func (s *Server) sources(r *request, dialed string) ([]netip.Addr, error) {
	if raw, given := r.query["from_ip"]; given {
		address, err := netip.ParseAddr(raw)
		if err != nil || address.Zone() != "" {
			return nil, invalid("from_ip", "from_ip must be an IP address")
		}
		return []netip.Addr{address}, nil
	}
	var found []netip.Addr
	for _, network := range s.numbers.Providers() {
		found = append(found, network.Addr())
	}
	if number := dialplan.Dialed(dialed); number != "" {
		did, err := s.store.RouteDID(r.ctx, number)
		if err == nil {
			var trunks []models.Trunk
			trunks, _, err = s.store.ListTrunks(r.ctx, did.CustomerID, models.Page{Limit: models.MaxPageLimit})
			for i := range trunks {
				for _, address := range trunks[i].InboundIPs {
					if network, _, err := models.ParseInboundIP(address); err == nil { // as it was stored
						found = append(found, network.Addr())
					}
				}
			}
		}
		if err = orNotFound(err, "DID"); err != nil && asError(err).Code != codeNotFound {
			return nil, err
		}
	}
	return found[:min(len(found), maxTestedSources)], nil
}

func toCase(x *dialplan.Explanation, now time.Time) didCaseObject {
	object := didCaseObject{
		FromIP: x.From.String(), Result: toOutcome(x.Outcome), WithoutController: toOutcome(x.Unsteered), Steps: make([]stepObject, len(x.Steps)), Why: x.Why,
	}
	if x.Blocked != nil {
		block := toBlock(x.Blocked, now)
		object.Block = &block
	}
	switch {
	case x.Provider != "":
		object.Provider = &x.Provider
	case x.Trunk != nil:
		object.CustomerID, object.TrunkID = &x.Trunk.CustomerID, &x.Trunk.ID
	}
	for i, step := range x.Steps {
		object.Steps[i] = stepObject(step)
	}
	return object
}

func toOutcome(o dialplan.Outcome) outcomeObject {
	object := outcomeObject{Outcome: o.Kind}
	if o.SIPStatus != 0 {
		object.SIPStatus = &o.SIPStatus
	}
	if o.Phrase != "" {
		object.Phrase = &o.Phrase
	}
	if o.Target != "" {
		object.Target = &o.Target
	}
	return object
}

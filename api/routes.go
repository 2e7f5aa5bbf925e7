package api

import (
	"net/http"
	"regexp"

	"tandem/models"
)

// Success codes: 201 for what was made, 200 for what is read or changed, 202 for a command to a live call, 204 without a body.
const (
	ok        = http.StatusOK
	created   = http.StatusCreated
	accepted  = http.StatusAccepted
	noContent = http.StatusNoContent
)

// route is one row of the table: everything that fiber and the OpenAPI document need to know of an endpoint.
type route struct {
	method string
	// path is in fiber's form, with :name for parameters.
	path string
	// id is the operationId, tag the group in the document.
	id, tag, summary string
	// details is the longer description, optional.
	details string
	// request is a zero value of the body's type, nil where there is no body; bodyOptional allows to leave it out.
	request      any
	bodyOptional bool
	// raw routes get the body as it is: another package reads it.
	raw bool
	// pure routes change nothing, whatever their method: repeating them needs no key.
	pure bool
	// traced routes are told of by the audit trail although they are pure: something happens outside.
	traced bool
	query  []param
	// csv routes answer with a *table as well.
	csv    bool
	status int
	// response is a zero value of the answer's type, nil where there is none.
	response any
	// dry is a zero value of what the route answers, with 200, to a request that only asks what would become of it; nil where there is none.
	dry any
	// codes are the error codes beyond those that implied gives.
	codes []string
	// public routes need no key.
	public bool
	// role is the least that an operator needs; empty on the routes of customers.
	role   string
	handle func(*request) (any, error)
}

// param is a query parameter.
type param struct {
	name, doc string
	// kind is string, integer or time.
	kind string
	enum []string
}

var paging = []param{
	{name: "limit", kind: "integer", doc: "Items on a page, 1 to 200. Default 50."},
	{name: "cursor", kind: "string", doc: "next_cursor of the page before."},
}

var callFilters = append([]param{
	{name: "status", kind: "string", enum: callStatuses},
	{name: "direction", kind: "string", enum: []string{models.Outbound, models.Inbound}},
	{name: "from", kind: "string", doc: "Exact number."},
	{name: "to", kind: "string", doc: "Exact number."},
	{name: "application_id", kind: "string"},
	{name: "trunk_id", kind: "string"},
	{name: "created_after", kind: "time", doc: "Only calls created at or after this time."},
	{name: "created_before", kind: "time", doc: "Only calls created at or before this time."},
}, paging...)

// groupCodes are what commands to conferences, queues and their members are refused with.
var groupCodes = []string{codeCallNotActive, codeNoNodeAvailable}

// anyValue is the body of a route that takes any JSON; simulationScript one that takes an object of another package's.
type (
	anyValue         struct{}
	simulationScript struct{}
)

// takes reports whether the route has a query parameter of that name.
func (r route) takes(name string) bool {
	for _, param := range r.query {
		if param.name == name {
			return true
		}
	}
	return false
}

var pathParam = regexp.MustCompile(`:([a-z_]+)`)

// params returns the names of the route's path parameters.
func (r route) params() []string {
	var names []string
	for _, match := range pathParam.FindAllStringSubmatch(r.path, -1) {
		names = append(names, match[1])
	}
	return names
}

// implied returns every error code the route can answer with: its own and those that follow from its kind.
func (r route) implied() []string {
	codes := []string{codeInternalError, codeUnavailable, codeOverloaded, codeInvalidRequest, codeRateLimited}
	if !r.public {
		codes = append(codes, codeUnauthorized)
	}
	if r.role != "" && r.role != models.RoleViewer {
		codes = append(codes, codeForbidden)
	}
	if r.method != http.MethodGet && !r.pure {
		codes = append(codes, codeStorageFull)
	}
	if len(r.params()) > 0 {
		codes = append(codes, codeNotFound)
	}
	if r.request != nil {
		codes = append(codes, codeInvalidJSON, codePayloadTooLarge, codeUnsupportedMedia)
	}
	if r.idempotent() {
		codes = append(codes, codeIdempotencyConflict)
	}
	return append(codes, r.codes...)
}

// idempotent reports whether the route takes an Idempotency-Key. Those of operators do not: what must not be done twice there has a
// key of its own, or a name.
func (r route) idempotent() bool { return r.method == http.MethodPost && !r.pure && r.role == "" }

// routes is the table.
func (s *Server) routes() []route {
	return []route{
		{method: http.MethodGet, path: "/v1/me", id: "me", tag: "account", summary: "The key's customer and balance",
			status: ok, response: meObject{}, handle: s.me},
		{method: http.MethodGet, path: "/v1/ledger", id: "getLedger", tag: "account", summary: "List the changes of the balance, newest first",
			details: ledgerDetails,
			query:   ledgerFilters, csv: true, status: ok, response: list[entryObject]{}, handle: s.getLedger},
		{method: http.MethodGet, path: "/v1/usage", id: "getUsage", tag: "account", summary: "Sum up the calls of a time",
			details: usageDetails,
			query:   usageFilters, csv: true, status: ok, response: usageObject{}, handle: s.getUsage},
		{method: http.MethodGet, path: "/v1/statements", id: "getStatements", tag: "account", summary: "List the statements, one for each month, newest first",
			details: statementDetails,
			query:   formats, csv: true, status: ok, response: list[statementObject]{}, handle: s.getStatements},
		{method: http.MethodGet, path: "/v1/statements/:month", id: "getStatement", tag: "account", summary: "Get the statement of a month",
			details: statementDetails,
			query:   formats, csv: true, status: ok, response: statementObject{}, handle: s.getStatement},

		{method: http.MethodGet, path: "/v1/rates", id: "getRates", tag: "account", summary: "What a call to or from a number costs",
			details: "The price that a call which begins now would be promised, and what calls of some lengths cost.",
			query:   ratesQuery, status: ok, response: ratesObject{}, handle: s.getRates, codes: []string{codeNotFound}},

		{method: http.MethodPost, path: "/v1/applications", id: "createApplication", tag: "applications", summary: "Create an application",
			details: "The answer holds the application's API key, this once.",
			request: applicationCreate{}, status: created, response: applicationCreated{}, handle: s.createApplication},
		{method: http.MethodGet, path: "/v1/applications", id: "listApplications", tag: "applications", summary: "List applications, newest first",
			query: paging, status: ok, response: list[applicationObject]{}, handle: s.listApplications},
		{method: http.MethodGet, path: "/v1/applications/:id", id: "getApplication", tag: "applications", summary: "Get an application",
			status: ok, response: applicationObject{}, handle: s.getApplication},
		{method: http.MethodPatch, path: "/v1/applications/:id", id: "updateApplication", tag: "applications", summary: "Change an application",
			request: applicationUpdate{}, status: ok, response: applicationObject{}, handle: s.updateApplication},
		{method: http.MethodDelete, path: "/v1/applications/:id", id: "deleteApplication", tag: "applications", summary: "Delete an application and revoke its keys",
			status: noContent, codes: []string{codeResourceInUse}, handle: s.deleteApplication},
		{method: http.MethodPost, path: "/v1/applications/:id/api-keys", id: "createKey", tag: "applications", summary: "Create another API key",
			request: keyCreate{}, bodyOptional: true, status: created, response: keyCreated{}, handle: s.createKey},
		{method: http.MethodGet, path: "/v1/applications/:id/api-keys", id: "listKeys", tag: "applications", summary: "List the application's API keys, revoked ones too",
			status: ok, response: list[keyObject]{}, handle: s.listKeys},
		{method: http.MethodDelete, path: "/v1/applications/:id/api-keys/:kid", id: "revokeKey", tag: "applications", summary: "Revoke an API key, at once",
			status: noContent, handle: s.revokeKey},
		{method: http.MethodPost, path: "/v1/applications/:id/rotate-secret", id: "rotateSecret", tag: "applications", summary: "Replace the webhook secret",
			details: "For 24 hours events carry a signature with the old secret as well.",
			request: secretRotate{}, bodyOptional: true, status: ok, response: secretRotated{}, handle: s.rotateSecret},
		{method: http.MethodPost, path: "/v1/applications/:id/test-webhook", id: "testWebhook", tag: "applications", summary: "Send a webhook.test event to the webhook_url",
			request: emptyCreate{}, bodyOptional: true, status: accepted, response: eventSent{}, handle: s.testWebhook,
			codes: []string{codeNoWebhookURL}},
		{method: http.MethodPost, path: "/v1/applications/:id/simulate", id: "simulate", tag: "applications", summary: "Run the application against a scripted caller",
			details: "No call is made and nothing is charged: the application's own answer_url is asked as a call would ask it. docs/simulator.md describes the script and the report.",
			request: simulationScript{}, bodyOptional: true, raw: true, pure: true, status: ok, response: anyObject{}, handle: s.simulate,
			codes: []string{codeRateLimited}},

		{method: http.MethodPost, path: "/v1/trunks", id: "createTrunk", tag: "trunks", summary: "Create a trunk",
			details: "With proxy it is outbound, with inbound_ip inbound.",
			request: trunkCreate{}, status: created, response: trunkObject{}, handle: s.createTrunk,
			codes: []string{codeGatewayNameExists, codeInboundIPExists, codeNotFound}},
		{method: http.MethodGet, path: "/v1/trunks", id: "listTrunks", tag: "trunks", summary: "List trunks, newest first",
			query: paging, status: ok, response: list[trunkObject]{}, handle: s.listTrunks},
		{method: http.MethodGet, path: "/v1/trunks/:id", id: "getTrunk", tag: "trunks", summary: "Get a trunk",
			status: ok, response: trunkObject{}, handle: s.getTrunk},
		{method: http.MethodPatch, path: "/v1/trunks/:id", id: "updateTrunk", tag: "trunks", summary: "Change a trunk",
			request: trunkUpdate{}, status: ok, response: trunkObject{}, handle: s.updateTrunk,
			codes: []string{codeGatewayNameExists, codeInboundIPExists}},
		{method: http.MethodDelete, path: "/v1/trunks/:id", id: "deleteTrunk", tag: "trunks", summary: "Delete a trunk",
			status: noContent, codes: []string{codeResourceInUse}, handle: s.deleteTrunk},
		{method: http.MethodPost, path: "/v1/trunks/:id/test", id: "testTrunk", tag: "trunks", summary: "Test an outbound trunk, step by step",
			details: "Looks up the carrier, connects to it, asks for its OPTIONS, tries the login without registering, and, where a number is named, calls it over the trunk until it rings. Takes up to 50 seconds.",
			request: trunkTestCreate{}, bodyOptional: true, pure: true, traced: true, status: ok, response: trunkReport{}, handle: s.testTrunk,
			codes: []string{codeRateLimited, codeDestination, codeNoNodeAvailable}},
		{method: http.MethodGet, path: "/v1/trunks/:id/status", id: "getTrunkStatus", tag: "trunks", summary: "Get how a trunk stands with each node",
			status: ok, response: trunkStatus{}, handle: s.getTrunkStatus},
		{method: http.MethodGet, path: "/v1/trunks/:id/history", id: "listTrunkHistory", tag: "trunks", summary: "List the changes of a trunk's registrations and pings, newest first",
			query: paging, status: ok, response: list[trunkChange]{}, handle: s.listTrunkChanges},

		{method: http.MethodPost, path: "/v1/dids", id: "createDID", tag: "dids", summary: "Add a phone number",
			request: didCreate{}, status: created, response: didObject{}, handle: s.createDID,
			codes: []string{codeNumberExists, codeNotFound, codeDestination}},
		{method: http.MethodGet, path: "/v1/dids", id: "listDIDs", tag: "dids", summary: "List phone numbers, newest first",
			query: paging, status: ok, response: list[didObject]{}, handle: s.listDIDs},
		{method: http.MethodGet, path: "/v1/dids/by-number/:number", id: "getDIDByNumber", tag: "dids", summary: "Get a phone number by the number",
			details: "The number in E.164 form; its plus sign may stand as + or %2B.",
			status:  ok, response: didObject{}, handle: s.getDIDByNumber},
		{method: http.MethodGet, path: "/v1/dids/:id", id: "getDID", tag: "dids", summary: "Get a phone number",
			status: ok, response: didObject{}, handle: s.getDID},
		{method: http.MethodPatch, path: "/v1/dids/:id", id: "updateDID", tag: "dids", summary: "Change a phone number's routing",
			request: didUpdate{}, status: ok, response: didObject{}, handle: s.updateDID,
			codes: []string{codeDestination}},
		{method: http.MethodDelete, path: "/v1/dids/:id", id: "deleteDID", tag: "dids", summary: "Remove a phone number",
			status: noContent, handle: s.deleteDID},

		{method: http.MethodPost, path: "/v1/calls", id: "createCall", tag: "calls", summary: "Place a call",
			details: "The call is answered for with status dialing and dialled at once; with start false its status is queued until POST /start, with queue true until there is room for it.",
			request: callCreate{}, status: created, response: callObject{}, dry: prospectObject{}, handle: s.createCall,
			codes: []string{codeInsufficientBalance, codeAccountSuspended, codeNoActiveTrunk, codeDestination, codeConcurrency, codeRateLimited, codeDailyLimit, codeSpendLimit,
				codeNoNodeAvailable, codeNotFound}},
		{method: http.MethodGet, path: "/v1/calls", id: "listCalls", tag: "calls", summary: "List calls, newest first",
			query: callFilters, status: ok, response: list[callObject]{}, handle: s.listCalls},
		{method: http.MethodGet, path: "/v1/calls/:id", id: "getCall", tag: "calls", summary: "Get a call",
			status: ok, response: callObject{}, handle: s.getCall},
		{method: http.MethodPost, path: "/v1/calls/:id/cancel", id: "cancelCall", tag: "calls", summary: "End a call in any live state",
			details: "Accepted, not yet done: the call's final event tells when it has ended.",
			request: callCancel{}, bodyOptional: true, status: accepted, response: callObject{}, handle: s.cancelCall,
			codes: []string{codeCallNotActive, codeNoNodeAvailable}},
		{method: http.MethodPost, path: "/v1/calls/:id/actions", id: "directCall", tag: "calls", summary: "Give a live call new actions",
			details: "The list is checked whole before anything is accepted. Commands to one call are carried out one after the other.",
			request: callDirectCreate{}, status: accepted, response: callObject{}, handle: s.directCall,
			codes: []string{codeCallNotActive, codeNoNodeAvailable}},
		{method: http.MethodPost, path: "/v1/calls/:id/start", id: "startCall", tag: "calls", summary: "Dial a queued call",
			request: emptyCreate{}, bodyOptional: true, status: accepted, response: callObject{}, handle: s.startCall,
			codes: []string{codeCallNotActive, codeCallNotQueued, codeInsufficientBalance, codeAccountSuspended, codeNoActiveTrunk, codeDestination, codeConcurrency, codeRateLimited, codeDailyLimit, codeSpendLimit,
				codeNoNodeAvailable}},
		{method: http.MethodPost, path: "/v1/calls/:id/retry", id: "retryCall", tag: "calls", summary: "Place an ended outbound call again",
			details: "Makes a new call, whose retry_of names the old one.",
			request: emptyCreate{}, bodyOptional: true, status: created, response: callObject{}, handle: s.retryCall,
			codes: []string{codeCallActive, codeInsufficientBalance, codeAccountSuspended, codeNoActiveTrunk, codeDestination, codeConcurrency, codeRateLimited, codeDailyLimit, codeSpendLimit,
				codeNoNodeAvailable}},
		{method: http.MethodGet, path: "/v1/calls/:id/events", id: "listCallEvents", tag: "calls", summary: "List a call's events, oldest first",
			details: "The journal: every event, also of the kinds that the application does not have delivered.",
			query:   paging, status: ok, response: list[eventObject]{}, handle: s.listEvents},
		{method: http.MethodGet, path: "/v1/calls/:id/legs", id: "listCallLegs", tag: "calls", summary: "List the parties that a call dialled",
			status: ok, response: list[legObject]{}, handle: s.listLegs},
		{method: http.MethodGet, path: "/v1/calls/:id/charges", id: "listCharges", tag: "calls", summary: "List the lines of a call's bill",
			details: "One for each leg, also those that nobody answered; their sum is the call's cost. There are none before the call is settled.",
			status:  ok, response: list[chargeObject]{}, handle: s.listCharges},
		{method: http.MethodGet, path: "/v1/calls/:id/recordings", id: "listCallRecordings", tag: "calls", summary: "List a call's recordings",
			status: ok, response: list[recordingObject]{}, handle: s.listRecordings},

		{method: http.MethodGet, path: "/v1/events", id: "listEvents", tag: "events", summary: "Read the journal: the events of all calls, trunks and applications, oldest first",
			details: "Every event, also of the kinds that an application does not have delivered. next_cursor is there on the last page too: it reads on with what happens next, and nothing is missed however many calls are written meanwhile.",
			query:   eventFilters, status: ok, response: list[eventObject]{}, handle: s.listJournal},

		{method: http.MethodGet, path: "/v1/webhook-deliveries", id: "listDeliveries", tag: "events", summary: "List deliveries of events, those of the newest events first",
			query: deliveryFilters, status: ok, response: list[deliveryObject]{}, handle: s.listDeliveries},
		{method: http.MethodPost, path: "/v1/webhook-deliveries/redeliver", id: "redeliverEvents", tag: "events", summary: "Deliver the dead events of an application again",
			details: "At most 1000 in one request, oldest first; has_more says whether to ask again. Each call's go in their order, beside what is delivered of the call for the first time.",
			request: redeliverCreate{}, status: accepted, response: redeliveredObject{}, handle: s.redeliverAll,
			codes: []string{codeNotFound, codeEndpointDisabled, codeNoWebhookURL}},
		{method: http.MethodGet, path: "/v1/webhook-deliveries/:id", id: "getDelivery", tag: "events", summary: "Get the delivery of an event, with every attempt",
			details: "By the event's id, which the webhook carries as webhook-id.",
			status:  ok, response: deliveryWithAttempts{}, handle: s.getDelivery},
		{method: http.MethodPost, path: "/v1/webhook-deliveries/:id/redeliver", id: "redeliverEvent", tag: "events", summary: "Deliver an event again, under the same id",
			details: "It goes beside what is delivered of its call for the first time, and is tried as a new event is.",
			request: emptyCreate{}, bodyOptional: true, status: accepted, response: deliveryObject{}, handle: s.redeliver,
			codes: []string{codeDeliveryPending, codeEndpointDisabled, codeNoWebhookURL}},

		{method: http.MethodGet, path: "/v1/conferences", id: "listConferences", tag: "conferences", summary: "List live conferences, newest first",
			query: paging, status: ok, response: list[conferenceObject]{}, handle: s.listConferences},
		{method: http.MethodGet, path: "/v1/conferences/:id", id: "getConference", tag: "conferences", summary: "Get a conference with its members",
			details: "By its id or, while it lives, its name.",
			status:  ok, response: conferenceWithMembers{}, handle: s.getConference},
		{method: http.MethodPost, path: "/v1/conferences/:id/end", id: "endConference", tag: "conferences", summary: "End a conference; its calls go on with their lists",
			request: emptyCreate{}, bodyOptional: true, status: accepted, response: conferenceObject{}, handle: s.endConference, codes: groupCodes},
		{method: http.MethodPost, path: "/v1/conferences/:id/members/:call_id/mute", id: "muteMember", tag: "conferences", summary: "Mute a member",
			request: emptyCreate{}, bodyOptional: true, status: accepted, response: callObject{}, handle: s.muteMember, codes: groupCodes},
		{method: http.MethodPost, path: "/v1/conferences/:id/members/:call_id/unmute", id: "unmuteMember", tag: "conferences", summary: "Let a member be heard again",
			request: emptyCreate{}, bodyOptional: true, status: accepted, response: callObject{}, handle: s.unmuteMember, codes: groupCodes},
		{method: http.MethodPost, path: "/v1/conferences/:id/members/:call_id/kick", id: "kickMember", tag: "conferences", summary: "Take a member out; its call goes on with its list",
			request: emptyCreate{}, bodyOptional: true, status: accepted, response: callObject{}, handle: s.kickMember, codes: groupCodes},
		{method: http.MethodPost, path: "/v1/conferences/:id/members/:call_id/hangup", id: "hangupMember", tag: "conferences", summary: "Hang up on a member",
			request: emptyCreate{}, bodyOptional: true, status: accepted, response: callObject{}, handle: s.hangupMember, codes: groupCodes},

		{method: http.MethodGet, path: "/v1/queues", id: "listQueues", tag: "queues", summary: "List the queues that calls wait in",
			status: ok, response: list[queueObject]{}, handle: s.listQueues},
		{method: http.MethodGet, path: "/v1/queues/:name", id: "getQueue", tag: "queues", summary: "Get a queue with the calls that wait in it",
			status: ok, response: queueWithEntries{}, handle: s.getQueue},
		{method: http.MethodPost, path: "/v1/queues/:name/members/:call_id/kick", id: "leaveQueue", tag: "queues", summary: "Take a call out of a queue; it goes on with its list",
			request: emptyCreate{}, bodyOptional: true, status: accepted, response: callObject{}, handle: s.leaveQueue, codes: groupCodes},
		{method: http.MethodPost, path: "/v1/queues/:name/members/:call_id/hangup", id: "hangupQueued", tag: "queues", summary: "Hang up on a call that waits",
			request: emptyCreate{}, bodyOptional: true, status: accepted, response: callObject{}, handle: s.hangupQueued, codes: groupCodes},

		{method: http.MethodGet, path: "/v1/actions/schema.json", id: "actionSchema", tag: "actions", summary: "The vocabulary of actions as JSON Schema 2020-12",
			status: ok, response: anyObject{}, public: true, handle: s.actionSchema},
		{method: http.MethodPost, path: "/v1/actions/validate", id: "validateActions", tag: "actions", summary: "Check what an answer_url would answer",
			details: "The body is the reply itself: a list of actions, or an object with actions and variables. That it is wrong is an answer with status 200 and valid false.",
			request: anyValue{}, raw: true, pure: true, status: ok, response: verdictObject{}, handle: s.validateActions},

		{method: http.MethodGet, path: "/v1/openapi.json", id: "openapi", tag: "meta", summary: "This document",
			status: ok, response: anyObject{}, public: true, handle: s.openapi},
	}
}

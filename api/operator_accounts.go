package api

import (
	"errors"
	"net/http"

	"tandem/billing"
	"tandem/models"
)

type creditCreate struct {
	Amount *string `json:"amount" required:"true" doc:"More than 0, in units of the currency, with at most six decimals." example:"25.00"`
	Key    *string `json:"key" required:"true" max:"100" doc:"What makes the payment happen once, such as the number of an invoice: repeated with the same key, the request changes nothing." example:"invoice-2026-117"`
	Note   *string `json:"note" max:"255" doc:"What it is for; the customer sees it."`
}

type adjustmentCreate struct {
	Amount *string `json:"amount" required:"true" doc:"What is added, negative to take, in units of the currency, with at most six decimals." example:"-3.20"`
	Key    *string `json:"key" required:"true" max:"100" doc:"What makes the adjustment happen once: repeated with the same key, the request changes nothing." example:"ticket-4711"`
	Note   *string `json:"note" required:"true" max:"255" doc:"What it is for; the customer sees it." example:"Refund of a call with no sound"`
}

// ledgerObject is one change of a balance, as operators see it.
type ledgerObject struct {
	ID            string  `json:"id" example:"led_01jd3v5q8n6w4x2y0z9a8b7c6d"`
	Kind          string  `json:"kind" enum:"topup,call,adjust"`
	Key           string  `json:"key" doc:"What made it happen once."`
	Amount        string  `json:"amount" doc:"Negative where money leaves." example:"-0.01"`
	Balance       string  `json:"balance" doc:"The balance after it."`
	AmountMicros  int64   `json:"amount_micros"`
	BalanceMicros int64   `json:"balance_micros"`
	CallID        *string `json:"call_id"`
	Note          string  `json:"note"`
	Actor         *string `json:"actor" doc:"The operator who made it, as they were called then; null for what calls cost." example:"ana"`
	CreatedAt     string  `json:"created_at" format:"date-time" doc:"For a call's debit the time of its settlement."`
}

func toLedger(e *models.LedgerEntry) ledgerObject {
	return ledgerObject{
		ID: e.ID, Kind: e.Kind, Key: e.Key, Amount: billing.FormatAmount(e.AmountMicros), Balance: billing.FormatAmount(e.BalanceMicros),
		AmountMicros: e.AmountMicros, BalanceMicros: e.BalanceMicros, CallID: e.CallID, Note: e.Note, Actor: orNil(e.Actor), CreatedAt: stamp(e.CreatedAt),
	}
}

func (s *Server) operatorAccountRoutes() []route {
	return []route{
		{method: http.MethodPost, path: "/operator/v1/customers/:id/credits", id: "creditCustomer", tag: "customers", summary: "Add to a customer's balance",
			details: "The same key adds once, however often it is sent.",
			role:    models.RoleAdmin, request: creditCreate{}, status: created, response: ledgerObject{}, handle: s.creditCustomer,
			codes: []string{codeIdempotencyConflict}},
		{method: http.MethodPost, path: "/operator/v1/customers/:id/adjustments", id: "adjustCustomer", tag: "customers", summary: "Correct a customer's balance, up or down",
			details: "The same key adjusts once, however often it is sent. What live calls hold cannot be taken.",
			role:    models.RoleAdmin, request: adjustmentCreate{}, status: created, response: ledgerObject{}, handle: s.adjustCustomer,
			codes: []string{codeIdempotencyConflict, codeInsufficientBalance}},
		{method: http.MethodGet, path: "/operator/v1/customers/:id/ledger", id: "listLedger", tag: "customers", summary: "List the changes of a customer's balance, newest first",
			details: ledgerDetails,
			role:    models.RoleViewer, query: ledgerFilters, csv: true, status: ok, response: list[ledgerObject]{}, handle: s.listLedger},
		{method: http.MethodGet, path: "/operator/v1/customers/:id/usage", id: "customerUsage", tag: "customers", summary: "Sum up a customer's calls",
			details: usageDetails,
			role:    models.RoleViewer, query: usageFilters, csv: true, status: ok, response: usageObject{}, handle: s.customerUsage},
		{method: http.MethodGet, path: "/operator/v1/customers/:id/statements", id: "listStatements", tag: "customers", summary: "List a customer's statements, one for each month, newest first",
			details: statementDetails,
			role:    models.RoleViewer, query: formats, csv: true, status: ok, response: list[statementObject]{}, handle: s.listStatements},
		{method: http.MethodGet, path: "/operator/v1/customers/:id/statements/:month", id: "customerStatement", tag: "customers", summary: "Get a customer's statement of a month",
			details: statementDetails,
			role:    models.RoleViewer, query: formats, csv: true, status: ok, response: statementObject{}, handle: s.customerStatement},
		{method: http.MethodGet, path: "/operator/v1/calls/:id/charges", id: "findCharges", tag: "calls", summary: "List the lines of a call's bill",
			role: models.RoleViewer, status: ok, response: list[chargeObject]{}, handle: s.findCharges},
	}
}

// maxAmountMicros bounds amounts that operators name, so that no sum of them leaves 64 bits: a thousand million units.
const maxAmountMicros = 1_000_000_000 * 1_000_000

// amount accepts a decimal amount of currency that is not negative and returns its millionths.
func (c *checks) amount(field string, value *string) int64 {
	micros := c.signedAmount(field, value)
	if micros < 0 {
		c.refuse(field, "%s must not be negative", field)
		return 0
	}
	return micros
}

// signedAmount accepts a decimal amount of currency and returns its millionths.
func (c *checks) signedAmount(field string, value *string) int64 {
	if value == nil {
		return 0
	}
	micros, err := billing.ParseAmount(*value)
	if err != nil {
		c.refuse(field, "%s must be an amount such as 25.00, with at most six decimals", field)
		return 0
	}
	if micros > maxAmountMicros || micros < -maxAmountMicros {
		c.refuse(field, "%s must be at most %s", field, billing.FormatAmount(maxAmountMicros))
		return 0
	}
	return micros
}

func (s *Server) creditCustomer(r *request) (any, error) {
	in := body[creditCreate](r)
	c := &checks{}
	c.required("amount", in.Amount)
	micros := c.amount("amount", in.Amount)
	if micros == 0 {
		c.refuse("amount", "amount must be more than 0")
	}
	key, note := c.name("key", in.Key), c.text("note", in.Note, maxSecretLength)
	if err := c.failed(); err != nil {
		return nil, err
	}
	return s.post(r, "topup", models.LedgerTopup, key, micros, note)
}

func (s *Server) adjustCustomer(r *request) (any, error) {
	in := body[adjustmentCreate](r)
	c := &checks{}
	c.required("amount", in.Amount)
	micros := c.signedAmount("amount", in.Amount)
	if micros == 0 {
		c.refuse("amount", "amount must not be 0")
	}
	c.required("note", in.Note)
	key, note := c.name("key", in.Key), c.text("note", in.Note, maxSecretLength)
	if err := c.failed(); err != nil {
		return nil, err
	}
	return s.post(r, "adjust", models.LedgerAdjust, key, micros, note)
}

// post changes the balance of the customer that the path names, once for each key of a kind.
func (s *Server) post(r *request, family, kind, key string, micros int64, note string) (any, error) {
	id := r.params["id"]
	var answer ledgerObject
	err := s.store.InTx(r.ctx, func(tx *models.Store) error {
		entry, err := tx.Credit(r.ctx, id, family+":"+id+":"+key, kind, micros, note)
		if errors.Is(err, models.ErrInsufficientBalance) {
			return &Error{Code: codeInsufficientBalance, Field: "amount", Message: "amount would leave less than live calls hold: see available", cause: err}
		}
		if err != nil {
			return orNotFound(err, "customer")
		}
		if entry.AmountMicros != micros {
			return &Error{Code: codeIdempotencyConflict, Field: "key", Message: "key was already used for another amount: " + billing.FormatAmount(entry.AmountMicros)}
		}
		answer = toLedger(entry)
		r.concerns(id, id)
		r.auditNote("ledger_entry", entry.ID) // a request that is repeated names the same one
		return nil
	})
	return answer, err
}

func (s *Server) listLedger(r *request) (any, error) {
	customer, err := s.store.Customer(r.ctx, r.params["id"])
	if err != nil {
		return nil, orNotFound(err, "customer")
	}
	head := append(append([]string{}, ledgerHead...), "key", "actor")
	return s.ledgerOf(r, customer, head, func(e *models.LedgerEntry) []string {
		return append(ledgerCells(customer, e), cell(e.Key), cell(e.Actor))
	}, func(rows []models.LedgerEntry, next string) any { return listOf(rows, next, toLedger) })
}

func (s *Server) customerUsage(r *request) (any, error) {
	customer, err := s.store.Customer(r.ctx, r.params["id"])
	if err != nil {
		return nil, orNotFound(err, "customer")
	}
	return s.usageOf(r, customer)
}

func (s *Server) listStatements(r *request) (any, error) { return s.statementsOf(r, r.params["id"]) }

func (s *Server) customerStatement(r *request) (any, error) { return s.statementOf(r, r.params["id"]) }

func (s *Server) findCharges(r *request) (any, error) {
	call, err := s.store.CallByID(r.ctx, r.params["id"])
	if err != nil {
		return nil, orNotFound(err, "call")
	}
	return s.chargesOf(r, call)
}

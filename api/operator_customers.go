package api

import (
	"net/http"
	"regexp"

	"tandem/billing"
	"tandem/models"
)

// customerObject is a customer as operators see one.
type customerObject struct {
	ID              string `json:"id" example:"cust_01jd3v5q8n6w4x2y0z9a8b7c6d"`
	Name            string `json:"name"`
	Currency        string `json:"currency" doc:"ISO 4217 code of every amount of this customer." example:"EUR"`
	Balance         string `json:"balance" doc:"In units of the currency, exact." example:"10.00"`
	Held            string `json:"held" doc:"The part of the balance that live calls have reserved." example:"0.60"`
	Available       string `json:"available" doc:"What new calls can reserve: balance less held." example:"9.40"`
	BalanceMicros   int64  `json:"balance_micros" doc:"The balance in millionths of the currency's unit."`
	HeldMicros      int64  `json:"held_micros"`
	AvailableMicros int64  `json:"available_micros"`
	CreatedAt       string `json:"created_at" format:"date-time"`
}

// customerDetail is a customer with what is going on there.
type customerDetail struct {
	customerObject
	LiveCalls int64        `json:"live_calls" doc:"How many of the customer's calls have not ended."`
	Limits    limitsObject `json:"limits"`
}

type customerCreate struct {
	Name     *string `json:"name" required:"true" max:"100"`
	Balance  *string `json:"balance" doc:"Opening balance in units of the currency, with at most six decimals. Default 0." example:"25.00"`
	Currency *string `json:"currency" pattern:"^[A-Z]{3}$" doc:"ISO 4217 code. Default: the configured currency." example:"EUR"`
	limitsUpdate
}

type creditCreate struct {
	Amount *string `json:"amount" required:"true" doc:"More than 0, in units of the currency, with at most six decimals." example:"25.00"`
	Key    *string `json:"key" required:"true" max:"100" doc:"What makes the payment happen once, such as the number of an invoice: repeated with the same key, the request changes nothing." example:"invoice-2026-117"`
	Note   *string `json:"note" max:"255" doc:"What it is for."`
}

// ledgerObject is one change of a balance.
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
	CreatedAt     string  `json:"created_at" format:"date-time"`
}

func toCustomer(c *models.Customer) customerObject {
	return customerObject{
		ID: c.ID, Name: c.Name, Currency: c.Currency, Balance: billing.FormatAmount(c.BalanceMicros), Held: billing.FormatAmount(c.HeldMicros),
		Available:     billing.FormatAmount(c.BalanceMicros - c.HeldMicros),
		BalanceMicros: c.BalanceMicros, HeldMicros: c.HeldMicros, AvailableMicros: c.BalanceMicros - c.HeldMicros, CreatedAt: stamp(c.CreatedAt),
	}
}

func toLedger(e *models.LedgerEntry) ledgerObject {
	return ledgerObject{
		ID: e.ID, Kind: e.Kind, Key: e.Key, Amount: billing.FormatAmount(e.AmountMicros), Balance: billing.FormatAmount(e.BalanceMicros),
		AmountMicros: e.AmountMicros, BalanceMicros: e.BalanceMicros, CallID: e.CallID, Note: e.Note, CreatedAt: stamp(e.CreatedAt),
	}
}

func (s *Server) operatorCustomerRoutes() []route {
	return []route{
		{method: http.MethodPost, path: "/operator/v1/customers", id: "createCustomer", tag: "customers", summary: "Create a customer",
			details: "Limits that are not named are those of the configuration for new customers: with its defaults such a customer may call nowhere yet.",
			role:    models.RoleAdmin, request: customerCreate{}, status: created, response: customerDetail{}, handle: s.createCustomer},
		{method: http.MethodGet, path: "/operator/v1/customers", id: "listCustomers", tag: "customers", summary: "List customers, newest first",
			role: models.RoleViewer, query: paging, status: ok, response: list[customerObject]{}, handle: s.listCustomers},
		{method: http.MethodGet, path: "/operator/v1/customers/:id", id: "getCustomer", tag: "customers", summary: "Get a customer",
			role: models.RoleViewer, status: ok, response: customerDetail{}, handle: s.getCustomer},
		{method: http.MethodPost, path: "/operator/v1/customers/:id/credits", id: "creditCustomer", tag: "customers", summary: "Add to a customer's balance",
			details: "The same key adds once, however often it is sent.",
			role:    models.RoleAdmin, request: creditCreate{}, status: created, response: ledgerObject{}, handle: s.creditCustomer,
			codes: []string{codeIdempotencyConflict}},
		{method: http.MethodGet, path: "/operator/v1/customers/:id/ledger", id: "listLedger", tag: "customers", summary: "List the changes of a customer's balance, newest first",
			role: models.RoleViewer, query: paging, status: ok, response: list[ledgerObject]{}, handle: s.listLedger},
	}
}

var currencyPattern = regexp.MustCompile(`^[A-Z]{3}$`)

// amount accepts a decimal amount of currency and returns its millionths.
func (c *checks) amount(field string, value *string) int64 {
	if value == nil {
		return 0
	}
	micros, err := billing.ParseAmount(*value)
	if err != nil || micros < 0 {
		c.refuse(field, "%s must be an amount such as 25.00, with at most six decimals", field)
		return 0
	}
	return micros
}

func (s *Server) createCustomer(r *request) (any, error) {
	in := body[customerCreate](r)
	c := &checks{}
	customer := models.Customer{Name: c.name("name", in.Name), BalanceMicros: c.amount("balance", in.Balance), Currency: s.currency}
	customer.Limits = s.newCustomer
	c.customerLimits(&in.limitsUpdate, r.given, &customer.Limits)
	if in.Currency != nil {
		if customer.Currency = *in.Currency; !currencyPattern.MatchString(customer.Currency) {
			c.refuse("currency", "currency must be an ISO 4217 code such as EUR")
		}
	}
	if err := c.failed(); err != nil {
		return nil, err
	}
	var answer customerDetail
	err := s.store.InTx(r.ctx, func(tx *models.Store) error {
		row := customer
		if err := tx.CreateCustomer(r.ctx, &row); err != nil {
			return err
		}
		answer = customerDetail{customerObject: toCustomer(&row), Limits: toLimits(&row.Limits)}
		r.concerns(row.ID, row.ID)
		return r.keep(tx, created, answer)
	})
	return answer, err
}

func (s *Server) listCustomers(r *request) (any, error) {
	page, err := r.page()
	if err != nil {
		return nil, err
	}
	rows, next, err := s.store.ListCustomers(r.ctx, page)
	if err != nil {
		return nil, err
	}
	return listOf(rows, next, toCustomer), nil
}

func (s *Server) getCustomer(r *request) (any, error) {
	customer, err := s.store.Customer(r.ctx, r.params["id"])
	if err != nil {
		return nil, orNotFound(err, "customer")
	}
	live, err := s.store.CountLiveCalls(r.ctx, customer.ID)
	if err != nil {
		return nil, err
	}
	return customerDetail{customerObject: toCustomer(customer), LiveCalls: live, Limits: toLimits(&customer.Limits)}, nil
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
	id := r.params["id"]
	var answer ledgerObject
	err := s.store.InTx(r.ctx, func(tx *models.Store) error {
		entry, err := tx.Credit(r.ctx, id, "topup:"+id+":"+key, models.LedgerTopup, micros, note)
		if err != nil {
			return orNotFound(err, "customer")
		}
		if entry.AmountMicros != micros {
			return &Error{Code: codeIdempotencyConflict, Field: "key", Message: "key was already used for another amount: " + billing.FormatAmount(entry.AmountMicros)}
		}
		answer = toLedger(entry)
		r.concerns(id, id)
		return nil
	})
	return answer, err
}

func (s *Server) listLedger(r *request) (any, error) {
	page, err := r.page()
	if err != nil {
		return nil, err
	}
	if _, err := s.store.Customer(r.ctx, r.params["id"]); err != nil {
		return nil, orNotFound(err, "customer")
	}
	rows, next, err := s.store.ListLedger(r.ctx, r.params["id"], models.LedgerFilter{}, page)
	if err != nil {
		return nil, err
	}
	return listOf(rows, next, toLedger), nil
}

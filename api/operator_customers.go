package api

import (
	"net/http"
	"regexp"

	"tandem/billing"
	"tandem/models"
)

// customerObject is a customer as operators see one.
type customerObject struct {
	ID                string  `json:"id" example:"cust_01jd3v5q8n6w4x2y0z9a8b7c6d"`
	Name              string  `json:"name"`
	Status            string  `json:"status" enum:"active,suspended" doc:"A suspended customer begins no calls; those that live go on."`
	Currency          string  `json:"currency" doc:"ISO 4217 code of every amount of this customer; it never changes." example:"EUR"`
	Balance           string  `json:"balance" doc:"In units of the currency, exact; negative where credit is used." example:"10.00"`
	Held              string  `json:"held" doc:"What live calls have reserved." example:"0.60"`
	CreditLimit       string  `json:"credit_limit" doc:"How far below zero the balance may be." example:"0.00"`
	Available         string  `json:"available" doc:"What new calls can reserve: balance and credit limit, less held." example:"9.40"`
	LowBalance        *string `json:"low_balance" doc:"At or below which balance and credit limit the customer is told; null: never." example:"5.00"`
	BalanceMicros     int64   `json:"balance_micros" doc:"The balance in millionths of the currency's unit."`
	HeldMicros        int64   `json:"held_micros"`
	CreditLimitMicros int64   `json:"credit_limit_micros"`
	AvailableMicros   int64   `json:"available_micros"`
	LowBalanceMicros  *int64  `json:"low_balance_micros"`
	RateDeckID        *string `json:"rate_deck_id" doc:"The customer's own rate deck; null: the default one of the currency."`
	CreatedAt         string  `json:"created_at" format:"date-time"`
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
	Currency *string `json:"currency" pattern:"^[A-Z]{3}$" doc:"ISO 4217 code, which stays. Default: the configured currency." example:"EUR"`
	// CreditLimit and LowBalance are as in customerUpdate.
	CreditLimit *string `json:"credit_limit" doc:"How far below zero the balance may be, in units of the currency. Default 0." example:"0"`
	LowBalance  *string `json:"low_balance" nullable:"true" doc:"At or below which balance and credit limit the customer is told. Default null: never." example:"5"`
	limitsUpdate
}

type customerUpdate struct {
	Name        *string `json:"name" max:"100"`
	Status      *string `json:"status" enum:"active,suspended" doc:"A suspended customer begins no calls; those that live go on."`
	CreditLimit *string `json:"credit_limit" doc:"How far below zero the balance may be, in units of the currency; with the balance it must cover what is held." example:"100"`
	LowBalance  *string `json:"low_balance" nullable:"true" doc:"At or below which balance and credit limit the customer is told; null: never." example:"5"`
}

func toCustomer(c *models.Customer) customerObject {
	return customerObject{
		ID: c.ID, Name: c.Name, Status: c.Status, Currency: c.Currency,
		Balance: billing.FormatAmount(c.BalanceMicros), Held: billing.FormatAmount(c.HeldMicros), CreditLimit: billing.FormatAmount(c.CreditLimitMicros),
		Available: billing.FormatAmount(c.FreeMicros()), LowBalance: amountOrNil(c.LowBalanceMicros, billing.FormatAmount),
		BalanceMicros: c.BalanceMicros, HeldMicros: c.HeldMicros, CreditLimitMicros: c.CreditLimitMicros, AvailableMicros: c.FreeMicros(),
		LowBalanceMicros: c.LowBalanceMicros, RateDeckID: orNil(c.RateDeckID), CreatedAt: stamp(c.CreatedAt),
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
		{method: http.MethodPatch, path: "/operator/v1/customers/:id", id: "updateCustomer", tag: "customers", summary: "Change a customer",
			details: "Name, status, credit limit and threshold; the currency never changes.",
			role:    models.RoleAdmin, request: customerUpdate{}, status: ok, response: customerDetail{}, handle: s.updateCustomer},
	}
}

var currencyPattern = regexp.MustCompile(`^[A-Z]{3}$`)

func (s *Server) createCustomer(r *request) (any, error) {
	in := body[customerCreate](r)
	c := &checks{}
	customer := models.Customer{Name: c.name("name", in.Name), BalanceMicros: c.amount("balance", in.Balance), Currency: s.currency}
	c.account(in.CreditLimit, in.LowBalance, r.given, &customer)
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

// account changes the credit limit and the threshold where the request names them.
func (c *checks) account(credit, low *string, given fieldSet, to *models.Customer) {
	if given.has("credit_limit") {
		to.CreditLimitMicros = c.amount("credit_limit", credit)
	}
	if given.has("low_balance") {
		to.LowBalanceMicros = nil
		if low != nil {
			threshold := c.amount("low_balance", low)
			to.LowBalanceMicros = &threshold
		}
	}
}

func (s *Server) updateCustomer(r *request) (any, error) {
	in := body[customerUpdate](r)
	var answer customerDetail
	err := s.store.InTx(r.ctx, func(tx *models.Store) error {
		customer, err := tx.EditCustomer(r.ctx, r.params["id"])
		if err != nil {
			return orNotFound(err, "customer")
		}
		c := &checks{}
		if r.given.has("name") {
			customer.Name = c.name("name", in.Name)
		}
		if r.given.has("status") {
			customer.Status = c.oneOf("status", in.Status, models.CustomerActive, models.CustomerSuspended)
		}
		c.account(in.CreditLimit, in.LowBalance, r.given, customer)
		if least := customer.HeldMicros - customer.BalanceMicros; customer.CreditLimitMicros < least {
			c.refuse("credit_limit", "credit_limit must be at least %s: the balance is %s, and live calls hold %s",
				billing.FormatAmount(least), billing.FormatAmount(customer.BalanceMicros), billing.FormatAmount(customer.HeldMicros))
		}
		if err := c.failed(); err != nil {
			return err
		}
		if err := tx.SetAccount(r.ctx, customer); err != nil {
			return err
		}
		live, err := tx.CountLiveCalls(r.ctx, customer.ID)
		if err != nil {
			return err
		}
		answer = customerDetail{customerObject: toCustomer(customer), LiveCalls: live, Limits: toLimits(&customer.Limits)}
		r.concerns(customer.ID, customer.ID)
		return nil
	})
	return answer, err
}

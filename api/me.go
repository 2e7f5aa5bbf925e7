package api

import (
	"fmt"

	"tandem/models"
)

// meObject says for whom the key speaks and what that customer has.
type meObject struct {
	ID                string  `json:"id" example:"cust_01jd3v5q8n6w4x2y0z9a8b7c6d"`
	Name              string  `json:"name"`
	Status            string  `json:"status" enum:"active,suspended" doc:"A suspended account begins no calls; those that live go on."`
	Currency          string  `json:"currency" doc:"ISO 4217 code of every amount of this customer." example:"EUR"`
	Balance           string  `json:"balance" doc:"The balance in units of the currency, exact to six decimals; negative where credit is used." example:"10.000000"`
	BalanceMicros     int64   `json:"balance_micros" doc:"The balance in millionths of the currency's unit."`
	Held              string  `json:"held" doc:"What live calls have reserved." example:"0.600000"`
	HeldMicros        int64   `json:"held_micros"`
	CreditLimit       string  `json:"credit_limit" doc:"How far below zero the balance may be." example:"0.000000"`
	CreditLimitMicros int64   `json:"credit_limit_micros"`
	Available         string  `json:"available" doc:"What new calls can reserve: balance and credit limit, less held." example:"9.400000"`
	AvailableMicros   int64   `json:"available_micros"`
	LowBalance        *string `json:"low_balance" doc:"At or below which balance and credit limit the event balance.low tells; null: never." example:"5.000000"`
	LowBalanceMicros  *int64  `json:"low_balance_micros"`
	ApplicationID     *string `json:"application_id" doc:"The application whose key this is; null for a key of the customer."`
	CreatedAt         string  `json:"created_at" format:"date-time"`
	// Limits are set by the operator.
	Limits limitsObject `json:"limits"`
}

func (s *Server) me(r *request) (any, error) {
	customer, err := s.store.Customer(r.ctx, r.customer)
	if err != nil {
		return nil, orNotFound(err, "customer")
	}
	return toMe(customer, r.key), nil
}

func toMe(customer *models.Customer, key *models.APIKey) meObject {
	return meObject{
		ID: customer.ID, Name: customer.Name, Status: customer.Status, Currency: customer.Currency,
		Balance: amount(customer.BalanceMicros), BalanceMicros: customer.BalanceMicros,
		Held: amount(customer.HeldMicros), HeldMicros: customer.HeldMicros,
		CreditLimit: amount(customer.CreditLimitMicros), CreditLimitMicros: customer.CreditLimitMicros,
		Available: amount(customer.FreeMicros()), AvailableMicros: customer.FreeMicros(),
		LowBalance: amountOrNil(customer.LowBalanceMicros, amount), LowBalanceMicros: customer.LowBalanceMicros,
		ApplicationID: key.ApplicationID, CreatedAt: stamp(customer.CreatedAt), Limits: toLimits(&customer.Limits),
	}
}

// amountOrNil writes an amount that need not be there.
func amountOrNil(micros *int64, write func(int64) string) *string {
	if micros == nil {
		return nil
	}
	text := write(*micros)
	return &text
}

// amount writes millionths as a decimal number without rounding.
func amount(micros int64) string {
	sign, whole := "", uint64(micros)
	if micros < 0 {
		sign, whole = "-", -uint64(micros)
	}
	return fmt.Sprintf("%s%d.%06d", sign, whole/1_000_000, whole%1_000_000)
}

package api

import (
	"fmt"

	"tandem/models"
)

// meObject says for whom the key speaks and what that customer has.
type meObject struct {
	ID              string  `json:"id" example:"cust_01jd3v5q8n6w4x2y0z9a8b7c6d"`
	Name            string  `json:"name"`
	Currency        string  `json:"currency" doc:"ISO 4217 code of every amount of this customer." example:"EUR"`
	Balance         string  `json:"balance" doc:"The balance in units of the currency, exact to six decimals." example:"10.000000"`
	BalanceMicros   int64   `json:"balance_micros" doc:"The balance in millionths of the currency's unit."`
	HeldMicros      int64   `json:"held_micros" doc:"The part of the balance that live calls have reserved."`
	AvailableMicros int64   `json:"available_micros" doc:"What new calls can reserve: balance less held."`
	ApplicationID   *string `json:"application_id" doc:"The application whose key this is; null for a key of the customer."`
	CreatedAt       string  `json:"created_at" format:"date-time"`
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
		ID: customer.ID, Name: customer.Name, Currency: customer.Currency,
		Balance: amount(customer.BalanceMicros), BalanceMicros: customer.BalanceMicros, HeldMicros: customer.HeldMicros,
		AvailableMicros: customer.BalanceMicros - customer.HeldMicros,
		ApplicationID:   key.ApplicationID, CreatedAt: stamp(customer.CreatedAt), Limits: toLimits(&customer.Limits),
	}
}

// amount writes millionths as a decimal number without rounding.
func amount(micros int64) string {
	sign, whole := "", uint64(micros)
	if micros < 0 {
		sign, whole = "-", -uint64(micros)
	}
	return fmt.Sprintf("%s%d.%06d", sign, whole/1_000_000, whole%1_000_000)
}

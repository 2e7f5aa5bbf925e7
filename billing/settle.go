package billing

import (
	"context"
	"fmt"
	"math"
	"time"

	"tandem/models"
)

// Settle charges a call that ended, once: it writes a line for each of its legs, sets BilledSeconds, CostMicros and SettledAt, releases the hold and
// writes the ledger entry; models.ErrStale where that was done before. Only the seconds that the switch counted make the cost: billedSeconds of the
// call's own leg, and those that its legs have stored. attempted says that the other side of the call's own leg was reached, although it may not have
// answered. A call that outran its cap may cost more than its hold: the rest comes from the free balance as far as that goes, never from
// what other calls hold; what remains is waived, in a line of its own, and logged.
func (r *Rater) Settle(ctx context.Context, tx *models.Store, call *models.Call, billedSeconds int, attempted bool) error {
	if billedSeconds < 0 {
		return fmt.Errorf("settle call %q: %d billed seconds", call.ID, billedSeconds)
	}
	settled := *call
	settled.BilledSeconds = billedSeconds
	err := tx.InTx(ctx, func(tx *models.Store) error {
		lines, err := r.bill(ctx, tx, &settled, attempted)
		if err != nil {
			return err
		}
		settled.CostMicros = sum(lines)
		if settled.CostMicros > call.HoldMicros {
			covered, err := r.cover(ctx, tx, call, settled.CostMicros)
			if err != nil {
				return err
			}
			r.cfg.Logger.WarnContext(ctx, "call cost more than its hold", "call_id", call.ID, "hold_micros", call.HoldMicros,
				"cost_micros", settled.CostMicros, "charged_micros", covered, "billed_seconds", billedSeconds, "granted_seconds", call.GrantedSeconds)
			if waived := settled.CostMicros - covered; waived > 0 {
				lines = append(lines, models.Charge{
					CallID: call.ID, LegID: models.ChargeWaived, CustomerID: call.CustomerID, Kind: models.ChargeWaived, AmountMicros: -waived,
				})
			}
			settled.CostMicros = covered
		}
		if _, err := tx.SettleHold(ctx, call.CustomerID, call.ID, call.HoldMicros, settled.CostMicros); err != nil {
			return err
		}
		if err := tx.AddCharges(ctx, lines); err != nil {
			return err
		}
		if err := tx.UpdateCall(ctx, &settled, "billed_seconds", "cost_micros"); err != nil {
			return err
		}
		stored, err := tx.CallByID(ctx, call.ID)
		if err != nil {
			return err
		}
		settled.SettledAt = stored.SettledAt
		return nil
	})
	if err != nil {
		return fmt.Errorf("settle call %q: %w", call.ID, err)
	}
	call.BilledSeconds, call.CostMicros, call.SettledAt, call.UpdatedAt = settled.BilledSeconds, settled.CostMicros, settled.SettledAt, settled.UpdatedAt
	return nil
}

// bill makes the lines of a call: none for one that was never to be dialled, which holds and was granted nothing.
func (r *Rater) bill(ctx context.Context, tx *models.Store, call *models.Call, attempted bool) ([]models.Charge, error) {
	if call.GrantedSeconds == 0 {
		return nil, nil
	}
	rate := r.RateOf(call)
	own := models.Charge{
		CallID: call.ID, LegID: call.ID, CustomerID: call.CustomerID, Kind: models.ChargeCall, Target: call.To, TrunkID: call.TrunkID, Rate: rate,
		Answered: answered(call.AnsweredAt, call.BilledSeconds), BilledSeconds: call.BilledSeconds,
	}
	if own.Answered || attempted {
		own.AmountMicros = rate.Cost(own.Answered, own.BilledSeconds)
	}
	lines := []models.Charge{own}
	legs, err := tx.LegsOfCall(ctx, call.CustomerID, call.ID)
	if err != nil {
		return nil, err
	}
	for i := range legs {
		leg := &legs[i]
		if leg.Rate == nil {
			continue
		}
		line := models.Charge{
			CallID: call.ID, LegID: leg.ID, CustomerID: call.CustomerID, Kind: leg.Kind, Target: leg.To, TrunkID: leg.TrunkID, Rate: *leg.Rate,
			Answered: answered(leg.AnsweredAt, leg.BilledSeconds), BilledSeconds: leg.BilledSeconds, AmountMicros: LegCost(leg),
		}
		lines = append(lines, line)
	}
	return lines, nil
}

// LegCost is what a leg that has ended costs: nothing, where it was promised no rate or its other side was never reached.
func LegCost(leg *models.Leg) int64 {
	talked := answered(leg.AnsweredAt, leg.BilledSeconds)
	if leg.Rate == nil || !talked && leg.RingingAt == nil && leg.SIPCode == 0 {
		return 0
	}
	return leg.Rate.Cost(talked, leg.BilledSeconds)
}

// answered says whether somebody answered: where the word of it was lost, that the switch counted seconds says so.
func answered(at *time.Time, billedSeconds int) bool { return at != nil || billedSeconds > 0 }

// sum is what the lines come to, math.MaxInt64 where that does not fit: a call must end whatever its switch said.
func sum(lines []models.Charge) int64 {
	var sum int64
	for i := range lines {
		if lines[i].AmountMicros > math.MaxInt64-sum {
			return math.MaxInt64
		}
		sum += lines[i].AmountMicros
	}
	return sum
}

// cover returns how much of cost the call's hold and the customer's free balance pay.
func (r *Rater) cover(ctx context.Context, tx *models.Store, call *models.Call, cost int64) (int64, error) {
	// Holding nothing takes the row's lock: the free balance cannot change before it is charged.
	if err := tx.Hold(ctx, call.CustomerID, 0); err != nil {
		return 0, err
	}
	customer, err := tx.Customer(ctx, call.CustomerID)
	if err != nil {
		return 0, err
	}
	return min(cost, call.HoldMicros+max(customer.FreeMicros(), 0)), nil
}

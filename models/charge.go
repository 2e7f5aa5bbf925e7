package models

import (
	"cmp"
	"context"
	"fmt"
	"time"
)

// Kinds of charges beyond those of legs.
const (
	// ChargeCall is the line of the call's own leg.
	ChargeCall = "call"
	// ChargeWaived is a negative line: what a call cost beyond its hold and the free balance, which nobody pays. Its LegID is ChargeWaived, too.
	ChargeWaived = "waived"
)

// Charge is a line of a call's bill: what one leg of it cost. A call's cost is the sum of its lines.
type Charge struct {
	CallID string `gorm:"primaryKey"`
	// LegID is the leg's, the call's own for the call itself.
	LegID      string `gorm:"primaryKey"`
	CustomerID string
	// Kind is ChargeCall, ChargeWaived or the kind of the leg, Target the number or URI that was called.
	Kind    string
	Target  string
	TrunkID *string
	Rate    Rate `gorm:"serializer:document"`
	// Answered says whether somebody answered, BilledSeconds for how long, as the switch counted.
	Answered      bool
	BilledSeconds int
	AmountMicros  int64
	// ApplicationID and Direction are the call's, Destination is what the rate calls it, or its prefix where it has no name, and ChargedSeconds for how long an answered leg is charged.
	// AddCharges takes them down for Usage to count by.
	ApplicationID  string
	Direction      string
	Destination    string
	ChargedSeconds int64
	// CreatedAt is the time of the call's settlement.
	CreatedAt time.Time `gorm:"serializer:moment;autoCreateTime:false"`
}

// AddCharges stores the lines of one call's bill. It belongs in the transaction that settles the call, best behind SettleHold. ErrNotFound where there is
// no such call.
func (s *Store) AddCharges(ctx context.Context, charges []Charge) error {
	if len(charges) == 0 {
		return nil
	}
	of, err := s.countedAs(ctx, charges[0].CallID)
	if err != nil {
		return fmt.Errorf("write %d charges: %w", len(charges), err)
	}
	for i := range charges {
		line := &charges[i]
		line.CreatedAt, line.ApplicationID, line.Direction, line.Destination, line.ChargedSeconds = s.settling(), of.ApplicationID, of.Direction, cmp.Or(line.Rate.Destination, line.Rate.Prefix), 0
		if line.Answered {
			line.ChargedSeconds = line.Rate.Billed(line.BilledSeconds)
		}
	}
	return explain(s.write(ctx).Create(&charges).Error, "write %d charges of call %q", len(charges), charges[0].CallID)
}

// counting is what the lines of a call's bill are counted by.
type counting struct{ ApplicationID, Direction string }

// counts notes it for the lines that follow.
func (t *txState) counts(callID string, of counting) {
	if t.counted == nil {
		t.counted = map[string]counting{}
	}
	t.counted[callID] = of
}

// countedAs returns it, which SettleHold has found where that came first.
func (s *Store) countedAs(ctx context.Context, callID string) (counting, error) {
	if of, ok := s.tx.counted[callID]; ok {
		return of, nil
	}
	var of counting
	err := s.read(ctx).Model(&Call{}).Select("application_id", "direction").Where("id = ?", callID).Take(&of).Error
	return of, explain(err, "call %q", callID)
}

// ChargesOf returns the lines of a customer's call: its own leg's first, then the others in the order in which they were dialled.
func (s *Store) ChargesOf(ctx context.Context, customerID, callID string) ([]Charge, error) {
	var rows []Charge
	err := s.read(ctx).Where("call_id = ? AND customer_id = ?", callID, customerID).
		Order("CASE WHEN leg_id = call_id THEN 0 WHEN leg_id = '" + ChargeWaived + "' THEN 2 ELSE 1 END, leg_id").Find(&rows).Error
	return rows, explain(err, "read the charges of call %q", callID)
}

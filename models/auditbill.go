package models

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
)

// billsQuery returns the lines of all bills, those of a call one after the other, and the calls that have none although they cost something, or were
// to be dialled at a rate.
const billsQuery = `SELECT c.id, c.settled_at IS NOT NULL, c.rate IS NOT NULL, c.hold_micros, c.billed_seconds, c.cost_micros,
		h.leg_id, h.kind, h.rate, h.answered, h.billed_seconds, h.amount_micros
	FROM calls c LEFT JOIN charges h ON h.call_id = c.id
	WHERE h.call_id IS NOT NULL OR c.cost_micros <> 0 OR c.rate IS NOT NULL AND c.granted_seconds > 0 AND c.settled_at IS NOT NULL ORDER BY c.id`

// bill is what auditBills knows of the call whose lines it reads.
type bill struct {
	callID        string
	settled       bool
	rated         bool
	hold          int64
	billedSeconds int64
	cost          int64
	lines         int
	sum           int64
	own           bool
	waived        int64
}

// billLine is a line of a bill, as far as there is one.
type billLine struct {
	legID, kind, rate sql.NullString
	answered          sql.NullBool
	billedSeconds     sql.NullInt64
	amount            sql.NullInt64
}

// auditBills holds the lines of each call's bill against its cost, its seconds and their rates.
func (s *Store) auditBills(ctx context.Context, found *findings) (err error) {
	rows, err := s.read(ctx).Raw(billsQuery).Rows()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	var last bill
	rates := rateReader{}
	for rows.Next() {
		var next bill
		var line billLine
		if err := rows.Scan(&next.callID, &next.settled, &next.rated, &next.hold, &next.billedSeconds, &next.cost,
			&line.legID, &line.kind, &line.rate, &line.answered, &line.billedSeconds, &line.amount); err != nil {
			return err
		}
		if next.callID != last.callID {
			last.audit(found)
			last = next
		}
		if line.legID.Valid {
			if err := last.add(found, &rates, &line); err != nil {
				return err
			}
		}
	}
	last.audit(found)
	return rows.Err()
}

// add looks at a line by itself.
func (b *bill) add(found *findings, rates *rateReader, line *billLine) error {
	b.lines++
	b.sum += line.amount.Int64
	if line.kind.String == ChargeWaived {
		b.waived = -line.amount.Int64
		if b.waived <= 0 {
			found.add("call %s: %d is waived", b.callID, b.waived)
		}
		return nil
	}
	if line.legID.String == b.callID {
		b.own = true
		if line.billedSeconds.Int64 != b.billedSeconds {
			found.add("call %s: the switch billed %d seconds, its bill has %d", b.callID, b.billedSeconds, line.billedSeconds.Int64)
		}
	}
	rate, err := rates.read(line.rate.String)
	if err != nil {
		return fmt.Errorf("rate of leg %q of call %q: %w", line.legID.String, b.callID, err)
	}
	if rate.IncrementSeconds == 0 {
		return nil // of a call from before there were rates, whose increment nobody knows any more
	}
	price := rate.Cost(line.answered.Bool, int(line.billedSeconds.Int64))
	// What was never given to a carrier costs no attempt.
	if line.amount.Int64 != price && (line.answered.Bool || line.amount.Int64 != 0) {
		found.add("call %s, leg %s: charged %d, the price of %d seconds is %d", b.callID, line.legID.String, line.amount.Int64, line.billedSeconds.Int64, price)
	}
	if !line.answered.Bool && line.billedSeconds.Int64 != 0 {
		found.add("call %s, leg %s: %d seconds are billed although nobody answered", b.callID, line.legID.String, line.billedSeconds.Int64)
	}
	return nil
}

// audit looks at a bill as a whole.
func (b *bill) audit(found *findings) {
	switch {
	case b.callID == "":
	case b.lines > 0 && !b.settled:
		found.add("call %s: has a bill of %d in %d lines although it is not settled", b.callID, b.sum, b.lines)
	case !b.settled:
		found.add("call %s: cost is %d although it is not settled", b.callID, b.cost)
	case b.lines == 0:
		if b.rated { // before there were rates there were no bills
			found.add("call %s: cost is %d, it has no bill", b.callID, b.cost)
		}
	case b.sum != b.cost:
		found.add("call %s: cost is %d, the lines of its bill sum to %d", b.callID, b.cost, b.sum)
	case !b.own:
		found.add("call %s: its bill has no line of its own leg", b.callID)
	case b.waived > 0 && b.cost < b.hold:
		found.add("call %s: %d is waived although %d of its hold of %d was left", b.callID, b.waived, b.hold-b.cost, b.hold)
	}
}

// rateReader reads the rates of lines, most of which are the same as those of the lines around them.
type rateReader struct {
	text string
	rate Rate
}

func (r *rateReader) read(text string) (*Rate, error) {
	if text != r.text {
		r.rate = Rate{}
		if err := json.Unmarshal([]byte(text), &r.rate); err != nil {
			return nil, err
		}
		r.text = text
	}
	return &r.rate, nil
}

package models

import (
	"context"

	"gorm.io/gorm"
)

// OperatorCallFilter narrows FindCalls; zero fields do not.
type OperatorCallFilter struct {
	CallFilter
	CustomerID string
	NodeID     string
	// Live leaves only calls that have not ended, Ended only those that have.
	Live, Ended bool
}

// FindCalls returns a page of the calls of all customers that pass the filter, newest first, and the cursor of the next page. Never
// answer a customer's request from it.
func (s *Store) FindCalls(ctx context.Context, filter OperatorCallFilter, page Page) ([]Call, string, error) {
	query, err := s.findCalls(ctx, &filter, page)
	if err != nil {
		return nil, "", err
	}
	var rows []Call
	if err := query.Find(&rows).Error; err != nil {
		return nil, "", explain(err, "find calls")
	}
	if limit := page.limit(); len(rows) > limit {
		rows = rows[:limit]
		return rows, encodeCursor(rows[limit-1].CreatedAt, rows[limit-1].ID), nil
	}
	return rows, "", nil
}

// findCalls makes the query of FindCalls. The database walks along the newest calls; live ones are few among many that have ended, so they
// are found by the indexes that hold no others, and sorted: for them, the moment is made an expression that no index has.
func (s *Store) findCalls(ctx context.Context, filter *OperatorCallFilter, page Page) (*gorm.DB, error) {
	query := s.read(ctx).Model(&Call{})
	for _, equal := range []struct{ column, value string }{
		{"customer_id", filter.CustomerID}, {"node_id", filter.NodeID}, {"status", filter.Status}, {"direction", filter.Direction},
		{"from_number", filter.From}, {"to_number", filter.To}, {"application_id", filter.ApplicationID}, {"trunk_id", filter.TrunkID},
	} {
		if equal.value != "" {
			query = query.Where(equal.column+" = ?", equal.value)
		}
	}
	moment := "created_at"
	if filter.Live {
		moment = "(created_at + 0)"
		query = query.Where("status IN " + liveStatuses)
	}
	if filter.Ended {
		query = query.Where("status NOT IN " + liveStatuses)
	}
	if filter.CreatedAfter != nil {
		query = query.Where(moment+" >= ?", micros(*filter.CreatedAfter))
	}
	if filter.CreatedBefore != nil {
		query = query.Where(moment+" <= ?", micros(*filter.CreatedBefore))
	}
	if page.Cursor != "" {
		at, id, err := decodeCursor(page.Cursor)
		if err != nil {
			return nil, err
		}
		query = query.Where("("+moment+", id) < (?, ?)", at, id)
	}
	return query.Order(moment + " DESC, id DESC").Limit(page.limit() + 1), nil
}

// CallStory is everything that is known of a call. All of it is of one moment.
type CallStory struct {
	Call       Call
	Events     []Event
	Requests   []AnswerRequest
	Legs       []Leg
	Deliveries []Delivery
	// Attempts are those of all deliveries, oldest first.
	Attempts []Attempt
	Ledger   []LedgerEntry
	// CDRs are what the node reported of the call's channel and those of its legs.
	CDRs []CDR
	// Commands are those of operators.
	Commands []AuditEntry
	// Difference is nil where the bill agrees with the switch, or was not compared.
	Difference *BillingDifference
}

// StoryOf returns all that is known of a call whosesoever it is, or ErrNotFound. Never answer a customer's request from it.
func (s *Store) StoryOf(ctx context.Context, callID string) (*CallStory, error) {
	var story *CallStory
	err := s.snapshot(ctx, func(tx *Store) error {
		call, err := tx.CallByID(ctx, callID)
		if err != nil {
			return err
		}
		story = &CallStory{Call: *call}
		return story.read(ctx, tx)
	})
	return story, err
}

func (c *CallStory) read(ctx context.Context, tx *Store) error {
	id, customer := c.Call.ID, c.Call.CustomerID
	var err error
	if c.Events, err = tx.CallEvents(ctx, customer, id); err != nil {
		return err
	}
	if c.Requests, err = tx.AnswerRequestsOfCall(ctx, customer, id); err != nil {
		return err
	}
	if c.Legs, err = tx.LegsOfCall(ctx, customer, id); err != nil {
		return err
	}
	if c.Deliveries, err = tx.Deliveries(ctx, id); err != nil {
		return err
	}
	err = tx.read(ctx).Raw("SELECT a.* FROM webhook_attempts a JOIN events e ON e.id = a.event_id WHERE e.subject_id = ? ORDER BY a.started_at, a.id", id).
		Scan(&c.Attempts).Error
	if err != nil {
		return explain(err, "read attempts of call %q", id)
	}
	// By customer, too: that is the index that there is.
	if err := tx.read(ctx).Where("customer_id = ? AND call_id = ?", customer, id).Order("created_at, id").Find(&c.Ledger).Error; err != nil {
		return explain(err, "read ledger of call %q", id)
	}
	if err := tx.read(ctx).Where("object_id = ? AND object_id <> ''", id).Order("created_at, id").Find(&c.Commands).Error; err != nil {
		return explain(err, "read commands to call %q", id)
	}
	var differences []BillingDifference
	if err := tx.read(ctx).Where("call_id = ?", id).Limit(1).Find(&differences).Error; err != nil {
		return explain(err, "read billing differences of call %q", id)
	}
	if len(differences) > 0 {
		c.Difference = &differences[0]
	}
	return c.readCDRs(ctx, tx)
}

func (c *CallStory) readCDRs(ctx context.Context, tx *Store) error {
	if c.Call.NodeID == nil {
		return nil
	}
	channels := []string{c.Call.ChannelID}
	for i := range c.Legs {
		channels = append(channels, c.Legs[i].ChannelID)
	}
	found, err := tx.CDRs(ctx, *c.Call.NodeID, channels)
	if err != nil {
		return err
	}
	for _, channel := range channels {
		if cdr, ok := found[channel]; ok {
			c.CDRs = append(c.CDRs, cdr)
		}
	}
	return nil
}

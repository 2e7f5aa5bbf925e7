package models

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"gorm.io/gorm"
	"gorm.io/gorm/clause"
)

// Statuses of a call. The first four are live, the others final.
const (
	CallQueued     = "queued"
	CallDialing    = "dialing"
	CallRinging    = "ringing"
	CallInProgress = "in_progress"
	CallCompleted  = "completed"
	CallBusy       = "busy"
	CallNoAnswer   = "no_answer"
	CallRejected   = "rejected"
	CallCanceled   = "canceled"
	CallFailed     = "failed"
)

// liveStatuses is written out in every query for live calls: the partial indexes serve only a condition that is theirs word
// for word.
const liveStatuses = "('queued', 'dialing', 'ringing', 'in_progress')"

// liveCallsOfNode selects the ids of a node's live calls.
const liveCallsOfNode = "(SELECT id FROM calls WHERE node_id = ? AND status IN " + liveStatuses + ")"

// Call is one inbound or outbound call. Amounts are millionths of the customer's currency unit.
type Call struct {
	ID            string
	CustomerID    string
	ApplicationID string
	TrunkID       *string
	DIDID         *string `gorm:"column:did_id"`
	NodeID        *string
	Direction     string
	Status        string
	From          string `gorm:"column:from_number"`
	To            string `gorm:"column:to_number"`
	Record        bool
	Metadata      map[string]string `gorm:"serializer:document"`
	Variables     map[string]string `gorm:"serializer:document"`
	// ChannelID is the A-leg's UUID on the switch; no two calls have the same.
	ChannelID    string
	Reason       string
	HangupSource string
	Cause        string
	Q850         int `gorm:"column:q850"`
	SIPCode      int `gorm:"column:sip_code"`
	// PricePerMinuteMicros is the price when the call began, Rate all of it; nil for a call that began when there was but that price. HoldMicros is what
	// is reserved of the balance for all of its legs: only Hold, Rehold and SettleHold change it. GrantedSeconds is for how long, from the answer, that
	// lasts; MaxSeconds the longest that the call may last, 0 for what the configuration says.
	PricePerMinuteMicros int64
	Rate                 *Rate `gorm:"serializer:optional"`
	HoldMicros           int64
	GrantedSeconds       int
	MaxSeconds           int
	// Caps counts the caps that the switch was given, and ShortAt is when it was found that the balance does not pay for a later one.
	Caps           int
	ShortAt        *time.Time `gorm:"serializer:moment"`
	TimeoutSeconds int
	// RetryOf is the ended call that this one repeats.
	RetryOf *string
	// AnsweredBy is what machine detection heard (human, machine, unknown), MachineDetection its settings: canonical JSON, nil
	// where it is not asked for.
	AnsweredBy       string
	MachineDetection json.RawMessage `gorm:"serializer:optional"`
	BilledSeconds    int
	CostMicros       int64
	// LastSequence counts the call's events. Only AppendEvent changes it.
	LastSequence int64
	// LastCommand counts the commands given to the call. Only AddCommand changes it.
	LastCommand int64
	// Fence is the lease token of the controller that has the call. Where a copy of the call has one, what is written through the
	// copy is refused with ErrStale once another controller has taken the call's node: see AcquireNode. 0 asks for no such check.
	Fence      int64
	Cursor     Cursor     `gorm:"serializer:document"`
	CreatedAt  time.Time  `gorm:"serializer:moment;autoCreateTime:false"`
	UpdatedAt  time.Time  `gorm:"serializer:moment;autoUpdateTime:false"`
	RingingAt  *time.Time `gorm:"serializer:moment"`
	AnsweredAt *time.Time `gorm:"serializer:moment"`
	EndedAt    *time.Time `gorm:"serializer:moment"`
	// SettledAt is when the call was charged and its hold released. Only SettleHold changes it.
	SettledAt *time.Time `gorm:"serializer:moment"`
	// QueueUntil is until when a call that is queued waits for room under the limits; nil for one that waits to be started.
	QueueUntil *time.Time `gorm:"serializer:moment"`
}

// Cursor is where a call stands in its actions: stored before a command is sent, so that another controller can resume.
type Cursor struct {
	List      json.RawMessage `json:"list,omitempty"`
	Index     int             `json:"index"`
	EventUUID string          `json:"event_uuid,omitempty"`
	Begun     bool            `json:"begun"`
	// Request counts the answer_url requests made so far.
	Request int `json:"request"`
	// Step counts the applications of the action at Index that ended before the one that EventUUID names; Application is the
	// trace that this one leaves on its channel; BegunAt is when the action began; State is what its verb needs to go on.
	Step        int             `json:"step,omitempty"`
	Application string          `json:"application,omitempty"`
	BegunAt     *time.Time      `json:"begun_at,omitempty"`
	State       json.RawMessage `json:"state,omitempty"`
	// Done says that the action at Index is over and was told of. Ask is then the question that its result puts to the
	// application, as long as it is not answered.
	Done bool            `json:"done,omitempty"`
	Ask  json.RawMessage `json:"ask,omitempty"`
	// Last is the result of the last action that had one, as everybody may see it.
	Last map[string]any `json:"last,omitempty"`
	// Idle counts the questions since the last media or input, FellBack says that the list comes from fallback_actions,
	// Detecting that machine detection was under way, Later is the hangup that the switch was told to do later.
	Idle      int  `json:"idle,omitempty"`
	FellBack  bool `json:"fell_back,omitempty"`
	Detecting bool `json:"detecting,omitempty"`
	// Ending is why the switch was told to end the call.
	Ending json.RawMessage `json:"ending,omitempty"`
	Later  json.RawMessage `json:"later,omitempty"`
}

// Live reports whether the call has not ended.
func (c *Call) Live() bool { return liveStatus(c.Status) }

func liveStatus(status string) bool {
	switch status {
	case CallQueued, CallDialing, CallRinging, CallInProgress:
		return true
	default:
		return false
	}
}

// CallFilter narrows ListCalls; empty fields do not.
type CallFilter struct {
	Status        string
	Direction     string
	From          string
	To            string
	ApplicationID string
	TrunkID       string
	// CreatedAfter and CreatedBefore include the moment itself.
	CreatedAfter  *time.Time
	CreatedBefore *time.Time
}

// CreateCall inserts a call and fills ID and times. ErrChannelExists where a call has the channel already, ErrNotFound where
// application, trunk, DID or the call of RetryOf is not the customer's, ErrStale where the call has a fence that is not the token
// of its node's lease (any more).
func (s *Store) CreateCall(ctx context.Context, call *Call) error {
	return s.InTx(ctx, func(tx *Store) error {
		row := *call
		if row.ID == "" {
			row.ID = NewID(PrefixCall)
		}
		row.CreatedAt = tx.Now()
		row.UpdatedAt = row.CreatedAt
		row.LastSequence, row.LastCommand, row.SettledAt = 0, 0, nil
		if row.Metadata == nil {
			row.Metadata = map[string]string{}
		}
		if row.Variables == nil {
			row.Variables = map[string]string{}
		}
		row.cutTimes()
		if row.RetryOf != nil {
			if _, err := tx.Call(ctx, row.CustomerID, *row.RetryOf); err != nil {
				return fmt.Errorf("create call again: %w", err)
			}
		}
		err := errors.Join(tx.pin(ctx, applicationTable, row.CustomerID, &row.ApplicationID), tx.pin(ctx, trunkTable, row.CustomerID, row.TrunkID))
		if err != nil {
			return fmt.Errorf("create call from %q to %q: %w", row.From, row.To, err)
		}
		if err := tx.holdFence(ctx, &row); err != nil {
			return fmt.Errorf("create call from %q to %q: %w", row.From, row.To, err)
		}
		if err := tx.write(ctx).Create(&row).Error; err != nil {
			return explain(err, "create call from %q to %q", row.From, row.To)
		}
		*call = row
		return nil
	})
}

func (c *Call) cutTimes() {
	c.RingingAt, c.AnsweredAt, c.EndedAt, c.ShortAt = cut(c.RingingAt), cut(c.AnsweredAt), cut(c.EndedAt), cut(c.ShortAt)
	c.QueueUntil = cut(c.QueueUntil)
}

// Call returns a call of a customer, or ErrNotFound.
func (s *Store) Call(ctx context.Context, customerID, id string) (*Call, error) {
	return s.takeCall(ctx, id, "id = ? AND customer_id = ?", id, customerID)
}

// LockCall is Call for a transaction that is about to change the call in a way that depends on what it reads: until the
// transaction ends, nobody else changes it.
func (s *Store) LockCall(ctx context.Context, customerID, id string) (*Call, error) {
	var row Call
	err := s.write(ctx).Clauses(clause.Locking{Strength: clause.LockingStrengthUpdate}).Where("id = ? AND customer_id = ?", id, customerID).Take(&row).Error
	if err != nil {
		return nil, explain(err, "call %q", id)
	}
	return &row, nil
}

// CallByID returns a call whosesoever it is. Never answer a customer's request from it.
func (s *Store) CallByID(ctx context.Context, id string) (*Call, error) {
	return s.takeCall(ctx, id, "id = ?", id)
}

// CallsByChannels returns the calls of channels of a switch, live and ended, by channel. A channel that is no call's has none.
func (s *Store) CallsByChannels(ctx context.Context, channels []string) (map[string]*Call, error) {
	calls := make(map[string]*Call, len(channels))
	for part := range slices.Chunk(channels, channelsAtOnce) {
		var rows []Call
		if err := s.read(ctx).Where("channel_id IN ? AND channel_id <> ''", part).Find(&rows).Error; err != nil {
			return nil, explain(err, "read the calls of %d channels", len(part))
		}
		for i := range rows {
			calls[rows[i].ChannelID] = &rows[i]
		}
	}
	return calls, nil
}

// CallByChannel returns the call with the A-leg channel, or ErrNotFound.
func (s *Store) CallByChannel(ctx context.Context, channelID string) (*Call, error) {
	return s.takeCall(ctx, channelID, "channel_id = ? AND channel_id <> ''", channelID)
}

func (s *Store) takeCall(ctx context.Context, what, where string, args ...any) (*Call, error) {
	var row Call
	if err := s.read(ctx).Where(where, args...).Take(&row).Error; err != nil {
		return nil, explain(err, "call %q", what)
	}
	return &row, nil
}

// ListCalls returns a page of a customer's calls that pass the filter, newest first, and the cursor of the next page.
func (s *Store) ListCalls(ctx context.Context, customerID string, filter CallFilter, page Page) ([]Call, string, error) {
	query := s.read(ctx).Where("customer_id = ?", customerID)
	for _, equal := range []struct{ column, value string }{
		{"status", filter.Status}, {"direction", filter.Direction}, {"from_number", filter.From}, {"to_number", filter.To},
		{"application_id", filter.ApplicationID}, {"trunk_id", filter.TrunkID},
	} {
		if equal.value != "" {
			query = query.Where(equal.column+" = ?", equal.value)
		}
	}
	if filter.CreatedAfter != nil {
		query = query.Where("created_at >= ?", micros(*filter.CreatedAfter))
	}
	if filter.CreatedBefore != nil {
		query = query.Where("created_at <= ?", micros(*filter.CreatedBefore))
	}
	rows, next, err := paged(query, page, func(c *Call) (time.Time, string) { return c.CreatedAt, c.ID })
	return rows, next, explain(err, "list calls")
}

// LiveCalls returns the calls of a node that have not ended, oldest first; those of all nodes, and of none, where nodeID is
// empty.
func (s *Store) LiveCalls(ctx context.Context, nodeID string) ([]Call, error) {
	query := s.read(ctx).Where("status IN " + liveStatuses)
	if nodeID != "" {
		query = query.Where("node_id = ?", nodeID)
	}
	var rows []Call
	err := query.Order("created_at, id").Find(&rows).Error
	return rows, explain(err, "read live calls of node %q", nodeID)
}

// CountLiveCalls counts a customer's calls that have not ended.
func (s *Store) CountLiveCalls(ctx context.Context, customerID string) (int64, error) {
	var count int64
	err := s.read(ctx).Model(&Call{}).Where("customer_id = ? AND status IN "+liveStatuses, customerID).Count(&count).Error
	return count, explain(err, "count live calls of customer %q", customerID)
}

// freeColumns are those that UpdateCall and TransitionCall write. Left out is what never changes, what is counted in the
// database (last_sequence), and what is money already moved (hold_micros, settled_at): a copy of the row that is a moment old
// must not undo it.
var freeColumns = []string{
	"trunk_id", "did_id", "node_id", "record", "metadata", "variables", "channel_id", "reason", "hangup_source", "cause", "q850",
	"sip_code", "price_per_minute_micros", "rate", "granted_seconds", "max_seconds", "caps", "short_at", "timeout_seconds", "billed_seconds", "cost_micros", "cursor",
	"ringing_at", "answered_at", "ended_at", "answered_by",
}

// fenced narrows a statement on a call to the holder of the call's node, where the copy of the call knows its fence.
func fenced(query *gorm.DB, call *Call) *gorm.DB {
	if call.Fence == 0 {
		return query
	}
	return query.Where("fence = ?", call.Fence)
}

// UpdateCall writes the named columns (as in the table: from_number, cursor, …) of a call, live or not. The status is not
// among them: TransitionCall changes it. ErrStale where the call's fence is not its own any more.
func (s *Store) UpdateCall(ctx context.Context, call *Call, columns ...string) error {
	if len(columns) == 0 {
		return fmt.Errorf("update call %q: no columns", call.ID)
	}
	for _, column := range columns {
		if !slices.Contains(freeColumns, column) {
			return fmt.Errorf("update call %q: column %q cannot be written", call.ID, column)
		}
	}
	return s.InTx(ctx, func(tx *Store) error {
		row := *call
		row.cutTimes()
		row.UpdatedAt = tx.Now()
		if tx.later(func(ctx context.Context, tx *Store) error { return tx.UpdateCall(ctx, &row, columns...) }) {
			*call = row
			return nil
		}
		result := fenced(tx.write(ctx).Model(&Call{}).Where("id = ?", row.ID), &row).Select("updated_at", anys(columns)...).Updates(&row)
		if row.Fence != 0 && result.Error == nil && result.RowsAffected == 0 {
			return fmt.Errorf("update call %q: %w", row.ID, ErrStale)
		}
		if err := changedOne(result, "update call %q", row.ID); err != nil {
			return err
		}
		*call = row
		return nil
	})
}

// TransitionCall moves a call to call.Status and writes the whole row, if its status is still one of from and its fence is still
// its own; otherwise it changes nothing and returns ErrStale. The commands that a call has left go with its end. LastSequence, HoldMicros and SettledAt are not written: they change in the database
// only.
func (s *Store) TransitionCall(ctx context.Context, call *Call, from []string) error {
	return s.InTx(ctx, func(tx *Store) error {
		row := *call
		row.cutTimes()
		row.UpdatedAt = tx.Now()
		if tx.later(func(ctx context.Context, tx *Store) error { return tx.TransitionCall(ctx, &row, from) }) {
			*call = row
			return nil
		}
		var stored Call
		counted := clause.Returning{Columns: []clause.Column{{Name: "last_command"}}}
		result := fenced(tx.write(ctx).Model(&stored).Clauses(counted).Where("id = ? AND status IN ?", row.ID, from), &row).
			Select("status", anys(append([]string{"updated_at"}, freeColumns...))...).Updates(&row)
		if result.Error == nil && result.RowsAffected == 0 {
			return fmt.Errorf("move call %q to %s: %w", row.ID, row.Status, ErrStale)
		}
		if result.Error != nil {
			return explain(result.Error, "move call %q to %s", row.ID, row.Status)
		}
		if row.LastCommand = stored.LastCommand; row.LastCommand > 0 && !row.Live() {
			if err := tx.dropCommands(ctx, row.ID); err != nil {
				return err
			}
		}
		*call = row
		return nil
	})
}

// StartCall moves a queued call to call.Status with its trunk, node, channel, price, hold and grant; ErrStale, and nothing
// changed, where it is queued no more. It belongs in the transaction that reserves the hold: until then a queued call holds
// nothing, and nothing is released when it is canceled.
func (s *Store) StartCall(ctx context.Context, call *Call) error {
	return s.InTx(ctx, func(tx *Store) error {
		row := *call
		row.UpdatedAt = tx.Now()
		if err := tx.pin(ctx, trunkTable, row.CustomerID, row.TrunkID); err != nil {
			return fmt.Errorf("start call %q: %w", row.ID, err)
		}
		if err := tx.holdFence(ctx, &row); err != nil {
			return fmt.Errorf("start call %q: %w", row.ID, err)
		}
		result := tx.write(ctx).Model(&Call{}).
			Where("id = ? AND customer_id = ? AND status = '"+CallQueued+"' AND hold_micros = 0 AND settled_at IS NULL", row.ID, row.CustomerID).
			Select("status", "trunk_id", "node_id", "channel_id", "price_per_minute_micros", "rate", "hold_micros", "granted_seconds", "max_seconds", "fence", "updated_at").Updates(&row)
		if result.Error == nil && result.RowsAffected == 0 {
			return fmt.Errorf("start call %q: %w", row.ID, ErrStale)
		}
		if result.Error != nil {
			return explain(result.Error, "start call %q", row.ID)
		}
		*call = row
		return nil
	})
}

func anys(columns []string) []any {
	out := make([]any, len(columns))
	for i, column := range columns {
		out[i] = column
	}
	return out
}

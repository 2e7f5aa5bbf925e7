package models

import (
	"context"
	"time"
)

// Kinds of orders to the controller that holds a node.
const (
	// OrderDiff: compare the node with what it should hold.
	OrderDiff = "diff"
	// OrderApply: make it so.
	OrderApply = "apply"
	// OrderExec: tell the switch a command of an operator's.
	OrderExec = "exec"
	// OrderStrays: look for calls that nobody steers, and for channels that nobody has.
	OrderStrays = "strays"
	// OrderReap: do what must be done about them.
	OrderReap = "reap"
)

// NodeOrder is what somebody asks of whichever controller holds a node: only that one reaches the node's switch and, perhaps, its files.
type NodeOrder struct {
	ID     string
	NodeID string
	Kind   string
	// Prune says that gateways of our profile that nobody knows are to be unloaded, too.
	Prune bool
	// Command is a line for the switch, as of fs_cli, of OrderExec alone.
	Command string
	AskedAt time.Time `gorm:"serializer:moment"`
	// BegunAt is when the command of OrderExec was about to be sent: it is never sent twice. nil for other kinds.
	BegunAt *time.Time `gorm:"serializer:moment"`
	DoneAt  *time.Time `gorm:"serializer:moment"`
	// Result is JSON, what the controller found or did; Error is why it could not.
	Result []byte
	Error  string
}

// MaxSwitchReply is how much of a switch's reply to OrderExec is kept, in bytes.
const MaxSwitchReply = 256 << 10

// SwitchReply is the result of OrderExec.
type SwitchReply struct {
	Text string
	// Truncated says that there was more of it.
	Truncated bool
}

const (
	// ordersLast is how long orders are kept, carried out or not.
	ordersLast = time.Hour
	// ordersOpen is for how long an order may be begun. A node that comes back later is not changed by what somebody gave up waiting for.
	ordersOpen = 10 * time.Minute
)

// AskNode places an order and fills its ID and time.
func (s *Store) AskNode(ctx context.Context, order *NodeOrder) error {
	return s.InTx(ctx, func(tx *Store) error {
		row := *order
		row.ID, row.AskedAt, row.BegunAt, row.DoneAt, row.Result, row.Error = NewID(PrefixOrder), tx.Now(), nil, nil, nil, ""
		if err := tx.write(ctx).Exec("DELETE FROM node_orders WHERE asked_at < ?", micros(tx.Now().Add(-ordersLast))).Error; err != nil {
			return explain(err, "delete old orders")
		}
		if err := tx.write(ctx).Create(&row).Error; err != nil {
			return explain(err, "order %s of node %q", row.Kind, row.NodeID)
		}
		*order = row
		return nil
	})
}

// OpenOrders returns the orders of the last ten minutes that nobody has carried out, oldest first.
func (s *Store) OpenOrders(ctx context.Context) ([]NodeOrder, error) {
	var rows []NodeOrder
	err := s.read(ctx).Where("done_at IS NULL AND asked_at >= ?", micros(s.Now().Add(-ordersOpen))).Order("asked_at, id").Find(&rows).Error
	return rows, explain(err, "read the orders")
}

// NodeOrder returns an order, or ErrNotFound.
func (s *Store) NodeOrder(ctx context.Context, id string) (*NodeOrder, error) {
	var row NodeOrder
	if err := s.read(ctx).Where("id = ?", id).Take(&row).Error; err != nil {
		return nil, explain(err, "order %q", id)
	}
	return &row, nil
}

// BeginOrder notes that the command of an order is about to be sent. ErrStale where that was noted before, or the order is done.
func (s *Store) BeginOrder(ctx context.Context, id string) error {
	return s.InTx(ctx, func(tx *Store) error {
		result := tx.write(ctx).Exec("UPDATE node_orders SET begun_at = ? WHERE id = ? AND begun_at IS NULL AND done_at IS NULL", micros(tx.Now()), id)
		return unlessStale(result, "begin order %q", id)
	})
}

// FinishOrder notes what became of an order. The first word counts; ErrStale for another.
func (s *Store) FinishOrder(ctx context.Context, id string, result []byte, failure string) error {
	return s.InTx(ctx, func(tx *Store) error {
		answer := tx.write(ctx).Exec("UPDATE node_orders SET done_at = ?, result = ?, error = ? WHERE id = ? AND done_at IS NULL", micros(tx.Now()), result, failure, id)
		return unlessStale(answer, "finish order %q", id)
	})
}

package models

import (
	"context"
	"encoding/json"
	"fmt"
	"time"
)

// Kinds of commands.
const (
	// CommandDial dials an outbound call: the first time, or over another trunk, when it may have rung already.
	CommandDial = "dial"
	// CommandDirect gives a call a new list of actions, or more for the one it has.
	CommandDirect = "direct"
	// CommandCancel ends a call.
	CommandCancel = "cancel"
	// CommandGroup tells a call in a conference or a queue something.
	CommandGroup = "group"
)

// Command is something that a live call is to do. Whoever accepts it stores it; the controller that holds the call's node
// carries it out, and deletes it in the transaction in which that has become certain. So an accepted command outlives every
// controller, and only the end of the call ends it otherwise.
type Command struct {
	ID     string
	CallID string
	NodeID string
	// Position counts from 1 the commands given to the call, in the order of their transactions: one that is seen has none
	// before it that is yet to be seen.
	Position  int64
	Kind      string
	Payload   json.RawMessage `gorm:"serializer:optional"`
	CreatedAt time.Time       `gorm:"serializer:moment;autoCreateTime:false"`
}

// TableName implements gorm's schema.Tabler.
func (Command) TableName() string { return "call_commands" }

// CommandHead says up to which position a call has commands, without what they say.
type CommandHead struct {
	CallID string
	NodeID string
	// Last is the position of the last of them.
	Last int64
	// Dials says that the call is yet to be dialled.
	Dials bool
}

// AddCommand gives a live call that has a node a command and returns it with its ID and position. From here to the end of the
// transaction nobody else changes the call. ErrStale where the call does not live (any more), or waits to be started.
func (s *Store) AddCommand(ctx context.Context, callID, kind string, payload json.RawMessage) (*Command, error) {
	command := &Command{ID: NewID(PrefixCommand), CallID: callID, Kind: kind, Payload: payload}
	err := s.InTx(ctx, func(tx *Store) error {
		var rows []Command
		err := tx.write(ctx).Raw(`UPDATE calls SET last_command = last_command + 1 WHERE id = ? AND node_id IS NOT NULL
			AND status IN ('dialing', 'ringing', 'in_progress') RETURNING last_command AS position, node_id`, callID).Scan(&rows).Error
		if err != nil {
			return explain(err, "number a command of call %q", callID)
		}
		if len(rows) == 0 {
			return fmt.Errorf("command %s for call %q: %w", kind, callID, ErrStale)
		}
		command.Position, command.NodeID, command.CreatedAt = rows[0].Position, rows[0].NodeID, tx.Now()
		return explain(tx.write(ctx).Create(command).Error, "store command %s for call %q", kind, callID)
	})
	if err != nil {
		return nil, err
	}
	return command, nil
}

// Commands returns the commands of a call after a position, in their order.
func (s *Store) Commands(ctx context.Context, callID string, after int64) ([]Command, error) {
	var rows []Command
	err := s.read(ctx).Where("call_id = ? AND position > ?", callID, after).Order("position").Find(&rows).Error
	return rows, explain(err, "read commands of call %q", callID)
}

// LastCommand returns the position of the last command that is stored for a call, 0 for none. In a transaction that has changed the call, it stays
// the last until that ends. A deferred transaction cannot know, and gets 0: while the database is away, nobody gives commands.
func (s *Store) LastCommand(ctx context.Context, callID string) (int64, error) {
	if s.tx != nil && s.tx.deferred != nil {
		return 0, nil
	}
	var last int64
	err := s.read(ctx).Raw("SELECT COALESCE(MAX(position), 0) FROM call_commands WHERE call_id = ?", callID).Row().Scan(&last)
	return last, explain(err, "look for the last command of call %q", callID)
}

// CommandHeads returns which calls of the nodes have commands, oldest call first.
func (s *Store) CommandHeads(ctx context.Context, nodeIDs []string) ([]CommandHead, error) {
	if len(nodeIDs) == 0 {
		return nil, nil
	}
	var heads []CommandHead
	err := s.read(ctx).Raw(`SELECT call_id, node_id, MAX(position) AS last, MAX(CASE WHEN kind = 'dial' THEN 1 ELSE 0 END) = 1 AS dials
		FROM call_commands WHERE node_id IN ? GROUP BY call_id, node_id ORDER BY call_id`, nodeIDs).Scan(&heads).Error
	return heads, explain(err, "look for commands")
}

// DeleteCommands forgets commands that have taken effect for good.
func (s *Store) DeleteCommands(ctx context.Context, ids ...string) error {
	if len(ids) == 0 {
		return nil
	}
	return s.InTx(ctx, func(tx *Store) error {
		if tx.later(func(ctx context.Context, tx *Store) error { return tx.DeleteCommands(ctx, ids...) }) {
			return nil
		}
		return explain(tx.write(ctx).Exec("DELETE FROM call_commands WHERE id IN ?", ids).Error, "delete commands")
	})
}

// dropCommands forgets what is left for a call that ends.
func (s *Store) dropCommands(ctx context.Context, callID string) error {
	return explain(s.write(ctx).Exec("DELETE FROM call_commands WHERE call_id = ?", callID).Error, "delete commands of call %q", callID)
}

// ClaimDial takes the command to dial a call: the call is fenced with the token, and the command deleted, so that no call is
// ever dialled twice. ErrStale where the call is not waiting to be dialled (any more), or the token is not that of the lease.
// again says that whoever asks has tried before and was told of a failure: the database may have committed all the same, so a
// claim of the same token stands.
func (s *Store) ClaimDial(ctx context.Context, command *Command, token int64, again bool) (*Call, error) {
	var call *Call
	err := s.InTx(ctx, func(tx *Store) error {
		// The call before its node, see acquireNode.
		fence := "UPDATE calls SET fence = ? WHERE id = ? AND status IN ('" + CallDialing + "', '" + CallRinging + "')"
		ours := false
		if again {
			standing := tx.write(ctx).Exec(fence+" AND fence = ?", token, command.CallID, token)
			if standing.Error != nil {
				return explain(standing.Error, "claim the dialling of call %q", command.CallID)
			}
			ours = standing.RowsAffected > 0
		}
		waiting := tx.write(ctx).Exec(fence, token, command.CallID)
		if waiting.Error != nil {
			return explain(waiting.Error, "claim the dialling of call %q", command.CallID)
		}
		gone := tx.write(ctx).Exec("DELETE FROM call_commands WHERE call_id = ? AND kind = '"+CommandDial+"'", command.CallID)
		if gone.Error != nil {
			return explain(gone.Error, "claim the dialling of call %q", command.CallID)
		}
		if waiting.RowsAffected == 0 || gone.RowsAffected == 0 && !ours {
			return fmt.Errorf("dial call %q: %w", command.CallID, ErrStale)
		}
		probe := &Call{NodeID: &command.NodeID, Fence: token}
		if err := tx.holdFence(ctx, probe); err != nil {
			return fmt.Errorf("dial call %q: %w", command.CallID, err)
		}
		var err error
		call, err = tx.CallByID(ctx, command.CallID)
		return err
	})
	if err != nil {
		return nil, err
	}
	return call, nil
}

package calls

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"tandem/models"
)

// dialLimit is how old a call may be when it is dialled at last. Whoever asked for it has waited for nothing then.
const dialLimit = time.Minute

// dialers is how many calls of other controllers are begun at a time.
const dialers = 16

// withDial stores, with the call, the command that makes the holder of its node dial it: s, where that is us. Whoever dials claims the command in
// the moment in which the switch is told, so that a call that was accepted is dialled once, whoever dies before.
func withDial(ctx context.Context, s *session, also func(tx *models.Store, call *models.Call) error) func(tx *models.Store, call *models.Call) error {
	return func(tx *models.Store, call *models.Call) error {
		command, err := giveCommand(ctx, tx, call, &order{kind: models.CommandDial, payload: struct{}{}})
		if err != nil {
			return err
		}
		if s != nil {
			s.dial = command
			s.received.Store(command.Position)
		}
		if also == nil {
			return nil
		}
		return also(tx, call)
	}
}

// lostNode words that a node was taken by another controller in the moment in which a call was to be placed on it.
func lostNode(err error) error {
	if errors.Is(err, models.ErrStale) {
		return fmt.Errorf("%w: %w", ErrNoNode, err)
	}
	return err
}

// dialStored begins the session of a call that another controller has stored for a node of ours. It does not wait.
func (m *Manager) dialStored(head models.CommandHead) {
	m.mu.Lock()
	n := m.nodes[head.NodeID]
	free := n != nil && n.connected() && !m.stopping && !m.dialing[head.CallID] && len(m.dialing) < dialers
	if free {
		m.dialing[head.CallID] = true
	}
	m.mu.Unlock()
	if !free {
		return // it is looked for again
	}
	done := func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		delete(m.dialing, head.CallID)
	}
	begun := m.goWork(func() {
		defer done()
		ctx, cancel := context.WithTimeout(m.ctx, m.cfg.CommandTimeout)
		defer cancel()
		if err := m.dialElsewhere(ctx, n, head.CallID); err != nil && ctx.Err() == nil && !storeAway(err) {
			n.log.Error("call of another controller not dialled, trying again", "call_id", head.CallID, "error", err)
		}
	})
	if !begun {
		done()
	}
}

// dialElsewhere begins the session that dials a call.
func (m *Manager) dialElsewhere(ctx context.Context, n *node, callID string) error {
	command, call, err := m.storedDial(ctx, callID)
	if err != nil || command == nil {
		return err
	}
	if m.cfg.Now().Sub(command.CreatedAt) > dialLimit {
		return m.dropDial(ctx, n, command)
	}
	app, err := m.cfg.Store.ApplicationByID(ctx, call.ApplicationID)
	if err != nil {
		return fmt.Errorf("find application: %w", err)
	}
	if call.TrunkID == nil {
		return fmt.Errorf("call %q has no trunk", call.ID)
	}
	over, err := m.wayOver(ctx, call)
	if err != nil {
		return err
	}
	s := newSession(n, call.ChannelID)
	s.app, s.flow.over = app, over
	s.dial = command
	s.purse.counted = false // it may have been dialled over another trunk before
	s.unplaced.Store(true)
	s.received.Store(command.Position)
	s.setCall(call)
	if err := m.register(s); err != nil {
		if errors.Is(err, errKnownCall) || errors.Is(err, errKnownChannel) {
			return nil
		}
		return err
	}
	s.dispatch(call)
	return nil
}

// storedDial finds the command to dial a call, nil when there is none any more, and the call.
func (m *Manager) storedDial(ctx context.Context, callID string) (*models.Command, *models.Call, error) {
	commands, err := m.cfg.Store.Commands(ctx, callID, 0)
	if err != nil {
		return nil, nil, err
	}
	i := slices.IndexFunc(commands, func(c models.Command) bool { return c.Kind == models.CommandDial })
	if i < 0 {
		return nil, nil, nil
	}
	call, err := m.cfg.Store.CallByID(ctx, callID)
	if err != nil {
		return nil, nil, err
	}
	return &commands[i], call, nil
}

// waitsForDial says whether a call that has no channel is still to be dialled. It is no orphan.
func (m *Manager) waitsForDial(ctx context.Context, call *models.Call) (bool, error) {
	if call.Status != StatusDialing && call.Status != StatusRinging || call.LastCommand == 0 {
		return false, nil
	}
	command, _, err := m.storedDial(ctx, call.ID)
	return command != nil, err
}

// dropDial ends a call that nobody has dialled for too long: its node was away.
func (m *Manager) dropDial(ctx context.Context, n *node, command *models.Command) error {
	call, err := m.cfg.Store.ClaimDial(ctx, command, n.row.LeaseToken, false)
	if err != nil {
		if errors.Is(err, models.ErrStale) {
			return nil
		}
		return err
	}
	err = m.cfg.Store.InTx(ctx, func(tx *models.Store) error {
		ended := *call
		return m.end(ctx, tx, &ended, ending{status: StatusFailed, reason: ReasonNodeLost, source: SourcePlatform}, m.cfg.Now())
	})
	if err != nil {
		return fmt.Errorf("end a call that was not dialled: %w", err)
	}
	n.log.Warn("call ended: its node was away for too long", "call_id", call.ID)
	return nil
}

// passOn leaves a call that the switch was never told to dial to the next controller of its node.
func (s *session) passOn() error {
	if err := s.shelve(); err != nil {
		s.log.Error("call that was not dialled yet is not passed on", "error", err)
	}
	return errAbandoned
}

// shelve stores that the call is yet to be dialled, for whoever steers its node then, unless that is stored still.
func (s *session) shelve() error {
	if s.dial != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.m.ctx), s.m.cfg.CommandTimeout)
	defer cancel()
	var command *models.Command
	err := s.m.cfg.Store.InTx(ctx, func(tx *models.Store) (err error) {
		command, err = giveCommand(ctx, tx, s.call, &order{kind: models.CommandDial, payload: struct{}{}})
		return err
	})
	if err == nil {
		s.dial = command
	}
	return err
}

// claimDial makes the dialling of the call ours alone. It does nothing when it is.
func (s *session) claimDial(ctx context.Context) error {
	if s.dial == nil {
		return nil
	}
	call, err := s.m.cfg.Store.ClaimDial(ctx, s.dial, s.node.row.LeaseToken, s.claiming)
	if err != nil {
		s.claiming = true // it may be committed all the same: the database died before it said so
		return fmt.Errorf("claim the dialling: %w", err)
	}
	*s.call, s.dial, s.claiming = *call, nil, false
	return nil
}

// claimEnd is claimDial for a call that ends before it is dialled, waiting for a database that is away.
func (s *session) claimEnd() error {
	for delay := storeRetry; ; delay = min(2*delay, storeRetryMax) {
		ctx, cancel := context.WithTimeout(s.m.ctx, s.m.cfg.CommandTimeout)
		err := s.claimDial(ctx)
		cancel()
		switch {
		case err == nil:
			return nil
		case errors.Is(err, models.ErrStale), s.m.ctx.Err() != nil:
			return errAbandoned
		case !storeAway(err):
			return err
		}
		select {
		case <-time.After(delay):
		case <-s.m.ctx.Done():
		}
	}
}

package calls

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"tandem/actions"
	"tandem/models"
)

// Commands of the API reach a call through the database, whichever controller the request came to. The request's transaction
// stores the command. Where the call's session is in this process, it gets the command at once; otherwise the controller that
// holds the call's node finds it within Config.CommandInterval. The row is deleted in the transaction in which the command takes
// effect for good, or with the call's end, so that a command that was accepted outlives the controller that was to do it:
//
//   - a list goes with the cursor that names it, see session.storeOrders;
//   - what was asked of a member of a conference or a caller in a queue goes with the next cursor: doing it twice changes nothing;
//   - a wish to end the call goes with its end;
//   - the dialling of a call goes before the switch is told to dial: no call is dialled twice.

// errUnknownCommand: the command is of a kind that this version does not know.
var errUnknownCommand = errors.New("unknown command")

// storedDirective is a directive as a command carries it.
type storedDirective struct {
	Mode    string          `json:"mode"`
	Actions json.RawMessage `json:"actions"`
}

// storedGroupOrder is a groupOrder as a command carries it.
type storedGroupOrder struct {
	ConferenceID string `json:"conference_id,omitempty"`
	Mute         *bool  `json:"mute,omitempty"`
	Kick         bool   `json:"kick,omitempty"`
	End          bool   `json:"end,omitempty"`
	EntryID      string `json:"entry_id,omitempty"`
}

// order is a command that is about to be stored.
type order struct {
	kind    string
	payload any
}

func (o *order) encode() (json.RawMessage, error) {
	raw, err := json.Marshal(o.payload)
	if err != nil {
		return nil, fmt.Errorf("encode command %s: %w", o.kind, err)
	}
	return raw, nil
}

func (d *directive) order() (*order, error) {
	raw, err := actions.Encode(d.list)
	if err != nil {
		return nil, fmt.Errorf("encode the list: %w", err)
	}
	return &order{kind: models.CommandDirect, payload: storedDirective{Mode: d.mode, Actions: raw}}, nil
}

func (o *groupOrder) order() *order {
	return &order{kind: models.CommandGroup, payload: storedGroupOrder{
		ConferenceID: o.conferenceID, Mute: o.mute, Kick: o.kick, End: o.end, EntryID: o.entryID,
	}}
}

// readCommand turns a stored command into what its session is told.
func readCommand(c *models.Command) (message, error) {
	switch c.Kind {
	case models.CommandDirect:
		var stored storedDirective
		if err := json.Unmarshal(c.Payload, &stored); err != nil {
			return message{}, fmt.Errorf("read command %s: %w", c.ID, err)
		}
		list, err := actions.Decode(stored.Actions)
		if err != nil {
			return message{}, fmt.Errorf("read command %s: %w", c.ID, err)
		}
		return message{directed: &directive{list: list, mode: stored.Mode, command: c.ID}}, nil
	case models.CommandGroup:
		var stored storedGroupOrder
		if err := json.Unmarshal(c.Payload, &stored); err != nil {
			return message{}, fmt.Errorf("read command %s: %w", c.ID, err)
		}
		return message{group: &groupOrder{
			conferenceID: stored.ConferenceID, mute: stored.Mute, kick: stored.Kick, end: stored.End, entryID: stored.EntryID, command: c.ID,
		}}, nil
	case models.CommandCancel:
		return message{ending: cancelIntent()}, nil
	default:
		return message{}, fmt.Errorf("read command %s of kind %q: %w", c.ID, c.Kind, errUnknownCommand)
	}
}

// command gives a customer's live call a command and returns the call as it stands. build says which, and may refuse, in the
// transaction that has found the call alive and locked it; inTx, when set, runs after it.
func (m *Manager) command(ctx context.Context, customerID, callID string, build func(tx *models.Store, call *models.Call) (*order, error), inTx func(tx *models.Store, call *models.Call) error) (*models.Call, error) {
	var call *models.Call
	var stored *models.Command
	err := m.cfg.Store.InTx(ctx, func(tx *models.Store) (err error) {
		if call, err = commandable(ctx, tx, customerID, callID); err != nil {
			return err
		}
		o, err := build(tx, call)
		if err != nil {
			return err
		}
		if stored, err = giveCommand(ctx, tx, call, o); err != nil {
			return err
		}
		if inTx == nil {
			return nil
		}
		return inTx(tx, call)
	})
	if err != nil {
		return nil, err
	}
	m.handOver(ctx, stored)
	return call, nil
}

// commandable finds a customer's call and locks it, unless it takes no commands.
func commandable(ctx context.Context, tx *models.Store, customerID, callID string) (*models.Call, error) {
	call, err := tx.LockCall(ctx, customerID, callID)
	switch {
	case err != nil:
		return nil, fmt.Errorf("find call: %w", err)
	case !call.Live():
		return nil, ErrCallNotActive
	case call.Status == StatusQueued:
		return nil, ErrCallNotStarted
	default:
		return call, nil
	}
}

// giveCommand stores a command for a call.
func giveCommand(ctx context.Context, tx *models.Store, call *models.Call, o *order) (*models.Command, error) {
	payload, err := o.encode()
	if err != nil {
		return nil, err
	}
	stored, err := tx.AddCommand(ctx, call.ID, o.kind, payload)
	if errors.Is(err, models.ErrStale) {
		return nil, fmt.Errorf("%w: the call has no node", ErrNoNode)
	}
	return stored, err
}

// handOver gives a command that was stored to its call's session, if that is here. Otherwise, and when it fails, the holder of
// the call's node finds it.
func (m *Manager) handOver(ctx context.Context, stored *models.Command) {
	s := m.callSession(stored.CallID)
	if s == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), m.cfg.CommandTimeout)
	defer cancel()
	if err := s.receive(ctx, stored.CallID, stored); err != nil {
		m.log.Warn("command not handed over, it is looked for", "call_id", stored.CallID, "error", err)
	}
}

// receive puts the commands that are stored for the call and were not received yet into the mailbox, in their order. known is
// one of them, or nil. There is always one order: positions are given under the lock of the call's row, so whoever sees one
// sees all before it.
func (s *session) receive(ctx context.Context, callID string, known *models.Command) error {
	s.intake.Lock()
	defer s.intake.Unlock()
	if s.adopted && !s.restored {
		return nil // it takes them itself, when it knows where the call stands
	}
	last := s.received.Load()
	var commands []models.Command
	switch {
	case known != nil && known.Position <= last:
		return nil
	case known != nil && known.Position == last+1:
		commands = []models.Command{*known}
	default:
		var err error
		if commands, err = s.m.cfg.Store.Commands(ctx, callID, last); err != nil {
			return fmt.Errorf("read the call's commands: %w", err)
		}
	}
	for i := range commands {
		if commands[i].Kind == models.CommandDial { // the session has shelved it, and claims it itself
			s.received.Store(commands[i].Position)
			continue
		}
		m, err := readCommand(&commands[i])
		if err != nil {
			// It cannot be done, now or later. It goes with the call's end.
			s.m.log.Error("command not understood", "call_id", commands[i].CallID, "error", err)
		} else if !s.box.offer(m) {
			return nil // no room now: it is looked for again
		}
		s.received.Store(commands[i].Position)
	}
	return nil
}

// pendingCommands returns, as messages in their order, the commands that were given to a call and had not taken effect for good
// when its last session ended. The call's new session takes them before anything else; no other way delivers them to it.
func (m *Manager) pendingCommands(ctx context.Context, callID string) ([]message, error) {
	s := m.callSession(callID)
	if s == nil {
		return nil, fmt.Errorf("read the commands of call %q: it has no session", callID)
	}
	s.intake.Lock()
	defer s.intake.Unlock()
	commands, err := m.cfg.Store.Commands(ctx, callID, s.received.Load())
	if err != nil {
		return nil, fmt.Errorf("read the call's commands: %w", err)
	}
	s.restored = true
	var messages []message
	for i := range commands {
		s.received.Store(commands[i].Position)
		if commands[i].Kind == models.CommandDial {
			continue
		}
		msg, err := readCommand(&commands[i])
		if err != nil {
			m.log.Error("command not understood", "call_id", callID, "error", err)
			continue
		}
		messages = append(messages, msg)
	}
	return messages, nil
}

// takeLate receives what other controllers have accepted for the call until now.
func (s *session) takeLate() {
	ctx, cancel := s.command()
	defer cancel()
	if err := s.receive(ctx, s.call.ID, nil); err != nil {
		s.log.Warn("late commands not read", "error", err)
	}
}

// orders are the commands that a session has taken and that are not deleted yet. Its goroutine owns them.
type orders struct {
	// waiting are lists that the flow has not taken. taken are those that are in the flow's list, and what was done.
	waiting, taken []string
}

// wait notes a list of a command that waits for the flow to take it.
func (o *orders) wait(command string) {
	if command != "" {
		o.waiting = append(o.waiting, command)
	}
}

// did notes a command that has been done.
func (o *orders) did(command string) {
	if command != "" {
		o.taken = append(o.taken, command)
	}
}

// take notes that the flow's list is made of all lists that were waiting.
func (o *orders) take() {
	o.taken = append(o.taken, o.waiting...)
	o.waiting = nil
}

// storeOrders deletes the commands that the flow has taken, in the transaction that stores the flow's list in the call's cursor.
// The session forgets them when that is done.
func (s *session) storeOrders(ctx context.Context, tx *models.Store) error {
	if err := tx.DeleteCommands(ctx, s.orders.taken...); err != nil {
		return fmt.Errorf("delete the commands that were taken: %w", err)
	}
	return nil
}

// commandsPoll carries out what other controllers have accepted for calls of this controller's nodes, until ctx ends.
func (m *Manager) commandsPoll(ctx context.Context) {
	ticker := time.NewTicker(m.cfg.CommandInterval)
	defer ticker.Stop()
	failing := false
	for round := int64(0); ; round++ {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
		err := m.lookForCommands(ctx)
		whole := round%max(1, int64(nodesInterval/m.cfg.CommandInterval)) == 0
		if whole {
			err = errors.Join(err, m.lookForNodes(ctx))
		}
		if err != nil && !failing && ctx.Err() == nil {
			m.log.Error("commands of other controllers are not read", "error", err)
		}
		// A round that asks for the commands of no node says nothing of the database.
		failing = err != nil || failing && !whole
	}
}

// nodesInterval is how often the nodes of other controllers are looked for.
const nodesInterval = time.Second

// lookForCommands delivers the commands that are stored for calls of this controller's nodes, and dials.
func (m *Manager) lookForCommands(ctx context.Context) error {
	heads, err := m.cfg.Store.CommandHeads(ctx, m.heldNodes())
	if err != nil {
		return fmt.Errorf("look for commands: %w", err)
	}
	var failures []error
	for _, head := range heads {
		s := m.callSession(head.CallID)
		switch {
		case s != nil && head.Last > s.received.Load():
			failures = append(failures, s.receive(ctx, head.CallID, nil))
		case s == nil && head.Dials:
			m.dialStored(head)
		}
	}
	return errors.Join(failures...)
}

// heldNodes are the nodes of this controller.
func (m *Manager) heldNodes() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	ids := make([]string, 0, len(m.nodes))
	for id := range m.nodes {
		ids = append(ids, id)
	}
	return ids
}

package calls

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"tandem/actions"
	"tandem/esl"
	"tandem/models"
)

// What Direct does with the actions that it is given.
const (
	// ModeReplace drops the call's list, interrupts what runs and goes on with the new list.
	ModeReplace = "replace"
	// ModeAppend lets the call's list go on and runs the new actions after it.
	ModeAppend = "append"
)

// maxPending bounds how many actions may wait on one call: appending is refused beyond it.
const maxPending = 500

// DirectRequest gives a live call new actions.
type DirectRequest struct {
	// Actions are what the call shall do, at least one. They have been validated.
	Actions []actions.Action
	// Mode is ModeReplace or ModeAppend; empty is ModeReplace.
	Mode string
	// InTx, when set, runs in a transaction after the checks, such as for an idempotency record.
	InTx func(tx *models.Store, call *models.Call) error
}

// directive is a list that live control gives a call.
type directive struct {
	list    []actions.Action
	mode    string
	command string // the stored command that says so, "" for none
}

// Direct gives a customer's live call a new list, or more for the one it has. It returns the call as it stands; the call's own
// goroutine takes the list over, one command after the other, so that two at once are never mixed. A call that is not answered
// yet keeps the list until it is: a replacement stands in for what the answer_url would have said. Errors: *RequestError,
// models.ErrNotFound, ErrCallNotActive, ErrCallNotStarted for one that waits to be started.
func (m *Manager) Direct(ctx context.Context, customerID, callID string, req DirectRequest) (*models.Call, error) {
	d := &directive{list: req.Actions, mode: req.Mode}
	if d.mode == "" {
		d.mode = ModeReplace
	}
	switch {
	case len(d.list) == 0:
		return nil, &RequestError{Field: "actions", Message: "must hold at least one action"}
	case d.mode != ModeReplace && d.mode != ModeAppend:
		return nil, &RequestError{Field: "mode", Message: "must be replace or append"}
	}
	return m.command(ctx, customerID, callID, func(tx *models.Store, call *models.Call) (*order, error) {
		if len(call.Cursor.Ending) > 0 {
			return nil, ErrCallNotActive // it is being ended, see endFlow
		}
		waiting, err := m.waitingActions(ctx, tx, call)
		if err != nil {
			return nil, err
		}
		if s := m.callSession(call.ID); s != nil {
			if !s.box.takesLists() {
				return nil, ErrCallNotActive // it is being ended
			}
			waiting = int(s.pending.Load())
		}
		if d.mode == ModeAppend && waiting+len(d.list) > maxPending {
			return nil, &RequestError{Field: "actions", Message: fmt.Sprintf("must leave at most %d actions waiting on the call", maxPending)}
		}
		return d.order()
	}, req.InTx)
}

// waitingActions counts the actions that wait on a call whose session is elsewhere: those of its stored list, and of the lists
// that it has been given since.
func (m *Manager) waitingActions(ctx context.Context, tx *models.Store, call *models.Call) (int, error) {
	if m.callSession(call.ID) != nil {
		return 0, nil // the session knows better
	}
	var list []json.RawMessage
	if len(call.Cursor.List) > 0 {
		if err := json.Unmarshal(call.Cursor.List, &list); err != nil {
			return 0, fmt.Errorf("read the list of call %q: %w", call.ID, err)
		}
	}
	waiting := max(0, len(list)-call.Cursor.Index)
	commands, err := tx.Commands(ctx, call.ID, 0)
	if err != nil {
		return 0, err
	}
	for i := range commands {
		if commands[i].Kind != models.CommandDirect {
			continue
		}
		given, err := readCommand(&commands[i])
		if err != nil {
			return 0, err
		}
		if given.directed.mode == ModeReplace {
			waiting = 0
		}
		waiting += len(given.directed.list)
	}
	return waiting, nil
}

// direct takes a list of live control over. Whoever waits for something sees interrupted when it was a replacement.
func (s *session) direct(d *directive) error {
	s.orders.wait(d.command)
	switch {
	case d.mode == ModeReplace:
		s.replacement, s.appended = d, nil
	case s.replacement != nil:
		s.replacement = &directive{list: join(s.replacement.list, d.list), mode: ModeReplace}
	case !s.flow.begun:
		s.appended = join(s.appended, d.list)
	default:
		return s.setList(join(s.flow.list, d.list), s.flow.index)
	}
	s.count()
	return nil
}

// join is append without touching either list.
func join(a, b []actions.Action) []actions.Action {
	return append(append(make([]actions.Action, 0, len(a)+len(b)), a...), b...)
}

// count publishes how many actions wait.
func (s *session) count() {
	waiting := len(s.flow.list) - s.flow.index + len(s.appended)
	if s.replacement != nil {
		waiting = len(s.replacement.list)
	}
	s.pending.Store(int64(waiting))
}

// interrupted says that what the call is doing is no longer wanted: live control has replaced the list, or what the wait
// actions bridged has come. A verb that sees it leaves its loops and returns what it has, with the outcome interrupted.
func (s *session) interrupted() bool {
	return s.replacement != nil || s.until != nil && s.until()
}

// tearOut parks the channel, whatever it runs. Each time takes one off what is left of the channel's transfers, of which FreeSWITCH
// gives a call 70 (switch_channel.h, SWITCH_MAX_FORWARDS), so it is given more first.
func (s *session) tearOut(ctx context.Context) error {
	if !s.movable {
		if err := s.node.sw.SetVariable(ctx, s.channel, "max_session_transfers", manyTransfers); err != nil {
			return err
		}
		s.movable = true
	}
	return s.node.sw.Park(ctx, s.channel)
}

// manyTransfers is more than any call needs.
const manyTransfers = "1000000"

// How long an application may take to end once it was stopped, before the next, harder means is tried.
const stopGrace = time.Second

// cutShort stops the running application and waits for its completion. An application that was still waiting for its turn is
// dropped by a break without a word; a marker behind it tells. What no stop ends, the park does.
func (s *session) cutShort(stop func(ctx context.Context) error) error {
	completed := func() bool { return s.completed != nil }
	steps := []func() error{
		func() error { return s.order("stop the application", stop) },
		s.mark,
		func() error {
			return s.order("park the channel", s.tearOut)
		},
		s.mark,
	}
	for _, step := range steps {
		err := step()
		var refused *esl.CommandError
		if errors.As(err, &refused) {
			s.log.Debug("application not stopped", "error", err)
		} else if err != nil {
			return err
		}
		if err := s.pause(stopGrace, completed); err != nil {
			return err
		}
		if completed() {
			return nil
		}
	}
	return fmt.Errorf("stop the application %s: it does not end", s.running)
}

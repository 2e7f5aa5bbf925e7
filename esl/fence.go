package esl

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// ErrFenced is returned for every command once another controller steers the switch. It wraps ErrDown: for this process the node
// is away for good.
var ErrFenced = fmt.Errorf("another controller steers the switch: %w", ErrDown)

// Fence keeps a process that has lost its lease of a switch from commanding it, also one that was paused and does not know yet.
type Fence interface {
	// Held says without waiting whether the switch is ours. It is asked for each command in the moment in which it is written.
	Held() bool
	// Check finds out where Held says no, and makes Held say yes for a while where the switch is ours all the same. It may ask the
	// switch with [Node.Controller]. An error that is ErrFenced is final; with any other, nothing is sent that changes anything,
	// and the command ends as if the node were away (ErrDown), or as ErrBusy where ctx has ended.
	Check(ctx context.Context) error
	// Claim is called for each new connection, before anything but questions is sent on it: a switch that was restarted has forgotten
	// whose it is. An error ends the connection.
	Claim(ctx context.Context, conn *Claim) error
}

// Claim is a new connection to a switch, on which nothing has been commanded yet.
type Claim struct{ session *session }

// free is the fence of a node that nobody else steers.
type free struct{}

func (free) Held() bool                          { return true }
func (free) Check(context.Context) error         { return nil }
func (free) Claim(context.Context, *Claim) error { return nil }

// passFence waits until a message may be sent, or says why it may not: with ErrFenced, with ErrBusy where the caller waited no longer, otherwise
// with ErrDown. It is never ErrNoReply, because the message was not sent, whatever became of a question that the fence itself has asked.
func passFence(ctx context.Context, fence Fence, m message) error {
	if fence.Held() {
		return nil
	}
	err := fence.Check(ctx)
	switch {
	case err == nil || m.asks && !errors.Is(err, ErrFenced):
		return nil
	case errors.Is(err, ErrFenced):
		return fmt.Errorf("esl: %s: %w", m.label, err)
	case ctx.Err() != nil:
		return fmt.Errorf("esl: %s: waiting to know whose the switch is: %w: %w", m.label, ErrBusy, context.Cause(ctx))
	case errors.Is(err, ErrNoReply):
		return fmt.Errorf("esl: %s: %w: %s", m.label, ErrDown, err.Error())
	case errors.Is(err, ErrDown):
		return fmt.Errorf("esl: %s: %w", m.label, err)
	}
	return fmt.Errorf("esl: %s: %w: %w", m.label, ErrDown, err)
}

// controllerVariable is the global variable of the switch that holds the token of the controller that steers it.
const controllerVariable = "tandem_controller"

// Controller returns the token of the controller that took the switch last, 0 when none has since the switch was started. It may
// be called by a [Fence].
func (n *Node) Controller(ctx context.Context) (int64, error) {
	s := n.current.Load()
	if s == nil {
		return 0, fmt.Errorf("esl: ask for the controller: %w", ErrDown)
	}
	return s.controller(ctx)
}

// Controller returns the token of the controller that took the switch last, 0 when none has since the switch was started.
func (c *Claim) Controller(ctx context.Context) (int64, error) { return c.session.controller(ctx) }

// Take writes the token of a controller into the switch, for the others to see.
func (c *Claim) Take(ctx context.Context, token int64) error {
	ctx, cancel := c.session.node.bound(ctx)
	defer cancel()
	_, err := c.session.commands.do(ctx, apiMessage("global_setvar", controllerVariable+"="+strconv.FormatInt(token, 10)))
	return err
}

func (s *session) controller(ctx context.Context) (int64, error) {
	ctx, cancel := s.node.bound(ctx)
	defer cancel()
	m := apiMessage("global_getvar", controllerVariable)
	m.asks, m.unfenced = true, true
	f, err := s.commands.do(ctx, m)
	if refused := new(CommandError); errors.As(err, &refused) && refused.Reply == "-ERR no reply" {
		return 0, nil // how the event socket words an empty reply (mod_event_socket.c, api_exec)
	}
	if err != nil {
		return 0, err
	}
	value := strings.TrimSpace(f.body)
	if value == "" {
		return 0, nil
	}
	token, err := strconv.ParseInt(value, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("esl: %s holds %q, which is no token", controllerVariable, clip(value))
	}
	return token, nil
}

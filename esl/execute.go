package esl

import (
	"context"
	"fmt"
	"strings"
)

// Execute runs an application on a channel, after those that were sent before it. It returns when the switch has queued it; the completion comes
// to the handler as CHANNEL_EXECUTE_COMPLETE with the event UUID as [Event.ApplicationID], or not at all when the channel hangs up. The event
// UUID must come from [NewEventUUID] and be stored before this is called. An application that the switch does not have hangs the call up.
//
// At most Config.ChannelWindow applications wait or run on a channel; one more waits here for the first to complete,
// and is ErrBusy when ctx, or Config.CommandTimeout, ends before that.
func (n *Node) Execute(ctx context.Context, channel, eventUUID string, app App) error {
	if err := checkID("channel_id", channel); err != nil {
		return err
	}
	if err := checkID("event_uuid", eventUUID); err != nil {
		return err
	}
	if !strings.HasPrefix(eventUUID, EventUUIDPrefix) {
		return refuse("event_uuid", "must begin with %s: the switch filters by it", EventUUIDPrefix)
	}
	if app.name == "" {
		return refuse("app", "must come from a builder")
	}
	s := n.current.Load()
	if s == nil {
		return fmt.Errorf("esl: execute %s: %w", app.name, ErrDown)
	}
	ctx, cancel := n.bound(ctx)
	defer cancel()
	if err := n.inflight.acquire(ctx, s.ctx.Done(), channel, eventUUID); err != nil {
		return fmt.Errorf("esl: execute %s: %w", app.name, err)
	}
	_, err := s.commands.do(ctx, executeMessage(channel, eventUUID, app))
	if err != nil {
		// Whatever the switch makes of it: a completion that comes all the same finds the slot free, which is harmless so far below its limit.
		n.inflight.release(channel, eventUUID)
	}
	return err
}

// bound gives a context that has no deadline the configured one.
func (n *Node) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, n.cfg.CommandTimeout)
}

// api sends a command whose arguments were checked and returns the whole reply.
func (n *Node) api(ctx context.Context, verb, args string) (string, error) {
	s := n.current.Load()
	if s == nil {
		return "", fmt.Errorf("esl: %s: %w", verb, ErrDown)
	}
	ctx, cancel := n.bound(ctx)
	defer cancel()
	f, err := s.commands.do(ctx, apiMessage(verb, args))
	if err != nil {
		return "", err
	}
	return f.body, nil
}

// API sends one line that an operator typed, such as "sofia status", and returns the reply as it came. It refuses what is not one line; it cannot
// know what the line does. A reply that begins with -ERR is a *CommandError.
func (n *Node) API(ctx context.Context, command string) (string, error) {
	command = strings.TrimSpace(command)
	if command == "" {
		return "", refuse("command", "is empty")
	}
	if err := checkText("command", command, maxLineBytes); err != nil {
		return "", err
	}
	verb, args, _ := strings.Cut(command, " ")
	return n.api(ctx, verb, args)
}

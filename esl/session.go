package esl

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/percipia/eslgo"
	"github.com/percipia/eslgo/command"
)

// session is one life of the two connections to a node, from dialling to the last event.
type session struct {
	node     *Node
	commands *commandConn
	events   *connection
	dispatch *dispatcher
	ctx      context.Context // ends with the session; its cause says why
	fail     context.CancelCauseFunc

	lastFrame atomic.Int64 // UnixNano of the last frame on the event connection
	upSince   atomic.Int64 // UnixNano since which HandleUp runs, 0 when it does not
	core      atomic.Pointer[string]
}

// connect lives one session and reports whether it was up, and why it ended.
func (n *Node) connect(ctx context.Context) (wasUp bool, err error) {
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)

	if !n.cfg.Fence.Held() {
		// Not known is not lost: the first that is asked on the connection is whose the switch is.
		if err := n.cfg.Fence.Check(ctx); errors.Is(err, ErrFenced) {
			return false, err
		}
	}
	events, err := n.cfg.dial(ctx)
	if err != nil {
		return false, err
	}
	commands, err := n.cfg.dial(ctx)
	if err != nil {
		_ = events.Close()
		return false, err
	}
	s := &session{
		node: n, events: events, commands: newCommandConn(commands, n.cfg.Window, n.cfg.Fence, n.cfg.OnCommand), ctx: ctx, fail: fail,
		dispatch: newDispatcher(n.cfg.Handler, n.cfg.Workers, n.cfg.QueueEvents, n.cfg.QueueBytes),
	}
	// The sockets close the moment the session ends, whatever the handler does: a switch must never write to a client that does not read.
	closed := make(chan struct{})
	context.AfterFunc(ctx, func() {
		defer close(closed)
		n.setDown()
		_ = events.Close()
		_ = commands.Close()
		s.commands.close(context.Cause(ctx))
	})
	var running sync.WaitGroup
	running.Go(func() { fail(s.commands.write(ctx)) })
	running.Go(func() { fail(s.commands.read()) })

	wasUp, err = s.live(&running)
	fail(err)
	<-closed
	n.setDown() // again: the session may have come up in the moment it ended
	running.Wait()
	cause := context.Cause(ctx)
	s.dispatch.close(errors.Is(cause, ErrOverflow) || errors.Is(cause, ErrHandlerStuck))
	n.inflight.reset()
	n.jobs.finishAll(cause)
	if wasUp {
		n.cfg.Handler.HandleDown(cause)
	}
	return wasUp, cause
}

// live subscribes, resynchronises and then waits for the end.
func (s *session) live(running *sync.WaitGroup) (wasUp bool, err error) {
	n := s.node
	if err := s.subscribe(); err != nil {
		return false, &ConnectError{Addr: n.cfg.Addr, Step: "subscribe", Err: err}
	}
	s.lastFrame.Store(time.Now().UnixNano())
	running.Go(func() { s.fail(s.readEvents()) })
	running.Go(func() { s.fail(s.watch()) })

	if err := n.cfg.Fence.Claim(s.ctx, &Claim{s}); err != nil {
		return false, &ConnectError{Addr: n.cfg.Addr, Step: "claim", Err: err}
	}
	// Only now: what another controller had under way has reached the switch.
	snapshot, err := s.snapshot()
	if err != nil {
		return false, &ConnectError{Addr: n.cfg.Addr, Step: "resync", Err: err}
	}
	if s.ctx.Err() != nil {
		return false, context.Cause(s.ctx)
	}
	n.setUp(s, snapshot.CoreUUID)
	n.cfg.Logger.Info("esl node is up", "node", n.cfg.Name, "core_uuid", snapshot.CoreUUID, "restarted", snapshot.Restarted, "channels", len(snapshot.Channels))
	s.upSince.Store(time.Now().UnixNano())
	n.cfg.Handler.HandleUp(snapshot)
	s.upSince.Store(0)
	s.dispatch.release()
	<-s.ctx.Done()
	return true, context.Cause(s.ctx)
}

// subscribe sets the filters first, so that not one unwanted event comes between them and the subscription. Filters are alternatives, and an
// event that has none of the headers is dropped (mod_event_socket.c, event_handler): completions come by our own event UUIDs, everything else
// by its name.
func (s *session) subscribe() error {
	stop := context.AfterFunc(s.ctx, func() { _ = s.events.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if err := s.events.SetDeadline(time.Now().Add(s.node.cfg.ConnectTimeout)); err != nil {
		return err
	}
	for _, f := range filters(s.node.cfg.Events) {
		if _, err := s.events.request(line("filter", f)); err != nil {
			return err
		}
	}
	if _, err := s.events.request(line("event", command.Event{Format: "json", Listen: s.node.cfg.Events})); err != nil {
		return err
	}
	return s.events.SetDeadline(time.Time{})
}

// applicationEvents are the events that carry an Application-UUID.
var applicationEvents = []string{"CHANNEL_EXECUTE", "CHANNEL_EXECUTE_COMPLETE"}

func filters(events []string) []command.Filter {
	list := []command.Filter{{EventHeader: "Application-UUID", FilterValue: "/^" + EventUUIDPrefix + "/"}}
	for i, name := range events {
		if slices.Contains(applicationEvents, name) {
			continue
		}
		if name == "CUSTOM" && i+1 < len(events) {
			return append(list, subclassFilters(events[i+1:])...)
		}
		list = append(list, command.Filter{EventHeader: "Event-Name", FilterValue: name})
	}
	return list
}

// subclassFilters let CUSTOM events of some subclasses through, and of mod_conference, which tells of everything that happens in a room, only who
// enters and leaves.
func subclassFilters(subclasses []string) []command.Filter {
	var list []command.Filter
	for _, name := range subclasses {
		if name == "conference::maintenance" {
			list = append(list, command.Filter{EventHeader: "Action", FilterValue: "add-member"}, command.Filter{EventHeader: "Action", FilterValue: "del-member"})
			continue
		}
		list = append(list, command.Filter{EventHeader: "Event-Subclass", FilterValue: name})
	}
	return list
}

// readEvents reads the event connection until it ends. It never waits for anything but the socket.
func (s *session) readEvents() error {
	for {
		f, err := s.events.frames.read()
		if err != nil {
			return ended("event", err)
		}
		s.lastFrame.Store(time.Now().UnixNano())
		switch f.kind {
		case eslgo.TypeEventJSON:
			e, err := ParseEvent(f.body)
			if err != nil {
				s.node.cfg.Logger.Warn("esl event dropped", "node", s.node.cfg.Name, "error", err)
				continue
			}
			if err := s.take(e); err != nil {
				return err
			}
		case eslgo.TypeDisconnect, typeRudeRejection:
			return fmt.Errorf("event connection: %w", ErrDisconnected)
		}
	}
}

// take gives an event to whoever waits for it, and then to the handler.
func (s *session) take(e *Event) error {
	if core := s.core.Load(); core != nil && *core != "" {
		if now := e.CoreUUID(); now != "" && now != *core {
			return ErrRestarted
		}
	}
	s.node.inflight.observe(e)
	s.node.jobs.observe(e)
	if err := s.dispatch.push(e); err != nil {
		return err
	}
	return nil
}

// slotLife is how long a channel may keep slots with nothing sent to it: longer than any call.
const slotLife = 24 * time.Hour

// watch looks at everything that can be dead without saying so.
func (s *session) watch() error {
	cfg := &s.node.cfg
	tick := time.NewTicker(min(time.Second, cfg.Probe, cfg.Watchdog/4, cfg.Heartbeat/4))
	defer tick.Stop()
	probes := time.NewTicker(cfg.Probe)
	defer probes.Stop()
	for {
		select {
		case <-s.ctx.Done():
			return context.Cause(s.ctx)
		case now := <-probes.C:
			s.node.inflight.sweep(now.Add(-slotLife))
			if s.commands.idle() {
				if err := s.probe(); err != nil {
					return err
				}
			}
		case now := <-tick.C:
			// Two heartbeats missed, and half an interval of grace for their delivery.
			if quiet := now.Sub(time.Unix(0, s.lastFrame.Load())); quiet > 2*cfg.Heartbeat+cfg.Heartbeat/2 {
				return fmt.Errorf("%w: nothing came for %s", ErrHeartbeatLost, quiet)
			}
			if label := s.commands.stalled(now, cfg.AbandonLimit); label != "" {
				return fmt.Errorf("%w: %s", ErrNoReply, label)
			}
			busy := s.dispatch.longest(now)
			if since := s.upSince.Load(); since != 0 {
				busy = max(busy, now.Sub(time.Unix(0, since)))
			}
			if busy > cfg.Watchdog {
				return fmt.Errorf("%w: for %s", ErrHandlerStuck, busy)
			}
		}
	}
}

// probe asks the switch who it is: a dead command connection and a restarted switch show alike.
func (s *session) probe() error {
	ctx, cancel := context.WithTimeout(s.ctx, s.node.cfg.CommandTimeout)
	defer cancel()
	core, err := s.coreUUID(ctx)
	if err != nil {
		return fmt.Errorf("probe: %w", err)
	}
	if known := s.core.Load(); known != nil && core != *known {
		return ErrRestarted
	}
	return nil
}

func (s *session) coreUUID(ctx context.Context) (string, error) {
	m := apiMessage("global_getvar", "core_uuid")
	m.asks = true
	f, err := s.commands.do(ctx, m)
	if err != nil {
		return "", err
	}
	return strings.TrimSpace(f.body), nil
}

// setUp opens the node for commands.
func (n *Node) setUp(s *session, core string) {
	s.core.Store(&core)
	n.core.Store(&core)
	n.mu.Lock()
	defer n.mu.Unlock()
	n.current.Store(s)
	close(n.up)
}

// setDown closes it.
func (n *Node) setDown() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.current.Swap(nil) != nil {
		n.up = make(chan struct{})
	}
}

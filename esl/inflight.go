package esl

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// inflight bounds how many applications wait or run on each channel. FreeSWITCH queues 256 sendmsg on a channel and disconnects the client that
// sends one more (switch_core_pvt.h, mod_event_socket.c parse_command), so we stop long before and wait for completions.
type inflight struct {
	limit int

	mu       sync.Mutex
	channels map[string]*channelSlots
}

type channelSlots struct {
	running map[string]struct{} // event UUIDs that were sent and have not completed
	last    time.Time           // when the last of them was sent
	waiters []chan struct{}
}

func newInflight(limit int) *inflight {
	return &inflight{limit: limit, channels: make(map[string]*channelSlots)}
}

// acquire takes a slot of the channel for the application that the event UUID names, waiting for one until the context ends (ErrBusy) or down
// closes (ErrDown).
func (f *inflight) acquire(ctx context.Context, down <-chan struct{}, channel, eventUUID string) error {
	for {
		f.mu.Lock()
		s := f.channels[channel]
		if s == nil {
			s = &channelSlots{running: make(map[string]struct{})}
			f.channels[channel] = s
		}
		if _, twice := s.running[eventUUID]; twice {
			f.mu.Unlock()
			return refuse("event_uuid", "names an application that has not completed")
		}
		if len(s.running) < f.limit {
			s.running[eventUUID], s.last = struct{}{}, time.Now()
			f.mu.Unlock()
			return nil
		}
		free := make(chan struct{})
		s.waiters = append(s.waiters, free)
		f.mu.Unlock()
		select {
		case <-free:
		case <-down:
			return ErrDown
		case <-ctx.Done():
			return fmt.Errorf("waiting for %d applications on the channel: %w: %w", f.limit, ErrBusy, context.Cause(ctx))
		}
	}
}

// release gives the slot of one application back.
func (f *inflight) release(channel, eventUUID string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.channels[channel]
	if s == nil {
		return
	}
	delete(s.running, eventUUID)
	f.wake(channel, s)
}

// clear gives all slots of a channel back: it hung up, or its queue was flushed.
func (f *inflight) clear(channel string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if s := f.channels[channel]; s != nil {
		clear(s.running)
		f.wake(channel, s)
	}
}

// reset forgets every channel.
func (f *inflight) reset() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for channel, s := range f.channels {
		clear(s.running)
		f.wake(channel, s)
	}
}

// sweep forgets channels that nothing was sent to since a moment long past. The application that was sent while its channel hung up neither
// completes nor sees another hangup.
func (f *inflight) sweep(before time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for channel, s := range f.channels {
		if s.last.Before(before) {
			clear(s.running)
			f.wake(channel, s)
		}
	}
}

// wake lets all waiters look again; more than one may find room.
func (f *inflight) wake(channel string, s *channelSlots) {
	for _, w := range s.waiters {
		close(w)
	}
	s.waiters = nil
	if len(s.running) == 0 {
		delete(f.channels, channel)
	}
}

// observe gives slots back as events tell of completions and hangups.
func (f *inflight) observe(e *Event) {
	switch e.name {
	case "CHANNEL_EXECUTE_COMPLETE":
		f.release(e.channel, e.ApplicationID())
	case "CHANNEL_HANGUP", "CHANNEL_HANGUP_COMPLETE", "CHANNEL_DESTROY":
		f.clear(e.channel)
	}
}

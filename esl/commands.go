package esl

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/percipia/eslgo"
)

// commandConn is the connection that only sends commands. FreeSWITCH answers strictly in the order of the commands, so replies are matched first
// in, first out; a command whose caller went away keeps its place, or every later caller would get its predecessor's reply.
type commandConn struct {
	conn   *connection
	fence  Fence
	tell   func(command string, took time.Duration, err error)
	window chan struct{} // one token per command that is sent and not answered
	out    chan outgoing // never blocks: as large as the window

	mu      sync.Mutex
	pending []*pending
	closed  error
}

// pending is a command that waits for its reply.
type pending struct {
	label     string
	reply     chan frame
	abandoned time.Time // when the caller stopped waiting; zero while it waits. Guarded by commandConn.mu
	written   bool      // some of it may be on the socket. Guarded by commandConn.mu
}

// outgoing is a message on its way to the socket.
type outgoing struct {
	message
	p      *pending
	fenced chan struct{} // closed where it was not written, because the lease ran out on the way
}

func newCommandConn(conn *connection, window int, fence Fence, tell func(command string, took time.Duration, err error)) *commandConn {
	return &commandConn{conn: conn, fence: fence, tell: tell, window: make(chan struct{}, window), out: make(chan outgoing, window)}
}

// do sends a message and waits for its reply, which may be a refusal (*CommandError).
func (c *commandConn) do(ctx context.Context, m message) (frame, error) {
	began := time.Now()
	f, err := c.pass(ctx, m)
	c.tell(m.label, time.Since(began), err)
	return f, err
}

// pass sends a message once the fence lets it, as often as it comes back unwritten.
func (c *commandConn) pass(ctx context.Context, m message) (frame, error) {
	for {
		if !m.unfenced {
			if err := passFence(ctx, c.fence, m); err != nil {
				return frame{}, err
			}
		}
		f, err := c.send(ctx, m)
		if !errors.Is(err, errNotWritten) {
			return f, err
		}
	}
}

// errNotWritten: the lease ran out between its check and the write.
var errNotWritten = errors.New("not written")

func (c *commandConn) send(ctx context.Context, m message) (frame, error) {
	select {
	case c.window <- struct{}{}:
	case <-ctx.Done():
		return frame{}, fmt.Errorf("esl: %s: waiting to send: %w: %w", m.label, ErrBusy, context.Cause(ctx))
	}
	if m.begin != nil {
		if err := m.begin(ctx); err != nil {
			<-c.window
			return frame{}, fmt.Errorf("esl: %s: %w", m.label, err)
		}
	}
	p := &pending{label: m.label, reply: make(chan frame, 1)}
	fenced := make(chan struct{})
	c.mu.Lock()
	if c.closed != nil {
		c.mu.Unlock()
		<-c.window
		return frame{}, fmt.Errorf("esl: %s: %w: %w", m.label, ErrDown, c.closed)
	}
	c.pending = append(c.pending, p)
	c.out <- outgoing{message: m, p: p, fenced: fenced}
	c.mu.Unlock()

	select {
	case f, ok := <-p.reply:
		if !ok {
			return frame{}, c.lost(p)
		}
		return f, f.refusal(m.label)
	case <-fenced:
		return frame{}, errNotWritten
	case <-ctx.Done():
		c.mu.Lock()
		p.abandoned = time.Now()
		c.mu.Unlock()
		return frame{}, fmt.Errorf("esl: %s: %w: %w", m.label, ErrNoReply, context.Cause(ctx))
	}
}

// write sends the messages, each in one write, until the connection is closed.
func (c *commandConn) write(ctx context.Context) error {
	for {
		select {
		case m := <-c.out:
			if !m.asks && !c.fence.Held() {
				c.takeBack(m)
				continue
			}
			if !c.mark(m.p, true) {
				return c.err()
			}
			if n, err := io.WriteString(c.conn, m.text); err != nil {
				if n == 0 {
					c.mark(m.p, false)
				}
				return fmt.Errorf("send %s: %w", m.label, err)
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// mark notes whether a message is on the socket, unless the connection was closed and its sender told already.
func (c *commandConn) mark(p *pending, written bool) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed != nil {
		return false
	}
	p.written = written
	return true
}

// lost is the error of a command that the connection ended before the reply of.
func (c *commandConn) lost(p *pending) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !p.written {
		return fmt.Errorf("esl: %s: %w: %w", p.label, ErrDown, c.closed)
	}
	return fmt.Errorf("esl: %s: %w: %w: %w", p.label, ErrDown, ErrNoReply, c.closed)
}

// takeBack undoes the sending of a message that was not written.
func (c *commandConn) takeBack(m outgoing) {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := slices.Index(c.pending, m.p)
	if i < 0 {
		return // the connection was closed meanwhile
	}
	c.pending = slices.Delete(c.pending, i, i+1)
	<-c.window
	close(m.fenced)
}

// read gives each reply to the oldest command, until the connection ends.
func (c *commandConn) read() error {
	for {
		f, err := c.conn.frames.read()
		if err != nil {
			return ended("command", err)
		}
		switch f.kind {
		case eslgo.TypeReply, eslgo.TypeAPIResponse:
			if err := c.resolve(f); err != nil {
				return err
			}
		case eslgo.TypeDisconnect, typeRudeRejection:
			return fmt.Errorf("command connection: %w", ErrDisconnected)
		}
	}
}

func (c *commandConn) resolve(f frame) error {
	c.mu.Lock()
	if len(c.pending) == 0 {
		c.mu.Unlock()
		return fmt.Errorf("%w: reply without command", ErrFrame)
	}
	p := c.pending[0]
	c.pending[0] = nil
	c.pending = c.pending[1:]
	c.mu.Unlock()
	p.reply <- f
	<-c.window
	return nil
}

// stalled returns the command that has kept the connection for longer than limit after its caller gave up, or empty. Only the oldest one matters:
// FreeSWITCH works on no other.
func (c *commandConn) stalled(now time.Time, limit time.Duration) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.pending) == 0 || c.pending[0].abandoned.IsZero() || now.Sub(c.pending[0].abandoned) <= limit {
		return ""
	}
	return c.pending[0].label
}

// idle reports whether no command waits for a reply.
func (c *commandConn) idle() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.pending) == 0
}

// close ends all waiting and refuses what comes later.
func (c *commandConn) close(cause error) {
	c.mu.Lock()
	if c.closed != nil {
		c.mu.Unlock()
		return
	}
	c.closed = cause
	waiting := c.pending
	c.pending = nil
	c.mu.Unlock()
	for _, p := range waiting {
		close(p.reply)
		<-c.window
	}
}

func (c *commandConn) err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.closed
}

// refusal is the error that a reply stands for, if it does.
func (f *frame) refusal(label string) error {
	text := f.body
	if f.kind == eslgo.TypeReply {
		text = f.replyText()
	}
	if strings.HasPrefix(text, "-ERR") || strings.HasPrefix(text, "-USAGE") {
		return &CommandError{Command: label, Reply: strings.TrimSpace(text)}
	}
	return nil
}

// ended words the end of a connection.
func ended(which string, err error) error {
	if errors.Is(err, io.EOF) {
		err = ErrDisconnected
	}
	return fmt.Errorf("%s connection: %w", which, err)
}

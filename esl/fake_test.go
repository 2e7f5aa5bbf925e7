package esl

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const (
	fakePassword = "open sesame"
	fakeCore     = "core-1"
)

// fakeSwitch is a small event socket that behaves until a test tells it not to.
type fakeSwitch struct {
	greet     func(*fakeConn) bool                // false: the connection is not served any further
	intercept func(*fakeConn, clientMessage) bool // true: the message is dealt with
	core      func() string
	channels  func() string

	mu       sync.Mutex
	conns    map[*fakeConn]struct{}
	stopped  bool
	serving  sync.WaitGroup
	listener net.Listener
	dials    int
	eventCh  chan *fakeConn // each connection that subscribed
}

// fakeConn is one connection as the switch sees it.
type fakeConn struct {
	net.Conn
	reader *bufio.Reader
	wmu    sync.Mutex
	events bool
}

// clientMessage is what a client sent: the command line, its headers and its body.
type clientMessage struct {
	line    string
	headers map[string]string
	body    string
}

func newFakeSwitch() *fakeSwitch {
	return &fakeSwitch{
		conns: map[*fakeConn]struct{}{}, eventCh: make(chan *fakeConn, 100),
		core:     func() string { return fakeCore },
		channels: func() string { return `{"row_count": 0}` + "\n" },
	}
}

// dialPipe serves connections in memory, for tests with a clock of their own.
func (f *fakeSwitch) dialPipe(context.Context, string, string) (net.Conn, error) {
	client, server := net.Pipe()
	f.serve(server)
	return client, nil
}

// listen serves connections on a loopback port.
func (f *fakeSwitch) listen(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	f.serving.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			f.serve(c)
		}
	})
	f.listener = ln
	t.Cleanup(f.close)
	return ln.Addr().String()
}

func (f *fakeSwitch) serve(c net.Conn) {
	fc := &fakeConn{Conn: c, reader: bufio.NewReader(c)}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.stopped {
		_ = c.Close()
		return
	}
	f.dials++
	f.conns[fc] = struct{}{}
	f.serving.Go(func() {
		defer func() {
			_ = c.Close()
			f.mu.Lock()
			delete(f.conns, fc)
			f.mu.Unlock()
		}()
		f.run(fc)
	})
}

// close ends all connections and waits for their goroutines.
func (f *fakeSwitch) close() {
	f.mu.Lock()
	f.stopped = true
	if f.listener != nil {
		_ = f.listener.Close()
	}
	for c := range f.conns {
		_ = c.Close()
	}
	f.mu.Unlock()
	f.serving.Wait()
}

func (f *fakeSwitch) dialled() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.dials
}

func (f *fakeSwitch) run(c *fakeConn) {
	if f.greet != nil && !f.greet(c) {
		return
	}
	c.send("Content-Type: auth/request\n\n")
	for {
		m, err := c.receive()
		if err != nil {
			return
		}
		if f.intercept != nil && f.intercept(c, m) {
			continue
		}
		f.answer(c, m)
	}
}

// answer is what a well-behaved switch says.
func (f *fakeSwitch) answer(c *fakeConn, m clientMessage) {
	verb, args, _ := strings.Cut(m.line, " ")
	switch verb {
	case "auth":
		if args != fakePassword {
			c.reply("-ERR invalid")
			c.send("Content-Type: text/disconnect-notice\nContent-Length: 4\n\nbye\n")
			_ = c.Close()
			return
		}
		c.reply("+OK accepted")
	case "event":
		c.events = true
		c.reply("+OK event listener enabled json")
		f.eventCh <- c
	case "filter":
		c.reply("+OK filter added. [" + args + "]")
	case "sendmsg":
		c.reply("+OK")
	case "bgapi":
		c.send("Content-Type: command/reply\nReply-Text: +OK Job-UUID: " + m.headers["job-uuid"] + "\nJob-UUID: " + m.headers["job-uuid"] + "\n\n")
	case "api":
		switch args {
		case "global_getvar core_uuid":
			c.api(f.core())
		case "show channels as json":
			c.api(f.channels())
		default:
			c.api("+OK " + args)
		}
	default:
		c.reply("-ERR command not found")
	}
}

// pass lets time go by on the clock of a test's bubble.
func pass(d time.Duration) { <-time.After(d) }

// receive reads one message as mod_event_socket does.
func (c *fakeConn) receive() (clientMessage, error) {
	m := clientMessage{headers: map[string]string{}}
	for {
		raw, err := c.reader.ReadString('\n')
		if err != nil {
			return m, err
		}
		raw = strings.TrimRight(raw, "\r\n")
		switch {
		case raw == "" && m.line == "":
			continue
		case raw == "":
			if n, _ := strconv.Atoi(m.headers["content-length"]); n > 0 {
				body := make([]byte, n)
				if _, err := io.ReadFull(c.reader, body); err != nil {
					return m, err
				}
				m.body = string(body)
			}
			return m, nil
		case m.line == "":
			m.line = raw
		default:
			key, value, _ := strings.Cut(raw, ":")
			m.headers[strings.ToLower(key)] = strings.TrimLeft(value, " ")
		}
	}
}

func (c *fakeConn) send(raw string) {
	c.wmu.Lock()
	defer c.wmu.Unlock()
	_, _ = io.WriteString(c.Conn, raw)
}

func (c *fakeConn) reply(text string) {
	c.send("Content-Type: command/reply\nReply-Text: " + text + "\n\n")
}

func (c *fakeConn) api(body string) {
	c.send(fmt.Sprintf("Content-Type: api/response\nContent-Length: %d\n\n%s", len(body), body))
}

// event sends an event with headers given in pairs.
func (c *fakeConn) event(name string, pairs ...string) { c.send(eventFrame(name, pairs...)) }

func eventFrame(name string, pairs ...string) string {
	doc := eventDoc(name, pairs...)
	return fmt.Sprintf("Content-Length: %d\nContent-Type: text/event-json\n\n%s", len(doc), doc)
}

func eventDoc(name string, pairs ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, `{"Event-Name":%q,"Core-UUID":%q`, name, fakeCore)
	for i := 0; i < len(pairs); i += 2 {
		value, _ := json.Marshal(pairs[i+1])
		fmt.Fprintf(&b, `,%q:%s`, pairs[i], value)
	}
	return b.String() + "}"
}

// recorder is a handler that keeps what it was told.
type recorder struct {
	onUp    func(Snapshot)
	onEvent func(*Event)

	mu     sync.Mutex
	events []*Event
	up     chan Snapshot
	down   chan error
	got    chan *Event
}

func newRecorder() *recorder {
	return &recorder{up: make(chan Snapshot, 100), down: make(chan error, 100), got: make(chan *Event, 20000)}
}

func (r *recorder) HandleUp(s Snapshot) {
	if r.onUp != nil {
		r.onUp(s)
	}
	r.up <- s
}

func (r *recorder) HandleEvent(e *Event) {
	if r.onEvent != nil {
		r.onEvent(e)
	}
	r.mu.Lock()
	r.events = append(r.events, e)
	r.mu.Unlock()
	r.got <- e
}

func (r *recorder) HandleDown(err error) {
	r.down <- err
}

// startNode starts a node on a fake switch through memory and stops both when the test ends.
func startNode(t *testing.T, f *fakeSwitch, h Handler, change func(*Config)) *Node {
	t.Helper()
	cfg := Config{Addr: "fake", Password: fakePassword, Handler: h, Dial: f.dialPipe, Logger: slog.New(slog.DiscardHandler)}
	if change != nil {
		change(&cfg)
	}
	n, err := NewNode(cfg)
	require.NoError(t, err)
	require.NoError(t, n.Start(t.Context()))
	t.Cleanup(func() {
		n.Stop()
		f.close()
	})
	return n
}

// deadline gives a context that ends with a test that hangs.
func deadline(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

func receive[T any](t *testing.T, ch <-chan T) T {
	t.Helper()
	select {
	case v := <-ch:
		return v
	case <-time.After(60 * time.Second):
		require.FailNow(t, "nothing came in time")
		panic("unreachable")
	}
}

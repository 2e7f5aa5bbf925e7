package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"time"
)

// Link is the way from a controller to a switch, or any other TCP connection, with a place to cut it while both ends live.
type Link struct {
	to       string
	listener net.Listener
	done     sync.WaitGroup

	mu     sync.Mutex
	tap    func(conn int, sent []byte)
	state  LinkState
	change chan struct{} // closed at each change of state
	conns  map[net.Conn]struct{}
	heard  []Heard
}

// Heard is a connection that a link was asked for.
type Heard struct {
	// Opened is when it was, and Last when it last said something.
	Opened, Last time.Time
	// Bytes is how much it has said, whether the other end was told or not.
	Bytes int64
}

// Heard returns all connections that the link was asked for so far, in their order, open or not.
func (l *Link) Heard() []Heard {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.heard)
}

// hear notes a connection, and hearing what it says.
func (l *Link) hear() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.heard = append(l.heard, Heard{Opened: time.Now()})
	return len(l.heard) - 1
}

func (l *Link) hearing(heard int, sent []byte) {
	l.mu.Lock()
	l.heard[heard].Last = time.Now()
	l.heard[heard].Bytes += int64(len(sent))
	tap := l.tap
	l.mu.Unlock()
	if tap != nil {
		tap(heard, sent)
	}
}

// LinkState is what a Link does with what it is given.
type LinkState int

// The states of a link.
const (
	// LinkUp passes everything on.
	LinkUp LinkState = iota
	// LinkReset has closed every connection, and closes new ones at once.
	LinkReset
	// LinkSilent keeps connections, and takes new ones, but passes nothing on until it is up again: cables are cut like that.
	LinkSilent
	linkClosed
)

// NewLink listens on a free loopback port and passes connections on to an address.
func NewLink(ctx context.Context, to string) (*Link, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("open a link: %w", err)
	}
	l := &Link{to: to, listener: listener, change: make(chan struct{}), conns: map[net.Conn]struct{}{}}
	l.done.Go(l.accept)
	return l, nil
}

// Addr is where to connect to instead of the address that the link leads to.
func (l *Link) Addr() string { return l.listener.Addr().String() }

// Set puts the link into a state.
func (l *Link) Set(state LinkState) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.state == linkClosed {
		return
	}
	l.state = state
	close(l.change)
	l.change = make(chan struct{})
	if state == LinkReset || state == linkClosed {
		for conn := range l.conns {
			reset(conn)
		}
	}
}

// Tap lets somebody listen to what clients send, each connection by its number, before it is passed on. It must not block.
func (l *Link) Tap(tap func(conn int, sent []byte)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tap = tap
}

// Close closes every connection and waits until nothing of the link runs any more.
func (l *Link) Close() {
	l.Set(linkClosed)
	_ = l.listener.Close()
	l.done.Wait()
}

func (l *Link) accept() {
	for {
		conn, err := l.listener.Accept()
		if err != nil {
			return
		}
		if !l.keep(conn) {
			continue
		}
		l.done.Go(func() { l.carry(conn) })
	}
}

// keep notes a connection, unless the link is not there.
func (l *Link) keep(conn net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.state == LinkReset || l.state == linkClosed {
		reset(conn)
		return false
	}
	l.conns[conn] = struct{}{}
	return true
}

func (l *Link) forget(conn net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.conns, conn)
	_ = conn.Close()
}

// carry connects to the other end and passes on what both say until one has closed.
func (l *Link) carry(near net.Conn) {
	defer l.forget(near)
	heard := l.hear()
	if !l.passable() {
		return
	}
	far, err := (&net.Dialer{}).DialContext(context.Background(), "tcp", l.to)
	if err != nil || !l.keep(far) {
		reset(near)
		return
	}
	defer l.forget(far)
	var back sync.WaitGroup
	back.Go(func() { l.pass(near, far, func([]byte) {}) })
	l.pass(far, near, func(sent []byte) { l.hearing(heard, sent) })
	back.Wait()
}

func (l *Link) pass(to, from net.Conn, hearing func(sent []byte)) {
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		if n > 0 {
			hearing(buffer[:n])
			if !l.passable() {
				break
			}
			if _, err := to.Write(buffer[:n]); err != nil {
				break
			}
		}
		if err != nil {
			if !errors.Is(err, io.EOF) && l.passable() {
				reset(to)
			}
			break
		}
	}
	_ = to.Close()
	_ = from.Close()
}

// passable waits while the link is silent, and tells whether it is up then.
func (l *Link) passable() bool {
	for {
		l.mu.Lock()
		state, change := l.state, l.change
		l.mu.Unlock()
		if state != LinkSilent {
			return state == LinkUp
		}
		<-change
	}
}

// reset closes a connection so that the other side is told at once, and what is under way is lost.
func reset(conn net.Conn) {
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = conn.Close()
}

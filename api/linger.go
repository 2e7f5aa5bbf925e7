package api

import (
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// How long and how much a refused request is read on before its connection is closed.
const (
	lingerTime  = time.Second
	lingerBytes = 8 << 20
)

// lingerListener gives its connections a lingering close, and knows those on which nothing has come yet. HTTP clients dial
// ahead and keep such connections in reserve; fasthttp takes them for requests under way and would wait for them at its
// shutdown until they time out.
type lingerListener struct {
	net.Listener

	mu      sync.Mutex
	closing bool
	silent  map[*lingerConn]struct{}
}

func newLingerListener(ln net.Listener) *lingerListener {
	return &lingerListener{Listener: ln, silent: map[*lingerConn]struct{}{}}
}

// Accept implements net.Listener.
func (l *lingerListener) Accept() (net.Conn, error) {
	raw, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	conn := &lingerConn{Conn: raw, listener: l}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closing {
		return nil, errors.Join(net.ErrClosed, raw.Close())
	}
	l.silent[conn] = struct{}{}
	return conn, nil
}

// closeSilent stops listening and closes the connections on which nothing has come.
func (l *lingerListener) closeSilent() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closing = true
	_ = l.Close() // fasthttp closes it once more and reports
	for conn := range l.silent {
		_ = conn.Conn.Close()
	}
	clear(l.silent)
}

// spoke forgets a connection that is silent no more.
func (l *lingerListener) spoke(conn *lingerConn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.silent, conn)
}

// lingerConn is a connection whose Close can wait for the peer. When a request is refused before all of it has been read,
// closing at once makes the kernel reset the connection, and the reset destroys the answer before a client that is still
// sending has seen it (RFC 9112, section 9.6).
type lingerConn struct {
	net.Conn
	listener *lingerListener
	heard    atomic.Bool
	refused  atomic.Bool
}

// Read implements net.Conn.
func (c *lingerConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 && !c.heard.Swap(true) {
		c.listener.spoke(c)
	}
	return n, err
}

// Close closes the connection; after a refusal it first ends the sending side and reads on for a bounded time.
func (c *lingerConn) Close() error {
	c.listener.spoke(c)
	half, ok := c.Conn.(interface{ CloseWrite() error })
	if !ok || !c.refused.Swap(false) {
		return c.Conn.Close()
	}
	err := half.CloseWrite()
	if err == nil {
		err = c.SetReadDeadline(time.Now().Add(lingerTime))
	}
	if err == nil {
		// How the reading ends does not matter: the peer has closed, or has had its time.
		_, _ = io.CopyN(io.Discard, c.Conn, lingerBytes)
	}
	return errors.Join(err, c.Conn.Close())
}

package api

import (
	"errors"
	"io"
	"net"
	"sync/atomic"
	"time"
)

// How long and how much a refused request is read on before its connection is closed.
const (
	lingerTime  = time.Second
	lingerBytes = 8 << 20
)

// lingerListener gives its connections a lingering close.
type lingerListener struct{ net.Listener }

// Accept implements net.Listener.
func (l lingerListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &lingerConn{Conn: conn}, nil
}

// lingerConn is a connection whose Close can wait for the peer. When a request is refused before all of it has been read,
// closing at once makes the kernel reset the connection, and the reset destroys the answer before a client that is still
// sending has seen it (RFC 9112, section 9.6).
type lingerConn struct {
	net.Conn
	refused atomic.Bool
}

// Close closes the connection; after a refusal it first ends the sending side and reads on for a bounded time.
func (c *lingerConn) Close() error {
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

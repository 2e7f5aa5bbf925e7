package esl

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"github.com/percipia/eslgo"
	"github.com/percipia/eslgo/command"
)

// connection is an authenticated event socket. Until it is handed to its reader it is used by one goroutine, request by request.
type connection struct {
	net.Conn
	frames *frameReader
}

// dial connects and authenticates within the configured time. Only auth/request makes a peer an event socket.
func (cfg *Config) dial(ctx context.Context) (*connection, error) {
	ctx, cancel := context.WithTimeout(ctx, cfg.ConnectTimeout)
	defer cancel()
	raw, err := cfg.Dial(ctx, "tcp", cfg.Addr)
	if err != nil {
		return nil, &ConnectError{Addr: cfg.Addr, Step: "dial", Err: err}
	}
	// Cancelling must end the handshake too, which waits in reads and writes.
	stop := context.AfterFunc(ctx, func() { _ = raw.SetDeadline(time.Unix(1, 0)) })
	c := &connection{Conn: raw, frames: newFrameReader(raw)}
	step, err := c.authenticate(cfg.Password)
	if !stop() && err == nil {
		step, err = "auth", context.Cause(ctx)
	}
	if err != nil {
		_ = raw.Close()
		return nil, &ConnectError{Addr: cfg.Addr, Step: step, Err: err}
	}
	return c, nil
}

func (c *connection) authenticate(password string) (step string, err error) {
	f, err := c.frames.read()
	switch {
	case err != nil && errors.Is(err, ErrFrame):
		return "greeting", fmt.Errorf("%w: %w", ErrNotFreeSWITCH, err)
	case err != nil:
		return "greeting", silence(err)
	case f.kind == typeRudeRejection:
		return "greeting", ErrRejected
	case f.kind != eslgo.TypeAuthRequest:
		return "greeting", fmt.Errorf("%w: it said %q", ErrNotFreeSWITCH, clip(f.header))
	}
	_, err = c.request(line("auth", command.Auth{Password: password}))
	if refused := new(CommandError); errors.As(err, &refused) {
		return "auth", ErrBadPassword
	}
	return "auth", err
}

// silence tells a peer that says nothing from one that is gone.
func silence(err error) error {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return fmt.Errorf("%w: %w", ErrSilent, err)
	}
	if errors.Is(err, io.EOF) {
		return fmt.Errorf("%w: %w", ErrDisconnected, err)
	}
	return err
}

// request sends a message and reads up to its reply, skipping everything else that comes.
func (c *connection) request(m message) (frame, error) {
	if _, err := io.WriteString(c, m.text); err != nil {
		return frame{}, fmt.Errorf("send %s: %w", m.label, silence(err))
	}
	for {
		f, err := c.frames.read()
		if err != nil {
			return frame{}, fmt.Errorf("reply to %s: %w", m.label, silence(err))
		}
		switch f.kind {
		case eslgo.TypeReply, eslgo.TypeAPIResponse:
			return f, f.refusal(m.label)
		case eslgo.TypeDisconnect, typeRudeRejection:
			return frame{}, fmt.Errorf("reply to %s: %w", m.label, ErrDisconnected)
		}
	}
}

// defaultDial makes a connection whose death the kernel notices.
func defaultDial() func(ctx context.Context, network, addr string) (net.Conn, error) {
	d := net.Dialer{
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 5 * time.Second, Interval: 5 * time.Second, Count: 3},
		Control:         limitUnacked(20 * time.Second),
	}
	return d.DialContext
}

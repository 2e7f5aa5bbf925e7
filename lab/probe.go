package lab

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/textproto"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// ErrDenied is the answer of an Event Socket that refuses the password or the address.
var ErrDenied = errors.New("the Event Socket refused")

// Frame is one message of the Event Socket: its headers and its body.
type Frame struct {
	Header textproto.MIMEHeader
	Body   string
}

// Event returns a header of an event in the plain format, decoded.
func (f Frame) Event(name string) string {
	for line := range strings.SplitSeq(f.Body, "\n") {
		if key, value, ok := strings.Cut(line, ": "); ok && strings.EqualFold(key, name) {
			decoded, err := url.PathUnescape(value)
			if err != nil {
				return value
			}
			return decoded
		}
	}
	return ""
}

// Probe is a minimal Event Socket client, independent of the client that the product uses, so that each can be tested with
// the other. It sends one command at a time and is not safe for concurrent use.
type Probe struct {
	conn   net.Conn
	reader *bufio.Reader
	events []Frame
}

// DialESL connects and authenticates. It returns ErrDenied when the switch refuses the password or the address.
func DialESL(ctx context.Context, addr, password string) (*Probe, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("dial the Event Socket: %w", err)
	}
	p := &Probe{conn: conn, reader: bufio.NewReader(conn)}
	if err := p.authenticate(ctx, password); err != nil {
		_ = conn.Close()
		return nil, err
	}
	return p, nil
}

func (p *Probe) authenticate(ctx context.Context, password string) error {
	greeting, err := p.read(ctx)
	if err != nil {
		return fmt.Errorf("greeting of the Event Socket: %w", err)
	}
	if kind := greeting.Header.Get("Content-Type"); kind != "auth/request" {
		return fmt.Errorf("%w: %s", ErrDenied, kind)
	}
	reply, err := p.Command(ctx, "auth "+password)
	if err != nil {
		return fmt.Errorf("log in to the Event Socket: %w", err)
	}
	if text := reply.Header.Get("Reply-Text"); !strings.HasPrefix(text, "+OK") {
		return fmt.Errorf("%w: %s", ErrDenied, text)
	}
	return nil
}

// Close closes the connection.
func (p *Probe) Close() error { return p.conn.Close() }

// Command sends one command and returns its reply; events that come in between are kept for Next.
func (p *Probe) Command(ctx context.Context, command string) (Frame, error) {
	_ = p.conn.SetWriteDeadline(deadline(ctx))
	if _, err := io.WriteString(p.conn, command+"\n\n"); err != nil {
		return Frame{}, fmt.Errorf("send to the Event Socket: %w", err)
	}
	for {
		frame, err := p.read(ctx)
		if err != nil {
			return Frame{}, err
		}
		switch frame.Header.Get("Content-Type") {
		case "command/reply", "api/response":
			return frame, nil
		case "text/event-plain":
			p.events = append(p.events, frame)
		}
	}
}

// API runs an api command and returns its answer, also when the answer is an error of the command.
func (p *Probe) API(ctx context.Context, line string) (string, error) {
	frame, err := p.Command(ctx, "api "+line)
	return strings.TrimSpace(frame.Body), err
}

// Execute runs an application on a channel with its arguments in the body, as the product does.
func (p *Probe) Execute(ctx context.Context, channel, app, args string) error {
	message := fmt.Sprintf("sendmsg %s\ncall-command: execute\nexecute-app-name: %s\nevent-lock: true", channel, app)
	if args != "" {
		message += fmt.Sprintf("\ncontent-type: text/plain\ncontent-length: %d\n\n%s", len(args), args)
	}
	frame, err := p.Command(ctx, message)
	if err != nil {
		return err
	}
	if text := frame.Header.Get("Reply-Text"); !strings.HasPrefix(text, "+OK") {
		return fmt.Errorf("execute %s: %s", app, text)
	}
	return nil
}

// Subscribe asks for events by name, in the plain format.
func (p *Probe) Subscribe(ctx context.Context, names ...string) error {
	frame, err := p.Command(ctx, "event plain "+strings.Join(names, " "))
	if err != nil {
		return err
	}
	if text := frame.Header.Get("Reply-Text"); !strings.HasPrefix(text, "+OK") {
		return fmt.Errorf("subscribe: %s", text)
	}
	return nil
}

// Next returns the next event, waiting until ctx ends.
func (p *Probe) Next(ctx context.Context) (Frame, error) {
	for len(p.events) == 0 {
		frame, err := p.read(ctx)
		if err != nil {
			return Frame{}, err
		}
		if frame.Header.Get("Content-Type") == "text/event-plain" {
			p.events = append(p.events, frame)
		}
	}
	first := p.events[0]
	p.events = p.events[1:]
	return first, nil
}

// Await returns the first event of a name, dropping the ones before it.
func (p *Probe) Await(ctx context.Context, name string) (Frame, error) {
	for {
		event, err := p.Next(ctx)
		if err != nil {
			return Frame{}, fmt.Errorf("wait for %s: %w", name, err)
		}
		if event.Event("Event-Name") == name {
			return event, nil
		}
	}
}

func (p *Probe) read(ctx context.Context) (Frame, error) {
	// A context that ends without a deadline interrupts the read as well.
	_ = p.conn.SetReadDeadline(deadline(ctx))
	stop := context.AfterFunc(ctx, func() { _ = p.conn.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()

	var header bytes.Buffer
	for {
		line, err := p.reader.ReadBytes('\n')
		if err != nil {
			return Frame{}, fmt.Errorf("read from the Event Socket: %w", err)
		}
		if len(bytes.TrimSpace(line)) == 0 {
			if header.Len() == 0 {
				continue
			}
			break
		}
		header.Write(line)
	}
	frame := Frame{Header: textproto.MIMEHeader{}}
	for line := range strings.SplitSeq(header.String(), "\n") {
		if key, value, ok := strings.Cut(line, ":"); ok {
			frame.Header.Add(key, strings.TrimSpace(value))
		}
	}
	if length := frame.Header.Get("Content-Length"); length != "" {
		n, err := strconv.ParseUint(length, 10, 24)
		if err != nil {
			return Frame{}, fmt.Errorf("length of a frame: %w", err)
		}
		body := make([]byte, n)
		if _, err := io.ReadFull(p.reader, body); err != nil {
			return Frame{}, fmt.Errorf("read from the Event Socket: %w", err)
		}
		frame.Body = string(body)
	}
	return frame, nil
}

// deadline bounds every exchange at 30 s where the context has no deadline of its own.
func deadline(ctx context.Context) time.Time {
	if at, ok := ctx.Deadline(); ok {
		return at
	}
	return time.Now().Add(30 * time.Second)
}

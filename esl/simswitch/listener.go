package simswitch

import (
	"bufio"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
)

const (
	// maxQueuedEvents and maxLostEvents are MAX_QUEUE_LEN and MAX_MISSED of mod_event_socket.c: a client that does not
	// read is dropped after losing that many events.
	maxQueuedEvents = 100000
	maxLostEvents   = 500
	// maxKeptBuffer is the size up to which a written buffer is used again.
	maxKeptBuffer = 8 << 20
	// maxFrame is the 10 MiB that read_packet allows a command's head.
	maxFrame = 10 << 20
)

const disconnectNotice = "Content-Type: text/disconnect-notice\nContent-Length: 67\n\n" +
	"Disconnected, goodbye.\nSee you at ClueCon! http://www.cluecon.com/\n"

// message is one command as it came over the wire: its first line, its headers and its body.
type message struct {
	command string
	headers []header
	body    string
}

func (m *message) get(name string) string {
	value, _ := lookup(m.headers, name)
	return value
}

// listener is one client of the event socket. One goroutine reads its commands, one writes; replies and events share one
// buffer, so they leave in the order in which they were made.
type listener struct {
	sw           *Switch
	conn         net.Conn
	subscription atomic.Pointer[subscription]

	mu     sync.Mutex
	out    []byte
	events int
	lost   int
	closed bool
	wake   chan struct{}
}

func newListener(s *Switch, conn net.Conn) *listener {
	l := &listener{sw: s, conn: conn, wake: make(chan struct{}, 1)}
	l.subscription.Store(&subscription{custom: map[string]bool{}})
	return l
}

func (l *listener) signal() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

func (l *listener) send(parts ...string) {
	l.mu.Lock()
	if !l.closed {
		for _, part := range parts {
			l.out = append(l.out, part...)
		}
	}
	l.mu.Unlock()
	l.signal()
}

func (l *listener) sendEvent(f format, body []byte) {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return
	}
	if l.events >= maxQueuedEvents {
		l.lost++
		if kill := l.lost > maxLostEvents; kill {
			l.closed = true
			l.mu.Unlock()
			l.sw.log.Error("event socket client does not read, dropping it", "lost_events", maxLostEvents)
			_ = l.conn.Close()
			return
		}
		l.mu.Unlock()
		return
	}
	l.lost = 0
	l.events++
	l.out = append(l.out, "Content-Length: "...)
	l.out = strconv.AppendInt(l.out, int64(len(body)), 10)
	l.out = append(l.out, "\nContent-Type: text/event-"...)
	l.out = append(l.out, f.String()...)
	l.out = append(l.out, "\n\n"...)
	l.out = append(l.out, body...)
	l.mu.Unlock()
	l.signal()
}

func (l *listener) reply(text string) {
	l.send("Content-Type: command/reply\nReply-Text: ", text, "\n\n")
}

// finish lets the writer send what is queued and close the connection.
func (l *listener) finish() {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	l.signal()
}

func (l *listener) write() {
	defer func() { _ = l.conn.Close() }()
	var spare []byte
	for range l.wake {
		l.mu.Lock()
		buf, closed := l.out, l.closed
		l.out, l.events = spare[:0], 0
		l.mu.Unlock()
		if len(buf) > 0 {
			if _, err := l.conn.Write(buf); err != nil {
				l.finish()
				return
			}
		}
		if closed {
			return
		}
		if cap(buf) > maxKeptBuffer {
			buf = nil
		}
		spare = buf
	}
}

// serve speaks with one client until it leaves.
func (l *listener) serve() {
	var writer sync.WaitGroup
	writer.Go(l.write)
	defer func() {
		l.sw.bus.remove(l)
		l.finish()
		writer.Wait()
	}()
	reader := bufio.NewReaderSize(l.conn, 16<<10)
	l.send("Content-Type: auth/request\n\n")
	if !l.authenticate(reader) {
		l.send(disconnectNotice)
		return
	}
	l.sw.bus.add(l)
	for {
		m, err := readMessage(reader)
		if err != nil {
			if !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed) {
				l.sw.log.Debug("event socket client left", "error", err)
			}
			return
		}
		if !l.sw.dispatch(l, m) {
			l.send(disconnectNotice)
			return
		}
	}
}

// authenticate handles the commands before the first successful `auth`. A wrong password ends the connection, any other
// command is answered "command not found", as in parse_command.
func (l *listener) authenticate(reader *bufio.Reader) bool {
	for {
		m, err := readMessage(reader)
		if err != nil {
			return false
		}
		switch {
		case hasPrefixFold(m.command, "auth "):
			if subtle.ConstantTimeCompare([]byte(m.command[5:]), []byte(l.sw.cfg.Password)) == 1 {
				l.reply("+OK accepted")
				return true
			}
			l.reply("-ERR invalid")
			return false
		case hasPrefixFold(m.command, "exit"), strings.HasPrefix(m.command, "..."):
			l.reply("+OK bye")
			return false
		default:
			l.reply("-ERR command not found")
		}
	}
}

func hasPrefixFold(s, prefix string) bool {
	return len(s) >= len(prefix) && strings.EqualFold(s[:len(prefix)], prefix)
}

// readMessage is read_packet of mod_event_socket.c: line breaks before a command are skipped, two line feeds with nothing
// but carriage returns between them end it, lines end at any run of CR and LF, and the body has the length its header says.
func readMessage(r *bufio.Reader) (*message, error) {
	var head []byte
	feeds := 0
	for feeds < 2 {
		ch, err := r.ReadByte()
		if err != nil {
			return nil, err
		}
		if len(head) == 0 && (ch == '\r' || ch == '\n') {
			continue
		}
		if len(head) >= maxFrame {
			return nil, fmt.Errorf("command is longer than %d bytes", maxFrame)
		}
		head = append(head, ch)
		if ch == '\n' {
			feeds++
		} else if ch != '\r' {
			feeds = 0
		}
	}
	m := parseHead(string(head))
	if n := leadingInt(m.get("content-length")); n > 0 {
		if n > maxFrame {
			return nil, fmt.Errorf("command body of %d bytes is longer than %d", n, maxFrame)
		}
		body := make([]byte, n)
		if _, err := io.ReadFull(r, body); err != nil {
			return nil, err
		}
		m.body = string(body)
	}
	return m, nil
}

func parseHead(head string) *message {
	m := &message{}
	first := true
	for line := range strings.FieldsFuncSeq(head, func(r rune) bool { return r == '\r' || r == '\n' }) {
		if first {
			m.command, first = line, false
			continue
		}
		name, value, found := strings.Cut(line, ":")
		if found {
			m.headers = append(m.headers, header{name, strings.TrimLeft(value, " ")})
		}
	}
	return m
}

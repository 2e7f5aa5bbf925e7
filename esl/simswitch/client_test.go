package simswitch_test

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tandem/esl/simswitch"
)

const password = "s3cret-esl"

// patience bounds every wait of a test; it is never waited for when things work.
const patience = 45 * time.Second

// frame is one frame that a switch sent: its head, its body, and what an event frame means.
type frame struct {
	head  map[string]string
	body  string
	event map[string]string
}

func (f frame) kind() string { return f.head["Content-Type"] }

// readFrame reads one frame as any Event Socket client does.
func readFrame(r *bufio.Reader) (frame, error) {
	f := frame{head: map[string]string{}}
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			return f, err
		}
		line = strings.TrimSuffix(line, "\n")
		if line == "" {
			if len(f.head) == 0 {
				continue
			}
			break
		}
		name, value, _ := strings.Cut(line, ": ")
		f.head[name] = value
	}
	if n, err := strconv.Atoi(f.head["Content-Length"]); err == nil {
		body := make([]byte, n)
		if _, err := io.ReadFull(r, body); err != nil {
			return f, err
		}
		f.body = string(body)
	}
	var err error
	f.event, err = parseEvent(f.kind(), f.body)
	return f, err
}

func parseEvent(kind, body string) (map[string]string, error) {
	switch kind {
	case "text/event-json":
		var values map[string]any
		if err := json.Unmarshal([]byte(body), &values); err != nil {
			return nil, err
		}
		e := make(map[string]string, len(values))
		for name, value := range values {
			e[name] = fmt.Sprint(value)
		}
		return e, nil
	case "text/event-plain":
		e := map[string]string{}
		head, rest, _ := strings.Cut(body, "\n\n")
		for line := range strings.SplitSeq(head, "\n") {
			name, value, found := strings.Cut(line, ": ")
			if !found {
				continue
			}
			decoded, err := url.PathUnescape(value)
			if err != nil {
				return nil, err
			}
			e[name] = decoded
		}
		if rest != "" {
			e["_body"] = rest
		}
		return e, nil
	}
	return nil, nil
}

// client is a raw Event Socket client that keeps everything it hears.
type client struct {
	t       testing.TB
	conn    net.Conn
	replies chan frame
	closed  chan struct{}

	mu      sync.Mutex
	events  []map[string]string
	changed chan struct{}
}

func dial(t testing.TB, addr string) *client {
	t.Helper()
	conn, err := (&net.Dialer{Timeout: patience}).DialContext(t.Context(), "tcp", addr)
	require.NoError(t, err)
	c := &client{t: t, conn: conn, replies: make(chan frame, 100000), closed: make(chan struct{}), changed: make(chan struct{})}
	go c.read()
	t.Cleanup(func() {
		_ = conn.Close()
		<-c.closed
	})
	return c
}

// login connects and authenticates.
func login(t testing.TB, addr, password string) *client {
	t.Helper()
	c := dial(t, addr)
	require.Equal(t, "auth/request", c.reply().kind())
	require.Equal(t, "+OK accepted", c.command("auth "+password))
	return c
}

func (c *client) read() {
	defer close(c.closed)
	r := bufio.NewReaderSize(c.conn, 1<<20)
	for {
		f, err := readFrame(r)
		if err != nil {
			if !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed) {
				c.t.Log("client:", err)
			}
			return
		}
		if f.event == nil {
			c.replies <- f
			continue
		}
		c.mu.Lock()
		c.events = append(c.events, f.event)
		close(c.changed)
		c.changed = make(chan struct{})
		c.mu.Unlock()
	}
}

func (c *client) send(raw string) {
	c.t.Helper()
	_, err := io.WriteString(c.conn, raw)
	require.NoError(c.t, err)
}

// reply is the next frame that is no event.
func (c *client) reply() frame {
	c.t.Helper()
	select {
	case f := <-c.replies:
		return f
	case <-time.After(patience):
		require.FailNow(c.t, "no reply")
		return frame{}
	}
}

// command sends a command and returns its Reply-Text.
func (c *client) command(line string) string {
	c.t.Helper()
	c.send(line + "\n\n")
	f := c.reply()
	require.Equal(c.t, "command/reply", f.kind(), "%s answered %q", line, f.body)
	return f.head["Reply-Text"]
}

// api sends an API command and returns its output.
func (c *client) api(line string) string {
	c.t.Helper()
	c.send("api " + line + "\n\n")
	f := c.reply()
	require.Equal(c.t, "api/response", f.kind())
	return f.body
}

// execute sends an application the way the controller does: locked, with its own UUID, the argument in the body.
func (c *client) execute(channel, id, app, arg string) {
	c.t.Helper()
	raw := "sendmsg " + channel + "\ncall-command: execute\nexecute-app-name: " + app + "\nevent-uuid: " + id + "\nevent-lock: true\n"
	if arg != "" {
		raw += "content-type: text/plain\ncontent-length: " + strconv.Itoa(len(arg)) + "\n\n" + arg
	} else {
		raw += "\n"
	}
	c.send(raw)
	require.Equal(c.t, "+OK", c.reply().head["Reply-Text"])
}

// match says which event is meant.
type match func(map[string]string) bool

func named(name, channel string) match {
	return func(e map[string]string) bool {
		return e["Event-Name"] == name && (channel == "" || e["Unique-ID"] == channel)
	}
}

func completed(id string) match {
	return func(e map[string]string) bool {
		return e["Event-Name"] == "CHANNEL_EXECUTE_COMPLETE" && e["Application-UUID"] == id
	}
}

// await waits for an event.
func (c *client) await(what string, m match) map[string]string {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for {
		c.mu.Lock()
		changed := c.changed
		for _, e := range c.events {
			if m(e) {
				c.mu.Unlock()
				return e
			}
		}
		seen := len(c.events)
		c.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			names := c.names("")
			require.FailNow(c.t, "no such event", "%s, among %d: … %v", what, seen, names[max(0, len(names)-30):])
		}
	}
}

// names are the names of the events of a channel, in their order.
func (c *client) names(channel string) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var names []string
	for _, e := range c.events {
		if channel == "" || e["Unique-ID"] == channel {
			names = append(names, e["Event-Name"])
		}
	}
	return names
}

// eventsLocked returns the events; held says that the caller holds the client's lock.
func (c *client) eventsLocked(held bool) []map[string]string {
	if !held {
		c.mu.Lock()
		defer c.mu.Unlock()
	}
	return c.events
}

func (c *client) of(channel string) []map[string]string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var events []map[string]string
	for _, e := range c.events {
		if e["Unique-ID"] == channel {
			events = append(events, e)
		}
	}
	return events
}

// layOut writes files below a new configuration directory.
func layOut(t testing.TB, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		write(t, dir, name, content)
	}
	return dir
}

func write(t testing.TB, dir, name, content string) {
	t.Helper()
	path := filepath.Join(dir, filepath.FromSlash(name))
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o750))
	require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
}

const parkEverything = `<include>
<context name="public">
  <extension name="everything">
    <condition field="destination_number" expression="^.+$">
      <action application="park"/>
    </condition>
  </extension>
</context>
</include>
`

func gatewayFile(name, password, register string) string {
	return `<include>
  <gateway name="` + name + `">
    <param name="username" value="acme"/>
    <param name="password" value="` + password + `"/>
    <param name="realm" value="carrier.test"/>
    <param name="proxy" value="127.0.0.1:5090"/>
    <param name="register" value="` + register + `"/>
    <param name="retry-seconds" value="5"/>
  </gateway>
</include>
`
}

// captureFiles is the configuration of the captures: every incoming call is parked, one gateway is good, one is refused, one does not
// register.
func captureFiles() map[string]string {
	return map[string]string{
		"tandem/dialplan/public.xml":     parkEverything,
		"tandem/gateways/acme-out.xml":   gatewayFile("acme-out", "s3cret", "true"),
		"tandem/gateways/acme-bad.xml":   gatewayFile("acme-bad", "wrong", "true"),
		"tandem/gateways/acme-noreg.xml": gatewayFile("acme-noreg", "s3cret", "false"),
	}
}

// start runs a switch for one test.
func start(t testing.TB, cfg simswitch.Config) *simswitch.Switch {
	t.Helper()
	cfg.Password = password
	s, err := simswitch.New(cfg)
	require.NoError(t, err)
	require.NoError(t, s.Start())
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

// awaitGateway waits until the switch shows a gateway in a state.
func awaitGateway(t testing.TB, c *client, name, state string) {
	t.Helper()
	require.Eventually(t, func() bool {
		return strings.Contains(c.api("sofia xmlstatus gateway "+name), "<state>"+state+"</state>")
	}, patience, 5*time.Millisecond)
}

// prompt writes a WAV file of a quarter of a second.
func prompt(t testing.TB, path string) {
	t.Helper()
	const data = 8000 / 4 * 2
	var b []byte
	b = append(b, "RIFF"...)
	b = binary.LittleEndian.AppendUint32(b, 36+data)
	b = append(b, "WAVEfmt "...)
	b = binary.LittleEndian.AppendUint32(b, 16)
	b = binary.LittleEndian.AppendUint16(b, 1)
	b = binary.LittleEndian.AppendUint16(b, 1)
	b = binary.LittleEndian.AppendUint32(b, 8000)
	b = binary.LittleEndian.AppendUint32(b, 16000)
	b = binary.LittleEndian.AppendUint16(b, 2)
	b = binary.LittleEndian.AppendUint16(b, 16)
	b = append(b, "data"...)
	b = binary.LittleEndian.AppendUint32(b, data)
	b = append(b, make([]byte, data)...)
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o750))
	require.NoError(t, os.WriteFile(path, b, 0o600))
}

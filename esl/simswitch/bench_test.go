//go:build unix

package simswitch_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tandem/esl/simswitch"
)

// loadClient speaks with the switch as the controller does, two connections, and reads no more of an event than it must.
type loadClient struct {
	events, commands net.Conn
	sending          sync.Mutex
	out              *bufio.Writer
	running          sync.WaitGroup
}

func newLoadClient(b *testing.B, addr string, on func(name, channel, app string)) *loadClient {
	b.Helper()
	c := &loadClient{}
	open := func() (net.Conn, *bufio.Reader) {
		conn, err := (&net.Dialer{}).DialContext(b.Context(), "tcp", addr)
		require.NoError(b, err)
		r := bufio.NewReaderSize(conn, 1<<20)
		_, err = readFrame(r)
		require.NoError(b, err)
		_, err = io.WriteString(conn, "auth "+password+"\n\n")
		require.NoError(b, err)
		_, err = readFrame(r)
		require.NoError(b, err)
		return conn, r
	}
	var eventReader, replyReader *bufio.Reader
	c.events, eventReader = open()
	c.commands, replyReader = open()
	for _, line := range []string{"filter Application-UUID /^tandem-/", "filter Event-Name CHANNEL_PARK", "filter Event-Name CHANNEL_ANSWER",
		"filter Event-Name CHANNEL_HANGUP_COMPLETE", "filter Event-Name BACKGROUND_JOB",
		"event json CHANNEL_PARK CHANNEL_ANSWER CHANNEL_EXECUTE_COMPLETE CHANNEL_HANGUP_COMPLETE BACKGROUND_JOB"} {
		_, err := io.WriteString(c.events, line+"\n\n")
		require.NoError(b, err)
		_, err = readFrame(eventReader)
		require.NoError(b, err)
	}
	c.out = bufio.NewWriterSize(c.commands, 1<<20)
	c.running.Go(func() { readFast(eventReader, on) })
	c.running.Go(func() { _, _ = io.Copy(io.Discard, replyReader) })
	b.Cleanup(func() {
		_ = c.events.Close()
		_ = c.commands.Close()
		c.running.Wait()
	})
	return c
}

func (c *loadClient) send(raw string) {
	c.sending.Lock()
	defer c.sending.Unlock()
	_, _ = c.out.WriteString(raw)
	_ = c.out.Flush()
}

func (c *loadClient) execute(channel, id, app, arg string) {
	c.send("sendmsg " + channel + "\ncall-command: execute\nexecute-app-name: " + app + "\nevent-uuid: " + id +
		"\nevent-lock: true\ncontent-type: text/plain\ncontent-length: " + strconv.Itoa(len(arg)) + "\n\n" + arg)
}

// readFast finds three headers in an event without decoding the rest.
func readFast(r *bufio.Reader, on func(name, channel, app string)) {
	field := func(body []byte, key string) string {
		i := bytes.Index(body, []byte(key))
		if i < 0 {
			return ""
		}
		rest := body[i+len(key):]
		return string(rest[:bytes.IndexByte(rest, '"')])
	}
	var body []byte
	for {
		length := 0
		for {
			line, err := r.ReadSlice('\n')
			if err != nil {
				return
			}
			if len(line) == 1 {
				break
			}
			if value, ok := bytes.CutPrefix(line, []byte("Content-Length: ")); ok {
				length, _ = strconv.Atoi(string(bytes.TrimSpace(value)))
			}
		}
		if cap(body) < length {
			body = make([]byte, length*2)
		}
		body = body[:length]
		if _, err := io.ReadFull(r, body); err != nil {
			return
		}
		on(field(body, `"Event-Name":"`), field(body, `"Unique-ID":"`), field(body, `"Application-UUID":"`))
	}
}

// BenchmarkInbound is calls per second of: a call comes in and is parked, the controller answers it, then hangs it up.
func BenchmarkInbound(b *testing.B) {
	s := start(b, simswitch.Config{ConfDir: layOut(b, captureFiles())})
	done := make(chan struct{}, 1<<16)
	var c *loadClient
	ready := make(chan struct{})
	c = newLoadClient(b, s.Addr(), func(name, channel, app string) {
		<-ready
		switch name {
		case "CHANNEL_PARK":
			c.execute(channel, "tandem-answer", "answer", "")
		case "CHANNEL_EXECUTE_COMPLETE":
			if app == "tandem-answer" {
				c.execute(channel, "tandem-hangup", "hangup", "NORMAL_CLEARING")
			}
		case "CHANNEL_HANGUP_COMPLETE":
			done <- struct{}{}
		}
	})
	close(ready)
	calls(b, done, func(int) {
		_, err := s.CallIn(simswitch.IncomingCall{From: "+15559876", To: "3001"})
		require.NoError(b, err)
	})
}

// BenchmarkOutbound is calls per second of: originate, the far end rings and answers, park, the controller hangs it up.
func BenchmarkOutbound(b *testing.B) {
	s := start(b, simswitch.Config{ConfDir: layOut(b, captureFiles())})
	watcher := login(b, s.Addr(), password)
	awaitGateway(b, watcher, "acme-out", "REGED")
	done := make(chan struct{}, 1<<16)
	var c *loadClient
	ready := make(chan struct{})
	c = newLoadClient(b, s.Addr(), func(name, channel, _ string) {
		<-ready
		switch name {
		case "CHANNEL_PARK":
			c.send("api uuid_kill " + channel + "\n\n")
		case "CHANNEL_HANGUP_COMPLETE":
			done <- struct{}{}
		}
	})
	close(ready)
	calls(b, done, func(i int) {
		c.send(fmt.Sprintf("bgapi originate {origination_uuid=%08x-0000-4000-8000-%012x,origination_caller_id_number=+15550100,"+
			"originate_timeout=10,tandem_call_id=call_%d}sofia/gateway/acme-out/+15550800 &park()\n\n", i, b.N, i))
	})
}

// calls makes b.N calls with at most two thousand alive at a time, and reports calls per second.
func calls(b *testing.B, done <-chan struct{}, place func(i int)) {
	b.Helper()
	const alive = 2000
	b.ReportAllocs()
	b.ResetTimer()
	begun, busy := time.Now(), processTime(b)
	open := 0
	for i := range b.N {
		if open == alive {
			<-done
			open--
		}
		place(i)
		open++
	}
	for ; open > 0; open-- {
		<-done
	}
	b.ReportMetric(float64(b.N)/time.Since(begun).Seconds(), "calls/s")
	b.ReportMetric(float64((processTime(b)-busy).Microseconds())/float64(b.N), "cpu-µs/call")
}

// processTime is the processor time that switch and client have used together: what a call costs whatever else the machine does.
func processTime(b *testing.B) time.Duration {
	b.Helper()
	var used syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &used))
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// BenchmarkDump is the round trip of uuid_dump: a channel with all its variables.
func BenchmarkDump(b *testing.B) {
	s := start(b, simswitch.Config{ConfDir: layOut(b, captureFiles())})
	c := login(b, s.Addr(), password)
	uuid, err := s.CallIn(simswitch.IncomingCall{From: "+15559876", To: "3001"})
	require.NoError(b, err)
	var e map[string]string
	require.NoError(b, json.Unmarshal([]byte(c.api("uuid_dump "+uuid+" json")), &e))
	b.ReportMetric(float64(len(e)), "headers")
	for b.Loop() {
		c.api("uuid_dump " + uuid + " json")
	}
}

package esl

import (
	"bufio"
	"io"
	"net"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/percipia/eslgo"
	"github.com/stretchr/testify/require"
)

// capturedEvents is every event frame of the captures in one format, as one stream.
func capturedEvents(b *testing.B, format string) (stream string, count int) {
	b.Helper()
	var s strings.Builder
	for _, path := range captureFiles(b, format) {
		for _, f := range readCapture(b, path) {
			if f.From == "switch" && strings.Contains(f.Raw[:min(len(f.Raw), 80)], "text/event-"+format) {
				s.WriteString(f.Raw)
				count++
			}
		}
	}
	return s.String(), count
}

// wanted are the headers that a controller reads of an event.
var wanted = []string{
	"Event-Name", "Unique-ID", "Event-Sequence", "Event-Date-Timestamp", "Application", "Application-UUID", "Hangup-Cause", "Answer-State",
	"Caller-Destination-Number", "Caller-Caller-ID-Number", "Caller-Network-Addr", "variable_sip_term_status", "variable_billusec",
}

// serveStream authenticates one client on a loopback port and sends it the stream n times when told to start.
func serveStream(b *testing.B, stream string, n int, start <-chan struct{}) (addr string) {
	b.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(b, err)
	served := make(chan struct{})
	go func() {
		defer close(served)
		c, err := ln.Accept()
		if err != nil {
			return
		}
		defer func() { _ = c.Close() }()
		_, _ = io.WriteString(c, "Content-Type: auth/request\n\n")
		r := bufio.NewReader(c)
		if _, err := r.ReadString('\n'); err != nil {
			return
		}
		_, _ = io.WriteString(c, "Content-Type: command/reply\nReply-Text: +OK accepted\n\n")
		<-start
		for range n {
			if _, err := io.WriteString(c, stream); err != nil {
				return
			}
		}
		_, _ = io.Copy(io.Discard, r)
	}()
	b.Cleanup(func() {
		_ = ln.Close()
		<-served
	})
	return ln.Addr().String()
}

// measure runs read between the start signal and its return, and reports what one event costs.
func measure(b *testing.B, events int, start chan<- struct{}, read func()) {
	b.Helper()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	b.ResetTimer()
	began := time.Now()
	close(start)
	read()
	elapsed := time.Since(began)
	b.StopTimer()
	runtime.ReadMemStats(&after)
	b.ReportMetric(float64(events)/elapsed.Seconds(), "events/s")
	b.ReportMetric(float64(after.Mallocs-before.Mallocs)/float64(events), "allocs/event")
	b.ReportMetric(float64(after.TotalAlloc-before.TotalAlloc)/float64(events), "B/event")
}

// BenchmarkRead compares reading the same scenes from a socket: ours in JSON, eslgo in the plain format, because it does not read JSON. Both read
// the same headers of each event.
func BenchmarkRead(b *testing.B) {
	b.Run("esl", func(b *testing.B) {
		stream, count := capturedEvents(b, "json")
		start := make(chan struct{})
		cfg := Config{Addr: serveStream(b, stream, b.N, start), Password: "x", Handler: newRecorder()}
		require.NoError(b, cfg.setDefaults())
		c, err := cfg.dial(b.Context())
		require.NoError(b, err)
		h := &headerReader{want: int64(count * b.N), done: make(chan struct{})}
		d := newDispatcher(h, cfg.Workers, count*b.N+1, 1<<40)
		d.release()
		measure(b, count*b.N, start, func() {
			for range count * b.N {
				f, err := c.frames.read()
				require.NoError(b, err)
				e, err := ParseEvent(f.body)
				require.NoError(b, err)
				require.NoError(b, d.push(e))
			}
			<-h.done
		})
		require.NoError(b, c.Close())
		d.close(false)
	})
	b.Run("eslgo", func(b *testing.B) {
		stream, count := capturedEvents(b, "plain")
		start := make(chan struct{})
		opts := eslgo.DefaultInboundOptions
		opts.Password, opts.Logger = "x", eslgo.NilLogger{}
		conn, err := opts.Dial(serveStream(b, stream, b.N, start))
		require.NoError(b, err)
		h := &headerReader{want: int64(count * b.N), done: make(chan struct{})}
		conn.RegisterEventListener(eslgo.EventListenAll, func(e *eslgo.Event) {
			for _, header := range wanted {
				_ = e.GetHeader(header)
			}
			h.count()
		})
		measure(b, count*b.N, start, func() { <-h.done })
		conn.Close()
	})
}

// headerReader is a handler that reads headers and says when it has seen all events.
type headerReader struct {
	seen atomic.Int64
	want int64
	done chan struct{}
}

func (h *headerReader) HandleUp(Snapshot) {}
func (h *headerReader) HandleDown(error)  {}

func (h *headerReader) HandleEvent(e *Event) {
	for _, header := range wanted {
		_ = e.Get(header)
	}
	h.count()
}

func (h *headerReader) count() {
	if h.seen.Add(1) == h.want {
		close(h.done)
	}
}

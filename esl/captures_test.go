package esl

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/percipia/eslgo"
	"github.com/stretchr/testify/require"
)

// capturedFrame is one line of a capture.
type capturedFrame struct {
	T    float64 `json:"t"`
	From string  `json:"from"`
	Raw  string  `json:"raw"`
}

// captureFiles lists the scenes recorded with one event format.
func captureFiles(t testing.TB, format string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("testdata", "captures", format, "*.jsonl.gz"))
	require.NoError(t, err)
	require.Len(t, files, 30)
	return files
}

func readCapture(t testing.TB, path string) []capturedFrame {
	t.Helper()
	raw, err := os.ReadFile(path)
	require.NoError(t, err)
	z, err := gzip.NewReader(bytes.NewReader(raw))
	require.NoError(t, err)
	var list []capturedFrame
	for d := json.NewDecoder(z); ; {
		var f capturedFrame
		err := d.Decode(&f)
		if errors.Is(err, io.EOF) {
			return list
		}
		require.NoError(t, err)
		list = append(list, f)
	}
}

func captureName(path string) string { return strings.TrimSuffix(filepath.Base(path), ".jsonl.gz") }

// TestCapturesAreReadWhole reads what a real switch said, frame by frame, and each event by two parsers.
func TestCapturesAreReadWhole(t *testing.T) {
	t.Parallel()
	for _, format := range []string{"json", "plain"} {
		for _, path := range captureFiles(t, format) {
			t.Run(format+"/"+captureName(path), func(t *testing.T) {
				t.Parallel()
				var stream strings.Builder
				var want []string
				for _, f := range readCapture(t, path) {
					if f.From == "switch" {
						stream.WriteString(f.Raw)
						want = append(want, f.Raw)
					}
				}
				got, err := frames(t, strings.NewReader(stream.String()))
				require.ErrorIs(t, err, io.EOF)
				require.Len(t, got, len(want), "as many frames as the switch sent")
				for i, f := range got {
					require.Equal(t, want[i], f.header+"\n\n"+f.body, "nothing lost, nothing added")
					checkCapturedFrame(t, f)
				}
			})
		}
	}
}

func checkCapturedFrame(t *testing.T, f frame) {
	t.Helper()
	switch f.kind {
	case eslgo.TypeEventJSON:
		e, err := ParseEvent(f.body)
		require.NoError(t, err)
		reference := decodeEvent(t, f.body)
		for header, value := range reference {
			require.Equal(t, value, e.Get(header), header)
		}
		e.Headers(func(header, _ string) bool { // some come twice, with the same value
			require.Contains(t, reference, header)
			return true
		})
		require.NotZero(t, e.Sequence())
		require.False(t, e.Time().IsZero())
		if strings.HasPrefix(e.Name(), "CHANNEL_") || e.Name() == "DTMF" {
			require.NotEmpty(t, e.ChannelID())
		}
	case eslgo.TypeEventPlain:
		require.NotEmpty(t, headerValue(f.body, "Event-Name"))
		require.NotEmpty(t, headerValue(f.body, "Event-Sequence"))
	case eslgo.TypeReply:
		require.NotEmpty(t, f.replyText())
	case eslgo.TypeAPIResponse, eslgo.TypeAuthRequest, eslgo.TypeDisconnect:
	default:
		require.Failf(t, "unknown type", "%q", f.kind)
	}
}

// decodeEvent is encoding/json's reading of an event, with lists in FreeSWITCH's notation.
func decodeEvent(t *testing.T, doc string) map[string]string {
	t.Helper()
	var values map[string]any
	require.NoError(t, json.Unmarshal([]byte(doc), &values))
	headers := map[string]string{}
	for header, value := range values {
		switch v := value.(type) {
		case string:
			headers[header] = v
		case []any:
			var list []string
			for _, element := range v {
				list = append(list, element.(string))
			}
			headers[header] = "ARRAY::" + strings.Join(list, "|:")
		default:
			require.Failf(t, "unknown kind of value", "%s: %v", header, value)
		}
	}
	return headers
}

// TestCapturesReplayedThroughANode sends each scene's events through a node and compares what the handler got with what the switch said: all of
// it, each channel's in its order.
func TestCapturesReplayedThroughANode(t *testing.T) {
	t.Parallel()
	for _, path := range captureFiles(t, "json") {
		t.Run(captureName(path), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				want := map[string][]string{}
				var frames []string
				core, notice := "", false
				for _, f := range readCapture(t, path) {
					head, body, _ := strings.Cut(f.Raw, "\n\n")
					notice = notice || strings.Contains(head, eslgo.TypeDisconnect)
					if f.From != "switch" || !strings.Contains(head, eslgo.TypeEventJSON) {
						continue
					}
					e := decodeEvent(t, body)
					core = e["Core-UUID"]
					want[e["Unique-ID"]] = append(want[e["Unique-ID"]], e["Event-Name"]+" "+e["Event-Sequence"])
					frames = append(frames, f.Raw)
				}
				f, h := newFakeSwitch(), newRecorder()
				if core != "" {
					f.core = func() string { return core }
				}
				startNode(t, f, h, nil)
				<-h.up
				c := <-f.eventCh
				for _, raw := range frames {
					c.send(raw)
				}
				synctest.Wait()
				if notice {
					c.send("Content-Type: text/disconnect-notice\nContent-Length: 67\n\nDisconnected, goodbye.\nSee you at ClueCon! http://www.cluecon.com/\n")
					require.ErrorIs(t, <-h.down, ErrDisconnected)
				}
				got := map[string][]string{}
				h.mu.Lock()
				defer h.mu.Unlock()
				for _, e := range h.events {
					got[e.ChannelID()] = append(got[e.ChannelID()], fmt.Sprint(e.Name(), " ", e.Sequence()))
				}
				require.Equal(t, want, got)
			})
		})
	}
}

// TestCapturedReplies reads the tables that a real switch gave.
func TestCapturedReplies(t *testing.T) {
	t.Parallel()
	replies := map[string][]string{}
	for _, path := range captureFiles(t, "json") {
		var asked []string
		for _, f := range readCapture(t, path) {
			if f.From == "client" {
				if !strings.HasPrefix(f.Raw, "auth") && !strings.HasPrefix(f.Raw, "event") {
					asked = append(asked, strings.TrimSpace(f.Raw))
				}
				continue
			}
			head, body, _ := strings.Cut(f.Raw, "\n\n")
			if strings.Contains(head, eslgo.TypeAPIResponse) && len(asked) > 0 {
				for !strings.HasPrefix(asked[0], "api ") {
					asked = asked[1:]
				}
				replies[asked[0]] = append(replies[asked[0]], body)
				asked = asked[1:]
			}
		}
	}
	var channels []Channel
	for _, doc := range replies["api show channels as json"] {
		list, err := parseChannels(doc)
		require.NoError(t, err)
		channels = append(channels, list...)
	}
	require.NotEmpty(t, channels)
	require.Equal(t, "3001", channels[0].Destination)
	require.Equal(t, "127.0.0.1", channels[0].Address)
	require.Equal(t, "playback", channels[0].Application)
	require.Equal(t, 2026, channels[0].Created.Year())

	gateways, err := parseGateways(replies["api sofia xmlstatus gateway"][0])
	require.NoError(t, err)
	states := map[string]string{}
	for _, g := range gateways {
		states[g.Name] = g.State + " " + g.Status
		require.Equal(t, "external", g.Profile)
	}
	require.Equal(t, map[string]string{"acme-noreg": "NOREG UP", "acme-bad": "FAIL_WAIT DOWN", "acme-out": "REGED UP"}, states)
	require.InDelta(t, 1.17, gateways[2].PingMS, 0.001)
	require.EqualValues(t, 13, gateways[2].CallsOut)
	_, err = parseGateways("<gateways><gateway><name>x</name>")
	require.Error(t, err)
	_, err = parseChannels("-ERR")
	require.Error(t, err)
}

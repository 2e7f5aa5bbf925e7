package nodeport

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tandem/models"
)

var (
	errUnknown  = errors.New("unknown")
	errTooLarge = errors.New("too large")
)

// office is everything that a server asks.
type office struct {
	authentication error
	left           map[string]string
	received       map[string]string
	announced      int64
	hunted         []string
}

func (o *office) AuthenticateNode(_ context.Context, name, token string) (string, error) {
	if o.authentication != nil {
		return "", o.authentication
	}
	if name != "one" || token != "secret:with-colon" {
		return "", fmt.Errorf("authenticate: %w", models.ErrNotFound)
	}
	return "node_1", nil
}

func (o *office) Fetch(node, id string) ([]byte, error) {
	if node != "node_1" || id != "offered" {
		return nil, errUnknown
	}
	return []byte("<include/>"), nil
}

func (o *office) Leave(node, id string, body io.Reader, length int64) error {
	content, err := io.ReadAll(body)
	if err != nil {
		return err
	}
	if len(content) > 10 {
		return errTooLarge
	}
	o.left[node+" "+id], o.announced = string(content), length
	return nil
}

func (o *office) Receive(_ context.Context, node, token string, body io.Reader, _ int64) error {
	content, err := io.ReadAll(body)
	if err != nil {
		return err
	}
	o.received[node+" "+token] = string(content)
	return nil
}

func (o *office) Hunt(_ context.Context, dialplanContext, number string) ([]byte, bool, error) {
	o.hunted = append(o.hunted, dialplanContext+" "+number)
	switch dialplanContext {
	case "public":
		return []byte("<document/>"), true, nil
	case "broken":
		return nil, false, errors.New("database is away")
	}
	return nil, false, nil
}

func startServer(t *testing.T, o *office, change func(*Config)) string {
	t.Helper()
	o.left, o.received = map[string]string{}, map[string]string{}
	cfg := Config{Nodes: o, Files: o, Recordings: o, Routes: o, Status: func(err error) int {
		switch {
		case errors.Is(err, errUnknown):
			return http.StatusNotFound
		case errors.Is(err, errTooLarge):
			return http.StatusRequestEntityTooLarge
		}
		return 0
	}}
	if change != nil {
		change(&cfg)
	}
	server, err := New(cfg)
	require.NoError(t, err)
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 10*time.Second)
		defer cancel()
		require.NoError(t, server.Shutdown(ctx))
		require.NoError(t, server.Shutdown(ctx), "again")
		require.NoError(t, <-served)
	})
	return "http://" + listener.Addr().String()
}

// ask sends a request as the node, unless change says otherwise, and returns status and body.
func ask(t *testing.T, method, address, body string, change func(*http.Request)) (int, string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, address, strings.NewReader(body))
	require.NoError(t, err)
	request.Header.Set(Header, "one:secret:with-colon")
	if change != nil {
		change(request)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Do(request)
	require.NoError(t, err)
	defer func() { require.NoError(t, response.Body.Close()) }()
	content, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return response.StatusCode, string(content)
}

func TestNodesProveWhoTheyAre(t *testing.T) {
	t.Parallel()
	o := &office{}
	base := startServer(t, o, nil)
	const file = "/internal/files/offered/a.xml"
	for name, c := range map[string]struct {
		change func(*http.Request)
		status int
	}{
		"header":      {nil, http.StatusOK},
		"basic":       {func(r *http.Request) { r.Header.Del(Header); r.SetBasicAuth("one", "secret:with-colon") }, http.StatusOK},
		"nothing":     {func(r *http.Request) { r.Header.Del(Header) }, http.StatusUnauthorized},
		"wrong token": {func(r *http.Request) { r.Header.Set(Header, "one:secret") }, http.StatusUnauthorized},
		"wrong name":  {func(r *http.Request) { r.Header.Set(Header, "two:secret:with-colon") }, http.StatusUnauthorized},
		"no colon":    {func(r *http.Request) { r.Header.Set(Header, "one") }, http.StatusUnauthorized},
		"empty":       {func(r *http.Request) { r.Header.Set(Header, ":") }, http.StatusUnauthorized},
	} {
		status, body := ask(t, http.MethodGet, base+file, "", c.change)
		require.Equal(t, c.status, status, name)
		require.Equal(t, c.status == http.StatusOK, body == "<include/>", name)
	}
	o.authentication = errors.New("database is away")
	status, _ := ask(t, http.MethodGet, base+file, "", nil)
	require.Equal(t, http.StatusServiceUnavailable, status)
}

func TestFilesAndRecordings(t *testing.T) {
	t.Parallel()
	o := &office{}
	base := startServer(t, o, nil)
	status, _ := ask(t, http.MethodGet, base+"/internal/files/unknown/a.xml", "", nil)
	require.Equal(t, http.StatusNotFound, status)
	status, _ = ask(t, http.MethodPut, base+"/internal/files/wanted/a.xml", "12345", nil)
	require.Equal(t, http.StatusNoContent, status)
	require.Equal(t, map[string]string{"node_1 wanted": "12345"}, o.left)
	require.Equal(t, int64(5), o.announced)
	status, _ = ask(t, http.MethodPut, base+"/internal/files/wanted/a.xml", "12345678901", nil)
	require.Equal(t, http.StatusRequestEntityTooLarge, status)
	status, _ = ask(t, http.MethodPut, base+"/internal/recordings/token/rec.wav", "RIFF", nil)
	require.Equal(t, http.StatusCreated, status)
	require.Equal(t, map[string]string{"node_1 token": "RIFF"}, o.received)
	for _, other := range []string{"/", "/internal/files/a", "/internal/recordings/", "/v1/calls"} {
		status, _ = ask(t, http.MethodGet, base+other, "", nil)
		require.Contains(t, []int{http.StatusNotFound, http.StatusMethodNotAllowed}, status, other)
	}
}

func TestHunts(t *testing.T) {
	t.Parallel()
	o := &office{}
	base := startServer(t, o, nil)
	form := func(section, dialplanContext string) (int, string) {
		values := url.Values{"section": {section}, "Hunt-Context": {dialplanContext}, "Hunt-Destination-Number": {"+1555"}}
		return ask(t, http.MethodPost, base+"/internal/xml", values.Encode(), func(r *http.Request) {
			r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		})
	}
	status, body := form("dialplan", "public")
	require.Equal(t, []any{http.StatusOK, "<document/>"}, []any{status, body})
	for _, c := range [][2]string{{"dialplan", "trunk"}, {"directory", "public"}, {"", ""}} {
		status, body = form(c[0], c[1])
		require.Equal(t, []any{http.StatusOK, notFound}, []any{status, body}, "the switch goes on to its own files")
	}
	status, _ = form("dialplan", "broken")
	require.Equal(t, http.StatusServiceUnavailable, status)
	require.Equal(t, []string{"public +1555", "trunk +1555", "broken +1555"}, o.hunted)
	status, _ = ask(t, http.MethodPost, base+"/internal/xml", "section="+strings.Repeat("x", questionLimit), func(r *http.Request) {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	})
	require.Equal(t, http.StatusBadRequest, status)
}

// TestSlowNodesAreCutOff: a node that sends nothing does not keep a request for ever.
func TestSlowNodesAreCutOff(t *testing.T) {
	t.Parallel()
	o := &office{}
	base := startServer(t, o, func(cfg *Config) { cfg.UploadTimeout = 50 * time.Millisecond })
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", strings.TrimPrefix(base, "http://"))
	require.NoError(t, err)
	defer func() { _ = conn.Close() }()
	_, err = io.WriteString(conn, "PUT /internal/recordings/token/a.wav HTTP/1.1\r\nHost: a\r\nTandem-Node: one:secret:with-colon\r\nContent-Length: 100\r\n\r\nRIFF")
	require.NoError(t, err)
	require.NoError(t, conn.SetReadDeadline(time.Now().Add(20*time.Second)))
	_, err = io.ReadAll(conn)
	require.NoError(t, err, "the server closes the connection")
	require.Empty(t, o.received)
}

func TestServerNeedsToKnowNodes(t *testing.T) {
	t.Parallel()
	_, err := New(Config{})
	require.Error(t, err)
}

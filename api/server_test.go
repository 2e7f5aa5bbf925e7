package api

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tandem/calls"
	"tandem/models"
	"tandem/models/modelstest"
)

func TestUnknownRoutesAndMethods(t *testing.T) {
	t.Parallel()
	b := newBench(t, modelstest.Open(t), Config{})
	for _, path := range []string{"/", "/v1", "/v1/nothing", "/v2/trunks", "/v1/Trunks", "/v1/trunks/a/b", "/v1/%2e%2e/x"} {
		got := b.get(path).refused(codeNotFound, "")
		require.NotContains(t, string(got.body), path+`"`)
	}
	none := ""
	for path, allow := range map[string]string{
		"/v1/trunks":               "GET, HEAD, POST",
		"/v1/trunks/trunk_1":       "GET, HEAD, DELETE, PATCH",
		"/v1/calls/call_1/cancel":  "POST",
		"/v1/dids/by-number/+3120": "GET, HEAD",
	} {
		got := b.do(exchange{method: "PUT", path: path, key: &none}).refused(codeMethodNotAllowed, "")
		require.Equal(t, allow, got.header.Get("Allow"))
	}
	got := b.do(exchange{method: "PROPFIND", path: "/v1/trunks"}).refused(codeMethodNotAllowed, "")
	require.NotEmpty(t, got.header.Get("Allow"))
}

func TestBodies(t *testing.T) {
	t.Parallel()
	b := newBench(t, modelstest.Open(t), Config{})
	for _, body := range []string{"", " ", "{", "{]", `{"name":}`, "nonsense", `{"name":"a"} x`, `{"name":"a"}{}`, "{\"name\":\"\xff\"}", "\xef\xbb\xbf{}"} {
		b.do(exchange{method: "POST", path: "/v1/applications", body: body}).refused(codeInvalidJSON, "")
	}
	for _, body := range []string{"[]", `"a"`, "null", "7", "true"} {
		got := b.do(exchange{method: "POST", path: "/v1/applications", body: body}).refused(codeInvalidRequest, "")
		require.Equal(t, "the body must be a JSON object", got.message())
	}
	deep := strings.Repeat("[", 20_000) + strings.Repeat("]", 20_000)
	b.do(exchange{method: "POST", path: "/v1/applications", body: deep}).refused(codeInvalidJSON, "")

	for _, kind := range []string{"", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "application/json; charset=latin1", "application/jsonp", ";"} {
		b.do(exchange{method: "POST", path: "/v1/applications", body: "{}", header: map[string]string{"Content-Type": kind}}).
			refused(codeUnsupportedMedia, "Content-Type")
	}
	valid := object{"name": "a", "answer_url": "https://a.example/"}
	b.do(exchange{method: "POST", path: "/v1/applications", body: valid, header: map[string]string{"Content-Type": "Application/JSON; charset=UTF-8"}}).is(201)

	// A small body that unpacks to a huge one is not unpacked.
	var bomb bytes.Buffer
	packer := gzip.NewWriter(&bomb)
	_, err := packer.Write(bytes.Repeat([]byte(" "), 10<<20))
	require.NoError(t, err)
	require.NoError(t, packer.Close())
	b.do(exchange{method: "POST", path: "/v1/applications", body: bomb.String(), header: map[string]string{"Content-Encoding": "gzip"}}).
		refused(codeUnsupportedMedia, "Content-Encoding")
}

func TestRequestID(t *testing.T) {
	t.Parallel()
	b := newBench(t, modelstest.Open(t), Config{})
	for sent, taken := range map[string]bool{
		"req-1.A_b": true, strings.Repeat("a", 64): true, "": false, strings.Repeat("a", 65): false, "a b": false, `a"b`: false, "a{b": false,
	} {
		got := b.do(exchange{method: "GET", path: "/v1/nothing", header: map[string]string{headerRequestID: sent}})
		id := got.header.Get(headerRequestID)
		if taken {
			require.Equal(t, sent, id)
		} else {
			require.Regexp(t, `^req_[0-9a-z]{26}$`, id)
		}
		require.Equal(t, id, got.json()["error"].(object)["request_id"])
		require.Contains(t, b.logs.String(), id)
		require.Contains(t, b.logs.String(), `"error_code":"not_found"`)
	}
}

func TestPanicIsAnInternalError(t *testing.T) {
	t.Parallel()
	b := newBench(t, modelstest.Open(t), Config{})
	b.server.calls = panicking{}
	got := b.post("/v1/calls", b.callBody()).refused(codeInternalError, "")
	require.NotContains(t, string(got.body), "canary")
	require.Contains(t, b.logs.String(), "canary-panic")
	require.Contains(t, b.logs.String(), "createCall", "the log has the stack")
	b.get("/v1/me").is(200)
}

type panicking struct{ Calls }

func (panicking) Create(context.Context, calls.CreateRequest) (*models.Call, error) {
	panic("canary-panic")
}

func TestRequestTimeout(t *testing.T) {
	t.Parallel()
	b := newBench(t, modelstest.Open(t), Config{RequestTimeout: 2 * time.Second})
	b.server.calls = hanging{}
	got := b.post("/v1/calls", b.callBody()).refused(codeUnavailable, "")
	require.Equal(t, "1", got.header.Get("Retry-After"))
}

type hanging struct{ Calls }

func (hanging) Create(ctx context.Context, _ calls.CreateRequest) (*models.Call, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// listen serves the bench on a loopback port; some refusals exist only on a real connection.
func (b *bench) listen() string {
	b.t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(b.t, err)
	var wg sync.WaitGroup
	var served error
	wg.Go(func() { served = b.server.Serve(ln) })
	b.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		require.NoError(b.t, b.server.Shutdown(ctx))
		require.NoError(b.t, b.server.Shutdown(ctx), "again")
		wg.Wait()
		require.NoError(b.t, served)
	})
	return ln.Addr().String()
}

// raw sends bytes and reads one response.
func raw(t *testing.T, addr, request string) response {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	require.NoError(t, err)
	defer func() { _ = conn.Close() }()
	require.NoError(t, conn.SetDeadline(time.Now().Add(10*time.Second)))
	_, err = io.WriteString(conn, request)
	require.NoError(t, err)
	body, err := io.ReadAll(conn)
	require.NoError(t, err)
	head, rest, found := strings.Cut(string(body), "\r\n\r\n")
	require.True(t, found, "%q", body)
	lines := strings.Split(head, "\r\n")
	got := response{t: t, header: http.Header{}, body: []byte(rest)}
	require.NoError(t, json.Unmarshal([]byte(strings.Fields(lines[0])[1]), &got.status))
	for _, line := range lines[1:] {
		name, value, _ := strings.Cut(line, ": ")
		got.header.Add(name, value)
	}
	return got
}

func TestOnTheWire(t *testing.T) {
	t.Parallel()
	b := newBench(t, modelstest.Open(t), Config{BodyLimit: 1 << 10})
	addr := b.listen()
	post := "POST /v1/applications HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: Bearer " + b.key + "\r\nContent-Type: application/json\r\n"

	body := `{"name":"a","answer_url":"https://a.example/"}`
	body += strings.Repeat(" ", 1<<10-len(body))
	// A client that goes on sending still gets to read the refusal.
	for range 20 {
		raw(t, addr, post+"Content-Length: 1000000\r\n\r\n"+strings.Repeat(" ", 1_000_000)).refused(codePayloadTooLarge, "")
	}
	raw(t, addr, post+"Content-Length: 1024\r\n\r\n"+body).is(201)
	for name, request := range map[string]string{
		"a body over the limit":         post + "Content-Length: 1025\r\n\r\n" + body + " ",
		"a chunked body over the limit": post + "Transfer-Encoding: chunked\r\n\r\n401\r\n" + body + " \r\n0\r\n\r\n",
	} {
		got := raw(t, addr, request).refused(codePayloadTooLarge, "")
		require.NotEmpty(t, got.header.Get("X-Request-Id"), name)
	}
	raw(t, addr, "GET /v1/me HTTP/1.1\r\nHost: x\r\nConnection: close\r\nX-Long: "+strings.Repeat("x", 32<<10)+"\r\n\r\n").refused(codeHeadersTooLarge, "")
	raw(t, addr, "nonsense\r\n\r\n").refused(codeInvalidRequest, "")
	raw(t, addr, "GET /v1/dids/by-number/%zz HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: Bearer "+b.key+"\r\n\r\n").refused(codeInvalidRequest, "number")
	head := raw(t, addr, "HEAD /v1/me HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: Bearer "+b.key+"\r\n\r\n").is(200)
	require.Empty(t, head.body)
	// A number in the path is not a query: its plus stays one.
	raw(t, addr, "GET /v1/dids/by-number/+31201234567 HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: Bearer "+b.key+"\r\n\r\n").refused(codeNotFound, "")
}

func TestMount(t *testing.T) {
	t.Parallel()
	b := newBench(t, modelstest.Open(t), Config{Mount: map[string]http.Handler{
		"/dev": http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusTeapot)
			_, _ = io.WriteString(w, r.URL.Path)
		}),
	}})
	addr := b.listen()
	got := raw(t, addr, "POST /dev/answer HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}").is(http.StatusTeapot)
	require.Equal(t, "/dev/answer", string(got.body))
	require.NotEmpty(t, got.header.Get("X-Request-Id"))
	b.get("/v1/me").is(200)
	b.get("/nothing").refused(codeNotFound, "")
}

func TestConfigIsChecked(t *testing.T) {
	t.Parallel()
	_, err := New(Config{})
	require.Error(t, err)
}

// TestShutdownDoesNotWaitForSilentConnections: a client that dialled ahead and sent nothing delays no shutdown. fasthttp alone
// would wait for the read timeout.
func TestShutdownDoesNotWaitForSilentConnections(t *testing.T) {
	t.Parallel()
	b := newBench(t, modelstest.Open(t), Config{ReadTimeout: time.Minute})
	addr := b.listen()
	silent, err := net.Dial("tcp", addr)
	require.NoError(t, err)
	t.Cleanup(func() { _ = silent.Close() })
	// A whole exchange on another connection: the silent one has been accepted by then.
	raw(t, addr, "GET /v1/me HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	require.NoError(t, b.server.Shutdown(ctx))
}

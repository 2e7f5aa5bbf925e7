package simulator

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"time"
	"unicode/utf8"
)

// maxReply is how much of an answer's body a report holds.
const maxReply = 4 << 10

// transport is what a client sends requests with.
func transport(client *http.Client) http.RoundTripper {
	if client.Transport != nil {
		return client.Transport
	}
	return http.DefaultTransport
}

// recorder notes every exchange on its way.
type recorder struct {
	next http.RoundTripper
	path *path
}

// RoundTrip implements http.RoundTripper.
func (r *recorder) RoundTrip(req *http.Request) (*http.Response, error) {
	exchange := &Exchange{Method: req.Method, URL: req.URL.String()}
	if req.GetBody != nil {
		if body, err := req.GetBody(); err == nil {
			exchange.Body, _ = io.ReadAll(body)
			_ = body.Close()
		}
	}
	began := time.Now()
	resp, err := r.next.RoundTrip(req)
	if err != nil {
		exchange.Error = err.Error()
		exchange.TookMS = time.Since(began).Milliseconds()
		r.path.add(Step{Kind: StepRequest, Request: exchange})
		return nil, err
	}
	exchange.Status = resp.StatusCode
	if audio(resp.Header) {
		exchange.TookMS = time.Since(began).Milliseconds()
		r.path.add(Step{Kind: StepRequest, Request: exchange})
		return resp, nil
	}
	// The beginning of the body is read here, so that its time counts and the step stands before what follows from it; the rest
	// is left to whoever asked.
	head := make([]byte, maxReply)
	n, err := io.ReadFull(resp.Body, head)
	head = head[:n]
	exchange.TookMS = time.Since(began).Milliseconds()
	exchange.Reply = strings.ToValidUTF8(string(head), string(utf8.RuneError))
	r.path.add(Step{Kind: StepRequest, Request: exchange})
	rest := io.Reader(resp.Body)
	if err != nil && err != io.EOF && err != io.ErrUnexpectedEOF { //nolint:errorlint // io.ReadFull returns these as they are
		rest = broken{err}
	}
	resp.Body = replayed{Reader: io.MultiReader(bytes.NewReader(head), rest), Closer: resp.Body}
	return resp, nil
}

// audio says whether a body is sound, which no report holds.
func audio(header http.Header) bool {
	kind := header.Get("Content-Type")
	return strings.HasPrefix(kind, "audio/") || strings.HasPrefix(kind, "application/octet-stream")
}

// replayed is a body whose beginning was read before.
type replayed struct {
	io.Reader
	io.Closer
}

// broken is a body that failed.
type broken struct{ err error }

func (b broken) Read([]byte) (int, error) { return 0, b.err }

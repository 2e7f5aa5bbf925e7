package webhooks

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"syscall"
	"time"

	"tandem/egress"
	"tandem/models"
)

const (
	// maxAnswer is how much of an answer is read, maxStored how much of it is kept with the attempt.
	maxAnswer = 64 << 10
	maxStored = 1 << 10
	maxError  = 300
	userAgent = "Tandem-Webhooks/1"
)

// exchange is one POST and what came of it.
type exchange struct {
	startedAt  time.Time
	latency    time.Duration
	status     int // 0 when no answer came
	failure    string
	response   string
	retryAfter time.Duration
	timeout    bool
	// canceled is set when we ended the attempt ourselves, so that it says nothing about the endpoint.
	canceled bool
}

func (x *exchange) delivered() bool { return x.failure == "" && x.status >= 200 && x.status <= 299 }

// gone says that the endpoint asked never to be called again.
func (x *exchange) gone() bool { return x.status == http.StatusGone }

// post sends one signed event. It never fails: what went wrong is in the result.
func (w *Worker) post(ctx context.Context, app *models.Application, event *models.Event) *exchange {
	now := w.cfg.Store.Now()
	x := &exchange{startedAt: now}
	begun := time.Now() // the network runs on real time, whatever clock the queue has
	defer func() { x.latency = time.Since(begun) }()

	attemptCtx, cancel := context.WithTimeout(ctx, w.cfg.Timeout)
	defer cancel()
	if _, err := egress.CheckURL(app.WebhookURL); err != nil {
		x.failure = "url: webhook_url " + err.Error()
		return x
	}
	req, err := NewRequest(attemptCtx, app.WebhookURL, Keys(app, now), event.ID, now, event.Body)
	if err != nil {
		x.failure = "url: webhook_url is not a URL"
		return x
	}

	resp, err := w.cfg.Client.Do(req)
	if err != nil {
		w.fail(ctx, x, err)
		return x
	}
	defer func() { _ = resp.Body.Close() }() // the answer has been read as far as it matters
	x.status = resp.StatusCode
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	x.response = storable(answer, app)
	if err != nil {
		w.fail(ctx, x, fmt.Errorf("read the answer: %w", err))
		return x
	}
	if !x.delivered() {
		x.failure = fmt.Sprintf("status: the endpoint answered %d", resp.StatusCode)
		x.retryAfter = retryAfter(resp.Header.Get("Retry-After"), now)
	}
	return x
}

// NewRequest returns the request that carries an event: a signed POST of its body. The error is of the URL.
func NewRequest(ctx context.Context, target string, keys [][]byte, eventID string, at time.Time, body []byte) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, target, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("make webhook request: %w", err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", userAgent)
	SetHeaders(req.Header, keys, eventID, at, body)
	return req, nil
}

// fail records why there was no whole answer. A 2xx whose body breaks off was still received, so it stays delivered: the
// receiver has acted on it.
func (w *Worker) fail(ctx context.Context, x *exchange, err error) {
	if ctx.Err() != nil {
		x.canceled = true
		x.failure = "canceled: the worker stopped"
		if errors.Is(context.Cause(ctx), errLeaseLost) {
			x.failure = "canceled: " + errLeaseLost.Error()
		}
		return
	}
	if x.status >= 200 && x.status <= 299 {
		return
	}
	reason, detail := classify(err)
	x.timeout = reason == reasonTimeout
	x.failure = reason
	if detail != "" {
		x.failure = shorten(reason+": "+detail, maxError)
	}
}

// Reasons why an attempt got no answer; each begins the attempt's error, so that they can be counted.
const (
	reasonTimeout = "timeout"
	reasonBlocked = "blocked"
	reasonDNS     = "dns"
	reasonRefused = "refused"
	reasonTLS     = "tls"
	reasonNetwork = "network"
)

// classify returns the reason of an error and what may be said of it to the customer: never the URL, whose query may
// hold a token, and never an address inside the operator's network.
func classify(err error) (reason, detail string) {
	var wrapped *url.Error
	if errors.As(err, &wrapped) {
		err = wrapped.Err
	}
	var (
		network     net.Error
		dns         *net.DNSError
		certificate *tls.CertificateVerificationError
		authority   x509.UnknownAuthorityError
		alert       tls.AlertError
	)
	switch {
	case errors.Is(err, egress.ErrBlocked):
		return reasonBlocked, "the address of webhook_url is not allowed"
	case errors.As(err, &dns):
		if dns.IsNotFound {
			return reasonDNS, "no such host"
		}
		return reasonDNS, "the name server did not answer"
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &network) && network.Timeout():
		return reasonTimeout, ""
	case errors.As(err, &certificate), errors.As(err, &authority), errors.As(err, &alert):
		return reasonTLS, err.Error()
	case errors.Is(err, syscall.ECONNREFUSED):
		return reasonRefused, "connection refused"
	default:
		return reasonNetwork, err.Error()
	}
}

// storable cuts an answer to what is kept, makes it text that both databases take, and takes out our own secrets should
// an endpoint echo them.
func storable(answer []byte, app *models.Application) string {
	text := strings.ReplaceAll(strings.ToValidUTF8(string(answer), "\uFFFD"), "\x00", "\uFFFD")
	for _, secret := range []models.Secret{app.WebhookSecret, app.PreviousSecret} {
		if secret != "" {
			text = strings.ReplaceAll(text, string(secret), "[redacted]")
		}
	}
	return shorten(text, maxStored)
}

// shorten cuts text to at most limit bytes without cutting a character.
func shorten(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	return strings.ToValidUTF8(text[:limit], "")
}

package daemon

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"syscall"
	"time"

	"tandem/egress"
	"tandem/models"
	"tandem/webhooks"
)

// ListenOptions say what `tandem listen` follows and where it forwards to.
type ListenOptions struct {
	// APIURL is the server whose journal is followed, with APIKey.
	APIURL, APIKey string
	// Forward is the URL that gets the events. It may be on loopback: it is the developer's own.
	Forward string
	// Secret signs the events, as an application's webhook_secret would. Empty: one is made and printed.
	Secret string
	// From is where to begin: a cursor that an earlier run printed, ListenFromStart, or empty for what happens from now on.
	From string
	// CursorFile, where not empty, keeps how far the journal was forwarded. A file that exists wins over From.
	CursorFile string
	// Types and ApplicationID narrow what is forwarded, as in GET /v1/events; empty do not.
	Types, ApplicationID string
	// Interval is how often the journal is looked at once everything is forwarded. Default: 500 ms.
	Interval time.Duration
	// JSON prints an object for each event instead of a line to read.
	JSON bool
	// Out gets a line for each event, Log what else there is to say.
	Out, Log io.Writer
}

// ListenFromStart begins with the oldest event that the journal has.
const ListenFromStart = "start"

// ErrListen marks options that are wrong.
var ErrListen = errors.New("listen")

const (
	// listenTimeout is what a webhook_url gets, too.
	listenTimeout = 15 * time.Second
	// listenPage is small: events are forwarded one after the other.
	listenPage = 50
	// listenBackoff is the longest wait before the API or the forward URL is tried again.
	listenBackoff = 5 * time.Second
	// listenAnswer bounds what is read of an answer of the forward URL.
	listenAnswer = 64 << 10
)

// listener follows a journal.
type listener struct {
	opts    ListenOptions
	journal journalClient
	client  *http.Client
	app     *models.Application
	place   listenPlace
}

// Listen forwards each event of a customer's journal to a URL as a signed webhook, in the order of the journal, until ctx ends,
// which is no error. An answer of whatever status takes an event; while the URL cannot be connected to, the event waits, and while
// the API is away, everything does. The error is ErrListen for options that are wrong, and otherwise says why the API refuses.
func Listen(ctx context.Context, opts ListenOptions) error {
	l, err := newListener(opts)
	if err != nil {
		return err
	}
	defer l.client.CloseIdleConnections()
	defer l.journal.http.CloseIdleConnections()
	err = l.run(ctx)
	if ctx.Err() == nil {
		return err
	}
	if l.opts.CursorFile == "" && l.place.Cursor != "" {
		l.say("stopped; go on with --from %s", l.place.Cursor)
	}
	return nil
}

func newListener(opts ListenOptions) (*listener, error) {
	for name, raw := range map[string]string{"--forward": opts.Forward, "--api-url": opts.APIURL} {
		if _, err := egress.CheckURL(raw); err != nil {
			return nil, fmt.Errorf("%w: %s %w", ErrListen, name, err)
		}
	}
	base, err := url.Parse(opts.APIURL)
	if err != nil {
		return nil, fmt.Errorf("%w: --api-url: %w", ErrListen, err)
	}
	if opts.APIKey == "" {
		return nil, fmt.Errorf("%w: an API key is needed", ErrListen)
	}
	opts.Interval = cmp.Or(opts.Interval, 500*time.Millisecond)
	l := &listener{
		opts: opts,
		journal: journalClient{
			base: base, key: opts.APIKey, types: opts.Types, application: opts.ApplicationID,
			http: &http.Client{Transport: &http.Transport{Proxy: http.ProxyFromEnvironment}, Timeout: 2 * listenTimeout},
		},
		client: &http.Client{
			Transport:     &http.Transport{Proxy: nil},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
			Timeout:       listenTimeout,
		},
		app: &models.Application{WebhookSecret: models.Secret(opts.Secret)},
	}
	if opts.Secret == "" {
		l.app.WebhookSecret = models.Secret(webhooks.NewSecret())
	}
	if opts.CursorFile != "" {
		if l.place, err = readPlace(opts.CursorFile); err != nil {
			return nil, err
		}
	}
	if l.place == (listenPlace{}) && opts.From != ListenFromStart {
		l.place.Cursor = cmp.Or(opts.From, models.JournalEnd)
	}
	return l, nil
}

func (l *listener) run(ctx context.Context) error {
	l.say("forwarding events of %s to %s", l.opts.APIURL, l.opts.Forward)
	if l.opts.Secret == "" {
		l.say("signed with the secret %s", string(l.app.WebhookSecret))
	}
	for {
		page, err := l.fetch(ctx)
		if err != nil {
			return err
		}
		events := page.behind(l.place.LastEvent)
		for i := range events {
			if err := l.forward(ctx, events[i]); err != nil {
				return err
			}
		}
		if l.place.Cursor != page.Next {
			if err := l.moved(listenPlace{Cursor: page.Next}); err != nil {
				return err
			}
		}
		if !page.More {
			if err := pause(ctx, l.opts.Interval); err != nil {
				return err
			}
		}
	}
}

// fetch reads the next page, as often as it takes while the API is away.
func (l *listener) fetch(ctx context.Context) (*journalPage, error) {
	for delay := l.opts.Interval; ; delay = min(2*delay, listenBackoff) {
		page, err := l.journal.read(ctx, l.place.Cursor, listenPage)
		var away *awayError
		switch {
		case err == nil:
			if delay != l.opts.Interval {
				l.say("the API is back")
			}
			return page, nil
		case !errors.As(err, &away):
			return nil, err
		case delay == l.opts.Interval:
			l.say("waiting for the API: %v", err)
		}
		if err := pause(ctx, max(delay, away.retryAfter)); err != nil {
			return nil, err
		}
	}
}

// forward posts one event and prints what came of it. It goes on trying while nobody listens at the URL.
func (l *listener) forward(ctx context.Context, raw json.RawMessage) error {
	var event listenEvent
	if err := json.Unmarshal(raw, &event); err != nil {
		return fmt.Errorf("read an event of the journal: %w", err)
	}
	for delay := l.opts.Interval; ; delay = min(2*delay, listenBackoff) {
		status, took, err := l.post(ctx, event.ID, raw)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if unreachable(err) {
			if delay == l.opts.Interval {
				l.say("waiting for %s: %v", l.opts.Forward, reasonOf(err))
			}
			if err := pause(ctx, delay); err != nil {
				return err
			}
			continue
		}
		if err := l.print(&event, status, took, err); err != nil {
			return err
		}
		return l.moved(listenPlace{Cursor: l.place.Cursor, LastEvent: event.ID})
	}
}

func (l *listener) post(ctx context.Context, id string, body []byte) (status int, took time.Duration, err error) {
	begun := time.Now()
	request, err := webhooks.NewRequest(ctx, l.opts.Forward, webhooks.Keys(l.app, begun), id, begun, body)
	if err != nil {
		return 0, 0, err
	}
	response, err := l.client.Do(request)
	if err != nil {
		return 0, time.Since(begun), err
	}
	_, err = io.Copy(io.Discard, io.LimitReader(response.Body, listenAnswer))
	return response.StatusCode, time.Since(begun), errors.Join(err, response.Body.Close())
}

// unreachable reports whether nobody was there to take a request: a server that is being restarted, usually.
func unreachable(err error) bool {
	var op *net.OpError
	return errors.Is(err, syscall.ECONNREFUSED) || errors.As(err, &op) && op.Op == "dial"
}

// reasonOf is what is wrong, without method and URL.
func reasonOf(err error) error {
	var wrapped *url.Error
	if errors.As(err, &wrapped) {
		return wrapped.Err
	}
	return err
}

// listenEvent is what is printed of an event.
type listenEvent struct {
	ID       string `json:"id"`
	Type     string `json:"type"`
	Sequence *int64 `json:"sequence"`
	Call     *struct {
		ID string `json:"id"`
	} `json:"call"`
}

// listenLine is an event and what came of it, as JSON.
type listenLine struct {
	EventID   string  `json:"event_id"`
	Type      string  `json:"type"`
	CallID    string  `json:"call_id,omitempty"`
	Sequence  *int64  `json:"sequence"`
	Status    int     `json:"status"`
	LatencyMS float64 `json:"latency_ms"`
	Error     string  `json:"error,omitempty"`
}

func (l *listener) print(event *listenEvent, status int, took time.Duration, failure error) error {
	line := listenLine{EventID: event.ID, Type: event.Type, Sequence: event.Sequence, Status: status, LatencyMS: float64(took.Microseconds()) / 1000}
	if event.Call != nil {
		line.CallID = event.Call.ID
	}
	if failure != nil {
		line.Error = reasonOf(failure).Error()
	}
	var err error
	if l.opts.JSON {
		err = json.NewEncoder(l.opts.Out).Encode(line)
	} else {
		place, outcome := "-", fmt.Sprintf("%d in %.0f ms", status, line.LatencyMS)
		if line.Sequence != nil {
			place = fmt.Sprint(*line.Sequence)
		}
		if line.Error != "" {
			outcome = "failed: " + line.Error
		}
		_, err = fmt.Fprintf(l.opts.Out, "%s  %-24s %s  %-31s %3s  %s\n", time.Now().Format("15:04:05.000"), line.Type, line.EventID, line.CallID, place, outcome)
	}
	if err != nil {
		return fmt.Errorf("print an event: %w", err)
	}
	return nil
}

// say writes what is no event. That the log cannot be written stops nothing.
func (l *listener) say(format string, args ...any) {
	_, _ = fmt.Fprintf(l.opts.Log, format+"\n", args...)
}

// pause waits; the error is that of ctx.
func pause(ctx context.Context, wait time.Duration) error {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

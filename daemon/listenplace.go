package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// listenPlace is how far a journal was forwarded: the cursor of a page, and the last event of that page, empty for none.
type listenPlace struct {
	Cursor    string `json:"cursor"`
	LastEvent string `json:"last_event_id,omitempty"`
}

// readPlace reads what an earlier run kept; nothing where there is no file.
func readPlace(file string) (listenPlace, error) {
	raw, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return listenPlace{}, nil
	}
	var place listenPlace
	if err == nil {
		err = json.Unmarshal(raw, &place)
	}
	if err != nil {
		return place, fmt.Errorf("%w: --cursor-file: %w", ErrListen, err)
	}
	return place, nil
}

// moved notes how far the listener is: whole, so that a run that is killed leaves the old place or the new one.
func (l *listener) moved(place listenPlace) error {
	l.place = place
	if l.opts.CursorFile == "" {
		return nil
	}
	raw, err := json.Marshal(place)
	if err != nil {
		return fmt.Errorf("keep the cursor: %w", err)
	}
	temporary := filepath.Join(filepath.Dir(l.opts.CursorFile), "."+filepath.Base(l.opts.CursorFile)+".new")
	if err := os.WriteFile(temporary, append(raw, '\n'), 0o600); err != nil {
		return fmt.Errorf("keep the cursor: %w", err)
	}
	if err := os.Rename(temporary, l.opts.CursorFile); err != nil {
		return fmt.Errorf("keep the cursor: %w", err)
	}
	return nil
}

// maxJournalPage bounds the answer with a page of the journal, in bytes.
const maxJournalPage = 32 << 20

// journalClient reads GET /v1/events.
type journalClient struct {
	base               *url.URL
	key                string
	types, application string
	http               *http.Client
}

type journalPage struct {
	Events []json.RawMessage `json:"data"`
	More   bool              `json:"has_more"`
	Next   string            `json:"next_cursor"`
}

// behind returns the events behind the one with an id; all of them where it is not on the page.
func (p *journalPage) behind(id string) []json.RawMessage {
	for i := range p.Events {
		var event listenEvent
		if id != "" && json.Unmarshal(p.Events[i], &event) == nil && event.ID == id {
			return p.Events[i+1:]
		}
	}
	return p.Events
}

// awayError is a failure that passes: the server cannot be reached, stops or starts.
type awayError struct {
	cause      error
	retryAfter time.Duration
}

func (e *awayError) Error() string { return e.cause.Error() }

func (e *awayError) Unwrap() error { return e.cause }

// read returns a page of the journal. The error is an *awayError where it is worth asking again.
func (c *journalClient) read(ctx context.Context, cursor string, limit int) (*journalPage, error) {
	query := url.Values{"limit": {strconv.Itoa(limit)}}
	for name, value := range map[string]string{"cursor": cursor, "type": c.types, "application_id": c.application} {
		if value != "" {
			query.Set(name, value)
		}
	}
	target := c.base.JoinPath("v1", "events")
	target.RawQuery = query.Encode()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, target.String(), nil)
	if err != nil {
		return nil, fmt.Errorf("ask for events: %w", err)
	}
	request.Header.Set("Authorization", "Bearer "+c.key)
	response, err := c.http.Do(request)
	if err != nil {
		return nil, &awayError{cause: reasonOf(err)}
	}
	defer func() { _ = response.Body.Close() }() // what matters has been read
	answer, err := io.ReadAll(io.LimitReader(response.Body, maxJournalPage))
	if err != nil {
		return nil, &awayError{cause: fmt.Errorf("read the server's answer: %w", err)}
	}
	if response.StatusCode >= http.StatusInternalServerError || response.StatusCode == http.StatusTooManyRequests {
		after, err := strconv.Atoi(response.Header.Get("Retry-After"))
		if err != nil || after < 0 {
			after = 0
		}
		return nil, &awayError{cause: refusal(response.StatusCode, answer), retryAfter: min(time.Duration(after)*time.Second, time.Minute)}
	}
	switch response.StatusCode {
	case http.StatusOK:
	case http.StatusBadRequest: // a cursor, kinds or an application that are none
		return nil, fmt.Errorf("%w: %w", ErrListen, refusal(response.StatusCode, answer))
	default:
		return nil, fmt.Errorf("read the journal: %w", refusal(response.StatusCode, answer))
	}
	page := &journalPage{}
	if err := json.Unmarshal(answer, page); err != nil {
		return nil, fmt.Errorf("read the journal: %w", err)
	}
	if page.Next == "" {
		return nil, errors.New("read the journal: the server's answer has no next_cursor")
	}
	return page, nil
}

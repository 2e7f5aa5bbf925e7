package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

const (
	// pageLimit is the most that a list of the API returns at a time.
	pageLimit = 200
	// answerLimit bounds what is read of an answer.
	answerLimit = 64 << 20
)

// client speaks to the operator API of one installation.
type client struct {
	base    *url.URL
	token   string
	http    *http.Client
	timeout time.Duration
}

// operatorPath is where the operator API begins.
const operatorPath = "/operator/v1"

// client returns the client of the installation that the command is for.
func (o *options) client() (*client, error) {
	to, err := o.installation()
	if err != nil {
		return nil, err
	}
	return newClient(to, o.timeout)
}

func newClient(to installation, timeout time.Duration) (*client, error) {
	base, err := parseAPIURL(to.URL)
	if err != nil {
		return nil, err
	}
	return &client{
		base: base, token: to.Token, timeout: timeout,
		http: &http.Client{
			Transport: &http.Transport{Proxy: http.ProxyFromEnvironment, TLSHandshakeTimeout: 10 * time.Second, MaxIdleConnsPerHost: 4},
			// The token is for this host alone.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}, nil
}

// parseAPIURL accepts the address of a server: http or https, a host and at most a path before /operator.
func parseAPIURL(raw string) (*url.URL, error) {
	base, err := url.Parse(strings.TrimRight(raw, "/"))
	if err != nil || base.Hostname() == "" || base.Scheme != "http" && base.Scheme != "https" || base.RawQuery != "" || base.Fragment != "" || base.User != nil {
		return nil, usage("%q is no URL of a server such as https://tandem.example.com", raw)
	}
	return base, nil
}

// close gives up the connections that are kept.
func (c *client) close() { c.http.CloseIdleConnections() }

// apiError is a refusal of the API.
type apiError struct {
	Status    int
	Code      string
	Message   string
	Field     string
	RequestID string
	// RetryAfter is how long to wait before another try, 0 where the API does not say.
	RetryAfter time.Duration
}

// Error says what the API said, and by which id its log has the request.
func (e *apiError) Error() string {
	text := e.Code + ": " + e.Message
	if e.RequestID != "" && e.Status >= http.StatusInternalServerError {
		text += " (request " + e.RequestID + ")"
	}
	return text
}

// away reports whether a request may succeed a little later: nobody answered, or the API said so.
func away(err error) bool {
	if refused, ok := errors.AsType[*apiError](err); ok {
		return refused.Status == http.StatusServiceUnavailable || refused.Status == http.StatusTooManyRequests || refused.Status == http.StatusBadGateway ||
			refused.Status == http.StatusGatewayTimeout
	}
	_, unanswered := errors.AsType[*url.Error](err)
	return unanswered
}

// refusedAs reports whether the API refused with a code.
func refusedAs(err error, code string) bool {
	refused, ok := errors.AsType[*apiError](err)
	return ok && refused.Code == code
}

// call sends a request to a path below the operator API and reads the answer, which may be nil. A body that is not nil is sent as
// JSON.
func (c *client) call(ctx context.Context, method, path string, query url.Values, body, answer any) error {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	content, err := jsonBody(body)
	if err != nil {
		return err
	}
	request, err := c.request(ctx, method, path, query, content)
	if err != nil {
		return err
	}
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	got, err := exchange(c.http, request, c.base)
	if err != nil {
		return err
	}
	if got.refused() {
		return got.refusal()
	}
	if answer == nil || len(got.body) == 0 {
		return nil
	}
	if err := json.Unmarshal(got.body, answer); err != nil {
		return fmt.Errorf("%s did not answer as a Tandem server does: %w", c.base, err)
	}
	return nil
}

// jsonBody is what a request carries, nil for none.
func jsonBody(body any) (io.Reader, error) {
	if body == nil {
		return nil, nil
	}
	encoded, err := json.Marshal(body)
	if err != nil {
		return nil, fmt.Errorf("write the request: %w", err)
	}
	return bytes.NewReader(encoded), nil
}

// received is a server's answer.
type received struct {
	code   int
	status string // as in the status line
	header http.Header
	body   []byte
}

func (r *received) refused() bool { return r.code < 200 || r.code > 299 }

// exchange sends a request to a server and reads its whole answer, of which no more than answerLimit counts.
func exchange(via *http.Client, request *http.Request, server fmt.Stringer) (*received, error) {
	response, err := via.Do(request)
	if err != nil {
		return nil, fmt.Errorf("reach %s: %w", server, err)
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(response.Body, answerLimit))
	if err != nil {
		return nil, fmt.Errorf("read the answer of %s: %w", server, err)
	}
	return &received{code: response.StatusCode, status: response.Status, header: response.Header, body: body}, nil
}

// request makes a request with the token; whoever sends something else than JSON sets its Content-Type.
func (c *client) request(ctx context.Context, method, path string, query url.Values, content io.Reader) (*http.Request, error) {
	target := c.base.String() + operatorPath + path
	if len(query) > 0 {
		target += "?" + query.Encode()
	}
	request, err := http.NewRequestWithContext(ctx, method, target, content)
	if err != nil {
		return nil, fmt.Errorf("make the request: %w", err)
	}
	request.Header.Set("Authorization", "Bearer "+c.token)
	request.Header.Set("Accept", "application/json")
	request.Header.Set("User-Agent", "tandem/"+version())
	return request, nil
}

// refusal is the error that an answer tells of.
func (r *received) refusal() error {
	var told struct {
		Error struct {
			Code      string `json:"code"`
			Message   string `json:"message"`
			Field     string `json:"field"`
			RequestID string `json:"request_id"`
		} `json:"error"`
	}
	refused := &apiError{Status: r.code}
	if seconds, err := strconv.Atoi(r.header.Get("Retry-After")); err == nil && seconds >= 0 {
		refused.RetryAfter = time.Duration(seconds) * time.Second
	}
	if err := json.Unmarshal(r.body, &told); err != nil || told.Error.Code == "" {
		refused.Code, refused.Message = "http_"+strconv.Itoa(r.code), "the answer is not one of a Tandem server"
		return refused
	}
	refused.Code, refused.Message, refused.Field, refused.RequestID = told.Error.Code, told.Error.Message, told.Error.Field, told.Error.RequestID
	return refused
}

func (c *client) get(ctx context.Context, path string, query url.Values, answer any) error {
	return c.call(ctx, http.MethodGet, path, query, nil, answer)
}

// download copies an answer that is no JSON to w, as it comes: it takes as long as it takes.
func (c *client) download(ctx context.Context, path string, query url.Values, w io.Writer) error {
	request, err := c.request(ctx, http.MethodGet, path, query, nil)
	if err != nil {
		return err
	}
	request.Header.Set("Accept", "text/csv, application/json")
	response, err := c.http.Do(request)
	if err != nil {
		return fmt.Errorf("reach %s: %w", c.base, err)
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		body, err := io.ReadAll(io.LimitReader(response.Body, answerLimit))
		if err != nil {
			return fmt.Errorf("read the answer of %s: %w", c.base, err)
		}
		return (&received{code: response.StatusCode, header: response.Header, body: body}).refusal()
	}
	if _, err := io.Copy(w, response.Body); err != nil {
		return fmt.Errorf("the file is not whole: read the answer of %s: %w", c.base, err)
	}
	return nil
}

func (c *client) post(ctx context.Context, path string, body, answer any) error {
	if body == nil {
		body = struct{}{}
	}
	return c.call(ctx, http.MethodPost, path, nil, body, answer)
}

func (c *client) patch(ctx context.Context, path string, body, answer any) error {
	return c.call(ctx, http.MethodPatch, path, nil, body, answer)
}

func (c *client) delete(ctx context.Context, path string) error {
	return c.call(ctx, http.MethodDelete, path, nil, nil, nil)
}

// listing is a page of a list.
type listing struct {
	Data       []json.RawMessage `json:"data"`
	HasMore    bool              `json:"has_more"`
	NextCursor *string           `json:"next_cursor"`
}

// list reads the first items of a list, at most limit of them; 0 for all. more says that there are others.
func (c *client) list(ctx context.Context, path string, query url.Values, limit int) (items []json.RawMessage, more bool, err error) {
	asked := url.Values{}
	for name, values := range query {
		asked[name] = values
	}
	for {
		size := pageLimit
		if limit > 0 {
			size = min(size, limit-len(items))
		}
		asked.Set("limit", strconv.Itoa(size))
		var page listing
		if err := c.get(ctx, path, asked, &page); err != nil {
			return nil, false, err
		}
		items = append(items, page.Data...)
		if !page.HasMore || page.NextCursor == nil {
			return items, false, nil
		}
		if limit > 0 && len(items) >= limit {
			return items, true, nil
		}
		asked.Set("cursor", *page.NextCursor)
	}
}

// withClient runs a command that speaks to the operator API.
func (o *options) withClient(run func(cmd *cobra.Command, c *client, positional []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, positional []string) error {
		c, err := o.client()
		if err != nil {
			return err
		}
		defer c.close()
		return run(cmd, c, positional)
	}
}

// segment escapes a value for a place in a path.
func segment(value string) string { return url.PathEscape(value) }

// parameters makes a query of the values that are not empty, given as name and value in turn.
func parameters(pairs ...string) url.Values {
	query := url.Values{}
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			query.Set(pairs[i], pairs[i+1])
		}
	}
	return query
}

// completeItems offers the named member of a list's items to the shell, and keeps quiet where the API cannot be asked.
func (o *options) completeItems(path, member string) cobra.CompletionFunc {
	return func(cmd *cobra.Command, positional []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(positional) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		c, err := o.client()
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		defer c.close()
		c.timeout = 2 * time.Second
		items, _, err := c.list(cmd.Context(), path, nil, pageLimit)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		var found []cobra.Completion
		for _, item := range items {
			var members map[string]any
			if json.Unmarshal(item, &members) == nil {
				if value, ok := members[member].(string); ok {
					found = append(found, value)
				}
			}
		}
		return found, cobra.ShellCompDirectiveNoFileComp
	}
}

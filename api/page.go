package api

import (
	"strconv"
	"strings"
	"time"

	"tandem/models"
)

const (
	defaultLimit = 50
	maxLimit     = 200
)

// list is the contract's list envelope (section 2.6) with the two fields that paging needs.
type list[T any] struct {
	Data       []T     `json:"data"`
	Count      int     `json:"count"`
	HasMore    bool    `json:"has_more"`
	NextCursor *string `json:"next_cursor"`
}

// listOf turns a page of rows into an answer.
func listOf[Row, T any](rows []Row, next string, convert func(*Row) T) list[T] {
	answer := list[T]{Data: make([]T, len(rows)), Count: len(rows)}
	for i := range rows {
		answer.Data[i] = convert(&rows[i])
	}
	if next != "" {
		answer.HasMore, answer.NextCursor = true, &next
	}
	return answer
}

// param returns a query parameter, nil when it is absent.
func (r *request) param(name string) *string {
	if value, ok := r.query[name]; ok {
		return &value
	}
	return nil
}

// page reads limit and cursor.
func (r *request) page() (models.Page, error) {
	page := models.Page{Limit: defaultLimit, Cursor: r.query["cursor"]}
	if raw, ok := r.query["limit"]; ok {
		limit, err := strconv.Atoi(raw)
		if err != nil || limit < 1 || limit > maxLimit {
			return page, invalid("limit", "limit must be an integer between 1 and %d", maxLimit)
		}
		page.Limit = limit
	}
	return page, nil
}

// plus restores the plus sign that a query decodes as a blank when the client did not escape it, as in ?from=+31201234567.
func plus(value string) string { return strings.ReplaceAll(value, " ", "+") }

// time reads a query parameter that holds an ISO 8601 timestamp, or a day, which is its first moment in UTC; nil when it is absent.
func (r *request) time(name string) (*time.Time, error) {
	raw, ok := r.query[name]
	if !ok {
		return nil, nil
	}
	at, err := parseMoment(raw)
	if err != nil {
		return nil, invalid(name, "%s must be a timestamp such as 2026-01-31T12:00:00Z, or a day such as 2026-01-31", name)
	}
	return &at, nil
}

// parseMoment reads an ISO 8601 timestamp, or a day, which is its first moment in UTC.
func parseMoment(text string) (time.Time, error) {
	text = plus(text)
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		at, err = time.Parse(time.DateOnly, text)
	}
	return at.UTC(), err
}

// stamp writes a time in the contract's form, YYYY-MM-DDThh:mm:ssZ.
func stamp(at time.Time) string { return at.UTC().Format("2006-01-02T15:04:05Z") }

// stampOrNil writes a time that may not have come yet.
func stampOrNil(at *time.Time) *string {
	if at == nil {
		return nil
	}
	text := stamp(*at)
	return &text
}

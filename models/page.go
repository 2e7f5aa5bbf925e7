package models

import (
	"encoding/base64"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"gorm.io/gorm"
)

// Sizes of a page.
const (
	DefaultPageLimit = 50
	MaxPageLimit     = 1000
)

// Page asks for a part of a list, newest first. Pages stay exact while rows are added: a cursor names the last row seen, not
// a position.
type Page struct {
	// Limit is the number of rows, DefaultPageLimit when not positive, at most MaxPageLimit.
	Limit int
	// Cursor is what the page before returned as next; empty for the first page.
	Cursor string
}

func (p Page) limit() int {
	if p.Limit <= 0 {
		return DefaultPageLimit
	}
	return min(p.Limit, MaxPageLimit)
}

// scope orders a query by (created_at, id) descending behind the cursor and asks for one row more than the page holds.
func (p Page) scope(query *gorm.DB) (*gorm.DB, error) {
	if p.Cursor != "" {
		at, id, err := decodeCursor(p.Cursor)
		if err != nil {
			return nil, err
		}
		// A row value comparison, so that both databases walk the index.
		query = query.Where("(created_at, id) < (?, ?)", at, id)
	}
	return query.Order("created_at DESC, id DESC").Limit(p.limit() + 1), nil
}

func encodeCursor(at time.Time, id string) string {
	return base64.RawURLEncoding.EncodeToString([]byte(strconv.FormatInt(micros(at), 10) + " " + id))
}

func decodeCursor(cursor string) (at int64, id string, err error) {
	plain, err := base64.RawURLEncoding.DecodeString(cursor)
	if err == nil {
		number, rest, found := strings.Cut(string(plain), " ")
		at, err = strconv.ParseInt(number, 10, 64)
		if err == nil && found && rest != "" && utf8.ValidString(rest) && !strings.ContainsRune(rest, 0) {
			return at, rest, nil
		}
	}
	return 0, "", fmt.Errorf("%w: %q", ErrBadCursor, cursor)
}

// paged reads one page of T.
func paged[T any](query *gorm.DB, page Page, key func(*T) (time.Time, string)) (rows []T, next string, err error) {
	query, err = page.scope(query)
	if err != nil {
		return nil, "", err
	}
	if err := query.Find(&rows).Error; err != nil {
		return nil, "", err
	}
	if limit := page.limit(); len(rows) > limit {
		rows = rows[:limit]
		next = encodeCursor(key(&rows[limit-1]))
	}
	return rows, next, nil
}

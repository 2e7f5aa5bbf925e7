package models

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"
	"unicode/utf8"

	"gorm.io/gorm/clause"
)

// RateResult says what PutRates did with a row.
type RateResult int

// The results.
const (
	// RateCreated: the prefix had no rate then.
	RateCreated RateResult = iota
	// RateUpdated: the rate took the place of one that began at the same moment, or ended one that was valid then.
	RateUpdated
	// RateUnchanged: what it says was so already.
	RateUnchanged
)

// MaxRates is how many rates PutRates takes at a time.
const MaxRates = 10_000

// PutRates makes rates of a deck be as the rows say, one after the other, and returns what it did with each; it fills the rows with the rates that are
// there then. Rates of one direction and prefix never overlap: a rate ends one that is valid when it begins, takes the place of one that
// begins at the same moment, and ends at the latest where the next one begins. One that says what is valid anyway, until the same end,
// changes nothing. ErrNotFound where there is no such deck.
func (s *Store) PutRates(ctx context.Context, deckID string, rows []DeckRate) ([]RateResult, error) {
	if len(rows) > MaxRates {
		return nil, fmt.Errorf("put rates: more than %d at a time", MaxRates)
	}
	results := make([]RateResult, len(rows))
	err := s.InTx(ctx, func(tx *Store) error {
		if err := tx.editDeck(ctx, deckID); err != nil {
			return err
		}
		lines, err := tx.rateLines(ctx, deckID, rows)
		if err != nil {
			return err
		}
		now := tx.Now()
		for i := range rows {
			row := rows[i]
			row.DeckID, row.CreatedAt, row.ValidFrom, row.ValidTo = deckID, now, *cut(&row.ValidFrom), cut(row.ValidTo)
			rows[i], results[i] = lines.put(row)
		}
		return tx.saveRates(ctx, lines.changed)
	})
	return results, err
}

// editDeck locks a deck for a transaction that goes on to change its rates.
func (s *Store) editDeck(ctx context.Context, id string) error {
	var found string
	err := s.write(ctx).Table("rate_decks").Clauses(clause.Locking{Strength: clause.LockingStrengthUpdate}).Select("id").Where("id = ?", id).Take(&found).Error
	return explain(err, "rate deck %q", id)
}

type linePlace struct{ direction, prefix string }

// rateLines are the rates of some prefixes, those of each in the order of time.
type rateLines struct {
	of      map[linePlace][]*DeckRate
	changed []*DeckRate
	seen    map[*DeckRate]bool
}

// rateLines reads the rates of the prefixes that the rows are for.
func (s *Store) rateLines(ctx context.Context, deckID string, rows []DeckRate) (*rateLines, error) {
	lines := &rateLines{of: map[linePlace][]*DeckRate{}, seen: map[*DeckRate]bool{}}
	wanted := map[string]map[string]bool{}
	for i := range rows {
		if wanted[rows[i].Direction] == nil {
			wanted[rows[i].Direction] = map[string]bool{}
		}
		wanted[rows[i].Direction][rows[i].Prefix] = true
	}
	for direction, prefixes := range wanted {
		for some := range slices.Chunk(keysOf(prefixes), rowsLimit) {
			var found []*DeckRate
			err := s.ratesFor(s.write(ctx), deckID, direction, some, "TRUE").Order("valid_from").Find(&found).Error
			if err != nil {
				return nil, explain(err, "read rates of deck %q", deckID)
			}
			for _, rate := range found {
				place := linePlace{rate.Direction, rate.Prefix}
				lines.of[place] = append(lines.of[place], rate)
			}
		}
	}
	return lines, nil
}

func (l *rateLines) change(rate *DeckRate) {
	if !l.seen[rate] {
		l.seen[rate] = true
		l.changed = append(l.changed, rate)
	}
}

// put places a rate among those of its prefix and returns the one that is there then.
func (l *rateLines) put(row DeckRate) (DeckRate, RateResult) {
	place := linePlace{row.Direction, row.Prefix}
	line := l.of[place]
	next := slices.IndexFunc(line, func(r *DeckRate) bool { return r.ValidFrom.After(row.ValidFrom) })
	if next < 0 {
		next = len(line)
	} else if row.ValidTo == nil || row.ValidTo.After(line[next].ValidFrom) {
		row.ValidTo = cut(&line[next].ValidFrom)
	}
	result := RateCreated
	if next > 0 {
		switch former := line[next-1]; {
		case former.ValidTo != nil && !former.ValidTo.After(row.ValidFrom): // it has ended
		case former.saysAll(&row):
			return *former, RateUnchanged
		case former.ValidFrom.Equal(row.ValidFrom):
			row.ID, row.CreatedAt = former.ID, former.CreatedAt
			*former = row
			l.change(former)
			return row, RateUpdated
		default:
			result, former.ValidTo = RateUpdated, cut(&row.ValidFrom)
			l.change(former)
		}
	}
	row.ID = NewID(PrefixRate)
	l.of[place] = slices.Insert(line, next, &row)
	l.change(&row)
	return row, result
}

// saysAll reports whether a rate that is valid when another begins says all that the other does.
func (r *DeckRate) saysAll(other *DeckRate) bool {
	sameEnd := r.ValidTo == nil && other.ValidTo == nil || r.ValidTo != nil && other.ValidTo != nil && r.ValidTo.Equal(*other.ValidTo)
	return sameEnd && r.Rate() == other.Rate()
}

// saveRates inserts rates, and writes those that are there.
func (s *Store) saveRates(ctx context.Context, rates []*DeckRate) error {
	if len(rates) == 0 {
		return nil
	}
	upsert := clause.OnConflict{Columns: []clause.Column{{Name: "id"}}, DoUpdates: clause.AssignmentColumns([]string{
		"destination", "per_minute_micros", "connect_micros", "connect_on", "minimum_seconds", "increment_seconds", "valid_to",
	})}
	return explain(s.write(ctx).Clauses(upsert).CreateInBatches(rates, rowsLimit).Error, "save rates of deck %q", rates[0].DeckID)
}

// DeckRateByID returns a rate, or ErrNotFound.
func (s *Store) DeckRateByID(ctx context.Context, id string) (*DeckRate, error) {
	var row DeckRate
	if err := s.read(ctx).Where("id = ?", id).Take(&row).Error; err != nil {
		return nil, explain(err, "rate %q", id)
	}
	return &row, nil
}

// ErrRateEnd says that a rate would end before it begins.
var ErrRateEnd = errors.New("the rate would end before it begins")

// EndRate has a rate end at a moment, nil for never, but at the latest where the next one of its prefix begins. It returns the rate as it is then;
// ErrNotFound, or ErrRateEnd.
func (s *Store) EndRate(ctx context.Context, id string, at *time.Time) (*DeckRate, error) {
	var done *DeckRate
	err := s.InTx(ctx, func(tx *Store) error {
		rate, err := tx.DeckRateByID(ctx, id)
		if err != nil {
			return err
		}
		if err := tx.editDeck(ctx, rate.DeckID); err != nil {
			return err
		}
		lines, err := tx.rateLines(ctx, rate.DeckID, []DeckRate{*rate})
		if err != nil {
			return err
		}
		line := lines.of[linePlace{rate.Direction, rate.Prefix}]
		here := slices.IndexFunc(line, func(r *DeckRate) bool { return r.ID == id })
		if here < 0 {
			return fmt.Errorf("rate %q: %w", id, ErrNotFound)
		}
		done = line[here]
		done.ValidTo = cut(at)
		if done.ValidTo != nil && !done.ValidTo.After(done.ValidFrom) {
			return fmt.Errorf("end rate %q: %w", id, ErrRateEnd)
		}
		if here+1 < len(line) && (done.ValidTo == nil || done.ValidTo.After(line[here+1].ValidFrom)) {
			done.ValidTo = cut(&line[here+1].ValidFrom)
		}
		return tx.saveRates(ctx, []*DeckRate{done})
	})
	return done, err
}

// DeleteRate deletes a rate, or returns ErrNotFound. One that it had ended stays ended.
func (s *Store) DeleteRate(ctx context.Context, id string) error {
	return s.InTx(ctx, func(tx *Store) error {
		return changedOne(tx.write(ctx).Exec("DELETE FROM rates WHERE id = ?", id), "delete rate %q", id)
	})
}

// RateFilter chooses rates of a deck; what is empty does not.
type RateFilter struct {
	Direction string
	// Prefix is how the rate's prefix begins; Number has the rates that a number could get, as RateAt understands it.
	Prefix, Number string
	// On chooses those that are valid at a moment.
	On *time.Time
}

// ListRates returns a page of the rates of a deck, in the order of direction, prefix and time, and the cursor of the next page.
func (s *Store) ListRates(ctx context.Context, deckID string, filter RateFilter, page Page) ([]DeckRate, string, error) {
	query := s.read(ctx).Where("deck_id = ?", deckID)
	if filter.Direction != "" {
		query = query.Where("direction = ?", filter.Direction)
	}
	if filter.Prefix != "" {
		query = query.Where("SUBSTR(prefix, 1, ?) = ?", len(filter.Prefix), filter.Prefix)
	}
	if filter.Number != "" {
		query = query.Where("prefix IN ?", prefixesOf(filter.Number))
	}
	if filter.On != nil {
		at := micros(*filter.On)
		query = query.Where("valid_from <= ? AND (valid_to IS NULL OR valid_to > ?)", at, at)
	}
	if page.Cursor != "" {
		after, err := decodeRateCursor(page.Cursor)
		if err != nil {
			return nil, "", err
		}
		query = query.Where("(direction, prefix, valid_from) > (?, ?, ?)", after.Direction, after.Prefix, after.ValidFrom)
	}
	var rows []DeckRate
	if err := query.Order("direction, prefix, valid_from").Limit(page.limit() + 1).Find(&rows).Error; err != nil {
		return nil, "", explain(err, "list rates of deck %q", deckID)
	}
	if limit := page.limit(); len(rows) > limit {
		rows = rows[:limit]
		return rows, encodeRateCursor(&rows[limit-1]), nil
	}
	return rows, "", nil
}

// rateCursor names the last rate of a page.
type rateCursor struct {
	Direction, Prefix string
	ValidFrom         int64
}

func encodeRateCursor(last *DeckRate) string {
	raw, _ := json.Marshal(rateCursor{last.Direction, last.Prefix, micros(last.ValidFrom)}) // strings and a number
	return base64.RawURLEncoding.EncodeToString(raw)
}

func decodeRateCursor(cursor string) (rateCursor, error) {
	var place rateCursor
	raw, err := base64.RawURLEncoding.DecodeString(cursor)
	if err == nil && utf8.Valid(raw) {
		err = json.Unmarshal(raw, &place)
	}
	// No database keeps a zero byte in a text.
	if err != nil || place.Direction != Outbound && place.Direction != Inbound || !isPrefix(place.Prefix) {
		return rateCursor{}, fmt.Errorf("%w: %q", ErrBadCursor, cursor)
	}
	return place, nil
}

// isPrefix reports whether a rate may have the prefix.
func isPrefix(prefix string) bool {
	return prefix == "" || prefix == PrefixSIP || len(prefix) <= maxPrefix && isDigits(prefix)
}

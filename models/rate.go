package models

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"strings"
	"time"

	"gorm.io/gorm"
)

// When a rate's connection fee is due.
const (
	// ConnectOnAnswer charges it once somebody has answered.
	ConnectOnAnswer = "answer"
	// ConnectOnAttempt charges it for each attempt that a carrier was given, answered or not.
	ConnectOnAttempt = "attempt"
)

// PrefixSIP is the prefix of rates for SIP URIs, which have no number.
const PrefixSIP = "sip"

// Rate is what a leg was promised to cost; it is copied onto calls and legs, and nothing that happens to its deck changes it there.
type Rate struct {
	// DeckID is the deck that it comes from, empty for the price of the configuration; Prefix are the digits that the number begins with, and
	// Destination is what the deck calls them.
	DeckID      string `json:"deck_id,omitempty"`
	Prefix      string `json:"prefix,omitempty"`
	Destination string `json:"destination,omitempty"`
	// PerMinuteMicros is the price of a minute, ConnectMicros the connection fee, which ConnectOn says when to charge (empty: ConnectOnAnswer).
	PerMinuteMicros int64  `json:"per_minute_micros"`
	ConnectMicros   int64  `json:"connect_micros,omitempty"`
	ConnectOn       string `json:"connect_on,omitempty"`
	// MinimumSeconds is the least that an answered leg is billed, IncrementSeconds the unit of billing: each started one counts whole.
	MinimumSeconds   int `json:"minimum_seconds,omitempty"`
	IncrementSeconds int `json:"increment_seconds"`
}

// Cost is what a leg costs that was answered for so many seconds, as its switch counted them: the connection fee, and the minutes of its increments,
// at least its minimum, rounded up to the millionth. A leg that nobody answered costs the connection fee where that is due on attempts. What does
// not fit is math.MaxInt64.
func (r *Rate) Cost(answered bool, seconds int) int64 {
	if !answered {
		if r.ConnectOn == ConnectOnAttempt {
			return r.ConnectMicros
		}
		return 0
	}
	talk := r.talk(seconds)
	if talk > math.MaxInt64-r.ConnectMicros {
		return math.MaxInt64
	}
	return r.ConnectMicros + talk
}

// Billed is for how many seconds an answered leg is charged: its whole increments, at least the minimum.
func (r *Rate) Billed(seconds int) int64 {
	if seconds = max(seconds, r.MinimumSeconds); seconds <= 0 {
		return 0
	}
	increment := int64(max(r.IncrementSeconds, 1))
	return (int64(seconds) + increment - 1) / increment * increment
}

const secondsPerMinute = 60

func (r *Rate) talk(seconds int) int64 {
	if r.PerMinuteMicros <= 0 {
		return 0
	}
	// The product of the greatest price and the longest call does not fit 64 bits.
	high, low := bits.Mul64(uint64(r.PerMinuteMicros), uint64(r.Billed(seconds)))
	low, carry := bits.Add64(low, secondsPerMinute-1, 0)
	high += carry
	if high >= secondsPerMinute {
		return math.MaxInt64
	}
	cost, _ := bits.Div64(high, low, secondsPerMinute)
	return int64(min(cost, math.MaxInt64))
}

// What becomes of a number that no rate of a deck is for.
const (
	// UnlistedNext asks the next deck: that of the customer after that of the trunk, then the default one, then the prices of the configuration.
	UnlistedNext = "next"
	// UnlistedRefuse refuses the call.
	UnlistedRefuse = "refuse"
)

// RateDeck is a list of rates in one currency.
type RateDeck struct {
	ID       string
	Name     string
	Currency string
	// IsDefault says that it is that of customers of its currency that have none of their own: one of each currency.
	IsDefault bool
	Unlisted  string
	CreatedAt time.Time `gorm:"serializer:moment;autoCreateTime:false"`
	UpdatedAt time.Time `gorm:"serializer:moment;autoUpdateTime:false"`
}

// DeckRate is a rate of a deck: it is for numbers in a direction that begin with its prefix, from ValidFrom until ValidTo, which is not the rate's any
// more; nil is without end. Outbound, the number is the one dialled, inbound that of the customer which was called.
type DeckRate struct {
	ID               string
	DeckID           string
	Direction        string
	Prefix           string
	Destination      string
	PerMinuteMicros  int64
	ConnectMicros    int64
	ConnectOn        string
	MinimumSeconds   int
	IncrementSeconds int
	ValidFrom        time.Time  `gorm:"serializer:moment"`
	ValidTo          *time.Time `gorm:"serializer:moment"`
	CreatedAt        time.Time  `gorm:"serializer:moment;autoCreateTime:false"`
}

// TableName implements gorm's schema.Tabler.
func (DeckRate) TableName() string { return "rates" }

// Rate is what is copied onto a leg.
func (r *DeckRate) Rate() Rate {
	return Rate{
		DeckID: r.DeckID, Prefix: r.Prefix, Destination: r.Destination, PerMinuteMicros: r.PerMinuteMicros, ConnectMicros: r.ConnectMicros,
		ConnectOn: r.ConnectOn, MinimumSeconds: r.MinimumSeconds, IncrementSeconds: r.IncrementSeconds,
	}
}

// DecksFor returns the decks that are asked for the price of a leg, the first one first: those with the ids that are not empty, in their
// order, then the default one of the currency, each once.
func (s *Store) DecksFor(ctx context.Context, currency string, ids ...string) ([]RateDeck, error) {
	query := s.read(ctx).Where("is_default AND currency = ?", currency)
	var named []string
	for _, id := range ids {
		if id != "" {
			named = append(named, id)
		}
	}
	if len(named) > 0 {
		query = query.Or("id IN ?", named)
	}
	var rows []RateDeck
	if err := query.Find(&rows).Error; err != nil {
		return nil, explain(err, "read the rate decks")
	}
	var decks []RateDeck
	for _, id := range append(named, "") {
		for _, row := range rows {
			asked := slices.ContainsFunc(decks, func(d RateDeck) bool { return d.ID == row.ID })
			if !asked && (row.ID == id || id == "" && row.IsDefault && row.Currency == currency) {
				decks = append(decks, row)
			}
		}
	}
	return decks, nil
}

// RateAt returns the rate of a deck for a number in a direction at a moment: the one with the longest prefix. ErrNotFound where it has none. number
// is one in E.164, with or without its plus; PrefixSIP stands for a SIP URI. What is no number has only the rates with no prefix.
func (s *Store) RateAt(ctx context.Context, deckID, direction, number string, at time.Time) (*DeckRate, error) {
	var row []DeckRate
	err := s.ratesFor(s.read(ctx), deckID, direction, prefixesOf(number), "valid_from <= ? AND (valid_to IS NULL OR valid_to > ?)", micros(at), micros(at)).
		// Of two with one prefix that are both valid, the later one was meant to follow.
		Order("LENGTH(prefix) DESC, valid_from DESC").Limit(1).Find(&row).Error
	if err != nil {
		return nil, explain(err, "read the rate of a number")
	}
	if len(row) == 0 {
		return nil, fmt.Errorf("rate of deck %q for %s: %w", deckID, MaskedNumber(number), ErrNotFound)
	}
	return &row[0], nil
}

// ratesFor chooses the rates of a deck that have one of the prefixes, and are as a condition says. PostgreSQL is made to look each prefix up by itself:
// as long as it has no statistics of the table, which is so right after a deck was imported, it takes a list of prefixes for a condition that most
// rates meet, and reads the whole deck.
func (s *Store) ratesFor(db *gorm.DB, deckID, direction string, prefixes []string, condition string, args ...any) *gorm.DB {
	if s.dialect != DialectPostgres {
		return db.Where("deck_id = ? AND direction = ? AND prefix IN ?", deckID, direction, prefixes).Where(condition, args...)
	}
	values := make([]any, len(prefixes), len(prefixes)+2+len(args))
	for i := range prefixes {
		values[i] = prefixes[i]
	}
	list := strings.TrimSuffix(strings.Repeat("(CAST(? AS TEXT)), ", len(prefixes)), ", ")
	return db.Table("(SELECT r.* FROM (VALUES "+list+") AS p (prefix) CROSS JOIN LATERAL (SELECT * FROM rates WHERE deck_id = ? AND direction = ? "+
		"AND prefix = p.prefix AND "+condition+" OFFSET 0) r) AS rates", append(append(values, deckID, direction), args...)...)
}

// DeckAnswer is what a deck says of a number: Rate is nil where it has none.
type DeckAnswer struct {
	Deck RateDeck
	Rate *DeckRate
}

// Refuses says that the deck has the call refused: it has no rate for the number, and no other deck is asked.
func (a *DeckAnswer) Refuses() bool { return a.Rate == nil && a.Deck.Unlisted == UnlistedRefuse }

// EffectiveRate asks decks, the first one first, for the rate of a number in a direction at a moment, as RateAt does, until one has a rate or
// refuses. It returns what each of those said that were asked: the last one decides, with its rate or by refusing. Where neither is so, or nothing
// was asked, no deck has a rate, and the price is that of the configuration.
func (s *Store) EffectiveRate(ctx context.Context, decks []RateDeck, direction, number string, at time.Time) ([]DeckAnswer, error) {
	answers := make([]DeckAnswer, 0, len(decks))
	for _, deck := range decks {
		rate, err := s.RateAt(ctx, deck.ID, direction, number, at)
		if err != nil && !errors.Is(err, ErrNotFound) {
			return nil, err
		}
		answer := DeckAnswer{Deck: deck, Rate: rate}
		answers = append(answers, answer)
		if rate != nil || answer.Refuses() {
			break
		}
	}
	return answers, nil
}

// maxPrefix is the length of the longest prefix: E.164 has at most 15 digits.
const maxPrefix = 15

// prefixesOf are all prefixes of a number, the empty one too. A SIP URI has its own alone: what is for every number is not for it.
func prefixesOf(number string) []string {
	if number == PrefixSIP {
		return []string{PrefixSIP}
	}
	digits := strings.TrimPrefix(number, "+")
	prefixes := []string{""}
	for i := range min(len(digits), maxPrefix) {
		if digits[i] < '0' || digits[i] > '9' {
			break
		}
		prefixes = append(prefixes, digits[:i+1])
	}
	return prefixes
}

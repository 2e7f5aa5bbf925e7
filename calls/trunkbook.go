package calls

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"tandem/models"
)

const (
	// bookFresh is how long what the book says of a customer is not read again for its own sake.
	bookFresh = time.Minute
	// bookPatience bounds a reading for the book's own sake.
	bookPatience = time.Second
	// bookLimit bounds how many customers the book knows.
	bookLimit = 10_000
)

// trunkBook remembers the active outbound trunks of customers, and their limits, as they were last read: calls that dial while the database is away
// go by it.
type trunkBook struct {
	store *models.Store

	mu    sync.Mutex
	pages map[string]trunkPage
}

type trunkPage struct {
	trunks []models.Trunk
	limits models.CustomerLimits
	decks  bool // there are rate decks that price its calls
	read   time.Time
}

func newTrunkBook(store *models.Store) *trunkBook {
	return &trunkBook{store: store, pages: map[string]trunkPage{}}
}

// read reads the active outbound trunks and the limits of a customer and remembers them.
func (b *trunkBook) read(ctx context.Context, customerID string) (trunkPage, error) {
	trunks, err := b.store.ActiveOutboundTrunks(ctx, customerID)
	if err != nil {
		return trunkPage{}, err
	}
	customer, err := b.store.Customer(ctx, customerID)
	if err != nil {
		return trunkPage{}, err
	}
	ids := []string{customer.RateDeckID}
	for i := range trunks {
		ids = append(ids, trunks[i].RateDeckID)
	}
	decks, err := b.store.DecksFor(ctx, customer.Currency, ids...)
	if err != nil {
		return trunkPage{}, err
	}
	page := trunkPage{trunks: trunks, limits: customer.Limits, decks: len(decks) > 0, read: time.Now()}
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, known := b.pages[customerID]; !known && len(b.pages) >= bookLimit {
		for other := range b.pages {
			delete(b.pages, other)
			break
		}
	}
	b.pages[customerID] = page
	return page, nil
}

// known returns what the book says of a customer.
func (b *trunkBook) known(customerID string) (trunkPage, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	page, ok := b.pages[customerID]
	return page, ok
}

// foresee makes sure that the book knows a customer whose call begins. A database that does not say now is asked again with the
// next call.
func (b *trunkBook) foresee(ctx context.Context, customerID string) {
	if page, ok := b.known(customerID); ok && time.Since(page.read) < bookFresh {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, bookPatience)
	defer cancel()
	_, _ = b.read(ctx, customerID)
}

// waysTo are the ways to a number over the trunk that a target names, or all of the customer's active ones: see the function of that name. None
// are, where no trunk takes the call. While the database is away the trunks are those that were last read; where none ever were, or the
// caller's number has to be looked for, it is waited for.
func (s *session) waysTo(trunkID, number, caller, seed string) ([]way, error) {
	for {
		ways, err := s.readWays(trunkID, number, caller, seed)
		if err == nil || !storeAway(err) {
			return ways, err
		}
		s.m.outage.begin()
		if err := s.await(s.m.outage.ended(), nil); err != nil {
			return nil, err
		}
	}
}

func (s *session) readWays(trunkID, number, caller, seed string) ([]way, error) {
	page, err := s.knownPage()
	if err != nil {
		return nil, err
	}
	trunks := page.trunks
	if trunkID != "" {
		trunks = slices.DeleteFunc(slices.Clone(trunks), func(trunk models.Trunk) bool { return trunk.ID != trunkID })
	}
	ctx, cancel := context.WithTimeout(s.m.ctx, storeTimeout)
	defer cancel()
	ways, err := waysTo(trunks, number, caller, seed, s.m.owner(ctx, s.call.CustomerID))
	if errors.Is(err, ErrNoActiveTrunk) || errors.Is(err, ErrDestinationNotAllowed) || errors.Is(err, errForeignCallerID) {
		s.log.Info("no trunk takes the party", "to", models.MaskedNumber(number), "reason", err)
		return nil, nil
	}
	return ways, err
}

// knownPage asks the database, and the book where that is away.
func (s *session) knownPage() (trunkPage, error) {
	page, known := s.m.trunks.known(s.call.CustomerID)
	if known && s.m.outage.err() != nil {
		return page, nil
	}
	ctx, cancel := context.WithTimeout(s.m.ctx, storeTimeout)
	defer cancel()
	read, err := s.m.trunks.read(ctx, s.call.CustomerID)
	if err != nil && storeAway(err) && known {
		s.m.outage.begin()
		return page, nil
	}
	return read, err
}

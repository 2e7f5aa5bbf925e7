package calls

import (
	"context"
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

// trunkBook remembers the active outbound trunks of customers as they were last read: calls that dial while the database is away
// go by it.
type trunkBook struct {
	store *models.Store

	mu    sync.Mutex
	pages map[string]trunkPage
}

type trunkPage struct {
	trunks []models.Trunk
	read   time.Time
}

func newTrunkBook(store *models.Store) *trunkBook {
	return &trunkBook{store: store, pages: map[string]trunkPage{}}
}

// read reads the active outbound trunks of a customer and remembers them.
func (b *trunkBook) read(ctx context.Context, customerID string) ([]models.Trunk, error) {
	trunks, err := b.store.ActiveOutboundTrunks(ctx, customerID)
	if err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, known := b.pages[customerID]; !known && len(b.pages) >= bookLimit {
		for other := range b.pages {
			delete(b.pages, other)
			break
		}
	}
	b.pages[customerID] = trunkPage{trunks: trunks, read: time.Now()}
	return trunks, nil
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

// trunksTo are the trunks that lead to a number, in the order in which they are tried: the one that a target names, or all of the
// customer's active ones. While the database is away they are those that were last read; where none ever were, it is waited for.
func (s *session) trunksTo(id string) ([]models.Trunk, error) {
	for {
		trunks, err := s.readTrunks(id)
		if err == nil || !storeAway(err) {
			return trunks, err
		}
		s.m.outage.begin()
		if err := s.await(s.m.outage.ended(), nil); err != nil {
			return nil, err
		}
	}
}

func (s *session) readTrunks(id string) ([]models.Trunk, error) {
	trunks, err := s.knownTrunks()
	if err != nil || id == "" {
		return trunks, err
	}
	for _, trunk := range trunks {
		if trunk.ID == id {
			return []models.Trunk{trunk}, nil
		}
	}
	return nil, nil
}

// knownTrunks asks the database, and the book where that is away.
func (s *session) knownTrunks() ([]models.Trunk, error) {
	page, known := s.m.trunks.known(s.call.CustomerID)
	if known && s.m.outage.err() != nil {
		return page.trunks, nil
	}
	ctx, cancel := context.WithTimeout(s.m.ctx, storeTimeout)
	defer cancel()
	trunks, err := s.m.trunks.read(ctx, s.call.CustomerID)
	if err != nil && storeAway(err) && known {
		s.m.outage.begin()
		return page.trunks, nil
	}
	return trunks, err
}

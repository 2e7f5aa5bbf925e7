package dialplan

import (
	"context"
	"net/netip"
	"strings"
	"sync"
	"time"

	"tandem/models"
)

const (
	// guardEvery is how often refused calls are written, and how often it is looked whether the blocks have changed: in this process, in another
	// one, or by expiring.
	guardEvery = 2 * time.Second
	// mostSources is how many sources of a node's refused calls wait in memory to be written. A switch that takes 200 sessions a second names at most
	// 400 between two writes; what comes from others while it is full is counted by reason only.
	mostSources = 4096
)

// strangerBook holds the refused calls that have not been written yet, by node and source.
type strangerBook struct {
	mu      sync.Mutex
	waiting map[string]map[string]*models.StrangerReport
	// unattributed counts calls that found no room.
	unattributed uint64
}

func newStrangerBook() *strangerBook {
	return &strangerBook{waiting: map[string]map[string]*models.StrangerReport{}}
}

// note counts a refused call for its source.
func (b *strangerBook) note(node string, reason Refusal, e event, at time.Time) {
	if reason != RefusedUninvited && reason != RefusedUnknown {
		return
	}
	ip, err := netip.ParseAddr(e.Get("Caller-Network-Addr"))
	if err != nil {
		return // of no use to anybody
	}
	r := models.StrangerReport{
		Source: models.StrangerSource(ip), FirstAt: at, LastAt: at, Number: models.MaskedNumber(shortened(e.Get("Caller-Destination-Number"))),
		UserAgent: legible(e.Get("variable_sip_user_agent")), KnownAs: knownAs(e.Get("variable_acl_token")),
	}
	if reason == RefusedUninvited {
		r.Uninvited = 1
	} else {
		r.UnknownNumber = 1
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.add(node, r)
}

// add counts a report in; the later one's sample stays.
func (b *strangerBook) add(node string, r models.StrangerReport) {
	sources := b.waiting[node]
	if sources == nil {
		sources = map[string]*models.StrangerReport{}
		b.waiting[node] = sources
	}
	present := sources[r.Source]
	if present == nil {
		if len(sources) >= mostSources {
			b.unattributed += uint64(r.Uninvited + r.UnknownNumber)
			return
		}
		sources[r.Source] = &r
		return
	}
	r.Uninvited += present.Uninvited
	r.UnknownNumber += present.UnknownNumber
	if present.FirstAt.Before(r.FirstAt) {
		r.FirstAt = present.FirstAt
	}
	if present.LastAt.After(r.LastAt) {
		r.LastAt, r.Number, r.UserAgent, r.KnownAs = present.LastAt, present.Number, present.UserAgent, present.KnownAs
	}
	*present = r
}

// take returns what waits, by node, and how many calls found no room since the last time.
func (b *strangerBook) take() (waiting map[string][]models.StrangerReport, unattributed uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	waiting = make(map[string][]models.StrangerReport, len(b.waiting))
	for node, sources := range b.waiting {
		for _, r := range sources {
			waiting[node] = append(waiting[node], *r)
		}
	}
	unattributed, b.unattributed = b.unattributed, 0
	clear(b.waiting)
	return waiting, unattributed
}

// putBack has what could not be written written the next time.
func (b *strangerBook) putBack(node string, reports []models.StrangerReport) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, r := range reports {
		b.add(node, r)
	}
}

// legible shortens what a stranger says and leaves out what no terminal should get.
func legible(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r >= 0x7f && r < 0xa0 {
			return '?'
		}
		return r
	}, shortened(s))
}

// knownAs is whose an address is by its token: "provider", the ID of a trunk, or empty.
func knownAs(token string) string {
	user, found := strings.CutSuffix(token, "@"+domain)
	if !found {
		return ""
	}
	owner, rest, _ := strings.Cut(user, ".")
	if owner == providerName {
		return providerName
	}
	trunk, _, _ := strings.Cut(rest, ".")
	return trunk
}

// guard writes refused calls and follows the blocks until ctx ends; then it writes once more.
func (s *Syncer) guard(ctx context.Context) {
	ticker := time.NewTicker(guardEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), guardEvery)
			defer cancel()
			s.writeStrangers(last)
			return
		case <-ticker.C:
			s.writeStrangers(ctx)
			s.lookForBlocks(ctx)
		}
	}
}

// writeStrangers writes what waits; what cannot be written waits for the next time.
func (s *Syncer) writeStrangers(ctx context.Context) {
	waiting, unattributed := s.strangers.take()
	if unattributed > 0 {
		s.logger.Warn("refused calls came from more sources than are counted at a time", "calls", unattributed, "most_sources", mostSources)
	}
	for node, reports := range waiting {
		blocks, left, err := s.store.RecordStrangers(ctx, node, reports, s.rules)
		for i := range blocks {
			b := &blocks[i]
			s.logger.Warn("address blocked", "block_id", b.ID, "address", b.Address, "reason", b.Reason, "relapse", b.Relapse, "expires_at", b.ExpiresAt)
		}
		if err != nil {
			s.strangers.putBack(node, left)
			if ctx.Err() == nil {
				s.logger.Error("refused calls not written", "node_id", node, "error", err)
			}
		}
	}
}

// lookForBlocks has the nodes brought up to date where the blocks are not those that were rendered last.
func (s *Syncer) lookForBlocks(ctx context.Context) {
	if len(s.current()) == 0 {
		return
	}
	revision, err := s.store.BlockRevision(ctx)
	if err != nil {
		if ctx.Err() == nil {
			s.logger.Error("blocks not looked at", "error", err)
		}
		return
	}
	if s.catalogue.blocksAt() != revision {
		s.Changed()
	}
}

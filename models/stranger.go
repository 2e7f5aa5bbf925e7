package models

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// MaxStrangers is how many rows, of a source at a node each, are kept; those that were seen last make room for new ones.
const MaxStrangers = 100_000

// strangersAtOnce is how many sources are written in one transaction.
const strangersAtOnce = 200

// StrangerSource is what the calls of an address count for: an IPv4 address itself, of an IPv6 address the /64 that it is in, since whoever has one
// address of that has all of them.
func StrangerSource(ip netip.Addr) string {
	if ip = ip.Unmap().WithZone(""); ip.Is4() {
		return ip.String()
	}
	return netip.PrefixFrom(ip, 64).Masked().String()
}

// StrangerReport is what a node has refused of a source since the last report.
type StrangerReport struct {
	Source        string // of StrangerSource
	Uninvited     int64  // calls from an address that belongs to nobody
	UnknownNumber int64  // calls from a known address to a number that is not its own to call
	FirstAt       time.Time
	LastAt        time.Time
	// Of the last call: the number that it dialled, masked; what it said that it was; and whose the address is, empty for nobody's.
	Number    string
	UserAgent string
	KnownAs   string
}

// Stranger is what a source did at a node since it was first seen there.
type Stranger struct {
	Source        string `gorm:"primaryKey"`
	NodeID        string `gorm:"primaryKey"`
	Uninvited     int64
	UnknownNumber int64
	FirstSeenAt   time.Time `gorm:"serializer:moment"`
	LastSeenAt    time.Time `gorm:"serializer:moment"`
	Number        string
	UserAgent     string
	KnownAs       string
	WindowAt      time.Time `gorm:"serializer:moment"`
	WindowCount   int64
}

// TableName implements gorm's schema.Tabler.
func (Stranger) TableName() string { return "strangers" }

// BlockRules say when an address is blocked by itself.
type BlockRules struct {
	// After is how many uninvited calls within Window block their source; 0: none do. A window begins with the first call in it.
	After  int64
	Window time.Duration
	// For is how long the first block of an address lasts. Each one after that, of those within RelapseMemory that nobody lifted, lasts twice as
	// long as the one before, at most Longest.
	For, Longest time.Duration
	// Providers are the networks of the operator's providers, which are never blocked.
	Providers []netip.Prefix
}

// RelapseMemory is for how long an automatic block counts when the address is blocked again.
const RelapseMemory = 30 * 24 * time.Hour

// duration is how long a block lasts that has so many before it.
func (r *BlockRules) duration(relapse int64) time.Duration {
	d := r.For
	for range relapse {
		if d >= r.Longest/2 {
			return r.Longest
		}
		d *= 2
	}
	return min(d, r.Longest)
}

// RecordStrangers adds to what the sources did at a node, and blocks those that the rules say. It returns the blocks that it made. Sources that the rules
// would block, were they not protected, are left alone. On an error the reports that are returned were not stored.
func (s *Store) RecordStrangers(ctx context.Context, nodeID string, reports []StrangerReport, rules BlockRules) (blocks []Block, left []StrangerReport, err error) {
	reports = slices.Clone(reports)
	// In one order, so that no two transactions wait for each other.
	slices.SortFunc(reports, func(a, b StrangerReport) int { return strings.Compare(a.Source, b.Source) })
	for len(reports) > 0 {
		part := reports[:min(len(reports), strangersAtOnce)]
		var made []Block
		err := s.InTx(ctx, func(tx *Store) (err error) {
			made, err = tx.recordStrangers(ctx, nodeID, part, rules)
			return err
		})
		if err != nil {
			return blocks, reports, err
		}
		blocks, reports = append(blocks, made...), reports[len(part):]
	}
	return blocks, nil, nil
}

func (s *Store) recordStrangers(ctx context.Context, nodeID string, reports []StrangerReport, rules BlockRules) ([]Block, error) {
	now := micros(s.Now())
	args := make([]any, 0, 11*len(reports))
	suspects := map[string]time.Time{} // with their first call in this report
	for i := range reports {
		r := &reports[i]
		args = append(args, r.Source, nodeID, r.Uninvited, r.UnknownNumber, micros(r.FirstAt), micros(r.LastAt), r.Number, r.UserAgent, r.KnownAs, now, r.Uninvited)
		if r.Uninvited > 0 && rules.After > 0 {
			suspects[r.Source] = r.FirstAt
		}
	}
	if len(suspects) > 0 {
		// Before any row of strangers, as LiftBlock does: then no two transactions wait for each other.
		if err := s.lock(ctx, "blocks"); err != nil {
			return nil, err
		}
	}
	since := now - rules.Window.Microseconds()
	args = append(args, since, since)
	err := s.write(ctx).Exec(`INSERT INTO strangers
		(source, node_id, uninvited, unknown_number, first_seen_at, last_seen_at, number, user_agent, known_as, window_at, window_count) VALUES `+
		tuples(len(reports), "(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)")+`
		ON CONFLICT (source, node_id) DO UPDATE SET
			uninvited = strangers.uninvited + excluded.uninvited, unknown_number = strangers.unknown_number + excluded.unknown_number,
			first_seen_at = CASE WHEN excluded.first_seen_at < strangers.first_seen_at THEN excluded.first_seen_at ELSE strangers.first_seen_at END,
			last_seen_at = CASE WHEN excluded.last_seen_at > strangers.last_seen_at THEN excluded.last_seen_at ELSE strangers.last_seen_at END,
			number = excluded.number, user_agent = excluded.user_agent, known_as = excluded.known_as,
			window_count = CASE WHEN strangers.window_at <= ? THEN excluded.window_count ELSE strangers.window_count + excluded.window_count END,
			window_at = CASE WHEN strangers.window_at <= ? THEN excluded.window_at ELSE strangers.window_at END`, args...).Error
	if err != nil {
		return nil, explain(err, "count the refused calls of node %q", nodeID)
	}
	if err := s.makeRoomForStrangers(ctx); err != nil {
		return nil, err
	}
	if err := s.forgiveStrangers(ctx, suspects); err != nil || len(suspects) == 0 {
		return nil, err
	}
	var over []string
	err = s.write(ctx).Raw("SELECT source FROM strangers WHERE source IN ? AND window_at > ? GROUP BY source HAVING SUM(window_count) >= ? ORDER BY source",
		slices.Sorted(maps.Keys(suspects)), since, rules.After).Scan(&over).Error
	if err != nil || len(over) == 0 {
		return nil, explain(err, "count the calls of strangers")
	}
	return s.blockStrangers(ctx, over, rules)
}

// forgiveStrangers drops those of the suspects whose block was lifted after their first call in the report: what they did before counts no more, also
// where it is written late.
func (s *Store) forgiveStrangers(ctx context.Context, suspects map[string]time.Time) error {
	if len(suspects) == 0 {
		return nil
	}
	var lifted []Block
	err := s.write(ctx).Where("address IN ? AND ended_by <> '' AND ended_at > ?", slices.Sorted(maps.Keys(suspects)),
		micros(slices.MinFunc(slices.Collect(maps.Values(suspects)), time.Time.Compare))).Find(&lifted).Error
	if err != nil {
		return explain(err, "look for lifted blocks")
	}
	for i := range lifted {
		first, found := suspects[lifted[i].Address]
		if !found || !lifted[i].EndedAt.After(first) {
			continue
		}
		delete(suspects, lifted[i].Address)
		if err := s.write(ctx).Exec("UPDATE strangers SET window_count = 0 WHERE source = ?", lifted[i].Address).Error; err != nil {
			return explain(err, "begin to count anew for %s", lifted[i].Address)
		}
	}
	return nil
}

// makeRoomForStrangers keeps the table within MaxStrangers.
func (s *Store) makeRoomForStrangers(ctx context.Context) error {
	var rows int64
	if err := s.write(ctx).Raw("SELECT COUNT(*) FROM strangers").Row().Scan(&rows); err != nil {
		return explain(err, "count strangers")
	}
	if rows <= s.strangersKept {
		return nil
	}
	err := s.write(ctx).Exec(`DELETE FROM strangers WHERE (source, node_id) IN
		(SELECT source, node_id FROM strangers ORDER BY last_seen_at, source, node_id LIMIT ?)`, rows-s.strangersKept).Error
	return explain(err, "make room for strangers")
}

// blockStrangers blocks the sources that may be blocked, under the lock.
func (s *Store) blockStrangers(ctx context.Context, sources []string, rules BlockRules) ([]Block, error) {
	protected, err := s.protections(ctx, rules.Providers)
	if err != nil {
		return nil, err
	}
	var made []Block
	for _, source := range sources {
		prefix, normal, err := ParseInboundIP(source)
		if err != nil {
			return nil, err
		}
		if refusedBy(protected, prefix) != nil {
			continue
		}
		block, err := s.blockStranger(ctx, prefix, normal, rules)
		if errors.Is(err, ErrTooManyBlocks) {
			return made, nil
		}
		if err != nil {
			return nil, err
		}
		if block != nil {
			made = append(made, *block)
		}
	}
	return made, nil
}

// blockStranger blocks a source, unless a block holds all of it.
func (s *Store) blockStranger(ctx context.Context, prefix netip.Prefix, normal string, rules BlockRules) (*Block, error) {
	now := s.Now()
	first, last := addressKey(prefix.Addr()), addressKey(lastAddress(prefix))
	var covered bool
	err := s.write(ctx).Raw("SELECT EXISTS (SELECT 1 FROM blocks WHERE "+liveBlock+" AND first_address <= ? AND last_address >= ?)", micros(now), first, last).
		Row().Scan(&covered)
	if err != nil {
		return nil, explain(err, "look for the block of %s", normal)
	}
	if covered { // its calls were on their way when it was made
		err := s.write(ctx).Exec("UPDATE strangers SET window_count = 0 WHERE source = ?", normal).Error
		return nil, explain(err, "begin to count anew for %s", normal)
	}
	row := Block{Address: normal, Origin: BlockAutomatic, Reason: fmt.Sprintf("%d uninvited calls within %s", rules.After, rules.Window)}
	err = s.write(ctx).Raw("SELECT COUNT(*) FROM blocks WHERE address = ? AND origin = ? AND ended_by = '' AND created_at > ?",
		normal, BlockAutomatic, micros(now.Add(-RelapseMemory))).Row().Scan(&row.Relapse)
	if err != nil {
		return nil, explain(err, "count the blocks of %s", normal)
	}
	until := now.Add(rules.duration(row.Relapse))
	row.ExpiresAt = &until
	if err := s.insertBlock(ctx, &row, prefix); err != nil {
		return nil, err
	}
	err = s.write(ctx).Exec("UPDATE strangers SET window_count = 0 WHERE source = ?", normal).Error
	return &row, explain(err, "begin to count anew for %s", normal)
}

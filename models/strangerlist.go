package models

import (
	"context"
	"fmt"
	"net/netip"
	"time"
)

// Orders of ListStrangers.
const (
	StrangersByLastSeen = "last_seen"
	StrangersByCount    = "count"
)

// StrangerFilter narrows ListStrangers; zero fields do not.
type StrangerFilter struct {
	// Order is StrangersByLastSeen or StrangersByCount, the latest or the most first.
	Order string
	// Source is one source, NodeID what happened at one node.
	Source netip.Addr
	NodeID string
	// Known is whether the address is somebody's: those that called numbers which are not theirs, or those whom nobody knows.
	Known *bool
	// SeenAfter includes the moment itself.
	SeenAfter *time.Time
}

// StrangerSum is what a source did at all nodes together.
type StrangerSum struct {
	Source        string
	Uninvited     int64
	UnknownNumber int64
	FirstSeenAt   time.Time
	LastSeenAt    time.Time
	// Of the last call.
	Number, UserAgent, KnownAs string
	// Nodes is what it did at each, the last one last.
	Nodes []Stranger
	// Block is the one in force that holds the source, nil where there is none.
	Block *Block
}

// ListStrangers returns a page of sources of refused calls, and the cursor of the next page.
func (s *Store) ListStrangers(ctx context.Context, filter StrangerFilter, page Page) ([]StrangerSum, string, error) {
	key := "MAX(last_seen_at)"
	if filter.Order == StrangersByCount {
		key = "CAST(SUM(uninvited + unknown_number) AS BIGINT)"
	}
	where, args := "1 = 1", []any{}
	and := func(condition string, value any) { where, args = where+" AND "+condition, append(args, value) }
	if filter.Source.IsValid() {
		and("source = ?", StrangerSource(filter.Source))
	}
	if filter.NodeID != "" {
		and("node_id = ?", filter.NodeID)
	}
	if filter.SeenAfter != nil {
		and("last_seen_at >= ?", micros(*filter.SeenAfter))
	}
	if filter.Known != nil && *filter.Known {
		and("known_as <> ?", "")
	} else if filter.Known != nil {
		and("known_as = ?", "")
	}
	having := ""
	if page.Cursor != "" {
		at, source, err := decodeCursor(page.Cursor)
		if err != nil {
			return nil, "", err
		}
		having, args = " HAVING ("+key+", source) < (?, ?)", append(args, at, source)
	}
	var sums []struct {
		Source                          string
		Place, Uninvited, UnknownNumber int64
		FirstSeen, LastSeen             int64
	}
	err := s.read(ctx).Raw("SELECT source, "+key+` AS place, CAST(SUM(uninvited) AS BIGINT) AS uninvited, CAST(SUM(unknown_number) AS BIGINT) AS unknown_number,
		MIN(first_seen_at) AS first_seen, MAX(last_seen_at) AS last_seen FROM strangers WHERE `+where+" GROUP BY source"+having+
		" ORDER BY 2 DESC, source DESC LIMIT ?", append(args, page.limit()+1)...).Scan(&sums).Error
	if err != nil {
		return nil, "", explain(err, "list strangers")
	}
	next := ""
	if limit := page.limit(); len(sums) > limit {
		sums = sums[:limit]
		next = encodeCursor(time.UnixMicro(sums[limit-1].Place), sums[limit-1].Source)
	}
	found := make([]StrangerSum, len(sums))
	sources := make([]string, len(sums))
	places := make(map[string]*StrangerSum, len(sums))
	for i, sum := range sums {
		found[i] = StrangerSum{
			Source: sum.Source, Uninvited: sum.Uninvited, UnknownNumber: sum.UnknownNumber,
			FirstSeenAt: time.UnixMicro(sum.FirstSeen).UTC(), LastSeenAt: time.UnixMicro(sum.LastSeen).UTC(),
		}
		sources[i], places[sum.Source] = sum.Source, &found[i]
	}
	return found, next, s.strangerDetails(ctx, sources, places, filter.NodeID)
}

// strangerDetails fills in what each node says, and who is blocked.
func (s *Store) strangerDetails(ctx context.Context, sources []string, places map[string]*StrangerSum, nodeID string) error {
	if len(sources) == 0 {
		return nil
	}
	var rows []Stranger
	query := s.read(ctx).Where("source IN ?", sources)
	if nodeID != "" {
		query = query.Where("node_id = ?", nodeID)
	}
	if err := query.Order("last_seen_at, node_id").Find(&rows).Error; err != nil {
		return explain(err, "read strangers")
	}
	for _, row := range rows {
		sum := places[row.Source]
		sum.Number, sum.UserAgent, sum.KnownAs = row.Number, row.UserAgent, row.KnownAs
		sum.Nodes = append(sum.Nodes, row)
	}
	// A block is an address or a network; a page of strangers is compared with those that are in force.
	var blocks []Block
	if err := s.read(ctx).Where(liveBlock, micros(s.Now())).Order("id").Find(&blocks).Error; err != nil {
		return explain(err, "read blocks")
	}
	for source, sum := range places {
		prefix, _, err := ParseInboundIP(source)
		if err != nil {
			return fmt.Errorf("read strangers: %w", err)
		}
		first, last := addressKey(prefix.Addr()), addressKey(lastAddress(prefix))
		for i := range blocks {
			b := &blocks[i]
			if b.FirstAddress <= first && b.LastAddress >= last && (sum.Block == nil || b.FirstAddress > sum.Block.FirstAddress) {
				sum.Block = b
			}
		}
	}
	return nil
}

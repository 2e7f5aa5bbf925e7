package models

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"
)

// ShardDigits is how many of a number's last digits name its shard: the part of all numbers that is rendered, and read again, at a time.
const ShardDigits = 3

// shardOf is a number's shard as SQL says it; the index dids_shard is on this expression.
const shardOf = "substr(number_e164, length(number_e164) - 2)"

// shardsPerQuery bounds how many numbers are in memory at a time: a thousandth of all are in a shard.
const shardsPerQuery = 10

// ShardOf returns the shard of an E.164 number.
func ShardOf(number string) string { return number[max(0, len(number)-ShardDigits):] }

// touchDIDs notes that numbers are created, changed or deleted in the transaction: the revision of their shards grows with its commit. All of a
// transaction's shards are written at its end and in order, so that no two transactions wait for each other.
func (s *Store) touchDIDs(ctx context.Context, numbers ...string) {
	if s.tx.shards == nil {
		s.tx.shards = map[string]struct{}{}
		s.atEnd(func() error {
			shards := slices.Sorted(maps.Keys(s.tx.shards))
			s.tx.shards = nil
			return s.growShards(ctx, shards)
		})
	}
	for _, number := range numbers {
		s.tx.shards[ShardOf(number)] = struct{}{}
	}
}

func (s *Store) growShards(ctx context.Context, shards []string) error {
	for some := range slices.Chunk(shards, rowsLimit) {
		args := make([]any, len(some))
		for i, shard := range some {
			args[i] = shard
		}
		err := s.write(ctx).Exec("INSERT INTO did_shards (shard, revision) VALUES "+tuples(len(some), "(?, 1)")+
			" ON CONFLICT (shard) DO UPDATE SET revision = did_shards.revision + 1", args...).Error
		if err != nil {
			return explain(err, "note which numbers changed")
		}
	}
	return nil
}

// DIDShards returns the revision of every shard that has or had numbers. It grows with each transaction that creates, changes or deletes one
// of them, by whichever process.
func (s *Store) DIDShards(ctx context.Context) (map[string]int64, error) {
	var rows []struct {
		Shard    string
		Revision int64
	}
	if err := s.read(ctx).Raw("SELECT shard, revision FROM did_shards").Scan(&rows).Error; err != nil {
		return nil, explain(err, "revisions of numbers")
	}
	revisions := make(map[string]int64, len(rows))
	for _, row := range rows {
		revisions[row.Shard] = row.Revision
	}
	return revisions, nil
}

// DIDSum is a fingerprint of a shard: how many numbers it has, and the sum of when they were last changed. It finds what DIDShards cannot
// know of, rows that a process of an older version or an operator's own SQL has written, for the price of a pass over all numbers.
type DIDSum struct{ Count, Sum int64 }

// sumModulus keeps the sum of many times in microseconds within 64 bits.
const sumModulus = 1_000_000_007

// Add counts a number that was last changed at the time.
func (d *DIDSum) Add(updated time.Time) {
	d.Count++
	d.Sum += micros(updated) % sumModulus
}

// DIDSums returns the fingerprint of every shard that has numbers.
func (s *Store) DIDSums(ctx context.Context) (map[string]DIDSum, error) {
	var rows []struct {
		Shard      string
		Count, Sum int64
	}
	err := s.read(ctx).Raw("SELECT " + shardOf + " AS shard, COUNT(*) AS count, CAST(SUM(updated_at % " + fmt.Sprint(sumModulus) + ") AS BIGINT) AS sum" +
		" FROM dids WHERE deleted_at IS NULL GROUP BY " + shardOf).Scan(&rows).Error
	if err != nil {
		return nil, explain(err, "fingerprints of numbers")
	}
	sums := make(map[string]DIDSum, len(rows))
	for _, row := range rows {
		sums[row.Shard] = DIDSum{Count: row.Count, Sum: row.Sum}
	}
	return sums, nil
}

// DIDsOfShards hands the undeleted numbers of each of the shards to fn, ordered by number, one call for each shard: also for one without
// numbers. The slice is fn's only until it returns.
func (s *Store) DIDsOfShards(ctx context.Context, shards []string, fn func(shard string, dids []DID) error) error {
	for some := range slices.Chunk(shards, shardsPerQuery) {
		found, err := s.someShards(ctx, some)
		if err != nil {
			return err
		}
		for _, shard := range some {
			if err := fn(shard, found[shard]); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *Store) someShards(ctx context.Context, shards []string) (found map[string][]DID, err error) {
	// Not by gorm: of a million rows it takes most of the time.
	rows, err := s.read(ctx).Raw("SELECT id, customer_id, application_id, number_e164, provider, status, route_mode, sip_uri, reject_code, created_at, updated_at"+
		" FROM dids WHERE deleted_at IS NULL AND "+shardOf+" IN ? ORDER BY "+shardOf+", number_e164", shards).Rows()
	if err != nil {
		return nil, explain(err, "read numbers")
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	found = make(map[string][]DID, len(shards))
	for rows.Next() {
		var d DID
		var created, updated int64
		err := rows.Scan(&d.ID, &d.CustomerID, &d.ApplicationID, &d.NumberE164, &d.Provider, &d.Status, &d.RouteMode, &d.SIPURI, &d.RejectCode, &created, &updated)
		if err != nil {
			return nil, explain(err, "read numbers")
		}
		d.CreatedAt, d.UpdatedAt = time.UnixMicro(created).UTC(), time.UnixMicro(updated).UTC()
		shard := ShardOf(d.NumberE164)
		found[shard] = append(found[shard], d)
	}
	return found, explain(rows.Err(), "read numbers")
}

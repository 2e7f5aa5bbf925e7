package models

import (
	"context"
	"fmt"
)

// RoutingRevision is a text that changes whenever a trunk or a DID is created, changed or deleted, by whichever process. It
// costs one pass over two columns, so that a poll need not read all the rows to learn that nothing happened. The sum is taken
// of remainders, since a sum of many times in microseconds has no room in 64 bits.
func (s *Store) RoutingRevision(ctx context.Context) (string, error) {
	var row struct {
		Trunks, TrunkMax, TrunkSum int64
		DIDs                       int64 `gorm:"column:dids"`
		DIDMax                     int64 `gorm:"column:did_max"`
		DIDSum                     int64 `gorm:"column:did_sum"`
	}
	err := s.read(ctx).Raw(`SELECT t.trunks, t.trunk_max, t.trunk_sum, d.dids, d.did_max, d.did_sum FROM
		(SELECT COUNT(*) AS trunks, COALESCE(MAX(updated_at), 0) AS trunk_max, CAST(COALESCE(SUM(updated_at % 1000000007), 0) AS BIGINT) AS trunk_sum FROM trunks) t,
		(SELECT COUNT(*) AS dids, COALESCE(MAX(updated_at), 0) AS did_max, CAST(COALESCE(SUM(updated_at % 1000000007), 0) AS BIGINT) AS did_sum FROM dids) d`).
		Scan(&row).Error
	if err != nil {
		return "", explain(err, "revision of trunks and DIDs")
	}
	return fmt.Sprintf("%d.%d.%d.%d.%d.%d", row.Trunks, row.TrunkMax, row.TrunkSum, row.DIDs, row.DIDMax, row.DIDSum), nil
}

package models

import (
	"context"
	"fmt"
)

// TrunkRevision is a text that changes whenever a trunk is created, changed or deleted, by whichever process, so that a poll need not read
// all the rows to learn that nothing happened. The sum is taken of remainders, since a sum of many times in microseconds has no room in 64
// bits. DIDShards is the same of numbers.
func (s *Store) TrunkRevision(ctx context.Context) (string, error) {
	var row struct{ Trunks, TrunkMax, TrunkSum int64 }
	err := s.read(ctx).Raw(`SELECT COUNT(*) AS trunks, COALESCE(MAX(updated_at), 0) AS trunk_max,
		CAST(COALESCE(SUM(updated_at % ` + fmt.Sprint(sumModulus) + `), 0) AS BIGINT) AS trunk_sum FROM trunks`).Scan(&row).Error
	if err != nil {
		return "", explain(err, "revision of trunks")
	}
	return fmt.Sprintf("%d.%d.%d", row.Trunks, row.TrunkMax, row.TrunkSum), nil
}

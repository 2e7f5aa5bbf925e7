package models

import (
	"context"
	"slices"
	"strings"
	"time"
)

// Usage is what a controller reports of a bucket of requests: how many were spent in its round, and in the round before.
type Usage struct {
	Bucket     string
	Controller string
	Round      int64
	Used       int64
	UsedBefore int64
}

const (
	// usageWindow is how old a report may be that others are told of, usageKept how long it is kept.
	usageWindow, usageKept = 10 * time.Second, time.Minute
	// usageAtOnce is how many reports one statement writes.
	usageAtOnce = 100
)

// ShareUsage stores what a controller has spent in a round, and returns the latest reports of the others that are at most ten seconds old. Rounds of a
// controller only grow. The clock is the database's.
func (s *Store) ShareUsage(ctx context.Context, controller string, spent []Usage) ([]Usage, error) {
	if len(spent) > 0 {
		err := s.aside(ctx, func(tx *Store) error { return tx.reportUsage(ctx, controller, spent) })
		if err != nil {
			return nil, err
		}
	}
	now, err := s.leaseNow(ctx)
	if err != nil {
		return nil, err
	}
	var others []Usage
	err = s.read(ctx).Raw("SELECT bucket, controller, round, used, used_before FROM api_usage WHERE updated_at > ? AND controller <> ?",
		now-usageWindow.Microseconds(), controller).Scan(&others).Error
	return others, explain(err, "read spent requests")
}

func (s *Store) reportUsage(ctx context.Context, controller string, spent []Usage) error {
	now, err := s.leaseNow(ctx)
	if err != nil {
		return err
	}
	rows := slices.SortedFunc(slices.Values(spent), func(a, b Usage) int { return strings.Compare(a.Bucket, b.Bucket) })
	for part := range slices.Chunk(rows, usageAtOnce) {
		var values []any
		for _, u := range part {
			values = append(values, u.Bucket, controller, u.Round, u.Used, u.UsedBefore, now)
		}
		err := s.write(ctx).Exec("INSERT INTO api_usage (bucket, controller, round, used, used_before, updated_at) VALUES "+
			strings.TrimSuffix(strings.Repeat("(?, ?, ?, ?, ?, ?), ", len(part)), ", ")+
			` ON CONFLICT (bucket, controller) DO UPDATE SET round = excluded.round, used = excluded.used, used_before = excluded.used_before,
			updated_at = excluded.updated_at`, values...).Error
		if err != nil {
			return explain(err, "report spent requests")
		}
	}
	err = s.write(ctx).Exec("DELETE FROM api_usage WHERE controller = ? AND updated_at < ?", controller, now-usageKept.Microseconds()).Error
	return explain(err, "forget spent requests")
}

// ForgetUsage deletes the reports of controllers that are gone.
func (s *Store) ForgetUsage(ctx context.Context) error {
	return s.aside(ctx, func(tx *Store) error {
		now, err := tx.leaseNow(ctx)
		if err != nil {
			return err
		}
		return explain(tx.write(ctx).Exec("DELETE FROM api_usage WHERE updated_at < ?", now-10*usageKept.Microseconds()).Error, "forget spent requests")
	})
}

package models

import (
	"context"
	"time"
)

// Endpoint is the health of an application's webhook_url. FailingSince is the first failure after the last success.
type Endpoint struct {
	ApplicationID       string `gorm:"primaryKey"`
	ConsecutiveFailures int
	FailingSince        *time.Time `gorm:"serializer:moment"`
	DisabledAt          *time.Time `gorm:"serializer:moment"`
	DisabledReason      string
	// PulledAt is the moment to which the streams that waited were pulled forward last.
	PulledAt *time.Time `gorm:"serializer:moment"`
}

// TableName implements gorm's schema.Tabler.
func (Endpoint) TableName() string { return "webhook_endpoints" }

// EndpointState returns the health of an application's endpoint, or ErrNotFound.
func (s *Store) EndpointState(ctx context.Context, applicationID string) (*Endpoint, error) {
	var row Endpoint
	if err := s.read(ctx).Where("application_id = ?", applicationID).Take(&row).Error; err != nil {
		return nil, explain(err, "webhook endpoint %q", applicationID)
	}
	return &row, nil
}

// EnableEndpoint forgets an endpoint's failures, enables it and makes what waits for it due.
func (s *Store) EnableEndpoint(ctx context.Context, applicationID string) error {
	return s.InTx(ctx, func(tx *Store) error {
		result := tx.write(ctx).Exec(`UPDATE webhook_endpoints SET consecutive_failures = 0, failing_since = NULL, disabled_at = NULL,
			disabled_reason = '' WHERE application_id = ?`, applicationID)
		if err := changedOne(result, "enable webhook endpoint %q", applicationID); err != nil {
			return err
		}
		return tx.pullForward(ctx, applicationID, tx.Now())
	})
}

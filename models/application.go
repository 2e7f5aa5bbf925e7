package models

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"gorm.io/gorm/clause"
)

// Application says who answers for a call: where its actions come from and where its events go.
type Application struct {
	ID          string
	CustomerID  string
	Name        string
	AnswerURL   string
	WebhookURL  string
	FallbackURL string
	// WebhookSecret signs events and answer_url requests. After a rotation PreviousSecret signs too, until
	// PreviousSecretUntil.
	WebhookSecret       Secret     `gorm:"-"`
	PreviousSecret      Secret     `gorm:"-"`
	PreviousSecretUntil *time.Time `gorm:"serializer:moment"`
	// FallbackActions are performed when no URL gives any, WaitActions while one is slow: canonical JSON lists, nil for none.
	FallbackActions json.RawMessage `gorm:"serializer:optional"`
	WaitActions     json.RawMessage `gorm:"serializer:optional"`
	// BalanceNoticeURL is the sound that both sides hear before a call ends for want of money, empty for none.
	BalanceNoticeURL string
	// EventKinds are the kinds of events that the webhook_url is told (see Wanted); nil is the default set.
	EventKinds []string `gorm:"serializer:optional"`
	// Limits are the customer's own, within those that the operator sets.
	Limits    CallLimits `gorm:"embedded"`
	CreatedAt time.Time  `gorm:"serializer:moment;autoCreateTime:false"`
	UpdatedAt time.Time  `gorm:"serializer:moment;autoUpdateTime:false"`
	DeletedAt *time.Time `gorm:"serializer:moment"`
}

// applicationRow is an application as stored: its secrets sealed.
type applicationRow struct {
	Application          `gorm:"embedded"`
	SealedWebhookSecret  string `gorm:"column:webhook_secret"`
	SealedPreviousSecret string `gorm:"column:previous_secret"`
}

const applicationTable = "applications"

// TableName implements gorm's schema.Tabler.
func (applicationRow) TableName() string { return applicationTable }

func (s *Store) sealApplication(app *Application) *applicationRow {
	return &applicationRow{
		Application:          *app,
		SealedWebhookSecret:  s.sealer.seal(applicationTable, "webhook_secret", app.ID, app.WebhookSecret),
		SealedPreviousSecret: s.sealer.seal(applicationTable, "previous_secret", app.ID, app.PreviousSecret),
	}
}

func (s *Store) openApplication(row *applicationRow) (*Application, error) {
	app := row.Application
	var err error
	if app.WebhookSecret, err = s.sealer.open(applicationTable, "webhook_secret", app.ID, row.SealedWebhookSecret); err != nil {
		return nil, err
	}
	if app.PreviousSecret, err = s.sealer.open(applicationTable, "previous_secret", app.ID, row.SealedPreviousSecret); err != nil {
		return nil, err
	}
	return &app, nil
}

// CreateApplication inserts an application with its webhook endpoint and fills ID and times.
func (s *Store) CreateApplication(ctx context.Context, app *Application) error {
	return s.InTx(ctx, func(tx *Store) error {
		row := *app
		if row.ID == "" {
			row.ID = NewID(PrefixApplication)
		}
		row.CreatedAt = tx.Now()
		row.UpdatedAt, row.DeletedAt = row.CreatedAt, nil
		row.PreviousSecretUntil = cut(row.PreviousSecretUntil)
		if err := tx.write(ctx).Create(tx.sealApplication(&row)).Error; err != nil {
			return explain(err, "create application %q", row.Name)
		}
		if err := tx.write(ctx).Create(&Endpoint{ApplicationID: row.ID}).Error; err != nil {
			return explain(err, "create webhook endpoint of application %q", row.ID)
		}
		*app = row
		return nil
	})
}

// Application returns an undeleted application of a customer, or ErrNotFound.
func (s *Store) Application(ctx context.Context, customerID, id string) (*Application, error) {
	return s.takeApplication(ctx, id, "id = ? AND customer_id = ? AND deleted_at IS NULL", id, customerID)
}

// ApplicationByID returns an application whosesoever it is, deleted or not (see DeletedAt): events of its last calls are
// still to be delivered. Never answer a customer's request from it.
func (s *Store) ApplicationByID(ctx context.Context, id string) (*Application, error) {
	return s.takeApplication(ctx, id, "id = ?", id)
}

func (s *Store) takeApplication(ctx context.Context, id, where string, args ...any) (*Application, error) {
	var row applicationRow
	if err := s.read(ctx).Where(where, args...).Take(&row).Error; err != nil {
		return nil, explain(err, "application %q", id)
	}
	return s.openApplication(&row)
}

// ListApplications returns a page of a customer's undeleted applications, newest first, and the cursor of the next page
// (empty on the last).
func (s *Store) ListApplications(ctx context.Context, customerID string, page Page) ([]Application, string, error) {
	query := s.read(ctx).Where("customer_id = ? AND deleted_at IS NULL", customerID)
	rows, next, err := paged(query, page, func(r *applicationRow) (time.Time, string) { return r.CreatedAt, r.ID })
	if err != nil {
		return nil, "", explain(err, "list applications")
	}
	apps := make([]Application, 0, len(rows))
	for i := range rows {
		app, err := s.openApplication(&rows[i])
		if err != nil {
			return nil, "", err
		}
		apps = append(apps, *app)
	}
	return apps, next, nil
}

// ApplicationsWithWebhook returns the IDs of a customer's undeleted applications that have a webhook_url, oldest first.
func (s *Store) ApplicationsWithWebhook(ctx context.Context, customerID string) ([]string, error) {
	var ids []string
	err := s.read(ctx).Raw("SELECT id FROM applications WHERE customer_id = ? AND deleted_at IS NULL AND webhook_url <> '' ORDER BY created_at, id",
		customerID).Scan(&ids).Error
	return ids, explain(err, "read applications of customer %q", customerID)
}

// UpdateApplication writes name, URLs, secrets, lists of actions, kinds of events and limits of an undeleted application, found by ID and CustomerID.
func (s *Store) UpdateApplication(ctx context.Context, app *Application) error {
	return s.InTx(ctx, func(tx *Store) error {
		row := *app
		row.UpdatedAt = tx.Now()
		row.PreviousSecretUntil = cut(row.PreviousSecretUntil)
		result := tx.write(ctx).Model(&applicationRow{}).
			Where("id = ? AND customer_id = ? AND deleted_at IS NULL", row.ID, row.CustomerID).
			Select(columnsWith("name", "answer_url", "webhook_url", "fallback_url", "webhook_secret", "previous_secret", "previous_secret_until",
				"fallback_actions", "wait_actions", "balance_notice_url", "event_kinds", "updated_at")).
			Updates(tx.sealApplication(&row))
		if err := changedOne(result, "update application %q", row.ID); err != nil {
			return err
		}
		*app = row
		return nil
	})
}

// RotateWebhookSecret makes newSecret the secret; the one before signs too for the overlap, and not at all where overlap is
// zero.
func (s *Store) RotateWebhookSecret(ctx context.Context, customerID, id string, newSecret Secret, overlap time.Duration) error {
	return s.InTx(ctx, func(tx *Store) error {
		app, err := tx.EditApplication(ctx, customerID, id)
		if err != nil {
			return err
		}
		app.PreviousSecret, app.PreviousSecretUntil = "", nil
		if overlap > 0 {
			until := tx.Now().Add(overlap)
			app.PreviousSecret, app.PreviousSecretUntil = app.WebhookSecret, &until
		}
		app.WebhookSecret = newSecret
		return tx.UpdateApplication(ctx, app)
	})
}

// DeleteApplication marks an application deleted and revokes its keys. ErrInUse while a live call, a DID or a trunk points
// at it.
func (s *Store) DeleteApplication(ctx context.Context, customerID, id string) error {
	return s.InTx(ctx, func(tx *Store) error {
		now := micros(tx.Now())
		// Marked first: whoever is about to use it has pinned it and is waited for, or finds it gone (pin).
		result := tx.write(ctx).Exec("UPDATE applications SET deleted_at = ?, updated_at = ? WHERE id = ? AND customer_id = ? AND deleted_at IS NULL",
			now, now, id, customerID)
		if err := changedOne(result, "delete application %q", id); err != nil {
			return err
		}
		var used bool
		err := tx.write(ctx).Raw(`SELECT EXISTS (SELECT 1 FROM calls WHERE application_id = ? AND status IN `+liveStatuses+`)
			OR EXISTS (SELECT 1 FROM dids WHERE application_id = ? AND deleted_at IS NULL)
			OR EXISTS (SELECT 1 FROM trunks WHERE application_id = ? AND deleted_at IS NULL)`, id, id, id).Row().Scan(&used)
		if err != nil {
			return explain(err, "look for users of application %q", id)
		}
		if used {
			return fmt.Errorf("delete application %q: %w", id, ErrInUse)
		}
		err = tx.write(ctx).Exec("UPDATE api_keys SET revoked_at = ? WHERE application_id = ? AND revoked_at IS NULL", now, id).Error
		return explain(err, "revoke keys of application %q", id)
	})
}

// pin makes sure that a row which a new one will point at is the customer's and undeleted, and keeps it so until the
// transaction ends: a foreign key alone does not, as deleting only marks. ErrNotFound otherwise.
func (s *Store) pin(ctx context.Context, table, customerID string, id *string) error {
	if id == nil {
		return nil
	}
	var found string
	// SQLite has one writer and no row locks; its dialect leaves the clause out.
	err := s.write(ctx).Table(table).Clauses(clause.Locking{Strength: clause.LockingStrengthShare}).Select("id").
		Where("id = ? AND customer_id = ? AND deleted_at IS NULL", *id, customerID).Take(&found).Error
	return explain(err, "row %q of %s", *id, table)
}

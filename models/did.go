package models

import (
	"context"
	"fmt"
	"time"
)

// Statuses and route modes of a DID.
const (
	DIDActive    = "active"
	DIDSuspended = "suspended"

	RouteWebhook = "webhook"
	RouteSIP     = "sip"
	RouteReject  = "reject"
)

// DID is a phone number that routes inbound calls: to its application (webhook), to a SIP address, or refuses them with
// RejectCode (a SIP status).
type DID struct {
	ID            string
	CustomerID    string
	ApplicationID *string
	NumberE164    string `gorm:"column:number_e164"`
	Provider      string
	Status        string
	RouteMode     string
	SIPURI        string `gorm:"column:sip_uri"`
	RejectCode    int
	CreatedAt     time.Time  `gorm:"serializer:moment;autoCreateTime:false"`
	UpdatedAt     time.Time  `gorm:"serializer:moment;autoUpdateTime:false"`
	DeletedAt     *time.Time `gorm:"serializer:moment"`
}

// TableName implements gorm's schema.Tabler.
func (DID) TableName() string { return "dids" }

// CreateDID inserts a number and fills ID, times, status (active) and route mode (webhook). ErrNumberExists where an
// undeleted DID of any customer has the number.
func (s *Store) CreateDID(ctx context.Context, did *DID) error {
	return s.InTx(ctx, func(tx *Store) error {
		row := *did
		if row.ID == "" {
			row.ID = NewID(PrefixDID)
		}
		if row.Status == "" {
			row.Status = DIDActive
		}
		if row.RouteMode == "" {
			row.RouteMode = RouteWebhook
		}
		row.CreatedAt = tx.Now()
		row.UpdatedAt, row.DeletedAt = row.CreatedAt, nil
		if err := tx.pin(ctx, applicationTable, row.CustomerID, row.ApplicationID); err != nil {
			return fmt.Errorf("create DID %q: %w", row.NumberE164, err)
		}
		if err := tx.write(ctx).Create(&row).Error; err != nil {
			return explain(err, "create DID %q", row.NumberE164)
		}
		tx.touchDIDs(ctx, row.NumberE164)
		*did = row
		return nil
	})
}

// DID returns an undeleted DID of a customer, or ErrNotFound.
func (s *Store) DID(ctx context.Context, customerID, id string) (*DID, error) {
	return s.takeDID(ctx, id, "id = ? AND customer_id = ? AND deleted_at IS NULL", id, customerID)
}

// DIDByNumber returns a customer's undeleted DID by its number, or ErrNotFound.
func (s *Store) DIDByNumber(ctx context.Context, customerID, number string) (*DID, error) {
	return s.takeDID(ctx, number, "number_e164 = ? AND customer_id = ? AND deleted_at IS NULL", number, customerID)
}

// RouteDID returns the undeleted DID with the number whosesoever it is, suspended or not: what an inbound call is routed by.
func (s *Store) RouteDID(ctx context.Context, number string) (*DID, error) {
	return s.takeDID(ctx, number, "number_e164 = ? AND deleted_at IS NULL", number)
}

func (s *Store) takeDID(ctx context.Context, what, where string, args ...any) (*DID, error) {
	var row DID
	if err := s.read(ctx).Where(where, args...).Take(&row).Error; err != nil {
		return nil, explain(err, "DID %q", what)
	}
	return &row, nil
}

// ListDIDs returns a page of a customer's undeleted DIDs, newest first, and the cursor of the next page.
func (s *Store) ListDIDs(ctx context.Context, customerID string, page Page) ([]DID, string, error) {
	query := s.read(ctx).Where("customer_id = ? AND deleted_at IS NULL", customerID)
	rows, next, err := paged(query, page, func(d *DID) (time.Time, string) { return d.CreatedAt, d.ID })
	return rows, next, explain(err, "list DIDs")
}

// UpdateDID writes what may change of an undeleted DID, found by ID and CustomerID; the number may not.
func (s *Store) UpdateDID(ctx context.Context, did *DID) error {
	return s.InTx(ctx, func(tx *Store) error {
		row := *did
		row.UpdatedAt = tx.Now()
		if err := tx.pin(ctx, applicationTable, row.CustomerID, row.ApplicationID); err != nil {
			return fmt.Errorf("update DID %q: %w", row.ID, err)
		}
		result := tx.write(ctx).Model(&DID{}).
			Where("id = ? AND customer_id = ? AND deleted_at IS NULL", row.ID, row.CustomerID).
			Select("application_id", "provider", "status", "route_mode", "sip_uri", "reject_code", "updated_at").
			Updates(&row)
		if err := changedOne(result, "update DID %q", row.ID); err != nil {
			return err
		}
		if err := tx.write(ctx).Raw("SELECT number_e164 FROM dids WHERE id = ?", row.ID).Row().Scan(&row.NumberE164); err != nil {
			return explain(err, "update DID %q", row.ID)
		}
		tx.touchDIDs(ctx, row.NumberE164)
		*did = row
		return nil
	})
}

// DeleteDID marks a DID deleted; its number is free again. A call that is on it goes on.
func (s *Store) DeleteDID(ctx context.Context, customerID, id string) error {
	return s.InTx(ctx, func(tx *Store) error {
		now := micros(tx.Now())
		var number string
		err := tx.write(ctx).Raw("UPDATE dids SET deleted_at = ?, updated_at = ? WHERE id = ? AND customer_id = ? AND deleted_at IS NULL RETURNING number_e164",
			now, now, id, customerID).Row().Scan(&number)
		if err != nil {
			return explain(err, "delete DID %q", id)
		}
		tx.touchDIDs(ctx, number)
		return nil
	})
}

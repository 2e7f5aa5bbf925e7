package models

import (
	"context"
	"time"

	"gorm.io/gorm"
)

// AnyCustomer stands for all customers where a method says that it may. It is no ID; a customer's request is never answered with it.
const AnyCustomer = "*"

// ownedBy narrows a query to the rows of a customer, or leaves it as it is for AnyCustomer.
func ownedBy(query *gorm.DB, column, customerID string) *gorm.DB {
	if customerID == AnyCustomer {
		return query
	}
	return query.Where(column+" = ?", customerID)
}

// TrunkFilter narrows FindTrunks; zero fields do not.
type TrunkFilter struct {
	Direction   string
	GatewayName string
	// Active, where not nil, says whether trunks are active.
	Active *bool
}

// FindTrunks returns a page of the undeleted trunks of a customer, or AnyCustomer, that pass the filter, newest first, and the cursor
// of the next page.
func (s *Store) FindTrunks(ctx context.Context, customerID string, filter TrunkFilter, page Page) ([]Trunk, string, error) {
	query := ownedBy(s.read(ctx).Where("deleted_at IS NULL"), "customer_id", customerID)
	if filter.Direction != "" {
		query = query.Where("direction = ?", filter.Direction)
	}
	if filter.GatewayName != "" {
		query = query.Where("gateway_name = ?", filter.GatewayName)
	}
	if filter.Active != nil {
		query = query.Where("is_active = ?", *filter.Active)
	}
	rows, next, err := paged(query, page, func(r *trunkRow) (time.Time, string) { return r.CreatedAt, r.ID })
	if err != nil {
		return nil, "", explain(err, "find trunks")
	}
	trunks, err := s.openTrunks(ctx, rows)
	return trunks, next, err
}

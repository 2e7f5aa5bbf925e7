package models

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"gorm.io/gorm/clause"
)

// What PutDIDs does with a number that exists already.
const (
	// DIDSkip leaves it as it is.
	DIDSkip = "skip"
	// DIDUpdate changes its routing where it is the same customer's.
	DIDUpdate = "update"
	// DIDReassign takes it from another customer as well.
	DIDReassign = "reassign"
)

// DIDResult says what PutDIDs did with a row.
type DIDResult int

// The results. Rows of the last three change nothing.
const (
	DIDCreated DIDResult = iota
	DIDUpdated
	// DIDReassigned: the number was another customer's, whose DID is deleted; the new one has a new ID.
	DIDReassigned
	// DIDUnchanged: the number is the customer's already, and was as the row says or left as it was.
	DIDUnchanged
	DIDTaken         // the number is another customer's
	DIDNoApplication // the application is not there, or not the customer's
	DIDNoCustomer    // the customer is not there
)

// MaxDIDs is how many numbers PutDIDs, EditDIDs and DeleteDIDs take at a time.
const MaxDIDs = 10_000

// didColumns are the columns of a new row.
const didColumns = "id, customer_id, application_id, number_e164, provider, status, route_mode, sip_uri, reject_code, created_at, updated_at"

// putRounds is how often PutDIDs tries to insert a number that others create and delete meanwhile.
const putRounds = 5

var errTooManyDIDs = fmt.Errorf("more than %d numbers at a time", MaxDIDs)

// PutDIDs makes numbers be as the rows say and returns what it did with each. Rows need their CustomerID and what CreateDID needs; it fills IDs,
// times and defaults as that does. Of two rows with one number the second meets what the first has made. It belongs inside InTx.
func (s *Store) PutDIDs(ctx context.Context, rows []DID, onConflict string) ([]DIDResult, error) {
	if len(rows) > MaxDIDs {
		return nil, fmt.Errorf("put DIDs: %w", errTooManyDIDs)
	}
	results := make([]DIDResult, len(rows))
	fit, err := s.checkOwners(ctx, rows, results)
	if err != nil {
		return nil, fmt.Errorf("put DIDs: %w", err)
	}
	now := s.Now()
	for _, i := range fit {
		rows[i].fill(now)
	}
	// Two transactions insert in one order: each waits for numbers that the other has inserted and not committed.
	slices.SortStableFunc(fit, func(a, b int) int { return strings.Compare(rows[a].NumberE164, rows[b].NumberE164) })
	for round := 0; len(fit) > 0; round++ {
		if round == putRounds {
			return nil, fmt.Errorf("put DIDs: number %s comes and goes", rows[fit[0]].NumberE164)
		}
		var again []int
		for some := range slices.Chunk(fit, rowsLimit) {
			left, err := s.insertDIDs(ctx, rows, some)
			if err != nil {
				return nil, fmt.Errorf("put DIDs: %w", err)
			}
			gone, err := s.meetDIDs(ctx, rows, left, onConflict, results)
			if err != nil {
				return nil, fmt.Errorf("put DIDs: %w", err)
			}
			again = append(again, gone...)
		}
		fit = again
	}
	for i, result := range results {
		if result < DIDUnchanged {
			s.touchDIDs(ctx, rows[i].NumberE164)
		}
	}
	return results, nil
}

// fill sets what a new DID has by default.
func (d *DID) fill(now time.Time) {
	d.ID = NewID(PrefixDID)
	if d.Status == "" {
		d.Status = DIDActive
	}
	if d.RouteMode == "" {
		d.RouteMode = RouteWebhook
	}
	d.CreatedAt, d.UpdatedAt, d.DeletedAt = now, now, nil
}

// checkOwners finds the rows whose customer and application are there, and keeps both from being deleted meanwhile.
func (s *Store) checkOwners(ctx context.Context, rows []DID, results []DIDResult) (fit []int, err error) {
	customers, applications := map[string]bool{}, map[string]string{}
	for i := range rows {
		customers[rows[i].CustomerID] = false
		if rows[i].ApplicationID != nil {
			applications[*rows[i].ApplicationID] = ""
		}
	}
	for ids := range slices.Chunk(keysOf(customers), rowsLimit) {
		var found []struct{ ID string }
		if err := s.write(ctx).Table("customers").Select("id").Where("id IN ?", ids).Find(&found).Error; err != nil {
			return nil, explain(err, "look for customers")
		}
		for _, row := range found {
			customers[row.ID] = true
		}
	}
	for ids := range slices.Chunk(keysOf(applications), rowsLimit) {
		var found []struct{ ID, CustomerID string }
		// As pin does for one.
		err := s.write(ctx).Table(applicationTable).Clauses(clause.Locking{Strength: clause.LockingStrengthShare}).Select("id, customer_id").
			Where("id IN ? AND deleted_at IS NULL", ids).Order("id").Find(&found).Error
		if err != nil {
			return nil, explain(err, "look for applications")
		}
		for _, row := range found {
			applications[row.ID] = row.CustomerID
		}
	}
	for i := range rows {
		switch row := &rows[i]; {
		case !customers[row.CustomerID]:
			results[i] = DIDNoCustomer
		case row.ApplicationID != nil && applications[*row.ApplicationID] != row.CustomerID:
			results[i] = DIDNoApplication
		default:
			fit = append(fit, i)
		}
	}
	return fit, nil
}

func keysOf[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for key := range m {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}

// insertDIDs inserts the rows of the given places and returns the places of those whose number is there already.
func (s *Store) insertDIDs(ctx context.Context, rows []DID, places []int) (left []int, err error) {
	args := make([]any, 0, 11*len(places))
	for _, i := range places {
		d := &rows[i]
		args = append(args, d.ID, d.CustomerID, d.ApplicationID, d.NumberE164, d.Provider, d.Status, d.RouteMode, d.SIPURI, d.RejectCode,
			micros(d.CreatedAt), micros(d.UpdatedAt))
	}
	var inserted []string
	err = s.write(ctx).Raw("INSERT INTO dids ("+didColumns+") VALUES "+tuples(len(places), "(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)")+
		" ON CONFLICT (number_e164) WHERE deleted_at IS NULL DO NOTHING RETURNING id", args...).Scan(&inserted).Error
	if err != nil {
		return nil, explain(err, "insert")
	}
	made := make(map[string]bool, len(inserted))
	for _, id := range inserted {
		made[id] = true
	}
	for _, i := range places {
		if !made[rows[i].ID] {
			left = append(left, i)
		}
	}
	return left, nil
}

// meetDIDs does with the rows of the given places, whose numbers are there already, what onConflict says. It returns the places of those
// whose number has been deleted meanwhile: it is free now.
func (s *Store) meetDIDs(ctx context.Context, rows []DID, places []int, onConflict string, results []DIDResult) (gone []int, err error) {
	numbers := make([]string, len(places))
	for n, i := range places {
		numbers[n] = rows[i].NumberE164
	}
	found, err := s.EditDIDs(ctx, numbers)
	if err != nil {
		return nil, err
	}
	for _, i := range places {
		row, there := &rows[i], found[rows[i].NumberE164]
		switch {
		case there == nil:
			gone = append(gone, i)
			continue
		case there.CustomerID != row.CustomerID && onConflict != DIDReassign:
			results[i] = DIDTaken
			continue
		case there.CustomerID != row.CustomerID:
			results[i] = DIDReassigned
			err = s.replaceDID(ctx, there, row)
		case onConflict == DIDSkip || there.routesLike(row):
			results[i] = DIDUnchanged
			*row = *there
		default:
			results[i] = DIDUpdated
			row.ID, row.CreatedAt = there.ID, there.CreatedAt
			err = explain(s.write(ctx).Model(&DID{}).Where("id = ?", row.ID).
				Select("application_id", "provider", "status", "route_mode", "sip_uri", "reject_code", "updated_at").Updates(row).Error, "update %s", row.ID)
		}
		if err != nil {
			return nil, err
		}
		found[row.NumberE164] = row
	}
	return gone, nil
}

// replaceDID deletes a DID and creates another customer's with its number.
func (s *Store) replaceDID(ctx context.Context, there, row *DID) error {
	at := micros(row.UpdatedAt)
	result := s.write(ctx).Exec("UPDATE dids SET deleted_at = ?, updated_at = ? WHERE id = ? AND deleted_at IS NULL", at, at, there.ID)
	if err := changedOne(result, "take %s from its customer", there.ID); err != nil {
		return err
	}
	return explain(s.write(ctx).Create(row).Error, "insert")
}

// routesLike tells whether a DID is configured as another.
func (d *DID) routesLike(other *DID) bool {
	same := d.ApplicationID == nil && other.ApplicationID == nil ||
		d.ApplicationID != nil && other.ApplicationID != nil && *d.ApplicationID == *other.ApplicationID
	return same && d.Provider == other.Provider && d.Status == other.Status && d.RouteMode == other.RouteMode && d.SIPURI == other.SIPURI &&
		d.RejectCode == other.RejectCode
}

// EditDIDs returns the undeleted DIDs that have the numbers, whosesoever they are, for a transaction that goes on to change them: see EditDID.
// Numbers that nobody has are left out.
func (s *Store) EditDIDs(ctx context.Context, numbers []string) (map[string]*DID, error) {
	if len(numbers) > MaxDIDs {
		return nil, fmt.Errorf("read DIDs: %w", errTooManyDIDs)
	}
	found := make(map[string]*DID, len(numbers))
	sorted := slices.Compact(slices.Sorted(slices.Values(numbers))) // so that two transactions lock them in one order
	for some := range slices.Chunk(sorted, rowsLimit) {
		var rows []DID
		err := s.write(ctx).Clauses(clause.Locking{Strength: clause.LockingStrengthUpdate}).Where("number_e164 IN ? AND deleted_at IS NULL", some).
			Order("number_e164").Find(&rows).Error
		if err != nil {
			return nil, explain(err, "read DIDs")
		}
		for i := range rows {
			found[rows[i].NumberE164] = &rows[i]
		}
	}
	return found, nil
}

// DeleteDIDs marks the DIDs that have the numbers deleted, whosesoever they are, and returns how many there were.
func (s *Store) DeleteDIDs(ctx context.Context, numbers []string) (int, error) {
	if len(numbers) > MaxDIDs {
		return 0, fmt.Errorf("delete DIDs: %w", errTooManyDIDs)
	}
	deleted := 0
	err := s.InTx(ctx, func(tx *Store) error {
		deleted = 0
		found, err := tx.EditDIDs(ctx, numbers)
		if err != nil {
			return err
		}
		now := micros(tx.Now())
		for some := range slices.Chunk(keysOf(found), rowsLimit) {
			err := tx.write(ctx).Exec("UPDATE dids SET deleted_at = ?, updated_at = ? WHERE number_e164 IN ? AND deleted_at IS NULL", now, now, some).Error
			if err != nil {
				return explain(err, "delete DIDs")
			}
			tx.touchDIDs(ctx, some...)
		}
		deleted = len(found)
		return nil
	})
	return deleted, err
}

// DIDFilter chooses numbers; what is empty does not.
type DIDFilter struct {
	CustomerID, ApplicationID, Provider, Status, RouteMode string
	// Prefix is how the number begins, in E.164 form.
	Prefix string
}

// AllDIDs returns the undeleted DIDs of all customers that the filter chooses and that come behind a number, in the order of their numbers, at
// most limit.
func (s *Store) AllDIDs(ctx context.Context, filter DIDFilter, after string, limit int) ([]DID, error) {
	query := s.read(ctx).Where("deleted_at IS NULL AND number_e164 > ?", after)
	for _, where := range []struct{ column, value string }{
		{"customer_id", filter.CustomerID}, {"application_id", filter.ApplicationID}, {"provider", filter.Provider}, {"status", filter.Status},
		{"route_mode", filter.RouteMode},
	} {
		if where.value != "" {
			query = query.Where(where.column+" = ?", where.value)
		}
	}
	if filter.Prefix != "" {
		// Every number of the prefix is below the prefix with a character behind it that comes after all digits.
		query = query.Where("number_e164 >= ? AND number_e164 < ?", filter.Prefix, filter.Prefix+":")
	}
	var rows []DID
	err := query.Order("number_e164").Limit(limit).Find(&rows).Error
	return rows, explain(err, "list DIDs")
}

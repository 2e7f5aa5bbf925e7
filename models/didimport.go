package models

import "context"

// DIDImport is an import of numbers.
type DIDImport struct {
	Import     `gorm:"embedded"`
	OnConflict string
	// Duplicates counts the numbers that were there and stayed as they were; reassigned ones are Updated.
	Duplicates int64 `gorm:"column:duplicate_count"`
}

// TableName implements gorm's schema.Tabler.
func (DIDImport) TableName() string { return "did_imports" }

func (DIDImport) rejectTable() string { return "did_import_rejects" }

// ImportedDID is a number of a record, with what is kept of the record in case it is rejected.
type ImportedDID struct {
	DID
	Line   int64
	Record string
}

// CreateDIDImport begins an import and fills ID, state and times. One without records is finished.
func (s *Store) CreateDIDImport(ctx context.Context, job *DIDImport) error {
	return s.InTx(ctx, func(tx *Store) error {
		row := *job
		row.begin(tx.Now())
		row.Duplicates = 0
		if err := tx.write(ctx).Create(&row).Error; err != nil {
			return explain(err, "create import of %q", row.FileName)
		}
		*job = row
		return nil
	})
}

// DIDImport returns an import, or ErrNotFound.
func (s *Store) DIDImport(ctx context.Context, id string) (*DIDImport, error) {
	return imported[DIDImport](ctx, s, id)
}

// DIDImports returns a page of imports, newest first, and the cursor of the next page; those in a state or of a file only where these are given.
func (s *Store) DIDImports(ctx context.Context, state, fileSHA256 string, page Page) ([]DIDImport, string, error) {
	return importPage[DIDImport](s.read(ctx), state, fileSHA256, page)
}

// DIDRejects returns an import's rejects from a place on, in order, at most limit.
func (s *Store) DIDRejects(ctx context.Context, id string, from int64, limit int) ([]ImportReject, error) {
	return s.rejects(ctx, DIDImport{}.rejectTable(), id, from, limit)
}

// ImportDIDs takes the records from..from+records of an import: rows are their numbers, at most MaxDIDs, rejects the records that were refused
// before. It returns the import as it stands then.
func (s *Store) ImportDIDs(ctx context.Context, id string, from, records int64, rows []ImportedDID, rejects []ImportReject) (*DIDImport, error) {
	var done *DIDImport
	err := s.InTx(ctx, func(tx *Store) error {
		var err error
		done, err = takeRecords(ctx, tx, id, from, records, rejects, func(job *DIDImport) ([]ImportReject, error) {
			dids := make([]DID, len(rows))
			for i := range rows {
				dids[i] = rows[i].DID
			}
			results, err := tx.PutDIDs(ctx, dids, job.OnConflict)
			if err != nil {
				return nil, err
			}
			var refused []ImportReject
			for i, result := range results {
				if why, field := job.count(result); why != "" {
					refused = append(refused, ImportReject{Line: rows[i].Line, Record: rows[i].Record, Field: field, Message: why})
				}
			}
			return refused, nil
		})
		if err != nil {
			return err
		}
		return saveImport(ctx, tx, done)
	})
	return done, err
}

// count counts what became of a number, or says why it is rejected, and for the sake of which column.
func (d *DIDImport) count(result DIDResult) (why, field string) {
	switch result {
	case DIDCreated:
		d.Created++
	case DIDUpdated, DIDReassigned:
		d.Updated++
	case DIDUnchanged:
		d.Duplicates++
	case DIDTaken:
		return "number_e164 is another customer's", "number_e164"
	case DIDNoApplication:
		return "application_id names no application of the customer's", "application_id"
	case DIDNoCustomer:
		return "customer_id names no customer", "customer_id"
	}
	return "", ""
}

// CancelDIDImport ends an import where it stands; what it has imported stays. ErrImportPlace where it is not open.
func (s *Store) CancelDIDImport(ctx context.Context, id string) (*DIDImport, error) {
	var done *DIDImport
	err := s.InTx(ctx, func(tx *Store) (err error) {
		done, err = cancelImport[DIDImport](ctx, tx, id)
		return err
	})
	return done, err
}

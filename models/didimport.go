package models

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"gorm.io/gorm/clause"
)

// States of an import.
const (
	ImportOpen     = "open"
	ImportFinished = "finished"
	ImportCanceled = "canceled"
)

// ErrImportPlace says that the records do not begin where the import stands, or it is not open. DIDImport tells where it stands.
var ErrImportPlace = errors.New("not where the import stands")

// DIDImport is a file of numbers that is sent in parts. Each part's numbers and how far the import has come are written in one transaction:
// whoever goes on after a crash, of either side, goes on at NextRecord.
type DIDImport struct {
	ID         string
	State      string
	FileName   string
	FileSHA256 string   `gorm:"column:file_sha256"`
	Columns    []string `gorm:"serializer:document"`
	// Defaults are the values of columns that the file does not have, or that are empty in a record.
	Defaults     map[string]string `gorm:"serializer:document"`
	OnConflict   string
	TotalRecords int64
	NextRecord   int64
	// Created counts new numbers, Updated those that were changed or reassigned, Duplicates those that were there and stayed as they were,
	// Rejected those of which there is a DIDReject.
	Created    int64     `gorm:"column:created_count"`
	Updated    int64     `gorm:"column:updated_count"`
	Duplicates int64     `gorm:"column:duplicate_count"`
	Rejected   int64     `gorm:"column:rejected_count"`
	CreatedAt  time.Time `gorm:"serializer:moment;autoCreateTime:false"`
	UpdatedAt  time.Time `gorm:"serializer:moment;autoUpdateTime:false"`
}

// TableName implements gorm's schema.Tabler.
func (DIDImport) TableName() string { return "did_imports" }

// DIDReject is a record, or a number of a record that holds a range, that was not imported, and why.
type DIDReject struct {
	ImportID string `gorm:"primaryKey"`
	// Place counts the import's rejects from 0.
	Place int64 `gorm:"primaryKey;autoIncrement:false"`
	// Line is that of the file in which the record begins, counted from 1.
	Line int64
	// Record is the record as CSV, without a line break at its end.
	Record string
	// Field is the column to blame, where there is one.
	Field   string
	Message string
}

// TableName implements gorm's schema.Tabler.
func (DIDReject) TableName() string { return "did_import_rejects" }

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
		row.ID, row.CreatedAt = NewID(PrefixImport), tx.Now()
		row.UpdatedAt, row.State = row.CreatedAt, ImportOpen
		row.NextRecord, row.Created, row.Updated, row.Duplicates, row.Rejected = 0, 0, 0, 0, 0
		if row.TotalRecords == 0 {
			row.State = ImportFinished
		}
		if err := tx.write(ctx).Create(&row).Error; err != nil {
			return explain(err, "create import of %q", row.FileName)
		}
		*job = row
		return nil
	})
}

// DIDImport returns an import, or ErrNotFound.
func (s *Store) DIDImport(ctx context.Context, id string) (*DIDImport, error) {
	var row DIDImport
	if err := s.read(ctx).Where("id = ?", id).Take(&row).Error; err != nil {
		return nil, explain(err, "import %q", id)
	}
	return &row, nil
}

// DIDImports returns a page of imports, newest first, and the cursor of the next page; those in a state or of a file only where these are given.
func (s *Store) DIDImports(ctx context.Context, state, fileSHA256 string, page Page) ([]DIDImport, string, error) {
	query := s.read(ctx)
	if state != "" {
		query = query.Where("state = ?", state)
	}
	if fileSHA256 != "" {
		query = query.Where("file_sha256 = ?", fileSHA256)
	}
	rows, next, err := paged(query, page, func(d *DIDImport) (time.Time, string) { return d.CreatedAt, d.ID })
	return rows, next, explain(err, "list imports")
}

// DIDRejects returns an import's rejects from a place on, in order, at most limit.
func (s *Store) DIDRejects(ctx context.Context, id string, from int64, limit int) ([]DIDReject, error) {
	var rows []DIDReject
	err := s.read(ctx).Where("import_id = ? AND place >= ?", id, from).Order("place").Limit(limit).Find(&rows).Error
	return rows, explain(err, "rejects of import %q", id)
}

// openImport locks an import that stands at a record; elsewhere it is ErrImportPlace.
func (s *Store) openImport(ctx context.Context, id string, from int64) (*DIDImport, error) {
	var job DIDImport
	err := s.write(ctx).Clauses(clause.Locking{Strength: clause.LockingStrengthUpdate}).Where("id = ?", id).Take(&job).Error
	if err != nil {
		return nil, explain(err, "import %q", id)
	}
	if job.State != ImportOpen {
		return nil, fmt.Errorf("import %q is %s: %w", id, job.State, ErrImportPlace)
	}
	if from >= 0 && job.NextRecord != from {
		return nil, fmt.Errorf("import %q stands at record %d: %w", id, job.NextRecord, ErrImportPlace)
	}
	return &job, nil
}

// ImportDIDs takes the records from..from+records of an import: rows are their numbers, at most MaxDIDs, rejects the records that were refused
// before. It returns the import as it stands then.
func (s *Store) ImportDIDs(ctx context.Context, id string, from, records int64, rows []ImportedDID, rejects []DIDReject) (*DIDImport, error) {
	var done *DIDImport
	err := s.InTx(ctx, func(tx *Store) error {
		job, err := tx.openImport(ctx, id, from)
		if err != nil {
			return err
		}
		job.NextRecord += records
		if job.NextRecord > job.TotalRecords {
			return fmt.Errorf("import %q has %d records: %w", id, job.TotalRecords, ErrImportPlace)
		}
		dids := make([]DID, len(rows))
		for i := range rows {
			dids[i] = rows[i].DID
		}
		results, err := tx.PutDIDs(ctx, dids, job.OnConflict)
		if err != nil {
			return err
		}
		refused := slices.Clone(rejects)
		for i, result := range results {
			if why, field := job.count(result); why != "" {
				refused = append(refused, DIDReject{Line: rows[i].Line, Record: rows[i].Record, Field: field, Message: why})
			}
		}
		slices.SortStableFunc(refused, func(a, b DIDReject) int { return int(a.Line - b.Line) })
		for i := range refused {
			refused[i].ImportID, refused[i].Place = id, job.Rejected+int64(i)
		}
		if len(refused) > 0 {
			if err := tx.write(ctx).CreateInBatches(refused, rowsLimit).Error; err != nil {
				return explain(err, "note what import %q rejects", id)
			}
		}
		job.Rejected += int64(len(refused))
		if job.NextRecord == job.TotalRecords {
			job.State = ImportFinished
		}
		done = job
		return tx.saveImport(ctx, job)
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
	err := s.InTx(ctx, func(tx *Store) error {
		job, err := tx.openImport(ctx, id, -1)
		if err != nil {
			return err
		}
		job.State, done = ImportCanceled, job
		return tx.saveImport(ctx, job)
	})
	return done, err
}

func (s *Store) saveImport(ctx context.Context, job *DIDImport) error {
	job.UpdatedAt = s.Now()
	return explain(s.write(ctx).Save(job).Error, "save import %q", job.ID)
}

// pruneImports is how many imports PruneDIDImports deletes at most: each may have left many rejects.
const pruneImports = 20

// PruneDIDImports deletes imports that were last changed before a time, with their rejects, the oldest first and not many at a time, and returns
// how many. What they have imported stays.
func (s *Store) PruneDIDImports(ctx context.Context, before time.Time) (int64, error) {
	var deleted int64
	err := s.InTx(ctx, func(tx *Store) error {
		result := tx.write(ctx).Exec("DELETE FROM did_imports WHERE id IN (SELECT id FROM did_imports WHERE updated_at < ? ORDER BY updated_at LIMIT ?)",
			micros(before), pruneImports)
		deleted = result.RowsAffected
		return explain(result.Error, "delete old imports of numbers")
	})
	return deleted, err
}

package models

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"gorm.io/gorm"
	"gorm.io/gorm/clause"
)

// States of an import.
const (
	ImportOpen     = "open"
	ImportFinished = "finished"
	ImportCanceled = "canceled"
)

// ErrImportPlace says that the records do not begin where the import stands, or it is not open. Import tells where it stands.
var ErrImportPlace = errors.New("not where the import stands")

// Import is what imports of every kind have: a file that is sent in parts. What each part brings and how far the import has come are written in
// one transaction: whoever goes on after a crash, of either side, goes on at NextRecord.
type Import struct {
	ID         string
	State      string
	FileName   string
	FileSHA256 string   `gorm:"column:file_sha256"`
	Columns    []string `gorm:"serializer:document"`
	// Defaults are the values of columns that the file does not have, or that are empty in a record.
	Defaults     map[string]string `gorm:"serializer:document"`
	TotalRecords int64
	NextRecord   int64
	// Created and Updated count what the records made and changed, Rejected the ImportRejects.
	Created   int64     `gorm:"column:created_count"`
	Updated   int64     `gorm:"column:updated_count"`
	Rejected  int64     `gorm:"column:rejected_count"`
	CreatedAt time.Time `gorm:"serializer:moment;autoCreateTime:false"`
	UpdatedAt time.Time `gorm:"serializer:moment;autoUpdateTime:false"`
}

func (i *Import) common() *Import { return i }

// begin makes a new import of it. One without records is finished.
func (i *Import) begin(now time.Time) {
	i.ID, i.State, i.CreatedAt, i.UpdatedAt = NewID(PrefixImport), ImportOpen, now, now
	i.NextRecord, i.Created, i.Updated, i.Rejected = 0, 0, 0, 0
	if i.TotalRecords == 0 {
		i.State = ImportFinished
	}
}

// ImportReject is a record, or a part of one, that was not imported, and why.
type ImportReject struct {
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

// importRow is an import of one kind.
type importRow[T any] interface {
	*T
	common() *Import
	rejectTable() string
}

// imported returns an import, or ErrNotFound.
func imported[T any, P importRow[T]](ctx context.Context, s *Store, id string) (*T, error) {
	var row T
	if err := s.read(ctx).Where("id = ?", id).Take(P(&row)).Error; err != nil {
		return nil, explain(err, "import %q", id)
	}
	return &row, nil
}

// importPage returns a page of imports, newest first; those in a state or of a file only where these are given.
func importPage[T any, P importRow[T]](query *gorm.DB, state, fileSHA256 string, page Page) ([]T, string, error) {
	if state != "" {
		query = query.Where("state = ?", state)
	}
	if fileSHA256 != "" {
		query = query.Where("file_sha256 = ?", fileSHA256)
	}
	rows, next, err := paged(query, page, func(row *T) (time.Time, string) {
		job := P(row).common()
		return job.CreatedAt, job.ID
	})
	return rows, next, explain(err, "list imports")
}

// rejects returns an import's rejects from a place on, in order, at most limit.
func (s *Store) rejects(ctx context.Context, table, id string, from int64, limit int) ([]ImportReject, error) {
	var rows []ImportReject
	err := s.read(ctx).Table(table).Where("import_id = ? AND place >= ?", id, from).Order("place").Limit(limit).Find(&rows).Error
	return rows, explain(err, "rejects of import %q", id)
}

// openImport locks an import that stands at a record; elsewhere it is ErrImportPlace. A negative record is wherever it stands.
func openImport[T any, P importRow[T]](ctx context.Context, tx *Store, id string, from int64) (*T, error) {
	var row T
	err := tx.write(ctx).Clauses(clause.Locking{Strength: clause.LockingStrengthUpdate}).Where("id = ?", id).Take(P(&row)).Error
	if err != nil {
		return nil, explain(err, "import %q", id)
	}
	job := P(&row).common()
	if job.State != ImportOpen {
		return nil, fmt.Errorf("import %q is %s: %w", id, job.State, ErrImportPlace)
	}
	if from >= 0 && job.NextRecord != from {
		return nil, fmt.Errorf("import %q stands at record %d: %w", id, job.NextRecord, ErrImportPlace)
	}
	return &row, nil
}

// takeRecords takes the records from..from+records of an import: put writes what they bring, counts it, and returns what it refuses; rejects are
// the records that were refused before. It returns the import as it stands then, not saved yet.
func takeRecords[T any, P importRow[T]](ctx context.Context, tx *Store, id string, from, records int64, rejects []ImportReject,
	put func(row *T) ([]ImportReject, error)) (*T, error) {
	row, err := openImport[T, P](ctx, tx, id, from)
	if err != nil {
		return nil, err
	}
	job := P(row).common()
	job.NextRecord += records
	if job.NextRecord > job.TotalRecords {
		return nil, fmt.Errorf("import %q has %d records: %w", id, job.TotalRecords, ErrImportPlace)
	}
	more, err := put(row)
	if err != nil {
		return nil, err
	}
	refused := slices.Concat(rejects, more)
	slices.SortStableFunc(refused, func(a, b ImportReject) int { return int(a.Line - b.Line) })
	for i := range refused {
		refused[i].ImportID, refused[i].Place = id, job.Rejected+int64(i)
	}
	if len(refused) > 0 {
		if err := tx.write(ctx).Table(P(row).rejectTable()).CreateInBatches(refused, rowsLimit).Error; err != nil {
			return nil, explain(err, "note what import %q rejects", id)
		}
	}
	job.Rejected += int64(len(refused))
	if job.NextRecord == job.TotalRecords {
		job.State = ImportFinished
	}
	return row, nil
}

// cancelImport ends an import where it stands; what it has imported stays. ErrImportPlace where it is not open.
func cancelImport[T any, P importRow[T]](ctx context.Context, tx *Store, id string) (*T, error) {
	row, err := openImport[T, P](ctx, tx, id, -1)
	if err != nil {
		return nil, err
	}
	P(row).common().State = ImportCanceled
	return row, saveImport[T, P](ctx, tx, row)
}

func saveImport[T any, P importRow[T]](ctx context.Context, tx *Store, row *T) error {
	job := P(row).common()
	job.UpdatedAt = tx.Now()
	return explain(tx.write(ctx).Save(P(row)).Error, "save import %q", job.ID)
}

// pruneImports is how many imports of a kind PruneImports deletes at most: each may have left many rejects.
const pruneImports = 20

// PruneImports deletes imports that were last changed before a time, with their rejects, the oldest first and not many at a time, and returns
// how many. What they have imported stays.
func (s *Store) PruneImports(ctx context.Context, before time.Time) (int64, error) {
	var deleted int64
	err := s.InTx(ctx, func(tx *Store) error {
		deleted = 0
		for _, table := range []string{DIDImport{}.TableName(), RateImport{}.TableName()} {
			result := tx.write(ctx).Exec("DELETE FROM "+table+" WHERE id IN (SELECT id FROM "+table+" WHERE updated_at < ? ORDER BY updated_at LIMIT ?)",
				micros(before), pruneImports)
			if result.Error != nil {
				return explain(result.Error, "delete old rows of %s", table)
			}
			deleted += result.RowsAffected
		}
		return nil
	})
	return deleted, err
}

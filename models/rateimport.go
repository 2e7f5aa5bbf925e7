package models

import (
	"context"
	"time"

	"gorm.io/gorm/clause"
)

// What becomes of the rates of a deck that an imported file does not name.
const (
	// ImportMerge leaves them as they are.
	ImportMerge = "merge"
	// ImportReplace ends them.
	ImportReplace = "replace"
)

// RateImport is an import of rates into a deck.
type RateImport struct {
	Import `gorm:"embedded"`
	DeckID string
	Mode   string
	// StartsAt is from when on the rates are valid that do not say so themselves, and when those end that a file which replaces does not name.
	StartsAt time.Time `gorm:"serializer:moment"`
	// Unchanged counts the records that say what was so already, Ended the rates that ended because the file does not name them.
	Unchanged int64 `gorm:"column:unchanged_count"`
	Ended     int64 `gorm:"column:ended_count"`
}

// TableName implements gorm's schema.Tabler.
func (RateImport) TableName() string { return "rate_imports" }

func (RateImport) rejectTable() string { return "rate_import_rejects" }

// rateImportPrefix is a prefix that an import which replaces has named.
type rateImportPrefix struct{ ImportID, Direction, Prefix string }

const rateImportPrefixes = "rate_import_prefixes"

// CreateRateImport begins an import and fills ID, state, times and, where it is zero, StartsAt. ErrNotFound where there is no such deck. A file without
// records replaces nothing.
func (s *Store) CreateRateImport(ctx context.Context, job *RateImport) error {
	return s.InTx(ctx, func(tx *Store) error {
		row := *job
		row.begin(tx.Now())
		row.Unchanged, row.Ended = 0, 0
		if row.StartsAt.IsZero() {
			row.StartsAt = row.CreatedAt
		}
		row.StartsAt = *cut(&row.StartsAt)
		if err := tx.write(ctx).Create(&row).Error; err != nil {
			return explain(err, "create import of %q", row.FileName)
		}
		*job = row
		return nil
	})
}

// RateImport returns an import, or ErrNotFound.
func (s *Store) RateImport(ctx context.Context, id string) (*RateImport, error) {
	return imported[RateImport](ctx, s, id)
}

// RateImports returns a page of imports, newest first, and the cursor of the next page; those into a deck, in a state or of a file only where these
// are given.
func (s *Store) RateImports(ctx context.Context, deckID, state, fileSHA256 string, page Page) ([]RateImport, string, error) {
	query := s.read(ctx)
	if deckID != "" {
		query = query.Where("deck_id = ?", deckID)
	}
	return importPage[RateImport](query, state, fileSHA256, page)
}

// RateRejects returns an import's rejects from a place on, in order, at most limit.
func (s *Store) RateRejects(ctx context.Context, id string, from int64, limit int) ([]ImportReject, error) {
	return s.rejects(ctx, RateImport{}.rejectTable(), id, from, limit)
}

// ImportRates takes the records from..from+records of an import: rows are their rates, at most MaxRates, rejects the records that were refused. It
// returns the import as it stands then. With its last record an import that replaces ends what the file has not named, all of it or, where a
// record was rejected, nothing: nobody knows what that would have named.
func (s *Store) ImportRates(ctx context.Context, id string, from, records int64, rows []DeckRate, rejects []ImportReject) (*RateImport, error) {
	var done *RateImport
	err := s.InTx(ctx, func(tx *Store) error {
		var err error
		done, err = takeRecords(ctx, tx, id, from, records, rejects, func(job *RateImport) ([]ImportReject, error) {
			return nil, tx.importRates(ctx, job, rows)
		})
		if err != nil {
			return err
		}
		if done.State == ImportFinished && done.Mode == ImportReplace {
			if err := tx.endUnnamed(ctx, done); err != nil {
				return err
			}
		}
		return saveImport(ctx, tx, done)
	})
	return done, err
}

func (s *Store) importRates(ctx context.Context, job *RateImport, rows []DeckRate) error {
	rates := make([]DeckRate, len(rows))
	copy(rates, rows)
	results, err := s.PutRates(ctx, job.DeckID, rates)
	if err != nil {
		return err
	}
	for _, result := range results {
		switch result {
		case RateCreated:
			job.Created++
		case RateUpdated:
			job.Updated++
		case RateUnchanged:
			job.Unchanged++
		}
	}
	if job.Mode != ImportReplace || len(rows) == 0 {
		return nil
	}
	named := make([]rateImportPrefix, len(rows))
	for i := range rows {
		named[i] = rateImportPrefix{ImportID: job.ID, Direction: rows[i].Direction, Prefix: rows[i].Prefix}
	}
	err = s.write(ctx).Table(rateImportPrefixes).Clauses(clause.OnConflict{DoNothing: true}).CreateInBatches(named, rowsLimit).Error
	return explain(err, "note what import %q names", job.ID)
}

// endUnnamed ends the rates of the deck that an import has not named: those that are valid when it starts end then, and those that were to follow
// never come.
func (s *Store) endUnnamed(ctx context.Context, job *RateImport) error {
	if job.Rejected == 0 {
		const unnamed = " AND NOT EXISTS (SELECT 1 FROM " + rateImportPrefixes +
			" p WHERE p.import_id = ? AND p.direction = rates.direction AND p.prefix = rates.prefix)"
		at := micros(job.StartsAt)
		ended := s.write(ctx).Exec("UPDATE rates SET valid_to = ? WHERE deck_id = ? AND valid_from < ? AND (valid_to IS NULL OR valid_to > ?)"+unnamed,
			at, job.DeckID, at, at, job.ID)
		if ended.Error != nil {
			return explain(ended.Error, "end what import %q does not name", job.ID)
		}
		never := s.write(ctx).Exec("DELETE FROM rates WHERE deck_id = ? AND valid_from >= ?"+unnamed, job.DeckID, at, job.ID)
		if never.Error != nil {
			return explain(never.Error, "delete what import %q does not name", job.ID)
		}
		job.Ended = ended.RowsAffected + never.RowsAffected
	}
	return s.forgetNamed(ctx, job.ID)
}

func (s *Store) forgetNamed(ctx context.Context, id string) error {
	err := s.write(ctx).Exec("DELETE FROM "+rateImportPrefixes+" WHERE import_id = ?", id).Error
	return explain(err, "forget what import %q names", id)
}

// CancelRateImport ends an import where it stands; what it has imported stays, and nothing ends. ErrImportPlace where it is not open.
func (s *Store) CancelRateImport(ctx context.Context, id string) (*RateImport, error) {
	var done *RateImport
	err := s.InTx(ctx, func(tx *Store) (err error) {
		if done, err = cancelImport[RateImport](ctx, tx, id); err != nil {
			return err
		}
		return tx.forgetNamed(ctx, id)
	})
	return done, err
}

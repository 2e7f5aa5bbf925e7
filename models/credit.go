package models

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/pressly/goose/v3"
)

// creditName is what the migration is called that lets a balance be overdrawn by the credit limit.
const creditName = "00028_credit.go"

const (
	coveredByBalance = "balance_micros >= held_micros"
	coveredByCredit  = "balance_micros + credit_limit_micros >= held_micros"
)

// credit changes what covers the holds of a customer.
func (s *Store) credit() *goose.Migration {
	to := func(from, to string, before ...string) *goose.GoFunc {
		statements := append(before, "ALTER TABLE customers DROP CONSTRAINT customers_covered",
			"ALTER TABLE customers ADD CONSTRAINT customers_covered CHECK (held_micros >= 0 AND "+to+")")
		if s.dialect != DialectPostgres {
			// SQLite cannot change a check, and a new table would have to take the references of a dozen others along. Its documentation has this way
			// for changes that leave what is stored as it is (lang_altertable.html, "Making Other Kinds Of Table Schema Changes").
			statements = append(before, "PRAGMA writable_schema = ON",
				"UPDATE sqlite_master SET sql = replace(sql, '"+from+"', '"+to+"') WHERE type = 'table' AND name = 'customers'",
				"PRAGMA writable_schema = RESET")
		}
		return &goose.GoFunc{RunTx: func(ctx context.Context, tx *sql.Tx) error {
			// SQLite holds the rows that are there to no new check, and balances below zero would stand against every change of their rows.
			var uncovered int
			if err := tx.QueryRowContext(ctx, "SELECT COUNT(*) FROM customers WHERE NOT ("+to+")").Scan(&uncovered); err != nil {
				return fmt.Errorf("credit of customers: %w", err)
			}
			if uncovered > 0 {
				return fmt.Errorf("the balances of %d customers do not cover what is held: credit or adjust them first", uncovered)
			}
			for _, statement := range statements {
				if _, err := tx.ExecContext(ctx, statement); err != nil {
					return fmt.Errorf("credit of customers: %w", err)
				}
			}
			return nil
		}}
	}
	return goose.NewGoMigration(28, to(coveredByBalance, coveredByCredit), to(coveredByCredit, coveredByBalance))
}

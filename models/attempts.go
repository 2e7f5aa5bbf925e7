package models

import (
	"context"
	"database/sql"
	"fmt"
	"strings"

	"github.com/pressly/goose/v3"
)

// attemptsName is what the migration is called that lets a leg be an attempt.
const attemptsName = "00011_attempts.go"

const (
	kindsBefore = "'dial', 'transfer', 'queue'"
	kindsAfter  = kindsBefore + ", '" + LegAttempt + "'"
)

// legColumns are those of legs as it is then.
const legColumns = "id, call_id, customer_id, channel_id, kind, target, trunk_id, status, dial_status, reason, cause, q850, sip_code, answered_by, " +
	"created_at, ringing_at, answered_at, ended_at, seconds, joined_at"

// rebuildLegs are the statements that give legs other kinds on SQLite, which cannot change a check.
var rebuildLegs = []string{
	"DROP INDEX legs_call", "DROP INDEX legs_channel", "DROP INDEX legs_live_trunk",
	"ALTER TABLE legs RENAME TO legs_before",
	`CREATE TABLE legs (
    id TEXT PRIMARY KEY,
    call_id TEXT NOT NULL,
    customer_id TEXT NOT NULL,
    channel_id TEXT NOT NULL,
    kind TEXT NOT NULL CHECK (kind IN (KINDS_)),
    target TEXT NOT NULL,
    trunk_id TEXT,
    status TEXT NOT NULL CHECK (status IN ('dialing', 'ringing', 'answered', 'ended')),
    dial_status TEXT NOT NULL,
    reason TEXT NOT NULL,
    cause TEXT NOT NULL,
    q850 INTEGER NOT NULL,
    sip_code INTEGER NOT NULL,
    answered_by TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    ringing_at BIGINT,
    answered_at BIGINT,
    ended_at BIGINT,
    seconds DOUBLE PRECISION NOT NULL,
    FOREIGN KEY (call_id, customer_id) REFERENCES calls (id, customer_id),
    FOREIGN KEY (trunk_id, customer_id) REFERENCES trunks (id, customer_id)
)`,
	"ALTER TABLE legs ADD COLUMN joined_at BIGINT",
	"INSERT INTO legs (" + legColumns + ") SELECT " + legColumns + " FROM legs_before",
	"DROP TABLE legs_before",
	"CREATE INDEX legs_call ON legs (call_id, created_at, id)",
	"CREATE INDEX legs_channel ON legs (channel_id)",
	"CREATE INDEX legs_live_trunk ON legs (trunk_id) WHERE status <> 'ended'",
}

// alterLegs are those for PostgreSQL. Rows that are there need no check: all kinds that were allowed still are.
var alterLegs = []string{
	"ALTER TABLE legs DROP CONSTRAINT legs_kind_check",
	"ALTER TABLE legs ADD CONSTRAINT legs_kind_check CHECK (kind IN (KINDS_)) NOT VALID",
}

// attempts lets legs be attempts to dial a call over a trunk that failed, see LegAttempt.
func (s *Store) attempts() *goose.Migration {
	to := func(kinds string, before ...string) *goose.GoFunc {
		return &goose.GoFunc{RunTx: func(ctx context.Context, tx *sql.Tx) error {
			statements := rebuildLegs
			if s.dialect == DialectPostgres {
				statements = alterLegs
			}
			for _, statement := range append(before, statements...) {
				if _, err := tx.ExecContext(ctx, strings.ReplaceAll(statement, "KINDS_", kinds)); err != nil {
					return fmt.Errorf("kinds of legs: %w", err)
				}
			}
			return nil
		}}
	}
	return goose.NewGoMigration(11, to(kindsAfter), to(kindsBefore, "DELETE FROM legs WHERE kind = '"+LegAttempt+"'"))
}

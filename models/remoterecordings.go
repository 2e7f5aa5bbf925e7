package models

import (
	"context"
	"database/sql"
	"fmt"
	"slices"

	"github.com/pressly/goose/v3"
)

// remoteRecordingsName is what the migration is called by which recordings of nodes whose disk we do not share come to us over HTTP.
const remoteRecordingsName = "00020_recording_uploads.go"

// rebuildRecordings are the statements that give recordings other columns and statuses on SQLite, which cannot change a check. columns are what both
// tables have, or what becomes of it.
func rebuildRecordings(statuses, more, status string) []string {
	const columns = "id, call_id, customer_id, path, format, channels, seconds, created_at, ended_at, masked"
	return []string{
		"DROP INDEX recordings_call",
		"ALTER TABLE recordings RENAME TO recordings_before",
		`CREATE TABLE recordings (
    id TEXT PRIMARY KEY,
    call_id TEXT NOT NULL,
    customer_id TEXT NOT NULL,
    path TEXT NOT NULL,
    format TEXT NOT NULL,
    channels INTEGER NOT NULL CHECK (channels IN (1, 2)),
    status TEXT NOT NULL CHECK (status IN (` + statuses + `)),
    seconds DOUBLE PRECISION NOT NULL,
    created_at BIGINT NOT NULL,
    ended_at BIGINT,
    masked BOOLEAN NOT NULL DEFAULT FALSE,` + more + `
    FOREIGN KEY (call_id, customer_id) REFERENCES calls (id, customer_id)
)`,
		"INSERT INTO recordings (" + columns + ", status) SELECT " + columns + ", " + status + " FROM recordings_before",
		"DROP TABLE recordings_before",
		"CREATE INDEX recordings_call ON recordings (call_id, created_at, id)",
	}
}

// alterRecordings are those for PostgreSQL, where no row is written. Rows that are there need no check.
func alterRecordings(statuses string, columns ...string) []string {
	return append([]string{
		"ALTER TABLE recordings DROP CONSTRAINT recordings_status_check",
		"ALTER TABLE recordings ADD CONSTRAINT recordings_status_check CHECK (status IN (" + statuses + ")) NOT VALID",
	}, columns...)
}

const (
	recordingStatusesBefore = "'recording', 'paused', 'available', 'failed'"
	recordingStatusesAfter  = "'recording', 'paused', 'processing', 'available', 'failed'"
)

// recordingUploads is where it stands which recordings are to come. A row lives until the node's own file is gone.
var recordingUploads = []string{
	"CREATE INDEX recordings_processing ON recordings (created_at) WHERE status = 'processing'",
	`CREATE TABLE recording_uploads (
    recording_id TEXT PRIMARY KEY REFERENCES recordings (id) ON DELETE CASCADE,
    node_id TEXT NOT NULL REFERENCES nodes (id) ON DELETE CASCADE,
    path TEXT NOT NULL,
    attempts INTEGER NOT NULL DEFAULT 0,
    due_at BIGINT NOT NULL,
    token_hash BYTEA,
    token_until BIGINT,
    stored_at BIGINT,
    refusals INTEGER NOT NULL DEFAULT 0,
    hopeless BOOLEAN NOT NULL DEFAULT FALSE,
    error TEXT NOT NULL DEFAULT '',
    created_at BIGINT NOT NULL
)`,
	"CREATE INDEX recording_uploads_due ON recording_uploads (node_id, due_at)",
	"CREATE UNIQUE INDEX recording_uploads_token_key ON recording_uploads (token_hash) WHERE token_hash IS NOT NULL",
}

// remoteRecordings makes room for them.
func (s *Store) remoteRecordings() *goose.Migration {
	up := rebuildRecordings(recordingStatusesAfter, `
    remote BOOLEAN NOT NULL DEFAULT FALSE,
    size BIGINT NOT NULL DEFAULT 0,`, "status")
	// What had not arrived never will.
	down := rebuildRecordings(recordingStatusesBefore, "", "CASE status WHEN 'processing' THEN 'failed' ELSE status END")
	if s.dialect == DialectPostgres {
		up = alterRecordings(recordingStatusesAfter, "ALTER TABLE recordings ADD COLUMN remote BOOLEAN NOT NULL DEFAULT FALSE",
			"ALTER TABLE recordings ADD COLUMN size BIGINT NOT NULL DEFAULT 0")
		down = slices.Concat([]string{"UPDATE recordings SET status = 'failed' WHERE status = 'processing'"},
			alterRecordings(recordingStatusesBefore, "ALTER TABLE recordings DROP COLUMN size", "ALTER TABLE recordings DROP COLUMN remote"))
	}
	run := func(statements ...string) *goose.GoFunc {
		return &goose.GoFunc{RunTx: func(ctx context.Context, tx *sql.Tx) error {
			for _, statement := range statements {
				if _, err := tx.ExecContext(ctx, statement); err != nil {
					return fmt.Errorf("recordings of nodes: %w", err)
				}
			}
			return nil
		}}
	}
	return goose.NewGoMigration(20, run(slices.Concat(up, recordingUploads)...),
		run(slices.Concat([]string{"DROP TABLE recording_uploads", "DROP INDEX recordings_processing"}, down)...))
}

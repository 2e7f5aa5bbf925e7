package modelstest

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

// SetFull makes the server refuse every new row of a table, as it does where the disk is full (SQLSTATE 53100), or take rows again.
func (s *Separate) SetFull(t testing.TB, table string, full bool) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), s.URL())
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close(t.Context())) }()
	statement := "DROP TRIGGER disk_full ON " + table
	if full {
		statement = `CREATE OR REPLACE FUNCTION disk_full() RETURNS trigger LANGUAGE plpgsql AS
			$$ BEGIN RAISE EXCEPTION 'could not extend file: No space left on device' USING ERRCODE = 'disk_full'; END $$;
			CREATE TRIGGER disk_full BEFORE INSERT ON ` + table + ` FOR EACH ROW EXECUTE FUNCTION disk_full()`
	}
	_, err = conn.Exec(t.Context(), statement)
	require.NoError(t, err)
}

// Hang makes every statement on a table wait, as a server does that does not answer, until the function that it returns is called.
func (s *Separate) Hang(t testing.TB, table string) (release func()) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	conn, err := pgx.Connect(ctx, s.URL())
	require.NoError(t, err)
	tx, err := conn.Begin(ctx)
	require.NoError(t, err)
	_, err = tx.Exec(ctx, "LOCK TABLE "+table+" IN ACCESS EXCLUSIVE MODE")
	require.NoError(t, err)
	return func() {
		require.NoError(t, tx.Rollback(ctx))
		require.NoError(t, conn.Close(ctx))
	}
}

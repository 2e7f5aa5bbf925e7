package models_test

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"
	"gorm.io/gorm"

	"tandem/models"
	"tandem/models/modelstest"
)

func TestMigrate(t *testing.T) {
	t.Parallel()
	check := func(t *testing.T, location string) {
		s, err := models.Open(t.Context(), models.Config{URL: location, Key: modelstest.Key})
		require.NoError(t, err)
		defer func() { require.NoError(t, s.Close()) }()
		pending, err := s.MigrationStatus(t.Context())
		require.NoError(t, err)
		require.NotEmpty(t, pending)
		for _, migration := range pending {
			require.Nil(t, migration.AppliedAt)
		}
		require.NoError(t, s.Migrate(t.Context()))
		applied, err := s.MigrationStatus(t.Context())
		require.NoError(t, err)
		require.Len(t, applied, len(pending))
		for _, migration := range applied {
			require.NotNil(t, migration.AppliedAt)
		}
		schema := schemaOf(t, models.Reader(s))
		modelstest.Customer(t, s, 1)
		require.NoError(t, s.Migrate(t.Context()), "a second run changes nothing")
		again, err := s.MigrationStatus(t.Context())
		require.NoError(t, err)
		require.Equal(t, applied, again)
		require.Equal(t, schema, schemaOf(t, models.Reader(s)))
		customers, _, err := s.ListCustomers(t.Context(), models.Page{})
		require.NoError(t, err)
		require.Len(t, customers, 1)
	}
	t.Run("sqlite", func(t *testing.T) { t.Parallel(); check(t, "sqlite:"+filepath.Join(t.TempDir(), "new ?#%.db")) })
	t.Run("postgres", func(t *testing.T) { t.Parallel(); check(t, modelstest.EmptyPostgresURL(t)) })
}

// schemaOf returns the statements (SQLite) or columns and indexes (PostgreSQL) of the schema.
func schemaOf(t *testing.T, db *gorm.DB) []string {
	t.Helper()
	query := "SELECT name || ' ' || COALESCE(sql, '') FROM sqlite_master ORDER BY 1"
	if db.Name() == models.DialectPostgres {
		query = `SELECT table_name || ' ' || column_name || ' ' || data_type FROM information_schema.columns WHERE table_schema = 'public'
			UNION ALL SELECT indexdef FROM pg_indexes WHERE schemaname = 'public' ORDER BY 1`
	}
	var rows []string
	require.NoError(t, db.Raw(query).Scan(&rows).Error)
	require.Greater(t, len(rows), 15)
	return rows
}

// TestMigrateTogether starts four processes on an empty PostgreSQL at once.
func TestMigrateTogether(t *testing.T) {
	t.Parallel()
	location := modelstest.EmptyPostgresURL(t)
	var group sync.WaitGroup
	errs := make([]error, 4)
	for i := range errs {
		group.Go(func() {
			s, err := models.Open(t.Context(), models.Config{URL: location, Key: modelstest.Key})
			if err == nil {
				err = s.Migrate(t.Context())
				_ = s.Close()
			}
			errs[i] = err
		})
	}
	group.Wait()
	require.Equal(t, make([]error, 4), errs)
}

func TestOpenRefuses(t *testing.T) {
	t.Parallel()
	for _, location := range []string{"", "mysql://x", "sqlite:", "sqlite::memory:", "sqlite:/nowhere/at/all.db", "postgres://user:canary@127.0.0.1:1/x", "postgres://user:canary@%zz"} {
		_, err := models.Open(t.Context(), models.Config{URL: location, Key: modelstest.Key})
		require.Error(t, err, location)
		require.NotContains(t, err.Error(), "canary")
	}
}

func TestReadersCannotWrite(t *testing.T) {
	t.Parallel()
	s := modelstest.Open(t)
	require.ErrorContains(t, models.Reader(s).Exec("DELETE FROM customers").Error, "readonly")
	var version, mode, foreign string
	require.NoError(t, models.Reader(s).Raw("SELECT sqlite_version()").Scan(&version).Error)
	require.GreaterOrEqual(t, version, "3.50")
	require.NoError(t, models.Reader(s).Raw("PRAGMA journal_mode").Scan(&mode).Error)
	require.NoError(t, models.Reader(s).Raw("PRAGMA foreign_keys").Scan(&foreign).Error)
	require.Equal(t, []string{"wal", "1"}, []string{mode, foreign})
}

func TestNewIDSorts(t *testing.T) {
	t.Parallel()
	made := make([]string, 10_000)
	for i := range made {
		made[i] = models.NewID(models.PrefixCall)
	}
	require.True(t, slices.IsSorted(made))
	require.Len(t, slices.Compact(made), 10_000)
	require.Regexp(t, `^call_[0-9a-hjkmnp-tv-z]{26}$`, made[0])
}

func TestIsE164(t *testing.T) {
	t.Parallel()
	for number, want := range map[string]bool{
		"+15551234567": true, "+1234567": true, "+123456789012345": true,
		"": false, "+": false, "15551234567": false, "+05551234567": false, "+123456": false, "+1234567890123456": false,
		"+1555123456a": false, "+15551234567\n": false, " +15551234567": false, "+1555 1234567": false, "+١٥٥٥١٢٣٤٥٦٧": false,
	} {
		require.Equal(t, want, models.IsE164(number), "%q", number)
	}
}

// TestQueriesUseIndexes asks SQLite for its plans: no query that runs for every call or claim may read a whole table.
func TestQueriesUseIndexes(t *testing.T) {
	t.Parallel()
	s := modelstest.Open(t)
	for query, index := range map[string]string{
		"SELECT * FROM calls WHERE customer_id = 'c' AND (created_at, id) < (1, 'x') ORDER BY created_at DESC, id DESC LIMIT 51":                                     "calls_page (customer_id=? AND (created_at,id)<(?,?))",
		"SELECT * FROM dids WHERE customer_id = 'c' AND deleted_at IS NULL ORDER BY created_at DESC, id DESC LIMIT 51":                                               "dids_page",
		"SELECT * FROM calls WHERE status IN ('queued', 'dialing', 'ringing', 'in_progress') AND node_id = 'n' ORDER BY created_at, id":                              "calls_live_node",
		"SELECT * FROM calls WHERE channel_id = 'x' AND channel_id <> ''":                                                                                            "calls_channel_id_key",
		"SELECT * FROM dids WHERE number_e164 = '+1' AND deleted_at IS NULL":                                                                                         "dids_number_key",
		"SELECT * FROM trunk_addresses WHERE first_address <= '4' ORDER BY first_address DESC LIMIT 1":                                                               "trunk_addresses_first_key",
		"SELECT * FROM api_keys WHERE lookup = 'x' AND revoked_at IS NULL":                                                                                           "api_keys_lookup",
		"SELECT rowid FROM webhook_streams WHERE endpoint_id = 'e' AND due_at <= 1 ORDER BY due_at LIMIT 4":                                                          "webhook_streams_claim (endpoint_id=? AND due_at<?)",
		"SELECT COUNT(*) FROM webhook_streams l WHERE l.endpoint_id = 'e' AND l.lease_until > 1":                                                                     "webhook_streams_leased (endpoint_id=? AND lease_until>?)",
		"SELECT s.endpoint_id FROM webhook_streams s WHERE s.due_at IS NOT NULL AND s.endpoint_id > 'e' ORDER BY s.endpoint_id LIMIT 1":                              "webhook_streams_claim (endpoint_id>?)",
		"SELECT id FROM queue_entries WHERE customer_id = 'c' AND queue = 'q' AND node_id = 'n' AND state = 'waiting' ORDER BY priority DESC, joined_at, id LIMIT 1": "queue_entries_waiting (customer_id=? AND queue=?)",
		"SELECT * FROM queue_entries WHERE customer_id = 'c' AND queue = 'q' AND state <> 'left' ORDER BY priority DESC, joined_at, id":                              "queue_entries_present (customer_id=? AND queue=?)",
		"SELECT * FROM queue_entries WHERE call_id = 'x' AND customer_id = 'c' AND state <> 'left'":                                                                  "queue_entries_call_key (call_id=?)",
		"SELECT * FROM conferences WHERE customer_id = 'c' AND ended_at IS NULL ORDER BY created_at DESC, id DESC LIMIT 51":                                          "conferences_page (customer_id=?)",
		"SELECT * FROM conferences WHERE customer_id = 'c' AND name = 'n' AND ended_at IS NULL":                                                                      "conferences_name_key (customer_id=? AND name=?)",
		"SELECT * FROM conference_members WHERE conference_id = 'x' AND left_at IS NULL ORDER BY joined_at, id":                                                      "conference_members_present (conference_id=?)",
		"SELECT * FROM legs WHERE call_id = 'x' AND customer_id = 'c' ORDER BY created_at, id":                                                                       "legs_call (call_id=?)",
		"SELECT * FROM events WHERE subject_id = 'x' AND call_id IS NOT NULL AND customer_id = 'c' AND sequence > 5 ORDER BY sequence LIMIT 50":                      "sqlite_autoindex_events_2 (subject_id=? AND sequence>?)",
	} {
		var plan []struct{ Detail string }
		require.NoError(t, models.Reader(s).Raw("EXPLAIN QUERY PLAN "+query).Scan(&plan).Error)
		var lines []string
		for _, step := range plan {
			lines = append(lines, step.Detail)
		}
		text := strings.Join(lines, "\n")
		require.Contains(t, text, "SEARCH", query)
		require.Contains(t, text, index, query)
		if !strings.Contains(query, "AND node_id = 'n' ORDER BY created_at") {
			require.NotContains(t, text, "TEMP B-TREE", query)
		}
	}
}

// TestRetryable: a transaction runs again after what the database calls a conflict, or was its own mistake about locks, and after nothing else.
func TestRetryable(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		code, message string
		want          bool
	}{
		{"40001", "could not serialize access", true}, {"40P01", "deadlock detected", true},
		{"XX000", "new multixact has more than one updating member: 0 14[4521 (keysh), 4521 (nokeyupd)]", true},
		{"XX000", "cache lookup failed", false}, {"23505", "duplicate key", false},
	} {
		err := fmt.Errorf("hold: %w", &pgconn.PgError{Code: test.code, Message: test.message})
		require.Equal(t, test.want, models.Retryable(err), test.message)
	}
}

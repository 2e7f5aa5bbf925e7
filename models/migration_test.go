package models_test

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tandem/models"
	"tandem/models/modelstest"
)

// firstRows fill every table of the first schema. Call one has delivered, dead and pending events, call two none.
var firstRows = []string{
	"INSERT INTO customers VALUES ('cust_1', 'One', 'EUR', 5000000, 20000, 1, 2), ('cust_2', 'Two', 'USD', 0, 0, 3, 4)",
	"INSERT INTO applications VALUES ('app_1', 'cust_1', 'App', 'https://a', 'https://w', '', 'sealed', '', NULL, 10, 11, NULL), ('app_2', 'cust_2', 'Gone', '', '', '', '', '', 7, 10, 11, 12)",
	"INSERT INTO api_keys VALUES ('key_1', 'cust_1', 'app_1', 'Key', 'tk', 'look', CAST('hash' AS BYTEA), 5, NULL, NULL)",
	"INSERT INTO trunks VALUES ('trunk_1', 'cust_1', 'Trunk', 'outbound', 'gw-1', '127.0.0.1', 'u', 'sealed', 'r', 'd', TRUE, TRUE, '', '', '', NULL, 20, 21, NULL)",
	"INSERT INTO dids VALUES ('did_1', 'cust_1', 'app_1', '+15550000001', 'p', 'active', 'webhook', '', 0, 30, 31, NULL)",
	"INSERT INTO nodes VALUES ('node_1', 'fs', '127.0.0.1:8021', 'sealed', '/conf', TRUE, 'me', 4, 99, 'core', 40, 41)",
	"INSERT INTO gateway_statuses VALUES ('node_1', 'trunk_1', 'REGED', 'UP', 1.5, 50)",
	`INSERT INTO calls VALUES
		('call_1', 'cust_1', 'app_1', 'trunk_1', NULL, 'node_1', 'outbound', 'in_progress', '+15550000001', '+15550000002', TRUE, '{"k":"v"}', '{"a":"b"}',
			'chan-1', '', '', '', 0, 0, 12000, 20000, 60, 30, 0, 0, 4, '{"index":1,"begun":true,"request":2}', 60, 61, 62, 63, NULL, NULL),
		('call_2', 'cust_1', 'app_1', NULL, 'did_1', NULL, 'inbound', 'completed', '+15550000003', '+15550000001', FALSE, '{}', '{}',
			'chan-2', 'completed', 'caller', 'NORMAL_CLEARING', 16, 200, 0, 0, 60, 30, 7, 0, 0, '{"index":0,"begun":false,"request":0}', 70, 71, 72, 73, 74, 75)`,
	"INSERT INTO recordings VALUES ('rec_1', 'call_1', 'cust_1', 'a.wav', 'wav', 'available', 2.25, 80, 82), ('rec_2', 'call_1', 'cust_1', 'b.wav', 'wav', 'recording', 0, 83, NULL)",
	`INSERT INTO call_events VALUES
		('evt_1', 'call_1', 'cust_1', 'app_1', 1, 'call.created', CAST('{"n":1}' AS BYTEA), 90), ('evt_2', 'call_1', 'cust_1', 'app_1', 2, 'call.ringing', CAST('{"n":2}' AS BYTEA), 91),
		('evt_3', 'call_1', 'cust_1', 'app_1', 3, 'call.answered', CAST('{"n":3}' AS BYTEA), 92), ('evt_4', 'call_1', 'cust_1', 'app_1', 4, 'call.notify', CAST('{"n":4}' AS BYTEA), 93)`,
	"INSERT INTO webhook_endpoints VALUES ('app_1', 2, 91, NULL, '')",
	"INSERT INTO webhook_streams VALUES ('call_1', 'app_1', 4, 2, 95, 6, '', NULL, 1)",
	`INSERT INTO webhook_deliveries VALUES ('evt_1', 'call_1', 'app_1', 1, 'delivered', 1, 200, 92), ('evt_2', 'call_1', 'app_1', 2, 'dead', 12, 500, NULL),
		('evt_3', 'call_1', 'app_1', 3, 'pending', 1, 503, NULL), ('evt_4', 'call_1', 'app_1', 4, 'pending', 0, 0, NULL)`,
	"INSERT INTO webhook_attempts VALUES ('att_1', 'evt_1', 1, 92, 3.5, 200, '', 'ok'), ('att_2', 'evt_3', 1, 93, 4.5, 503, 'status', '')",
	"INSERT INTO ledger_entries VALUES ('led_1', 'cust_1', 'start', 'topup', 5000000, 5000000, NULL, '', 1)",
	"INSERT INTO idempotent_responses VALUES ('cust_1', 'k', 'POST', '/v1/calls', 'h', 201, CAST('{}' AS BYTEA), 1)",
}

var firstTables = []string{
	"locks", "customers", "applications", "api_keys", "trunks", "dids", "nodes", "gateway_statuses", "calls", "recordings", "call_events", "webhook_endpoints",
	"webhook_streams", "webhook_deliveries", "webhook_attempts", "ledger_entries", "idempotent_responses",
}

// content returns every row of the tables, as sorted text.
func content(t *testing.T, s *models.Store, tables []string) map[string][]string {
	t.Helper()
	all := map[string][]string{}
	for _, table := range tables {
		var rows []map[string]any
		require.NoError(t, models.Reader(s).Table(table).Order("1, 2").Find(&rows).Error)
		for _, row := range rows {
			for column, value := range row {
				if raw, ok := value.([]byte); ok {
					row[column] = string(raw)
				}
			}
			text, err := json.Marshal(row)
			require.NoError(t, err)
			all[table] = append(all[table], string(text))
		}
		require.NotEmpty(t, all[table], table)
	}
	return all
}

// shape is schemaOf in one spelling: SQLite keeps the text of statements, and where a column was added and dropped a little of
// its white space. The order of columns means nothing: one that was dropped and added again is the last. Nor does an empty default: SQLite
// adds no column that must hold something without one.
func shape(t *testing.T, s *models.Store) []string {
	t.Helper()
	rows := schemaOf(t, models.Reader(s))
	for i := range rows {
		rows[i] = strings.ReplaceAll(regexp.MustCompile(`\s+`).ReplaceAllString(rows[i], " "), " )", ")")
		if head, body, ok := strings.Cut(rows[i], "("); ok && strings.Contains(head, "CREATE TABLE") {
			parts := definitions(strings.TrimSuffix(body, ")"))
			for i := range parts {
				parts[i] = strings.TrimSuffix(parts[i], " DEFAULT ''")
			}
			slices.Sort(parts)
			rows[i] = head + "(" + strings.Join(parts, ", ") + ")"
		}
	}
	return rows
}

// definitions splits what stands between the parentheses of a CREATE TABLE at the commas that stand in no others.
func definitions(body string) []string {
	var parts []string
	depth, begin := 0, 0
	for i, c := range body {
		switch c {
		case '(':
			depth++
		case ')':
			depth--
		case ',':
			if depth == 0 {
				parts, begin = append(parts, strings.TrimSpace(body[begin:i])), i+1
			}
		}
	}
	return append(parts, strings.TrimSpace(body[begin:]))
}

// first opens an empty database of the first schema.
func first(t *testing.T, fn func(t *testing.T, s *models.Store)) {
	t.Helper()
	run := func(t *testing.T, location string) {
		t.Parallel()
		s, err := models.Open(t.Context(), models.Config{URL: location, Key: modelstest.Key})
		require.NoError(t, err)
		defer func() { require.NoError(t, s.Close()) }()
		require.NoError(t, models.MigrateTo(t.Context(), s, 1))
		for _, statement := range firstRows {
			if s.Dialect() == models.DialectSQLite {
				statement = strings.ReplaceAll(statement, "AS BYTEA", "AS BLOB")
			}
			require.NoError(t, models.Write(t.Context(), s, statement), statement)
		}
		fn(t, s)
	}
	t.Run("sqlite", func(t *testing.T) { run(t, "sqlite:"+filepath.Join(t.TempDir(), "old.db")) })
	t.Run("postgres", func(t *testing.T) { run(t, modelstest.EmptyPostgresURL(t)) })
}

// TestMigrateCallControl takes a filled database of the first schema up, down and up again: everything is kept.
func TestMigrateCallControl(t *testing.T) {
	t.Parallel()
	first(t, func(t *testing.T, s *models.Store) {
		ctx := t.Context()
		before, schema := content(t, s, firstTables), shape(t, s)
		check := func() {
			t.Helper()
			require.NoError(t, s.Migrate(ctx))
			app, err := takeRaw(t, s, "SELECT fallback_actions, wait_actions, event_kinds FROM applications WHERE id = 'app_1'")
			require.NoError(t, err)
			require.Equal(t, map[string]any{"fallback_actions": nil, "wait_actions": nil, "event_kinds": nil}, app)
			call, err := s.Call(ctx, "cust_1", "call_1")
			require.NoError(t, err)
			require.Equal(t, "in_progress", call.Status)
			require.Equal(t, models.Cursor{Index: 1, Begun: true, Request: 2}, call.Cursor)
			require.Empty(t, call.AnsweredBy)
			require.Nil(t, call.MachineDetection)
			require.Nil(t, call.RetryOf)
			recordings, err := s.RecordingsOfCall(ctx, "cust_1", "call_1")
			require.NoError(t, err)
			require.Len(t, recordings, 2)
			require.Equal(t, []any{"rec_1", 1, "available", 2.25}, []any{recordings[0].ID, recordings[0].Channels, recordings[0].Status, recordings[0].Seconds})
			events, err := s.CallEvents(ctx, "cust_1", "call_1")
			require.NoError(t, err)
			require.Len(t, events, 4)
			require.Equal(t, models.Event{
				ID: "evt_2", SubjectID: "call_1", CallID: "call_1", CustomerID: "cust_1", ApplicationID: "app_1", Sequence: 2, Type: "call.ringing",
				Body: []byte(`{"n":2}`), CreatedAt: time.UnixMicro(91).UTC(), Position: 2,
			}, events[1])
			attempts, err := s.Attempts(ctx, "evt_3")
			require.NoError(t, err)
			require.Len(t, attempts, 1)
		}
		check()
		require.NoError(t, models.MigrateTo(ctx, s, 1))
		require.Equal(t, before, content(t, s, firstTables))
		require.Equal(t, schema, shape(t, s))
		check()

		// And the queue goes on where it stood: the third event, then the fourth, then a new one.
		for want := int64(3); want <= 5; want++ {
			claimed, err := s.ClaimStreams(ctx, "w", time.Minute, 4, 4, 4)
			require.NoError(t, err)
			require.Len(t, claimed, 1)
			require.Equal(t, want, claimed[0].Event.Sequence)
			if want == 3 {
				require.Equal(t, 1, claimed[0].Attempts)
				require.NoError(t, s.AppendEvent(ctx, &models.Event{CallID: "call_1", Type: "call.notify"}, body))
			}
			require.NoError(t, s.FinishDeliveries(ctx, []models.Outcome{delivered(&claimed[0])}))
		}
	})
}

func takeRaw(t *testing.T, s *models.Store, query string) (map[string]any, error) {
	t.Helper()
	row := map[string]any{}
	err := models.Reader(s).Raw(query).Take(&row).Error
	return row, err
}

func delivered(claimed *models.ClaimedStream) models.Outcome {
	return models.Outcome{
		SubjectID: claimed.SubjectID, EndpointID: claimed.EndpointID, LeaseToken: claimed.LeaseToken, EventID: claimed.Event.ID,
		Result: models.ResultDelivered, Attempt: models.Attempt{Number: claimed.Attempts + 1, Status: 200},
	}
}

// TestMigrateDownWithGaps takes what only the second schema has to the first one: a paused recording, events that were not
// wanted, and events without a call. The streams of the first count every event.
func TestMigrateDownWithGaps(t *testing.T) {
	t.Parallel()
	first(t, func(t *testing.T, s *models.Store) {
		ctx := t.Context()
		require.NoError(t, s.Migrate(ctx))
		require.NoError(t, models.Write(ctx, s, "UPDATE recordings SET status = 'paused' WHERE id = 'rec_2'"))
		// Behind the two that wait: one that is not wanted, one that is, one that is not.
		for _, kind := range []string{"call.dtmf", "call.notify", "call.dtmf"} {
			require.NoError(t, s.AppendEvent(ctx, &models.Event{CallID: "call_1", Type: kind}, body))
		}
		// A call of which nothing was wanted yet, and one that is through with everything.
		require.NoError(t, models.Write(ctx, s, "UPDATE calls SET ended_at = NULL WHERE id = 'call_2'"))
		require.NoError(t, s.AppendEvent(ctx, &models.Event{CallID: "call_2", Type: "call.dtmf"}, body))
		require.NoError(t, models.Write(ctx, s, `INSERT INTO calls (id, customer_id, application_id, direction, status, from_number, to_number, record, metadata,
				variables, channel_id, reason, hangup_source, cause, q850, sip_code, price_per_minute_micros, hold_micros, granted_seconds, timeout_seconds,
				billed_seconds, cost_micros, last_sequence, cursor, created_at, updated_at)
			VALUES ('call_3', 'cust_1', 'app_1', 'outbound', 'dialing', '', '', FALSE, '{}', '{}', '', '', '', '', 0, 0, 0, 0, 0, 0, 0, 0, 0, '{}', 5, 5)`))
		for _, kind := range []string{"call.dtmf", "call.created", "call.dtmf"} {
			require.NoError(t, s.AppendEvent(ctx, &models.Event{CallID: "call_3", Type: kind}, body))
		}
		require.NoError(t, models.Write(ctx, s, "UPDATE webhook_streams SET acked_seq = 1, due_at = NULL WHERE subject_id = 'call_3'"))
		require.NoError(t, models.Write(ctx, s, "UPDATE webhook_deliveries SET state = 'delivered' WHERE subject_id = 'call_3'"))
		require.NoError(t, models.Write(ctx, s, "UPDATE applications SET webhook_secret = '' WHERE id = 'app_1'"))
		require.NoError(t, s.AppendSubjectEvent(ctx, &models.Event{CustomerID: "cust_1", ApplicationID: "app_1", SubjectID: "trunk_1", Type: "trunk.registered"}, false, body))

		require.NoError(t, models.MigrateTo(ctx, s, 1))
		var states []string
		require.NoError(t, models.Reader(s).Raw("SELECT call_id || ' ' || seq || ' ' || state FROM webhook_deliveries ORDER BY call_id, seq").Scan(&states).Error)
		require.Equal(t, []string{
			"call_1 1 delivered", "call_1 2 dead", "call_1 3 pending", "call_1 4 pending", "call_1 5 pending", "call_1 6 pending", "call_1 7 pending",
			"call_3 1 skipped", "call_3 2 delivered", "call_3 3 skipped",
		}, states)
		var streams []string
		require.NoError(t, models.Reader(s).Raw("SELECT call_id || ' ' || acked_seq || ' ' || last_seq FROM webhook_streams ORDER BY call_id").Scan(&streams).Error)
		require.Equal(t, []string{"call_1 2 7", "call_3 3 3"}, streams)
		recording, err := takeRaw(t, s, "SELECT status FROM recordings WHERE id = 'rec_2'")
		require.NoError(t, err)
		require.Equal(t, map[string]any{"status": "recording"}, recording)
		count, err := takeRaw(t, s, "SELECT COUNT(*) AS n FROM call_events")
		require.NoError(t, err)
		require.Equal(t, "11", fmt.Sprint(count["n"]))
		require.NoError(t, s.Migrate(ctx))
	})
}

// TestSharedRowsAreNotReferenced: on PostgreSQL, what calls write does not lock the rows that they share.
func TestSharedRowsAreNotReferenced(t *testing.T) {
	t.Parallel()
	s, err := models.Open(t.Context(), models.Config{URL: modelstest.EmptyPostgresURL(t), Key: modelstest.Key})
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()
	shared := func() (count int) {
		t.Helper()
		require.NoError(t, models.Reader(s).Raw(`SELECT count(*) FROM pg_constraint WHERE contype = 'f'
			AND conrelid IN ('events'::regclass, 'webhook_streams'::regclass, 'webhook_deliveries'::regclass)
			AND confrelid IN ('applications'::regclass, 'webhook_endpoints'::regclass)`).Row().Scan(&count))
		return count
	}
	require.NoError(t, s.Migrate(t.Context()))
	require.Zero(t, shared())
	require.NoError(t, models.MigrateTo(t.Context(), s, 7))
	require.Equal(t, 3, shared())
	require.NoError(t, s.Migrate(t.Context()))
	require.Zero(t, shared())
	steps, err := s.MigrationStatus(t.Context())
	require.NoError(t, err)
	unshared := slices.IndexFunc(steps, func(m models.Migration) bool { return m.Name == "00008_unshared.go" })
	require.GreaterOrEqual(t, unshared, 0)
	require.NotNil(t, steps[unshared].AppliedAt)
}

package models_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tandem/models"
	"tandem/models/modelstest"
)

// rateImport begins an import of rates.
func rateImport(t *testing.T, s *models.Store, deck *models.RateDeck, mode string, records int64) *models.RateImport {
	t.Helper()
	job := &models.RateImport{DeckID: deck.ID, Mode: mode, StartsAt: day(10), Import: models.Import{
		FileSHA256: "aa", Columns: []string{"prefix"}, Defaults: map[string]string{}, TotalRecords: records,
	}}
	require.NoError(t, s.CreateRateImport(t.Context(), job))
	return job
}

func TestRateImport(t *testing.T) {
	t.Parallel()
	modelstest.RunPair(t, "", func(t *testing.T, s, other *models.Store) {
		ctx := t.Context()
		deck := deckOf(t, s, "EUR")
		require.ErrorIs(t, s.CreateRateImport(ctx, &models.RateImport{DeckID: "deck_absent", Mode: models.ImportMerge}), models.ErrNotFound)
		_, err := s.PutRates(ctx, deck.ID, []models.DeckRate{rateOf("31", 1, 0, nil), rateOf("32", 1, 0, nil), rateOf("33", 1, 0, nil)})
		require.NoError(t, err)

		job := rateImport(t, s, deck, models.ImportMerge, 5)
		first := []models.DeckRate{rateOf("31", 2, 10, nil), rateOf("32", 1, 10, nil), rateOf("44", 4, 10, nil)}
		wrong := []models.ImportReject{{Line: 4, Record: "x,y", Field: "prefix", Message: "no prefix"}}
		done, err := s.ImportRates(ctx, job.ID, 0, 4, first, wrong)
		require.NoError(t, err)
		require.Equal(t, []any{models.ImportOpen, int64(4), int64(1), int64(1), int64(1), int64(1)},
			[]any{done.State, done.NextRecord, done.Created, done.Updated, done.Unchanged, done.Rejected})
		for name, again := range map[string]func() error{
			"the same part":     func() error { _, err := other.ImportRates(ctx, job.ID, 0, 4, first, wrong); return err },
			"beyond the end":    func() error { _, err := other.ImportRates(ctx, job.ID, 4, 2, nil, nil); return err },
			"before the others": func() error { _, err := other.ImportRates(ctx, job.ID, 5, 0, nil, nil); return err },
		} {
			require.ErrorIs(t, again(), models.ErrImportPlace, name)
		}
		// One that fails leaves the import, and the deck, where they were.
		broken := rateOf("46", 1, 10, nil)
		broken.ConnectOn = "never"
		_, err = other.ImportRates(ctx, job.ID, 4, 1, []models.DeckRate{rateOf("45", 1, 10, nil), broken}, nil)
		require.Error(t, err)
		stands, err := s.RateImport(ctx, job.ID)
		require.NoError(t, err)
		require.Equal(t, done, stands)
		require.Empty(t, lineOf(t, s, deck, "45"))

		done, err = other.ImportRates(ctx, job.ID, 4, 1, []models.DeckRate{rateOf("45", 5, 10, nil)}, nil)
		require.NoError(t, err)
		require.Equal(t, []any{models.ImportFinished, int64(0)}, []any{done.State, done.Ended})
		require.Equal(t, []string{"0-10: 1", "10-…: 2"}, lineOf(t, s, deck, "31"))
		require.Equal(t, []string{"0-…: 1"}, lineOf(t, s, deck, "33"), "what the file does not name stays")
		rejects, err := s.RateRejects(ctx, job.ID, 0, 10)
		require.NoError(t, err)
		require.Equal(t, []models.ImportReject{{ImportID: job.ID, Line: 4, Record: "x,y", Field: "prefix", Message: "no prefix"}}, rejects)
		_, err = s.CancelRateImport(ctx, job.ID)
		require.ErrorIs(t, err, models.ErrImportPlace)

		rival := rateImport(t, s, deckOf(t, s, "EUR"), models.ImportMerge, 1)
		for _, tc := range []struct {
			deck, state, sum string
			want             []string
		}{
			{"", "", "", []string{rival.ID, job.ID}}, {deck.ID, "", "", []string{job.ID}}, {"", models.ImportOpen, "aa", []string{rival.ID}}, {"", "", "bb", nil},
		} {
			rows, _, err := s.RateImports(ctx, tc.deck, tc.state, tc.sum, models.Page{})
			require.NoError(t, err)
			var ids []string
			for i := range rows {
				ids = append(ids, rows[i].ID)
			}
			require.Equal(t, tc.want, ids)
		}
	})
}

// TestRateImportReplaces: what the file names comes, what it does not name ends, or never comes; nothing does while something is rejected.
func TestRateImportReplaces(t *testing.T) {
	t.Parallel()
	modelstest.Run(t, "", func(t *testing.T, s *models.Store) {
		ctx := t.Context()
		filled := func() *models.RateDeck {
			deck := deckOf(t, s, "EUR")
			inbound := rateOf("31", 9, 0, nil)
			inbound.Direction = models.Inbound
			_, err := s.PutRates(ctx, deck.ID, []models.DeckRate{
				rateOf("31", 1, 0, nil), rateOf("32", 1, 0, until(5)), rateOf("33", 1, 0, nil), rateOf("33", 2, 20, nil), rateOf("34", 1, 0, nil), rateOf("35", 1, 0, until(10)),
				rateOf("36", 1, 10, nil), inbound,
			})
			require.NoError(t, err)
			return deck
		}
		deck := filled()
		job := rateImport(t, s, deck, models.ImportReplace, 3)
		_, err := s.ImportRates(ctx, job.ID, 0, 2, []models.DeckRate{rateOf("31", 5, 10, nil), rateOf("44", 4, 10, nil)}, nil)
		require.NoError(t, err)
		require.Equal(t, []string{"0-20: 1", "20-…: 2"}, lineOf(t, s, deck, "33"), "the file may name it yet")
		// The last one says what is so: it is named all the same.
		done, err := s.ImportRates(ctx, job.ID, 2, 1, []models.DeckRate{rateOf("34", 1, 10, nil)}, nil)
		require.NoError(t, err)
		require.Equal(t, []any{models.ImportFinished, int64(1), int64(1), int64(1), int64(4)}, []any{done.State, done.Created, done.Updated, done.Unchanged, done.Ended})
		for prefix, want := range map[string][]string{
			"31": {"0-10: 9", "0-10: 1", "10-…: 5"}, "32": {"0-5: 1"}, "33": {"0-10: 1"}, "34": {"0-…: 1"}, "35": {"0-10: 1"}, "36": {}, "44": {"10-…: 4"},
		} {
			require.Equal(t, want, lineOf(t, s, deck, prefix), prefix)
		}

		for name, end := range map[string]func(job *models.RateImport){
			"rejected": func(job *models.RateImport) {
				_, err := s.ImportRates(ctx, job.ID, 0, 1, nil, []models.ImportReject{{Line: 2, Message: "wrong"}})
				require.NoError(t, err)
			},
			"canceled": func(job *models.RateImport) {
				_, err := s.CancelRateImport(ctx, job.ID)
				require.NoError(t, err)
			},
		} {
			deck := filled()
			job := rateImport(t, s, deck, models.ImportReplace, 2)
			_, err := s.ImportRates(ctx, job.ID, 0, 0, []models.DeckRate{rateOf("31", 1, 0, nil)}, nil)
			require.NoError(t, err)
			end(job)
			if name == "rejected" {
				done, err := s.ImportRates(ctx, job.ID, 1, 1, []models.DeckRate{rateOf("32", 1, 10, nil)}, nil)
				require.NoError(t, err)
				require.Equal(t, []any{models.ImportFinished, int64(0)}, []any{done.State, done.Ended})
			}
			require.Equal(t, []string{"0-…: 1"}, lineOf(t, s, deck, "34"), name)
			require.Equal(t, []string{"10-…: 1"}, lineOf(t, s, deck, "36"), name)
			var left int64
			require.NoError(t, models.Reader(s).Table("rate_import_prefixes").Count(&left).Error)
			require.Zero(t, left, name)
		}
	})
}

func TestPruneRateImports(t *testing.T) {
	t.Parallel()
	modelstest.RunClock(t, "", func(t *testing.T, s *models.Store, clock *modelstest.Clock) {
		ctx := t.Context()
		deck := deckOf(t, s, "EUR")
		old := rateImport(t, s, deck, models.ImportReplace, 2)
		_, err := s.ImportRates(ctx, old.ID, 0, 1, []models.DeckRate{rateOf("31", 1, 0, nil)}, []models.ImportReject{{Line: 2, Message: "wrong"}})
		require.NoError(t, err)
		clock.Advance(time.Hour)
		kept := rateImport(t, s, deck, models.ImportMerge, 1)
		deleted, err := s.PruneImports(ctx, clock.Now())
		require.NoError(t, err)
		require.EqualValues(t, 1, deleted)
		_, err = s.RateImport(ctx, old.ID)
		require.ErrorIs(t, err, models.ErrNotFound)
		_, err = s.RateImport(ctx, kept.ID)
		require.NoError(t, err)
		require.Equal(t, []string{"0-…: 1"}, lineOf(t, s, deck, "31"))
	})
}

// manyRates are rates of different prefixes, most of them of five or six digits.
func manyRates(count, from int) []models.DeckRate {
	rows := make([]models.DeckRate, count)
	for i := range rows {
		rows[i] = rateOf(fmt.Sprint(10_000+from+i), int64(10_000+i), 0, nil)
	}
	return rows
}

// BenchmarkRateAt looks a number up among 100,000 rates, most of its prefixes being those of others.
func BenchmarkRateAt(b *testing.B) {
	benchStores(b, func(b *testing.B, s *models.Store) {
		b.Helper()
		deck := &models.RateDeck{Name: "many", Currency: "EUR"}
		require.NoError(b, s.CreateRateDeck(b.Context(), deck))
		for from := 0; from < 100_000; from += models.MaxRates {
			_, err := s.PutRates(b.Context(), deck.ID, manyRates(models.MaxRates, from))
			require.NoError(b, err)
		}
		b.ReportAllocs()
		i := 0
		for b.Loop() {
			i++
			_, err := s.RateAt(b.Context(), deck.ID, models.Outbound, fmt.Sprintf("+%d1234567", 10_000+i*7919%100_000), day(1))
			require.NoError(b, err)
		}
	})
}

// BenchmarkPutRates imports a thousand rates at a time, as the command line sends them.
func BenchmarkPutRates(b *testing.B) {
	benchStores(b, func(b *testing.B, s *models.Store) {
		b.Helper()
		deck := &models.RateDeck{Name: "many", Currency: "EUR"}
		require.NoError(b, s.CreateRateDeck(b.Context(), deck))
		from := 0
		for b.Loop() {
			_, err := s.PutRates(b.Context(), deck.ID, manyRates(1000, from))
			require.NoError(b, err)
			from += 1000
		}
	})
}

// benchStores runs a benchmark on both databases.
func benchStores(b *testing.B, fn func(b *testing.B, s *models.Store)) {
	b.Helper()
	for dialect, url := range map[string]func(testing.TB) string{models.DialectSQLite: modelstest.SQLiteURL, models.DialectPostgres: modelstest.PostgresURL} {
		b.Run(dialect, func(b *testing.B) {
			s, err := models.Open(b.Context(), models.Config{URL: url(b), Key: modelstest.Key})
			require.NoError(b, err)
			defer func() { require.NoError(b, s.Close()) }()
			fn(b, s)
		})
	}
}

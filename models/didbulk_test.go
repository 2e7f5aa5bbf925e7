package models_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"tandem/models"
	"tandem/models/modelstest"
)

// put is PutDIDs in a transaction of its own.
func put(t *testing.T, s *models.Store, onConflict string, rows ...models.DID) []models.DIDResult {
	t.Helper()
	var results []models.DIDResult
	require.NoError(t, s.InTx(t.Context(), func(tx *models.Store) error {
		var err error
		results, err = tx.PutDIDs(t.Context(), rows, onConflict)
		return err
	}))
	return results
}

func TestPutDIDs(t *testing.T) {
	t.Parallel()
	modelstest.RunClock(t, "", func(t *testing.T, s *models.Store, clock *modelstest.Clock) {
		ctx := t.Context()
		customer, other := modelstest.Customer(t, s, 0), modelstest.Customer(t, s, 0)
		app, foreign := modelstest.Application(t, s, customer), modelstest.Application(t, s, other)
		did := func(customer *models.Customer, number string, app *models.Application) models.DID {
			d := models.DID{CustomerID: customer.ID, NumberE164: number, Provider: "p"}
			if app != nil {
				d.ApplicationID = &app.ID
			}
			return d
		}
		of := func(number string) *models.DID {
			t.Helper()
			found, err := s.RouteDID(ctx, number)
			require.NoError(t, err)
			return found
		}
		const one, two, three = "+15550001001", "+15550001002", "+15550001003"
		absent := did(&models.Customer{ID: "cust_absent"}, three, nil)
		require.Equal(t, []models.DIDResult{models.DIDCreated, models.DIDCreated, models.DIDNoApplication, models.DIDNoCustomer, models.DIDUnchanged},
			put(t, s, models.DIDSkip, did(customer, one, app), did(other, two, nil), did(customer, three, foreign), absent, did(customer, one, nil)))
		first := of(one)
		require.Equal(t, []string{models.DIDActive, models.RouteWebhook, customer.ID}, []string{first.Status, first.RouteMode, first.CustomerID})
		require.Equal(t, &app.ID, first.ApplicationID)
		revisions, err := s.DIDShards(ctx)
		require.NoError(t, err)
		require.Equal(t, map[string]int64{"001": 1, "002": 1}, revisions)

		// A number that exists: as it is, changed, and taken from another.
		clock.Advance(time.Minute)
		suspended := did(customer, one, app)
		suspended.Status, suspended.RouteMode, suspended.RejectCode = models.DIDSuspended, models.RouteReject, 486
		require.Equal(t, []models.DIDResult{models.DIDUnchanged}, put(t, s, models.DIDSkip, suspended))
		require.Equal(t, first, of(one))
		require.Equal(t, []models.DIDResult{models.DIDUpdated, models.DIDTaken}, put(t, s, models.DIDUpdate, suspended, did(customer, two, nil)))
		changed := of(one)
		require.Equal(t, []any{first.ID, models.DIDSuspended, models.RouteReject, 486, clock.Now()}, []any{changed.ID, changed.Status, changed.RouteMode, changed.RejectCode, changed.UpdatedAt})
		require.Equal(t, first.CreatedAt, changed.CreatedAt)
		require.Equal(t, []models.DIDResult{models.DIDUnchanged}, put(t, s, models.DIDUpdate, suspended), "nothing to change")
		was := of(two)
		require.Equal(t, []models.DIDResult{models.DIDReassigned, models.DIDUnchanged}, put(t, s, models.DIDReassign, did(customer, two, app), did(customer, two, app)))
		now := of(two)
		require.NotEqual(t, was.ID, now.ID)
		require.Equal(t, customer.ID, now.CustomerID)
		_, err = s.DID(ctx, other.ID, was.ID)
		require.ErrorIs(t, err, models.ErrNotFound)
		revisions, err = s.DIDShards(ctx)
		require.NoError(t, err)
		require.Equal(t, map[string]int64{"001": 2, "002": 2}, revisions, "what stayed as it was is no change")

		deleted, err := s.DeleteDIDs(ctx, []string{one, two, three})
		require.NoError(t, err)
		require.Equal(t, 2, deleted)
		_, err = s.RouteDID(ctx, one)
		require.ErrorIs(t, err, models.ErrNotFound)
		require.Equal(t, []models.DIDResult{models.DIDCreated}, put(t, s, models.DIDSkip, did(other, one, foreign)), "free again")
		wrong := did(other, two, nil)
		wrong.RouteMode = "nowhere"
		require.Error(t, s.InTx(ctx, func(tx *models.Store) error {
			_, err := tx.PutDIDs(ctx, []models.DID{wrong}, models.DIDSkip)
			return err
		}))
		tooMany := make([]string, models.MaxDIDs+1)
		_, err = s.DeleteDIDs(ctx, tooMany)
		require.ErrorContains(t, err, "10000")
	})
}

// TestPutDIDsTwice: a row that is refused does not stand in the way of another one with its number.
func TestPutDIDsTwice(t *testing.T) {
	t.Parallel()
	modelstest.Run(t, "", func(t *testing.T, s *models.Store) {
		customer, other := modelstest.Customer(t, s, 0), modelstest.Customer(t, s, 0)
		const number = "+15550001009"
		row := func(of *models.Customer, provider string) models.DID {
			return models.DID{CustomerID: of.ID, NumberE164: number, Provider: provider}
		}
		put(t, s, models.DIDSkip, row(customer, "old"))
		require.Equal(t, []models.DIDResult{models.DIDTaken, models.DIDTaken, models.DIDUpdated},
			put(t, s, models.DIDUpdate, row(other, "a"), row(other, "b"), row(customer, "new")))
		did, err := s.RouteDID(t.Context(), number)
		require.NoError(t, err)
		require.Equal(t, []string{customer.ID, "new"}, []string{did.CustomerID, did.Provider})
	})
}

// TestPutDIDsInEitherOrder: who puts the same numbers at the same time, each in an order of its own, waits for the other and not in a circle.
func TestPutDIDsInEitherOrder(t *testing.T) {
	t.Parallel()
	s := modelstest.OpenPostgres(t)
	ctx, customer := t.Context(), modelstest.Customer(t, s, 0)
	const numbers = 4000
	var runs atomic.Int64
	var group errgroup.Group
	for _, descending := range []bool{false, true} {
		group.Go(func() error {
			return s.InTx(ctx, func(tx *models.Store) error {
				runs.Add(1)
				rows := make([]models.DID, numbers)
				for i := range rows {
					place := i
					if descending {
						place = numbers - 1 - i
					}
					rows[i] = models.DID{CustomerID: customer.ID, NumberE164: fmt.Sprintf("+1556%07d", place)}
				}
				_, err := tx.PutDIDs(ctx, rows, models.DIDSkip)
				return err
			})
		})
	}
	require.NoError(t, group.Wait())
	require.EqualValues(t, 2, runs.Load(), "a transaction was undone for a deadlock")
}

// TestPutManyDIDs goes beyond what one statement takes.
func TestPutManyDIDs(t *testing.T) {
	t.Parallel()
	modelstest.Run(t, "", func(t *testing.T, s *models.Store) {
		customer := modelstest.Customer(t, s, 0)
		rows := make([]models.DID, 1100)
		numbers := make([]string, len(rows))
		for i := range rows {
			numbers[i] = fmt.Sprintf("+1555%07d", i)
			rows[i] = models.DID{CustomerID: customer.ID, NumberE164: numbers[i]}
		}
		for i, result := range put(t, s, models.DIDSkip, rows...) {
			require.Equal(t, models.DIDCreated, result, i)
		}
		for i, result := range put(t, s, models.DIDSkip, rows...) {
			require.Equal(t, models.DIDUnchanged, result, i)
		}
		var all []models.DID
		for after := ""; ; {
			page, err := s.AllDIDs(t.Context(), models.DIDFilter{CustomerID: customer.ID, Prefix: "+1555"}, after, 999)
			require.NoError(t, err)
			if len(page) == 0 {
				break
			}
			all = append(all, page...)
			after = page[len(page)-1].NumberE164
		}
		require.Len(t, all, len(rows))
		for i := range all {
			require.Equal(t, numbers[i], all[i].NumberE164)
		}
		for _, filter := range []models.DIDFilter{
			{CustomerID: "cust_x"}, {ApplicationID: "app_x"}, {Provider: "x"}, {Status: models.DIDSuspended}, {RouteMode: models.RouteSIP}, {Prefix: "+1556"}, {Prefix: "+155500000000"},
		} {
			none, err := s.AllDIDs(t.Context(), filter, "", 10)
			require.NoError(t, err)
			require.Empty(t, none, "%+v", filter)
		}
		deleted, err := s.DeleteDIDs(t.Context(), numbers)
		require.NoError(t, err)
		require.Equal(t, len(rows), deleted)
	})
}

// TestManyPutTheSameDIDs: whoever is first has a number, and nobody fails.
func TestManyPutTheSameDIDs(t *testing.T) {
	t.Parallel()
	modelstest.RunPair(t, "", func(t *testing.T, s, other *models.Store) {
		customers := []*models.Customer{modelstest.Customer(t, s, 0), modelstest.Customer(t, s, 0)}
		const writers, count = 6, 60
		created := make([]int, writers)
		group, ctx := errgroup.WithContext(t.Context())
		for w := range writers {
			store := []*models.Store{s, other}[w%2]
			group.Go(func() error {
				return store.InTx(ctx, func(tx *models.Store) error {
					rows := make([]models.DID, count)
					for i := range rows {
						rows[i] = models.DID{CustomerID: customers[w%2].ID, NumberE164: fmt.Sprintf("+1555%07d", i)}
					}
					results, err := tx.PutDIDs(ctx, rows, models.DIDUpdate)
					created[w] = 0
					for _, result := range results {
						if result == models.DIDCreated {
							created[w]++
						}
					}
					return err
				})
			})
		}
		require.NoError(t, group.Wait())
		sum := 0
		for _, n := range created {
			sum += n
		}
		require.Equal(t, count, sum)
	})
}

func TestDIDImport(t *testing.T) {
	t.Parallel()
	modelstest.RunPair(t, "", func(t *testing.T, s, other *models.Store) {
		ctx := t.Context()
		customer, rival := modelstest.Customer(t, s, 0), modelstest.Customer(t, s, 0)
		job := &models.DIDImport{OnConflict: models.DIDSkip, Import: models.Import{
			FileName: "numbers.csv", FileSHA256: "aa", Columns: []string{"number_e164"}, Defaults: map[string]string{"customer_id": customer.ID}, TotalRecords: 5,
		}}
		require.NoError(t, s.CreateDIDImport(ctx, job))
		require.Equal(t, models.ImportOpen, job.State)
		row := func(customer *models.Customer, number string, line int64) models.ImportedDID {
			return models.ImportedDID{DID: models.DID{CustomerID: customer.ID, NumberE164: number}, Line: line, Record: number}
		}
		require.Equal(t, []models.DIDResult{models.DIDCreated}, put(t, s, models.DIDSkip, models.DID{CustomerID: rival.ID, NumberE164: "+15550001002"}))

		first := []models.ImportedDID{row(customer, "+15550001001", 2), row(customer, "+15550001002", 3), row(customer, "+15550001001", 5)}
		wrong := []models.ImportReject{{Line: 4, Record: "x", Field: "number_e164", Message: "no number"}}
		done, err := s.ImportDIDs(ctx, job.ID, 0, 4, first, wrong)
		require.NoError(t, err)
		require.Equal(t, []any{models.ImportOpen, int64(4), int64(1), int64(0), int64(1), int64(2)}, []any{done.State, done.NextRecord, done.Created, done.Updated, done.Duplicates, done.Rejected})

		// The same part again, as after an answer that was lost; one beyond the end; one of an import that is not there.
		_, err = other.ImportDIDs(ctx, job.ID, 0, 4, first, wrong)
		require.ErrorIs(t, err, models.ErrImportPlace)
		_, err = other.ImportDIDs(ctx, job.ID, 4, 2, nil, nil)
		require.ErrorIs(t, err, models.ErrImportPlace)
		_, err = other.ImportDIDs(ctx, "imp_absent", 4, 1, nil, nil)
		require.ErrorIs(t, err, models.ErrNotFound)
		// One that fails leaves the import where it was.
		broken := row(customer, "+15550001003", 6)
		broken.Status = "neither"
		_, err = other.ImportDIDs(ctx, job.ID, 4, 1, []models.ImportedDID{row(customer, "+15550001004", 6), broken}, nil)
		require.Error(t, err)
		again, err := s.DIDImport(ctx, job.ID)
		require.NoError(t, err)
		require.Equal(t, done, again)
		_, err = s.RouteDID(ctx, "+15550001004")
		require.ErrorIs(t, err, models.ErrNotFound)

		done, err = other.ImportDIDs(ctx, job.ID, 4, 1, []models.ImportedDID{row(&models.Customer{ID: "cust_absent"}, "+15550001003", 6)}, nil)
		require.NoError(t, err)
		require.Equal(t, models.ImportFinished, done.State)
		_, err = s.ImportDIDs(ctx, job.ID, 5, 0, nil, nil)
		require.ErrorIs(t, err, models.ErrImportPlace)
		_, err = s.CancelDIDImport(ctx, job.ID)
		require.ErrorIs(t, err, models.ErrImportPlace)

		rejects, err := s.DIDRejects(ctx, job.ID, 0, 10)
		require.NoError(t, err)
		var told []string
		for i, reject := range rejects {
			require.EqualValues(t, i, reject.Place)
			told = append(told, fmt.Sprint(reject.Line, " ", reject.Field, " ", reject.Message))
		}
		require.Equal(t, []string{
			"3 number_e164 number_e164 is another customer's", "4 number_e164 no number", "6 customer_id customer_id names no customer",
		}, told)
		rejects, err = s.DIDRejects(ctx, job.ID, 2, 10)
		require.NoError(t, err)
		require.Len(t, rejects, 1)

		second := &models.DIDImport{OnConflict: models.DIDSkip, Import: models.Import{FileSHA256: "bb", Columns: []string{}, Defaults: map[string]string{}, TotalRecords: 1}}
		require.NoError(t, s.CreateDIDImport(ctx, second))
		canceled, err := other.CancelDIDImport(ctx, second.ID)
		require.NoError(t, err)
		require.Equal(t, models.ImportCanceled, canceled.State)
		empty := &models.DIDImport{OnConflict: models.DIDSkip, Import: models.Import{Columns: []string{}, Defaults: map[string]string{}}}
		require.NoError(t, s.CreateDIDImport(ctx, empty))
		require.Equal(t, models.ImportFinished, empty.State)
		for _, c := range []struct {
			state, sum string
			want       []string
		}{{"", "", []string{empty.ID, second.ID, job.ID}}, {models.ImportCanceled, "", []string{second.ID}}, {"", "aa", []string{job.ID}}, {models.ImportOpen, "", nil}} {
			rows, _, err := s.DIDImports(ctx, c.state, c.sum, models.Page{})
			require.NoError(t, err)
			var ids []string
			for i := range rows {
				ids = append(ids, rows[i].ID)
			}
			require.Equal(t, c.want, ids)
		}
	})
}

func TestPruneDIDImports(t *testing.T) {
	t.Parallel()
	modelstest.RunClock(t, "", func(t *testing.T, s *models.Store, clock *modelstest.Clock) {
		ctx := t.Context()
		job := func() *models.DIDImport {
			job := &models.DIDImport{OnConflict: models.DIDSkip, Import: models.Import{Columns: []string{}, Defaults: map[string]string{}, TotalRecords: 1}}
			require.NoError(t, s.CreateDIDImport(ctx, job))
			_, err := s.ImportDIDs(ctx, job.ID, 0, 1, nil, []models.ImportReject{{Line: 2, Message: "wrong"}})
			require.NoError(t, err)
			return job
		}
		old := job()
		clock.Advance(time.Hour)
		kept := job()
		deleted, err := s.PruneImports(ctx, clock.Now())
		require.NoError(t, err)
		require.EqualValues(t, 1, deleted)
		for id, left := range map[string]int{old.ID: 0, kept.ID: 1} {
			rejects, err := s.DIDRejects(ctx, id, 0, 10)
			require.NoError(t, err)
			require.Len(t, rejects, left)
		}
	})
}

// TestTwoSendersOfOneImport: of two that send the same part at once, one is told that it was taken; no number is imported twice.
func TestTwoSendersOfOneImport(t *testing.T) {
	t.Parallel()
	modelstest.RunPair(t, "", func(t *testing.T, s, other *models.Store) {
		customer := modelstest.Customer(t, s, 0)
		const parts = 20
		job := &models.DIDImport{OnConflict: models.DIDSkip, Import: models.Import{Columns: []string{}, Defaults: map[string]string{}, TotalRecords: parts}}
		require.NoError(t, s.CreateDIDImport(t.Context(), job))
		group, ctx := errgroup.WithContext(t.Context())
		for _, store := range []*models.Store{s, other} {
			group.Go(func() error { return sendAll(ctx, store, job.ID, customer.ID) })
		}
		require.NoError(t, group.Wait())
		done, err := s.DIDImport(t.Context(), job.ID)
		require.NoError(t, err)
		require.Equal(t, []any{models.ImportFinished, int64(parts), int64(0)}, []any{done.State, done.Created, done.Duplicates})
	})
}

// sendAll sends what is left of an import, one number in each part, as long as it is open.
func sendAll(ctx context.Context, s *models.Store, id, customer string) error {
	for {
		job, err := s.DIDImport(ctx, id)
		if err != nil || job.State != models.ImportOpen {
			return err
		}
		did := models.DID{CustomerID: customer, NumberE164: fmt.Sprintf("+1555%07d", job.NextRecord)}
		_, err = s.ImportDIDs(ctx, id, job.NextRecord, 1, []models.ImportedDID{{DID: did}}, nil)
		if err != nil && !errors.Is(err, models.ErrImportPlace) {
			return err
		}
	}
}

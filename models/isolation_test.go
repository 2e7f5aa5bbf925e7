package models_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tandem/models"
	"tandem/models/modelstest"
)

// TestIsolation walks every method that takes a customer with another customer's objects.
func TestIsolation(t *testing.T) {
	t.Parallel()
	modelstest.Run(t, "", func(t *testing.T, s *models.Store) {
		ctx := t.Context()
		owner, foreign := modelstest.Customer(t, s, 1_000), modelstest.Customer(t, s, 1_000)
		app, foreignApp := modelstest.Application(t, s, owner), modelstest.Application(t, s, foreign)
		trunk, did, call := modelstest.OutboundTrunk(t, s, owner), modelstest.DID(t, s, owner, app), modelstest.Call(t, s, app)
		key := &models.APIKey{CustomerID: owner.ID, ApplicationID: &app.ID, Name: "key"}
		_, err := s.CreateAPIKey(ctx, key, "")
		require.NoError(t, err)
		require.NoError(t, s.SaveRecording(ctx, &models.Recording{CallID: call.ID, CustomerID: owner.ID, Format: "wav", Status: models.RecordingRunning}))
		appendEvent(t, s, call, "call.created")
		require.NoError(t, s.SaveIdempotent(ctx, &models.IdempotentResponse{CustomerID: owner.ID, Key: "k", Body: []byte("{}")}))

		gone := map[string]func(customerID string) error{
			"Application":       func(id string) error { _, err := s.Application(ctx, id, app.ID); return err },
			"DeleteApplication": func(id string) error { return s.DeleteApplication(ctx, id, app.ID) },
			"RotateSecret":      func(id string) error { return s.RotateWebhookSecret(ctx, id, app.ID, "new", 0) },
			"UpdateApplication": func(id string) error {
				changed := *app
				changed.CustomerID = id
				return s.UpdateApplication(ctx, &changed)
			},
			"Trunk":              func(id string) error { _, err := s.Trunk(ctx, id, trunk.ID); return err },
			"DeleteTrunk":        func(id string) error { return s.DeleteTrunk(ctx, id, trunk.ID) },
			"UpdateTrunk":        func(id string) error { changed := *trunk; changed.CustomerID = id; return s.UpdateTrunk(ctx, &changed) },
			"DID":                func(id string) error { _, err := s.DID(ctx, id, did.ID); return err },
			"DIDByNumber":        func(id string) error { _, err := s.DIDByNumber(ctx, id, did.NumberE164); return err },
			"DeleteDID":          func(id string) error { return s.DeleteDID(ctx, id, did.ID) },
			"UpdateDID":          func(id string) error { changed := *did; changed.CustomerID = id; return s.UpdateDID(ctx, &changed) },
			"Call":               func(id string) error { _, err := s.Call(ctx, id, call.ID); return err },
			"RevokeAPIKey":       func(id string) error { return s.RevokeAPIKey(ctx, id, "", key.ID) },
			"FindIdempotent":     func(id string) error { _, err := s.FindIdempotent(ctx, id, "k"); return err },
			"RevokeAPIKey other": func(id string) error { return s.RevokeAPIKey(ctx, id, foreignApp.ID, key.ID) },
		}
		for name, attempt := range gone {
			require.ErrorIs(t, attempt(foreign.ID), models.ErrNotFound, name)
		}
		lists := map[string]func(customerID string) int{
			"ListApplications": func(id string) int {
				rows, _, err := s.ListApplications(ctx, id, models.Page{})
				require.NoError(t, err)
				return len(rows)
			},
			"ListTrunks": func(id string) int {
				rows, _, err := s.ListTrunks(ctx, id, models.Page{})
				require.NoError(t, err)
				return len(rows)
			},
			"ListDIDs": func(id string) int {
				rows, _, err := s.ListDIDs(ctx, id, models.Page{})
				require.NoError(t, err)
				return len(rows)
			},
			"ListCalls": func(id string) int {
				rows, _, err := s.ListCalls(ctx, id, models.CallFilter{}, models.Page{})
				require.NoError(t, err)
				return len(rows)
			},
			"ListAPIKeys": func(id string) int {
				rows, err := s.ListAPIKeys(ctx, id, app.ID)
				require.NoError(t, err)
				return len(rows)
			},
			"CallEvents": func(id string) int {
				rows, err := s.CallEvents(ctx, id, call.ID)
				require.NoError(t, err)
				return len(rows)
			},
			"Recordings": func(id string) int {
				rows, err := s.RecordingsOfCall(ctx, id, call.ID)
				require.NoError(t, err)
				return len(rows)
			},
			"CountLiveCalls": func(id string) int { n, err := s.CountLiveCalls(ctx, id); require.NoError(t, err); return int(n) },
		}
		for name, list := range lists {
			require.Equal(t, 1, list(owner.ID), name)
			want := 0
			if name == "ListApplications" {
				want = 1 // its own
			}
			require.Equal(t, want, list(foreign.ID), name)
		}

		// What one customer owns cannot be pointed at another's: the database refuses it.
		refused := map[string]error{
			"DID":       s.CreateDID(ctx, &models.DID{CustomerID: foreign.ID, ApplicationID: &app.ID, NumberE164: "+15559999999"}),
			"trunk":     s.CreateTrunk(ctx, &models.Trunk{CustomerID: foreign.ID, ApplicationID: &app.ID, Direction: models.Inbound, InboundIPs: []string{"192.0.2.1"}}),
			"call":      s.CreateCall(ctx, &models.Call{CustomerID: foreign.ID, ApplicationID: app.ID, Direction: models.Outbound, Status: models.CallDialing}),
			"call on":   s.CreateCall(ctx, &models.Call{CustomerID: foreign.ID, ApplicationID: foreignApp.ID, TrunkID: &trunk.ID, Direction: models.Outbound, Status: models.CallDialing}),
			"call to":   s.CreateCall(ctx, &models.Call{CustomerID: foreign.ID, ApplicationID: foreignApp.ID, DIDID: &did.ID, Direction: models.Inbound, Status: models.CallRinging}),
			"recording": s.SaveRecording(ctx, &models.Recording{CallID: call.ID, CustomerID: foreign.ID, Status: models.RecordingRunning}),
		}
		_, refused["key"] = s.CreateAPIKey(ctx, &models.APIKey{CustomerID: foreign.ID, ApplicationID: &app.ID}, "")
		for name, err := range refused {
			require.ErrorIs(t, err, models.ErrNotFound, name)
		}
		// And with the right customer all of it is there.
		for name, attempt := range gone {
			switch name {
			case "Application", "Trunk", "DID", "DIDByNumber", "Call", "ActiveOutbound", "FindIdempotent", "UpdateApplication", "UpdateTrunk", "UpdateDID", "RevokeAPIKey":
				require.NoError(t, attempt(owner.ID), name)
			}
		}
	})
}

// TestPagingUnderInserts reads a list page by page while rows are added and deleted: what was there at the start and stays is
// seen exactly once, in order. All rows of a batch have one created_at, so that the ID must decide.
func TestPagingUnderInserts(t *testing.T) {
	t.Parallel()
	modelstest.RunClock(t, "", func(t *testing.T, s *models.Store, clock *modelstest.Clock) {
		ctx := t.Context()
		customer := modelstest.Customer(t, s, 0)
		var want []string
		for i := range 23 {
			if i%5 == 0 {
				clock.Advance(time.Millisecond)
			}
			want = append([]string{modelstest.DID(t, s, customer, nil).ID}, want...)
		}
		var got []string
		page := models.Page{Limit: 4}
		for {
			rows, next, err := s.ListDIDs(ctx, customer.ID, page)
			require.NoError(t, err)
			require.LessOrEqual(t, len(rows), 4)
			for _, row := range rows {
				got = append(got, row.ID)
			}
			if next == "" {
				break
			}
			page.Cursor = next
			modelstest.DID(t, s, customer, nil)
			// The row that the cursor names may go: its place stays.
			require.NoError(t, s.DeleteDID(ctx, customer.ID, rows[len(rows)-1].ID))
		}
		require.Equal(t, want, got)

		// As many were added as deleted: the list holds one page, and with one row more it has a second.
		rows, next, err := s.ListDIDs(ctx, customer.ID, models.Page{Limit: len(want)})
		require.NoError(t, err)
		require.Len(t, rows, len(want))
		require.Empty(t, next)
		modelstest.DID(t, s, customer, nil)
		rows, next, err = s.ListDIDs(ctx, customer.ID, models.Page{Limit: len(want)})
		require.NoError(t, err)
		require.Len(t, rows, len(want))
		last, next, err := s.ListDIDs(ctx, customer.ID, models.Page{Limit: len(want), Cursor: next})
		require.NoError(t, err)
		require.Len(t, last, 1)
		require.Empty(t, next)

		for _, bad := range []string{"x", "bm8", "MTIgAA", "IA", "OTk5OTk5OTk5OTk5OTk5OTk5OTk5IGE"} {
			_, _, err := s.ListDIDs(ctx, customer.ID, models.Page{Cursor: bad})
			require.ErrorIs(t, err, models.ErrBadCursor, bad)
		}
	})
}

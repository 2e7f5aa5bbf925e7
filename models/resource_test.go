package models_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"tandem/models"
	"tandem/models/modelstest"
)

func TestAPIKey(t *testing.T) {
	t.Parallel()
	modelstest.RunClock(t, "", func(t *testing.T, s *models.Store, clock *modelstest.Clock) {
		ctx := t.Context()
		app := modelstest.Application(t, s, modelstest.Customer(t, s, 0))
		key := &models.APIKey{CustomerID: app.CustomerID, ApplicationID: &app.ID, Name: "first"}
		secret, err := s.CreateAPIKey(ctx, key, "")
		require.NoError(t, err)
		require.Regexp(t, `^tandem_[A-Za-z0-9_-]{43}$`, secret)
		require.Equal(t, secret[:12], key.Prefix)

		found, err := s.AuthenticateKey(ctx, secret)
		require.NoError(t, err)
		require.Equal(t, key.ID, found.ID)
		used := clock.Now()
		clock.Advance(59 * time.Second)
		_, err = s.AuthenticateKey(ctx, secret)
		require.NoError(t, err)
		keys, err := s.ListAPIKeys(ctx, app.CustomerID, "")
		require.NoError(t, err)
		require.Equal(t, used, *keys[0].LastUsedAt, "noted once a minute")
		clock.Advance(time.Second)
		_, err = s.AuthenticateKey(ctx, secret)
		require.NoError(t, err)
		keys, err = s.ListAPIKeys(ctx, app.CustomerID, app.ID)
		require.NoError(t, err)
		require.Equal(t, clock.Now(), *keys[0].LastUsedAt)

		for _, wrong := range []string{"", secret[:len(secret)-1], secret + "x", "tandem_", key.Lookup, key.Prefix} {
			_, err := s.AuthenticateKey(ctx, wrong)
			require.ErrorIs(t, err, models.ErrNotFound)
		}
		// A row that the lookup finds still has to have the right hash.
		require.NoError(t, models.Write(ctx, s, "UPDATE api_keys SET hash = ?", make([]byte, 32)))
		_, err = s.AuthenticateKey(ctx, secret)
		require.ErrorIs(t, err, models.ErrNotFound)

		preset := &models.APIKey{CustomerID: app.CustomerID, Name: "preset"}
		given, err := s.CreateAPIKey(ctx, preset, "short")
		require.NoError(t, err)
		require.Equal(t, "short", given)
		require.Equal(t, "s", preset.Prefix, "what is shown of a short key does not give it away")
		_, err = s.AuthenticateKey(ctx, "short")
		require.NoError(t, err)
		require.NoError(t, s.RevokeAPIKey(ctx, app.CustomerID, "", preset.ID))
		require.NoError(t, s.RevokeAPIKey(ctx, app.CustomerID, "", preset.ID))
		_, err = s.AuthenticateKey(ctx, "short")
		require.ErrorIs(t, err, models.ErrNotFound)
	})
}

func TestApplicationLife(t *testing.T) {
	t.Parallel()
	modelstest.RunClock(t, "", func(t *testing.T, s *models.Store, clock *modelstest.Clock) {
		ctx := t.Context()
		customer := modelstest.Customer(t, s, 0)
		app := modelstest.Application(t, s, customer)
		old := app.WebhookSecret
		app.Name, app.FallbackURL = "renamed", "http://127.0.0.1/fallback"
		clock.Advance(time.Minute)
		require.NoError(t, s.UpdateApplication(ctx, app))
		require.NoError(t, s.RotateWebhookSecret(ctx, customer.ID, app.ID, "new", time.Hour))
		found, err := s.Application(ctx, customer.ID, app.ID)
		require.NoError(t, err)
		require.Equal(t, "renamed", found.Name)
		require.Equal(t, []models.Secret{"new", old}, []models.Secret{found.WebhookSecret, found.PreviousSecret})
		require.Equal(t, clock.Now().Add(time.Hour), *found.PreviousSecretUntil)
		require.NoError(t, s.RotateWebhookSecret(ctx, customer.ID, app.ID, "newest", 0))
		found, err = s.Application(ctx, customer.ID, app.ID)
		require.NoError(t, err)
		require.Empty(t, found.PreviousSecret, "revoked at once")
		require.Nil(t, found.PreviousSecretUntil)

		secret, err := s.CreateAPIKey(ctx, &models.APIKey{CustomerID: customer.ID, ApplicationID: &app.ID}, "")
		require.NoError(t, err)
		call, did, trunk := modelstest.Call(t, s, app), modelstest.DID(t, s, customer, app), modelstest.InboundTrunk(t, s, customer, app)
		for _, free := range []func() error{
			func() error {
				call.Status = models.CallFailed
				return s.TransitionCall(ctx, call, []string{models.CallDialing})
			},
			func() error { return s.DeleteDID(ctx, customer.ID, did.ID) },
			func() error { return s.DeleteTrunk(ctx, customer.ID, trunk.ID) },
		} {
			require.ErrorIs(t, s.DeleteApplication(ctx, customer.ID, app.ID), models.ErrInUse)
			_, err = s.Application(ctx, customer.ID, app.ID)
			require.NoError(t, err, "the refusal left it as it was")
			require.NoError(t, free())
		}
		require.NoError(t, s.DeleteApplication(ctx, customer.ID, app.ID))
		require.ErrorIs(t, s.DeleteApplication(ctx, customer.ID, app.ID), models.ErrNotFound)
		_, err = s.Application(ctx, customer.ID, app.ID)
		require.ErrorIs(t, err, models.ErrNotFound)
		_, err = s.AuthenticateKey(ctx, secret)
		require.ErrorIs(t, err, models.ErrNotFound, "its keys are revoked")
		found, err = s.ApplicationByID(ctx, app.ID)
		require.NoError(t, err)
		require.NotNil(t, found.DeletedAt)
		for name, err := range map[string]error{
			"call":  s.CreateCall(ctx, &models.Call{CustomerID: customer.ID, ApplicationID: app.ID, Direction: models.Outbound, Status: models.CallDialing}),
			"DID":   s.CreateDID(ctx, &models.DID{CustomerID: customer.ID, ApplicationID: &app.ID, NumberE164: "+15550001111"}),
			"trunk": s.CreateTrunk(ctx, &models.Trunk{CustomerID: customer.ID, ApplicationID: &app.ID, Direction: models.Inbound}),
		} {
			require.ErrorIs(t, err, models.ErrNotFound, name)
		}
	})
}

// TestDeleteApplicationRace deletes applications while calls are being created on them: never is there a live call on a deleted
// application.
func TestDeleteApplicationRace(t *testing.T) {
	t.Parallel()
	modelstest.RunPair(t, "", func(t *testing.T, s, other *models.Store) {
		ctx := t.Context()
		customer := modelstest.Customer(t, s, 0)
		for range 15 {
			app := modelstest.Application(t, s, customer)
			var group errgroup.Group
			var deleted, created error
			group.Go(func() error { deleted = s.DeleteApplication(ctx, customer.ID, app.ID); return nil })
			group.Go(func() error {
				created = other.CreateCall(ctx, &models.Call{CustomerID: customer.ID, ApplicationID: app.ID, Direction: models.Outbound, Status: models.CallDialing})
				return nil
			})
			require.NoError(t, group.Wait())
			if created == nil {
				require.ErrorIs(t, deleted, models.ErrInUse)
			} else {
				require.ErrorIs(t, created, models.ErrNotFound)
				require.NoError(t, deleted)
			}
		}
	})
}

func TestDID(t *testing.T) {
	t.Parallel()
	modelstest.Run(t, "", func(t *testing.T, s *models.Store) {
		ctx := t.Context()
		customer, other := modelstest.Customer(t, s, 0), modelstest.Customer(t, s, 0)
		did := modelstest.DID(t, s, customer, nil)
		require.Equal(t, []string{models.DIDActive, models.RouteWebhook}, []string{did.Status, did.RouteMode})
		taken := &models.DID{CustomerID: other.ID, NumberE164: did.NumberE164}
		require.ErrorIs(t, s.CreateDID(ctx, taken), models.ErrNumberExists)
		did.Status, did.RouteMode, did.RejectCode, did.SIPURI = models.DIDSuspended, models.RouteReject, 486, "sip:a@127.0.0.1"
		require.NoError(t, s.UpdateDID(ctx, did))
		found, err := s.RouteDID(ctx, did.NumberE164)
		require.NoError(t, err)
		require.Equal(t, did, found)
		did.RouteMode = "nowhere"
		require.Error(t, s.UpdateDID(ctx, did))
		require.NoError(t, s.DeleteDID(ctx, customer.ID, did.ID))
		_, err = s.RouteDID(ctx, did.NumberE164)
		require.ErrorIs(t, err, models.ErrNotFound)
		require.NoError(t, s.CreateDID(ctx, taken), "a deleted DID gives its number back")
	})
}

func TestNodeLease(t *testing.T) {
	t.Parallel()
	modelstest.RunClock(t, "", func(t *testing.T, s *models.Store, clock *modelstest.Clock) {
		ctx := t.Context()
		node := &models.Node{Name: "one", ESLAddr: "127.0.0.1:8021", Password: "esl password", ConfDir: "conf", IsActive: true}
		require.NoError(t, s.CreateNode(ctx, node))
		require.ErrorIs(t, s.CreateNode(ctx, &models.Node{Name: "one"}), models.ErrNameExists)
		found, err := s.NodeByName(ctx, "one")
		require.NoError(t, err)
		require.Equal(t, node, found)

		token, ok, err := s.AcquireNode(ctx, node.ID, "a", time.Minute, 0)
		require.NoError(t, err)
		require.True(t, ok)
		_, ok, err = s.AcquireNode(ctx, node.ID, "b", time.Minute, 0)
		require.NoError(t, err)
		require.False(t, ok, "held")
		clock.Advance(59 * time.Second)
		require.NoError(t, s.RenewNode(ctx, node.ID, "a", token, time.Minute, true))
		clock.Advance(59 * time.Second)
		_, ok, err = s.AcquireNode(ctx, node.ID, "b", time.Minute, 0)
		require.NoError(t, err)
		require.False(t, ok, "renewed")
		clock.Advance(time.Second)
		next, ok, err := s.AcquireNode(ctx, node.ID, "b", time.Minute, 0)
		require.NoError(t, err)
		require.True(t, ok, "run out")
		require.Greater(t, next, token)
		require.ErrorIs(t, s.RenewNode(ctx, node.ID, "a", token, time.Minute, true), models.ErrStale)
		require.ErrorIs(t, s.ReleaseNode(ctx, node.ID, "a", token), models.ErrStale)
		require.ErrorIs(t, s.RenewNode(ctx, node.ID, "b", token, time.Minute, true), models.ErrStale)
		require.NoError(t, s.ReleaseNode(ctx, node.ID, "b", next))
		_, ok, err = s.AcquireNode(ctx, node.ID, "a", time.Minute, 0)
		require.NoError(t, err)
		require.True(t, ok, "released")

		require.NoError(t, s.SetNodeCore(ctx, node.ID, "core"))
		node.Password, node.ESLAddr = "changed", "127.0.0.1:8022"
		require.NoError(t, s.UpdateNode(ctx, node))
		nodes, err := s.Nodes(ctx)
		require.NoError(t, err)
		require.Len(t, nodes, 1)
		require.Equal(t, []string{"core", "changed", "a"}, []string{nodes[0].CoreUUID, string(nodes[0].Password), nodes[0].LeaseOwner})

		call := modelstest.Call(t, s, modelstest.Application(t, s, modelstest.Customer(t, s, 0)))
		call.NodeID = &node.ID
		require.NoError(t, s.UpdateCall(ctx, call, "node_id"))
		require.ErrorIs(t, s.DeleteNode(ctx, node.ID), models.ErrInUse)
		call.Status = models.CallFailed
		require.NoError(t, s.TransitionCall(ctx, call, []string{models.CallDialing}))
		require.NoError(t, s.DeleteNode(ctx, node.ID))
		ended, err := s.CallByID(ctx, call.ID)
		require.NoError(t, err)
		require.Nil(t, ended.NodeID)
		require.ErrorIs(t, s.DeleteNode(ctx, node.ID), models.ErrNotFound)
	})
}

func TestGatewayStatuses(t *testing.T) {
	t.Parallel()
	modelstest.RunClock(t, "", func(t *testing.T, s *models.Store, clock *modelstest.Clock) {
		ctx := t.Context()
		customer := modelstest.Customer(t, s, 0)
		one, two := modelstest.OutboundTrunk(t, s, customer), modelstest.OutboundTrunk(t, s, customer)
		first, second := &models.Node{Name: "first"}, &models.Node{Name: "second"}
		require.NoError(t, s.CreateNode(ctx, first))
		require.NoError(t, s.CreateNode(ctx, second))
		require.NoError(t, s.SaveGatewayStatus(ctx, []models.GatewayStatus{
			{NodeID: first.ID, TrunkID: one.ID, State: "FAIL_WAIT", Status: "DOWN"},
			{NodeID: second.ID, TrunkID: one.ID, State: "REGED", Status: "UP", PingMS: 1.5},
			{NodeID: first.ID, TrunkID: two.ID, State: "TRYING", Status: "DOWN"},
			{NodeID: first.ID, TrunkID: "trunk_none", State: "REGED"},
			{NodeID: "node_none", TrunkID: two.ID, State: "REGED"},
		}))
		clock.Advance(time.Second)
		require.NoError(t, s.SaveGatewayStatus(ctx, []models.GatewayStatus{{NodeID: first.ID, TrunkID: two.ID, State: "NOREG", Status: "DOWN"}}))
		late := clock.Now().Add(-time.Hour)
		require.NoError(t, s.SaveGatewayStatus(ctx, []models.GatewayStatus{{NodeID: first.ID, TrunkID: two.ID, State: "REGED", UpdatedAt: late}}))
		statuses, err := s.GatewayStatuses(ctx, []string{one.ID, two.ID, "trunk_none"})
		require.NoError(t, err)
		require.Len(t, statuses, 2)
		require.Equal(t, models.GatewayStatus{NodeID: second.ID, TrunkID: one.ID, State: "REGED", Status: "UP", PingMS: 1.5,
			UpdatedAt: clock.Now().Add(-time.Second)}, statuses[one.ID])
		require.Equal(t, "NOREG", statuses[two.ID].State, "an old report does not replace a newer one")
		require.NoError(t, s.DeleteNode(ctx, second.ID))
		statuses, err = s.GatewayStatuses(ctx, []string{one.ID})
		require.NoError(t, err)
		require.Equal(t, "FAIL_WAIT", statuses[one.ID].State)
	})
}

// TestDropGatewayStatuses: of one node, and only what it said before it went.
func TestDropGatewayStatuses(t *testing.T) {
	t.Parallel()
	modelstest.RunClock(t, "", func(t *testing.T, s *models.Store, clock *modelstest.Clock) {
		ctx := t.Context()
		customer := modelstest.Customer(t, s, 0)
		one, two := modelstest.OutboundTrunk(t, s, customer), modelstest.OutboundTrunk(t, s, customer)
		first, second := &models.Node{Name: "first"}, &models.Node{Name: "second"}
		require.NoError(t, s.CreateNode(ctx, first))
		require.NoError(t, s.CreateNode(ctx, second))
		states := func() map[string]string {
			t.Helper()
			best, err := s.GatewayStatuses(ctx, []string{one.ID, two.ID})
			require.NoError(t, err)
			states := map[string]string{}
			for trunk, status := range best {
				states[trunk] = status.State
			}
			return states
		}
		require.NoError(t, s.SaveGatewayStatus(ctx, []models.GatewayStatus{
			{NodeID: first.ID, TrunkID: one.ID, State: "REGED", Status: "UP"},
			{NodeID: first.ID, TrunkID: two.ID, State: "REGED", Status: "UP"},
			{NodeID: second.ID, TrunkID: one.ID, State: "TRYING", Status: "DOWN"},
		}))
		down := clock.Now()
		require.NoError(t, s.DropGatewayStatuses(ctx, first.ID, down))
		require.Equal(t, map[string]string{one.ID: "TRYING"}, states())
		require.NoError(t, s.DropGatewayStatuses(ctx, "node_none", down))
		require.NoError(t, s.DropGatewayStatuses(ctx, first.ID, down))

		clock.Advance(time.Microsecond)
		require.NoError(t, s.SaveGatewayStatus(ctx, []models.GatewayStatus{{NodeID: first.ID, TrunkID: two.ID, State: "REGED", Status: "UP"}}))
		require.NoError(t, s.DropGatewayStatuses(ctx, first.ID, down))
		require.Equal(t, map[string]string{one.ID: "TRYING", two.ID: "REGED"}, states(), "said after it went")
	})
}

func TestIdempotentResponse(t *testing.T) {
	t.Parallel()
	modelstest.RunClock(t, "", func(t *testing.T, s *models.Store, clock *modelstest.Clock) {
		ctx := t.Context()
		customer := modelstest.Customer(t, s, 0)
		saved := &models.IdempotentResponse{CustomerID: customer.ID, Key: "k", Method: "POST", Path: "/v1/calls", RequestHash: "h", Status: 201, Body: []byte(`{"id":1}`)}
		require.NoError(t, s.SaveIdempotent(ctx, saved))
		found, err := s.FindIdempotent(ctx, customer.ID, "k")
		require.NoError(t, err)
		require.Equal(t, saved, found)

		// The second of two requests with one key does not keep its work.
		err = s.InTx(ctx, func(tx *models.Store) error {
			if err := tx.CreateDID(ctx, &models.DID{CustomerID: customer.ID, NumberE164: "+15550001111"}); err != nil {
				return err
			}
			return tx.SaveIdempotent(ctx, &models.IdempotentResponse{CustomerID: customer.ID, Key: "k"})
		})
		require.ErrorIs(t, err, models.ErrIdempotencyKeyExists)
		_, err = s.RouteDID(ctx, "+15550001111")
		require.ErrorIs(t, err, models.ErrNotFound)

		require.NoError(t, s.SaveIdempotent(ctx, &models.IdempotentResponse{CustomerID: customer.ID, Key: "empty", Status: 204}))
		_, err = s.FindIdempotent(ctx, customer.ID, "empty")
		require.NoError(t, err)
		clock.Advance(time.Hour)
		pruned, err := s.PruneIdempotent(ctx, clock.Now())
		require.NoError(t, err)
		require.Equal(t, int64(2), pruned)
	})
}

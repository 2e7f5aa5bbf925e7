package api

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tandem/billing"
	"tandem/calls"
	"tandem/esl"
	"tandem/models"
	"tandem/models/modelstest"
)

// connected is a switch that is there and does nothing: what is refused before dialling never reaches it.
type connected struct{ calls.Switch }

func (connected) Up() bool { return true }

// TestCallsAreRefusedByTheManager puts the real call manager behind the API: what the contract names is refused with its own
// code, in the order trunk, node, balance, and nothing is stored or held.
func TestCallsAreRefusedByTheManager(t *testing.T) {
	t.Parallel()
	modelstest.Run(t, "", func(t *testing.T, store *models.Store) {
		rater, err := billing.New(billing.Config{OutboundPerMinuteMicros: 6_000_000})
		require.NoError(t, err)
		manager, err := calls.NewManager(calls.Config{Store: store, Rater: rater, Client: http.DefaultClient})
		require.NoError(t, err)
		require.NoError(t, manager.Start(t.Context()))
		t.Cleanup(func() {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 10*time.Second)
			defer cancel()
			require.NoError(t, manager.Stop(ctx))
		})
		b := newBench(t, store, Config{})
		b.server.calls = manager
		body := b.callBody()

		b.post("/v1/calls", body).refused(codeNoActiveTrunk, "")
		trunk := b.post("/v1/trunks", object{"name": "a", "proxy": "sip.example", "is_active": false}).is(201).str("id")
		b.post("/v1/calls", body).refused(codeNoActiveTrunk, "")
		b.patch("/v1/trunks/"+trunk, object{"is_active": true}).is(200)
		b.post("/v1/calls", body).refused(codeNoNodeAvailable, "")

		node := &models.Node{Name: "n", ESLAddr: "127.0.0.1:1", IsActive: true}
		require.NoError(t, store.CreateNode(t.Context(), node))
		manager.AddNode(*node, connected{}).HandleUp(esl.Snapshot{CoreUUID: "core"})
		// The customer has 10.00, and the shortest call must be able to pay for a minute and the one begun after it: 12.00.
		refused := b.postOnce("k", "/v1/calls", body).refused(codeInsufficientBalance, "")
		require.Empty(t, refused.header.Get(headerReplayed))

		require.Empty(t, b.get("/v1/calls").is(200).data())
		me := b.get("/v1/me").is(200)
		require.Equal(t, "10.000000", me.str("balance"))
		require.Equal(t, float64(0), me.json()["held_micros"])
		require.Zero(t, manager.LiveCalls())
	})
}

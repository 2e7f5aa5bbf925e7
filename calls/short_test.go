package calls

import (
	"testing"

	"github.com/stretchr/testify/require"

	"tandem/models"
	"tandem/models/modelstest"
	"tandem/webhooks"
)

// TestRefusedForMoneyIsToldOnce: whoever is refused, one who dials, starts or is called, the customer is told once until a payment.
func TestRefusedForMoneyIsToldOnce(t *testing.T) {
	t.Parallel()
	modelstest.Run(t, "", func(t *testing.T, store *models.Store) {
		store.OnBalance(webhooks.EmitBalance)
		s := newScene(t, store)
		poor := modelstest.Customer(t, store, 1)
		app := modelstest.Application(t, store, poor)
		app.WebhookURL = "https://receiver.example/"
		require.NoError(t, store.UpdateApplication(t.Context(), app))
		modelstest.OutboundTrunk(t, store, poor)
		in := modelstest.InboundTrunk(t, store, poor, app)
		paid := 0
		told := func() int {
			t.Helper()
			page, err := store.Journal(t.Context(), poor.ID, models.EventFilter{Types: []string{webhooks.KindBalanceExhausted}}, models.Page{})
			require.NoError(t, err)
			return len(page.Events)
		}
		pay := func() {
			t.Helper()
			paid++
			_, err := store.Credit(t.Context(), poor.ID, string(rune('a'+paid)), models.LedgerTopup, 1, "")
			require.NoError(t, err)
		}
		request := CreateRequest{CustomerID: poor.ID, ApplicationID: app.ID, From: "+15550001111", To: "+15550002222"}
		queued := request
		queued.Queued = true
		waiting, err := s.manager.Create(t.Context(), queued)
		require.NoError(t, err)
		require.Zero(t, told())
		for range 2 {
			_, err = s.manager.Create(t.Context(), request)
			require.ErrorIs(t, err, models.ErrInsufficientBalance)
			require.Equal(t, 1, told())
		}
		pay()
		_, err = s.manager.StartCall(t.Context(), poor.ID, waiting.ID, nil)
		require.ErrorIs(t, err, models.ErrInsufficientBalance)
		require.Equal(t, 2, told())
		pay()
		s.sw.callIn("+15559876543", "100", in.InboundIPs[0])
		s.sw.await("kill")
		require.NoError(t, s.manager.Stop(t.Context()))
		require.Equal(t, 3, told())
	})
}

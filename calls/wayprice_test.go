package calls

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tandem/billing"
	"tandem/models"
	"tandem/models/modelstest"
)

// priced gives a trunk a deck, with one rate for all numbers that begin with a prefix and a refusal of the others.
func (s *scene) priced(trunk *models.Trunk, prefix string, perMinute int64) {
	s.t.Helper()
	ctx := s.t.Context()
	deck := models.RateDeck{Name: models.NewID(models.PrefixDeck), Currency: "USD", Unlisted: models.UnlistedRefuse}
	require.NoError(s.t, s.store.CreateRateDeck(ctx, &deck))
	_, err := s.store.PutRates(ctx, deck.ID, []models.DeckRate{{
		Prefix: prefix, Direction: models.Outbound, PerMinuteMicros: perMinute, IncrementSeconds: 1, ConnectOn: models.ConnectOnAnswer, ValidFrom: time.Unix(0, 0),
	}})
	require.NoError(s.t, err)
	require.NoError(s.t, s.store.SetTrunkDeck(ctx, s.customer.ID, trunk.ID, deck.ID))
}

// behind is another outbound trunk, which is tried after those of a lower priority.
func (s *scene) behind(priority int) *models.Trunk {
	s.t.Helper()
	trunk := modelstest.OutboundTrunk(s.t, s.store, s.customer)
	trunk.Routing.Priority = priority
	require.NoError(s.t, s.store.UpdateTrunk(s.t.Context(), trunk))
	return trunk
}

// A trunk whose deck has no price for a call, or one that the balance does not pay, is passed over as one that is full.
func TestCallGoesOverATrunkThatHasAPriceForIt(t *testing.T) {
	t.Parallel()
	modelstest.Run(t, "", func(t *testing.T, store *models.Store) {
		s := newScene(t, store)
		s.answers("/answer", reply(`[{"action":"hangup"}]`))
		const abroad, home = "+442071234567", "+15550100002"
		req := CreateRequest{CustomerID: s.customer.ID, ApplicationID: s.app.ID, From: "+15550100001", To: home}
		s.priced(s.trunk, "44", 1_000)
		_, err := s.manager.Create(t.Context(), req)
		require.ErrorIs(t, err, billing.ErrUnlisted)
		_, err = s.manager.Foresee(t.Context(), req)
		require.ErrorIs(t, err, billing.ErrUnlisted)

		dear := s.behind(20)
		s.priced(dear, "1", 2*startBalance)
		_, err = s.manager.Create(t.Context(), req)
		require.ErrorIs(t, err, billing.ErrUnlisted, "what the first one says")
		s.noCalls()

		plain := s.behind(30)
		foreseen, err := s.manager.Foresee(t.Context(), req)
		require.NoError(t, err)
		require.Equal(t, plain.ID, foreseen.Trunk.ID)
		for to, over := range map[string]*models.Trunk{home: plain, abroad: s.trunk} {
			call := s.create(func(r *CreateRequest) { r.To = to })
			require.Equal(t, over.ID, *call.TrunkID)
			require.Contains(t, s.sw.await("originate").args, "gateway="+over.GatewayName+" ")
			require.Equal(t, StatusCompleted, s.end().Status)
		}
	})
}

// A party is called over the first trunk whose deck has a price for it. One that no further trunk has a price for ends with what the trunks before said.
func TestPartyIsCalledOverATrunkThatHasAPriceForIt(t *testing.T) {
	t.Parallel()
	modelstest.Run(t, "", func(t *testing.T, store *models.Store) {
		s := newScene(t, store)
		s.priced(s.trunk, "44", 1_000)
		plain := s.behind(20)
		s.priced(s.behind(30), "44", 1_000)
		s.answers("/answer", reply(`[{"action":"dial","to":"+15550100002","result_url":"`+s.server.URL+`/result"}]`))
		s.answers("/result", reply(`[{"action":"hangup"}]`))
		s.sw.dials(map[string]dialedParty{"0002": {cause: "NORMAL_TEMPORARY_FAILURE", sip: "503"}})
		s.callIn()
		require.Contains(t, s.sw.await("execute bridge").args, "sofia/gateway/"+plain.GatewayName+"/")
		call := s.end()
		asks := s.requests()
		result := asks[len(asks)-1].Result
		require.Equal(t, []any{dialFailed, ReasonCarrierError}, []any{result["dial_status"], result["reason"]})
		legs, err := store.LegsOfCall(t.Context(), s.customer.ID, call.ID)
		require.NoError(t, err)
		require.Len(t, legs, 1)
	})
}

package billing_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tandem/billing"
	"tandem/models"
)

const abroad, home = "+442071234567", "+15550000002"

func newRater(t require.TestingT, cfg billing.Config) *billing.Rater {
	rater, err := billing.New(cfg)
	require.NoError(t, err)
	return rater
}

// newDeck creates a deck in dollars with rates that are valid since long ago, unless they say since when.
func newDeck(t testing.TB, s *models.Store, deck models.RateDeck, rates ...models.DeckRate) *models.RateDeck {
	t.Helper()
	if deck.Currency == "" {
		deck.Currency = "USD"
	}
	require.NoError(t, s.CreateRateDeck(t.Context(), &deck))
	for i := range rates {
		rate := &rates[i]
		rate.ConnectOn, rate.IncrementSeconds = orElse(rate.ConnectOn, models.ConnectOnAnswer), max(rate.IncrementSeconds, 1)
		rate.Direction = orElse(rate.Direction, models.Outbound)
		if rate.ValidFrom.IsZero() {
			rate.ValidFrom = time.Unix(0, 0)
		}
	}
	_, err := s.PutRates(t.Context(), deck.ID, rates)
	require.NoError(t, err)
	return &deck
}

func orElse(s, other string) string {
	if s == "" {
		return other
	}
	return s
}

// outbound is a leg to a number at home.
func outbound(customerID string) billing.Leg {
	return billing.Leg{CustomerID: customerID, Direction: models.Outbound, Number: home}
}

// begin reserves for a call and creates it, as a request for a call does: where others took of the balance meanwhile, once more for the least.
func begin(ctx context.Context, s *models.Store, rater *billing.Rater, app *models.Application, leg billing.Leg, maxSeconds int) (*models.Call, error) {
	var call *models.Call
	try := func(reserve func(context.Context, *models.Store, billing.Leg, int) (billing.Reservation, error)) error {
		return s.InTx(ctx, func(tx *models.Store) error {
			reservation, err := reserve(ctx, tx, leg, maxSeconds)
			if err != nil {
				return err
			}
			call = &models.Call{
				CustomerID: app.CustomerID, ApplicationID: app.ID, Direction: leg.Direction, Status: models.CallDialing, From: "+15550000001",
				To: leg.Number, MaxSeconds: maxSeconds,
			}
			reservation.Give(call)
			return tx.CreateCall(ctx, call)
		})
	}
	err := try(rater.Reserve)
	if errors.Is(err, models.ErrBalanceTaken) {
		err = try(rater.ReserveLeast)
	}
	if err != nil {
		return nil, err
	}
	return call, nil
}

// mustBegin is begin for an outbound call that is paid for.
func mustBegin(t testing.TB, s *models.Store, rater *billing.Rater, app *models.Application) *models.Call {
	t.Helper()
	call, err := begin(t.Context(), s, rater, app, outbound(app.CustomerID), 0)
	require.NoError(t, err)
	return call
}

// answer has a call be answered at a moment.
func answer(ctx context.Context, t require.TestingT, s *models.Store, call *models.Call, at time.Time) {
	call.AnsweredAt = &at
	require.NoError(t, s.UpdateCall(ctx, call, "answered_at"))
}

// addLeg stores a party of a call that was promised a rate.
func addLeg(ctx context.Context, t require.TestingT, s *models.Store, call *models.Call, leg models.Leg) *models.Leg {
	leg.CallID, leg.CustomerID, leg.ChannelID = call.ID, call.CustomerID, models.NewID(models.PrefixLeg)
	leg.Kind, leg.Status, leg.To = orElse(leg.Kind, models.LegDial), orElse(leg.Status, models.LegEnded), orElse(leg.To, abroad)
	require.NoError(t, s.SaveLeg(ctx, &leg))
	return &leg
}

// requireMoney checks a customer's balance and what is held of it, and that the whole ledger is sound.
func requireMoney(t testing.TB, s *models.Store, customerID string, balance, held int64) {
	t.Helper()
	customer, err := s.Customer(t.Context(), customerID)
	require.NoError(t, err)
	require.Equal(t, []int64{balance, held}, []int64{customer.BalanceMicros, customer.HeldMicros}, "balance and hold")
	requireSound(t, s)
}

func requireSound(t testing.TB, s *models.Store) {
	t.Helper()
	violations, err := s.VerifyLedger(t.Context())
	require.NoError(t, err)
	require.Empty(t, violations)
}

package lab_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tandem/models"
)

// checkBills holds the bill of every call to what the switch itself has counted: each leg costs its billsec at its price, and the sum of them all is what
// has left the balance.
func (l *load) checkBills(t *testing.T, store *models.Store) {
	t.Helper()
	type channel struct {
		second int64
		line   models.Charge
	}
	channels := map[string]channel{}
	var names []string
	var costs int64
	nodeID := ""
	for _, call := range l.calls(t) {
		row := rowOf(t, store, call.text("id"))
		nodeID = *row.NodeID
		lines, err := store.ChargesOf(t.Context(), row.CustomerID, row.ID)
		require.NoError(t, err)
		legs, err := store.LegsOfCall(t.Context(), row.CustomerID, row.ID)
		require.NoError(t, err)
		require.Len(t, lines, 2, "the caller's leg and the party's")
		require.Len(t, legs, 1)
		channels[row.ChannelID], channels[legs[0].ChannelID] = channel{inboundSecond, lines[0]}, channel{outboundSecond, lines[1]}
		require.Equal(t, []string{row.ID, legs[0].ID}, []string{lines[0].LegID, lines[1].LegID})
		names = append(names, row.ChannelID, legs[0].ChannelID)
		require.Equal(t, lines[0].AmountMicros+lines[1].AmountMicros, row.CostMicros, row.ID)
		costs += row.CostMicros
	}
	require.Len(t, channels, 2*together)
	var cdrs map[string]models.CDR
	require.Eventually(t, func() bool {
		var err error
		cdrs, err = store.CDRs(t.Context(), nodeID, names)
		return err == nil && len(cdrs) == len(names)
	}, 30*time.Second, 200*time.Millisecond, "a CDR of each channel")
	var sum int64
	seconds := 0
	for name, c := range channels {
		cdr := cdrs[name]
		price := priceOf(c.second, cdr.BilledSeconds)
		require.Equal(t, []int64{int64(cdr.BilledSeconds), price}, []int64{int64(c.line.BilledSeconds), c.line.AmountMicros}, "%s of %s", c.line.Kind, c.line.CallID)
		require.Positive(t, price)
		sum += price
		seconds += cdr.BilledSeconds
	}
	var debits, credits int64
	for page := (models.Page{Limit: models.MaxPageLimit}); ; {
		entries, next, err := store.ListLedger(t.Context(), l.customer.id, models.LedgerFilter{}, page)
		require.NoError(t, err)
		for _, entry := range entries {
			if entry.CallID != nil {
				debits -= entry.AmountMicros
			} else {
				credits += entry.AmountMicros
			}
		}
		if page.Cursor = next; next == "" {
			break
		}
	}
	balance, held := purseOf(t, store, l.customer)
	t.Logf("%d channels of %d calls, %d s by their CDRs: priced %d, debited %d, the balance changed by %d", len(channels), together, seconds, sum, debits, credits-balance)
	require.Equal(t, []int64{sum, sum, sum, 0}, []int64{costs, debits, credits - balance, held})
	differences, err := store.BillingDifferences(t.Context())
	require.NoError(t, err)
	require.Empty(t, differences)
	require.NotContains(t, strings.ToLower(l.story()), "call cost more than its hold")
}

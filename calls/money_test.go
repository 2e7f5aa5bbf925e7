package calls

import (
	"errors"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"tandem/models"
	"tandem/models/modelstest"
)

// TestCreatesAgainstMoneyForFewer asks two controllers on one database for 200 calls at once, of a customer whose balance pays for the least of 50.
func TestCreatesAgainstMoneyForFewer(t *testing.T) {
	t.Parallel()
	modelstest.RunPair(t, "", func(t *testing.T, store, other *models.Store) {
		const asked, paid, least = 200, 50, 2 * outboundPrice
		s := newScene(t, store)
		second := &scene{t: t, store: other, sw: newFakeSwitch(t), ended: make(chan models.Call, asked)}
		second.node = models.Node{Name: "second", ESLAddr: "127.0.0.2:8021", Password: "secret", ConfDir: t.TempDir(), IsActive: true}
		require.NoError(t, other.CreateNode(t.Context(), &second.node))
		second.start()
		for _, scene := range []*scene{s, second} {
			scene.sw.script("originate", func(command) error { return nil }) // it rings
		}
		_, err := store.Credit(t.Context(), s.customer.ID, "all but that", models.LedgerAdjust, paid*least-startBalance, "")
		require.NoError(t, err)
		var begun, refused atomic.Int64
		var group errgroup.Group
		for i := range asked {
			group.Go(func() error {
				_, err := []*scene{s, second}[i%2].manager.Create(t.Context(), CreateRequest{
					CustomerID: s.customer.ID, ApplicationID: s.app.ID, From: "+15550100001", To: "+15550100002",
				})
				switch {
				case err == nil:
					begun.Add(1)
				case errors.Is(err, models.ErrInsufficientBalance):
					refused.Add(1)
				default:
					return err
				}
				return nil
			})
		}
		require.NoError(t, group.Wait())
		require.Equal(t, []int64{paid, asked - paid}, []int64{begun.Load(), refused.Load()})
		live, err := store.CountLiveCalls(t.Context(), s.customer.ID)
		require.NoError(t, err)
		require.EqualValues(t, paid, live, "a call that is refused is not there")
		customer, err := store.Customer(t.Context(), s.customer.ID)
		require.NoError(t, err)
		require.Equal(t, []int64{paid * least, paid * least}, []int64{customer.BalanceMicros, customer.HeldMicros})
		wrong, err := store.VerifyLedger(t.Context())
		require.NoError(t, err)
		require.Empty(t, wrong)
	})
}

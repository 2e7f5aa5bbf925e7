package dialplan

import (
	"bytes"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"tandem/esl"
	"tandem/models"
	"tandem/models/modelstest"
)

// TestLostNodeIsForgotten takes a switch down and up: its statuses are dropped at once, and told anew, unchanged as they are,
// as soon as it is synchronised.
func TestLostNodeIsForgotten(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		store := &fakeStore{trunks: []models.Trunk{outbound("trunk_1", "cust_a", "one")}}
		s, control := started(t, store, &log)
		states := func() (states []string, dropped int) {
			synctest.Wait()
			store.set(func(f *fakeStore) {
				for _, status := range f.saved {
					states = append(states, status.State)
				}
				dropped, f.dropped = len(f.dropped), nil
			})
			return states, dropped
		}
		expect := func(wantDropped int, want ...string) {
			t.Helper()
			got, dropped := states()
			require.Equal(t, want, got)
			require.Equal(t, wantDropped, dropped)
		}
		expect(1) // whatever was said before the node was taken on
		control.set(func(f *fakeSwitch) { f.gateways = []esl.Gateway{{Name: "one", State: "REGED", Status: "UP"}} })
		<-time.After(30 * time.Second)
		expect(0, "REGED")

		control.set(func(f *fakeSwitch) { f.down = true })
		s.HandleDown("node_1")
		s.HandleDown("node_unknown")
		expect(1)
		<-time.After(time.Minute)
		expect(0)

		control.set(func(f *fakeSwitch) { f.down = false })
		s.HandleUp("node_1")
		<-time.After(s.coalesce)
		expect(0, "REGED")

		// The database is away when the switch goes: it is told later.
		store.set(func(f *fakeStore) { f.err = errStore })
		control.set(func(f *fakeSwitch) { f.down = true })
		s.HandleDown("node_1")
		expect(0, "REGED")
		require.Equal(t, 1, strings.Count(log.String(), "gateway status of a lost node not dropped"))
		store.set(func(f *fakeStore) { f.err = nil })
		<-time.After(30 * time.Second)
		expect(1)
		s.Stop()
	})
}

// TestWhatWasSaidBeforeIsNotRecordedAfter has a node go while a poll is under way, and while its statuses are being written.
func TestWhatWasSaidBeforeIsNotRecordedAfter(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &fakeStore{trunks: []models.Trunk{outbound("trunk_1", "cust_a", "one")}}
		s, control := started(t, store, nil)
		n := s.current()[0]
		control.set(func(f *fakeSwitch) { f.gateways = []esl.Gateway{{Name: "one", State: "REGED", Status: "UP"}} })

		polled, _, err := n.poll(t.Context(), s.statuses.gateways(), s.store.Now())
		require.NoError(t, err)
		require.Len(t, polled, 1)
		control.set(func(f *fakeSwitch) { f.down = true })
		s.HandleDown("node_1")
		s.statuses.polled(polled)
		s.reported <- struct{}{}
		synctest.Wait()
		require.Empty(t, store.saved)

		// Written as it was lost: dropped again, and not taken for known.
		<-time.After(time.Second)
		store.set(func(f *fakeStore) {
			f.onSave = func() { f.onSave = nil; s.HandleDown("node_1") }
		})
		s.handle("node_1", gatewayState("one", "REGED", "UP"))
		synctest.Wait()
		require.Empty(t, store.saved)
		<-time.After(time.Second)
		s.handle("node_1", gatewayState("one", "REGED", "UP"))
		synctest.Wait()
		require.Len(t, store.saved, 1)
		s.Stop()
	})
}

// TestLostNodeInTheDatabase does it with the real store, as two controllers have it.
func TestLostNodeInTheDatabase(t *testing.T) {
	t.Parallel()
	modelstest.RunClock(t, "", func(t *testing.T, store *models.Store, clock *modelstest.Clock) {
		trunk := modelstest.OutboundTrunk(t, store, modelstest.Customer(t, store, 0))
		row := &models.Node{Name: "one", ESLAddr: "127.0.0.1:8021", Password: "a password", ConfDir: t.TempDir(), IsActive: true}
		require.NoError(t, store.CreateNode(t.Context(), row))
		state := func() string {
			t.Helper()
			statuses, err := store.GatewayStatuses(t.Context(), []string{trunk.ID})
			require.NoError(t, err)
			return statuses[trunk.ID].State
		}
		controller := func() (*Syncer, *fakeSwitch) {
			s, err := NewSyncer(Config{Store: store})
			require.NoError(t, err)
			control := &fakeSwitch{fail: map[string]error{}, gateways: []esl.Gateway{{Name: trunk.GatewayName, State: "REGED", Status: "UP"}}}
			s.AddNode(*row, control)
			s.recordOnce(t.Context())
			return s, control
		}
		up := func(s *Syncer) {
			clock.Advance(time.Second)
			s.HandleUp(row.ID)
			s.syncAll(t.Context(), false)
			s.recordOnce(t.Context())
		}
		first, control := controller()
		require.Empty(t, state())
		up(first)
		require.Equal(t, "REGED", state())
		control.set(func(f *fakeSwitch) { f.down = true })
		first.HandleDown(row.ID)
		first.recordOnce(t.Context())
		require.Empty(t, state())
		control.set(func(f *fakeSwitch) { f.down = false })
		up(first)
		require.Equal(t, "REGED", state())

		// The first was killed, and so was the switch: the second knows nothing before it is connected.
		second, _ := controller()
		require.Empty(t, state())
		up(second)
		require.Equal(t, "REGED", state())
	})
}

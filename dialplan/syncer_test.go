package dialplan

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"tandem/esl"
	"tandem/models"
)

// started runs a syncer with one node in a bubble and waits until it has done what it does at first.
func started(t *testing.T, store *fakeStore, log *bytes.Buffer) (*Syncer, *fakeSwitch) {
	t.Helper()
	var logger *slog.Logger
	if log != nil {
		logger = slog.New(slog.NewTextHandler(log, nil))
	}
	s, err := NewSyncer(Config{Store: store, Logger: logger})
	require.NoError(t, err)
	control := &fakeSwitch{fail: map[string]error{}}
	s.AddNode(models.Node{ID: "node_1", ConfDir: t.TempDir()}, control)
	s.Start(t.Context())
	s.Start(t.Context())
	<-time.After(time.Second)
	synctest.Wait()
	return s, control
}

func TestChangesThatComeTogetherAreAppliedTogether(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &fakeStore{trunks: []models.Trunk{outbound("trunk_1", "cust_a", "one")}}
		s, control := started(t, store, nil)
		require.Equal(t, []string{"reloadacl", "killgw one", "rescan", "rescan"}, control.heard(), "the second scan looks for the gateway it lacks")
		reads := store.reads
		require.Empty(t, store.shardReads)
		for i := range 50 {
			store.set(func(f *fakeStore) {
				f.dids = append(f.dids, number("did_"+strings.Repeat("1", i+1), "cust_a", "+1555000"+"0"+string(rune('0'+i/10))+string(rune('0'+i%10))+"7"))
			})
			s.Changed()
			<-time.After(time.Millisecond)
		}
		<-time.After(time.Second)
		synctest.Wait()
		require.Equal(t, []string{"reloadxml"}, control.heard())
		require.Equal(t, reads, store.reads, "the trunks are as they were")
		require.Len(t, store.shardReads, 50)

		// And the next of them is applied by reading its shard alone.
		store.shardReads, store.rows = nil, 0
		store.set(func(f *fakeStore) { f.dids[7].Status = models.DIDSuspended })
		s.Changed()
		<-time.After(s.coalesce)
		synctest.Wait()
		require.Equal(t, []string{"reloadxml"}, control.heard())
		require.Equal(t, []string{models.ShardOf(store.dids[7].NumberE164)}, store.shardReads)
		require.Equal(t, 1, store.rows)
		s.Stop()
		s.Stop()
	})
}

func TestPollFindsWhatAnotherProcessChanged(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &fakeStore{}
		s, control := started(t, store, nil)
		control.heard()
		store.set(func(f *fakeStore) { f.trunks = []models.Trunk{inbound("trunk_1", "cust_a", "203.0.113.1", "")} })
		<-time.After(31 * time.Second)
		synctest.Wait()
		require.Equal(t, []string{"reloadacl"}, control.heard())
		s.Stop()
	})
}

// TestLookingHidesNoChange: whoever has the documents rendered, to look at them or for one node, takes no change from the nodes that lack it.
func TestLookingHidesNoChange(t *testing.T) {
	t.Parallel()
	for name, look := range map[string]func(t *testing.T, s *Syncer){
		"documents": func(t *testing.T, s *Syncer) {
			_, _, _, err := s.Documents(t.Context(), nil)
			require.NoError(t, err)
		},
		"plan": func(t *testing.T, s *Syncer) {
			_, err := s.Plan(t.Context(), models.Node{ID: "node_2", ConfDir: t.TempDir()}, &fakeSwitch{}, nil)
			require.NoError(t, err)
		},
		"sync": func(t *testing.T, s *Syncer) {
			s.nodes["node_2"] = &node{id: "node_2", folder: folder{t.TempDir()}, control: &fakeSwitch{}, profile: s.profile}
			_, err := s.Sync(t.Context(), "node_2")
			require.NoError(t, err)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store := &fakeStore{}
				s, control := started(t, store, nil)
				control.heard()
				store.set(func(f *fakeStore) { f.trunks = []models.Trunk{inbound("trunk_1", "cust_a", "203.0.113.1", "")} })
				look(t, s)
				<-time.After(31 * time.Second)
				synctest.Wait()
				require.Equal(t, []string{"reloadacl"}, control.heard())
				s.Stop()
			})
		})
	}
}

// TestOlderRenderingIsNotTheLastWord: a rendering that reaches a node after a newer one is followed by the newer one.
func TestOlderRenderingIsNotTheLastWord(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &fakeStore{}
		s, control := started(t, store, nil)
		older, err := s.render(t.Context(), false)
		require.NoError(t, err)
		store.set(func(f *fakeStore) { f.trunks = []models.Trunk{inbound("trunk_1", "cust_a", "203.0.113.1", "")} })
		s.Changed()
		<-time.After(time.Second)
		synctest.Wait()
		_, err = s.current()[0].sync(t.Context(), older)
		require.NoError(t, err)
		control.heard()
		<-time.After(31 * time.Second)
		synctest.Wait()
		require.Equal(t, []string{"reloadacl"}, control.heard())
		s.Stop()
	})
}

func TestPollReadsRowsOnlyWhenThereIsReason(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &fakeStore{}
		s, control := started(t, store, nil)
		control.heard()
		reads := store.reads
		<-time.After(4 * time.Minute)
		synctest.Wait()
		require.Equal(t, reads, store.reads)

		file := filepath.Join(s.current()[0].folder.(folder).root, entryPath)
		require.NoError(t, os.WriteFile(file, []byte("spoilt by hand"), 0o600))
		<-time.After(time.Minute)
		synctest.Wait()
		require.Equal(t, reads+1, store.reads)
		require.Equal(t, []string{"reloadxml"}, control.heard())

		// A switch that could not be told is told at the next poll.
		control.set(func(f *fakeSwitch) { f.fail["reloadacl"] = errXML })
		store.set(func(f *fakeStore) { f.trunks = []models.Trunk{inbound("trunk_1", "cust_a", "203.0.113.1", "")} })
		<-time.After(31 * time.Second)
		synctest.Wait()
		require.Empty(t, control.heard())
		control.set(func(f *fakeSwitch) { delete(f.fail, "reloadacl") })
		<-time.After(30 * time.Second)
		synctest.Wait()
		require.Equal(t, []string{"reloadacl"}, control.heard())
		s.Stop()
	})
}

func TestSwitchThatComesUpIsToldEverything(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &fakeStore{trunks: []models.Trunk{inbound("trunk_1", "cust_a", "203.0.113.1", "")}}
		s, control := started(t, store, nil)
		control.heard()
		s.HandleUp("node_1")
		s.HandleUp("node_unknown")
		<-time.After(time.Second)
		synctest.Wait()
		require.Equal(t, []string{"reloadacl", "rescan"}, control.heard())
		s.Stop()
	})
}

// stuckSwitch takes a minute to fail.
type stuckSwitch struct {
	*fakeSwitch
	tries  atomic.Int64
	mended atomic.Bool
}

func (s *stuckSwitch) ReloadACL(ctx context.Context) error {
	s.tries.Add(1)
	if s.mended.Load() {
		return s.fakeSwitch.ReloadACL(ctx)
	}
	select {
	case <-time.After(time.Minute):
		return errXML
	case <-ctx.Done():
		return ctx.Err()
	}
}

// TestNodeThatFailsHoldsUpNoOther: it is tried again and again, beside the others, which get each change at once.
func TestNodeThatFailsHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &fakeStore{}
		s, control := started(t, store, nil)
		stuck := &stuckSwitch{fakeSwitch: &fakeSwitch{}}
		s.AddNode(models.Node{ID: "node_2", ConfDir: t.TempDir()}, stuck)
		<-time.After(5 * time.Minute)
		synctest.Wait()
		control.heard()
		for i := range 40 {
			store.set(func(f *fakeStore) {
				f.trunks = append(f.trunks, inbound(fmt.Sprintf("trunk_%d", i), "cust_a", fmt.Sprintf("203.0.113.%d", i), ""))
			})
			s.Changed()
			<-time.After(2 * time.Second)
			synctest.Wait()
			require.Equal(t, []string{"reloadacl"}, control.heard(), i)
		}
		require.GreaterOrEqual(t, stuck.tries.Load(), int64(5))

		// Once it is mended it has everything.
		stuck.mended.Store(true)
		<-time.After(3 * time.Minute)
		synctest.Wait()
		require.Contains(t, stuck.heard(), "reloadacl")
		n := s.current()[1]
		require.Equal(t, s.catalogue.current(), n.applied.Load())
		require.True(t, n.settled.Load())
		s.Stop()
	})
}

func TestFailureIsLoggedAndTriedAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		store := &fakeStore{err: errStore, trunks: []models.Trunk{outbound("trunk_1", "cust_a", "one")}}
		s, control := started(t, store, &log)
		require.Empty(t, control.heard())
		require.Contains(t, log.String(), "nothing changed")
		store.set(func(f *fakeStore) { f.err = nil })
		<-time.After(31 * time.Second)
		synctest.Wait()
		require.Contains(t, control.heard(), "reloadacl")
		require.NotContains(t, log.String(), "hunter2")
		s.Stop()
	})
}

func gatewayState(gateway, state, ping string) fakeEvent {
	return fakeEvent{"Event-Name": "CUSTOM", "Event-Subclass": "sofia::gateway_state", "Gateway": gateway, "State": state, "Ping-Status": ping}
}

func TestGatewayStatusByEventAndPoll(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &fakeStore{trunks: []models.Trunk{outbound("trunk_1", "cust_a", "one")}}
		s, control := started(t, store, nil)
		saved := func() (states []string) {
			synctest.Wait()
			store.set(func(f *fakeStore) {
				for _, status := range f.saved {
					require.Equal(t, "node_1", status.NodeID)
					require.Equal(t, "trunk_1", status.TrunkID)
					states = append(states, status.State+" "+status.Status)
				}
				f.saved = nil
			})
			return states
		}
		require.Empty(t, saved())
		s.handle("node_1", gatewayState("one", "TRYING", "DOWN"))
		require.Equal(t, []string{"TRYING DOWN"}, saved())
		s.handle("node_1", gatewayState("one", "TRYING", "DOWN"))
		s.handle("node_1", gatewayState("other", "REGED", "UP"))
		s.handle("node_1", gatewayState("one", "", ""))
		s.handle("node_1", fakeEvent{"Event-Name": "HEARTBEAT"})
		require.Empty(t, saved(), "nothing new")

		// The event of its registration was lost; the poll finds it.
		control.set(func(f *fakeSwitch) {
			f.gateways = []esl.Gateway{{Name: "one", State: "REGED", Status: "UP", PingMS: 12.5}, {Name: "theirs", State: "REGED", Status: "UP"}}
		})
		<-time.After(30 * time.Second)
		require.Equal(t, []string{"REGED UP"}, saved())
		<-time.After(2 * time.Minute)
		require.Empty(t, saved(), "unchanged")
		<-time.After(4 * time.Minute)
		require.Equal(t, []string{"REGED UP"}, saved(), "refreshed")

		store.set(func(f *fakeStore) { f.err = errStore })
		s.handle("node_1", gatewayState("one", "FAIL_WAIT", "DOWN"))
		require.Empty(t, saved())
		store.set(func(f *fakeStore) { f.err = nil })
		control.set(func(f *fakeSwitch) { f.gateways[0].State, f.gateways[0].Status = "FAIL_WAIT", "DOWN" })
		<-time.After(30 * time.Second)
		require.Equal(t, []string{"FAIL_WAIT DOWN"}, saved(), "kept until it can be written")
		s.Stop()
	})
}

func TestGatewayThatTheSwitchLacksIsLookedForOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		store := &fakeStore{trunks: []models.Trunk{outbound("trunk_1", "cust_a", "one")}}
		s, control := started(t, store, &log)
		control.heard()
		<-time.After(10 * time.Minute)
		synctest.Wait()
		require.Empty(t, control.heard())
		require.Equal(t, 1, strings.Count(log.String(), "switch lacks gateways"))
		s.Stop()
	})
}

func TestStopEndsWithTheContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		s, err := NewSyncer(Config{Store: &fakeStore{}})
		require.NoError(t, err)
		s.Start(ctx)
		cancel()
		synctest.Wait()
		s.Stop()
	})
}

func TestNewSyncerValidates(t *testing.T) {
	t.Parallel()
	_, err := NewSyncer(Config{})
	require.Error(t, err)
	_, err = NewSyncer(Config{Store: &fakeStore{}, Profile: "a b"})
	require.Error(t, err)
}

func refusal(application, data string) fakeEvent {
	return fakeEvent{
		"Event-Name": "CHANNEL_HANGUP_COMPLETE", "Caller-Direction": "inbound", "Caller-Network-Addr": "203.0.113.99",
		"Caller-Destination-Number":    "+15550001567\nlevel=ERROR" + strings.Repeat("9", 200),
		"variable_current_application": application, "variable_current_application_data": data,
	}
}

func TestRefusedCallsAreCountedAndLogged(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		s, err := NewSyncer(Config{Store: &fakeStore{}, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		require.NoError(t, err)
		for range 1000 {
			s.handle("node_1", refusal("respond", refuseUninvited))
		}
		s.handle("node_1", refusal("respond", refuseUnknown))
		s.handle("node_1", refusal("respond", refuseSuspended))
		s.handle("node_1", refusal("respond", "486"))
		s.handle("node_1", refusal("park", ""))
		s.handle("node_1", refusal("playback", refuseUninvited))
		outbound := refusal("respond", refuseUninvited)
		outbound["Caller-Direction"] = "outbound"
		s.handle("node_1", outbound)
		require.Equal(t, map[Refusal]uint64{RefusedUninvited: 1000, RefusedUnknown: 1, RefusedSuspended: 1, RefusedUnsteered: 0, RefusedBlocked: 0}, s.Refused())
		require.Equal(t, loggedAtOnce, strings.Count(log.String(), "\n"))
		<-time.After(time.Minute)
		s.handle("node_1", refusal("respond", refuseUnknown))
		require.Contains(t, log.String(), "not_logged_before=982")
		require.Less(t, len(log.String()), (loggedAtOnce+1)*400)
	})
}

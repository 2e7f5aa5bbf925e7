package dialplan

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
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
		require.Equal(t, reads+1, store.reads)
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

		file := filepath.Join(s.current()[0].folder.root, entryPath)
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
		require.Equal(t, map[Refusal]uint64{RefusedUninvited: 1000, RefusedUnknown: 1, RefusedSuspended: 1, RefusedUnsteered: 0}, s.Refused())
		require.Equal(t, loggedAtOnce, strings.Count(log.String(), "\n"))
		<-time.After(time.Minute)
		s.handle("node_1", refusal("respond", refuseUnknown))
		require.Contains(t, log.String(), "not_logged_before=982")
		require.Less(t, len(log.String()), (loggedAtOnce+1)*400)
	})
}

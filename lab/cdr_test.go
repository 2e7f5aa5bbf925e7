package lab_test

import (
	"encoding/base64"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tandem/lab"
	"tandem/models"
)

// witnessed is an installation whose node posts its CDRs to the controller, with the link to its Event Socket and the database at hand.
func witnessed(t *testing.T, env ...string) (*system, *lab.Link, *models.Store) {
	t.Helper()
	lab.Require(t)
	database := "sqlite:" + filepath.Join(t.TempDir(), "tandem.db")
	s := newSystem(t, database)
	s.env = append(s.env, env...)
	posts, tokenFile := s.posting(t)
	var started sync.WaitGroup
	started.Go(func() { s.carrier = lab.StartCarrier(t) })
	s.node = lab.StartNode(t, lab.Options{Env: posts})
	started.Wait()
	require.NotNil(t, s.carrier)
	link, err := lab.NewLink(t.Context(), s.node.ESLAddr)
	require.NoError(t, err)
	t.Cleanup(link.Close)
	s.open(t, link.Addr(), s.node.PasswordFile, s.node.ConfDir)
	s.run(t, "nodes", "cdr-token", "first", "--cdr-token-file", tokenFile, "--yes")
	s.outboundTrunk(t, s.customer, "acme", lab.CarrierPassword, "REGED")
	return s, link, s.store(t, database)
}

// posting makes the token of a node that posts its CDRs: what its switch is told, and the file for the controller.
func (s *system) posting(t *testing.T) (env map[string]string, tokenFile string) {
	t.Helper()
	token := models.NewCDRToken()
	tokenFile = filepath.Join(t.TempDir(), "cdr-token")
	require.NoError(t, os.WriteFile(tokenFile, []byte(token+"\n"), 0o600))
	return map[string]string{"TANDEM_CDR_URL": "http://" + s.addr + "/internal/cdr", "TANDEM_CDR_CREDENTIALS": "first:" + token}, tokenFile
}

// store opens the database of a system.
func (s *system) store(t *testing.T, database string) *models.Store {
	t.Helper()
	var keyFile string
	for _, line := range s.env {
		if path, ok := strings.CutPrefix(line, "TANDEM_SECRET_KEY_FILE="); ok {
			keyFile = path
		}
	}
	encoded, err := os.ReadFile(keyFile)
	require.NoError(t, err)
	key, err := base64.StdEncoding.DecodeString(strings.TrimSpace(string(encoded)))
	require.NoError(t, err)
	store, err := models.Open(t.Context(), models.Config{URL: database, Key: key})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	return store
}

// cdrOf waits for the CDR of a channel.
func cdrOf(t *testing.T, store *models.Store, call *models.Call, channel string) *models.CDR {
	t.Helper()
	var cdr *models.CDR
	require.Eventually(t, func() bool {
		var err error
		cdr, err = store.CDR(t.Context(), *call.NodeID, channel)
		return err == nil
	}, 10*time.Second, 20*time.Millisecond, "no CDR of channel %s", channel)
	return cdr
}

// TestFreeSWITCHCDRs has calls end in every way, with and without a controller, and the node itself.
func TestFreeSWITCHCDRs(t *testing.T) {
	t.Parallel()
	s, link, store := witnessed(t)
	folder := filepath.Join(s.node.ConfDir, "tandem", "cdr")
	files := func() (names []string) {
		entries, err := os.ReadDir(folder)
		require.NoError(t, err)
		for _, entry := range entries {
			if strings.HasSuffix(entry.Name(), ".json") {
				names = append(names, entry.Name())
			}
		}
		return names
	}
	stored := func(call object) *models.Call {
		row, err := store.CallByID(t.Context(), call.text("id"))
		require.NoError(t, err)
		return row
	}

	t.Run("posted", func(t *testing.T) { //nolint:paralleltest // one after the other, as the controller is taken away below
		app := s.newApplication(t, s.customer, "posted", nil, func(q question) any {
			if strings.HasSuffix(q.call().text("to"), "0001") {
				return []object{{"action": "dial", "to": "+15550201701"}, {"action": "hangup"}}
			}
			return []object{{"action": "pause", "seconds": 30}}
		})
		for to, want := range map[string]struct {
			cause, disposition string
			sip                int
		}{
			"+15550200701": {"NORMAL_CLEARING", "recv_bye", 200},
			"+15550200486": {"USER_BUSY", "recv_refuse", 486},
			"+15550200001": {"NORMAL_CLEARING", "send_bye", 0},
		} {
			call := s.callFrom(t, app, to, nil)
			end, events := app.ended(soon(t), t, s, call.text("id"))
			row := stored(call)
			cdr := cdrOf(t, store, row, row.ChannelID)
			require.Equal(t, []any{want.cause, want.disposition, want.sip}, []any{cdr.Cause, cdr.Disposition, cdr.SIPCode}, to)
			require.Equal(t, end.part("data").number("billed_seconds"), cdr.BilledSeconds, "%s: %v", to, kinds(events))
			require.Equal(t, row.AnsweredAt != nil, cdr.AnsweredAt != nil)
			if row.AnsweredAt != nil {
				require.WithinDuration(t, *row.AnsweredAt, *cdr.AnsweredAt, 200*time.Millisecond)
			}
			legs, err := store.LegsOfCall(t.Context(), row.CustomerID, row.ID)
			require.NoError(t, err)
			for _, leg := range legs {
				cdr := cdrOf(t, store, row, leg.ChannelID)
				require.Equal(t, []any{"outbound", "NORMAL_CLEARING", "recv_bye"}, []any{cdr.Direction, cdr.Cause, cdr.Disposition})
			}
			require.Equal(t, strings.HasSuffix(to, "0001"), len(legs) == 1)
		}
		require.Empty(t, files(), "what was posted is no file")
		value, err := s.node.Probe(t).API(t.Context(), "eval <${tandem_cdr_credentials}>")
		require.NoError(t, err)
		require.Equal(t, "<>", value, "the token is no variable of the running switch")
		require.NotContains(t, s.node.LogText(), "Unable to post")
	})

	t.Run("controller killed", func(t *testing.T) { //nolint:paralleltest // see above
		app := s.newApplication(t, s.customer, "killed", nil, func(question) any { return []object{{"action": "pause", "seconds": 30}} })
		answered, refused := s.callFrom(t, app, "+15550200701", nil), s.callFrom(t, app, "+15550200183", nil) // hangs up after 2 s; 183 for 2 s, answers, hangs up after 3 s
		app.until(soon(t), t, answered.text("id"), "call.answered")
		app.until(soon(t), t, refused.text("id"), "call.ringing")
		s.stop(syscall.SIGKILL)
		require.Eventually(t, func() bool { return len(files()) == 2 }, 20*time.Second, 20*time.Millisecond, "the CDRs become files")
		require.Contains(t, s.node.LogText(), "Unable to post")
		began := time.Now()
		s.start(t)
		for _, call := range []object{answered, refused} {
			end, events := app.ended(soon(t), t, s, call.text("id"))
			row := stored(call)
			cdr := cdrOf(t, store, row, row.ChannelID)
			t.Logf("told %s after the start: %v, %v", time.Since(began).Round(time.Millisecond), kinds(events), end.part("data"))
			require.Equal(t, []any{"call.completed", "callee_hangup", "callee"}, []any{end.text("type"), end.part("call")["reason"], end.part("call")["hangup_source"]})
			require.Contains(t, kinds(events), "call.answered")
			require.Equal(t, cdr.BilledSeconds, end.part("data").number("billed_seconds"))
			require.Positive(t, cdr.BilledSeconds)
			require.WithinDuration(t, *cdr.AnsweredAt, *row.AnsweredAt, 200*time.Millisecond)
			require.WithinDuration(t, cdr.EndedAt, *row.EndedAt, time.Microsecond)
			require.InDelta(t, cdr.BilledSeconds, end.part("data")["talk_seconds"], 1)
		}
		require.Less(t, time.Since(began), 20*time.Second)
		require.Empty(t, files(), "what is stored is deleted")
	})

	t.Run("link cut for five seconds", func(t *testing.T) { //nolint:paralleltest // see above
		app := s.newApplication(t, s.customer, "cut", nil, func(q question) any {
			if strings.HasSuffix(q.call().text("to"), "0002") {
				return []object{{"action": "pause", "seconds": 9}, {"action": "hangup"}}
			}
			return []object{{"action": "pause", "seconds": 30}}
		})
		for name, state := range map[string]lab.LinkState{"reset": lab.LinkReset, "silent": lab.LinkSilent} {
			stays, leaves := s.callFrom(t, app, "+15550200002", nil), s.callFrom(t, app, "+15550200701", nil)
			app.until(soon(t), t, stays.text("id"), "call.answered")
			app.until(soon(t), t, leaves.text("id"), "call.answered")
			link.Set(state)
			cut := time.Now()
			row := stored(leaves)
			cdr := cdrOf(t, store, row, row.ChannelID) // it hung up after 2 s; the post goes another way
			require.Less(t, time.Since(cut), 5*time.Second)
			require.Eventually(t, func() bool { return time.Since(cut) >= 5*time.Second }, 10*time.Second, 10*time.Millisecond)
			link.Set(lab.LinkUp)
			end, _ := app.ended(soon(t), t, s, leaves.text("id"))
			t.Logf("%s: the end of the call that left is told %s after the cut", name, time.Since(cut).Round(time.Millisecond))
			require.Equal(t, []any{"callee_hangup", cdr.BilledSeconds}, []any{end.part("call")["reason"], end.part("data").number("billed_seconds")})
			end, _ = app.ended(soon(t), t, s, stays.text("id"))
			t.Logf("%s: the other one ended %s after the cut", name, time.Since(cut).Round(time.Millisecond))
			require.Equal(t, []any{"completed", "actions"}, []any{end.part("call")["reason"], end.part("call")["hangup_source"]})
		}
	})

	t.Run("node killed", func(t *testing.T) { //nolint:paralleltest // see above
		app := s.newApplication(t, s.customer, "node killed", nil, func(question) any { return []object{{"action": "pause", "seconds": 120}} })
		talking, ringing := s.callFrom(t, app, "+15550200002", nil), s.callFrom(t, app, "+15550200180", object{"timeout": 120})
		app.until(soon(t), t, talking.text("id"), "call.answered")
		app.until(soon(t), t, ringing.text("id"), "call.ringing")
		s.node.Kill()
		killed := time.Now()
		require.Eventually(t, func() bool {
			status, answer, err := s.try(t.Context(), customer{key: app.key}, http.MethodPost, "/v1/calls", object{"application_id": app.id, "from": "+15550100000", "to": "+15550200701"})
			return err == nil && status == http.StatusServiceUnavailable && answer.part("error").text("code") == "no_node_available"
		}, 10*time.Second, 100*time.Millisecond, "calls are placed on a node that is gone")
		for id, want := range map[string]string{talking.text("id"): "call.completed", ringing.text("id"): "call.failed"} {
			ctx := soon(t)
			end, _ := app.ended(ctx, t, s, id)
			took := time.Since(killed)
			t.Logf("%s told %s after the kill", want, took.Round(time.Millisecond))
			require.Less(t, took, 55*time.Second)
			require.Equal(t, []any{want, "node_lost", "platform"}, []any{end.text("type"), end.part("call")["reason"], end.part("call")["hangup_source"]})
		}
		row := stored(talking)
		require.InDelta(t, killed.Sub(*row.AnsweredAt).Seconds(), row.BilledSeconds, 3, "until the node was last heard of")
		require.NoError(t, s.node.Restart(t.Context()))
		s.trunkBecomes(t, s.customer, s.trunkID(t), "REGED")
		var again object
		require.Eventually(t, func() bool {
			status, answer, err := s.try(t.Context(), customer{key: app.key}, http.MethodPost, "/v1/calls", object{"application_id": app.id, "from": "+15550100000", "to": "+15550200701"})
			again = answer
			return err == nil && status == http.StatusCreated
		}, 30*time.Second, 100*time.Millisecond, "the node comes back")
		app.ended(soon(t), t, s, again.text("id"))
	})

	for _, command := range [][]string{{"doctor"}, {"ledger", "verify"}} {
		out, err := s.command(t, command...).CombinedOutput()
		require.NoError(t, err, string(out))
	}
	differences, err := store.BillingDifferences(t.Context())
	require.NoError(t, err)
	require.Empty(t, differences)
}

// trunkID is the id of the customer's only trunk.
func (s *system) trunkID(t *testing.T) string {
	t.Helper()
	_, list := s.ask(t, s.customer, http.MethodGet, "/v1/trunks", nil)
	items, _ := list["data"].([]any)
	require.Len(t, items, 1)
	return object(items[0].(map[string]any)).text("id")
}

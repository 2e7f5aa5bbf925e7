package lab_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tandem/esl/simswitch"
	"tandem/lab"
)

// keysOf is the key of the order that a call's metadata has.
func keysOf(metadata string) []string {
	var parsed map[string]string
	if json.Unmarshal([]byte(metadata), &parsed) != nil || parsed["key"] == "" {
		return nil
	}
	return []string{parsed["key"]}
}

// checkCallers asks the switch what became of those who called, and holds the calls to it.
func (w *chaosWorld) checkCallers(t *testing.T, p *problems, calls map[string]*callRow) {
	t.Helper()
	byChannel := map[string]*callRow{}
	for _, r := range calls {
		if r.channel != "" {
			byChannel[r.channel] = r
		}
	}
	probe, err := lab.DialESL(t.Context(), w.eslAddr, w.password)
	require.NoError(t, err)
	defer func() { _ = probe.Close() }()
	for _, c := range w.load.inbound {
		r := byChannel[c.channel]
		if c.generation != w.generation() {
			continue // nobody knows any more
		}
		text, err := probe.API(t.Context(), "sim_result "+c.channel)
		require.NoError(t, err)
		var result simswitch.Result
		if json.Unmarshal([]byte(text), &result) != nil {
			continue // there were too many since
		}
		switch {
		case !result.Ended:
			p.add("a caller is still there", "%s", c.channel)
		case result.Answered && r == nil:
			p.add("a caller was answered and there is no call", "%s", c.channel)
		case r == nil:
		case result.Answered && float64(r.billed) < result.BillSeconds-1.5 || float64(r.billed) > result.BillSeconds+1.5:
			p.add("what was billed is not what the caller had", "%s: %d seconds of %.1f, %s", r.id, r.billed, result.BillSeconds, r.reason)
		case result.HungUpBy == "switch" && r.reason == "caller_hangup", result.HungUpBy == "caller" && r.reason == "completed":
			p.add("who hung up is told wrongly", "%s: %s says the switch, %s the call", r.id, result.HungUpBy, r.reason)
		}
	}
}

// checkAPI asks a controller for every hundredth call, or all if they are few, and holds the answer to what the customer was told.
func (w *chaosWorld) checkAPI(t *testing.T, p *problems, calls map[string]*callRow) {
	t.Helper()
	tales := w.sink.snapshot()
	for i, id := range slices.Sorted(maps.Keys(calls)) {
		if i%max(1, len(calls)/100) != 0 {
			continue
		}
		status, answer, err := w.ask(t.Context(), w.controllers[i%2], w.customer.key, http.MethodGet, "/v1/calls/"+id, nil, "")
		if err != nil || status != http.StatusOK {
			p.add("the API does not know a call", "%s: %d %v", id, status, err)
			continue
		}
		tale := tales[id]
		if tale == nil || len(tale.events) == 0 {
			continue // told of already
		}
		last := tale.events[len(tale.events)-1]
		for _, name := range []string{"status", "reason", "hangup_source", "cause", "sip_code", "from", "to"} {
			if last.Call[name] != answer[name] {
				p.add("the API says otherwise than the last event", "%s: %s is %v, %v", id, name, answer[name], last.Call[name])
			}
		}
	}
}

// leftovers are rows that only live calls have.
var leftovers = []struct{ what, table, query string }{
	{"a call waits in a queue", "queue_entries", "SELECT count(*) FROM queue_entries WHERE state <> 'left'"},
	{"a conference lives", "conferences", "SELECT count(*) FROM conferences WHERE ended_at IS NULL"},
	{"a call is in a conference", "conference_members", "SELECT count(*) FROM conference_members WHERE left_at IS NULL"},
	{"a leg has not ended", "legs", "SELECT count(*) FROM legs WHERE status <> 'ended'"},
	{"a recording runs", "recordings", "SELECT count(*) FROM recordings WHERE status IN ('recording', 'paused')"},
	{"a command waits", "call_commands", "SELECT count(*) FROM call_commands"},
	{"a webhook is not delivered", "webhook_deliveries", "SELECT count(*) FROM webhook_deliveries WHERE state <> 'delivered'"},
	{"a channel is of two calls", "calls", "SELECT count(*) FROM (SELECT channel_id FROM calls WHERE channel_id <> '' GROUP BY channel_id HAVING count(*) > 1) AS twice"},
}

func (w *chaosWorld) checkRows(t *testing.T, p *problems) {
	t.Helper()
	for _, l := range leftovers {
		var exists bool
		require.NoError(t, w.database.QueryRowContext(t.Context(), "SELECT to_regclass($1) IS NOT NULL", l.table).Scan(&exists))
		if !exists {
			continue
		}
		var count int
		require.NoError(t, w.database.QueryRowContext(t.Context(), l.query).Scan(&count))
		if count > 0 {
			p.add("left over: "+l.what, "%d", count)
		}
	}
}

// What a controller may have: a part for itself and one for each call, in KiB; and goroutines that one which has just begun has not.
const (
	memoryOfItself, memoryOfCall = 250 << 10, 300
	moreGoroutines               = 60
)

// checkProcesses: no process has crashed, taken more memory than it may, or kept goroutines of calls that are over.
func (w *chaosWorld) checkProcesses(t *testing.T, p *problems) {
	t.Helper()
	if most := w.watch.most(); most > memoryOfItself+memoryOfCall*w.plan.calls {
		p.add("a controller took too much memory", "%d MiB", most>>10)
	}
	for _, c := range []*part{w.controllers[0].part, w.controllers[1].part, w.telephone} {
		log := w.logOf(t, c)
		for _, mark := range []string{"panic: ", "fatal error: ", "DATA RACE"} {
			if i := strings.Index(log, mark); i >= 0 {
				p.add("a process has crashed", "%s: %s", c.name, log[i:min(len(log), i+900)])
			}
		}
		for _, ended := range c.troubles() {
			if strings.Contains(ended, "had to be killed") {
				p.add("a process did not stop", "%s", ended)
			}
		}
	}
	// One of them begins anew, and the other, which has seen it all, is compared with it.
	old, fresh := w.controllers[0], w.controllers[1]
	fresh.down(os.Kill, chaosPatience)
	fresh.up()
	w.answers(t, fresh)
	oldCount, oldBy := w.goroutines(t, old)
	freshCount, freshBy := w.goroutines(t, fresh)
	t.Logf("goroutines: %d in the controller that has seen it all, %d in one that has just begun", oldCount, freshCount)
	if oldCount > freshCount+moreGoroutines {
		p.add("goroutines were left over", "%d, not %d", oldCount, freshCount)
	}
	for creator, count := range oldBy {
		if strings.HasPrefix(creator, "tandem/calls.") && count > freshBy[creator]+2 {
			p.add("goroutines of calls were left over", "%d of %s, not %d", count, creator, freshBy[creator])
		}
	}
}

func (w *chaosWorld) logOf(t *testing.T, c *part) string {
	t.Helper()
	log, err := os.ReadFile(filepath.Clean(c.log))
	require.NoError(t, err)
	return string(log)
}

// report prints what the run was.
func (w *chaosWorld) report(t *testing.T, took time.Duration) {
	t.Helper()
	calls := w.readCalls(t)
	each, taken := w.watch.waits()
	tales := w.sink.snapshot()
	events := 0
	for _, tale := range tales {
		events += len(tale.events)
	}
	var ended []string
	for _, c := range w.controllers {
		ended = append(ended, c.troubles()...)
	}
	var out strings.Builder
	fmt.Fprintf(&out, "seed %d, %s with %d calls at a time\n", w.plan.seed, took.Round(time.Second), w.plan.calls)
	fmt.Fprintf(&out, "%s\n", w.counts())
	fmt.Fprintf(&out, "%d calls: %s; %d of them never dialled, for their command was lost, %d refused although they were stored\n",
		len(calls), outcomes(calls), w.undialled, w.unknown)
	fmt.Fprintf(&out, "%d webhooks taken, %d came again, %d requests refused on purpose; %d commands accepted, %d calls ordered, %d callers\n", events, w.sink.repeated, w.sink.refused,
		len(w.load.commands), len(w.load.outbound), len(w.load.inbound))
	fmt.Fprintf(&out, "the controller that steers was taken away %d times; the next had taken the node after p50 %s, p99 %s; the next command of a call that needed one came after p50 %s, p99 %s (%d calls)\n",
		len(taken), quantile(taken, 0.5), quantile(taken, 0.99), quantile(each, 0.5), quantile(each, 0.99), len(each))
	fmt.Fprintf(&out, "most memory of a controller %d MiB", w.watch.most()>>10)
	if len(ended) > 0 {
		fmt.Fprintf(&out, "; %d times one ended by itself, the last: %s", len(ended), ended[len(ended)-1])
	}
	t.Log(out.String())
}

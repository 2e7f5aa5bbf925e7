package lab_test

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// callRow is a call as the database has it in the end.
type callRow struct {
	id, application, direction, status, reason, source, from, to, channel string
	billed, cost, price, held                                             int64
	created                                                               time.Time
	answered, ended                                                       *time.Time
	settled                                                               bool
	events                                                                []eventRow
}

// eventRow is an event of the journal.
type eventRow struct {
	id, kind string
	sequence int
}

func (e eventRow) terminal() bool { return e.kind == "call.completed" || e.kind == "call.failed" }

func (r *callRow) told(kind string) bool {
	return slices.ContainsFunc(r.events, func(e eventRow) bool { return e.kind == kind })
}

func (r *callRow) terminals() int {
	count := 0
	for _, event := range r.events {
		if event.terminal() {
			count++
		}
	}
	return count
}

// check holds what is left to what was promised, from the outside.
func (w *chaosWorld) check(t *testing.T) {
	t.Helper()
	p := &problems{}
	calls := w.readCalls(t)
	w.checkJournal(p, calls)
	w.checkSink(p, calls)
	w.checkMoney(t, p, calls)
	w.checkAudits(t, p)
	w.checkReasons(p, calls)
	w.checkFlows(p, calls)
	w.checkCommands(p, calls)
	w.checkOrders(t, p, calls)
	w.checkCallers(t, p, calls)
	w.checkAPI(t, p, calls)
	w.checkRows(t, p)
	w.fence.tell(p)
	w.checkProcesses(t, p)
	p.tell(t)
	if t.Failed() {
		if err := w.cluster.Dump(context.WithoutCancel(t.Context()), filepath.Join(w.folder, "database.sql")); err != nil {
			t.Log(err)
		}
	}
}

func (w *chaosWorld) readCalls(t *testing.T) map[string]*callRow {
	t.Helper()
	rows, err := w.database.QueryContext(t.Context(), `SELECT id, application_id, direction, status, reason, hangup_source, from_number, to_number, channel_id, billed_seconds,
		cost_micros, price_per_minute_micros, hold_micros, created_at, answered_at, ended_at, settled_at IS NOT NULL FROM calls WHERE from_number <> $1`, loadProbe)
	require.NoError(t, err)
	defer func() { _ = rows.Close() }()
	calls := map[string]*callRow{}
	for rows.Next() {
		var r callRow
		var created int64
		var answered, ended *int64
		require.NoError(t, rows.Scan(&r.id, &r.application, &r.direction, &r.status, &r.reason, &r.source, &r.from, &r.to, &r.channel, &r.billed, &r.cost, &r.price, &r.held,
			&created, &answered, &ended, &r.settled))
		r.created, r.answered, r.ended = time.UnixMicro(created), moment(answered), moment(ended)
		calls[r.id] = &r
	}
	require.NoError(t, rows.Err())
	events, err := w.database.QueryContext(t.Context(), "SELECT id, call_id, sequence, type FROM events WHERE call_id IS NOT NULL ORDER BY call_id, sequence")
	require.NoError(t, err)
	defer func() { _ = events.Close() }()
	for events.Next() {
		var event eventRow
		var call string
		require.NoError(t, events.Scan(&event.id, &call, &event.sequence, &event.kind))
		if r := calls[call]; r != nil {
			r.events = append(r.events, event)
		}
	}
	require.NoError(t, events.Err())
	return calls
}

func moment(micros *int64) *time.Time {
	if micros == nil {
		return nil
	}
	at := time.UnixMicro(*micros)
	return &at
}

// checkJournal: every call has ended, once, and its events count from 1 without a gap.
func (*chaosWorld) checkJournal(p *problems, calls map[string]*callRow) {
	for _, r := range calls {
		if r.ended == nil {
			p.add("a call has not ended", "%s is %s", r.id, r.status)
		}
		if count := r.terminals(); count != 1 {
			p.add("a call has not exactly one terminal event", "%s has %d", r.id, count)
		}
		if last := len(r.events) - 1; last >= 0 && r.ended != nil && !r.events[last].terminal() {
			p.add("a call has events after its terminal event", "%s: the last is %s", r.id, r.events[last].kind)
		}
		for i, event := range r.events {
			if event.sequence != i+1 {
				p.add("a gap in the journal", "%s: the event %d has the sequence %d", r.id, i+1, event.sequence)
				break
			}
		}
	}
}

// wants tells which events an application is told of; docs/webhooks.md lists them.
func (app chaosApplication) wants(kind string) bool {
	return app.all || kind != "call.dtmf" && kind != "call.action_completed"
}

// checkSink: the customer was told of every event that the application wants, in order, without a gap, and of nothing else.
func (w *chaosWorld) checkSink(p *problems, calls map[string]*callRow) {
	apps := map[string]chaosApplication{}
	for _, app := range w.applications {
		apps[app.id] = app
	}
	tales := w.sink.snapshot()
	for _, r := range calls {
		var want, got []string
		for _, event := range r.events {
			if apps[r.application].wants(event.kind) {
				want = append(want, event.id)
			}
		}
		if tale := tales[r.id]; tale != nil {
			for i, event := range tale.events {
				got = append(got, event.ID)
				if event.Sequence != i+1 {
					p.add("the customer was told with a gap", "%s: %s has the sequence %d in place %d", r.id, event.Type, event.Sequence, i+1)
				}
			}
		}
		if !slices.Equal(want, got) {
			p.add("the customer was not told what the journal has", "%s: the journal has %d that it wants, it was told %d", r.id, len(want), len(got))
		}
	}
	for id, tale := range tales {
		if calls[id] == nil && len(tale.events) > 0 && tale.events[0].Call.text("from") != loadProbe {
			p.add("the customer was told of a call that there is not", "%s", id)
		}
	}
	w.sink.mu.Lock()
	defer w.sink.mu.Unlock()
	p.said = append(p.said, w.sink.problems.said...)
}

// checkMoney: what was billed is paid once, at its price, and nothing is held any more.
func (w *chaosWorld) checkMoney(t *testing.T, p *problems, calls map[string]*callRow) {
	t.Helper()
	if out, err := w.run("ledger", "verify").CombinedOutput(); err != nil {
		p.add("the ledger does not hold", "%s", out)
	}
	rows, err := w.database.QueryContext(t.Context(), "SELECT call_id, amount_micros FROM ledger_entries WHERE kind = 'call'")
	require.NoError(t, err)
	defer func() { _ = rows.Close() }()
	debits := map[string][]int64{}
	for rows.Next() {
		var call string
		var amount int64
		require.NoError(t, rows.Scan(&call, &amount))
		debits[call] = append(debits[call], amount)
	}
	require.NoError(t, rows.Err())
	var balance, held, sum int64
	require.NoError(t, w.database.QueryRowContext(t.Context(), "SELECT balance_micros, held_micros FROM customers WHERE id = $1", w.customer.id).Scan(&balance, &held))
	require.NoError(t, w.database.QueryRowContext(t.Context(), "SELECT sum(amount_micros) FROM ledger_entries WHERE customer_id = $1", w.customer.id).Scan(&sum))
	if held != 0 || balance != sum {
		p.add("the balance is not the ledger", "%d is held, the balance is %d, the ledger's sum %d", held, balance, sum)
	}
	bills := w.chargeSums(t, p, calls)
	for _, r := range calls {
		if !r.settled {
			p.add("a call is not settled", "%s", r.id)
		}
		if r.cost != bills[r.id] || r.cost < r.billed*r.price/60 {
			p.add("a cost is not the price of what was billed", "%s: %d for %d seconds, its bill %d", r.id, r.cost, r.billed, bills[r.id])
		}
		var paid int64
		for _, amount := range debits[r.id] {
			paid -= amount
		}
		if paid != r.cost || len(debits[r.id]) > 1 {
			p.add("what was debited is not the cost", "%s: %v for a cost of %d", r.id, debits[r.id], r.cost)
		}
		switch up := r.upFor(); {
		case r.answered == nil && r.billed != 0:
			p.add("a call that nobody answered is billed", "%s: %d seconds", r.id, r.billed)
		case float64(r.billed) > up.Seconds()+2:
			p.add("a call is billed for longer than it was up", "%s: %d seconds of %s", r.id, r.billed, up)
		case r.reason != "node_lost" && float64(r.billed) < up.Seconds()-15-w.longestOutage().Seconds():
			p.add("a call is billed for shorter than it was up", "%s: %d seconds of %s (%s)", r.id, r.billed, up, r.reason)
		}
	}
}

func (r *callRow) upFor() time.Duration {
	if r.answered == nil || r.ended == nil {
		return 0
	}
	return r.ended.Sub(*r.answered)
}

// longestOutage is how long anything was away at most.
func (w *chaosWorld) longestOutage() time.Duration {
	var longest time.Duration
	for _, wreck := range w.havoc {
		longest = max(longest, wreck.mended.Sub(wreck.at))
	}
	return longest
}

// natural are the reasons that a call of this load may end for when nothing of ours is to blame.
var natural = []string{"completed", "caller_hangup", "callee_hangup", "busy", "api_hangup", "canceled"}

// checkReasons: a call ends for its own reasons; only those that the switch took with it may be lost, and those whose command to dial was on its way
// when the link or its controller died: nobody can know what came of it, and such a call is not dialled twice (docs/guarantees.md). They are
// few, and nobody pays for them. So are new calls that were refused, as new calls may be while the database is away or slow, and had been stored
// all the same.
func (w *chaosWorld) checkReasons(p *problems, calls map[string]*callRow) {
	ordered := 0
	for _, r := range calls {
		if r.direction == "outbound" {
			ordered++
		}
		switch {
		case slices.Contains(natural, r.reason):
		case r.reason == "node_lost" && w.switchDiedIn(r):
		case r.reason == "node_lost" && r.direction == "outbound" && !r.told("call.ringing") && r.answered == nil && r.cost == 0:
			w.undialled++
		case r.reason == "internal_error" && r.direction == "inbound" && r.answered == nil && r.cost == 0:
			w.unknown++
		case r.ended == nil:
		default:
			p.add("a call was dropped by us", "%s (%s, channel %s) ended %s as %s %s %s after %s", r.id, r.direction, r.channel, r.ended.Format("15:04:05.000"), r.status, r.reason, r.source,
				r.ended.Sub(r.created).Round(time.Millisecond))
		}
	}
	if w.undialled > 3+ordered/100 {
		p.add("too many calls were not dialled", "%d of %d", w.undialled, ordered)
	}
	if w.unknown > 3+len(calls)/1000 {
		p.add("too many new calls were refused although they were stored", "%d of %d", w.unknown, len(calls))
	}
}

// switchDiedIn tells whether the switch was killed while a call lived, or so shortly before we knew of the call that it was there already.
func (w *chaosWorld) switchDiedIn(r *callRow) bool {
	return slices.ContainsFunc(w.generations, func(at time.Time) bool {
		return at.After(r.created.Add(-5*time.Second)) && (r.ended == nil || at.Before(r.ended.Add(time.Second)))
	})
}

// checkFlows: no action has run twice or out of its order, and a call that came to its end has done all that it was told to.
func (w *chaosWorld) checkFlows(p *problems, calls map[string]*callRow) {
	for id, tale := range w.sink.snapshot() {
		r := calls[id]
		if r == nil {
			continue
		}
		var steps []string
		last := ""
		seen := map[string]bool{}
		for _, event := range tale.events {
			var step string
			switch event.Type {
			case "call.notify":
				step = event.Data.part("payload").text("step")
				steps = append(steps, step)
				step = "notify " + step
			case "leg.ended":
				w.checkLeg(p, id, event.Data)
				continue
			case "call.action_completed":
				step = event.Data.text("id")
				if step < last && !strings.HasPrefix(last, "z") {
					p.add("actions were told to be done out of order", "%s: %s after %s", id, step, last)
				}
				last = step
			default:
				continue
			}
			if seen[step] {
				p.add("an action ran twice", "%s: %s", id, step)
			}
			seen[step] = true
		}
		disturbed := slices.ContainsFunc(steps, func(step string) bool { return step >= "b" }) || tale.commanded || r.reason != "completed"
		if disturbed || r.answered == nil {
			continue
		}
		if r.direction == "inbound" && tale.gathered != "digits "+typed {
			p.add("what a caller typed was lost", "%s: %q, not %q", id, tale.gathered, typed)
		}
		var want []string
		for _, round := range w.plan.flowOf(id, r.direction) {
			for _, action := range round {
				if action.text("action") == "notify" {
					want = append(want, action.text("id"))
				}
			}
		}
		if !slices.Equal(want, steps) {
			p.add("a call came to its end without all that it was told to do", "%s: %v, not %v; asked %v", id, steps, want, tale.asked)
		}
	}
}

// checkLeg: a party that was dialled is let go when its time is over.
func (w *chaosWorld) checkLeg(p *problems, call string, leg object) {
	seconds, _ := leg["seconds"].(float64)
	if most := dialSeconds(w.plan.pace) + w.longestOutage().Seconds() + 10; seconds > most {
		p.add("a party that was dialled stayed beyond its time", "%s: %s for %.1f s, at most %.1f", call, leg.text("leg_id"), seconds, most)
	}
}

// late is how long a command that was accepted may find the call ended already, or about to.
const late = 3 * time.Second

// checkCommands: what the API has accepted was done, once.
func (w *chaosWorld) checkCommands(p *problems, calls map[string]*callRow) {
	tales := w.sink.snapshot()
	for _, c := range w.load.commands {
		r, tale := calls[c.call], tales[c.call]
		if r == nil || tale == nil || r.ended == nil {
			p.add("a command to a call that there is not", "%v", c)
			continue
		}
		if r.ended.Before(c.accepted.Add(late)) || r.reason == "node_lost" {
			continue
		}
		done := 0
		for _, event := range tale.events {
			if event.Type == "call.notify" && event.Data.part("payload").text("token") == c.token {
				done++
			}
		}
		switch {
		case c.kind == "cancel" && r.reason != "api_hangup" && r.reason != "canceled" && r.ended.After(c.accepted.Add(w.longestOutage()+15*time.Second)):
			p.add("a cancel that was accepted was lost", "%s: accepted %s, ended %s as %s", r.id, c.accepted.Format("15:04:05.000"), r.ended.Format("15:04:05.000"), r.reason)
		case c.kind == "replace" && done > 1:
			p.add("a command was carried out more than once", "%s: %d times", r.id, done)
		case c.kind == "replace" && done == 0 && r.reason == "completed":
			p.add("a list that was accepted was lost", "%s: accepted %s, ended %s as %s", r.id, c.accepted.Format("15:04:05.000"), r.ended.Format("15:04:05.000"), r.reason)
		}
	}
}

// checkOrders: each order made one call, or none where it was refused.
func (w *chaosWorld) checkOrders(t *testing.T, p *problems, calls map[string]*callRow) {
	t.Helper()
	rows, err := w.database.QueryContext(t.Context(), "SELECT id, metadata FROM calls WHERE direction = 'outbound'")
	require.NoError(t, err)
	defer func() { _ = rows.Close() }()
	made := map[string][]string{}
	for rows.Next() {
		var id, metadata string
		require.NoError(t, rows.Scan(&id, &metadata))
		for _, o := range keysOf(metadata) {
			made[o] = append(made[o], id)
		}
	}
	require.NoError(t, rows.Err())
	for _, o := range w.load.outbound {
		switch {
		case len(made[o.key]) > 1:
			p.add("an order made several calls", "%s: %v", o.key, made[o.key])
		case o.status == http.StatusCreated && (len(made[o.key]) != 1 || made[o.key][0] != o.call):
			p.add("an order was confirmed and is not there", "%s: %s, not %v", o.key, o.call, made[o.key])
		case o.status >= 400 && o.status < 500:
			p.add("an order was refused", "%s: %d", o.key, o.status)
		}
	}
	if len(calls) == 0 {
		p.add("no calls", "none at all")
	}
}

// outcomes counts the calls by how they ended.
func outcomes(calls map[string]*callRow) string {
	by := map[string]int{}
	for _, r := range calls {
		by[r.direction+" "+r.status+" "+r.reason]++
	}
	var list []string
	for _, name := range slices.Sorted(maps.Keys(by)) {
		list = append(list, fmt.Sprintf("%s %d", name, by[name]))
	}
	return strings.Join(list, ", ")
}

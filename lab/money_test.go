package lab_test

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tandem/lab"
	"tandem/models"
)

// What the calls of these tests cost: 0.1 a second outbound and 0.05 inbound, in increments of six seconds, and how long may be held at a time. The least
// that a call is granted are 60 s and an increment.
const (
	moneyIncrement = 6
	outboundSecond = 100_000
	inboundSecond  = 50_000
	leastGrant     = 66
	greatestGrant  = 150
)

var moneyPrices = []string{"TANDEM_OUTBOUND_PRICE=6", "TANDEM_INBOUND_PRICE=3", "TANDEM_BILLING_INCREMENT=6", "TANDEM_MAX_GRANT=150"}

// priceOf is what an answered leg costs, reckoned here once more.
func priceOf(second int64, billsec int) int64 {
	begun := int64(billsec / moneyIncrement)
	if billsec%moneyIncrement > 0 {
		begun++
	}
	return begun * moneyIncrement * second
}

// payer makes a customer with a balance and a trunk to the carrier.
func (s *system) payer(t *testing.T, name, balance string) customer {
	t.Helper()
	who := s.newPayer(t, name, balance)
	s.outboundTrunk(t, who, name, lab.CarrierPassword, "REGED")
	return who
}

// purseOf is a customer's balance and what is held of it.
func purseOf(t *testing.T, store *models.Store, who customer) (balance, held int64) {
	t.Helper()
	row, err := store.Customer(t.Context(), who.id)
	require.NoError(t, err)
	return row.BalanceMicros, row.HeldMicros
}

func rowOf(t *testing.T, store *models.Store, id string) *models.Call {
	t.Helper()
	row, err := store.CallByID(t.Context(), id)
	require.NoError(t, err)
	return row
}

// charged holds the bill of a call to the CDRs of its channels, and returns its sum. second is the price of the call's own leg.
func charged(t *testing.T, store *models.Store, id string, second int64) int64 {
	t.Helper()
	row := rowOf(t, store, id)
	lines, err := store.ChargesOf(t.Context(), row.CustomerID, id)
	require.NoError(t, err)
	legs, err := store.LegsOfCall(t.Context(), row.CustomerID, id)
	require.NoError(t, err)
	require.Len(t, lines, 1+len(legs), "a line for each leg")
	var sum int64
	for _, line := range lines {
		channel, price := row.ChannelID, second
		for _, leg := range legs {
			if leg.ID == line.LegID {
				channel, price = leg.ChannelID, outboundSecond
			}
		}
		cdr := cdrOf(t, store, row, channel)
		want := int64(0)
		if cdr.AnsweredAt != nil {
			want = priceOf(price, cdr.BilledSeconds)
		}
		require.Equal(t, []int64{int64(cdr.BilledSeconds), want}, []int64{int64(line.BilledSeconds), line.AmountMicros}, "%s %s", line.Kind, line.Target)
		t.Logf("%s %s: billsec %d, %d", line.Kind, line.Target, cdr.BilledSeconds, line.AmountMicros)
		sum += line.AmountMicros
	}
	require.Equal(t, sum, row.CostMicros)
	require.NotNil(t, row.SettledAt)
	return sum
}

// holds checks the whole ledger.
func (s *system) ledgerHolds(t *testing.T) {
	t.Helper()
	out, err := s.command(t, "ledger", "verify").CombinedOutput()
	require.NoError(t, err, string(out))
}

// task is what a switch has scheduled.
type task struct {
	group string
	due   time.Time
}

// capsOf are the ends that a switch has scheduled for a channel.
func capsOf(t *testing.T, probe *lab.Probe, channel string) []task {
	t.Helper()
	reply, err := probe.API(t.Context(), "show tasks as json")
	require.NoError(t, err)
	var answer struct {
		Rows []struct {
			Group string `json:"task_group"`
			Due   string `json:"task_runtime"`
		} `json:"rows"`
	}
	require.NoError(t, json.Unmarshal([]byte(reply), &answer), reply)
	var caps []task
	for _, row := range answer.Rows {
		if group, _, _ := strings.Cut(row.Group, "."); group == channel {
			seconds, err := strconv.ParseInt(row.Due, 10, 64)
			require.NoError(t, err, reply)
			caps = append(caps, task{row.Group, time.Unix(seconds, 0)})
		}
	}
	return caps
}

// oneCap waits until a channel has one cap: the switch writes its table of tasks a moment later.
func oneCap(t *testing.T, probe *lab.Probe, channel string) task {
	t.Helper()
	var caps []task
	require.Eventually(t, func() bool {
		caps = capsOf(t, probe, channel)
		return len(caps) == 1
	}, 5*time.Second, 20*time.Millisecond, "caps of %s", channel)
	return caps[0]
}

// capWatch follows what a switch has scheduled for a channel.
type capWatch struct {
	channel string
	done    sync.WaitGroup
	stop    chan struct{}
	states  [][]task // each that differs from the one before
}

// watchCaps looks many times a second until the caps are asked for.
func watchCaps(t *testing.T, node *lab.Node, channel string) *capWatch {
	t.Helper()
	probe, err := lab.DialESL(t.Context(), node.ESLAddr, node.Password)
	require.NoError(t, err)
	w := &capWatch{channel: channel, stop: make(chan struct{})}
	stop := sync.OnceFunc(func() { close(w.stop) })
	t.Cleanup(func() {
		stop()
		w.done.Wait()
		_ = probe.Close()
	})
	w.done.Go(func() {
		ticker := time.NewTicker(50 * time.Millisecond)
		defer ticker.Stop()
		for !t.Failed() {
			now := capsOf(t, probe, channel)
			if n := len(w.states); n == 0 || !slices.Equal(w.states[n-1], now) {
				w.states = append(w.states, now)
			}
			if n := len(w.states); n > 1 && len(w.states[n-1]) == 0 && len(w.states[n-2]) > 0 {
				return // the call has ended; a call that lives and has no cap fails the test below
			}
			select {
			case <-ticker.C:
			case <-w.stop:
				return
			}
		}
	})
	return w
}

// all waits until the switch has nothing scheduled any more and returns the caps that the channel had, the first one first. There was never none, never
// more than two, and two only while one followed the other.
func (w *capWatch) all(t *testing.T) []task {
	t.Helper()
	w.done.Wait()
	var caps []task
	for i, state := range w.states {
		last := i == len(w.states)-1
		switch {
		case len(state) == 0:
			require.True(t, i == 0 || last, "%d: a call without a cap", i)
		case len(state) == 2:
			require.Len(t, w.states[i+1], 1, "%d: both caps stay", i)
		default:
			require.Len(t, state, 1)
		}
		for _, cap := range state {
			if !slices.Contains(caps, cap) {
				caps = append(caps, cap)
			}
		}
	}
	require.Empty(t, w.states[len(w.states)-1], "caps of a call that has ended")
	var after []string
	for _, cap := range caps {
		after = append(after, cap.due.Sub(caps[0].due).String())
	}
	t.Logf("%d caps of the call, by the first: %v; at most two at a time, never none", len(caps), after)
	return caps
}

// receives records what the carrier receives on its channel of a call to a number, until the call ends. As every telephone does, it forgives packets that
// come a fifth of a second late: on a machine that is busy, any may.
func (s *system) receives(t *testing.T, number string) (file string) {
	t.Helper()
	channel := ""
	require.Eventually(t, func() bool {
		reply, err := s.carrier.API(t.Context(), "show channels as json")
		channel = inboundChannel(reply, "", number)
		return err == nil && channel != ""
	}, 10*time.Second, 20*time.Millisecond, "%s at the carrier", number)
	file = filepath.Join(t.TempDir(), "received.wav")
	for _, line := range []string{
		"uuid_jitterbuffer " + channel + " 200", "uuid_setvar " + channel + " RECORD_READ_ONLY true", "uuid_record " + channel + " start " + file,
	} {
		reply, err := s.carrier.API(t.Context(), line)
		require.NoError(t, err)
		require.Contains(t, reply, "+OK", line)
	}
	return file
}

// TestFreeSWITCHCapWithoutAController has calls whose balance pays for the least alone. Nobody is there when it is used up: the switch ends them.
func TestFreeSWITCHCapWithoutAController(t *testing.T) {
	t.Parallel()
	s, _, store := witnessed(t, moneyPrices...)
	calls, called := s.payer(t, "calls", "6.6"), s.newPayer(t, "called", "3.3")
	stays := func(question) any { return []object{{"action": "pause", "seconds": 300}} }
	out, in := s.newApplication(t, calls, "out", nil, stays), s.newApplication(t, called, "in", nil, stays)
	s.make(t, called, "/v1/trunks", object{"name": "in", "inbound_ip": "127.0.0.1"})
	s.make(t, called, "/v1/dids", object{"number_e164": "+15557000901", "application_id": in.id})
	s.reaches(t, "+15557000901")

	// Both sound all the time: a channel that hears nothing for a minute is ended for that.
	leg, err := s.carrier.Call(t.Context(), lab.Caller{From: "+15551230901", To: "+15557000901", NodeSIP: s.node.SIPAddr, App: lab.Sounds(2 * time.Minute)})
	require.NoError(t, err)
	ids := []string{s.callFrom(t, out, s.carrier.SaysSteadily(t, 9001, wav(hum(2*time.Minute, playedHertz))), nil).text("id")}
	out.until(soon(t), t, ids[0], "call.answered")
	ids = append(ids, in.first(soon(t), t, "call.answered").part("call").text("id"))
	s.stop(syscall.SIGKILL)

	probe := s.node.Probe(t)
	for i, who := range []customer{calls, called} {
		row := rowOf(t, store, ids[i])
		require.Equal(t, leastGrant, row.GrantedSeconds)
		balance, held := purseOf(t, store, who)
		require.Equal(t, balance, held, "the balance is for the least, and all of it held")
		oneCap(t, probe, row.ChannelID)
	}
	outcome, err := leg.Ended(seconds(t, 90))
	require.NoError(t, err)
	require.Equal(t, []any{true, "recv_bye"}, []any{outcome.Answered, outcome.HungUpBy})
	folder := filepath.Join(s.node.ConfDir, "tandem", "cdr")
	require.Eventually(t, func() bool {
		for _, id := range ids {
			if files, err := filepath.Glob(filepath.Join(folder, "*"+rowOf(t, store, id).ChannelID+"*.json")); err != nil || len(files) == 0 {
				return false
			}
		}
		return true
	}, 40*time.Second, 50*time.Millisecond, "the CDRs become files in %s", folder)
	s.start(t)
	for i, who := range []customer{calls, called} {
		app, second := []*application{out, in}[i], []int64{outboundSecond, inboundSecond}[i]
		end, events := app.ended(soon(t), t, s, ids[i])
		row := rowOf(t, store, ids[i])
		cdr := cdrOf(t, store, row, row.ChannelID)
		up := cdr.EndedAt.Sub(*cdr.AnsweredAt)
		t.Logf("%s: granted %d s, ended %s after its answer (%s), billsec %d, cost %d; %v", row.Direction, row.GrantedSeconds, up, cdr.Cause, cdr.BilledSeconds, row.CostMicros, kinds(events))
		require.InDelta(t, row.GrantedSeconds, up.Seconds(), 1.5)
		require.Equal(t, "ALLOTTED_TIMEOUT", cdr.Cause)
		require.Equal(t, []any{"call.completed", "insufficient_balance", "ALLOTTED_TIMEOUT"}, []any{end.text("type"), end.part("call")["reason"], end.part("call")["cause"]})
		cost := charged(t, store, ids[i], second)
		balance, held := purseOf(t, store, who)
		require.Equal(t, []int64{leastGrant*second - cost, 0}, []int64{balance, held})
		require.Empty(t, capsOf(t, probe, row.ChannelID))
	}
	s.ledgerHolds(t)
	left, err := filepath.Glob(filepath.Join(folder, "*.json"))
	require.NoError(t, err)
	require.Empty(t, left, "what is stored is deleted")
}

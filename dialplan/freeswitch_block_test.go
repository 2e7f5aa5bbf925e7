package dialplan

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tandem/esl"
	"tandem/lab"
	"tandem/models"
	"tandem/models/modelstest"
	"tandem/nodeport"
)

// guarded is a real switch that a syncer on a real database keeps: with a customer whose trunk may call, and a number that is busy.
type guarded struct {
	*live
	store  *models.Store
	number string
	row    *models.Node
}

const (
	invitedAddress  = "127.0.0.2"
	strangerAddress = "127.0.0.99"
)

// guard starts the switch; a remote one fetches its files over HTTP.
func guard(t *testing.T, rules models.BlockRules, remote bool, options lab.Options) *guarded {
	t.Helper()
	lab.Require(t)
	ctx := t.Context()
	g := &guarded{store: modelstest.Open(t), number: "+15550001567", live: &live{
		log: &lockedLog{}, up: make(chan struct{}, 1), parks: make(chan *esl.Event, 100), ended: make(chan *esl.Event, 100_000), gates: make(chan *esl.Event, 1000),
	}}
	customer := modelstest.Customer(t, g.store, 0)
	require.NoError(t, g.store.CreateTrunk(ctx, &models.Trunk{CustomerID: customer.ID, Name: "in", Direction: models.Inbound, GatewayName: "in", InboundIPs: []string{invitedAddress}, IsActive: true}))
	require.NoError(t, g.store.CreateDID(ctx, &models.DID{CustomerID: customer.ID, NumberE164: g.number, Status: models.DIDActive, RouteMode: models.RouteReject, RejectCode: 486}))
	cfg := Config{Store: g.store, Logger: slog.New(slog.NewTextHandler(g.log, nil)), Blocks: rules}
	delivery := models.DeliveryFiles
	if remote {
		delivery = models.DeliveryXMLCurl
		files := &swap{}
		p := openPort(t, nodeport.Config{Nodes: &nodeTokens{}, Files: files, Status: func(error) int { return http.StatusNotFound }})
		exchange, err := NewExchange("http://" + p.addr)
		require.NoError(t, err)
		files.Exchange, cfg.Exchange = exchange, exchange
		options.Env = map[string]string{
			"TANDEM_DELIVERY": "xml_curl", "TANDEM_XML_URL": "http://" + p.addr + "/internal/xml", "TANDEM_CDR_CREDENTIALS": "one:a-token-of-the-node",
		}
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("log of the syncer:\n%s", g.log)
		}
	})
	g.live.node = lab.StartNode(t, options)
	g.sip = g.live.node.SIPAddr
	g.row = &models.Node{ID: "node_1", Name: "one", ESLAddr: "localhost:1", Password: "x", ConfDir: g.live.node.ConfDir, Delivery: delivery, IsActive: true}
	require.NoError(t, g.store.CreateNode(ctx, g.row))
	var err error
	g.syncer, err = NewSyncer(cfg)
	require.NoError(t, err)
	g.control, err = esl.NewNode(esl.Config{Name: "one", Addr: g.live.node.ESLAddr, Password: g.live.node.Password, Handler: g, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	require.NoError(t, g.control.Start(ctx))
	t.Cleanup(g.control.Stop)
	receive(t, g.up)
	g.syncer.AddNode(*g.row, g.control)
	g.syncer.Start(ctx)
	t.Cleanup(g.syncer.Stop)
	require.Eventually(t, func() bool { return g.calls(t, invitedAddress, g.number) == 486 }, testTimeout, 50*time.Millisecond)
	return g
}

// HandleEvent tells the syncer under the node's real id.
func (g *guarded) HandleEvent(e *esl.Event) {
	g.syncer.HandleEvent(g.row.ID, e)
	if e.Name() == "CHANNEL_HANGUP_COMPLETE" {
		g.ended <- e
	}
}

// refusal calls from an address and returns what the switch told of the end: the answer of the dialplan, or "blocked".
func (g *guarded) refusal(t *testing.T, from string) string {
	t.Helper()
	for len(g.ended) > 0 {
		<-g.ended
	}
	require.Equal(t, 403, g.calls(t, from, g.number, withHeader("User-Agent: friendly-scanner")))
	for {
		switch e := receive(t, g.ended); {
		case refusedBlocked(e) && e.Variable("sip_from_host") == from:
			return "blocked"
		case e.Get("Caller-Network-Addr") == from:
			return e.Variable("current_application_data")
		}
	}
}

// TestFreeSWITCHBlocksWhoCallsUninvited: a stranger that calls too often is refused before the dialplan within seconds, until an operator lifts the block;
// whoever is invited never notices. With the controller away, and after a restart of the switch, the block stays. With both deliveries.
func TestFreeSWITCHBlocksWhoCallsUninvited(t *testing.T) {
	t.Parallel()
	for name, remote := range map[string]bool{"files": false, "xml_curl": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := guard(t, models.BlockRules{After: 5, Window: time.Minute, For: time.Hour, Longest: time.Hour}, remote, lab.Options{})
			invited := func() {
				t.Helper()
				require.Equal(t, 486, g.calls(t, invitedAddress, g.number))
			}
			become := func(want string) {
				t.Helper()
				began := time.Now()
				require.Eventually(t, func() bool { invited(); return g.refusal(t, strangerAddress) == want }, testTimeout, 20*time.Millisecond)
				t.Logf("%s after %s", want, time.Since(began).Round(10*time.Millisecond))
			}
			for range 5 {
				require.Equal(t, refuseUninvited, g.refusal(t, strangerAddress))
				invited()
			}
			become("blocked")
			require.Equal(t, refuseUninvited, g.refusal(t, "127.0.0.98"), "nobody else is")
			x, err := g.syncer.Explain(t.Context(), g.number, netip.MustParseAddr(strangerAddress))
			require.NoError(t, err)
			require.Equal(t, models.BlockAutomatic, x.Blocked.Origin)
			require.Equal(t, refuseBlocked, x.Outcome)
			var sums []models.StrangerSum
			require.Eventually(t, func() bool {
				sums, _, err = g.store.ListStrangers(t.Context(), models.StrangerFilter{Order: models.StrangersByCount}, models.Page{})
				return err == nil && len(sums) == 2
			}, testTimeout, 50*time.Millisecond)
			require.Equal(t, []any{strangerAddress, "friendly-scanner", models.MaskedNumber(g.number), x.Blocked.ID, g.row.ID},
				[]any{sums[0].Source, sums[0].UserAgent, sums[0].Number, sums[0].Block.ID, sums[0].Nodes[0].NodeID})
			require.GreaterOrEqual(t, sums[0].Uninvited, int64(5))
			require.Positive(t, g.syncer.Refused()[RefusedBlocked])

			_, err = g.store.LiftBlock(t.Context(), x.Blocked.ID, "ana")
			require.NoError(t, err)
			became := time.Now()
			require.Eventually(t, func() bool { return g.refusal(t, strangerAddress) == refuseUninvited }, testTimeout, 50*time.Millisecond)
			t.Logf("lifted after %s", time.Since(became).Round(10*time.Millisecond))
			invited()

			// By hand, a network around both of them, which its owner would be refused.
			require.Error(t, g.store.CreateBlock(t.Context(), &models.Block{Address: "127.0.0.0/25"}, nil))
			require.NoError(t, g.store.CreateBlock(t.Context(), &models.Block{Address: "127.0.0.96/29", Reason: "by hand", CreatedBy: "ana"}, nil))
			become("blocked")
			require.Equal(t, "blocked", g.refusal(t, "127.0.0.98"))
			invited()

			// We are away.
			g.syncer.Stop()
			g.control.Stop()
			probe := g.live.node.Probe(t)
			require.NoError(t, probe.Subscribe(t.Context(), "CHANNEL_HANGUP_COMPLETE"))
			blocked := func() {
				t.Helper()
				require.Equal(t, 403, g.calls(t, strangerAddress, g.number))
				e, err := probe.Next(within(t))
				require.NoError(t, err)
				require.Equal(t, "CALL_REJECTED", e.Event("Hangup-Cause"))
				require.Empty(t, e.Event("Caller-Direction"), "it did not get to the dialplan")
			}
			blocked()
			require.NoError(t, g.live.node.Restart(within(t)))
			probe = g.live.node.Probe(t)
			require.NoError(t, probe.Subscribe(t.Context(), "CHANNEL_HANGUP_COMPLETE"))
			blocked()
			invited()
		})
	}
}

// flood is what came of calls that came all the time.
type flood struct {
	mu       sync.Mutex
	statuses map[string]int
	took     []time.Duration
}

func (f *flood) add(status int, err error, took time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err != nil {
		f.statuses["none"]++
		return
	}
	f.statuses[strconv.Itoa(status)]++
	f.took = append(f.took, took)
}

func (f *flood) String() string {
	slices.Sort(f.took)
	at := func(q float64) time.Duration {
		if len(f.took) == 0 {
			return 0
		}
		return f.took[int(q*float64(len(f.took)-1))].Round(100 * time.Microsecond)
	}
	return fmt.Sprintf("%v, p50 %s, p99 %s", f.statuses, at(0.5), at(0.99))
}

// pour calls at a rate for a time and returns what came of it.
func (g *guarded) pour(ctx context.Context, from string, rate int, lasts time.Duration) *flood {
	f := &flood{statuses: map[string]int{}}
	if rate == 0 {
		<-time.After(lasts)
		return f
	}
	var all sync.WaitGroup
	ticker := time.NewTicker(time.Second / time.Duration(rate))
	defer ticker.Stop()
	for end := time.Now().Add(lasts); time.Now().Before(end); <-ticker.C {
		all.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
			defer cancel()
			began := time.Now()
			status, err := lab.SendRequest(ctx, lab.Request{NodeSIP: g.sip, From: "+15559990000", To: g.number, Local: from})
			f.add(status, err, time.Since(began))
		})
	}
	all.Wait()
	return f
}

// cpuTime is what the switch has used of the processors (proc(5), /proc/PID/stat: utime and stime, in hundredths of a second).
func (g *guarded) cpuTime(t *testing.T) time.Duration {
	t.Helper()
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", g.live.node.ProcessID()))
	if err != nil {
		return 0 // not Linux
	}
	_, rest, _ := strings.Cut(string(raw), ") ")
	fields := strings.Fields(rest)
	var ticks int64
	for _, field := range fields[11:13] {
		n, err := strconv.ParseInt(field, 10, 64)
		require.NoError(t, err)
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond
}

// TestFreeSWITCHFlood compares what a flood of calls costs that the dialplan refuses with one from a blocked address, and what each does to calls that are
// invited. TANDEM_FLOOD_RATE calls a second for TANDEM_FLOOD_TIME, for figures; TANDEM_FLOOD_BLOCKS more blocks are in force.
func TestFreeSWITCHFlood(t *testing.T) {
	t.Parallel()
	rate, lasts := fromEnv(t, "TANDEM_FLOOD_RATE", 50), 2*time.Second
	if given, err := time.ParseDuration(os.Getenv("TANDEM_FLOOD_TIME")); err == nil {
		lasts = given
	}
	g := guard(t, models.BlockRules{}, false, lab.Options{})
	const invitedRate = 5
	var idle time.Duration
	phase := func(name string, rate int) (strangers, invited *flood) {
		before := g.cpuTime(t)
		var both sync.WaitGroup
		both.Go(func() { invited = g.pour(t.Context(), invitedAddress, invitedRate, lasts) })
		both.Go(func() { strangers = g.pour(t.Context(), strangerAddress, rate, lasts) })
		both.Wait()
		used := g.cpuTime(t) - before
		if rate == 0 {
			idle = used
		}
		cost := time.Duration(0)
		if n := strangers.statuses["403"]; n > 0 {
			cost = (used - idle) / time.Duration(n)
		}
		t.Logf("%s: strangers %s; invited %s; CPU of the switch %s, for each refusal %s", name, strangers, invited, used, cost.Round(time.Microsecond))
		return strangers, invited
	}
	_, alone := phase("nobody else", 0)
	refused, during := phase("refused by the dialplan", rate)
	began := time.Now()
	require.NoError(t, g.store.CreateBlock(t.Context(), &models.Block{Address: strangerAddress, Reason: "flood", CreatedBy: "ana"}, nil))
	for n := range fromEnv(t, "TANDEM_FLOOD_BLOCKS", 0) {
		require.NoError(t, g.store.CreateBlock(t.Context(), &models.Block{Address: fmt.Sprintf("198.18.%d.%d", n/120, n%120*2), Reason: "many", CreatedBy: "ana"}, nil))
	}
	t.Logf("blocks written in %s", time.Since(began).Round(time.Millisecond))
	g.syncer.Changed()
	require.Eventually(t, func() bool { return g.refusal(t, strangerAddress) == "blocked" }, testTimeout, 50*time.Millisecond)
	stopped, meanwhile := phase("blocked", rate)
	if rate <= 100 { // of 200 sessions a second that the switch begins
		for _, f := range []*flood{refused, stopped} {
			require.Equal(t, map[string]int{"403": len(f.took)}, f.statuses)
		}
		for _, f := range []*flood{alone, during, meanwhile} {
			require.Equal(t, map[string]int{"486": len(f.took)}, f.statuses, "invited calls go through")
			require.NotEmpty(t, f.took)
		}
	}
}

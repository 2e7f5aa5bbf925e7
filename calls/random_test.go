package calls

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tandem/actions"
	"tandem/esl/simswitch"
	"tandem/models"
	"tandem/models/modelstest"
)

// TestRandomFlows runs random calls against random applications and random live control on the simulated switch, while the
// connection to it is cut and the controller replaced now and then, and holds what is left to what must hold of every call. TANDEM_TEST_SEED repeats a run's choices.
func TestRandomFlows(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	if given := os.Getenv("TANDEM_TEST_SEED"); given != "" {
		var err error
		seed, err = strconv.ParseUint(given, 10, 64)
		require.NoError(t, err)
	}
	modelstest.Run(t, "", func(t *testing.T, store *models.Store) {
		t.Logf("TANDEM_TEST_SEED=%d", seed)
		c := newChaos(t, store, seed)
		var callers sync.WaitGroup
		for i := range 8 {
			random := rand.New(rand.NewPCG(seed, uint64(i)))
			callers.Go(func() {
				for range 12 {
					c.call(random)
				}
			})
		}
		random := rand.New(rand.NewPCG(seed, 99))
		done := make(chan struct{})
		go func() {
			defer close(done)
			callers.Wait()
		}()
		for running := true; running; {
			select {
			case <-done:
				running = false
			case <-time.After(time.Duration(150+random.IntN(500)) * time.Millisecond):
				if random.IntN(2) == 0 {
					c.link.cut()
				} else {
					c.replace()
				}
			}
		}
		c.finish()
	})
}

// chaos is a scene whose application, callers and operators do what comes to their mind.
type chaos struct {
	*live
	link *link

	mu     sync.Mutex
	random *rand.Rand

	reign  sync.RWMutex // held for writing while one controller follows another
	reigns int
}

// replace lets the controller die, and another follow at once.
func (c *chaos) replace() {
	c.reign.Lock()
	defer c.reign.Unlock()
	c.die()
	c.succeed(c.t)
	c.reigns++
}

// controller is the one that there is.
func (c *chaos) controller() *Manager {
	c.reign.RLock()
	defer c.reign.RUnlock()
	return c.manager
}

func newChaos(t *testing.T, store *models.Store, seed uint64) *chaos {
	t.Helper()
	s := newStage(t, store)
	s.askedc = make(chan asked, 1<<16)
	s.app.FallbackURL = s.server.URL + "/fallback"
	s.app.FallbackActions = json.RawMessage(`[{"action":"say","text":"Sorry"}]`)
	s.app.WaitActions = json.RawMessage(`[{"action":"say","text":"One moment"}]`)
	s.app.EventKinds = []string{"*"}
	require.NoError(t, store.UpdateApplication(t.Context(), s.app))
	_, err := store.Credit(t.Context(), s.customer.ID, "chaos", models.LedgerTopup, 1_000_000_000, "")
	require.NoError(t, err)
	layOut(t, s.node.ConfDir, s.trunk.GatewayName, "127.0.0.1:5080")
	sim, err := simswitch.New(simswitch.Config{Password: "secret", ConfDir: s.node.ConfDir, Speed: 20})
	require.NoError(t, err)
	require.NoError(t, sim.Start())
	t.Cleanup(func() { require.NoError(t, sim.Close()) })
	c := &chaos{link: newLink(t, sim.Addr()), random: rand.New(rand.NewPCG(seed, 98))}
	for _, path := range []string{"/answer", "/result", "/next", "/fallback"} {
		s.answers(path, c.application)
	}
	c.live = connect(t, s, c.link.addr(), "secret", func(cfg *Config) {
		cfg.HangUpAtStop = true
		cfg.RequestTimeout, cfg.WaitAfter, cfg.RingAfter, cfg.HangupGrace = 400*time.Millisecond, 50*time.Millisecond, 30*time.Millisecond, 500*time.Millisecond
	})
	c.sim = sim
	return c
}

// draw is a number from the chaos' own source, for goroutines that have none.
func (c *chaos) draw(n int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.random.IntN(n)
}

// application answers, well or badly.
func (c *chaos) application(w http.ResponseWriter, _ asked) {
	switch c.draw(16) {
	case 0:
		w.WriteHeader(http.StatusInternalServerError)
	case 1:
		_, _ = io.WriteString(w, "<Response/>")
	case 2:
		_, _ = io.WriteString(w, "[]")
	case 3:
		w.WriteHeader(http.StatusNoContent)
	case 4:
		w.Header().Set("Location", "/next")
		w.WriteHeader(http.StatusFound)
	case 5:
		_, _ = io.WriteString(w, `[{"action":"say","text":"ok"},{"action":"gather","max_digits":0}]`)
	case 6:
		time.Sleep(500 * time.Millisecond) //nolint:forbidigo // the application is too slow
		_, _ = io.WriteString(w, "[]")
	case 7:
		w.WriteHeader(http.StatusServiceUnavailable)
	default:
		c.mu.Lock()
		list := randomList(c.random)
		c.mu.Unlock()
		_, _ = io.WriteString(w, list)
	}
}

// vocabulary is an example of what every verb can do, short enough for a test.
var vocabulary = []string{
	`{"action":"answer"}`,
	`{"action":"say","text":"Hello there, this is a sentence","loop":2,"result_url":"/result"}`,
	`{"action":"say","text":"Hello","barge_in":true}`,
	`{"action":"play","tone":"beep","loop":3,"result_url":"/result"}`,
	`{"action":"gather","max_digits":3,"timeout":2,"tries":2,"prompt":[{"action":"say","text":"Type"}],"invalid_prompt":[{"action":"say","text":"No"}]}`,
	`{"action":"gather","max_digits":2,"timeout":2,"sensitive":true,"result_url":"/next"}`,
	`{"action":"record","max_seconds":3,"silence_seconds":1,"result_url":"/result"}`,
	`{"action":"record_call"}`, `{"action":"record_call","op":"pause"}`, `{"action":"record_call","op":"mask"}`, `{"action":"record_call","op":"stop"}`,
	`{"action":"dial","to":"+15550000486","result_url":"/result"}`,
	`{"action":"dial","to":"+15550000701","max_seconds":5}`,
	`{"action":"dial","to":["+15550000180","+15550000713"],"timeout":5,"max_seconds":5}`,
	`{"action":"dial","to":["+15550000486","+15550000404","+15550000731"],"strategy":"sequential","confirm":{"prompt":[{"action":"say","text":"Press one"}]},"max_seconds":5}`,
	`{"action":"dial","to":"+15550000800","max_seconds":10,"answer_on_bridge":true,"record":true,"result_url":"/result"}`,
	`{"action":"transfer","to":"+15550000701","max_seconds":5}`,
	`{"action":"transfer","to":"+15550000701","mode":"attended","announce":[{"action":"say","text":"A call"}],"max_seconds":5}`,
	`{"action":"transfer","to":"+15550000701","mode":"refer"}`,
	`{"action":"conference","name":"room","max_seconds":2,"result_url":"/result"}`,
	`{"action":"conference","name":"room","start_on_enter":false,"muted":true,"max_seconds":1,"beep":true}`,
	`{"action":"conference","name":"room","end_on_exit":true,"record":true,"max_seconds":1}`,
	`{"action":"enqueue","name":"line","max_wait":1,"wait_actions":[{"action":"say","text":"Wait"}],"result_url":"/result"}`,
	`{"action":"enqueue","name":"line","max_wait":2,"priority":5}`,
	`{"action":"dequeue","name":"line","timeout":1,"max_seconds":1,"result_url":"/result"}`,
	`{"action":"dequeue","name":"line","timeout":0,"max_seconds":1}`,
	`{"action":"machine_detection","timeout":3}`, `{"action":"machine_detection","async":false,"timeout":3,"on_machine":"hangup"}`,
	`{"action":"stream","url":"wss://a.example/s"}`,
	`{"action":"dtmf","digits":"12"}`, `{"action":"pause","seconds":1}`, `{"action":"set","variables":{"a":"b"}}`,
	`{"action":"notify","payload":{"a":1}}`, `{"action":"redirect","url":"/next"}`,
	`{"action":"hangup","after_seconds":5}`, `{"action":"hangup"}`, `{"action":"reject","reason":"busy"}`,
}

func randomList(random *rand.Rand) string {
	var list []string
	for range 1 + random.IntN(4) {
		list = append(list, vocabulary[random.IntN(len(vocabulary))])
	}
	return "[" + strings.Join(list, ",") + "]"
}

// call makes one call and interferes with it.
func (c *chaos) call(random *rand.Rand) {
	ctx := c.t.Context()
	var id string
	if random.IntN(2) == 0 {
		incoming := simswitch.IncomingCall{From: "+15559876543", To: c.did.NumberE164, Digits: []string{"", "12#", "*"}[random.IntN(3)]}
		switch random.IntN(4) {
		case 0:
			incoming.HangupAfter = time.Duration(random.IntN(10_000)) * time.Millisecond
		case 1:
			incoming.CancelAfter = time.Duration(1+random.IntN(3_000)) * time.Millisecond
		}
		channel, err := c.sim.CallIn(incoming)
		if err != nil {
			c.t.Errorf("call in: %v", err)
			return
		}
		for range 10 {
			wait(time.Duration(random.IntN(10)) * time.Millisecond)
			if call, err := c.store.CallByChannel(ctx, channel); err == nil {
				id = call.ID
				break
			}
		}
	} else {
		to := []string{"486", "404", "503", "180", "183", "700", "701", "702", "720", "721", "800", "800", "711"}[random.IntN(13)]
		req := CreateRequest{
			CustomerID: c.customer.ID, ApplicationID: c.app.ID, From: "+15550100001", To: "+15550000" + to, Timeout: 5 + random.IntN(10),
			Record: random.IntN(4) == 0, Queued: random.IntN(6) == 0,
		}
		if random.IntN(4) == 0 {
			req.MachineDetection = &actions.MachineDetection{Mode: "detect", Async: random.IntN(2) == 0, Timeout: 3 * time.Second, OnMachine: "continue"}
		}
		call, err := c.controller().Create(ctx, req)
		if err != nil {
			return // the node is away
		}
		id = call.ID
	}
	for range random.IntN(5) {
		wait(time.Duration(random.IntN(150)) * time.Millisecond)
		c.interfere(ctx, random, id)
	}
}

// interfere does something to a call from outside. It may be too late for it.
func (c *chaos) interfere(ctx context.Context, random *rand.Rand, id string) {
	if id == "" {
		return
	}
	switch random.IntN(10) {
	case 0:
		_, _ = c.controller().Cancel(ctx, c.customer.ID, id, nil)
	case 1, 2, 3:
		_, _ = c.controller().Direct(ctx, c.customer.ID, id, DirectRequest{Actions: list(c.t, randomList(random)), Mode: ModeReplace})
	case 4, 5:
		_, _ = c.controller().Direct(ctx, c.customer.ID, id, DirectRequest{Actions: list(c.t, randomList(random)), Mode: ModeAppend})
	case 6:
		_, _ = c.controller().StartCall(ctx, c.customer.ID, id, nil)
	case 7:
		_, _ = c.controller().Retry(ctx, c.customer.ID, id, nil)
	case 8:
		_ = c.controller().LeaveQueue(ctx, c.customer.ID, "line", id, nil)
	case 9:
		if random.IntN(2) == 0 {
			_ = c.controller().MuteMember(ctx, c.customer.ID, "room", id, random.IntN(2) == 0, nil)
		} else {
			_ = c.controller().KickMember(ctx, c.customer.ID, "room", id, nil)
		}
	}
}

// wait lets some time pass between two whims.
func wait(d time.Duration) { <-time.After(d) }

// finish hangs up what lives, stops and checks what is left.
func (c *chaos) finish() {
	t, ctx := c.t, c.t.Context()
	for _, call := range c.all() {
		if call.Live() {
			_, _ = c.manager.Cancel(ctx, c.customer.ID, call.ID, nil)
		}
	}
	stopping, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	require.NoError(t, c.manager.Stop(stopping), "%v", c.describe())
	all := c.all()
	require.NotEmpty(t, all)
	for i := range all {
		call := &all[i]
		if call.Status == StatusQueued {
			_, err := c.manager.Cancel(ctx, c.customer.ID, call.ID, nil)
			require.NoError(t, err)
			call, err = c.store.CallByID(ctx, call.ID)
			require.NoError(t, err)
		}
		c.checkEnded(call)
		kinds := c.allKinds(call.ID)
		count := func(kind string) (n int) {
			for _, k := range kinds {
				if k == kind {
					n++
				}
			}
			return n
		}
		legs, err := c.store.LegsOfCall(ctx, c.customer.ID, call.ID)
		require.NoError(t, err)
		for _, leg := range legs {
			require.Equal(t, models.LegEnded, leg.Status, kinds)
		}
		require.Equal(t, len(legs), count("leg.ended"), kinds)
		tapes, err := c.store.RecordingsOfCall(ctx, c.customer.ID, call.ID)
		require.NoError(t, err)
		for _, tape := range tapes {
			require.Contains(t, []string{models.RecordingAvailable, models.RecordingFailed}, tape.Status, kinds)
		}
		require.Equal(t, count("queue.joined"), count("queue.left"), kinds)
		require.Equal(t, count("conference.joined"), count("conference.left"), kinds)
	}
	entries, err := c.store.QueueEntries(ctx, c.customer.ID, "line")
	require.NoError(t, err)
	require.Empty(t, entries)
	rooms, _, err := c.store.Conferences(ctx, c.customer.ID, models.Page{})
	require.NoError(t, err)
	require.Empty(t, rooms)
	customer, err := c.store.Customer(ctx, c.customer.ID)
	require.NoError(t, err)
	require.Zero(t, customer.HeldMicros)
	t.Logf("%d calls, %d cuts, %d controllers died", len(all), c.link.cuts, c.reigns)
}

// all are the customer's calls.
func (c *chaos) all() []models.Call {
	var all []models.Call
	page := models.Page{}
	for {
		calls, next, err := c.store.ListCalls(c.t.Context(), c.customer.ID, models.CallFilter{}, page)
		require.NoError(c.t, err)
		all = append(all, calls...)
		if next == "" {
			return all
		}
		page.Cursor = next
	}
}

// describe says which calls live, for the report of a failure.
func (c *chaos) describe() []string {
	var lines []string
	for _, call := range c.all() {
		if call.Live() {
			lines = append(lines, fmt.Sprintf("%s %s %v", call.ID, call.Status, c.allKinds(call.ID)))
		}
	}
	return lines
}

// link is a connection to a switch that can be cut.
type link struct {
	listener net.Listener
	work     sync.WaitGroup

	mu    sync.Mutex
	conns map[net.Conn]bool
	cuts  int
}

func newLink(t *testing.T, target string) *link {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	l := &link{listener: listener, conns: map[net.Conn]bool{}}
	l.work.Go(func() {
		for {
			near, err := listener.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("tcp", target)
			if err != nil {
				_ = near.Close()
				continue
			}
			l.mu.Lock()
			l.conns[near], l.conns[far] = true, true
			l.mu.Unlock()
			for _, pair := range [][2]net.Conn{{near, far}, {far, near}} {
				l.work.Go(func() {
					_, _ = io.Copy(pair[0], pair[1])
					_, _ = pair[0].Close(), pair[1].Close()
				})
			}
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		l.cut()
		l.work.Wait()
	})
	return l
}

func (l *link) addr() string { return l.listener.Addr().String() }

// cut closes what is connected.
func (l *link) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cuts++
	for conn := range l.conns {
		_ = conn.Close()
	}
	clear(l.conns)
}

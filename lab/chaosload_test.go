package lab_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tandem/lab"
)

// chaosLoad keeps the calls coming.
type chaosLoad struct {
	w      *chaosWorld
	cancel context.CancelFunc
	done   sync.WaitGroup
	slots  chan struct{} // requests to the API under way

	mu       sync.Mutex
	rng      *rand.Rand
	number   int
	inbound  []caller
	outbound []order
	commands []command
	live     int // as the database last said
	// started is the time at which there were as many calls as there shall be.
	full chan struct{}
}

// caller is a call that somebody made to us.
type caller struct {
	from, to, channel string
	generation        int // of the switch
	made              time.Time
}

// order is a call that was ordered through the API.
type order struct {
	key    string
	call   string // its id, where the answer came
	status int    // the last answer
	made   time.Time
}

// command is one that the API has accepted.
type command struct {
	kind, call, token string
	accepted          time.Time
}

// apiPatience is how long whoever orders a call tries again.
const apiPatience = 30 * time.Second

// startLoad begins to make calls; the function it returns ends that.
func (w *chaosWorld) startLoad(t *testing.T) func() {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	l := &chaosLoad{w: w, cancel: cancel, rng: rand.New(rand.NewPCG(w.plan.seed, 1)), slots: make(chan struct{}, 32), full: make(chan struct{})}
	w.load = l
	l.done.Go(func() { l.run(ctx) })
	stop := func() {
		cancel()
		l.done.Wait()
	}
	t.Cleanup(stop)
	return stop
}

// fill waits until there are as many calls as there shall be.
func (w *chaosWorld) fill(t *testing.T) {
	t.Helper()
	select {
	case <-w.load.full:
	case <-time.After(3 * time.Minute):
		w.load.mu.Lock()
		defer w.load.mu.Unlock()
		require.FailNow(t, "the calls never became as many as they shall be", "only %d live", w.load.live)
	}
}

// run makes as many calls as are missing, ten times a second.
func (l *chaosLoad) run(ctx context.Context) {
	var probe *lab.Probe
	var opened int
	defer func() {
		if probe != nil {
			_ = probe.Close()
		}
	}()
	reached := false
	for rest(ctx, 100*time.Millisecond) {
		live, err := l.count(ctx)
		if err != nil {
			continue // the database is away; what was ordered meanwhile is not known
		}
		if !reached && live >= l.w.plan.calls*95/100 {
			reached = true
			close(l.full)
		}
		for range min(l.w.plan.calls-live, max(4, l.w.plan.calls/50)) {
			if l.drawInt(100) < 40 {
				l.startOrder(ctx)
				continue
			}
			if generation := l.w.generation(); probe == nil || generation != opened {
				if probe != nil {
					_ = probe.Close()
				}
				if probe, err = lab.DialESL(ctx, l.w.eslAddr, l.w.password); err != nil {
					probe = nil
					break
				}
				opened = generation
			}
			if err := l.callIn(ctx, probe, opened); err != nil {
				_ = probe.Close()
				probe = nil
				break
			}
		}
		if l.drawInt(3) == 0 {
			l.startCommand(ctx)
		}
	}
}

func (l *chaosLoad) drawInt(n int) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.rng.IntN(n)
}

// count asks the database how many calls live, but for those that a switch took with it: that they have ended may not be known yet. Orders
// under way count as well.
func (l *chaosLoad) count(ctx context.Context) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	var live int
	var since int64
	l.w.mu.Lock()
	if n := len(l.w.generations); n > 0 {
		since = l.w.generations[n-1].UnixMicro()
	}
	l.w.mu.Unlock()
	err := l.w.database.QueryRowContext(ctx, "SELECT count(*) FROM calls WHERE status IN ('queued', 'dialing', 'ringing', 'in_progress') AND created_at >= $1", since).Scan(&live)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err == nil {
		l.live = live
	}
	return live + len(l.slots), err
}

// callIn lets somebody call: most type what they are asked for and stay, some hang up in the middle or give up early.
func (l *chaosLoad) callIn(ctx context.Context, probe *lab.Probe, generation int) error {
	l.mu.Lock()
	l.number++
	from := fmt.Sprintf("+1555%07d", 2000000+l.number)
	script := object{"from": from, "to": l.w.applications[l.rng.IntN(len(l.w.applications))].number, "source_ip": "127.0.0.1", "digits": typed}
	switch l.rng.IntN(20) {
	case 0:
		script["cancel_after"] = 0.1 + l.rng.Float64()
	case 1, 2:
		script["hangup_after"] = 1 + l.w.plan.pace*30*l.rng.Float64()
	}
	l.mu.Unlock()
	text, err := json.Marshal(script)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	made := time.Now()
	reply, err := probe.API(ctx, "sim_call "+string(text))
	channel, ok := strings.CutPrefix(reply, "+OK ")
	if err == nil && !ok {
		err = fmt.Errorf("sim_call: %s", reply)
	}
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.inbound = append(l.inbound, caller{from: from, to: script.text("to"), channel: channel, generation: generation, made: made})
	return nil
}

// startOrder orders a call through either controller, and through the other when the answer does not come.
func (l *chaosLoad) startOrder(ctx context.Context) {
	select {
	case l.slots <- struct{}{}:
	default:
		return
	}
	l.mu.Lock()
	l.number++
	o := order{key: fmt.Sprintf("order-%d", l.number), made: time.Now()}
	app := l.w.applications[l.rng.IntN(len(l.w.applications))]
	// Most answer and stay; one is busy, one hangs up soon, one types, one rings for two seconds.
	endings := []string{"0001", "0002", "0003", "0004", "0005", "0486", "0701", "0700", "0712"}
	to := fmt.Sprintf("+155502%s", endings[l.rng.IntN(len(endings))])
	l.mu.Unlock()
	request := object{"application_id": app.id, "from": "+15550100000", "to": to, "metadata": object{"key": o.key}}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), apiPatience)
	l.done.Go(func() {
		defer cancel()
		defer func() { <-l.slots }()
		for ctx.Err() == nil {
			status, answer, err := l.w.ask(ctx, l.w.either(), app.key, http.MethodPost, "/v1/calls", request, o.key)
			if err == nil {
				o.status = status
			}
			if err == nil && status < 500 {
				o.call = answer.text("id")
				break
			}
			rest(ctx, 500*time.Millisecond)
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		l.outbound = append(l.outbound, o)
	})
}

// startCommand takes one of the calls that the customer knows to be answered, and cancels it or gives it another list.
func (l *chaosLoad) startCommand(ctx context.Context) {
	call := l.w.sink.someCall()
	if call == "" {
		return
	}
	select {
	case l.slots <- struct{}{}:
	default:
		return
	}
	l.mu.Lock()
	l.number++
	c := command{kind: "replace", call: call, token: fmt.Sprintf("token-%d", l.number)}
	if l.rng.IntN(3) == 0 {
		c.kind = "cancel"
	}
	l.mu.Unlock()
	path, body := "/v1/calls/"+call+"/actions", any(object{"mode": "replace", "actions": commandList(c.token, l.w.plan.pace)})
	if c.kind == "cancel" {
		path, body = "/v1/calls/"+call+"/cancel", nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), apiPatience)
	l.done.Go(func() {
		defer cancel()
		defer func() { <-l.slots }()
		for ctx.Err() == nil {
			status, _, err := l.w.ask(ctx, l.w.either(), l.w.customer.key, http.MethodPost, path, body, c.token)
			if err == nil && status < 500 {
				if status == http.StatusAccepted {
					c.accepted = time.Now()
					l.mu.Lock()
					defer l.mu.Unlock()
					l.commands = append(l.commands, c)
				}
				return
			}
			rest(ctx, 500*time.Millisecond)
		}
	})
}

// someCall is a call that was answered a while ago and was not told to have ended, and that nobody has commanded yet.
func (s *sink) someCall() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, t := range s.calls { // in no order
		if len(t.events) == 0 || t.commanded {
			continue
		}
		if last := t.events[len(t.events)-1]; last.Call.text("status") == "in_progress" {
			t.commanded = true
			return id
		}
	}
	return ""
}

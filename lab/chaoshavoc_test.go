package lab_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tandem/lab"
)

// havoc is a way to take a part away and to give it back.
type havoc struct {
	kind   string
	weight int
	// parts are what it needs for itself while it lasts.
	parts []string
	// on says that a run has it unless it is told otherwise.
	on bool
	// forms are its variants, drawn by the seed.
	forms []string
	// strike takes the part away and returns how to give it back.
	strike func(ctx context.Context, w *chaosWorld, form string) (mend func(ctx context.Context) error)
}

// wreck is one havoc that was done.
type wreck struct {
	kind, form string
	at, mended time.Time
	unmended   error
}

func (w *wreck) name() string {
	if w.form == "" {
		return w.kind
	}
	return w.kind + "/" + w.form
}

// note writes a line into the run's own log.
func (w *chaosWorld) note(format string, args ...any) {
	w.load.mu.Lock()
	live := w.load.live
	w.load.mu.Unlock()
	w.mu.Lock()
	defer w.mu.Unlock()
	_, _ = fmt.Fprintf(w.story, "%s %d live: %s\n", time.Now().UTC().Format("15:04:05.000"), live, fmt.Sprintf(format, args...))
}

// havocs are all the kinds. What the calls do while the database is away waits in the memory of the controller that steers them, and dies with
// it, so no controller is killed then; all else may be away together. A kill of the switch takes all calls with it, so it is rare.
var havocs = []havoc{
	{kind: "controller", weight: 30, parts: []string{"controllers"}, on: true, forms: []string{"holder", "holder", "other"}, strike: killController},
	{kind: "both-controllers", weight: 6, parts: []string{"controllers"}, on: true, strike: killBoth},
	{kind: "pause", weight: 12, parts: []string{"controllers"}, on: true, forms: []string{"holder", "holder", "other"}, strike: pauseController},
	{kind: "drain", weight: 8, parts: []string{"controllers"}, on: true, forms: []string{"holder", "other"}, strike: drainController},
	{kind: "link", weight: 18, parts: []string{"link"}, on: true, forms: []string{"reset", "silent"}, strike: cutLink},
	{kind: "database", weight: 12, parts: []string{"database", "controllers"}, on: true, strike: killDatabase},
	{kind: "endpoint", weight: 10, parts: []string{"endpoint"}, on: true, forms: []string{"dead", "failing", "slow"}, strike: failEndpoint},
	{kind: "switch", weight: 5, parts: []string{"switch"}, on: true, strike: killSwitch},
}

// strikePlan is a havoc with what the seed has drawn for it.
type strikePlan struct {
	havoc
	form   string
	length time.Duration
	gap    time.Duration
}

// draw makes the list of what will be done: every kind once at least, as far as there are so many, then by weight.
func (p chaosPlan) draw() []strikePlan {
	rng := rand.New(rand.NewPCG(p.seed, 2))
	var chosen []havoc
	total := 0
	for _, h := range havocs {
		if slices.Contains(p.kinds, h.kind) {
			chosen = append(chosen, h)
			total += h.weight
		}
	}
	var list []strikePlan
	for i := 0; i < p.kills && len(chosen) > 0; i++ {
		h := chosen[i%len(chosen)]
		if i >= len(chosen) {
			n := rng.IntN(total)
			h = chosen[slices.IndexFunc(chosen, func(h havoc) bool { n -= h.weight; return n < 0 })]
		}
		s := strikePlan{havoc: h, length: 200*time.Millisecond + time.Duration(rng.Float64()*rng.Float64()*float64(p.longest)), gap: time.Duration((0.3 + 1.4*rng.Float64()) * float64(p.gap))}
		if len(h.forms) > 0 {
			s.form = h.forms[rng.IntN(len(h.forms))]
		}
		if i < len(chosen) && h.kind == "database" && p.outage > 0 {
			s.length = p.outage
		}
		list = append(list, s)
	}
	rng.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	return list
}

// runHavoc does it all. Different parts may be away at the same time; the same part is given back before it is taken again.
func (w *chaosWorld) runHavoc(t *testing.T) {
	t.Helper()
	ctx := t.Context()
	for _, h := range havocs {
		for _, part := range h.parts {
			w.targets[part] = &sync.Mutex{}
		}
	}
	var striking sync.WaitGroup
	defer striking.Wait()
	list := w.plan.draw()
	if len(list) == 0 {
		rest(ctx, time.Duration(w.plan.kills)*w.plan.gap)
	}
	for _, s := range list {
		if !rest(ctx, s.gap) {
			return
		}
		for _, part := range s.parts {
			w.targets[part].Lock()
		}
		wreck := wreck{kind: s.kind, form: s.form, at: time.Now()}
		w.note("%s is taken away", wreck.name())
		mend := s.strike(ctx, w, s.form)
		w.auditKilled(ctx, &wreck)
		striking.Go(func() {
			defer w.auditMended(ctx, &wreck)
			defer func() {
				for _, part := range s.parts {
					w.targets[part].Unlock()
				}
			}()
			length := s.length
			if s.kind == "pause" {
				length = w.plan.lease + w.plan.lease/2 + length/4 // past the lease
			}
			rest(ctx, length)
			wreck.unmended = mend(ctx)
			wreck.mended = time.Now()
			w.note("%s was away for %s", wreck.name(), wreck.mended.Sub(wreck.at).Round(time.Millisecond))
			rest(ctx, w.plan.gap) // otherwise it would never be there
			if s.kind == "database" || s.kind == "pause" {
				wreck.unmended = errors.Join(wreck.unmended, w.catchUp(ctx))
			}
			w.mu.Lock()
			w.havoc = append(w.havoc, wreck)
			w.mu.Unlock()
		})
		if s.kind == "switch" { // the calls must become many again
			rest(ctx, w.plan.gap)
		}
	}
	striking.Wait()
	for _, wreck := range w.havoc {
		require.NoError(t, wreck.unmended, "%s %s", wreck.kind, wreck.form)
	}
}

// catchUp waits until the controllers have written what waited in their memory for the database: it dies with them, see docs/guarantees.md. A
// process that was paused finds that the database has not answered, too.
func (w *chaosWorld) catchUp(ctx context.Context) error {
	for began := time.Now(); time.Since(began) < chaosPatience; {
		waits := false
		for _, c := range w.controllers {
			behind, err := c.behind()
			if err != nil {
				return fmt.Errorf("read the log of a controller: %w", err)
			}
			waits = waits || behind
		}
		if !waits || !rest(ctx, 100*time.Millisecond) {
			return nil
		}
	}
	w.note("changes wait still for the database that is back")
	return nil
}

// behind says whether changes of calls wait in the controller's memory, by what its log says since it was started last.
func (c *controllerPart) behind() (bool, error) {
	log, err := os.Open(c.log)
	if err != nil {
		return false, err
	}
	defer func() { _ = log.Close() }()
	if _, err := log.Seek(c.read, io.SeekStart); err != nil {
		return false, err
	}
	fresh, err := io.ReadAll(log)
	if err != nil {
		return false, err
	}
	whole := bytes.LastIndexByte(fresh, '\n') + 1
	c.read += int64(whole)
	for line := range bytes.Lines(fresh[:whole]) {
		switch {
		case bytes.Contains(line, []byte("changes of calls wait in memory")):
			c.waits = true
		case bytes.Contains(line, []byte("changes of calls written that waited")), bytes.Contains(line, []byte(`msg="tandem serves"`)):
			c.waits = false
		}
	}
	return c.waits && c.pid() != 0, nil
}

// which is the controller that a form names. Where nobody holds the node it is the first. From now on nobody steers the node, if it is
// the holder.
func (w *chaosWorld) which(ctx context.Context, form string) *controllerPart {
	holder := w.holder(ctx)
	index := 0
	for i, c := range w.controllers {
		if c == holder {
			index = i
		}
	}
	if form == "other" {
		index = 1 - index
	} else {
		w.watch.struck()
	}
	return w.controllers[index]
}

func killController(ctx context.Context, w *chaosWorld, form string) func(context.Context) error {
	c := w.which(ctx, form)
	c.down(syscall.SIGKILL, chaosPatience)
	return func(context.Context) error { c.up(); return nil }
}

func killBoth(_ context.Context, w *chaosWorld, _ string) func(context.Context) error {
	w.watch.struck()
	for _, c := range w.controllers {
		c.down(syscall.SIGKILL, chaosPatience)
	}
	return func(context.Context) error {
		for _, c := range w.controllers {
			c.up()
		}
		return nil
	}
}

// pauseController stops a process in the middle of what it does, and lets it go on after its lease has run out.
func pauseController(ctx context.Context, w *chaosWorld, form string) func(context.Context) error {
	c := w.which(ctx, form)
	c.signal(syscall.SIGSTOP)
	return func(context.Context) error { c.signal(syscall.SIGCONT); return nil }
}

// drainTime is how long an orderly stop may take: the default of the configuration, and what a busy machine adds.
const drainTime = 25 * time.Second

func drainController(ctx context.Context, w *chaosWorld, form string) func(context.Context) error {
	c := w.which(ctx, form)
	c.down(os.Signal(syscall.SIGTERM), drainTime)
	return func(context.Context) error { c.up(); return nil }
}

func cutLink(_ context.Context, w *chaosWorld, form string) func(context.Context) error {
	state := lab.LinkReset
	if form == "silent" {
		state = lab.LinkSilent
	}
	w.link.Set(state)
	return func(context.Context) error { w.link.Set(lab.LinkUp); return nil }
}

func killDatabase(_ context.Context, w *chaosWorld, _ string) func(context.Context) error {
	w.cluster.Kill()
	return w.cluster.Start
}

func failEndpoint(_ context.Context, w *chaosWorld, form string) func(context.Context) error {
	w.sink.turn(map[string]int32{"dead": dead, "failing": failing, "slow": slow}[form])
	return func(context.Context) error { w.sink.turn(healthy); return nil }
}

func killSwitch(_ context.Context, w *chaosWorld, _ string) func(context.Context) error {
	w.telephone.down(syscall.SIGKILL, chaosPatience)
	w.mu.Lock()
	w.generations = append(w.generations, time.Now())
	w.mu.Unlock()
	return func(context.Context) error { w.telephone.up(); return nil }
}

// generation counts how often the switch was killed: a call of an earlier one is gone.
func (w *chaosWorld) generation() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.generations)
}

// counts tells how often each kind was done.
func (w *chaosWorld) counts() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	by := map[string]int{}
	for _, wreck := range w.havoc {
		by[wreck.name()]++
	}
	return fmt.Sprintf("%d kills: %v", len(w.havoc), by)
}

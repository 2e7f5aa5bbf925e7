package lab_test

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// chaosPlan is what a run of chaos is made from. The same plan draws the same kills at the same moments and the same calls; how
// they meet is up to the machine.
type chaosPlan struct {
	seed uint64
	// calls is how many are live at the same time, kills how often something is killed, and gap how long after the last one on average.
	calls, kills int
	gap          time.Duration
	// kinds are the kinds of kills, those of havocs.
	kinds []string
	// pace stretches what the calls do: at 1 a call lasts about a minute.
	pace float64
	// longest bounds how long something stays away, and lease is that of the node.
	longest, lease time.Duration
	// settle bounds how long the rest may take once the load has stopped.
	settle time.Duration
	// outage is how long the database is away once in a long run.
	outage time.Duration
	// groups lets calls meet in conferences and queues, and race has the controllers look for data races.
	groups, race bool
	// keep keeps what the run leaves although nothing failed.
	keep bool
}

// The variables of `make chaos`.
const (
	envChaosSeed  = "TANDEM_CHAOS_SEED"
	envChaosCalls = "TANDEM_CHAOS_CALLS"
	envChaosKills = "TANDEM_CHAOS_KILLS"
	envChaosGap   = "TANDEM_CHAOS_GAP"
	envChaosKinds = "TANDEM_CHAOS_KINDS"
	envChaosPace  = "TANDEM_CHAOS_PACE"
	envChaosKeep  = "TANDEM_CHAOS_KEEP"
	envChaosRace  = "TANDEM_CHAOS_RACE"
	envNoGroups   = "TANDEM_CHAOS_NO_GROUPS"
)

// readChaosPlan is the short form, which every run of the tests has, unless the variables say more.
func readChaosPlan(t *testing.T) chaosPlan {
	t.Helper()
	number := func(name string, standard float64) float64 {
		value, err := strconv.ParseFloat(cmp.Or(os.Getenv(name), fmt.Sprint(standard)), 64)
		require.NoError(t, err, name)
		return value
	}
	calls := int(number(envChaosCalls, 40))
	long := calls > 100
	plan := chaosPlan{seed: 1, calls: calls, longest: 2 * time.Second, lease: 1500 * time.Millisecond, settle: 2 * time.Minute,
		groups: os.Getenv(envNoGroups) == "", race: os.Getenv(envChaosRace) != "", keep: os.Getenv(envChaosKeep) != ""}
	kills, gap, pace := 9.0, 900*time.Millisecond, 0.05
	if long {
		plan.seed, plan.longest, plan.outage, plan.lease, plan.settle = rand.Uint64()>>32, 4*time.Second, 30*time.Second, 3*time.Second, 12*time.Minute
		kills, gap, pace = 220, 600*time.Millisecond, 1
	}
	plan.kills, plan.pace = int(number(envChaosKills, kills)), number(envChaosPace, pace)
	var err error
	plan.gap, err = time.ParseDuration(cmp.Or(os.Getenv(envChaosGap), gap.String()))
	require.NoError(t, err, envChaosGap)
	if given := os.Getenv(envChaosSeed); given != "" {
		plan.seed, err = strconv.ParseUint(given, 10, 64)
		require.NoError(t, err, envChaosSeed)
	}
	for _, h := range havocs {
		if h.on {
			plan.kinds = append(plan.kinds, h.kind)
		}
	}
	if given := os.Getenv(envChaosKinds); given != "" {
		plan.kinds = strings.Split(given, ",")
	}
	for _, kind := range plan.kinds {
		require.True(t, slices.ContainsFunc(havocs, func(h havoc) bool { return h.kind == kind }), "%s: no kind of kill is called %q", envChaosKinds, kind)
	}
	return plan
}

// repeat is how to run the same again.
func (p chaosPlan) repeat() string {
	return fmt.Sprintf("make chaos SEED=%d CALLS=%d KILLS=%d GAP=%s PACE=%g KINDS=%s", p.seed, p.calls, p.kills, p.gap, p.pace, strings.Join(p.kinds, ","))
}

// TestChaos holds many live calls and kills, one after the other and at once, everything that they run on. In the end nothing may be
// missing, and nothing may be there twice. It needs the machine for itself. `make chaos` is the long form.
func TestChaos(t *testing.T) { //nolint:paralleltest // see above
	plan := readChaosPlan(t)
	t.Logf("to repeat it: %s", plan.repeat())
	w := newChaosWorld(t, plan)
	began := time.Now()
	stopLoad := w.startLoad(t)
	w.fill(t)
	t.Logf("%d calls are live after %s", plan.calls, time.Since(began).Round(time.Millisecond))
	w.audit = newAuditor(t, w)
	w.runHavoc(t)
	stopLoad()
	w.settle(t)
	took := time.Since(began)
	w.check(t)
	w.report(t, took)
}

// problems collects what a check finds, a few of each sort.
type problems struct {
	counts map[string]int
	said   []string
}

// shown is how many problems of a sort are spelt out.
const shown = 12

func (p *problems) add(sort, format string, args ...any) {
	if p.counts == nil {
		p.counts = map[string]int{}
	}
	if p.counts[sort]++; p.counts[sort] <= shown {
		p.said = append(p.said, sort+": "+fmt.Sprintf(format, args...))
	}
}

func (p *problems) tell(t *testing.T) {
	t.Helper()
	for _, said := range p.said {
		t.Error(said)
	}
	for sort, count := range p.counts {
		if count > shown {
			t.Errorf("%s: %d in all", sort, count)
		}
	}
}

// rest waits and tells whether the context still lives.
func rest(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// quantile of sorted lengths of time.
func quantile(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))].Round(time.Millisecond)
}

// chaosFolder is where a run leaves what it wrote: it is removed unless the run fails.
func chaosFolder(t *testing.T, plan chaosPlan) string {
	t.Helper()
	folder, err := os.MkdirTemp("", "tandem-chaos-") //nolint:usetesting // it outlives a run that fails
	require.NoError(t, err)
	t.Cleanup(func() {
		if t.Failed() || plan.keep {
			t.Logf("what the run has left is in %s; to repeat it: %s", folder, plan.repeat())
			return
		}
		require.NoError(t, os.RemoveAll(folder))
	})
	require.NoError(t, os.WriteFile(filepath.Join(folder, "plan"), []byte(plan.repeat()+"\n"), 0o600))
	return folder
}

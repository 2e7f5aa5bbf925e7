package dialplan

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tandem/esl/simswitch"
	"tandem/lab"
	"tandem/models"
	"tandem/models/modelstest"
)

// fromEnv is a number that whoever measures may choose.
func fromEnv(t testing.TB, name string, otherwise int) int {
	t.Helper()
	if os.Getenv(name) == "" {
		return otherwise
	}
	n, err := strconv.Atoi(os.Getenv(name))
	require.NoError(t, err, name)
	return n
}

// numbered is a database with many numbers of a hundred customers, all of which refuse their calls as busy.
type numbered struct {
	store     *models.Store
	customers []*models.Customer
	count     int
	inserted  time.Duration
}

func (n *numbered) number(i int) string { return fmt.Sprintf("+1%010d", 2_000_000_000+i) }

func newNumbered(t testing.TB, store *models.Store, count int) *numbered {
	t.Helper()
	n := &numbered{store: store, count: count}
	for range 100 {
		n.customers = append(n.customers, modelstest.Customer(t, store, 0))
	}
	const atOnce = 1000 // the race detector makes more take longer than a transaction may
	began := time.Now()
	for first := 0; first < count; first += atOnce {
		rows := make([]models.DID, min(atOnce, count-first))
		for i := range rows {
			rows[i] = models.DID{
				CustomerID: n.customers[(first+i)%len(n.customers)].ID, NumberE164: n.number(first + i), RouteMode: models.RouteReject, RejectCode: 486,
			}
		}
		require.NoError(t, store.InTx(t.Context(), func(tx *models.Store) error {
			_, err := tx.PutDIDs(t.Context(), rows, models.DIDSkip)
			return err
		}))
	}
	n.inserted = time.Since(began)
	return n
}

// toggle suspends a number, or lets its calls in again, and returns what they are answered with from then on.
func (n *numbered) toggle(t testing.TB, i int) int {
	t.Helper()
	did, err := n.store.RouteDID(t.Context(), n.number(i))
	require.NoError(t, err)
	status := 480
	if did.Status == models.DIDSuspended {
		did.Status, status = models.DIDActive, 486
	} else {
		did.Status = models.DIDSuspended
	}
	require.NoError(t, n.store.UpdateDID(t.Context(), did))
	return status
}

func percentile(of []time.Duration, p int) time.Duration {
	sorted := slices.Sorted(slices.Values(of))
	return sorted[min(len(sorted)-1, len(sorted)*p/100)].Round(time.Millisecond)
}

// scene brings many numbers to a switch, calls the first and the last, and changes one after the other. call returns what a call is answered
// with. Each change must cost one file and one reload, and is measured from its commit to the first call that meets it.
func (n *numbered) scene(t *testing.T, l *live, call func(t testing.TB, number string) int, changes int, pause time.Duration) {
	t.Helper()
	require.Equal(t, 486, call(t, n.number(0)))
	require.Equal(t, 486, call(t, n.number(n.count-1)))
	require.Equal(t, 404, call(t, n.number(n.count)))

	before := len(l.log.String())
	l.syncer.Start(t.Context())
	clock := time.NewTicker(pause)
	defer clock.Stop()
	var took []time.Duration
	for range changes {
		<-clock.C // as changes come: one, and then nothing for a while
		i := rand.IntN(n.count)
		began := time.Now()
		status := n.toggle(t, i)
		l.syncer.Changed()
		for call(t, n.number(i)) != status {
			require.Less(t, time.Since(began), testTimeout)
		}
		took = append(took, time.Since(began))
	}
	told := func() (lines []string) {
		for line := range strings.Lines(l.log.String()[before:]) {
			if strings.Contains(line, "node synchronised") {
				lines = append(lines, line)
			}
		}
		return lines
	}
	// The switch has a change a moment before we say so.
	require.Eventually(t, func() bool { return len(told()) >= changes }, testTimeout, 10*time.Millisecond)
	l.syncer.Stop()
	t.Logf("%d numbers, %d changes: from the commit to the effect p50 %s, p99 %s", n.count, changes, percentile(took, 50), percentile(took, 99))
	for _, line := range told() {
		require.Contains(t, line, "files_written=1 ")
	}
	require.Len(t, told(), changes, "one synchronisation for each change")
}

// TestFreeSWITCHHundredThousandNumbers brings 100,000 numbers (TANDEM_NUMBERS) to a real switch, and changes 10 of them (TANDEM_CHANGES).
func TestFreeSWITCHHundredThousandNumbers(t *testing.T) {
	t.Parallel()
	lab.Require(t)
	n := newNumbered(t, modelstest.Open(t), fromEnv(t, "TANDEM_NUMBERS", 100_000))
	t.Logf("%d numbers written to the database in %s", n.count, n.inserted.Round(time.Millisecond))
	began := time.Now()
	l := startLive(t, n.store, lab.Options{})
	t.Logf("switch started, numbers read, rendered, written and loaded in %s", time.Since(began).Round(time.Millisecond))
	call := func(t testing.TB, number string) int {
		t.Helper()
		status := l.calls(t, "127.0.0.200", number)
		receive(t, l.ended)
		return status
	}

	// Calls go on while the switch reads its configuration.
	longest := func(while func()) (most time.Duration, count int) {
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			while()
		}()
		for {
			began := time.Now()
			require.Equal(t, 486, call(t, n.number(count%n.count)))
			most, count = max(most, time.Since(began)), count+1
			select {
			case <-ended:
				return most, count
			default:
			}
		}
	}
	began = time.Now()
	require.NoError(t, l.control.ReloadXML(within(t)))
	reload := time.Since(began)
	var failed error
	most, count := longest(func() { failed = l.control.ReloadXML(within(t)) })
	require.NoError(t, failed)
	t.Logf("reloadxml: %s; the longest of %d calls meanwhile: %s", reload.Round(time.Millisecond), count, most.Round(time.Millisecond))
	n.scene(t, l, call, fromEnv(t, "TANDEM_CHANGES", 10), 5*reload+time.Second)
}

// TestSimulatedSwitchManyNumbers is the same on the simulated switch, with 5,000 numbers; TANDEM_NUMBERS=1000000 TANDEM_TEST_STEP=5m for a
// million.
func TestSimulatedSwitchManyNumbers(t *testing.T) {
	t.Parallel()
	n := newNumbered(t, modelstest.Open(t), fromEnv(t, "TANDEM_NUMBERS", 5_000))
	t.Logf("%d numbers written to the database in %s", n.count, n.inserted.Round(time.Millisecond))
	confDir := t.TempDir()
	sim, err := simswitch.New(simswitch.Config{Password: "a password", ConfDir: confDir, SessionsPerSecond: 1_000_000}) // the test calls until it hears the change
	require.NoError(t, err)
	require.NoError(t, sim.Start())
	t.Cleanup(func() { require.NoError(t, sim.Close()) })
	began := time.Now()
	l := connectLive(t, n.store, sim.Addr(), "a password", confDir)
	t.Logf("read, rendered, written and loaded in %s", time.Since(began).Round(time.Millisecond))
	began = time.Now()
	require.NoError(t, l.control.ReloadXML(within(t)))
	reload := time.Since(began)
	t.Logf("reloadxml: %s", reload.Round(time.Millisecond))
	call := func(t testing.TB, number string) int {
		t.Helper()
		_, err := sim.CallIn(simswitch.IncomingCall{From: "+15559990000", To: number, SourceIP: "127.0.0.200"})
		require.NoError(t, err)
		answer, _, _ := strings.Cut(receive(t, l.ended).Variable("current_application_data"), " ")
		status, err := strconv.Atoi(answer)
		require.NoError(t, err)
		return status
	}
	n.scene(t, l, call, fromEnv(t, "TANDEM_CHANGES", 3), 5*reload+200*time.Millisecond)
}

// BenchmarkOneChangedNumber is what it costs to bring one changed number from the database to a node's files, by how many others there are:
// it must not grow with them.
func BenchmarkOneChangedNumber(b *testing.B) {
	for _, count := range []int{1000, 10_000, 100_000} {
		b.Run(strconv.Itoa(count), func(b *testing.B) {
			n := newNumbered(b, openBench(b), count)
			s, err := NewSyncer(Config{Store: n.store, Logger: slog.New(slog.DiscardHandler)})
			require.NoError(b, err)
			s.AddNode(models.Node{ID: "node_1", ConfDir: b.TempDir()}, &fakeSwitch{fail: map[string]error{}})
			s.syncAll(b.Context(), true)
			for i := 0; b.Loop(); i++ {
				n.toggle(b, i%count)
				s.syncAll(b.Context(), false)
			}
		})
	}
}

func openBench(b *testing.B) *models.Store {
	b.Helper()
	store, err := models.Open(b.Context(), models.Config{URL: modelstest.SQLiteURL(b), Key: modelstest.Key})
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, store.Close()) })
	return store
}

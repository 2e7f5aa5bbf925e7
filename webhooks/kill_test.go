package webhooks

import (
	"net/http"
	"os"
	"os/exec"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tandem/models"
	"tandem/models/modelstest"
)

// workerProcess names the database of a worker that runs in a process of its own, for TestKill.
const workerProcess = "TANDEM_TEST_WORKER_DATABASE"

// TestWorkerProcess is that worker. It runs until it is killed, or until the test that started it is gone.
func TestWorkerProcess(t *testing.T) {
	t.Parallel()
	location := os.Getenv(workerProcess)
	if location == "" {
		t.Skip("runs only as the process that TestKill kills")
	}
	s, err := models.Open(t.Context(), models.Config{URL: location, Key: modelstest.Key})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	r := &rig{t: t, store: s, client: &http.Client{}, attempts: make(chan Attempt, 1)}
	r.worker(func(c *Config) {
		c.Timeout, c.Lease, c.Poll = time.Hour, defaultLease, 20*time.Millisecond
	})
	_, _ = os.Stdin.Read(make([]byte, 1)) // ends when the parent does
}

// TestKill kills a worker's process (SIGKILL) while its request is under way, which may take an hour: another worker sends
// the same event, with the same id, as soon as the lease is over, and that is no later than one lease after the kill.
func TestKill(t *testing.T) {
	t.Parallel()
	modelstest.RunURL(t, "", func(t *testing.T, location string) {
		s, err := models.Open(t.Context(), models.Config{URL: location, Key: modelstest.Key})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, s.Close()) })
		r := newRig(t, s, nil)

		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestWorkerProcess$")
		cmd.Env = append(os.Environ(), workerProcess+"="+location)
		stdin, err := cmd.StdinPipe()
		require.NoError(t, err)
		t.Cleanup(func() { _ = stdin.Close() })
		var requests atomic.Int64
		rec := newReceiver(t, func(_ http.ResponseWriter, req request) {
			if requests.Add(1) == 1 {
				<-req.ctx.Done() // until the process is dead
			}
		})
		_, events := r.call(r.application(rec.URL), 3)
		require.NoError(t, cmd.Start())
		first := r.arrived(rec)
		leaseEnd := func() time.Time {
			due, ok, err := s.NextDue(t.Context())
			require.NoError(t, err)
			require.True(t, ok)
			return due
		}
		claimed := leaseEnd()
		require.Eventually(t, func() bool { return leaseEnd().After(claimed) }, patience, 20*time.Millisecond, "the lease is extended")
		require.NoError(t, cmd.Process.Kill())
		require.Error(t, cmd.Wait(), "it was killed")
		due := leaseEnd()
		require.False(t, due.After(s.Now().Add(defaultLease)), "not even the dead process' last heartbeat lasts longer")
		require.Equal(t, models.DeliveryPending, r.delivery(events[0]).State)

		r.worker(func(c *Config) { c.Poll = 20 * time.Millisecond })
		for i := range events {
			require.Equal(t, events[i].ID, r.next().EventID)
		}
		seen := rec.seen()
		require.Len(t, seen, 4)
		require.Equal(t, first.id(), seen[1].id())
		require.Equal(t, first.body, seen[1].body)
		require.Less(t, defaultLease, defaultTimeout, "nor does a request that may take longer")
		again := r.recorded(events[0])
		require.Len(t, again, 1, "nobody stored the first")
		require.False(t, again[0].StartedAt.Before(due), "while the lease held, it might have been under way")
	})
}

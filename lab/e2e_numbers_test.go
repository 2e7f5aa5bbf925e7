package lab_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tandem/lab"
)

// TestFreeSWITCHImportedNumbers imports 100,000 numbers (TANDEM_NUMBERS) by the command line, while first the server and then the command are
// killed, and calls the first and the last of them through a real switch. Then numbers are changed, one after the other (TANDEM_CHANGES), each
// timed from the request to the first call that meets the change.
func TestFreeSWITCHImportedNumbers(t *testing.T) { //nolint:paralleltest // it needs the machine for itself
	s := startSystem(t, lab.Options{})
	s.inboundTrunk(t, "127.0.0.7")
	count := chosen(t, "TANDEM_NUMBERS", 100_000)
	number := func(i int) string { return fmt.Sprintf("+1%010d", 2_000_000_000+i) }
	var file strings.Builder
	file.WriteString("number_e164,route_mode,reject_code\n")
	for i := range count {
		fmt.Fprintf(&file, "%s,reject,486\n", number(i))
	}
	file.WriteString("not a number,reject,486\n" + number(0) + ",reject,486\n")
	path := filepath.Join(t.TempDir(), "numbers.csv")
	require.NoError(t, os.WriteFile(path, []byte(file.String()), 0o600))

	began := time.Now()
	command, _ := s.importing(t, path)
	s.importReaches(t, count/4)
	s.stop(syscall.SIGKILL)
	s.start(t)
	s.importReaches(t, count/2)
	require.NoError(t, command.Process.Kill())
	_ = command.Wait()
	command, said := s.importing(t, path)
	err := command.Wait()
	took := time.Since(began)
	require.Contains(t, said.String(), "going on with import")
	failed := new(exec.ExitError)
	require.ErrorAs(t, err, &failed, said.String())
	require.Equal(t, 1, failed.ExitCode(), "one record was rejected: %s", said)
	job := s.imports(t)[0]
	require.Equal(t, []any{"finished", count, 1, 1}, []any{job["state"], job.number("created"), job.number("duplicates"), job.number("rejected")})
	rejects, err := os.ReadFile(strings.TrimSuffix(path, ".csv") + ".rejects.csv")
	require.NoError(t, err)
	require.Contains(t, string(rejects), fmt.Sprintf("not a number,reject,486,%d,number_e164,", count+2))
	t.Logf("%d numbers imported in %s, with the server and the command killed on the way", count, took.Round(time.Millisecond))

	call := func(i int) int {
		t.Helper()
		status, err := lab.SendRequest(t.Context(), lab.Request{NodeSIP: s.node.SIPAddr, From: "+15559990000", To: number(i), Local: "127.0.0.7"})
		require.NoError(t, err)
		return status
	}
	require.Eventually(t, func() bool { return call(0) == 486 && call(count-1) == 486 }, time.Minute, 100*time.Millisecond)
	t.Logf("the first and the last can be called %s after the import began", time.Since(began).Round(time.Millisecond))
	require.Equal(t, 404, call(count))
	out, err := s.command(t, "dids", "test", number(count-1), "--from-ip", "127.0.0.7").CombinedOutput()
	require.NoError(t, err, string(out))
	require.Contains(t, string(out), "refuse 486")

	var times []time.Duration
	arrivals := time.NewTicker(time.Second) // as changes come: one, and then nothing for a while
	defer arrivals.Stop()
	for range chosen(t, "TANDEM_CHANGES", 5) {
		<-arrivals.C
		i := rand.IntN(count)
		began := time.Now()
		status, answer := s.ask(t, customer{key: s.operatorToken()}, http.MethodPost, "/operator/v1/dids/reassign", object{"numbers": []string{number(i)}, "status": "suspended"})
		require.Equal(t, http.StatusOK, status, answer)
		for call(i) != 480 {
			require.Less(t, time.Since(began), time.Minute)
		}
		times = append(times, time.Since(began))
		arrivals.Reset(4 * times[len(times)-1])
	}
	slices.Sort(times)
	at := func(p int) time.Duration { return times[min(len(times)-1, len(times)*p/100)].Round(time.Millisecond) }
	t.Logf("%d changes among %d numbers, from the request to the effect: p50 %s, p99 %s", len(times), count, at(50), at(99))
}

func chosen(t *testing.T, name string, otherwise int) int {
	t.Helper()
	if os.Getenv(name) == "" {
		return otherwise
	}
	n, err := strconv.Atoi(os.Getenv(name))
	require.NoError(t, err, name)
	return n
}

// importing starts the import of a file. What it says is complete once it has ended.
func (s *system) importing(t *testing.T, path string) (*exec.Cmd, *bytes.Buffer) {
	t.Helper()
	cmd := s.command(t, "dids", "import", path, "--customer", s.customer.id, "--progress", "json")
	var said bytes.Buffer
	cmd.Stderr = &said
	require.NoError(t, cmd.Start())
	return cmd, &said
}

// imports are the imports of the installation, the newest first; none while the server does not answer.
func (s *system) imports(t *testing.T) []object {
	t.Helper()
	out, err := s.command(t, "dids", "imports", "ls", "-o", "json").Output()
	if err != nil {
		return nil
	}
	var jobs []object
	require.NoError(t, json.Unmarshal(out, &jobs), string(out))
	return jobs
}

func (s *system) importReaches(t *testing.T, record int) {
	t.Helper()
	require.Eventually(t, func() bool {
		jobs := s.imports(t)
		return len(jobs) > 0 && jobs[0].number("next_record") >= record
	}, 2*time.Minute, 50*time.Millisecond)
}

func (s *system) operatorToken() string {
	for _, set := range s.env {
		if token, found := strings.CutPrefix(set, "TANDEM_OPERATOR_TOKEN="); found {
			return token
		}
	}
	return ""
}

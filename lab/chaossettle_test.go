package lab_test

import (
	"context"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tandem/lab"
)

// remaining is what must be nothing once all is settled, each with how it is counted.
var remaining = []struct{ what, query string }{
	{"live calls", "SELECT count(*) FROM calls WHERE status IN ('queued', 'dialing', 'ringing', 'in_progress')"},
	{"webhooks to be delivered", "SELECT count(*) FROM webhook_deliveries WHERE state = 'pending'"},
}

// settle waits until no call lives, no webhook waits and the switch carries nothing.
func (w *chaosWorld) settle(t *testing.T) {
	t.Helper()
	began := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), w.plan.settle)
	defer cancel()
	var left []string
	for {
		left = w.left(ctx)
		if len(left) == 0 {
			t.Logf("all was settled %s after the load had stopped", time.Since(began).Round(time.Millisecond))
			return
		}
		if !rest(ctx, 200*time.Millisecond) {
			break
		}
	}
	t.Errorf("not settled %s after the load had stopped: %s", w.plan.settle, strings.Join(left, ", "))
}

func (w *chaosWorld) left(ctx context.Context) []string {
	var left []string
	for _, r := range remaining {
		var count int
		if err := w.database.QueryRowContext(ctx, r.query).Scan(&count); err != nil {
			left = append(left, r.what+": "+err.Error())
		} else if count > 0 {
			left = append(left, fmt.Sprintf("%d %s", count, r.what))
		}
	}
	if channels := w.channels(ctx); channels != "0 total." {
		left = append(left, "on the switch "+channels)
	}
	return left
}

// channels is what the switch itself says that it carries.
func (w *chaosWorld) channels(ctx context.Context) string {
	probe, err := lab.DialESL(ctx, w.eslAddr, w.password)
	if err != nil {
		return err.Error()
	}
	defer func() { _ = probe.Close() }()
	reply, err := probe.API(ctx, "show channels count")
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(reply)
}

// goroutines lets a controller say what runs in it, which ends it, and counts that by what started it.
func (w *chaosWorld) goroutines(t *testing.T, c *controllerPart) (all int, by map[string]int) {
	t.Helper()
	before := len(w.logOf(t, c.part))
	c.down(syscall.SIGQUIT, chaosPatience)
	by = map[string]int{}
	for block := range strings.SplitSeq(w.logOf(t, c.part)[before:], "\n\n") {
		if !strings.HasPrefix(strings.TrimSpace(block), "goroutine ") {
			continue
		}
		creator := "main"
		if _, rest, ok := strings.Cut(block, "created by "); ok {
			creator, _, _ = strings.Cut(rest, "\n")
			creator, _, _ = strings.Cut(creator, " in goroutine ")
		}
		if strings.HasPrefix(creator, "net/http.(*Transport)") {
			continue // connections that are kept for the next request to the same server
		}
		all++
		by[creator]++
	}
	require.Positive(t, all, "%s said nothing of its goroutines", c.name)
	return all, by
}

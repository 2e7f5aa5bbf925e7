package api

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tandem/models"
	"tandem/models/modelstest"
	"tandem/webhooks"
)

// TestDocumentedRequestsWork sends every request that docs/api.md shows, with identifiers that exist: none is refused.
func TestDocumentedRequestsWork(t *testing.T) {
	t.Parallel()
	document, err := os.ReadFile("../docs/api.md")
	require.NoError(t, err)
	text := strings.ReplaceAll(string(document), "\\\n", " ")
	requests := regexp.MustCompile(`(?s)\ncurl -s (?:-X ([A-Z]+) )?'?localhost:8080(/[^ ']+)'?([^\n]*?)(?: -d '([^']*)'| > [^\n]*)?\n`)
	b := newBench(t, modelstest.Open(t), Config{})
	sent := 0
	for rest := text; ; {
		at := requests.FindStringSubmatchIndex(rest)
		if at == nil {
			break
		}
		part := func(i int) string {
			if at[2*i] < 0 {
				return ""
			}
			return rest[at[2*i]:at[2*i+1]]
		}
		method, path, body := part(1), part(2), part(4)
		if method == "" {
			method = "GET"
		}
		sent++
		app := modelstest.Application(t, b.store, b.customer)
		status := models.CallInProgress
		switch {
		case strings.HasSuffix(path, "/start"):
			status = models.CallQueued
		case strings.HasSuffix(path, "/retry"):
			status = models.CallBusy
		}
		call := b.callOf(app, status).ID
		if strings.Contains(path, "evt_…") {
			event := b.emit(b.callOf(app, models.CallInProgress), webhooks.KindNotify)
			b.deliverAll(models.ResultDead, models.Attempt{Status: 500})
			path = strings.ReplaceAll(path, "evt_…", event.ID)
		}
		switch {
		case strings.HasPrefix(path, "/v1/conferences/"):
			conference, member := b.conference(app, "room")
			if strings.HasSuffix(path, "/board") {
				conference, member = b.conference(app, "board")
			}
			path, call = strings.ReplaceAll(path, "conf_…", conference.ID), member.CallID
		case strings.HasPrefix(path, "/v1/queues/"):
			call = b.queued(app, "sales", 0).CallID
		}
		path = strings.ReplaceAll(strings.ReplaceAll(path, "app_…", app.ID), "call_…", call)
		if strings.Contains(path, "trunk_…") {
			path = strings.ReplaceAll(path, "trunk_…", modelstest.OutboundTrunk(b.t, b.store, b.customer).ID)
		}
		require.NotContains(t, path, "…")
		x := exchange{method: method, path: path}
		if body != "" {
			x.body = strings.ReplaceAll(body, "app_…", app.ID)
			require.Contains(t, part(3), "-H 'Content-Type: application/json'", path)
		}
		got := b.do(x)
		require.Less(t, got.status, 300, "%s %s: %s", method, path, got.body)
		rest = rest[at[1]-1:]
	}
	require.Equal(t, strings.Count(text, "\ncurl "), sent)
}

package api

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tandem/models"
	"tandem/models/modelstest"
)

// A node is drained and resumed, weighed and moved; what it does and what is wrong with it is told.
func TestNodeStanding(t *testing.T) {
	t.Parallel()
	onBothAsOperator(t, func(b *bench) {
		ctx := b.t.Context()
		node := modelstest.Node(b.t, b.store)
		path := "/operator/v1/nodes/" + node.Name
		state := func() string { return b.get(path).is(200).str("state") }
		require.Equal(b.t, "unheld", state())
		token, _, err := b.store.AcquireNode(ctx, node.ID, "controller", time.Hour, 0)
		require.NoError(b.t, err)
		require.Equal(b.t, "away", state())
		require.NoError(b.t, b.store.RenewNode(ctx, node.ID, "controller", token, time.Hour, true))
		got := b.get(path).is(200).json()
		require.Equal(b.t, []any{"up", 100.0, 0.0, nil, nil}, pick(got, "state", "weight", "calls", "draining", "health"))
		require.Equal(b.t, []any{}, got["problems"])

		drained := b.post(path+"/drain", object{"reason": "new kernel"}).is(200).json()
		require.Equal(b.t, "draining", drained["state"])
		require.Equal(b.t, []any{"ana", "new kernel"}, pick(drained["draining"], "by", "reason"))
		require.Equal(b.t, "new kernel", b.post(path+"/drain", object{"reason": "another"}).is(200).json()["draining"].(object)["reason"], "it drains already")
		require.NoError(b.t, b.store.RecordNodeHealth(ctx, token, &models.NodeHealth{
			NodeID: node.ID, MeasuredAt: b.store.Now().Add(time.Second), Version: "1.10.12", Ready: true, InboundPaused: true, Drained: true, MaxSessions: 2000, MaxRate: 200,
			IdleCPU: 91.5, ClockSkew: -1500, Answer: 700, MissingModules: []string{"mod_avmd"},
			Problems: []models.NodeProblem{{Code: "missing_module", Severity: models.SeverityWarning, Message: "mod_avmd is not loaded", Fix: "load it"}},
		}))
		got = b.get(path).is(200).json()
		require.Equal(b.t, "drained", got["state"])
		require.Equal(b.t, []any{"1.10.12", true, 0.0, 2000.0, 91.5, -1.5, 0.7, []any{"mod_avmd"}, nil},
			pick(got["health"], "version", "inbound_paused", "sessions", "max_sessions", "idle_cpu", "clock_skew_ms", "answer_ms", "missing_modules", "heartbeat_at"))
		require.Equal(b.t, []any{object{"code": "missing_module", "severity": "warning", "message": "mod_avmd is not loaded", "fix": "load it"}}, got["problems"])
		list := b.get("/operator/v1/nodes").is(200)
		require.Equal(b.t, got, list.data()[0])
		resumed := b.post(path+"/resume", nil).is(200).json()
		require.Equal(b.t, []any{"up", nil}, pick(resumed, "state", "draining"))

		folder := b.t.TempDir()
		changed := b.patch(path, object{"weight": 0, "esl_addr": "fs-1.example:8021", "esl_password": "another", "conf_dir": folder, "is_active": false}).is(200).json()
		require.Equal(b.t, []any{"inactive", 0.0, "fs-1.example:8021", folder}, pick(changed, "state", "weight", "esl_addr", "conf_dir"))
		row, err := b.store.NodeByName(ctx, node.Name)
		require.NoError(b.t, err)
		require.Equal(b.t, models.Secret("another"), row.Password)
		require.Equal(b.t, token, row.LeaseToken, "its controller sees to it")
		require.Equal(b.t, 30.0, b.patch(path, object{"weight": 30}).is(200).json()["weight"])

		for field, value := range map[string]any{
			"weight": 10001, "esl_addr": "nowhere", "esl_password": "", "conf_dir": "/no/such/folder",
		} {
			b.patch(path, object{field: value}).refused(codeInvalidRequest, field)
		}
		b.patch(path, object{"weight": -1}).refused(codeInvalidRequest, "weight")
		b.post(path+"/drain", object{"reason": "a\nb"}).refused(codeInvalidRequest, "reason")
		for _, missing := range []response{b.patch(path+"x", object{"weight": 1}), b.post(path+"x/drain", object{}), b.post(path+"x/resume", nil)} {
			missing.refused(codeNotFound, "")
		}
		var said []string
		for _, entry := range b.get("/operator/v1/audit?object_id=" + node.Name).is(200).data() {
			said = append(said, entry.(object)["action"].(string))
		}
		require.Equal(b.t, []string{"updateNode", "updateNode", "resumeNode", "drainNode", "drainNode"}, said)
	})
}

package daemon

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tandem/models"
)

// answers is a switch that answers two questions.
type answers struct {
	variable, expansion string
	err                 error
}

func (a answers) GlobalVariable(context.Context, string) (string, error) { return a.variable, a.err }
func (a answers) API(context.Context, string) (string, error)            { return a.expansion, a.err }
func (a answers) HasModule(context.Context, string) (bool, error)        { return true, a.err }

func TestCheckWallsNeedsBoth(t *testing.T) {
	t.Parallel()
	const off, on = "+OK api_expansion is off \n", "+OK api_expansion is on \n"
	require.NoError(t, checkWalls(t.Context(), answers{variable: "true", expansion: off}))
	require.ErrorContains(t, checkWalls(t.Context(), answers{variable: "", expansion: off}), "app_disable_expand_variables")
	require.ErrorContains(t, checkWalls(t.Context(), answers{variable: "true", expansion: on}), "api-expansion")
	require.ErrorContains(t, checkWalls(t.Context(), answers{variable: "true", expansion: "-ERR"}), "api-expansion")
	require.ErrorContains(t, checkWalls(t.Context(), answers{variable: "false", expansion: on}), " and ")
	require.ErrorContains(t, checkWalls(t.Context(), answers{err: errors.New("gone")}), "gone")
}

// What the database says of a node decides whether it is steered, and whether it gets calls.
func TestStanding(t *testing.T) {
	t.Parallel()
	now := time.Now()
	later, before := now.Add(time.Second), now.Add(-time.Second)
	steered := models.Node{Name: "fs-1", ESLAddr: "127.0.0.1:8021", IsActive: true, Weight: 100, LeaseOwner: "one", LeaseUntil: &later, ConnectedUntil: &later}
	require.Empty(t, standing(&steered, 3, now))
	for finding, tc := range map[string]struct {
		change func(*models.Node)
		ok     bool
		fix    string
	}{
		"is not active":                        {func(n *models.Node) { n.IsActive = false }, true, ""},
		"no controller steers it":              {func(n *models.Node) { n.LeaseUntil = &before }, true, "tandem serve"},
		"one holds it and is not connected":    {func(n *models.Node) { n.ConnectedUntil = nil }, false, "127.0.0.1:8021"},
		"(op_1: new kernel); 3 calls are left": {func(n *models.Node) { n.DrainingAt, n.DrainedBy, n.DrainReason = &before, "op_1", "new kernel" }, true, "tandem nodes resume fs-1"},
		"has the weight 0":                     {func(n *models.Node) { n.Weight = 0 }, true, "tandem nodes set fs-1 --weight"},
	} {
		node := steered
		tc.change(&node)
		checks := standing(&node, 3, now)
		require.Len(t, checks, 1, finding)
		require.Contains(t, checks[0].Finding, finding)
		require.Contains(t, checks[0].Fix, tc.fix)
		require.Equal(t, []any{tc.ok, tc.ok, "node fs-1"}, []any{checks[0].OK, checks[0].Warning, checks[0].Subject}, finding)
	}
}

package daemon

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

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

func TestCheckPasswordRefusesTheDefaultOffLoopback(t *testing.T) {
	t.Parallel()
	require.NoError(t, checkPassword(&models.Node{ESLAddr: "127.0.0.1:8021", Password: "ClueCon"}))
	require.NoError(t, checkPassword(&models.Node{ESLAddr: "10.0.0.5:8021", Password: "another"}))
	require.Error(t, checkPassword(&models.Node{ESLAddr: "10.0.0.5:8021", Password: "ClueCon"}))
	require.Error(t, checkPassword(&models.Node{ESLAddr: "fs-1:8021", Password: "ClueCon"}))
}

func TestCheckCDRs(t *testing.T) {
	t.Parallel()
	node, folder := folderOf(t, nil)
	check := func(loaded string, err error) Check {
		return checkCDRs(t.Context(), answers{expansion: loaded, err: err}, &node)
	}
	require.True(t, check("true\n", nil).OK)
	require.Contains(t, check("false", nil).Finding, "is not loaded")
	require.Contains(t, check("", errors.New("gone")).Finding, "gone")
	require.NoError(t, os.Mkdir(filepath.Join(folder, refusedCDRs), 0o755))
	require.True(t, check("true", nil).OK)
	require.NoError(t, os.WriteFile(filepath.Join(folder, refusedCDRs, "a.cdr.json"), nil, 0o600))
	found := check("true", nil)
	require.False(t, found.OK)
	require.Contains(t, found.Finding, "1 files in ")
}

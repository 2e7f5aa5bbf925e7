package simswitch

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestReloadParsesOnlyWhatChanged: what is kept from one reload to the next is never what a file held before, nor what a reload that failed read.
func TestReloadParsesOnlyWhatChanged(t *testing.T) {
	t.Parallel()
	confDir := t.TempDir()
	folder := filepath.Join(confDir, "tandem", "dialplan")
	require.NoError(t, os.MkdirAll(folder, 0o750))
	write := func(name, context, number, application string) {
		t.Helper()
		content := `<context name="` + context + `"><extension name="x"><condition field="destination_number" expression="^[+]` + number +
			`$"><action application="` + application + `"/></condition></extension></context>`
		require.NoError(t, os.WriteFile(filepath.Join(folder, name), []byte(content), 0o600))
	}
	write("a.xml", "a", "15550001000", "park")
	write("b.xml", "b", "15550001001", "park")
	var s shelf
	first, err := s.loadPlan(confDir)
	require.NoError(t, err)
	require.Nil(t, first.contexts["a"].extensions[0].conditions[0].pattern, "compiled when it is called")
	require.Equal(t, []int{0}, first.contexts["a"].candidates("+15550001000"))
	require.Empty(t, first.contexts["a"].candidates("+15550001001"))

	write("b.xml", "b", "15550001001", "answer")
	second, err := s.loadPlan(confDir)
	require.NoError(t, err)
	require.Same(t, first.contexts["a"], second.contexts["a"])
	require.Equal(t, "answer", second.contexts["b"].extensions[0].conditions[0].actions[0].name)
	require.Equal(t, "park", first.contexts["b"].extensions[0].conditions[0].actions[0].name, "a call that is being routed sees what it began with")

	write("a.xml", "a", "15550001000", "answer")
	write("b.xml", "b", "15550001001", "no_such_application")
	_, err = s.loadPlan(confDir)
	require.ErrorContains(t, err, "b.xml")
	write("b.xml", "a", "15550001001", "park")
	_, err = s.loadPlan(confDir)
	require.ErrorContains(t, err, `context "a" exists already`)
	require.NoError(t, os.Remove(filepath.Join(folder, "b.xml")))
	third, err := s.loadPlan(confDir)
	require.NoError(t, err)
	require.Equal(t, "answer", third.contexts["a"].extensions[0].conditions[0].actions[0].name)
	require.NotContains(t, third.contexts, "b")
}

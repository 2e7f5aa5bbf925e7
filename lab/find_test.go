package lab_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tandem/lab"
)

func TestFindTakesWhatTheEnvironmentNames(t *testing.T) {
	binary := filepath.Join(t.TempDir(), "freeswitch")
	require.NoError(t, os.WriteFile(binary, []byte("#!/bin/sh\n"), 0o700)) //nolint:gosec // it must be executable
	t.Setenv("FREESWITCH_BIN", binary)
	path, ok := lab.Find()
	require.True(t, ok)
	require.Equal(t, binary, path)
}

// A name that is no binary finds nothing: `make test` uses that to leave the real switch out.
func TestFindDoesNotReplaceWhatTheEnvironmentNames(t *testing.T) {
	t.Setenv("FREESWITCH_BIN", "none")
	t.Setenv("PATH", t.TempDir())
	_, ok := lab.Find()
	require.False(t, ok)
}

// The table of settings in freeswitch-conf/README.md is the settings that there are.
func TestEverySettingIsDocumented(t *testing.T) {
	t.Parallel()
	vars, err := os.ReadFile("../freeswitch-conf/vars.xml")
	require.NoError(t, err)
	readme, err := os.ReadFile("../freeswitch-conf/README.md")
	require.NoError(t, err)
	read := map[string]bool{}
	for _, match := range regexp.MustCompile(`cmd="env-set" data="[a-z0-9_]+=\$(TANDEM_[A-Z0-9_]+)"`).FindAllStringSubmatch(string(vars), -1) {
		read[match[1]] = true
	}
	require.Greater(t, len(read), 10)
	told := map[string]bool{}
	for line := range strings.SplitSeq(string(readme), "\n") {
		if !strings.HasPrefix(line, "| `TANDEM_") {
			continue
		}
		names, _, _ := strings.Cut(strings.TrimPrefix(line, "| "), " | ")
		for name := range strings.SplitSeq(names, ", ") {
			told[strings.Trim(name, "`")] = true
		}
	}
	require.Equal(t, read, told)
}

package lab

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Every test that docs/guarantees.md names exists, in the package that it names.
func TestGuaranteesNameTheirTests(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join("..", "docs", "guarantees.md"))
	require.NoError(t, err)
	named := regexp.MustCompile("(?:([a-z]+) )?`(Test[A-Za-z0-9]+)`")
	lines := 0
	for _, line := range strings.Split(string(text), "\n") {
		if !strings.HasPrefix(line, "| **") && !strings.HasPrefix(line, "| What was") {
			continue
		}
		lines++
		folder := ""
		tests := named.FindAllStringSubmatch(line, -1)
		require.NotEmpty(t, tests, line)
		for _, found := range tests {
			if found[1] != "" {
				folder = found[1]
			}
			require.True(t, declares(t, filepath.Join("..", folder), found[2]), "%s has no %s", folder, found[2])
		}
	}
	require.Greater(t, lines, 10)
}

// declares says whether a package has a test.
func declares(t *testing.T, folder, test string) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "*_test.go"))
	require.NoError(t, err)
	for _, file := range files {
		source, err := os.ReadFile(file) //nolint:gosec // of this repository
		require.NoError(t, err)
		if strings.Contains(string(source), "\nfunc "+test+"(") {
			return true
		}
	}
	return false
}

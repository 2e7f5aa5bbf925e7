package main

import (
	"encoding/json"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"tandem/daemon"
)

func TestVersion(t *testing.T) { //nolint:paralleltest // t.Setenv
	api := startAPI(t)
	isolate(t)
	got := runs(t, 0, "version", "-o", "json")
	var found builds
	require.NoError(t, json.Unmarshal([]byte(got.out), &found))
	require.Equal(t, builds{Client: daemon.ThisBuild()}, found, "no server is chosen, and none asked")
	require.Equal(t, runtime.Version(), found.Client.Go)
	require.Empty(t, api.requests())

	api.as(t, "op_good")
	api.says("GET /version", 200, daemon.ThisBuild())
	got = runs(t, 0, "version")
	require.Regexp(t, `(?m)^client .*\n^server `, got.out)
	require.Empty(t, got.err, "they are the same")
	api.says("GET /version", 200, object{"version": "v9.9.9", "commit": "c0ffee", "modified": true, "go": "go9.9"})
	got = runs(t, 0, "version")
	require.Regexp(t, `(?m)^server +v9\.9\.9 +c0ffee and changes +go9\.9`, got.out)
	require.Contains(t, got.err, "different builds")
	require.NoError(t, json.Unmarshal([]byte(runs(t, 0, "version", "-o", "json").out), &found))
	require.Equal(t, "v9.9.9", found.Server.Version)

	// A server that refuses is a failure, and what is known is shown all the same.
	api.says("GET /version", 503, object{"error": object{"code": "unavailable", "message": "not now"}})
	got = runs(t, 1, "version")
	require.Contains(t, got.out, "client")
	require.NotContains(t, got.out, "server")
	require.Contains(t, got.err, "not now")
	require.Empty(t, runs(t, 0, "version", "--client").err)
	runs(t, 2, "version", "--context", "nowhere")
}

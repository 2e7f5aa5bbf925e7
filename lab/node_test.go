package lab_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tandem/lab"
)

// harmless lists lines that FreeSWITCH logs as warnings when nothing is wrong.
var harmless = []string{
	"MSG Thread 0 Started", // sofia.c: each message thread announces itself as a warning
}

func complaints(log string) (lines []string) {
	for line := range strings.SplitSeq(log, "\n") {
		serious := strings.Contains(line, "[WARNING]") || strings.Contains(line, "[ERR]") || strings.Contains(line, "[CRIT]") || strings.Contains(line, "[ALERT]")
		for _, text := range harmless {
			serious = serious && !strings.Contains(line, text)
		}
		if serious {
			lines = append(lines, line)
		}
	}
	return lines
}

func TestFreeSWITCHNodeBootsWithoutComplaint(t *testing.T) {
	t.Parallel()
	lab.Require(t)
	began := time.Now()
	node := lab.StartNode(t, lab.Options{})
	t.Logf("ready after %s", time.Since(began).Round(time.Millisecond))

	require.Empty(t, complaints(node.LogText()))
	probe := node.Probe(t)
	status, err := probe.API(t.Context(), "status")
	require.NoError(t, err)
	require.Contains(t, status, "is ready")
	require.Contains(t, status, "2000 session(s) max")

	modules, err := probe.API(t.Context(), "show modules")
	require.NoError(t, err)
	for _, absent := range []string{"mod_lua", "mod_v8", "mod_python", "mod_perl", "mod_shell_stream", "mod_sms", "mod_tts_commandline", "mod_xml_curl", "mod_loopback"} {
		require.NotContains(t, modules, absent)
	}
}

func TestFreeSWITCHNodeComesBackAfterAKill(t *testing.T) {
	t.Parallel()
	node := lab.StartNode(t, lab.Options{})
	before, err := node.Probe(t).API(t.Context(), "global_getvar core_uuid")
	require.NoError(t, err)
	node.Kill()
	_, err = lab.DialESL(t.Context(), node.ESLAddr, node.Password)
	require.Error(t, err)
	require.NoError(t, node.Restart(t.Context()))
	after, err := node.Probe(t).API(t.Context(), "global_getvar core_uuid")
	require.NoError(t, err)
	require.NotEmpty(t, after)
	require.NotEqual(t, before, after)
}

func TestFreeSWITCHEventSocketRefusesAWrongPassword(t *testing.T) {
	t.Parallel()
	node := lab.StartNode(t, lab.Options{})
	for _, wrong := range []string{"ClueCon", "", node.Password + "x"} {
		_, err := lab.DialESL(t.Context(), node.ESLAddr, wrong)
		require.ErrorIs(t, err, lab.ErrDenied, "password %q", wrong)
	}
}

// Without a password mod_event_socket falls back to one that the whole world knows; the configuration must close the door instead.
func TestFreeSWITCHEventSocketWithoutAPasswordAdmitsNobody(t *testing.T) {
	t.Parallel()
	for name, env := range map[string]map[string]string{
		"none":    nil,
		"empty":   {"TANDEM_ESL_PASSWORD": ""},
		"ClueCon": {"TANDEM_ESL_PASSWORD": "ClueCon"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			node := lab.StartNode(t, lab.Options{Locked: true, Env: env})
			for _, guess := range []string{"ClueCon", ""} {
				_, err := lab.DialESL(t.Context(), node.ESLAddr, guess)
				require.ErrorIs(t, err, lab.ErrDenied, "password %q", guess)
			}
		})
	}
}

func TestFreeSWITCHEventSocketPasswordIsNoVariable(t *testing.T) {
	t.Parallel()
	node := lab.StartNode(t, lab.Options{})
	probe := node.Probe(t)
	_, err := probe.API(t.Context(), "reloadxml")
	require.NoError(t, err)
	value, err := probe.API(t.Context(), "eval <${tandem_esl_password}>")
	require.NoError(t, err)
	require.Equal(t, "<>", value)
}

func TestFreeSWITCHPasswordFileHoldsThePassword(t *testing.T) {
	t.Parallel()
	node := lab.StartNode(t, lab.Options{})
	text, err := os.ReadFile(node.PasswordFile)
	require.NoError(t, err)
	require.Equal(t, node.Password, strings.TrimSpace(string(text)))
	require.DirExists(t, filepath.Join(node.ConfDir, "tandem", "gateways"))
}

func seconds(t *testing.T, n int) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Duration(n)*time.Second)
	t.Cleanup(cancel)
	return ctx
}

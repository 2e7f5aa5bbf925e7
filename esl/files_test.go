package esl

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestFileCommandsRefuseSyntax: what stands in these commands is made by us, and may still be nothing that a command line, a list of parameters or a
// dial string would read.
func TestFileCommandsRefuseSyntax(t *testing.T) {
	t.Parallel()
	n := &Node{}
	const url, path = "http://10.0.0.5:8081/internal/files/0a1b/one.xml", "/etc/freeswitch/tandem/gateways/+.one-1.xml"
	for _, bad := range []string{
		"", "ftp://h/a", "http://", "http://h", "http://h/", "http://h//a", "http://u:p@h/a", "http://h/a b", "http://h/a?b=c", "http://h/a#b", "http://h/{a}", "http://h/a,b",
		"http://h/$a", "http://h/a|b", "http://h/a\nb", "http://h:99999999/a", "http://h/" + strings.Repeat("a", 1024),
	} {
		_, err := n.FetchFile(t.Context(), bad)
		require.ErrorIs(t, err, ErrRefusedInput, bad)
		require.ErrorIs(t, n.SendFile(t.Context(), bad, path), ErrRefusedInput, bad)
	}
	for _, bad := range []string{"", "a b", "/a|b", "/a)b", "/a/../b", "//a", "/a\nb", "/a,b", "${a}"} {
		require.ErrorIs(t, n.SendFile(t.Context(), url, bad), ErrRefusedInput, bad)
		_, err := n.FileExists(t.Context(), bad)
		require.ErrorIs(t, err, ErrRefusedInput, bad)
		require.ErrorIs(t, n.MoveFiles(t.Context(), []Move{{From: path, To: bad}}), ErrRefusedInput, bad)
		require.ErrorIs(t, n.MoveFiles(t.Context(), []Move{{From: path, To: path}, {From: bad, To: path}}), ErrRefusedInput, bad)
	}
	require.NoError(t, n.MoveFiles(t.Context(), nil))
	require.ErrorIs(t, n.SendFile(t.Context(), url, path), ErrDown)
	for _, bad := range [][3]string{{"dial plan", "context", "a"}, {"dialplan", "con|text", "a"}, {"dialplan", "context", "a b"}} {
		_, err := n.LoadedXML(t.Context(), bad[0], bad[1], bad[2])
		require.ErrorIs(t, err, ErrRefusedInput)
	}
}

// TestTransferred: the event socket words a command that failed like one that does not exist.
func TestTransferred(t *testing.T) {
	t.Parallel()
	for _, reply := range []string{"-ERR", "-ERR http_get Command not found!"} {
		_, err := transferred("http_get", "", &CommandError{Command: "http_get", Reply: reply})
		require.ErrorIs(t, err, ErrTransfer)
	}
	other := &CommandError{Command: "http_get", Reply: "-ERR something else"}
	_, err := transferred("http_get", "", other)
	require.ErrorIs(t, err, other)
	require.NotErrorIs(t, err, ErrTransfer)
	_, err = transferred("http_get", "", ErrDown)
	require.ErrorIs(t, err, ErrDown)
	text, err := transferred("http_get", "/a/b.xml\n", nil)
	require.NoError(t, err)
	require.Equal(t, "/a/b.xml", text)
}

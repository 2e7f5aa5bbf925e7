package daemon

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tandem/models"
	"tandem/models/modelstest"
)

func TestNodeTokens(t *testing.T) {
	t.Parallel()
	store := modelstest.Open(t)
	o := &Operator{store: store}
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	password := file("password", "secret\n")
	made, err := o.AddNode(t.Context(), "made", "127.0.0.1:8021", password, dir, "")
	require.NoError(t, err)
	require.Regexp(t, tokenText, made.CDRToken)
	id, err := store.AuthenticateNode(t.Context(), "made", made.CDRToken)
	require.NoError(t, err)
	require.Equal(t, made.ID, id)

	given, err := o.AddNode(t.Context(), "given", "127.0.0.1:8021", password, dir, file("token", "my.own-token_0123\r\n"))
	require.NoError(t, err)
	require.Empty(t, given.CDRToken, "who gave it knows it")
	_, err = store.AuthenticateNode(t.Context(), "given", "my.own-token_0123")
	require.NoError(t, err)

	renewed, err := o.RenewCDRToken(t.Context(), "given", "")
	require.NoError(t, err)
	_, err = store.AuthenticateNode(t.Context(), "given", renewed.CDRToken)
	require.NoError(t, err)
	_, err = store.AuthenticateNode(t.Context(), "given", "my.own-token_0123")
	require.ErrorIs(t, err, models.ErrNotFound)

	for _, bad := range []string{"", "short", strings.Repeat("x", 129), "has a space in the middle", "two\nlines of sixteen chars", "a:colon-in-the-middle"} {
		_, err := o.RenewCDRToken(t.Context(), "given", file("bad", bad))
		require.ErrorContains(t, err, "cdr-token-file", bad)
		_, err = o.AddNode(t.Context(), "bad", "127.0.0.1:8021", password, dir, file("bad", bad))
		require.ErrorContains(t, err, "cdr-token-file", bad)
	}
	_, err = store.NodeByName(t.Context(), "bad")
	require.ErrorIs(t, err, models.ErrNotFound)
	_, err = o.RenewCDRToken(t.Context(), "nobody", "")
	require.ErrorIs(t, err, models.ErrNotFound)
	differences, err := o.Differences(t.Context())
	require.NoError(t, err)
	require.Empty(t, differences)
}

package dialplan

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"
)

// idOf is the name of an exchange in its URL.
func idOf(t *testing.T, url string) string {
	t.Helper()
	rest, ok := strings.CutPrefix(url, "http://127.0.0.1:1/base/internal/files/")
	require.True(t, ok, url)
	id, _, _ := strings.Cut(rest, "/")
	require.Len(t, id, 32)
	return id
}

func TestExchangeHappensOnceAndForOneNode(t *testing.T) {
	t.Parallel()
	x, err := NewExchange("http://127.0.0.1:1/base/")
	require.NoError(t, err)

	url, done := x.Offer("node_1", "tandem/gateways/one.xml", []byte("<gateway/>"))
	require.True(t, strings.HasSuffix(url, "/one.xml"))
	_, err = x.Fetch("node_2", idOf(t, url))
	require.ErrorIs(t, err, ErrNoExchange, "another node's")
	require.ErrorIs(t, x.Leave("node_1", idOf(t, url), strings.NewReader("x"), 1), ErrNoExchange, "the other way")
	content, err := x.Fetch("node_1", idOf(t, url))
	require.NoError(t, err)
	require.Equal(t, "<gateway/>", string(content))
	_, err = x.Fetch("node_1", idOf(t, url))
	require.ErrorIs(t, err, ErrNoExchange, "used")
	done()

	url, done = x.Offer("node_1", "late.xml", nil)
	done()
	_, err = x.Fetch("node_1", idOf(t, url))
	require.ErrorIs(t, err, ErrNoExchange, "over")
	require.Empty(t, x.offers)
}

func TestExchangeTakesWholeFilesOnly(t *testing.T) {
	t.Parallel()
	x, err := NewExchange("http://127.0.0.1:1/base")
	require.NoError(t, err)
	broken := errors.New("broken pipe")
	for name, c := range map[string]struct {
		body   io.Reader
		length int64
		want   error
	}{
		"as announced":     {strings.NewReader("abcd"), 4, nil},
		"not announced":    {strings.NewReader("abcd"), -1, nil},
		"shorter":          {strings.NewReader("abc"), 4, io.ErrUnexpectedEOF},
		"broken off":       {iotest.ErrReader(broken), 4, broken},
		"announced large":  {strings.NewReader("abcde"), 5, ErrTooLarge},
		"large":            {strings.NewReader("abcde"), -1, ErrTooLarge},
		"larger than said": {bytes.NewReader([]byte("abcdefgh")), 4, ErrTooLarge},
	} {
		url, arrived, done := x.Want("node_1", "a.xml", 4)
		require.ErrorIs(t, x.Leave("node_2", idOf(t, url), strings.NewReader("abcd"), 4), ErrNoExchange, name)
		err := x.Leave("node_1", idOf(t, url), c.body, c.length)
		require.ErrorIs(t, err, c.want, name)
		if c.want == nil {
			require.Equal(t, "abcd", string(<-arrived), name)
		} else {
			require.Empty(t, arrived, name)
		}
		require.ErrorIs(t, x.Leave("node_1", idOf(t, url), strings.NewReader("abcd"), 4), ErrNoExchange, name)
		done()
	}
	for _, bad := range []string{"", "nodes.example", "ftp://nodes.example", "http://", "http://a:b@nodes.example", "http://nodes.example/?a=b", "http://nodes.example/#a", ":"} {
		_, err := NewExchange(bad)
		require.Error(t, err, bad)
	}
}

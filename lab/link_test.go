package lab_test

import (
	"bufio"
	"io"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tandem/lab"
)

// echo answers each line with the same line.
func echo(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				_, _ = io.Copy(conn, conn)
				_ = conn.Close()
			}()
		}
	}()
	return listener.Addr().String()
}

func TestLink(t *testing.T) {
	t.Parallel()
	link, err := lab.NewLink(t.Context(), echo(t))
	require.NoError(t, err)
	t.Cleanup(link.Close)
	dial := func() (net.Conn, *bufio.Reader) {
		conn, err := net.Dial("tcp", link.Addr())
		require.NoError(t, err)
		t.Cleanup(func() { _ = conn.Close() })
		require.NoError(t, conn.SetDeadline(time.Now().Add(20*time.Second)))
		return conn, bufio.NewReader(conn)
	}
	say := func(conn net.Conn, text string) {
		_, err := io.WriteString(conn, text+"\n")
		require.NoError(t, err)
	}
	hears := func(reader *bufio.Reader, text string) {
		line, err := reader.ReadString('\n')
		require.NoError(t, err)
		require.Equal(t, text+"\n", line)
	}

	conn, reader := dial()
	say(conn, "first")
	hears(reader, "first")

	// What is said while the link is silent is heard when it is up again, on old connections and on new ones.
	link.Set(lab.LinkSilent)
	other, otherReader := dial()
	say(conn, "second")
	say(other, "third")
	require.NoError(t, conn.SetReadDeadline(time.Now().Add(50*time.Millisecond)))
	_, err = reader.ReadByte()
	require.Error(t, err, "something passed a link that is cut")
	require.NoError(t, conn.SetReadDeadline(time.Now().Add(20*time.Second)))
	link.Set(lab.LinkUp)
	hears(reader, "second")
	hears(otherReader, "third")

	// A reset is told to both.
	link.Set(lab.LinkReset)
	for _, reader := range []*bufio.Reader{reader, otherReader} {
		_, err = reader.ReadByte()
		require.Error(t, err)
	}
	link.Set(lab.LinkUp)
	conn, reader = dial()
	say(conn, "fourth")
	hears(reader, "fourth")
}

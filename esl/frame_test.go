package esl

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"
)

func frames(t testing.TB, r io.Reader) (list []frame, err error) {
	t.Helper()
	fr := newFrameReader(r)
	for {
		f, err := fr.read()
		if err != nil {
			return list, err
		}
		list = append(list, f)
	}
}

func TestFramesStayInStep(t *testing.T) {
	t.Parallel()
	stream := "\n\r\nContent-Type: auth/request\n\n" +
		"Content-Type: command/reply; charset=utf-8 \r\nReply-Text: +OK 100% [a]=[b] %zz\r\n\r\n" +
		"Content-Type: log/data\nContent-Length: 12\nLog-File: switch.c\nUser-Data: a:b\n\nhello\nworld\n" +
		"content-LENGTH:  4 \nContent-Type: text/something-new\n\nbody" +
		"variable_[odd](name)@=,;{}<>?\": x\nno colon at all\n: empty name\nünïcode: ÿ\nContent-Type: api/response\nContent-Length: 2\n\nok" +
		"Content-Type: api/response\nContent-Length: 0\n\n"
	for name, r := range map[string]io.Reader{"whole": strings.NewReader(stream), "byte by byte": iotest.OneByteReader(strings.NewReader(stream))} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := frames(t, r)
			require.ErrorIs(t, err, io.EOF)
			require.Len(t, got, 6)
			require.Equal(t, "auth/request", got[0].kind)
			require.Equal(t, "command/reply", got[1].kind)
			require.Equal(t, "+OK 100% [a]=[b] %zz", got[1].replyText())
			require.Equal(t, frame{kind: "log/data", body: "hello\nworld\n", header: got[2].header}, got[2])
			require.Equal(t, "body", got[3].body)
			require.Equal(t, "ok", got[4].body)
			require.Equal(t, "x", headerValue(got[4].header, `variable_[odd](name)@=,;{}<>?"`))
			require.Empty(t, got[5].body)
		})
	}
}

func TestFramesThatCannotBe(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		stream string
		want   error
	}{
		"negative length":    {"Content-Length: -1\n\n", ErrFrame},
		"length that is not": {"Content-Length: ten\n\n", ErrFrame},
		"length over limit":  {"Content-Length: 16777217\n\n", ErrFrame},
		"absurd length":      {"Content-Length: 99999999999999999999\n\n", ErrFrame},
		"line over limit":    {strings.Repeat("x", maxHeaderBytes+1), ErrFrame},
		"header over limit":  {strings.Repeat("key: value\n", maxHeaderBytes/10+1) + "\n", ErrFrame},
		"half a header":      {"Content-Type: api/resp", io.ErrUnexpectedEOF},
		"header, no end":     {"Content-Type: api/response\n", io.ErrUnexpectedEOF},
		"half a body":        {"Content-Length: 10\n\nhalf", io.ErrUnexpectedEOF},
		"nothing":            {"", io.EOF},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := frames(t, strings.NewReader(tc.stream))
			require.ErrorIs(t, err, tc.want)
			require.Empty(t, got)
			require.Equal(t, name == "nothing", errors.Is(err, io.EOF), "only a clean end is EOF")
		})
	}
}

func TestLargestBody(t *testing.T) {
	t.Parallel()
	body := strings.Repeat("0123456789abcdef", maxBodyBytes/16)
	got, err := frames(t, iotest.HalfReader(strings.NewReader("Content-Length: 16777216\n\n"+body)))
	require.ErrorIs(t, err, io.EOF)
	require.Len(t, got, 1)
	require.Zero(t, strings.Compare(body, got[0].body)) // require.Equal would print 16 MiB
}

func FuzzFrames(f *testing.F) {
	f.Add([]byte("Content-Type: auth/request\n\n"))
	f.Add([]byte("Content-Length: 5\nContent-Type: text/event-json\n\n{\"a\":Content-Type: x\n\n"))
	f.Add([]byte("Content-Length: -1\n\n"))
	f.Add([]byte("\r\n\r\nReply-Text: +OK\r\n\r\n"))
	f.Fuzz(func(t *testing.T, stream []byte) {
		whole, err := frames(t, bytes.NewReader(stream))
		require.Error(t, err)
		pieces, err2 := frames(t, iotest.OneByteReader(bytes.NewReader(stream)))
		require.Equal(t, whole, pieces, "how the bytes arrive must not matter")
		require.Equal(t, err.Error(), err2.Error())
		size := 0
		for _, fr := range whole {
			size += len(fr.header) + len(fr.body)
		}
		require.LessOrEqual(t, size, len(stream))
	})
}

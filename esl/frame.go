package esl

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/percipia/eslgo"
)

// Bounds of one frame. FreeSWITCH writes headers of a few hundred bytes; the largest bodies are `show channels` and events full of variables.
const (
	maxHeaderBytes = 64 << 10
	maxBodyBytes   = 16 << 20
)

// ErrFrame says that what arrived is not the Event Socket protocol: a header block without end, a length that is none.
var ErrFrame = errors.New("malformed frame")

// typeRudeRejection is what FreeSWITCH says before it closes a connection that its ACL refuses (mod_event_socket.c, listener_run). typeLog is
// a log line; we never ask for them, but another client of the same switch cannot make them fatal.
const typeRudeRejection = "text/rude-rejection"

// frame is one message from the switch.
type frame struct {
	kind   string // Content-Type without parameters
	header string // the header block as it came, one "Name: value" a line
	body   string
}

// replyText is the Reply-Text of a command/reply. FreeSWITCH sends it raw: a percent sign is a percent sign.
func (f *frame) replyText() string { return headerValue(f.header, "Reply-Text") }

// headerValue finds a header in a block of lines. Names are not restricted to the characters of MIME headers: FreeSWITCH puts variables with
// brackets and blanks into them.
func headerValue(block, name string) string {
	for line := range strings.SplitSeq(block, "\n") {
		key, value, ok := strings.Cut(line, ":")
		if ok && len(key) == len(name) && strings.EqualFold(key, name) {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// frameReader reads frames from a connection. It never trusts a length and never drops a frame whose type it does not know: the type is the
// reader's caller's business, the length is what keeps the stream in step.
type frameReader struct {
	r *bufio.Reader
}

func newFrameReader(r io.Reader) *frameReader {
	return &frameReader{r: bufio.NewReaderSize(r, maxHeaderBytes)}
}

// read returns the next frame. io.EOF means the peer closed between two frames; any other end is an error that wraps io.ErrUnexpectedEOF or
// the connection's own.
func (fr *frameReader) read() (frame, error) {
	header, err := fr.readHeader()
	if err != nil {
		return frame{}, err
	}
	f := frame{header: header}
	length, typ := 0, ""
	for line := range strings.SplitSeq(header, "\n") {
		key, value, ok := strings.Cut(line, ":")
		if !ok {
			continue
		}
		switch {
		case len(key) == len("Content-Type") && strings.EqualFold(key, "Content-Type"):
			typ = strings.TrimSpace(value)
		case len(key) == len("Content-Length") && strings.EqualFold(key, "Content-Length"):
			length, err = strconv.Atoi(strings.TrimSpace(value))
			if err != nil || length < 0 || length > maxBodyBytes {
				return frame{}, fmt.Errorf("%w: content length %q", ErrFrame, clip(strings.TrimSpace(value)))
			}
		}
	}
	typ, _, _ = strings.Cut(typ, ";")
	f.kind = internKind(strings.TrimSpace(typ))
	if length > 0 {
		if f.body, err = fr.readBody(length); err != nil {
			return frame{}, fmt.Errorf("read body of %d bytes: %w", length, err)
		}
	}
	return f, nil
}

// readHeader reads up to the blank line that ends a header block, skipping blank lines before it.
func (fr *frameReader) readHeader() (string, error) {
	var block strings.Builder
	for {
		line, err := fr.r.ReadSlice('\n')
		if err != nil {
			switch {
			case errors.Is(err, bufio.ErrBufferFull):
				return "", fmt.Errorf("%w: header line over %d bytes", ErrFrame, maxHeaderBytes)
			case errors.Is(err, io.EOF) && (block.Len() > 0 || len(line) > 0):
				return "", fmt.Errorf("read header: %w", io.ErrUnexpectedEOF)
			}
			return "", err
		}
		line = trimEOL(line)
		if len(line) == 0 {
			if block.Len() == 0 {
				continue
			}
			return block.String(), nil
		}
		if block.Len()+len(line) > maxHeaderBytes {
			return "", fmt.Errorf("%w: header over %d bytes", ErrFrame, maxHeaderBytes)
		}
		if block.Len() > 0 {
			block.WriteByte('\n')
		} else {
			block.Grow(96)
		}
		block.Write(line)
	}
}

func trimEOL(line []byte) []byte {
	line = line[:len(line)-1]
	if n := len(line); n > 0 && line[n-1] == '\r' {
		line = line[:n-1]
	}
	return line
}

// readBody copies n bytes out of the buffer. It grows as the bytes arrive beyond 64 KiB, so that a length alone cannot make us allocate 16 MiB.
func (fr *frameReader) readBody(n int) (string, error) {
	var body strings.Builder
	body.Grow(min(n, maxHeaderBytes))
	for body.Len() < n {
		want := min(n-body.Len(), max(fr.r.Buffered(), 1))
		chunk, err := fr.r.Peek(want)
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return "", err
		}
		body.Write(chunk)
		if _, err := fr.r.Discard(len(chunk)); err != nil {
			return "", err
		}
	}
	return body.String(), nil
}

// internKind spares an allocation for the types that every connection sees.
func internKind(kind string) string {
	switch kind {
	case eslgo.TypeEventJSON:
		return eslgo.TypeEventJSON
	case eslgo.TypeReply:
		return eslgo.TypeReply
	case eslgo.TypeAPIResponse:
		return eslgo.TypeAPIResponse
	case eslgo.TypeAuthRequest:
		return eslgo.TypeAuthRequest
	case eslgo.TypeDisconnect:
		return eslgo.TypeDisconnect
	}
	return kind
}

// clip shortens what a peer sent before it goes into an error or a log line.
func clip(s string) string {
	const most = 80
	if len(s) <= most {
		return s
	}
	return s[:most] + "…"
}

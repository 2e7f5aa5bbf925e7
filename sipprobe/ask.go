package sipprobe

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"time"

	"github.com/emiago/sipgo/sip"
)

// maxAnswer bounds one answer, and what is read of a connection before it.
const maxAnswer = 64 << 10

// retransmit is RFC 3261's T1: how soon an unanswered request is sent again over UDP, then twice as late each time.
const retransmit = 500 * time.Millisecond

// Line is a connection to a place, or a socket that sends there.
type Line struct {
	Place Place
	// Took is how long it took to connect, the TLS handshake included; nothing is connected with UDP.
	Took time.Duration
	// Certificate says whose the server's certificate is, who signed it and until when; empty without TLS.
	Certificate string
	conn        net.Conn
	prober      *Prober
}

// Connect opens a line to a place. host is the name that a certificate must be for.
func (p *Prober) Connect(ctx context.Context, place Place, host string) (*Line, error) {
	ctx, cancel := context.WithTimeout(ctx, p.cfg.Patience)
	defer cancel()
	network := TCP
	if place.Transport == UDP {
		network = UDP
	}
	begun := time.Now()
	conn, err := p.dialer.DialContext(ctx, network, place.Addr.String())
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", place, err)
	}
	line := &Line{Place: place, conn: conn, prober: p}
	if place.Transport == TLS {
		config := &tls.Config{MinVersion: tls.VersionTLS12}
		if p.cfg.TLS != nil {
			config = p.cfg.TLS.Clone()
		}
		config.ServerName = strings.Trim(host, "[]")
		secure := tls.Client(conn, config)
		if err := secure.HandshakeContext(ctx); err != nil {
			_ = conn.Close()
			return nil, fmt.Errorf("TLS handshake with %s: %w", place, err)
		}
		state := secure.ConnectionState()
		leaf := state.PeerCertificates[0]
		line.Certificate = fmt.Sprintf("%s, certificate of %q by %q, valid until %s", tls.VersionName(state.Version), printable(leaf.Subject.CommonName),
			printable(leaf.Issuer.CommonName), leaf.NotAfter.UTC().Format(time.DateOnly))
		line.conn = secure
	}
	line.Took = time.Since(begun)
	return line, nil
}

// Close ends the line.
func (l *Line) Close() error { return l.conn.Close() }

// local is the address that the server sees, as far as we know it.
func (l *Line) local() netip.AddrPort {
	local, _ := netip.ParseAddrPort(l.conn.LocalAddr().String())
	return netip.AddrPortFrom(local.Addr().Unmap(), local.Port())
}

// request is a message that is yet to be written.
type request struct {
	method  string
	uri     string
	from    string // the address-of-record in From and, of a REGISTER, To
	to      string
	headers []string
	callID  string
	tag     string
	seq     int
}

func newRequest(method, uri, from, to string) *request {
	return &request{method: method, uri: uri, from: from, to: to, callID: strings.ToLower(rand.Text()), tag: strings.ToLower(rand.Text()[:10])}
}

// write writes the message with a branch of its own.
func (r *request) write(l *Line) (message []byte, branch string) {
	r.seq++
	branch = "z9hG4bK" + strings.ToLower(rand.Text()[:16])
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\r\n", args...) }
	line("%s %s SIP/2.0", r.method, r.uri)
	line("Via: SIP/2.0/%s %s;branch=%s;rport", strings.ToUpper(l.Place.Transport), l.local(), branch)
	line("Max-Forwards: 70")
	line("From: <%s>;tag=%s", r.from, r.tag)
	line("To: <%s>", r.to)
	line("Call-ID: %s", r.callID)
	line("CSeq: %d %s", r.seq, r.method)
	line("User-Agent: %s", l.prober.cfg.UserAgent)
	for _, header := range r.headers {
		line("%s", header)
	}
	line("Content-Length: 0\r\n")
	return []byte(b.String()), branch
}

// ask sends a request and waits for its final answer.
func (l *Line) ask(ctx context.Context, r *request) (*sip.Response, time.Duration, error) {
	message, branch := r.write(l)
	begun := time.Now()
	limit := begun.Add(l.prober.cfg.Patience)
	if deadline, ok := ctx.Deadline(); ok && deadline.Before(limit) {
		limit = deadline
	}
	stop := context.AfterFunc(ctx, func() { _ = l.conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	read := l.stream
	if l.Place.Transport == UDP {
		read = l.datagram
	}
	wait := retransmit
	for {
		if err := l.conn.SetDeadline(limit); err != nil {
			return nil, 0, fmt.Errorf("ask %s: %w", l.Place, err)
		}
		if _, err := l.conn.Write(message); err != nil {
			return nil, 0, fmt.Errorf("send to %s: %w", l.Place, err)
		}
		until := limit
		if again := time.Now().Add(wait); l.Place.Transport == UDP && again.Before(limit) {
			until = again
		}
		answer, err := read(until, func(res *sip.Response) bool { return answers(res, r, branch) })
		switch {
		case err == nil:
			return answer, time.Since(begun), nil
		case ctx.Err() != nil:
			return nil, 0, fmt.Errorf("ask %s: %w", l.Place, ctx.Err())
		case !isTimeout(err):
			return nil, 0, fmt.Errorf("ask %s: %w", l.Place, err)
		case !time.Now().Before(limit):
			return nil, 0, fmt.Errorf("ask %s: %w within %s", l.Place, ErrNoAnswer, l.prober.cfg.Patience)
		}
		wait *= 2
	}
}

// answers says whether a message is the final answer to a request (RFC 3261 §17.1.3).
func answers(res *sip.Response, r *request, branch string) bool {
	if res.StatusCode < 200 {
		return false
	}
	via, seq, call := res.Via(), res.CSeq(), res.CallID()
	if via == nil || seq == nil || call == nil {
		return false
	}
	sent, _ := via.Params.Get("branch")
	return sent == branch && int(seq.SeqNo) == r.seq && string(seq.MethodName) == r.method && string(*call) == r.callID
}

func isTimeout(err error) bool {
	var network net.Error
	return errors.As(err, &network) && network.Timeout()
}

// datagram reads packets until one is wanted. What is no SIP is passed over.
func (l *Line) datagram(until time.Time, wanted func(*sip.Response) bool) (*sip.Response, error) {
	if err := l.conn.SetReadDeadline(until); err != nil {
		return nil, err
	}
	packet := make([]byte, maxAnswer)
	for {
		n, err := l.conn.Read(packet)
		if err != nil {
			return nil, err
		}
		message, err := parse(packet[:n])
		if err != nil {
			continue
		}
		if res, ok := message.(*sip.Response); ok && wanted(res) {
			return res, nil
		}
	}
}

// stream reads a connection until a message is wanted, or there is too much.
func (l *Line) stream(until time.Time, wanted func(*sip.Response) bool) (*sip.Response, error) {
	if err := l.conn.SetReadDeadline(until); err != nil {
		return nil, err
	}
	parser := sip.NewParser().NewSIPStream()
	defer parser.Close()
	part, total := make([]byte, 4096), 0
	for total < maxAnswer {
		n, err := l.conn.Read(part)
		if err != nil {
			return nil, err
		}
		total += n
		var found *sip.Response
		err = feed(parser, part[:n], func(message sip.Message) {
			if res, ok := message.(*sip.Response); ok && found == nil && wanted(res) {
				found = res
			}
		})
		switch {
		case found != nil:
			return found, nil
		case err != nil && !errors.Is(err, sip.ErrParseSipPartial) && !errors.Is(err, io.ErrUnexpectedEOF):
			return nil, fmt.Errorf("what came is no SIP: %w", err)
		}
	}
	return nil, errors.New("too much came, and no answer")
}

// parse reads a packet. A fault of the parser is an error of the message.
func parse(packet []byte) (message sip.Message, err error) {
	defer faults(&err)
	return sip.ParseMessage(packet)
}

func feed(parser *sip.ParserStream, part []byte, each func(sip.Message)) (err error) {
	defer faults(&err)
	return parser.ParseSIPStream(part, each)
}

// faults, deferred, turns a panic over what somebody sent into an error.
func faults(err *error) {
	if fault := recover(); fault != nil {
		*err = fmt.Errorf("message cannot be read: %v", fault)
	}
}

// printable is a text of the other side as it may be shown: short, in one line, without control characters.
func printable(text string) string {
	const most = 200
	clean := strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r == '\u2028' || r == '\u2029' || r >= 0x80 && r < 0xa0 {
			return -1
		}
		return r
	}, strings.ToValidUTF8(text, "\uFFFD"))
	if runes := []rune(clean); len(runes) > most {
		return string(runes[:most]) + "…"
	}
	return clean
}

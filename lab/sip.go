package lab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"
)

// Request is a SIP request that a stranger sends over UDP, without a SIP stack of any manners.
type Request struct {
	// Method is INVITE by default.
	Method string
	// NodeSIP is where it goes; URI is the request URI, by default sip:To@NodeSIP.
	NodeSIP, URI string
	// From and To are the user parts.
	From, To string
	// Local is the loopback address it comes from: 127.0.0.1 by default.
	Local string
	// Headers are added as they are, without line ends.
	Headers []string
	// Body goes out with ContentType; an INVITE has an SDP offer by default.
	Body, ContentType string
}

// SendRequest sends the request, repeating it as SIP does over UDP, and returns the status of the final response. It
// acknowledges a final response to an INVITE, and hangs an answered one up.
func SendRequest(ctx context.Context, r Request) (status int, err error) {
	r.defaults()
	remote, err := net.ResolveUDPAddr("udp", r.NodeSIP)
	if err != nil {
		return 0, fmt.Errorf("send %s: %w", r.Method, err)
	}
	conn, err := net.DialUDP("udp", &net.UDPAddr{IP: net.ParseIP(r.Local)}, remote)
	if err != nil {
		return 0, fmt.Errorf("send %s: %w", r.Method, err)
	}
	defer func() { _ = conn.Close() }()
	d := dialog{request: r, local: conn.LocalAddr().String(), branch: "z9hG4bK" + uuid(), tag: uuid(), callID: uuid()}

	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()

	buffer := make([]byte, 64<<10)
	for {
		if _, err := conn.Write(d.message(r.Method, 1, "", r.Body)); err != nil {
			return 0, fmt.Errorf("send %s: %w", r.Method, err)
		}
		repeat := time.Now().Add(500 * time.Millisecond)
		for {
			_ = conn.SetReadDeadline(repeat)
			n, err := conn.Read(buffer)
			if ctx.Err() != nil {
				return 0, fmt.Errorf("wait for the answer to %s: %w", r.Method, ctx.Err())
			}
			if isTimeout(err) {
				break
			}
			if err != nil {
				return 0, fmt.Errorf("read the answer to %s: %w", r.Method, err)
			}
			status, to, ours := d.response(buffer[:n])
			if !ours || status < 200 {
				if ours {
					repeat = time.Now().Add(time.Minute)
				}
				continue
			}
			if r.Method == "INVITE" {
				_, _ = conn.Write(d.message("ACK", 1, to, ""))
				if status < 300 {
					_, _ = conn.Write(d.message("BYE", 2, to, ""))
				}
			}
			return status, nil
		}
	}
}

func (r *Request) defaults() {
	if r.Method == "" {
		r.Method = "INVITE"
	}
	if r.Local == "" {
		r.Local = "127.0.0.1"
	}
	if r.From == "" {
		r.From = "stranger"
	}
	if r.URI == "" {
		r.URI = "sip:" + r.To + "@" + r.NodeSIP
	}
	if r.Method == "INVITE" && r.Body == "" {
		r.ContentType = "application/sdp"
		r.Body = "v=0\r\no=- 1 1 IN IP4 " + r.Local + "\r\ns=-\r\nc=IN IP4 " + r.Local +
			"\r\nt=0 0\r\nm=audio 9 RTP/AVP 0 101\r\na=rtpmap:0 PCMU/8000\r\na=rtpmap:101 telephone-event/8000\r\n"
	}
}

type dialog struct {
	request                    Request
	local, branch, tag, callID string
}

func (d dialog) message(method string, sequence int, to, body string) []byte {
	if to == "" {
		to = "<" + d.request.URI + ">"
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s %s SIP/2.0\r\n", method, d.request.URI)
	fmt.Fprintf(&b, "Via: SIP/2.0/UDP %s;rport;branch=%s-%d\r\n", d.local, d.branch, sequence)
	fmt.Fprintf(&b, "From: <sip:%s@%s>;tag=%s\r\nTo: %s\r\n", d.request.From, d.local, d.tag, to)
	fmt.Fprintf(&b, "Call-ID: %s\r\nCSeq: %d %s\r\nMax-Forwards: 70\r\nContact: <sip:%s>\r\n", d.callID, sequence, method, d.local)
	if method == d.request.Method {
		for _, header := range d.request.Headers {
			b.WriteString(header + "\r\n")
		}
		if body != "" {
			fmt.Fprintf(&b, "Content-Type: %s\r\n", d.request.ContentType)
		}
	}
	fmt.Fprintf(&b, "Content-Length: %d\r\n\r\n%s", len(body), body)
	return b.Bytes()
}

// response reads the status and the To header of a response that belongs to the dialog.
func (d dialog) response(packet []byte) (status int, to string, ours bool) {
	head, _, _ := strings.Cut(string(packet), "\r\n\r\n")
	lines := strings.Split(head, "\r\n")
	rest, found := strings.CutPrefix(lines[0], "SIP/2.0 ")
	if !found || len(rest) < 3 {
		return 0, "", false
	}
	status, err := strconv.Atoi(rest[:3])
	if err != nil {
		return 0, "", false
	}
	for _, line := range lines[1:] {
		name, value, _ := strings.Cut(line, ":")
		switch strings.ToLower(strings.TrimSpace(name)) {
		case "to", "t":
			to = strings.TrimSpace(value)
		case "call-id", "i":
			ours = strings.TrimSpace(value) == d.callID
		}
	}
	return status, to, ours
}

func isTimeout(err error) bool {
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout()
}

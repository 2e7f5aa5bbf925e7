package sipprobe

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"time"

	"github.com/emiago/sipgo/sip"
	"github.com/icholy/digest"
)

// Reply is the final answer to a request.
type Reply struct {
	Place  Place
	Status int
	// Phrase, Server and Warning are the other side's words, short and without control characters; Server is what it calls itself.
	Phrase, Server, Warning string
	Took                    time.Duration
	// Contacts are the bindings that a REGISTER has found, at most 10.
	Contacts []string
	// Challenged says that a login was asked for.
	Challenged bool
	// Algorithm is that of the login.
	Algorithm string
}

// String is the answer for a person to read.
func (r *Reply) String() string {
	text := fmt.Sprintf("%s: %d %s in %s", r.Place, r.Status, r.Phrase, r.Took.Round(time.Millisecond))
	if r.Server != "" {
		text += " (" + r.Server + ")"
	}
	if r.Warning != "" {
		text += ", warning: " + r.Warning
	}
	return text
}

const maxContacts = 10

func replyOf(place Place, res *sip.Response, took time.Duration) *Reply {
	reply := &Reply{Place: place, Status: res.StatusCode, Phrase: printable(res.Reason), Took: took}
	for _, name := range []string{"Server", "User-Agent"} {
		if header := res.GetHeader(name); header != nil && reply.Server == "" {
			reply.Server = printable(header.Value())
		}
	}
	for _, name := range []string{"Warning", "Reason"} {
		if header := res.GetHeader(name); header != nil && reply.Warning == "" {
			reply.Warning = printable(header.Value())
		}
	}
	for _, header := range res.GetHeaders("Contact") {
		if len(reply.Contacts) < maxContacts {
			reply.Contacts = append(reply.Contacts, printable(header.Value()))
		}
	}
	return reply
}

// uriParts are what stands in the URIs of requests.
var (
	userPattern   = regexp.MustCompile(`^[A-Za-z0-9._~!*'()+%-]{1,400}$`)
	domainPattern = regexp.MustCompile(`^[A-Za-z0-9.\[\]:-]{1,300}$`)
)

// Identity is who asks. User is percent-encoded as in a URI, and may be empty.
type Identity struct {
	User   string
	Domain string
}

func (i Identity) uri() (string, error) {
	if !domainPattern.MatchString(i.Domain) {
		return "", errors.New("domain is no host")
	}
	if i.User == "" {
		return "sip:" + i.Domain, nil
	}
	if !userPattern.MatchString(i.User) {
		return "", errors.New("user has characters that no URI has")
	}
	return "sip:" + i.User + "@" + i.Domain, nil
}

// Options asks what the server can do, which shows that it is there (RFC 3261 §11). Any answer does.
func (l *Line) Options(ctx context.Context, from Identity, host string) (*Reply, error) {
	own, err := from.uri()
	if err != nil {
		return nil, fmt.Errorf("ask for options: %w", err)
	}
	target, err := Identity{Domain: host}.uri()
	if err != nil {
		return nil, fmt.Errorf("ask for options: %w", err)
	}
	r := newRequest(string(sip.OPTIONS), target, own, target)
	r.headers = []string{"Accept: application/sdp"}
	res, took, err := l.ask(ctx, r)
	if err != nil {
		return nil, err
	}
	return replyOf(l.Place, res, took), nil
}

// Bindings logs in and asks for what is registered under the identity, without registering anything. A wrong password is an answer, no error.
func (l *Line) Bindings(ctx context.Context, who Identity, username, password string) (*Reply, error) {
	own, err := who.uri()
	if err != nil {
		return nil, fmt.Errorf("ask for bindings: %w", err)
	}
	registrar := "sip:" + who.Domain
	r := newRequest(string(sip.REGISTER), registrar, own, own)
	res, took, err := l.ask(ctx, r)
	if err != nil {
		return nil, err
	}
	header, answer := "WWW-Authenticate", "Authorization"
	switch res.StatusCode {
	case http.StatusUnauthorized:
	case http.StatusProxyAuthRequired:
		header, answer = "Proxy-Authenticate", "Proxy-Authorization"
	default:
		return replyOf(l.Place, res, took), nil
	}
	challenge, err := challengeOf(res, header)
	if err != nil {
		return nil, fmt.Errorf("%s asks for a login that cannot be given: %w", l.Place, err)
	}
	credentials, err := digest.Digest(challenge, digest.Options{
		Method: r.method, URI: registrar, Username: username, Password: password,
	})
	if err != nil {
		return nil, fmt.Errorf("%s asks for a login that cannot be given: %w", l.Place, err)
	}
	r.headers = []string{answer + ": " + credentials.String()}
	if res, took, err = l.ask(ctx, r); err != nil {
		return nil, err
	}
	reply := replyOf(l.Place, res, took)
	reply.Challenged, reply.Algorithm = true, printable(challenge.Algorithm)
	return reply, nil
}

// challengeOf is the first challenge of an answer that can be met.
func challengeOf(res *sip.Response, name string) (*digest.Challenge, error) {
	failure := errors.New("it does not say how")
	for _, header := range res.GetHeaders(name) {
		value := header.Value()
		if strings.ContainsAny(value, "\r\n") {
			continue
		}
		challenge, err := digest.ParseChallenge(value)
		if err != nil {
			failure = fmt.Errorf("challenge: %w", err)
			continue
		}
		if !digest.CanDigest(challenge) {
			failure = fmt.Errorf("algorithm %q is not known", printable(challenge.Algorithm))
			continue
		}
		if !plain(challenge) {
			failure = errors.New("the challenge holds characters that cannot be given back")
			continue
		}
		return challenge, nil
	}
	return nil, failure
}

// plain says whether what the credentials repeat of a challenge cannot end the header or a quoted string in it.
func plain(c *digest.Challenge) bool {
	for _, text := range []string{c.Realm, c.Nonce, c.Opaque, c.Algorithm} {
		if strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r == 0x7f || r == '"' || r == '\\' }) {
			return false
		}
	}
	return true
}

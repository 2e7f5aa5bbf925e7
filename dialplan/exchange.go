package dialplan

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/url"
	"path"
	"strings"
	"sync"
)

// Errors of an Exchange; test with errors.Is.
var (
	// ErrNoExchange: what the node asks for or brings is not on offer, not wanted, another node's, or has been taken before.
	ErrNoExchange = errors.New("dialplan: there is no such file for this node")
	// ErrTooLarge: what the node brings is larger than what was asked for can be.
	ErrTooLarge = errors.New("dialplan: the file is too large")
)

// exchangePath is where files are, below the URL that nodes reach this process at.
const exchangePath = "/internal/files"

// Exchange is where nodes whose disk we do not share fetch the files that they are to have, and leave those that we want to see. Each
// exchange has a random name, is meant for one node, and happens once. It lives in memory: who waits for it dies with it.
type Exchange struct {
	base string

	mu     sync.Mutex
	offers map[string]*offer
}

// offer is one file on its way, in either direction.
type offer struct {
	node    string
	content []byte // to fetch
	limit   int64  // to leave: at most so many bytes
	arrived chan []byte
}

// NewExchange makes an exchange that nodes reach at a URL: http or https, a host, perhaps a port and a path, nothing else.
func NewExchange(base string) (*Exchange, error) {
	u, err := url.Parse(base)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return nil, fmt.Errorf("dialplan: %q is no http or https URL without query and user", base)
	}
	return &Exchange{base: strings.TrimSuffix(base, "/"), offers: map[string]*offer{}}, nil
}

func (x *Exchange) add(o *offer, name string) (url string, done func()) {
	var raw [16]byte
	_, _ = rand.Read(raw[:]) // never fails: crypto/rand.Read crashes the program instead
	id := hex.EncodeToString(raw[:])
	x.mu.Lock()
	x.offers[id] = o
	x.mu.Unlock()
	return x.base + exchangePath + "/" + id + "/" + strings.ReplaceAll(path.Base(name), "+", "_"), func() {
		x.mu.Lock()
		defer x.mu.Unlock()
		delete(x.offers, id)
	}
}

// Offer lets a node fetch a file, once, until done is called.
func (x *Exchange) Offer(node, name string, content []byte) (url string, done func()) {
	return x.add(&offer{node: node, content: content}, name)
}

// Want lets a node leave a file of at most limit bytes, once, until done is called. What it leaves has arrived before the node is told so.
func (x *Exchange) Want(node, name string, limit int64) (url string, arrived <-chan []byte, done func()) {
	o := &offer{node: node, limit: limit, arrived: make(chan []byte, 1)}
	url, done = x.add(o, name)
	return url, o.arrived, done
}

// take removes an exchange that a node may make.
func (x *Exchange) take(node, id string, bringing bool) (*offer, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	o := x.offers[id]
	if o == nil || o.node != node || (o.arrived != nil) != bringing {
		return nil, ErrNoExchange
	}
	delete(x.offers, id)
	return o, nil
}

// Fetch returns the file that a node fetches under a name, or ErrNoExchange.
func (x *Exchange) Fetch(node, id string) ([]byte, error) {
	o, err := x.take(node, id, false)
	if err != nil {
		return nil, err
	}
	return o.content, nil
}

// Leave takes the file that a node leaves under a name: ErrNoExchange, ErrTooLarge, or the error of reading it. length is what the node
// says, -1 when it does not: less than that is a file that did not come whole.
func (x *Exchange) Leave(node, id string, body io.Reader, length int64) error {
	o, err := x.take(node, id, true)
	if err != nil {
		return err
	}
	if length > o.limit {
		return ErrTooLarge
	}
	var content bytes.Buffer
	n, err := io.Copy(&content, io.LimitReader(body, o.limit+1))
	switch {
	case err != nil:
		return fmt.Errorf("read the file of a node: %w", err)
	case n > o.limit:
		return ErrTooLarge
	case length >= 0 && n != length:
		return fmt.Errorf("read the file of a node: %w", io.ErrUnexpectedEOF)
	}
	o.arrived <- content.Bytes()
	return nil
}

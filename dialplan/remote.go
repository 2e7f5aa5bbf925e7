package dialplan

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"tandem/esl"
	"tandem/models"
)

// Courier is what the switch of a node can do with its own files; *esl.Node is one.
type Courier interface {
	FetchFile(ctx context.Context, url string) (path string, err error)
	SendFile(ctx context.Context, url, path string) error
	FileExists(ctx context.Context, path string) (bool, error)
	MoveFiles(ctx context.Context, moves []esl.Move) error
}

var _ Courier = (*esl.Node)(nil)

const (
	// statePath is the file of a remote node that says what its copy holds, so that whoever comes next need not read all of it.
	statePath = "tandem/.state.json"
	// trashPath takes the place of what is to go: a file of that name is replaced by the next one.
	trashPath = "tandem/.trash"
	// stateLimit and documentLimit bound what a node may bring, in bytes.
	stateLimit    = 64 << 20
	documentLimit = 256 << 20
	// couriers is how many files a node fetches or brings at a time.
	couriers = 8
	// fetchAhead is how many files a node fetches before they are moved out of the cache of its switch, which keeps 4,000 (max-urls) of all that it
	// has fetched, sounds too, and deletes the oldest for one more (mod_http_cache.c, url_cache_replace).
	fetchAhead = 1000
	// proofBatch is how many files of a copy are read back when it is time to; the next time it is the turn of others.
	proofBatch = 500
)

// remote is the copy of the documents on a node whose disk we do not share. The node fetches what changed, itself, with its own
// token, and puts it into place; from then on its switch reads it from its own disk, whether we are there or not.
type remote struct {
	node     string
	root     string
	courier  Courier
	exchange *Exchange
	// fetchAhead is how many files the node fetches before they are moved away.
	fetchAhead int
	// prove is how often a part of the copy is read back.
	prove time.Duration

	state   *copyState        // nil: to be read from the node
	fetched map[string]string // where the node has what it fetched, by path
	proved  time.Time
	turn    string // the last path that was read back
	whole   bool   // the next proof is of all of it
}

// copyState is what a remote node says that it holds. A file with an empty sum is to be written again: it was on its way when this
// was written.
type copyState struct {
	Files   map[string]string `json:"files"` // SHA-256 by path
	Pending *pending          `json:"pending,omitempty"`
}

func (s *copyState) clone() *copyState {
	other := &copyState{Files: maps.Clone(s.Files), Pending: s.Pending}
	if other.Files == nil {
		other.Files = map[string]string{}
	}
	return other
}

func sumOf(content []byte) string {
	d := digestOf(content)
	return hex.EncodeToString(d[:])
}

// during makes the copy's place for one synchronisation.
func (r *remote) during(ctx context.Context) place { return remotePlace{r, ctx} }

// remotePlace is a remote copy as long as ctx lasts.
type remotePlace struct {
	*remote
	ctx context.Context
}

func (r *remote) path(name string) string { return path.Join(r.root, name) }

// check makes sure that there is something to write into: FreeSWITCH makes no folders on its way.
func (r remotePlace) check() error {
	if !path.IsAbs(r.root) {
		return fmt.Errorf("configuration directory %q of the node is not an absolute path", r.root)
	}
	for _, name := range managedFolders {
		there, err := r.courier.FileExists(r.ctx, r.path(name))
		if err != nil {
			return fmt.Errorf("configuration directory: %w", err)
		}
		if !there {
			return fmt.Errorf("configuration directory: the node has no folder %s", r.path(name))
		}
	}
	return nil
}

// bring has the node send one of its files. It returns nil where there is none.
func (r remotePlace) bring(name string, limit int64) ([]byte, error) {
	url, arrived, done := r.exchange.Want(r.node, name, limit)
	defer done()
	err := r.courier.SendFile(r.ctx, url, r.path(name))
	if errors.Is(err, esl.ErrEmptyFile) {
		return []byte{}, nil
	}
	if err != nil {
		there, asked := r.courier.FileExists(r.ctx, r.path(name))
		if asked == nil && !there {
			return nil, nil
		}
		return nil, fmt.Errorf("read %s of the node: %w", name, errors.Join(err, asked))
	}
	select {
	case content := <-arrived:
		return content, nil
	default:
		return nil, fmt.Errorf("read %s of the node: it did not come", name)
	}
}

func (r remotePlace) load() error {
	if r.state != nil {
		return nil
	}
	content, err := r.bring(statePath, stateLimit)
	if err != nil {
		return err
	}
	state := &copyState{}
	if len(content) > 0 && json.Unmarshal(content, state) != nil {
		// What cannot be read is no reason to stop for ever: everything is written and told again.
		state = &copyState{Pending: &pending{ACL: true, Scan: true}}
	}
	for name := range state.Files {
		if !managed(name) {
			delete(state.Files, name)
		}
	}
	r.state = state.clone()
	return nil
}

// managed tells whether a path is one that we may have written.
func managed(name string) bool {
	folder, file := path.Split(name)
	return slices.Contains(managedFolders, strings.TrimSuffix(folder, "/")) && strings.HasSuffix(file, ".xml") && fileName(file)
}

func fileName(name string) bool {
	return strings.IndexFunc(name, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("._-+", r)
	}) < 0
}

// save writes the state onto the node.
func (r remotePlace) save(state *copyState) error {
	content, err := json.Marshal(state)
	if err != nil {
		return fmt.Errorf("write the state of the copy: %w", err)
	}
	r.remote.state = nil // until the node has it
	temporary, err := r.hand(statePath, content)
	if err != nil {
		return fmt.Errorf("write the state of the copy: %w", err)
	}
	if err := r.courier.MoveFiles(r.ctx, []esl.Move{{From: temporary, To: r.path(statePath)}}); err != nil {
		return fmt.Errorf("write the state of the copy: %w", err)
	}
	r.remote.state = state
	return nil
}

// hand has the node fetch a file and returns where it is until it is moved.
func (r remotePlace) hand(name string, content []byte) (string, error) {
	url, done := r.exchange.Offer(r.node, name, content)
	defer done()
	return r.courier.FetchFile(r.ctx, url)
}

// read tells what the node says that it holds. A file that was on its way, or that somebody changed, has the digest of nothing.
func (r remotePlace) read() (map[string]digest, error) {
	if err := r.load(); err != nil {
		return nil, fmt.Errorf("read the state of the copy: %w", err)
	}
	if err := r.proof(); err != nil {
		return nil, fmt.Errorf("read the copy: %w", err)
	}
	held := make(map[string]digest, len(r.state.Files))
	for name, sum := range r.state.Files {
		var d digest
		if raw, err := hex.DecodeString(sum); err == nil {
			copy(d[:], raw)
		}
		held[name] = d
	}
	return held, nil
}

// proof reads a part of the copy back when it is time to: somebody may have changed it.
func (r remotePlace) proof() error {
	if time.Since(r.proved) < r.prove {
		return nil
	}
	names := slices.Sorted(maps.Keys(r.state.Files))
	from, _ := slices.BinarySearch(names, r.turn+"\x00")
	names = append(names[from:], names[:from]...)
	if !r.whole {
		names = names[:min(proofBatch, len(names))]
	}
	held, err := r.bringAll(names)
	if err != nil {
		return err
	}
	var edited []string
	for _, name := range names {
		if content, there := held[name]; !there || sumOf(content) != r.state.Files[name] {
			edited = append(edited, name)
		}
	}
	for _, name := range edited {
		r.state.Files[name] = ""
	}
	r.remote.proved, r.remote.whole = time.Now(), false
	if len(names) > 0 {
		r.remote.turn = names[len(names)-1]
	}
	return nil
}

// bringAll reads files of the node, as far as they are there.
func (r remotePlace) bringAll(names []string) (Files, error) {
	files := Files{}
	var mu sync.Mutex
	var all errgroup.Group
	all.SetLimit(couriers)
	for _, name := range names {
		all.Go(func() error {
			content, err := r.bring(name, documentLimit)
			if err != nil || content == nil {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			files[name] = content
			return nil
		})
	}
	err := all.Wait()
	return files, err
}

// parked is where a fetched file waits for its place, out of the reach of the switch's cache; no include's pattern matches it.
func (r remotePlace) parked(name string) string {
	folder, file := path.Split(name)
	return r.path(folder + ".fetched-" + file)
}

// park moves what has been fetched out of the cache.
func (r remotePlace) park() error {
	var moves []esl.Move
	for _, name := range slices.Sorted(maps.Keys(r.fetched)) {
		if at := r.parked(name); r.fetched[name] != at {
			moves = append(moves, esl.Move{From: r.fetched[name], To: at})
			r.fetched[name] = at
		}
	}
	return r.courier.MoveFiles(r.ctx, moves)
}

// stage has the node fetch the changed files beside their places.
func (r remotePlace) stage(ctx context.Context, rendering *Rendering, paths []string) (staged, error) {
	r.remote.fetched = map[string]string{}
	s := staged{held: map[string]digest{}}
	var mu sync.Mutex
	var all errgroup.Group
	all.SetLimit(couriers)
	var failed atomic.Bool // the first failure is enough: a node that cannot reach us would take a timeout for each file
	ahead := 0
	err := rendering.contents(ctx, paths, func(name string, content []byte) error {
		if ahead++; ahead > r.fetchAhead {
			ahead = 1
			if err := all.Wait(); err != nil {
				return err
			}
			if err := r.park(); err != nil {
				return fmt.Errorf("stage: %w", err)
			}
		}
		all.Go(func() error {
			if failed.Load() {
				return nil
			}
			temporary, err := r.hand(name, content)
			if err != nil {
				failed.Store(true)
				return fmt.Errorf("stage %s: %w", name, err)
			}
			mu.Lock()
			defer mu.Unlock()
			r.fetched[name], s.held[name] = temporary, digestOf(content)
			return nil
		})
		return nil
	})
	if err = errors.Join(err, all.Wait()); err != nil {
		return staged{}, err
	}
	return s, nil
}

// commit puts the fetched files into their places and the stale ones out of theirs.
func (r remotePlace) commit(s staged, removed []string) error {
	moves := make([]esl.Move, 0, len(r.fetched)+len(removed))
	for _, name := range slices.Sorted(maps.Keys(r.fetched)) {
		moves = append(moves, esl.Move{From: r.fetched[name], To: r.path(name)})
	}
	for _, name := range removed {
		there, err := r.courier.FileExists(r.ctx, r.path(name))
		if err != nil {
			return fmt.Errorf("commit: %w", err)
		}
		if there {
			moves = append(moves, esl.Move{From: r.path(name), To: r.path(trashPath)})
		}
	}
	if err := r.courier.MoveFiles(r.ctx, moves); err != nil {
		r.remote.state = nil
		return fmt.Errorf("commit: %w", err)
	}
	state := r.state.clone()
	for name, d := range s.held {
		state.Files[name] = hex.EncodeToString(d[:])
	}
	for _, name := range removed {
		delete(state.Files, name)
	}
	return r.save(state)
}

func (r remotePlace) readPending() (pending, bool, error) {
	if err := r.load(); err != nil {
		return pending{}, false, fmt.Errorf("read journal: %w", err)
	}
	if r.state.Pending == nil {
		return pending{}, false, nil
	}
	p := *r.state.Pending
	p.Kill = slices.DeleteFunc(slices.Clone(p.Kill), func(name string) bool { return checkGatewayName(name) != nil })
	return p, true, nil
}

// writePending notes, before anything changes, what the switch is to be told and which files are on their way.
func (r remotePlace) writePending(p pending) error {
	state := r.state.clone()
	state.Pending = &p
	for name := range r.fetched {
		state.Files[name] = ""
	}
	if err := r.save(state); err != nil {
		return fmt.Errorf("write journal: %w", err)
	}
	return nil
}

func (r remotePlace) clearPending() error {
	if err := r.load(); err != nil {
		return fmt.Errorf("clear journal: %w", err)
	}
	if r.state.Pending == nil {
		return nil
	}
	state := r.state.clone()
	state.Pending = nil
	if err := r.save(state); err != nil {
		return fmt.Errorf("clear journal: %w", err)
	}
	return nil
}

// remote is the copy of a node whose disk we do not share, nil where that cannot be.
func (s *Syncer) remote(added models.Node, control Switch) *remote {
	courier, ok := control.(Courier)
	if !ok || s.exchange == nil {
		s.logger.Error("node gets no configuration: the URL that it could fetch it from is not configured", "node_id", added.ID)
		return nil
	}
	return &remote{node: added.ID, root: added.ConfDir, courier: courier, exchange: s.exchange, fetchAhead: fetchAhead, prove: s.interval * pollsPerCompare, proved: time.Now()}
}

// errNoExchange refuses a node that nothing can be written onto.
var errNoExchange = errors.New("its files are on a disk of its own, and there is no URL that it could fetch them from")

// nowhere is the place of a remote node that nothing can be written onto.
type nowhere struct{}

func (nowhere) check() error                     { return errNoExchange }
func (nowhere) read() (map[string]digest, error) { return nil, errNoExchange }
func (nowhere) stage(context.Context, *Rendering, []string) (staged, error) {
	return staged{}, errNoExchange
}
func (nowhere) commit(staged, []string) error       { return errNoExchange }
func (nowhere) readPending() (pending, bool, error) { return pending{}, false, errNoExchange }
func (nowhere) writePending(pending) error          { return errNoExchange }
func (nowhere) clearPending() error                 { return errNoExchange }

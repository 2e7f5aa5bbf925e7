package calls

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"tandem/egress"
)

// mediaStore fetches the files that applications want played. The switch never fetches: it would follow redirects to
// anywhere and read the URL as syntax. A file is named by what it holds, so that calls that play the same share it. It stays while
// a call holds it, and as long after that as the answer that it came with allows (RFC 9111), within a bound on what is kept.
type mediaStore struct {
	cfg Config

	mu     sync.Mutex
	held   map[string]int           // by path
	copies map[string]*mediaCopy    // by what was asked for
	size   int64                    // of all copies
	asking map[string]chan struct{} // what is being asked for; closed when the answer is there
}

// mediaCopy is a file that may serve again.
type mediaCopy struct {
	path    string
	size    int64
	expires time.Time // until then it serves unasked
	etag    string
	changed string // Last-Modified
	used    time.Time
}

func newMediaStore(cfg Config) *mediaStore {
	return &mediaStore{cfg: cfg, held: map[string]int{}, copies: map[string]*mediaCopy{}, asking: map[string]chan struct{}{}}
}

// fetch brings the sound file at a URL into a folder and returns its path there. The caller releases it.
func (st *mediaStore) fetch(ctx context.Context, dir, url string, mp3 bool) (string, error) {
	if _, err := egress.CheckURL(url); err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, st.cfg.MediaTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", fmt.Errorf("make the request: %w", err)
	}
	req.Header.Set("Accept", "audio/wav, audio/x-wav, audio/mpeg, application/octet-stream;q=0.5")
	return st.obtain(wanted{key: dir + " " + url, dir: dir, mp3: mp3, req: req, client: st.cfg.Client})
}

// wanted is a sound file that is asked for.
type wanted struct {
	key    string // names what is asked for
	dir    string
	mp3    bool
	req    *http.Request
	client *http.Client
	keep   time.Duration // how long an answer serves that does not say so itself
}

// obtain answers a request from a copy, or makes it. Of several at once, one is made and the others wait for what it brings.
func (st *mediaStore) obtain(w wanted) (string, error) {
	done, err := st.takeTurn(w.req.Context(), w.key)
	if err != nil {
		return "", err
	}
	defer done()
	kept := st.lookUp(w.key)
	if kept != nil && st.cfg.Now().Before(kept.expires) {
		return kept.path, nil
	}
	if kept != nil {
		// Held while it is asked about: it must not go meanwhile.
		if kept.etag != "" {
			w.req.Header.Set("If-None-Match", kept.etag)
		}
		if kept.changed != "" {
			w.req.Header.Set("If-Modified-Since", kept.changed)
		}
	}
	path, err := st.request(w, kept)
	if kept != nil && (err != nil || path != kept.path) {
		st.release([]string{kept.path})
	}
	return path, err
}

// takeTurn waits while the same is being asked for already. Who has waited asks at once when the answer may not serve again, so that
// nobody stands in line. The function that it returns ends the turn.
func (st *mediaStore) takeTurn(ctx context.Context, key string) (done func(), err error) {
	st.mu.Lock()
	other := st.asking[key]
	if other == nil {
		mine := make(chan struct{})
		st.asking[key] = mine
		st.mu.Unlock()
		return func() {
			st.mu.Lock()
			delete(st.asking, key)
			st.mu.Unlock()
			close(mine)
		}, nil
	}
	st.mu.Unlock()
	select {
	case <-other:
		return func() {}, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("fetch the file: %w", ctx.Err())
	}
}

// lookUp returns a copy that may serve, held for the caller; nil when there is none.
func (st *mediaStore) lookUp(key string) *mediaCopy {
	st.mu.Lock()
	defer st.mu.Unlock()
	kept := st.copies[key]
	if kept == nil {
		return nil
	}
	if _, err := os.Stat(kept.path); err != nil {
		st.drop(key)
		return nil
	}
	kept.used = st.cfg.Now()
	st.held[kept.path]++
	found := *kept
	return &found
}

// request makes a request and stores what it brings.
func (st *mediaStore) request(w wanted, kept *mediaCopy) (string, error) {
	resp, err := w.client.Do(w.req)
	if err != nil {
		return "", fmt.Errorf("fetch the file: %w", plain(err))
	}
	defer func() {
		_ = resp.Body.Close()
	}()
	now := st.cfg.Now()
	rule := readCaching(resp.Header, now)
	if w.keep > 0 && !rule.expires.After(now) {
		rule.keep, rule.expires = true, now.Add(w.keep)
	}
	if kept != nil && resp.StatusCode == http.StatusNotModified {
		kept.expires = rule.expires
		st.keep(w.key, kept)
		return kept.path, nil
	}
	if resp.StatusCode != http.StatusOK {
		return "", fmt.Errorf("fetch the file: answered %d", resp.StatusCode)
	}
	path, size, err := st.save(w.dir, resp.Body, w.mp3)
	if err != nil {
		return "", err
	}
	if rule.keep {
		st.keep(w.key, &mediaCopy{path: path, size: size, expires: rule.expires, etag: rule.etag, changed: rule.changed, used: now})
	}
	return path, nil
}

// errNotSound refuses what is no sound file that a switch can play.
var errNotSound = errors.New("is neither a WAV nor an MP3 file")

// errNoMP3 refuses an MP3 file where the switch cannot play one.
var errNoMP3 = errors.New("is an MP3 file, which this node cannot play: it has no " + moduleMP3)

// save writes a file under a temporary name while it comes, checks it, and names it by its SHA-256. It is held once.
func (st *mediaStore) save(dir string, body io.Reader, mp3 bool) (path string, size int64, err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // the switch runs as another user
		return "", 0, fmt.Errorf("make the media folder: %w", err)
	}
	tmp, err := os.CreateTemp(dir, "fetching-*.part")
	if err != nil {
		return "", 0, fmt.Errorf("store the file: %w", err)
	}
	defer func() {
		if err != nil {
			_ = os.Remove(tmp.Name())
		}
	}()
	digest := sha256.New()
	size, err = io.Copy(io.MultiWriter(tmp, digest), io.LimitReader(body, st.cfg.MediaLimit+1))
	if err == nil && size > st.cfg.MediaLimit {
		err = fmt.Errorf("the file is larger than %d bytes", st.cfg.MediaLimit)
	}
	suffix := ""
	if err == nil {
		suffix, err = soundKind(tmp, mp3)
	}
	if err == nil {
		err = tmp.Chmod(0o644) // the switch runs as another user
	}
	if closing := tmp.Close(); err == nil {
		err = closing
	}
	if err != nil {
		return "", 0, fmt.Errorf("store the file: %w", err)
	}
	path = filepath.Join(dir, hex.EncodeToString(digest.Sum(nil)[:16])+suffix)
	st.mu.Lock()
	defer st.mu.Unlock()
	if err := os.Rename(tmp.Name(), path); err != nil {
		return "", 0, fmt.Errorf("store the file: %w", err)
	}
	st.held[path]++
	return path, size, nil
}

// soundKind says what suffix a file needs for the switch to know how to play it.
func soundKind(f io.ReadSeeker, mp3 bool) (suffix string, err error) {
	_, err = readWAV(f)
	if err == nil {
		return ".wav", nil
	}
	if !errors.Is(err, errNotWAV) {
		return "", err
	}
	var head [3]byte
	if err := readAt(f, 0, head[:]); err != nil {
		return "", errNotSound
	}
	// An ID3v2 tag, or the sync word of an MPEG audio frame of layer III (ISO/IEC 11172-3, 2.4.1.3).
	if string(head[:]) != "ID3" && (head[0] != 0xff || head[1]&0xe6 != 0xe2) {
		return "", errNotSound
	}
	if !mp3 {
		return "", errNoMP3
	}
	return ".mp3", nil
}

// keep remembers a copy, and forgets those that were used longest ago where there are too many.
func (st *mediaStore) keep(key string, c *mediaCopy) {
	st.mu.Lock()
	defer st.mu.Unlock()
	if old := st.copies[key]; old != nil && old.path == c.path {
		old.expires, old.etag, old.changed, old.used = c.expires, c.etag, c.changed, c.used
		return
	}
	st.drop(key)
	if c.size > st.cfg.MediaCache {
		return
	}
	st.copies[key] = c
	st.size += c.size
	st.held[c.path]++
	for st.size > st.cfg.MediaCache {
		oldest := ""
		for other, candidate := range st.copies {
			if other != key && (oldest == "" || candidate.used.Before(st.copies[oldest].used)) {
				oldest = other
			}
		}
		st.drop(oldest)
	}
}

// drop forgets a copy. The lock is held.
func (st *mediaStore) drop(key string) {
	c := st.copies[key]
	if c == nil {
		return
	}
	delete(st.copies, key)
	st.size -= c.size
	st.letGo(c.path)
}

// release gives files back; one that no call holds any more and no copy keeps is removed.
func (st *mediaStore) release(paths []string) {
	st.mu.Lock()
	defer st.mu.Unlock()
	for _, path := range paths {
		st.letGo(path)
	}
}

// letGo gives one hold back. The lock is held.
func (st *mediaStore) letGo(path string) {
	if st.held[path] == 0 {
		return // its folder was left to another controller meanwhile
	}
	if st.held[path]--; st.held[path] > 0 {
		return
	}
	delete(st.held, path)
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		st.cfg.Logger.Warn("media file not removed", "error", err)
	}
}

// clear removes all copies, at the end.
func (st *mediaStore) clear() {
	st.mu.Lock()
	defer st.mu.Unlock()
	for key := range st.copies {
		st.drop(key)
	}
}

package calls

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"sync"

	"tandem/egress"
)

// mediaStore fetches the files that applications want played. The switch never fetches: it would follow redirects to
// anywhere and read the URL as syntax. A file is named by what it holds, so that calls that play the same share it, and is
// removed when the last of them has ended.
type mediaStore struct {
	cfg Config

	mu   sync.Mutex
	held map[string]int // by path
}

func newMediaStore(cfg Config) *mediaStore {
	return &mediaStore{cfg: cfg, held: map[string]int{}}
}

// fetch brings the WAV file at a URL into a folder and returns its path there. The caller releases it.
func (st *mediaStore) fetch(ctx context.Context, dir, url string) (string, error) {
	if _, err := egress.CheckURL(url); err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, st.cfg.MediaTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", fmt.Errorf("make the request: %w", err)
	}
	req.Header.Set("Accept", "audio/wav, audio/x-wav, application/octet-stream;q=0.5")
	resp, err := st.cfg.Client.Do(req)
	if err != nil {
		return "", fmt.Errorf("fetch the file: %w", plain(err))
	}
	defer func() {
		_ = resp.Body.Close()
	}()
	if resp.StatusCode != http.StatusOK {
		return "", fmt.Errorf("fetch the file: answered %d", resp.StatusCode)
	}
	return st.save(dir, resp.Body)
}

// save writes a file under a temporary name while it comes, checks it, and names it by its SHA-256.
func (st *mediaStore) save(dir string, body io.Reader) (path string, err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // the switch runs as another user
		return "", fmt.Errorf("make the media folder: %w", err)
	}
	tmp, err := os.CreateTemp(dir, "fetching-*.part")
	if err != nil {
		return "", fmt.Errorf("store the file: %w", err)
	}
	defer func() {
		if err != nil {
			_ = os.Remove(tmp.Name())
		}
	}()
	digest := sha256.New()
	size, err := io.Copy(io.MultiWriter(tmp, digest), io.LimitReader(body, st.cfg.MediaLimit+1))
	if err == nil && size > st.cfg.MediaLimit {
		err = fmt.Errorf("the file is larger than %d bytes", st.cfg.MediaLimit)
	}
	if err == nil {
		_, err = readWAV(tmp)
	}
	if err == nil {
		err = tmp.Chmod(0o644) // the switch runs as another user
	}
	if closing := tmp.Close(); err == nil {
		err = closing
	}
	if err != nil {
		return "", fmt.Errorf("store the file: %w", err)
	}
	path = filepath.Join(dir, hex.EncodeToString(digest.Sum(nil)[:16])+".wav")
	st.mu.Lock()
	defer st.mu.Unlock()
	if err := os.Rename(tmp.Name(), path); err != nil {
		return "", fmt.Errorf("store the file: %w", err)
	}
	st.held[path]++
	return path, nil
}

// release gives files back; one that no call holds any more is removed.
func (st *mediaStore) release(paths []string) {
	st.mu.Lock()
	defer st.mu.Unlock()
	for _, path := range paths {
		if st.held[path]--; st.held[path] > 0 {
			continue
		}
		delete(st.held, path)
		if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			st.cfg.Logger.Warn("media file not removed", "error", err)
		}
	}
}

// errNotWAV refuses what is no sound file that the switch can play.
var errNotWAV = errors.New("is not a WAV file")

// wavInfo is what the header of a WAV file says.
type wavInfo struct {
	seconds float64
}

// WAV formats that libsndfile, and with it FreeSWITCH, plays (RFC 2361 and mmreg.h).
var wavFormats = map[uint16]bool{1: true, 3: true, 6: true, 7: true, 0x11: true, 0x31: true, 0xfffe: true}

// readWAV checks that a file is a RIFF WAVE with a format and data, and returns its length.
func readWAV(f io.ReadSeeker) (wavInfo, error) {
	end, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return wavInfo{}, fmt.Errorf("read the file: %w", err)
	}
	var head [12]byte
	if err := readAt(f, 0, head[:]); err != nil || string(head[:4]) != "RIFF" || string(head[8:]) != "WAVE" {
		return wavInfo{}, errNotWAV
	}
	var rate uint32
	for at := int64(12); at+8 <= end; {
		var chunk [8]byte
		if err := readAt(f, at, chunk[:]); err != nil {
			return wavInfo{}, errNotWAV
		}
		size := int64(binary.LittleEndian.Uint32(chunk[4:]))
		switch string(chunk[:4]) {
		case "fmt ":
			var format [16]byte
			if err := readAt(f, at+8, format[:]); err != nil || size < 16 || !wavFormats[binary.LittleEndian.Uint16(format[:])] {
				return wavInfo{}, errNotWAV
			}
			rate = binary.LittleEndian.Uint32(format[8:])
		case "data":
			if rate == 0 {
				return wavInfo{}, errNotWAV
			}
			// A recorder that was stopped hard leaves a size it never corrected.
			return wavInfo{seconds: float64(min(size, end-at-8)) / float64(rate)}, nil
		}
		at += 8 + size + size&1
	}
	return wavInfo{}, errNotWAV
}

func readAt(f io.ReadSeeker, at int64, into []byte) error {
	if _, err := f.Seek(at, io.SeekStart); err != nil {
		return err
	}
	_, err := io.ReadFull(f, into)
	return err
}

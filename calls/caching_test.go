package calls

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestReadCaching(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 21, 8, 0, 0, 0, time.UTC)
	for name, tt := range map[string]struct {
		headers string
		keep    bool
		fresh   time.Duration
	}{
		"nothing":                           {"", false, 0},
		"max-age":                           {"Cache-Control: max-age=60", true, time.Minute},
		"upper case":                        {"CACHE-CONTROL: Public, MAX-AGE=60", true, time.Minute},
		"quoted":                            {`Cache-Control: max-age="60"`, true, time.Minute},
		"two lines":                         {"Cache-Control: public\nCache-Control: max-age=60", true, time.Minute},
		"max-age and Age":                   {"Cache-Control: max-age=60\nAge: 45", true, 15 * time.Second},
		"older than its max-age":            {"Cache-Control: max-age=60\nAge: 61", false, 0},
		"an Age that is none":               {"Cache-Control: max-age=60\nAge: old", true, time.Minute},
		"max-age=0":                         {"Cache-Control: max-age=0", false, 0},
		"max-age=0 with a tag":              {"Cache-Control: max-age=0\nETag: \"a\"", true, 0},
		"negative":                          {"Cache-Control: max-age=-5", false, 0},
		"no number":                         {"Cache-Control: max-age=soon\nExpires: Sat, 21 Nov 2026 09:00:00 GMT", false, 0},
		"too great a number":                {"Cache-Control: max-age=99999999999999999999", false, 0},
		"a year":                            {"Cache-Control: max-age=31536000", true, maxFresh},
		"s-maxage before max-age":           {"Cache-Control: max-age=60, s-maxage=120", true, 2 * time.Minute},
		"no-store":                          {"Cache-Control: no-store, max-age=60\nETag: \"a\"", false, 0},
		"no-cache":                          {"Cache-Control: no-cache, max-age=60", false, 0},
		"no-cache with a tag":               {"Cache-Control: no-cache, max-age=60\nETag: \"a\"", true, 0},
		"a tag":                             {"ETag: W/\"a\"", true, 0},
		"Last-Modified":                     {"Last-Modified: Fri, 20 Nov 2026 08:00:00 GMT", true, 0},
		"Expires":                           {"Expires: Sat, 21 Nov 2026 08:10:00 GMT", true, 10 * time.Minute},
		"Expires in the past":               {"Expires: Fri, 20 Nov 2026 08:10:00 GMT", false, 0},
		"Expires: 0":                        {"Expires: 0", false, 0},
		"max-age before Expires":            {"Cache-Control: max-age=60\nExpires: Sat, 21 Nov 2026 09:00:00 GMT", true, time.Minute},
		"an unknown directive":              {"Cache-Control: immutable, stale-if-error=60", false, 0},
		"Expires in ten years, and a limit": {"Expires: Sat, 21 Nov 2036 08:10:00 GMT", true, maxFresh},
	} {
		header := http.Header{}
		for line := range strings.SplitSeq(tt.headers, "\n") {
			if key, value, ok := strings.Cut(line, ": "); ok {
				header.Add(key, value)
			}
		}
		got := readCaching(header, now)
		require.Equal(t, tt.keep, got.keep, name)
		if tt.keep {
			require.Equal(t, tt.fresh, got.expires.Sub(now), name)
			require.Equal(t, []string{header.Get("ETag"), header.Get("Last-Modified")}, []string{got.etag, got.changed}, name)
		}
	}
}

// shelf is a store of media with a server behind it and a clock of its own.
type shelf struct {
	*mediaStore
	t      *testing.T
	dir    string
	server *httptest.Server

	mu    sync.Mutex
	now   time.Time
	asked []string
}

func newShelf(t *testing.T, handle func(w http.ResponseWriter, r *http.Request), edit func(c *Config)) *shelf {
	t.Helper()
	sh := &shelf{t: t, dir: filepath.Join(t.TempDir(), "media"), now: time.Date(2026, 11, 21, 8, 0, 0, 0, time.UTC)}
	sh.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		sh.mu.Lock()
		sh.asked = append(sh.asked, strings.TrimSpace(r.URL.Path+" "+r.Header.Get("If-None-Match")+r.Header.Get("If-Modified-Since")))
		sh.mu.Unlock()
		handle(w, r)
	}))
	t.Cleanup(sh.server.Close)
	c := Config{
		Client: sh.server.Client(), Logger: slog.New(slog.DiscardHandler), MediaTimeout: patience, MediaLimit: 1 << 20, MediaCache: 1 << 20,
		Now: func() time.Time {
			sh.mu.Lock()
			defer sh.mu.Unlock()
			return sh.now
		},
	}
	if edit != nil {
		edit(&c)
	}
	sh.mediaStore = newMediaStore(c)
	return sh
}

// get fetches a path and gives the file back, as the end of a call does. It returns what the server was asked.
func (sh *shelf) get(path string) (file string, asked []string, err error) {
	file, err = sh.fetch(sh.t.Context(), sh.dir, sh.server.URL+path, false)
	if err == nil {
		raw, err := os.ReadFile(file)
		require.NoError(sh.t, err)
		require.NotEmpty(sh.t, raw)
		sh.release([]string{file})
	}
	sh.mu.Lock()
	defer sh.mu.Unlock()
	asked, sh.asked = sh.asked, nil
	return file, asked, err
}

func (sh *shelf) pass(d time.Duration) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	sh.now = sh.now.Add(d)
}

func (sh *shelf) files() int {
	entries, err := os.ReadDir(sh.dir)
	require.NoError(sh.t, err)
	return len(entries)
}

// tuneOf is a WAV file of a size that a number makes different from others.
func tuneOf(number, samples int) []byte {
	a := make(audio, samples)
	for i := range a {
		a[i] = int16(number)
	}
	return a.wav()
}

func TestMediaIsServedAgain(t *testing.T) {
	t.Parallel()
	version := 1
	sh := newShelf(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/fresh":
			w.Header().Set("Cache-Control", "max-age=60")
			w.Header().Set("ETag", strconv.Quote(strconv.Itoa(version)))
			if r.Header.Get("If-None-Match") == strconv.Quote(strconv.Itoa(version)) {
				w.WriteHeader(http.StatusNotModified)
				return
			}
		case "/dated":
			w.Header().Set("Last-Modified", "Fri, 20 Nov 2026 08:00:00 GMT")
			if r.Header.Get("If-Modified-Since") != "" {
				w.WriteHeader(http.StatusNotModified)
				return
			}
		case "/bad":
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		_, _ = w.Write(tuneOf(version, 100))
	}, nil)
	for _, step := range []struct {
		path  string
		after time.Duration
		asked []string
	}{
		{"/fresh", 0, []string{"/fresh"}},
		{"/fresh", 59 * time.Second, nil},
		{"/fresh", time.Second, []string{`/fresh "1"`}},
		{"/fresh", 59 * time.Second, nil}, // what the 304 said counts from then
		{"/dated", 0, []string{"/dated"}},
		{"/dated", 0, []string{"/dated Fri, 20 Nov 2026 08:00:00 GMT"}},
		{"/plain", 0, []string{"/plain"}},
		{"/plain", 0, []string{"/plain"}},
	} {
		sh.pass(step.after)
		_, asked, err := sh.get(step.path)
		require.NoError(t, err)
		require.Equal(t, step.asked, asked, "%s after %s", step.path, step.after)
	}
	// Another version takes the place of the first, whose file goes.
	first, _, err := sh.get("/fresh")
	require.NoError(t, err)
	version = 2
	sh.pass(2 * time.Minute)
	second, asked, err := sh.get("/fresh")
	require.NoError(t, err)
	require.Equal(t, []string{`/fresh "1"`}, asked)
	require.NotEqual(t, first, second)
	// The file that both addresses held stays as long as one of them does.
	require.Equal(t, 2, sh.files())

	// A server that fails keeps nobody from asking it again, and leaves nothing.
	for range 2 {
		_, asked, err = sh.get("/bad")
		require.ErrorContains(t, err, "answered 503")
		require.Equal(t, []string{"/bad"}, asked)
	}
	// A file that somebody removed is fetched anew.
	require.NoError(t, os.Remove(second))
	_, asked, err = sh.get("/fresh")
	require.NoError(t, err)
	require.Equal(t, []string{"/fresh"}, asked)
	sh.clear()
	require.Zero(t, sh.files())
	require.Zero(t, sh.size)
	require.Empty(t, sh.held)
}

func TestMediaThatIsKeptIsBounded(t *testing.T) {
	t.Parallel()
	const samples = 1000 // 2,044 bytes
	sh := newShelf(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "max-age=3600")
		number, err := strconv.Atoi(strings.TrimPrefix(r.URL.Path, "/"))
		if err != nil {
			number = 99
		}
		size := samples
		if r.URL.Path == "/great" {
			size *= 4
		}
		_, _ = w.Write(tuneOf(number, size))
	}, func(c *Config) { c.MediaCache = 3 * (44 + 2*samples) })
	for _, path := range []string{"/1", "/2", "/3", "/1", "/4"} { // 2 is the one that was used longest ago
		sh.pass(time.Second)
		_, _, err := sh.get(path)
		require.NoError(t, err)
		require.LessOrEqual(t, sh.size, sh.cfg.MediaCache)
	}
	require.Equal(t, 3, sh.files())
	for _, step := range []struct {
		path  string
		asked []string
	}{{"/1", nil}, {"/3", nil}, {"/4", nil}, {"/2", []string{"/2"}}, {"/1", []string{"/1"}}, {"/great", []string{"/great"}}, {"/great", []string{"/great"}}, {"/1", nil}} {
		sh.pass(time.Second)
		_, asked, err := sh.get(step.path)
		require.NoError(t, err)
		require.Equal(t, step.asked, asked, step.path)
	}
	// What a call holds stays, although it is no longer kept.
	held, err := sh.fetch(t.Context(), sh.dir, sh.server.URL+"/5", false)
	require.NoError(t, err)
	for _, path := range []string{"/6", "/7", "/8"} {
		sh.pass(time.Second)
		_, _, err := sh.get(path)
		require.NoError(t, err)
	}
	require.FileExists(t, held)
	require.Equal(t, 4, sh.files())
	sh.release([]string{held})
	require.NoFileExists(t, held)
}

func TestMediaThatIsRefused(t *testing.T) {
	t.Parallel()
	sh := newShelf(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/great":
			_, _ = w.Write(tuneOf(1, 600))
		case "/moved":
			http.Redirect(w, r, "/just", http.StatusFound)
		case "/text":
			_, _ = w.Write([]byte("hello"))
		case "/cut":
			w.Header().Set("Content-Length", "5000")
			_, _ = w.Write(tuneOf(1, 100))
		default:
			_, _ = w.Write(tuneOf(1, 478)) // 1,000 bytes
		}
	}, func(c *Config) {
		c.MediaLimit = 1000
		client := *c.Client
		client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
		c.Client = &client
	})
	for path, message := range map[string]string{
		"/great": "larger than 1000 bytes", "/moved": "answered 302", "/text": "neither a WAV nor an MP3", "/cut": "unexpected EOF",
	} {
		_, _, err := sh.get(path)
		require.ErrorContains(t, err, message, path)
	}
	_, _, err := sh.get("/just")
	require.NoError(t, err, "the limit itself is not too much")
	_, err = sh.fetch(t.Context(), sh.dir, "file:///etc/passwd", false)
	require.Error(t, err)
	require.Zero(t, sh.files(), "nothing is left of what failed, nor of what may not be kept")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = sh.fetch(ctx, sh.dir, sh.server.URL+"/just", false)
	require.ErrorIs(t, err, context.Canceled)
}

// waitedFor is a context that tells when somebody begins to wait for its end.
type waitedFor struct {
	context.Context
	begun chan<- struct{}
	once  sync.Once
}

func (a *waitedFor) Done() <-chan struct{} {
	a.once.Do(func() { a.begun <- struct{}{} })
	return a.Context.Done()
}

// TestMediaIsFetchedOnceForMany has many calls ask for the same at once.
func TestMediaIsFetchedOnceForMany(t *testing.T) {
	t.Parallel()
	const calls = 20
	arrived, goOn := make(chan struct{}, calls), make(chan struct{})
	sh := newShelf(t, func(w http.ResponseWriter, r *http.Request) {
		arrived <- struct{}{}
		<-goOn
		if r.URL.Path == "/fresh" {
			w.Header().Set("Cache-Control", "max-age=60")
		}
		_, _ = w.Write(tuneOf(1, 100))
	}, nil)
	for path, want := range map[string]int{"/fresh": 1, "/plain": calls} {
		var all sync.WaitGroup
		errs := make(chan error, calls)
		begin := func(ctx context.Context) {
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, sh.server.URL+path, nil)
			require.NoError(t, err)
			all.Go(func() {
				file, err := sh.obtain(wanted{key: path, dir: sh.dir, req: req, client: sh.server.Client()})
				if err == nil {
					defer sh.release([]string{file})
					_, err = os.Stat(file)
				}
				errs <- err
			})
		}
		begin(t.Context())
		<-arrived // the first is at the server, and has the turn
		waiting := make(chan struct{}, calls)
		for range calls - 1 {
			begin(&waitedFor{Context: t.Context(), begun: waiting})
		}
		for range calls - 1 {
			<-waiting
		}
		// Who gives up waiting is let go.
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, sh.server.URL+path, nil)
		require.NoError(t, err)
		_, err = sh.obtain(wanted{key: path, dir: sh.dir, req: req, client: sh.server.Client()})
		require.ErrorIs(t, err, context.Canceled)
		if want == 1 {
			goOn <- struct{}{}
		} else {
			// Once the first has its answer, which may not serve again, nobody stands in line behind anybody.
			goOn <- struct{}{}
			for range calls - 1 {
				<-arrived
			}
			for range calls - 1 {
				goOn <- struct{}{}
			}
		}
		all.Wait()
		for range calls {
			require.NoError(t, <-errs)
		}
		sh.mu.Lock()
		require.Len(t, sh.asked, want, path)
		sh.asked = nil
		sh.mu.Unlock()
		require.Empty(t, sh.asking)
	}
	sh.clear()
	require.Zero(t, sh.files())
}

// TestSpeechIsKept keeps spoken texts, each voice and language for itself.
func TestSpeechIsKept(t *testing.T) {
	t.Parallel()
	sh := newShelf(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(tuneOf(1, 100)) }, nil)
	sh.cfg.Synthesis = Synthesis{URL: sh.server.URL + "/speak", Client: sh.server.Client(), Keep: time.Hour}
	speak := func(voice, language, text string) int {
		file, err := sh.synthesize(t.Context(), sh.dir, false, voice, language, text)
		require.NoError(t, err)
		sh.release([]string{file})
		sh.mu.Lock()
		defer sh.mu.Unlock()
		asked := len(sh.asked)
		sh.asked = nil
		return asked
	}
	for i, step := range []struct {
		voice, language, text string
		after                 time.Duration
		asked                 int
	}{
		{"anna", "de-DE", "Hallo", 0, 1}, {"anna", "de-DE", "Hallo", 59 * time.Minute, 0}, {"bert", "de-DE", "Hallo", 0, 1}, {"anna", "de-AT", "Hallo", 0, 1},
		{"anna", "de-DE", "Hallo!", 0, 1}, {"anna", "de-DE", "Hallo", 2 * time.Minute, 1},
	} {
		sh.pass(step.after)
		require.Equal(t, step.asked, speak(step.voice, step.language, step.text), fmt.Sprint(i, step))
	}
}

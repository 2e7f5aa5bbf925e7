package calls

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/require"

	"tandem/esl/simswitch"
	"tandem/lab"
	"tandem/models"
	"tandem/models/modelstest"
	"tandem/nodeport"
)

// port is the port for nodes of a test, in front of a manager that is set later.
type port struct {
	url string
	dir string

	mu       sync.Mutex
	manager  *Manager
	refusals int // how many recordings are refused before one is taken
	files    map[string][]byte
	wanted   map[string]chan []byte
	refused  int // how many CDRs are refused before one is taken
	tokens   []string
}

func (p *port) AuthenticateNode(_ context.Context, name, token string) (string, error) {
	if name != "node" || token != "a-token-of-the-node" {
		return "", models.ErrNotFound
	}
	return "node", nil
}

func (p *port) Fetch(_, id string) ([]byte, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	content, ok := p.files[id]
	if !ok {
		return nil, ErrNoUpload
	}
	return content, nil
}

func (p *port) Leave(_, id string, body io.Reader, _ int64) error {
	content, err := io.ReadAll(body)
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	arrived, ok := p.wanted[id]
	if p.refused--; !ok || p.refused >= 0 {
		return ErrNoUpload
	}
	arrived <- content
	return nil
}

// want is what a manager wants a node to leave.
func (p *port) want(_, name string, _ int64) (string, <-chan []byte, func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	id, arrived := models.NewID("file_"), make(chan []byte, 1)
	p.wanted[id] = arrived
	return p.url + "/internal/files/" + id + "/" + name, arrived, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.wanted, id)
	}
}

// offer is what a manager offers a node to fetch.
func (p *port) offer(_, name string, content []byte) (string, func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	id := models.NewID("file_")
	p.files[id] = content
	return p.url + "/internal/files/" + id + "/" + name, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.files, id)
	}
}

// receiver is the port as one node's recordings know it.
type receiver struct {
	*port
	nodeID string
}

var errBusy = errors.New("disk is busy")

func (r receiver) Receive(ctx context.Context, _, token string, body io.Reader, length int64) error {
	r.mu.Lock()
	r.tokens = append(r.tokens, token)
	refuse := r.refusals > 0
	r.refusals--
	manager := r.manager
	r.mu.Unlock()
	if refuse {
		_, _ = io.CopyN(io.Discard, body, 10)
		return errBusy
	}
	return manager.Receive(ctx, r.nodeID, token, body, length)
}

// openPort opens a port for a node.
func openPort(t testing.TB, nodeID string) *port {
	t.Helper()
	p := &port{dir: t.TempDir(), files: map[string][]byte{}, wanted: map[string]chan []byte{}}
	server, err := nodeport.New(nodeport.Config{Nodes: p, Files: p, Recordings: receiver{p, nodeID}, Status: func(err error) int {
		for _, known := range []struct {
			err    error
			status int
		}{{ErrNoUpload, http.StatusNotFound}, {ErrRecordingTooLarge, http.StatusRequestEntityTooLarge}, {ErrNotRecording, http.StatusUnprocessableEntity}} {
			if errors.Is(err, known.err) {
				return known.status
			}
		}
		return 0
	}})
	require.NoError(t, err)
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p.url = "http://" + listener.Addr().String()
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 10*time.Second)
		defer cancel()
		require.NoError(t, server.Shutdown(ctx))
		require.NoError(t, <-served)
	})
	return p
}

func (p *port) remote(limit int64) func(*Config) {
	return func(c *Config) {
		c.Remote = &Remote{URL: p.url, Dir: p.dir, Limit: limit, Offer: p.offer, Want: p.want}
		c.CDRWait = 20 * time.Second
	}
}

// awaited is a recording of an ended call that a node is to send.
func awaited(t *testing.T, s *scene, path string) *models.Recording {
	t.Helper()
	call := modelstest.Call(t, s.store, s.app)
	row := &models.Recording{
		CallID: call.ID, CustomerID: call.CustomerID, Path: path, Format: "wav", Status: models.RecordingProcessing, Remote: true, Seconds: 9,
	}
	require.NoError(t, s.store.SaveRecording(t.Context(), row))
	require.NoError(t, s.store.AwaitRecording(t.Context(), row.ID, s.node.ID, row.Path, s.store.Now()))
	return row
}

// TestReceive holds what may come under a token to what is stored of it.
func TestReceive(t *testing.T) {
	t.Parallel()
	modelstest.Run(t, "", func(t *testing.T, store *models.Store) {
		s := newStage(t, store)
		dir := filepath.Join(t.TempDir(), "recordings")
		s.newManager(func(c *Config) {
			c.Remote = &Remote{URL: "http://127.0.0.1:1", Dir: dir, Limit: 20_000, Offer: func(string, string, []byte) (string, func()) { return "", func() {} }}
		})
		ctx := t.Context()
		row := awaited(t, s, "/node/rec.wav")
		whole := silentWAV()
		token := func() string {
			t.Helper()
			token, err := store.BeginUpload(ctx, row.ID, store.Now().Add(time.Minute))
			require.NoError(t, err)
			return token
		}
		receive := func(node, token string, content []byte, length int) error {
			return s.manager.Receive(ctx, node, token, bytes.NewReader(content), int64(length))
		}
		good := token()
		torn := slices.Clone(whole)
		copy(torn[40:44], []byte{0, 0, 1, 0}) // the header says more than there is
		require.ErrorIs(t, receive(s.node.ID, good, torn, len(torn)), ErrNotRecording, "not finished")
		for name, c := range map[string]struct {
			node, token string
			content     []byte
			length      int
			want        error
		}{
			"another node":    {"node_other", good, whole, len(whole), ErrNoUpload},
			"no token":        {s.node.ID, "", whole, len(whole), ErrNoUpload},
			"a wrong token":   {s.node.ID, strings.Repeat("0", 64), whole, len(whole), ErrNoUpload},
			"cut off":         {s.node.ID, good, whole[:500], len(whole), io.ErrUnexpectedEOF},
			"announced large": {s.node.ID, good, whole, 20_001, ErrRecordingTooLarge},
			"large":           {s.node.ID, good, bytes.Repeat(whole, 2), -1, ErrRecordingTooLarge},
			"no sound":        {s.node.ID, good, []byte("<html>not found</html>"), -1, ErrNotRecording},
			"nothing":         {s.node.ID, good, nil, 0, ErrNotRecording},
			"a silent header": {s.node.ID, good, whole[:44], 44, ErrNotRecording},
		} {
			require.ErrorIs(t, receive(c.node, c.token, c.content, c.length), c.want, name)
		}
		broken := errors.New("connection reset")
		require.ErrorIs(t, s.manager.Receive(ctx, s.node.ID, good, iotest.ErrReader(broken), 100), broken)
		left, err := os.ReadDir(dir)
		require.NoError(t, err)
		require.Empty(t, left, "nothing of all that is kept")
		stored, err := store.RecordingByID(ctx, row.ID)
		require.NoError(t, err)
		require.Equal(t, models.RecordingProcessing, stored.Status)
		require.Empty(t, s.allKinds(row.CallID), "and nothing told")

		newer := token()
		require.ErrorIs(t, receive(s.node.ID, good, whole, len(whole)), ErrNoUpload, "a newer token replaces it")
		require.NoError(t, receive(s.node.ID, newer, whole, -1))
		require.ErrorIs(t, receive(s.node.ID, newer, whole, -1), ErrNoUpload, "used")
		stored, err = store.RecordingByID(ctx, row.ID)
		require.NoError(t, err)
		require.Equal(t, []any{models.RecordingAvailable, filepath.Join(dir, row.ID+".wav"), int64(len(whole)), 1.0},
			[]any{stored.Status, stored.Path, stored.Size, stored.Seconds})
		content, err := os.ReadFile(stored.Path)
		require.NoError(t, err)
		require.Equal(t, whole, content)
		require.Equal(t, []string{"recording.available"}, s.allKinds(row.CallID))
		require.Equal(t, 1.0, s.data(row.CallID, "recording.available")["seconds"])

		// What a switch that was stopped hard left is taken as it is, after some tries.
		row = awaited(t, s, "/node/rec.wav")
		for range unfinishedTries {
			require.ErrorIs(t, receive(s.node.ID, token(), torn, len(torn)), ErrNotRecording)
		}
		require.NoError(t, receive(s.node.ID, token(), torn, len(torn)))
	})
}

// TestRecordingsOfANodeThatIsGone: what was to come from a node that was deleted never will; its customer is told so, once.
func TestRecordingsOfANodeThatIsGone(t *testing.T) {
	t.Parallel()
	modelstest.Run(t, "", func(t *testing.T, store *models.Store) {
		s := newStage(t, store)
		s.newManager()
		ctx := t.Context()
		row, awaitedStill := awaited(t, s, "/node/a.wav"), awaited(t, s, "/node/b.wav")
		gone := &models.Node{Name: "gone", ESLAddr: "127.0.0.1:8022", Password: "secret", ConfDir: "/node", Delivery: models.DeliveryXMLCurl}
		require.NoError(t, store.CreateNode(ctx, gone))
		require.NoError(t, store.EndUpload(ctx, row.ID))
		require.NoError(t, store.AwaitRecording(ctx, row.ID, gone.ID, row.Path, store.Now()))
		require.NoError(t, store.DeleteNode(ctx, gone.ID))
		for range 2 {
			s.manager.look(ctx, newSuspicion())
		}
		stored, err := store.RecordingByID(ctx, row.ID)
		require.NoError(t, err)
		require.Equal(t, models.RecordingFailed, stored.Status)
		require.Equal(t, []string{"recording.failed"}, s.allKinds(row.CallID))
		stored, err = store.RecordingByID(ctx, awaitedStill.ID)
		require.NoError(t, err)
		require.Equal(t, models.RecordingProcessing, stored.Status)
	})
}

// TestHalfARecording: what a process that died had received in part does not stay for ever; what is being received does.
func TestHalfARecording(t *testing.T) {
	t.Parallel()
	dir, now := t.TempDir(), time.Now()
	require.NoError(t, dropDead(filepath.Join(dir, "none"), now))
	for name, age := range map[string]time.Duration{".receiving-dead": 2 * time.Hour, ".receiving-live": time.Minute, "rec_1.wav": 48 * time.Hour} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte("RIFF"), 0o600))
		require.NoError(t, os.Chtimes(filepath.Join(dir, name), now, now.Add(-age)))
	}
	require.NoError(t, dropDead(dir, now))
	left, err := filepath.Glob(filepath.Join(dir, "*"))
	require.NoError(t, err)
	hidden, err := filepath.Glob(filepath.Join(dir, ".*-*"))
	require.NoError(t, err)
	require.Equal(t, []string{filepath.Join(dir, ".receiving-live"), filepath.Join(dir, "rec_1.wav")}, slices.Compact(slices.Sorted(slices.Values(append(left, hidden...)))))
}

// remoteLive is a scene on a switch whose disk the manager does not touch.
func remoteLive(t *testing.T, onReal bool, limit int64) (*live, *port) {
	t.Helper()
	s := newStage(t, modelstest.Open(t))
	p := openPort(t, s.node.ID)
	var addr, password string
	l := &live{}
	if onReal {
		carrier := lab.StartCarrier(t)
		node := lab.StartNode(t, lab.Options{
			Env: map[string]string{"TANDEM_DELIVERY": "xml_curl", "TANDEM_CDR_CREDENTIALS": "node:a-token-of-the-node"},
			Edit: func(confDir string) error {
				layOut(t, confDir, s.trunk.GatewayName, carrier.SIPAddr)
				return nil
			},
		})
		s.node.ConfDir, addr, password = node.ConfDir, node.ESLAddr, node.Password
	} else {
		layOut(t, s.node.ConfDir, s.trunk.GatewayName, "127.0.0.1:5080")
		require.NoError(t, os.MkdirAll(filepath.Join(s.node.ConfDir, "tandem", "recordings"), 0o750))
		sim, err := simswitch.New(simswitch.Config{
			Password: "secret", ConfDir: s.node.ConfDir, Speed: 4, NodeCredentials: "node:a-token-of-the-node",
			Modules: append(simswitch.DefaultModules(), "mod_http_cache", "mod_loopback"),
		})
		require.NoError(t, err)
		require.NoError(t, sim.Start())
		t.Cleanup(func() { require.NoError(t, sim.Close()) })
		l.sim, addr, password = sim, sim.Addr(), "secret"
	}
	s.node.Delivery = models.DeliveryXMLCurl
	require.NoError(t, s.store.UpdateNode(t.Context(), &s.node))
	connected := connect(t, s, addr, password, p.remote(limit))
	connected.sim = l.sim
	p.mu.Lock()
	p.manager = connected.manager
	p.mu.Unlock()
	return connected, p
}

// TestFreeSWITCHRecordingsComeBack: what a node with a disk of its own records is here in the end, once, and not there any more.
func TestFreeSWITCHRecordingsComeBack(t *testing.T) {
	t.Parallel()
	for name, real := range map[string]bool{"simulated": false, "freeswitch": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if real {
				lab.Require(t)
			}
			l, p := remoteLive(t, real, 0)
			p.mu.Lock()
			p.refusals = 1 // the first try fails
			p.mu.Unlock()
			l.answers("/sound.wav", func(w http.ResponseWriter, _ asked) { _, _ = w.Write(silentWAV()) })
			l.answers("/answer", reply(`[{"action":"record_call"},{"action":"play","url":"`+l.server.URL+`/sound.wav"},{"action":"pause","seconds":1},
				{"action":"play","url":"`+l.server.URL+`/sound.wav"},{"action":"record_call","op":"stop"}]`))
			l.create(func(r *CreateRequest) { r.To = "+15550000702" })
			call := l.end()
			require.Equal(t, []any{"played", "played"}, l.outcomes(call.ID, "play"), "the node fetched the sound")
			require.Empty(t, l.dataOf(call.ID, "call.error"))
			rows, err := l.store.RecordingsOfCall(t.Context(), l.customer.ID, call.ID)
			require.NoError(t, err)
			require.Len(t, rows, 1)
			there := rows[0].Path
			require.Equal(t, filepath.Join(l.node.ConfDir, "tandem", "recordings", rows[0].ID+".wav"), there)
			require.FileExists(t, there)
			require.NotContains(t, l.allKinds(call.ID), "recording.available")

			// Its last step is the deletion there.
			require.Eventually(t, func() bool {
				_, err := os.Stat(there)
				return errors.Is(err, os.ErrNotExist)
			}, patience, 20*time.Millisecond)
			row := l.recorded(t, call.ID)
			require.Equal(t, filepath.Join(p.dir, row.ID+".wav"), row.Path)
			seconds, err := fileSeconds(row.Path)
			require.NoError(t, err)
			require.InDelta(t, row.Seconds, seconds, 0.001)
			require.Greater(t, row.Seconds, 2.0)
			require.Len(t, l.dataOf(call.ID, "recording.available"), 1)
			require.Eventually(t, func() bool {
				due, err := l.store.PendingUploads(t.Context())
				return err == nil && len(due) == 0
			}, patience, 20*time.Millisecond)
			p.mu.Lock()
			defer p.mu.Unlock()
			require.Len(t, p.tokens, 2)
			require.NotEqual(t, p.tokens[0], p.tokens[1], "each try has a token of its own")
		})
	}
}

// TestFreeSWITCHRecordingsThatCannotCome: a file that is not there, or too large, ends as a failed recording, told once.
func TestFreeSWITCHRecordingsThatCannotCome(t *testing.T) {
	t.Parallel()
	for name, real := range map[string]bool{"simulated": false, "freeswitch": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if real {
				lab.Require(t)
			}
			l, _ := remoteLive(t, real, 1000)
			folder := filepath.Join(l.node.ConfDir, "tandem", "recordings")
			require.NoError(t, os.WriteFile(filepath.Join(folder, "large.wav"), silentWAV(), 0o600))
			require.NoError(t, os.WriteFile(filepath.Join(folder, "empty.wav"), nil, 0o600))
			row, empty, lost := awaited(t, l.scene, filepath.Join(folder, "large.wav")), awaited(t, l.scene, filepath.Join(folder, "empty.wav")), awaited(t, l.scene, filepath.Join(folder, "lost.wav"))
			for _, failed := range []*models.Recording{row, empty, lost} {
				require.Eventually(t, func() bool {
					stored, err := l.store.RecordingByID(t.Context(), failed.ID)
					return err == nil && stored.Status == models.RecordingFailed
				}, patience, 20*time.Millisecond)
				require.Equal(t, []string{"recording.failed"}, l.allKinds(failed.CallID))
			}
			require.FileExists(t, row.Path, "what we do not have stays where it is")
		})
	}
}

// TestRecordingsOfARemovedNode: what only its disk has fails with its removal, told once, and not where the node stays.
func TestRecordingsOfARemovedNode(t *testing.T) {
	t.Parallel()
	modelstest.Run(t, "", func(t *testing.T, store *models.Store) {
		s := newStage(t, store)
		s.newManager()
		ctx := t.Context()
		lost, safe := awaited(t, s, "/node/lost.wav"), awaited(t, s, "/node/safe.wav")
		token, err := store.BeginUpload(ctx, safe.ID, store.Now().Add(time.Minute))
		require.NoError(t, err)
		require.NoError(t, store.FinishUpload(ctx, safe.ID, token)) // here; its file there is still to be deleted
		safe.Status = models.RecordingAvailable
		require.NoError(t, store.SaveRecording(ctx, safe))
		status := func(r *models.Recording) string {
			row, err := store.RecordingByID(ctx, r.ID)
			require.NoError(t, err)
			return row.Status
		}
		remove := func(after func(tx *models.Store) error) error {
			return store.InTx(ctx, func(tx *models.Store) error {
				if err := s.manager.RemovingNode(ctx, tx, s.node.ID); err != nil {
					return err
				}
				return after(tx)
			})
		}
		require.ErrorIs(t, remove(func(*models.Store) error { return models.ErrInUse }), models.ErrInUse)
		require.Equal(t, models.RecordingProcessing, status(lost))
		require.Empty(t, s.allKinds(lost.CallID))

		for _, id := range []string{lost.CallID, safe.CallID} { // calls that have ended
			call, err := store.CallByID(ctx, id)
			require.NoError(t, err)
			call.Status = models.CallFailed
			require.NoError(t, store.TransitionCall(ctx, call, []string{models.CallDialing}))
		}
		require.NoError(t, remove(func(tx *models.Store) error { return tx.DeleteNode(ctx, s.node.ID) }))
		require.Equal(t, []string{models.RecordingFailed, models.RecordingAvailable}, []string{status(lost), status(safe)})
		require.Equal(t, []string{"recording.failed"}, s.allKinds(lost.CallID))
		require.Contains(t, s.data(lost.CallID, "recording.failed")["message"], "removed")
		require.Empty(t, s.allKinds(safe.CallID))
		_, err = store.Upload(ctx, lost.ID)
		require.ErrorIs(t, err, models.ErrNotFound)
	})
}

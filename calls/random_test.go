package calls

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tandem/actions"
	"tandem/esl/simswitch"
	"tandem/models"
	"tandem/models/modelstest"
)

// EnvSeed names the variable that makes TestRandomFlows repeat a run, as far as the clock and the scheduler let it.
const EnvSeed = "TANDEM_TEST_SEED"

// How much TestRandomFlows does: calls in each direction, and commands to them.
const (
	randomCalls    = 40
	randomCommands = 200
)

// dice is a source of chance that many goroutines share.
type dice struct {
	mu sync.Mutex
	r  *rand.Rand
}

func newDice(t *testing.T) *dice {
	t.Helper()
	seed := rand.Uint64()
	if given := os.Getenv(EnvSeed); given != "" {
		var err error
		seed, err = strconv.ParseUint(given, 10, 64)
		require.NoError(t, err, EnvSeed)
	}
	t.Logf("%s=%d", EnvSeed, seed)
	return &dice{r: rand.New(rand.NewPCG(seed, 0))}
}

func (d *dice) n(n int) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.r.IntN(n)
}

func (d *dice) of(choices ...string) string { return choices[d.n(len(choices))] }

// number is one that the simulated carrier knows.
func (d *dice) number() string {
	return "+15550000" + d.of("486", "404", "603", "503", "180", "183", "184", "700", "701", "702", "711", "720", "721", "723", "731", "800")
}

// action is any action but those that end a call, with fields that keep it short.
func (d *dice) action() string {
	switch d.n(22) {
	case 0:
		return `{"action":"answer"}`
	case 1:
		return `{"action":"say","text":"A few words.","barge_in":true,"loop":` + d.of("0", "1", "2") + `}`
	case 2:
		return `{"action":"play","tone":"beep","loop":` + d.of("0", "3") + `,"max_seconds":1}`
	case 3:
		return `{"action":"play","url":["URL/sound.wav","URL/missing.wav"]}`
	case 4, 5:
		return `{"action":"gather","max_digits":2,"timeout":1,"tries":2,"sensitive":` + d.of("true", "false") + `,"prompt":[{"action":"say","text":"Type."}]` + d.resultURL() + `}`
	case 6:
		return `{"action":"record","max_seconds":2,"silence_seconds":1,"beep":false` + d.resultURL() + `}`
	case 7, 8:
		return `{"action":"record_call","op":"` + d.of("start", "stop", "pause", "resume", "mask", "unmask") + `"}`
	case 9:
		return `{"action":"dial","to":"` + d.number() + `","timeout":5,"max_seconds":2,"record":` + d.of("true", "false") + d.resultURL() + `}`
	case 10:
		return `{"action":"dial","to":["` + d.number() + `","` + d.number() + `"],"strategy":"` + d.of("simultaneous", "sequential") + `","timeout":5,"max_seconds":2` +
			d.of(``, `,"confirm":{"key":"1","timeout":1}`, `,"ringback":"ringback_us"`, `,"machine_detection":true`) + d.resultURL() + `}`
	case 11:
		return `{"action":"machine_detection","timeout":3,"async":` + d.of("true", "false") + `}`
	case 12:
		return `{"action":"transfer","to":"` + d.number() + `","mode":"` + d.of("blind", "attended") + `","timeout":5,"max_seconds":2}`
	case 13, 14:
		return `{"action":"conference","name":"` + d.of("a", "b") + `","max_seconds":2,"muted":` + d.of("true", "false") + `,"record":` + d.of("true", "false") +
			`,"end_on_exit":` + d.of("true", "false") + d.resultURL() + `}`
	case 15, 16:
		return `{"action":"enqueue","name":"` + d.of("a", "b") + `","max_wait":2,"wait_actions":[{"action":"pause","seconds":1}]` + d.resultURL() + `}`
	case 17:
		return `{"action":"dequeue","name":"` + d.of("a", "b") + `","timeout":1,"max_seconds":2` + d.resultURL() + `}`
	case 18:
		return `{"action":"dtmf","digits":"12"}`
	case 19:
		return `{"action":"set","variables":{"k":"` + d.of("1", "2") + `"}}`
	case 20:
		return `{"action":"notify","payload":{"n":1}}`
	default:
		return `{"action":"pause","seconds":0.5}`
	}
}

func (d *dice) resultURL() string { return d.of(``, `,"result_url":"URL/answer"`) }

// list is a list of actions, now and then with one at its end that ends the call or asks again.
func (d *dice) list(url string) string {
	var items []string
	for range 1 + d.n(4) {
		items = append(items, d.action())
	}
	if d.n(4) == 0 {
		items = append(items, d.of(`{"action":"hangup"}`, `{"action":"hangup","after_seconds":1},{"action":"pause","seconds":3}`, `{"action":"reject"}`, `{"action":"redirect","url":"URL/answer"}`))
	}
	return strings.ReplaceAll("["+strings.Join(items, ",")+"]", "URL", url)
}

// answer is what the application says: mostly a list, and every way to fail.
func (d *dice) answer(url string) (status int, body string) {
	switch d.n(16) {
	case 0:
		return http.StatusInternalServerError, ""
	case 1:
		return http.StatusNoContent, ""
	case 2:
		return http.StatusOK, "[]"
	case 3:
		return http.StatusOK, `[{"action":"say"}]`
	case 4:
		return http.StatusFound, ""
	default:
		return http.StatusOK, d.list(url)
	}
}

// TestRandomFlows runs calls whose applications, other parties, callers and controllers do anything at any time, and checks what holds
// whatever happens: one terminal event, the last, of each call; events without a gap; every leg, recording, queue entry and
// membership ended; no money held, and a ledger that adds up.
func TestRandomFlows(t *testing.T) {
	t.Parallel()
	modelstest.Run(t, "", func(t *testing.T, store *models.Store) {
		d := newDice(t)
		l := newSimulated(t, store, 10, quiet)
		require.NoError(t, store.InTx(t.Context(), func(tx *models.Store) error {
			_, err := tx.Credit(t.Context(), l.customer.ID, "random", "topup", 1_000_000_000, "")
			return err
		}))
		l.randomApplication(d)
		var crowd sync.WaitGroup
		for range randomCalls {
			crowd.Go(func() {
				// Refused when it comes after an end: there is nothing to check then.
				_, err := l.sim.CallIn(simswitch.IncomingCall{
					From: "+15559876543", To: l.did.NumberE164, Digits: d.of("", "1", "12", "*"), DigitsAfter: time.Duration(d.n(8)) * time.Second,
					HangupAfter: time.Duration(d.n(3)*d.n(10)) * time.Second, TalkFor: time.Duration(d.n(5)) * time.Second,
				})
				if err != nil {
					t.Errorf("call in: %v", err)
				}
			})
			crowd.Go(func() {
				_, err := l.manager.Create(t.Context(), CreateRequest{
					CustomerID: l.customer.ID, ApplicationID: l.app.ID, From: "+15550100001", To: d.number(), Timeout: 5, Record: d.n(3) == 0, Queued: d.n(4) == 0,
				})
				if err != nil {
					t.Errorf("create: %v", err)
				}
			})
		}
		for range 4 {
			crowd.Go(func() {
				// Spread over the calls' lives.
				pace := time.NewTicker(40 * time.Millisecond)
				defer pace.Stop()
				for range randomCommands / 4 {
					<-pace.C
					if err := l.command(t.Context(), d); err != nil {
						t.Errorf("command: %v", err)
					}
				}
			})
		}
		crowd.Wait()
		l.quench()
		l.checkAll()
	})
}

// randomApplication lets the application answer anything.
func (l *live) randomApplication(d *dice) {
	l.app.FallbackURL = l.server.URL + "/fallback"
	l.app.FallbackActions = json.RawMessage(`[{"action":"say","text":"Sorry"}]`)
	l.app.WaitActions = json.RawMessage(`[{"action":"pause","seconds":1}]`)
	require.NoError(l.t, l.store.UpdateApplication(l.t.Context(), l.app))
	l.answers("/sound.wav", func(w http.ResponseWriter, _ asked) { _, _ = w.Write(silentWAV()) })
	for _, path := range []string{"/answer", "/fallback"} {
		l.answers(path, func(w http.ResponseWriter, _ asked) {
			<-l.askedc // the channel of what was asked is not read here
			status, body := d.answer(l.server.URL)
			w.WriteHeader(status)
			_, _ = w.Write([]byte(body))
		})
	}
}

// command gives one command to one of the calls. What it may be refused with is no error.
func (l *live) command(ctx context.Context, d *dice) error {
	calls, _, err := l.store.ListCalls(ctx, l.customer.ID, models.CallFilter{}, models.Page{Limit: 200})
	if err != nil || len(calls) == 0 {
		return err
	}
	call := calls[d.n(len(calls))]
	switch d.n(8) {
	case 0, 1, 2, 3:
		raw := d.list(l.server.URL)
		list, err := actions.ParseList(json.RawMessage(raw), "actions")
		if err != nil {
			return fmt.Errorf("%s: %w", raw, err)
		}
		_, err = l.manager.Direct(ctx, l.customer.ID, call.ID, DirectRequest{Actions: list, Mode: d.of(ModeReplace, ModeAppend)})
		return refusal(err)
	case 4:
		_, err = l.manager.StartCall(ctx, l.customer.ID, call.ID, nil)
	case 5:
		if len(calls) > 3*randomCalls {
			return nil
		}
		_, err = l.manager.Retry(ctx, l.customer.ID, call.ID, nil)
	case 6:
		_, err = l.manager.Cancel(ctx, l.customer.ID, call.ID, nil)
	default:
		member, found := l.store.ConferenceMemberOfCall(ctx, l.customer.ID, call.ID)
		if found != nil {
			return refusal(l.manager.LeaveQueue(ctx, l.customer.ID, d.of("a", "b"), call.ID, nil))
		}
		if d.n(2) == 0 {
			err = l.manager.KickMember(ctx, l.customer.ID, member.ConferenceID, call.ID, nil)
		} else {
			err = l.manager.MuteMember(ctx, l.customer.ID, member.ConferenceID, call.ID, d.n(2) == 0, nil)
		}
	}
	return refusal(err)
}

// refusal leaves only the errors that are none of those a command may be refused with.
func refusal(err error) error {
	var request *RequestError
	for _, expected := range []error{models.ErrNotFound, ErrCallNotActive, ErrCallActive, ErrCallNotQueued, ErrCallNotStarted} {
		if errors.Is(err, expected) {
			return nil
		}
	}
	if errors.As(err, &request) {
		return nil
	}
	return err
}

// quench cancels calls until none is left, on either side.
func (l *live) quench() {
	l.t.Helper()
	limit := time.After(60 * time.Second)
	again := time.NewTicker(100 * time.Millisecond)
	defer again.Stop()
	for {
		calls, _, err := l.store.ListCalls(l.t.Context(), l.customer.ID, models.CallFilter{}, models.Page{Limit: 200})
		require.NoError(l.t, err)
		left := 0
		for _, call := range calls {
			if call.Live() {
				left++
				_, err := l.manager.Cancel(l.t.Context(), l.customer.ID, call.ID, nil)
				require.NoError(l.t, refusal(err))
			}
		}
		channels, err := l.esl.Channels(l.t.Context())
		require.NoError(l.t, err)
		if left == 0 && len(channels) == 0 && l.manager.LiveCalls() == 0 {
			return
		}
		select {
		case <-again.C:
		case <-limit:
			require.Fail(l.t, "calls do not end", "%d calls, %d channels, %d sessions", left, len(channels), l.manager.LiveCalls())
		}
	}
}

// checkAll checks what holds of all calls once they have ended.
func (l *live) checkAll() {
	l.t.Helper()
	ctx := l.t.Context()
	calls, _, err := l.store.ListCalls(ctx, l.customer.ID, models.CallFilter{}, models.Page{Limit: 200})
	require.NoError(l.t, err)
	require.GreaterOrEqual(l.t, len(calls), randomCalls)
	events, legs, recordings := 0, 0, 0
	for i := range calls {
		call := &calls[i]
		l.checkEnded(call)
		kinds := l.allKinds(call.ID)
		events += len(kinds)
		told := map[string]int{}
		for _, kind := range kinds {
			told[kind]++
		}
		rows, err := l.store.LegsOfCall(ctx, l.customer.ID, call.ID)
		require.NoError(l.t, err)
		legs += len(rows)
		for _, leg := range rows {
			require.Equal(l.t, models.LegEnded, leg.Status, "%s of %s: %v", leg.ID, call.ID, kinds)
			require.NotNil(l.t, leg.EndedAt)
		}
		require.Equal(l.t, len(rows), told["leg.ended"], "%s: %v", call.ID, kinds)
		files, err := l.store.RecordingsOfCall(ctx, l.customer.ID, call.ID)
		require.NoError(l.t, err)
		recordings += len(files)
		for _, file := range files {
			require.Contains(l.t, []string{models.RecordingAvailable, models.RecordingFailed}, file.Status, "%s of %s", file.ID, call.ID)
		}
		require.Equal(l.t, len(files), told["recording.available"]+told["recording.failed"], "%s: %v", call.ID, kinds)
		require.Equal(l.t, told["queue.joined"], told["queue.left"], "%s: %v", call.ID, kinds)
		require.Equal(l.t, told["conference.joined"], told["conference.left"], "%s: %v", call.ID, kinds)
	}
	queues, err := l.store.Queues(ctx, l.customer.ID)
	require.NoError(l.t, err)
	require.Empty(l.t, queues)
	conferences, _, err := l.store.Conferences(ctx, l.customer.ID, models.Page{})
	require.NoError(l.t, err)
	require.Empty(l.t, conferences)
	customer, err := l.store.Customer(ctx, l.customer.ID)
	require.NoError(l.t, err)
	require.Zero(l.t, customer.HeldMicros)
	l.t.Logf("%d calls, %d events, %d legs, %d recordings", len(calls), events, legs, recordings)
}

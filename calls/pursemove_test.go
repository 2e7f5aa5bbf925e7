package calls

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tandem/models"
	"tandem/models/modelstest"
)

// besides is another session of a call, which does not run: what it would do can be done step by step.
func (s *scene) besides(callID string) *session {
	s.t.Helper()
	call, err := s.store.CallByID(s.t.Context(), callID)
	require.NoError(s.t, err)
	c := newSession(s.manager.nodes[s.node.ID], call.ChannelID)
	c.app = s.app
	c.setCall(call)
	s.t.Cleanup(c.stopWatchingCap)
	return c
}

// talking is a call that has been answered and goes on.
func (s *scene) talking() *models.Call {
	s.t.Helper()
	s.has(10 * outboundPrice)
	s.answers("/answer", reply(`[{"action":"say","text":"Long"}]`))
	s.sw.hold("speak")
	call := s.create()
	require.Equal(s.t, 120, call.GrantedSeconds)
	s.sw.await("execute speak")
	return call
}

// The database commits that more is held and dies before it says so. Tried again, it is not held twice, and the call goes on.
func TestMoreIsHeldOnceThoughTheWordWasLost(t *testing.T) {
	t.Parallel()
	modelstest.Run(t, "", func(t *testing.T, store *models.Store) {
		s := newScene(t, store)
		c := s.besides(s.talking().ID)
		now := c.m.cfg.Now()
		account, err := c.account(now)
		require.NoError(t, err)
		h := &holding{s: c, account: account, now: now, limit: c.longest(account)}
		require.NoError(t, store.InTx(t.Context(), func(tx *models.Store) error {
			lost := *c.call
			return h.hold(t.Context(), tx, &lost)
		}))
		require.NoError(t, c.change("extend", h.hold))
		stored, err := store.CallByID(t.Context(), c.call.ID)
		require.NoError(t, err)
		require.EqualValues(t, 3*outboundPrice, stored.HoldMicros)
		require.Equal(t, []any{stored.HoldMicros, 1, stored.GrantedSeconds, stored.HoldMicros}, []any{c.call.HoldMicros, stored.Caps, c.call.GrantedSeconds, h.next.HoldMicros})
		customer, err := store.Customer(t.Context(), s.customer.ID)
		require.NoError(t, err)
		require.Equal(t, stored.HoldMicros, customer.HeldMicros)
	})
}

// While a cap waits for its node, no other one overtakes it: the switch would keep the earlier one, and nobody would know.
func TestOneCapAtATime(t *testing.T) {
	t.Parallel()
	s := newScene(t, modelstest.Open(t))
	c := s.besides(s.talking().ID)
	c.purse.until = c.call.AnsweredAt.Add(time.Duration(c.call.GrantedSeconds) * time.Second)
	s.sw.setDown(true)
	c.box.put(message{due: true})
	up := time.AfterFunc(200*time.Millisecond, func() { s.sw.setDown(false) })
	defer up.Stop()
	require.NoError(t, c.extend())
	require.Len(t, only(s.sw.log(), "sched_api"), 1)
	require.Equal(t, 1, c.call.Caps)
	require.NoError(t, c.due(), "and from then on as ever")
}

// A call that was to be answered by a party had its cap before. The next controller does not give it a second one under the same name, which
// could not be told from the first.
func TestCapOfAnUnansweredCallThatIsTakenOver(t *testing.T) {
	t.Parallel()
	s := newScene(t, modelstest.Open(t))
	s.answers("/answer", reply(`[{"action":"say","text":"Long"}]`))
	s.sw.hold("speak")
	channel := s.callIn()
	s.sw.await("execute speak")
	call, err := s.store.CallByChannel(t.Context(), channel)
	require.NoError(t, err)
	for len(s.sw.told) > 0 {
		<-s.sw.told
	}
	c := s.besides(call.ID)
	c.adopted = true
	require.NoError(t, c.capCall())
	group, seconds := capOf(t, s.sw.await("sched_api"))
	require.Equal(t, []any{".1", call.GrantedSeconds}, []any{group, seconds})
	require.Equal(t, channel, s.sw.await("sched_del").args)
	stored, err := s.store.CallByID(t.Context(), call.ID)
	require.NoError(t, err)
	require.Equal(t, 1, stored.Caps)

	// Answered when it had rung for a while: its cap may be as old as the ringing.
	c = s.besides(call.ID)
	now := c.m.cfg.Now()
	rung, answered := now.Add(-100*time.Second), now.Add(-60*time.Second)
	c.adopted, c.call.Caps, c.call.RingingAt, c.call.AnsweredAt = true, 0, &rung, &answered
	require.NoError(t, c.restoreCap())
	first := rung.Add(time.Duration(call.GrantedSeconds) * time.Second)
	require.False(t, c.purse.until.After(first))
	require.NoError(t, c.coverUntil(first.Add(10*time.Second)), "a party is called: the switch may have a cap as late as that")
	require.Equal(t, first.Add(10*time.Second), c.purse.until)
}

// A notice that comes when its call has ended is given back.
func TestNoticeOfACallThatHasEnded(t *testing.T) {
	t.Parallel()
	s := newScene(t, modelstest.Open(t))
	n, _, err := s.manager.pick(t.Context())
	require.NoError(t, err)
	c := newSession(n, "ending")
	require.NoError(t, s.manager.register(c))
	path := filepath.Join(t.TempDir(), "notice.wav")
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	media := s.manager.media
	held := func() int {
		media.mu.Lock()
		defer media.mu.Unlock()
		return media.held[path]
	}
	media.mu.Lock()
	media.held[path] = 1
	media.mu.Unlock()
	require.True(t, c.box.put(message{held: path}))
	s.manager.forget(c)
	require.Zero(t, held())
}

// Whoever dials a call for another controller knows what its earlier attempts have cost.
func TestAttemptsOfACallThatIsDialledElsewhere(t *testing.T) {
	t.Parallel()
	modelstest.Run(t, "", func(t *testing.T, store *models.Store) {
		s := heldScene(t, store, deaf, bySecond(t))
		other := s.elsewhere(deaf, bySecond(t))
		s.answers("/answer", reply(`[{"action":"say","text":"Long"}]`))
		s.sw.hold("speak")
		created, err := other.Create(t.Context(), CreateRequest{CustomerID: s.customer.ID, ApplicationID: s.app.ID, From: "+15550100001", To: "+15550100002"})
		require.NoError(t, err)
		const fee = 2_000
		now := store.Now()
		require.NoError(t, store.SaveLeg(t.Context(), &models.Leg{
			CallID: created.ID, CustomerID: created.CustomerID, ChannelID: "before", Kind: models.LegAttempt, To: created.To, Status: models.LegEnded, SIPCode: 503,
			CreatedAt: now, EndedAt: &now, Rate: &models.Rate{ConnectMicros: fee, ConnectOn: models.ConnectOnAttempt, IncrementSeconds: 1},
		}))
		paid := make(chan error, 10)
		s.sw.script("sched_api", func(c command) error {
			call, err := store.CallByChannel(context.WithoutCancel(t.Context()), c.channel)
			if err == nil {
				_, seconds := capOf(t, c)
				rate := models.Rate{PerMinuteMicros: outboundPrice, IncrementSeconds: 1}
				if call.HoldMicros < fee+rate.Cost(true, int(time.Since(*call.AnsweredAt)/time.Second)+seconds) {
					err = errors.New("what is held does not pay for the attempt")
				}
			}
			paid <- err
			return nil
		})
		require.NoError(t, s.manager.dialElsewhere(t.Context(), s.manager.nodes[s.node.ID], created.ID))
		require.NoError(t, <-paid)
		s.sw.hangup(created.ChannelID, causeNormal, "variable_sip_hangup_disposition", "recv_bye", "variable_billsec", "1")
		require.EqualValues(t, 1_000+fee, s.end().CostMicros)
	})
}

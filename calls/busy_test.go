package calls

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tandem/esl"
	"tandem/models"
	"tandem/models/modelstest"
)

// A command that the switch was too busy for is sent again, and one whose reply is late is found out about: neither ends a call.
func TestBusySwitchEndsNoCall(t *testing.T) {
	t.Parallel()
	busy := fmt.Errorf("%w: the deadline is over", esl.ErrBusy)
	late := fmt.Errorf("%w: the deadline is over", esl.ErrNoReply)
	for name, c := range map[string]struct {
		verb string
		err  error
		sent int // how often
	}{
		"dial, not sent":           {"originate", busy, 3},
		"dial, late":               {"originate", late, 1},
		"variable, not sent":       {"setvar", busy, -1},
		"variable, late":           {"setvar", late, -1},
		"application, not sent":    {"execute speak", busy, 3},
		"application, not carried": {"execute speak", late, 3},
		"party's limit, not sent":  {"sched_hangup", busy, 3},
		"party's limit, late":      {"sched_hangup", late, 3},
		"party's digits, not sent": {"execute send_dtmf", busy, 3},
		"party's digits, late":     {"execute send_dtmf", late, 1},
	} {
		modelstest.Run(t, name, func(t *testing.T, store *models.Store) {
			s := newScene(t, store)
			s.answers("/answer", reply(`[{"action":"say","text":"Hello"},{"action":"dial","to":{"number":"+15550000200","send_digits":"1w2"},"max_seconds":90}]`))
			party, ends := strings.HasPrefix(name, "party"), ReasonCompleted
			s.sw.dials(map[string]dialedParty{"0200": {answers: true, joined: true, lives: party}})
			failures := 2
			if c.sent == 1 {
				failures = 1
			}
			s.sw.script(c.verb, func(cmd command) error {
				if failures--; failures == 0 {
					s.sw.script(c.verb, nil)
				}
				if c.verb == "originate" && errors.Is(c.err, esl.ErrNoReply) { // the switch does it all the same
					s.sw.mu.Lock()
					s.sw.channels[cmd.channel] = &fakeChannel{direction: "outbound"}
					s.sw.mu.Unlock()
					s.sw.answer(cmd.channel)
					s.sw.event("CHANNEL_PARK", cmd.channel)
				}
				return c.err
			})
			created := s.create()
			if party {
				for range c.sent {
					s.sw.await(c.verb)
				}
				_, err := s.manager.Cancel(t.Context(), s.customer.ID, created.ID, nil)
				require.NoError(t, err)
				ends = ReasonAPIHangup
			}
			call := s.end()
			require.Equal(t, []any{StatusCompleted, ends}, []any{call.Status, call.Reason}, "%q", s.sw.log())
			if c.sent > 0 {
				require.Len(t, only(s.sw.log(), c.verb), c.sent, "%q", s.sw.log())
			}
		})
	}
}

// Whoever steered the call has noted that the party was joined and died before the switch knew how long it may stay: the next tells it.
func TestPartysLimitOutlivesItsController(t *testing.T) {
	t.Parallel()
	modelstest.Run(t, "", func(t *testing.T, store *models.Store) {
		s := heldScene(t, store)
		s.answers("/answer", reply(`[{"action":"dial","to":{"number":"+15550000200","send_digits":"1w2"},"max_seconds":90}]`))
		s.sw.dials(map[string]dialedParty{"0200": {answers: true, joined: true, lives: true}})
		s.sw.script("sched_hangup", func(command) error { return esl.ErrBusy })
		s.create()
		channel := s.sw.await("originate").channel
		leg := s.sw.await("sched_hangup").channel
		s.manager.die()
		s.sw.script("sched_hangup", nil)
		for len(s.sw.told) > 0 {
			<-s.sw.told
		}
		s.nextController()
		told := s.sw.await("sched_hangup")
		require.Equal(t, leg, told.channel)
		require.Regexp(t, `^1m(30|2\d)s ALLOTTED_TIMEOUT$`, told.args)
		s.sw.hangup(leg, causeTimeLimit)
		s.sw.hangup(channel, causeNormal)
		s.end()
	})
}

// The database commits that a call is ours to dial and dies before it says so. Asked again, it is still ours; it was never dialled
// else, and would be by nobody.
func TestDiallingIsClaimedThoughTheWordWasLost(t *testing.T) {
	t.Parallel()
	modelstest.Run(t, "", func(t *testing.T, store *models.Store) {
		s := heldScene(t, store, deaf)
		other := s.elsewhere(deaf)
		ctx := t.Context()
		created, err := other.Create(ctx, CreateRequest{CustomerID: s.customer.ID, ApplicationID: s.app.ID, From: "+15550100001", To: "+15550100002"})
		require.NoError(t, err)
		node := s.manager.nodes[s.node.ID]
		claimer := func() *session {
			command, call, err := s.manager.storedDial(ctx, created.ID)
			require.NoError(t, err)
			require.NotNil(t, command)
			c := newSession(node, call.ChannelID)
			c.setCall(call)
			c.dial = command
			return c
		}
		first, late := claimer(), claimer()
		over, cancel := context.WithCancel(ctx)
		cancel()
		require.ErrorIs(t, first.claimDial(over), context.Canceled)
		_, err = store.ClaimDial(ctx, first.dial, node.row.LeaseToken, false) // what the first try has done
		require.NoError(t, err)
		require.NoError(t, first.claimDial(ctx))
		require.Nil(t, first.dial)
		require.ErrorIs(t, late.claimDial(ctx), models.ErrStale, "who has not tried before is too late")
	})
}

// A call that the switch was not told of yet has no channel there. Nobody takes that for its end: not when the node connects, and not the
// watchdog.
func TestCallThatIsNotDialledYetIsNotMissed(t *testing.T) {
	t.Parallel()
	s := newScene(t, modelstest.Open(t), func(c *Config) { c.HangupGrace = 5 * time.Millisecond })
	s.answers("/answer", reply(`[{"action":"dtmf","digits":"1"}]`))
	s.sw.script("originate", func(command) error { return esl.ErrBusy })
	created := s.create()
	seen := new(suspicion)
	for range 8 {
		s.sw.await("originate")
		s.sw.handler.HandleUp(esl.Snapshot{CoreUUID: "core"})
		seen = s.manager.look(t.Context(), seen)
	}
	s.sw.script("originate", nil)
	call := s.end()
	require.Equal(t, []any{created.ID, StatusCompleted, ReasonCompleted}, []any{call.ID, call.Status, call.Reason})
}

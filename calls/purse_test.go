package calls

import (
	"context"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tandem/billing"
	"tandem/esl"
	"tandem/models"
	"tandem/models/modelstest"
)

// bySecond bills by the second and grants a call three seconds at a time, so that it is extended every other second.
func bySecond(t *testing.T) func(*Config) {
	t.Helper()
	rater, err := billing.New(billing.Config{
		OutboundPerMinuteMicros: outboundPrice, InboundPerMinuteMicros: inboundPrice, IncrementSeconds: 1, MinGrantSeconds: 1, MaxGrantSeconds: 3, MaxCallSeconds: 3600,
	})
	require.NoError(t, err)
	return func(c *Config) { c.Rater = rater }
}

// has leaves the scene's customer a balance.
func (s *scene) has(balance int64) {
	s.t.Helper()
	customer, err := s.store.Customer(s.t.Context(), s.customer.ID)
	require.NoError(s.t, err)
	_, err = s.store.Credit(s.t.Context(), s.customer.ID, "left", models.LedgerAdjust, balance-customer.BalanceMicros, "")
	require.NoError(s.t, err)
}

// capOf reads a command that gives the switch a cap: its group without the channel, and after how many seconds.
func capOf(t *testing.T, c command) (group string, seconds int) {
	t.Helper()
	words := strings.Fields(c.args)
	require.Len(t, words, 3)
	require.Equal(t, causeTimeLimit, words[2])
	after, err := time.ParseDuration(words[1])
	require.NoError(t, err)
	return strings.TrimPrefix(words[0], c.channel), int(after / time.Second)
}

func TestCallIsExtendedBeforeItsCap(t *testing.T) {
	t.Parallel()
	modelstest.Run(t, "", func(t *testing.T, store *models.Store) {
		s := newScene(t, store, bySecond(t))
		s.answers("/answer", reply(`[{"action":"say","text":"Long"}]`))
		s.sw.hold("speak")
		s.sw.script("sched_api", func(c command) error {
			// Held first: whatever the switch allows is paid for.
			call, err := store.CallByChannel(context.WithoutCancel(t.Context()), c.channel)
			if err != nil {
				return err
			}
			_, seconds := capOf(t, c)
			rate := models.Rate{PerMinuteMicros: outboundPrice, IncrementSeconds: 1}
			allowed := int(time.Since(*call.AnsweredAt)/time.Second) + seconds
			if call.HoldMicros < rate.Cost(true, allowed) {
				t.Errorf("%d held, the switch allows %d s", call.HoldMicros, allowed)
			}
			return nil
		})
		call := s.create()
		require.Equal(t, []int64{3_000, 3}, []int64{call.HoldMicros, int64(call.GrantedSeconds)})
		for n := 1; n <= 3; n++ {
			c := s.sw.await("sched_api")
			group, seconds := capOf(t, c)
			require.Equal(t, "."+strconv.Itoa(n), group)
			require.LessOrEqual(t, seconds, 3)
			deleted := s.sw.await("sched_del")
			require.Equal(t, capGroup(c.channel, n-1), deleted.args, "the old cap goes once the new one is there")
		}
		s.sw.hangup(call.ChannelID, causeNormal, "variable_sip_hangup_disposition", "recv_bye", "variable_billsec", "5")
		ended := s.end()
		require.Equal(t, []any{ReasonCalleeHangup, 5, int64(5_000)}, []any{ended.Reason, ended.BilledSeconds, ended.CostMicros})
		require.Equal(t, capGroup(call.ChannelID, ended.Caps), s.sw.await("sched_del").args, "the switch keeps no cap of a call that has ended")
		lines, err := store.ChargesOf(t.Context(), s.customer.ID, call.ID)
		require.NoError(t, err)
		require.Len(t, lines, 1)
		require.Equal(t, []any{models.ChargeCall, 5, int64(5_000), true}, []any{lines[0].Kind, lines[0].BilledSeconds, lines[0].AmountMicros, lines[0].Answered})
		customer, err := store.Customer(t.Context(), s.customer.ID)
		require.NoError(t, err)
		require.Equal(t, []int64{startBalance - 5_000, 0}, []int64{customer.BalanceMicros, customer.HeldMicros})
	})
}

func TestCallWithoutMoneyIsToldAndEnds(t *testing.T) {
	t.Parallel()
	modelstest.Run(t, "", func(t *testing.T, store *models.Store) {
		s := newScene(t, store, bySecond(t))
		s.app.BalanceNoticeURL = s.server.URL + "/notice.wav"
		require.NoError(t, store.UpdateApplication(t.Context(), s.app))
		s.answers("/notice.wav", func(w http.ResponseWriter, _ asked) { _, _ = w.Write(hush(sec).wav()) })
		s.answers("/answer", reply(`[{"action":"say","text":"Long"}]`))
		s.sw.hold("speak")
		s.has(3_500)
		call := s.create()
		require.Equal(t, 2, call.GrantedSeconds, "the least")
		group, _ := capOf(t, s.sw.await("sched_api"))
		require.Equal(t, ".1", group, "as far as the balance goes")
		notice := s.sw.await("displace")
		require.Equal(t, call.ChannelID, notice.channel)
		require.Contains(t, notice.args, ".wav")
		s.sw.hangup(call.ChannelID, causeTimeLimit, "variable_sip_hangup_disposition", "send_bye", "variable_billsec", "3")
		ended := s.end()
		require.Equal(t, []any{StatusCompleted, ReasonInsufficientBalance, SourcePlatform, int64(3_000)}, []any{ended.Status, ended.Reason, ended.HangupSource, ended.CostMicros})
		require.NotNil(t, ended.ShortAt)
		data := s.dataOf(call.ID, "balance.low")
		require.Len(t, data, 1, "once")
		require.InDelta(t, 2, data[0]["seconds_left"], 1)
		require.InDelta(t, 3_500, data[0]["balance_micros"], 0)
	})
}

// Money that comes before the cap lets the call go on.
func TestCallGoesOnWithNewMoney(t *testing.T) {
	t.Parallel()
	modelstest.Run(t, "", func(t *testing.T, store *models.Store) {
		s := newScene(t, store, bySecond(t))
		s.answers("/answer", reply(`[{"action":"say","text":"Long"}]`))
		s.sw.hold("speak")
		s.has(3_000)
		call := s.create()
		until := func(short bool) *models.Call {
			for {
				_ = s.sw.await("sched_api")
				found, err := store.CallByID(t.Context(), call.ID)
				require.NoError(t, err)
				if short == (found.ShortAt != nil) {
					return found
				}
			}
		}
		short := until(true)
		require.Equal(t, int64(3_000), short.HoldMicros, "all that there is")
		_, err := store.Credit(t.Context(), s.customer.ID, "more", models.LedgerTopup, 1_000_000, "")
		require.NoError(t, err)
		more := until(false)
		require.Greater(t, more.HoldMicros, short.HoldMicros)
		s.sw.hangup(call.ChannelID, causeNormal, "variable_sip_hangup_disposition", "recv_bye")
		require.Equal(t, ReasonCalleeHangup, s.end().Reason)
	})
}

// A call that lasts as long as it may is no call without money.
func TestLongestCall(t *testing.T) {
	t.Parallel()
	s := newScene(t, modelstest.Open(t), func(c *Config) {
		rater, err := billing.New(billing.Config{OutboundPerMinuteMicros: outboundPrice, IncrementSeconds: 1, MinGrantSeconds: 1, MaxCallSeconds: 2})
		require.NoError(t, err)
		c.Rater = rater
	})
	s.answers("/answer", reply(`[{"action":"say","text":"Long"}]`))
	s.sw.hold("speak")
	call := s.create()
	require.Equal(t, []int64{2_000, 2}, []int64{call.HoldMicros, int64(call.GrantedSeconds)})
	s.sw.await("execute speak")
	s.sw.hangup(call.ChannelID, causeTimeLimit, "variable_sip_hangup_disposition", "send_bye", "variable_billsec", "2")
	ended := s.end()
	require.Equal(t, []any{ReasonTimeLimit, 0}, []any{ended.Reason, ended.Caps})
}

// The hold of a call is for its parties, too; each is a line of its bill.
func TestPartiesAreBilled(t *testing.T) {
	t.Parallel()
	modelstest.Run(t, "", func(t *testing.T, store *models.Store) {
		s := newScene(t, store)
		s.answers("/answer", reply(`[{"action":"dial","to":[{"number":"+15550000200"},{"number":"+15550000486"},{"sip":"sip:desk@127.0.0.1"}]},{"action":"hangup"}]`))
		s.sw.dials(map[string]dialedParty{"0200": {answers: true, joined: true}, "0486": {cause: "USER_BUSY", sip: "486"}, "127.0.0.1": {cause: "USER_BUSY", sip: "486"}})
		call := s.create()
		require.EqualValues(t, 60*outboundPrice, call.HoldMicros)
		s.sw.await("execute bridge")
		ended := s.end()
		require.EqualValues(t, 2*outboundPrice, ended.CostMicros)
		lines, err := store.ChargesOf(t.Context(), s.customer.ID, call.ID)
		require.NoError(t, err)
		got := map[string][]any{}
		for _, line := range lines {
			got[line.Target] = []any{line.Kind, line.Answered, line.BilledSeconds, line.AmountMicros}
		}
		require.Equal(t, map[string][]any{
			"+15550100002": {models.ChargeCall, true, 7, int64(outboundPrice)}, "+15550000200": {models.LegDial, true, 7, int64(outboundPrice)},
			"+15550000486": {models.LegDial, false, 0, int64(0)}, "sip:desk@127.0.0.1": {models.LegDial, false, 0, int64(0)},
		}, got)
		log := s.sw.log()
		at := func(prefix string) int {
			for i, line := range log {
				if strings.HasPrefix(line, prefix) {
					return i
				}
			}
			return -1
		}
		require.Less(t, at("sched_api"), at("execute bridge"), "what is held lasts the shorter, and the switch knows before it dials")
		require.Less(t, at("sched_api"), at("sched_del"))
	})
}

// A party that the balance does not pay for is not called; the first ones for which it lasts are.
func TestPartiesThatTheBalanceDoesNotPayFor(t *testing.T) {
	t.Parallel()
	modelstest.Run(t, "", func(t *testing.T, store *models.Store) {
		s := newScene(t, store)
		s.answers("/answer", reply(`[{"action":"dial","to":[{"number":"+15550000200"},{"number":"+15550000201"}]},{"action":"hangup"}]`))
		s.sw.dials(map[string]dialedParty{"0200": {cause: "USER_BUSY", sip: "486"}, "0201": {cause: "USER_BUSY", sip: "486"}})
		s.has(6 * outboundPrice) // the third minute of the call and two of one party, not those of another
		call := s.create()
		s.end()
		bridges := s.bridges()
		require.Len(t, bridges, 1)
		require.Contains(t, bridges[0], "0200")
		require.NotContains(t, bridges[0], "15550000201")
		result := s.data(call.ID, "call.action_completed")["result"].(map[string]any)
		require.Equal(t, []any{map[string]any{"to": "+15550000201", "reason": ReasonInsufficientBalance}}, result["refused"])
	})
}

// A controller that takes a call over gives the switch the cap that is held for, whatever the one before had come to.
func TestCapIsRestored(t *testing.T) {
	t.Parallel()
	modelstest.Run(t, "", func(t *testing.T, store *models.Store) {
		s := heldScene(t, store, bySecond(t))
		s.answers("/answer", reply(`[{"action":"say","text":"Long"}]`))
		s.sw.hold("speak")
		call := s.create()
		s.sw.script("sched_api", func(command) error { return esl.ErrBusy })
		require.Equal(t, call.ChannelID, s.sw.await("sched_api").channel)
		s.manager.die()
		stored, err := store.CallByID(t.Context(), call.ID)
		require.NoError(t, err)
		require.Equal(t, 1, stored.Caps)
		require.Greater(t, stored.HoldMicros, call.HoldMicros, "held before the switch was told")
		s.sw.script("sched_api", nil)
		for len(s.sw.told) > 0 {
			<-s.sw.told
		}
		s.nextController(bySecond(t))
		group, _ := capOf(t, s.sw.await("sched_api"))
		require.Equal(t, ".3", group, "not the one that may be there already")
		for n := 2; n >= 0; n-- {
			require.Equal(t, capGroup(call.ChannelID, n), s.sw.await("sched_del").args)
		}
		group, _ = capOf(t, s.sw.await("sched_api"))
		require.Equal(t, ".4", group, "and goes on extending it")
		s.sw.hangup(call.ChannelID, causeNormal, "variable_sip_hangup_disposition", "recv_bye")
		s.end()
	})
}

// Who is suspended begins no calls and gets none; a call for which there is no money is refused as the operator wants it.
func TestRefusedForTheAccount(t *testing.T) {
	t.Parallel()
	modelstest.Run(t, "", func(t *testing.T, store *models.Store) {
		s := newScene(t, store, func(c *Config) { c.NoBalanceStatus = http.StatusPaymentRequired })
		s.has(inboundPrice)
		s.callIn()
		require.Equal(t, "respond 402", s.sw.await("execute respond").args)
		var calls []models.Call
		require.Eventually(t, func() bool {
			var err error
			calls, _, err = store.ListCalls(t.Context(), s.customer.ID, models.CallFilter{}, models.Page{})
			return err == nil && len(calls) == 1 && !calls[0].Live()
		}, patience, 5*time.Millisecond)
		require.Equal(t, []any{ReasonInsufficientBalance, 402}, []any{calls[0].Reason, calls[0].SIPCode})
		lines, err := store.ChargesOf(t.Context(), s.customer.ID, calls[0].ID)
		require.NoError(t, err)
		require.Empty(t, lines)
	})
}

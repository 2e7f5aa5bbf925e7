package lab_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tandem/models"
)

// noticeLength is how long the notice sounds that the balance runs out.
const noticeLength = 2 * time.Second

// noticed makes an application that plays a tone and has a notice for calls whose balance runs out.
func (s *system) noticed(t *testing.T, who customer, name string, answer func(*application) []object) *application {
	t.Helper()
	app := s.newApplication(t, who, name, map[string][]byte{
		"tone.wav": wav(hum(2*time.Minute, playedHertz)), "notice.wav": wav(hum(noticeLength, noticeHertz)),
	}, nil)
	app.answer = func(question) any { return answer(app) }
	s.change(t, app, object{"balance_notice_url": app.url + "/files/notice.wav"})
	return app
}

// low is what a call's one balance.low event said, and when.
func low(t *testing.T, store *models.Store, row *models.Call, events []object) (left time.Duration, at time.Time) {
	t.Helper()
	list, err := store.CallEvents(t.Context(), row.CustomerID, row.ID)
	require.NoError(t, err)
	count := 0
	for _, event := range events {
		if event.text("type") == "balance.low" {
			count++
			left = time.Duration(event.part("data").number("seconds_left")) * time.Second
		}
	}
	require.Equal(t, 1, count, "%v", kinds(events))
	for _, event := range list { // with the ones that the application is not told of
		if event.Type == "balance.low" {
			at = event.CreatedAt
		}
	}
	t.Logf("balance.low %s after the answer: %s left", at.Sub(*row.AnsweredAt), left)
	return left, at
}

// hearsNotice looks for the notice in what somebody received, once and whole, and returns when it began in the recording.
func hearsNotice(t *testing.T, samples []int16) time.Duration {
	t.Helper()
	notices := heard(samples, noticeHertz, toneAmplitude, time.Second)
	require.Len(t, notices, 1)
	t.Logf("the notice was heard for %s, %s before the end", notices[0].length(), time.Duration(len(samples))*time.Second/soundRate-notices[0].from)
	require.InDelta(t, noticeLength.Seconds(), notices[0].length().Seconds(), 0.1)
	return notices[0].from
}

// testRunsOut has a call end whose balance paid for the least: it is told before, and so is the callee.
func testRunsOut(t *testing.T, s *system, store *models.Store) {
	who := s.payer(t, "runs-out", "6.6")
	app := s.noticed(t, who, "runs out", func(app *application) []object {
		return []object{{"action": "pause", "seconds": 3}, {"action": "play", "url": app.url + "/files/tone.wav"}, {"action": "hangup"}}
	})
	id := s.callFrom(t, app, "+15550900005", nil).text("id")
	caps := watchCaps(t, s.node, rowOf(t, store, id).ChannelID)
	app.until(soon(t), t, id, "call.answered")
	file := s.receives(t, "+15550900005")
	end, events := app.ended(seconds(t, 100), t, s, id)
	require.Equal(t, []any{"call.completed", "insufficient_balance", "ALLOTTED_TIMEOUT"}, []any{end.text("type"), end.part("call")["reason"], end.part("call")["cause"]})

	row := rowOf(t, store, id)
	require.Len(t, caps.all(t), 1)
	cdr := cdrOf(t, store, row, row.ChannelID)
	require.InDelta(t, leastGrant, cdr.EndedAt.Sub(*cdr.AnsweredAt).Seconds(), 1.5)
	left, at := low(t, store, row, events)
	require.InDelta(t, 20, left.Seconds(), 2)
	require.InDelta(t, cdr.EndedAt.Sub(at).Seconds(), left.Seconds(), 2)
	samples := samplesOf(t, file)
	hearsNotice(t, samples)
	heard := listenFor(t, samples, playedHertz, toneAmplitude)
	t.Logf("the tone was heard for %s, the longest break %s", heard.length(), heard.longest)
	require.Empty(t, heard.gaps, "the notice is mixed in")
	cost := charged(t, store, id, outboundSecond)
	balance, held := purseOf(t, store, who)
	require.Equal(t, []int64{leastGrant*outboundSecond - cost, 0}, []int64{balance, held})
}

// testMoneyComes has a call go on for which money came when it had been told that it would end. It was silent: the notice is heard then, too.
func testMoneyComes(t *testing.T, s *system, store *models.Store) {
	who := s.payer(t, "money-comes", "6.6")
	app := s.noticed(t, who, "money comes", func(*application) []object {
		return []object{{"action": "pause", "seconds": 85}, {"action": "hangup"}}
	})
	id := s.callFrom(t, app, "+15550900006", nil).text("id")
	caps := watchCaps(t, s.node, rowOf(t, store, id).ChannelID)
	app.until(soon(t), t, id, "call.answered")
	file := s.receives(t, "+15550900006")
	app.until(seconds(t, 90), t, id, "balance.low")
	s.run(t, "customers", "credit", who.id, "20", "--key", "more")
	end, events := app.ended(seconds(t, 100), t, s, id)
	require.Equal(t, []any{"call.completed", "completed", "actions"}, []any{end.text("type"), end.part("call")["reason"], end.part("call")["hangup_source"]})

	row := rowOf(t, store, id)
	require.Len(t, caps.all(t), 2)
	require.Nil(t, row.ShortAt)
	low(t, store, row, events)
	hearsNotice(t, samplesOf(t, file))
	cdr := cdrOf(t, store, row, row.ChannelID)
	require.InDelta(t, 85, cdr.BilledSeconds, 3)
	cost := charged(t, store, id, outboundSecond)
	balance, held := purseOf(t, store, who)
	require.Equal(t, []int64{26_600_000 - cost, 0}, []int64{balance, held})
}

// testPartiesRunOut has the balance run out while two parties speak: both hear the notice, and both are billed.
func testPartiesRunOut(t *testing.T, s *system, store *models.Store) {
	who := s.payer(t, "parties", "15")
	first, second := s.carrier.SaysSteadily(t, 9007, wav(hum(2*time.Minute, firstHertz))), s.carrier.SaysSteadily(t, 9008, wav(hum(2*time.Minute, secondHertz)))
	app := s.noticed(t, who, "parties", func(*application) []object {
		return []object{{"action": "pause", "seconds": 3}, {"action": "dial", "to": second}, {"action": "hangup"}}
	})
	id := s.callFrom(t, app, first, nil).text("id")
	caps := watchCaps(t, s.node, rowOf(t, store, id).ChannelID)
	app.until(soon(t), t, id, "call.answered")
	files := map[float64]string{secondHertz: s.receives(t, first)}
	app.until(soon(t), t, id, "leg.answered")
	files[firstHertz] = s.receives(t, second)
	end, events := app.ended(seconds(t, 120), t, s, id)
	require.Equal(t, []any{"call.completed", "insufficient_balance", "ALLOTTED_TIMEOUT"}, []any{end.text("type"), end.part("call")["reason"], end.part("call")["cause"]})

	row := rowOf(t, store, id)
	moved := caps.all(t)
	cdr := cdrOf(t, store, row, row.ChannelID)
	require.InDelta(t, moved[len(moved)-1].due.Sub(*cdr.AnsweredAt).Seconds(), cdr.EndedAt.Sub(*cdr.AnsweredAt).Seconds(), 1.5)
	left, at := low(t, store, row, events)
	require.InDelta(t, cdr.EndedAt.Sub(at).Seconds(), left.Seconds(), 2)
	for hertz, file := range files {
		samples := samplesOf(t, file)
		hearsNotice(t, samples)
		heard := listenFor(t, samples, hertz, toneAmplitude)
		t.Logf("a party heard %g Hz for %s, the longest break %s, gaps %v", hertz, heard.length(), heard.longest, heard.gaps)
		require.Empty(t, heard.gaps)
	}
	cost := charged(t, store, id, outboundSecond)
	require.LessOrEqual(t, cost, int64(15_000_000))
	balance, held := purseOf(t, store, who)
	require.Equal(t, []int64{15_000_000 - cost, 0}, []int64{balance, held})
}

package lab_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tandem/models"
)

// The tones of these tests: what a call plays, what the first and the second party sound, and the notice.
const (
	playedHertz = 440
	firstHertz  = 350
	secondHertz = 620
	noticeHertz = 1300
)

// lastsLonger is for how long the tone of a call sounds that is extended three times: at 46, 92 and 138 s, for as long as the least is
// granted.
const lastsLonger = 150 * time.Second

// forgiven is how many seconds a jitter buffer may have left out, a packet here and there, where it had grown.
const forgiven = 3

// TestFreeSWITCHExtendedCalls has calls with money left go on past their caps: nobody hears anything of it.
func TestFreeSWITCHExtendedCalls(t *testing.T) {
	t.Parallel()
	s, _, store := witnessed(t, moneyPrices...)
	t.Run("calls", func(t *testing.T) {
		for name, test := range map[string]func(*testing.T, *system, *models.Store){
			"extended three times":             testExtendedThreeTimes,
			"with a party":                     testExtendedWithAParty,
			"runs out":                         testRunsOut,
			"money comes in the last 20 s":     testMoneyComes,
			"runs out while two parties speak": testPartiesRunOut,
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				test(t, s, store)
			})
		}
	})
	s.ledgerHolds(t)
	differences, err := store.BillingDifferences(t.Context())
	require.NoError(t, err)
	require.Empty(t, differences)
}

// testExtendedThreeTimes plays a tone for two and a half minutes to a callee, under grants of little more than one.
func testExtendedThreeTimes(t *testing.T, s *system, store *models.Store) {
	who := s.payer(t, "extended", "100") // a hundredth of it is less than the least
	played := hum(lastsLonger, playedHertz)
	app := s.newApplication(t, who, "extended", map[string][]byte{"tone.wav": wav(played)}, nil)
	app.answer = func(question) any {
		return []object{{"action": "pause", "seconds": 3}, {"action": "play", "url": app.url + "/files/tone.wav"}, {"action": "hangup"}}
	}
	id := s.callFrom(t, app, "+15550900002", nil).text("id")
	caps := watchCaps(t, s.node, rowOf(t, store, id).ChannelID)
	app.until(soon(t), t, id, "call.answered")
	file := s.receives(t, "+15550900002")
	end, _ := app.ended(seconds(t, 200), t, s, id)
	require.Equal(t, []any{"completed", "actions"}, []any{end.part("call")["reason"], end.part("call")["hangup_source"]})

	row := rowOf(t, store, id)
	require.Equal(t, 3, row.Caps, "extensions")
	require.Len(t, caps.all(t), 1+row.Caps)
	heard := listenFor(t, samplesOf(t, file), playedHertz, toneAmplitude)
	t.Logf("extended %d times; the callee heard the tone for %s (%s were played), the longest break %s, gaps %v", row.Caps, heard.length(), lastsLonger, heard.longest, heard.gaps)
	require.Empty(t, heard.gaps)
	require.InDelta(t, lastsLonger.Seconds(), heard.length().Seconds(), forgiven)
	cost := charged(t, store, id, outboundSecond)
	balance, held := purseOf(t, store, who)
	require.Equal(t, []int64{100_000_000 - cost, 0}, []int64{balance, held})
}

// testExtendedWithAParty joins a call with a party who is paid for from the same hold: the cap comes earlier, and is moved.
func testExtendedWithAParty(t *testing.T, s *system, store *models.Store) {
	who := s.payer(t, "bridged", "1700") // a hundredth of it pays for the greatest grant of one leg, not for that of two
	first, second := s.carrier.SaysSteadily(t, 9003, wav(hum(220*time.Second, firstHertz))), s.carrier.SaysSteadily(t, 9004, wav(hum(220*time.Second, secondHertz)))
	app := s.newApplication(t, who, "bridged", nil, func(question) any {
		return []object{{"action": "pause", "seconds": 3}, {"action": "dial", "to": second, "max_seconds": int(lastsLonger.Seconds())}, {"action": "hangup"}}
	})
	id := s.callFrom(t, app, first, nil).text("id")
	caps := watchCaps(t, s.node, rowOf(t, store, id).ChannelID)
	app.until(soon(t), t, id, "call.answered")
	files := map[float64]string{secondHertz: s.receives(t, first)}
	app.until(soon(t), t, id, "leg.answered")
	files[firstHertz] = s.receives(t, second)
	app.ended(seconds(t, 200), t, s, id)

	row := rowOf(t, store, id)
	moved := caps.all(t)
	require.Len(t, moved, 1+row.Caps)
	require.GreaterOrEqual(t, row.Caps, 3, "earlier for the party, and extended twice at least")
	require.InDelta(t, greatestGrant, moved[0].due.Sub(*row.AnsweredAt).Seconds(), 1.5)
	require.Less(t, moved[1].due, moved[0].due.Add(-time.Minute), "what is held pays for two about half as long")
	for _, later := range moved[2:] {
		require.Greater(t, later.due, moved[1].due)
	}
	for hertz, file := range files {
		heard := listenFor(t, samplesOf(t, file), hertz, toneAmplitude)
		t.Logf("a party heard %g Hz for %s, the longest break %s, gaps %v", hertz, heard.length(), heard.longest, heard.gaps)
		require.Empty(t, heard.gaps)
		require.InDelta(t, lastsLonger.Seconds(), heard.length().Seconds(), forgiven)
	}
	cost := charged(t, store, id, outboundSecond)
	status, bill := s.ask(t, who, http.MethodGet, "/v1/calls/"+id+"/charges", nil)
	require.Equal(t, http.StatusOK, status, bill)
	lines, _ := bill["data"].([]any)
	require.Len(t, lines, 2)
	told := 0
	for _, line := range lines {
		told += object(line.(map[string]any)).number("amount_micros")
	}
	require.EqualValues(t, cost, told, "the customer is told the same: %v", lines)
	balance, held := purseOf(t, store, who)
	require.Equal(t, []int64{1_700_000_000 - cost, 0}, []int64{balance, held})
}

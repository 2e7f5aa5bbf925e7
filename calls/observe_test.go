package calls

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tandem/actions"
	"tandem/egress"
	"tandem/models/modelstest"
)

// observed keeps what an Observer is told.
type observed struct {
	mu      sync.Mutex
	asked   []string
	setUps  int
	media   []Media
	refused []string
}

func (o *observed) AnswerURL(result string, took time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if took < 0 {
		result = "negative"
	}
	o.asked = append(o.asked, result)
}

func (o *observed) SetUp(took time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if took >= 0 {
		o.setUps++
	}
}

func (o *observed) Refused(kind string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.refused = append(o.refused, kind)
}

func (o *observed) Media(heard Media) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.media = append(o.media, heard)
}

// What is measured of a call is told once: its set-up, each request to the application, and what it heard.
func TestObserver(t *testing.T) {
	t.Parallel()
	seen := &observed{}
	s := newScene(t, modelstest.Open(t), func(c *Config) { c.Observer = seen })
	s.app.FallbackURL = s.server.URL + "/fallback"
	require.NoError(t, s.store.UpdateApplication(t.Context(), s.app))
	s.answers("/answer", status(http.StatusServiceUnavailable), status(http.StatusNotFound))
	s.answers("/fallback", reply(`[{"action":"hangup"}]`))
	s.sw.script("kill", func(k command) error {
		s.sw.hangup(k.channel, k.args, "variable_sip_hangup_disposition", "send_bye", "variable_rtp_audio_in_media_packet_count", "0", "variable_billsec", "7",
			"Caller-Channel-Answered-Time", "1795214717281703")
		return nil
	})
	s.create()
	require.Equal(t, ReasonCompleted, s.end().Reason)
	seen.mu.Lock()
	defer seen.mu.Unlock()
	require.Equal(t, []string{AnswerURLStatus5, AnswerURLStatus4, AnswerURLActions}, seen.asked)
	require.Equal(t, 1, seen.setUps)
	require.Equal(t, []Media{{OneWay: true}}, seen.media)
}

func TestAnswerURLResults(t *testing.T) {
	t.Parallel()
	for result, failure := range map[string]*replyError{
		AnswerURLActions: nil,
		AnswerURLInvalid: {Status: 200, Err: &actions.Error{Message: "no such action"}},
		AnswerURLStatus3: {Status: 302, Err: errors.New("redirects are not followed")},
		AnswerURLStatus4: {Status: 404, Err: errors.New("only 2xx is an answer")},
		AnswerURLStatus5: {Status: 503, Err: errors.New("only 2xx is an answer")},
		AnswerURLBlocked: {Err: fmt.Errorf("dial: %w", egress.ErrBlocked)},
		AnswerURLTimeout: {Err: fmt.Errorf("no answer in time: %w", context.DeadlineExceeded)},
		AnswerURLFailed:  {Err: errors.New("connection refused")},
	} {
		require.Equal(t, result, answerURLResult(failure))
	}
	require.Equal(t, AnswerURLInvalid, answerURLResult(&replyError{Status: 200, Err: errors.New("the reply is larger than 65536 bytes")}))
	require.Equal(t, AnswerURLTimeout, answerURLResult(&replyError{Err: errConnectTimeout}))
}

// attributesOf is a hangup event as a map.
type attributesOf map[string]string

func (a attributesOf) Get(header string) string    { return a[header] }
func (a attributesOf) Variable(name string) string { return a["variable_"+name] }

func TestMediaIsRead(t *testing.T) {
	t.Parallel()
	const answered = "1795214717281703"
	for name, tc := range map[string]struct {
		packets, mos, billsec, answered string
		heard                           Media
		ok                              bool
	}{
		"a good call":               {"2000", "4.50", "40", answered, Media{MOS: 4.5}, true},
		"a poor one":                {"2000", "2.10", "40", answered, Media{MOS: 2.1}, true},
		"one way":                   {"0", "4.50", "5", answered, Media{OneWay: true}, true},
		"too short to say":          {"0", "", "4", answered, Media{}, true},
		"no score":                  {"9", "", "40", answered, Media{}, true},
		"what is no score":          {"9", "nan", "40", answered, Media{}, true},
		"a score that is none":      {"9", "11", "40", answered, Media{}, true},
		"never answered":            {"0", "", "0", "0", Media{}, false},
		"without word of the sound": {"", "", "40", answered, Media{}, false},
	} {
		heard, ok := readMedia(attributesOf{
			"variable_rtp_audio_in_media_packet_count": tc.packets, "variable_rtp_audio_in_mos": tc.mos, "variable_billsec": tc.billsec,
			"Caller-Channel-Answered-Time": tc.answered,
		})
		require.Equal(t, tc.ok, ok, name)
		require.Equal(t, tc.heard, heard, name)
	}
}

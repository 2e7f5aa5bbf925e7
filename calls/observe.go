package calls

import (
	"context"
	"errors"
	"strconv"
	"time"

	"tandem/actions"
	"tandem/egress"
	"tandem/esl"
)

// Observer is told what is measured of calls. Its methods are called from the goroutines of calls: they must not block.
type Observer interface {
	// AnswerURL tells how one request to an application went: by one of the AnswerURL results, and how long it took.
	AnswerURL(result string, took time.Duration)
	// SetUp tells how long after the switch was told to dial the first word of the other side came, that it rings or answers: the post-dial delay.
	SetUp(took time.Duration)
	// Media tells what the channel of an answered call heard of the other side.
	Media(heard Media)
	// Refused tells of a call or a party that the limits of its customer refuse: one of the Refused kinds.
	Refused(kind string)
}

// Results of a request to an application, for Observer.
const (
	AnswerURLActions = "actions"
	AnswerURLInvalid = "invalid_actions"
	AnswerURLStatus3 = "status_3xx"
	AnswerURLStatus4 = "status_4xx"
	AnswerURLStatus5 = "status_5xx"
	AnswerURLTimeout = "timeout"
	AnswerURLBlocked = "blocked"
	AnswerURLFailed  = "connection_failed"
)

// Media is what the channel of an answered call heard.
type Media struct {
	// MOS is the mean opinion score that the switch estimates of what came in, from 1 to 4.5; 0 where it does not say.
	MOS float64
	// OneWay is set for a call of some seconds to which not one packet of sound came.
	OneWay bool
}

// nobody is the Observer of a manager that has none.
type nobody struct{}

func (nobody) AnswerURL(string, time.Duration) {}
func (nobody) SetUp(time.Duration)             {}
func (nobody) Media(Media)                     {}
func (nobody) Refused(string)                  {}

// oneWayAfter is how long a call lasts at least whose silence is told of: on a shorter one nothing may have come yet.
const oneWayAfter = 5

// readMedia reads what a CHANNEL_HANGUP_COMPLETE says of the sound of an answered channel; ok is false where it says nothing
// (switch_core_media.c, set_stats).
func readMedia(ev attributes) (heard Media, ok bool) {
	packets := ev.Variable("rtp_audio_in_media_packet_count")
	if packets == "" || ev.Get("Caller-Channel-Answered-Time") == "" || microTime(ev.Get("Caller-Channel-Answered-Time")).IsZero() {
		return Media{}, false
	}
	heard.OneWay = number(packets) == 0 && number(ev.Variable("billsec")) >= oneWayAfter
	if mos, err := strconv.ParseFloat(ev.Variable("rtp_audio_in_mos"), 64); err == nil && mos >= 1 && mos <= 5 && number(packets) > 0 {
		heard.MOS = mos
	}
	return heard, true
}

// heard tells of the sound of the call's channel at its end.
func (s *session) heard(ev *esl.Event) {
	if media, ok := readMedia(ev); ok {
		s.m.cfg.Observer.Media(media)
	}
}

// setUpDone tells of the first word that came of the other side.
func (s *session) setUpDone() {
	if !s.dialedAt.IsZero() {
		s.m.cfg.Observer.SetUp(time.Since(s.dialedAt))
		s.dialedAt = time.Time{}
	}
}

// answerURLResult sorts why a request to an application failed, nil for one that brought actions.
func answerURLResult(failure *replyError) string {
	var refused *actions.Error
	switch {
	case failure == nil:
		return AnswerURLActions
	case errors.As(failure.Err, &refused), failure.Status >= 200 && failure.Status < 300:
		return AnswerURLInvalid
	case failure.Status >= 300 && failure.Status < 400:
		return AnswerURLStatus3
	case failure.Status >= 400 && failure.Status < 500:
		return AnswerURLStatus4
	case failure.Status != 0:
		return AnswerURLStatus5
	case errors.Is(failure.Err, egress.ErrBlocked):
		return AnswerURLBlocked
	case errors.Is(failure.Err, context.DeadlineExceeded), errors.Is(failure.Err, errConnectTimeout):
		return AnswerURLTimeout
	default:
		return AnswerURLFailed
	}
}

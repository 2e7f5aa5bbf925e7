package calls

import (
	"cmp"
	"errors"
	"net/http"
	"time"
)

// errNoRoom: the switch made no session for a call, for it had as many as it may have, or began as many in that second, or was paused. Nothing
// went to the carrier (switch_core_session.c, switch_core_session_request_uuid and switch_core_session_outgoing_channel; mod_sofia.c,
// sofia_outgoing_channel: its cause is DESTINATION_OUT_OF_ORDER, and there is no channel).
var errNoRoom = errors.New("the switch made no session")

// dialOut originates the leg and waits until it is answered and ours to steer. A switch without room is asked again as long as the call may ring:
// what is placed and paced by what it said of itself a moment ago may still meet one that has other calls, or that begins late what it was told in time.
func (s *session) dialOut() error {
	s.attempted = s.m.cfg.Now()
	until := s.attempted.Add(cmp.Or(s.limit, time.Duration(s.call.TimeoutSeconds)*time.Second))
	for {
		err := s.dialOnce()
		if !errors.Is(err, errNoRoom) {
			return err
		}
		s.job, s.jobDone, s.jobErr = nil, false, nil
		s.stopJob()
		s.unplaced.Store(true)
		left := until.Sub(s.m.cfg.Now()).Truncate(time.Second)
		if left < minRing*time.Second {
			s.log.Warn("switch has no room for the call")
			s.ask(intent{reason: ReasonInternalError, source: SourcePlatform, status: StatusFailed, cause: causeOutOfOrder, sip: http.StatusServiceUnavailable})
			s.ended, s.facts = true, hangupFacts{cause: causeOutOfOrder}
			return errEnded
		}
		s.log.Info("switch has no room for the call now", "left_ms", left.Milliseconds())
		s.limit = left
		if err := s.shelve(); err != nil {
			s.log.Warn("call that waits for its node is not stored as such", "error", err)
		}
	}
}

package calls

import (
	"context"
	"errors"
	"net/url"
	"strings"

	"tandem/actions"
	"tandem/esl"
)

// moduleStream is the module of FreeSWITCH that streams audio to a WebSocket. It is not one of FreeSWITCH's own.
const moduleStream = "mod_audio_stream"

// doStream begins or ends the stream of the call's audio to a WebSocket. The switch connects by itself, past the guard on our
// own outgoing requests, so only hosts that the operator lists are connected to.
func (s *session) doStream(a *actions.Stream) (outcome, error) {
	failed := outcome{result: map[string]any{"outcome": "failed"}}
	has, err := s.hasModule(a, moduleStream, "", "this node cannot stream: it has no "+moduleStream)
	if err != nil || !has {
		return failed, err
	}
	if a.Op == actions.OpStop {
		return s.streamDone(a, "stopped", s.order("end the stream", func(ctx context.Context) error { return s.node.sw.StreamStop(ctx, s.channel) }))
	}
	if !s.m.cfg.streamsTo(a.URL) {
		return failed, s.skip(a, "url", "this service does not stream to that host")
	}
	mix := map[string]string{actions.TrackInbound: "mono", actions.TrackBoth: "stereo"}[a.Track]
	switch {
	case mix == "":
		return failed, s.fail(a, codeNotSupported, "track", "this node streams what the caller says, or both sides, but not only what the caller hears")
	case a.Bidirectional:
		return failed, s.fail(a, codeNotSupported, "bidirectional", "this node plays nothing back from a stream")
	}
	if err := s.open(false); err != nil {
		return outcome{}, err
	}
	s.flow.idle = 0
	return s.streamDone(a, "started", s.order("begin the stream", func(ctx context.Context) error {
		return s.node.sw.StreamStart(ctx, s.channel, esl.AudioStream{URL: a.URL, Mix: mix})
	}))
}

// streamDone tells whether the switch did what was asked.
func (s *session) streamDone(a *actions.Stream, word string, err error) (outcome, error) {
	var refused *esl.CommandError
	switch {
	case errors.As(err, &refused):
		return outcome{result: map[string]any{"outcome": "failed"}}, s.skip(a, "", "the switch refused the stream")
	case err != nil:
		return outcome{}, err
	}
	return outcome{result: map[string]any{"outcome": word}}, nil
}

// streamsTo says whether the operator allows streams to a URL's host: one that is listed, or below one that is.
func (c *Config) streamsTo(raw string) bool {
	u, err := url.Parse(raw)
	if err != nil {
		return false
	}
	host := strings.ToLower(strings.TrimSuffix(u.Hostname(), "."))
	for _, allowed := range c.StreamHosts {
		if host == allowed || strings.HasSuffix(host, "."+allowed) {
			return true
		}
	}
	return false
}

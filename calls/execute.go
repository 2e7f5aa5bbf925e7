package calls

import (
	"context"
	"errors"
	"fmt"

	"tandem/esl"
)

// execute runs one application and waits for its completion. The cursor that names id must be stored already. When the call
// is interrupted meanwhile, the application is broken off, and its completion returned like any other: the caller looks at
// interrupted.
func (s *session) execute(id string, app esl.App) (*esl.Event, error) {
	return s.executeUntil(id, app, s.breakOff)
}

// breakOff ends what the channel plays or records.
func (s *session) breakOff(ctx context.Context) error { return s.node.sw.Break(ctx, s.channel) }

// executeUntil is execute for applications that something else than a break of the playback ends.
func (s *session) executeUntil(id string, app esl.App, stop func(ctx context.Context) error) (*esl.Event, error) {
	defer func() { s.running, s.marker = "", "" }()
	for {
		// Also on a second try: what the connection's return queued was behind nothing, and says nothing of this application.
		s.running, s.marker, s.completed = id, "", nil
		if s.underway == id && id != "" {
			// An earlier controller has sent it, and nobody has watched since.
			s.underway = ""
			if err := s.mark(); err != nil {
				return nil, err
			}
			break
		}
		ctx, cancel := s.command()
		err := s.node.sw.Execute(ctx, s.channel, id, app)
		cancel()
		if err == nil {
			break
		}
		switch {
		case errors.Is(err, esl.ErrNoSuchChannel):
			return nil, s.awaitHangup()
		case errors.Is(err, esl.ErrNoReply):
			// The switch may have the command. When the node is back, or answers again, the channel says so, and a marker queued behind
			// it tells when it is over.
			sent, err := s.findOut(id, app)
			if err != nil {
				return nil, err
			}
			if !sent {
				continue
			}
		case unsent(err):
			s.running = "" // a marker behind nothing would be taken for its trace by the next controller
			if err := s.awaitUp(); err != nil {
				return nil, err
			}
			continue
		default:
			return nil, fmt.Errorf("execute %s: %w", app.Name(), err)
		}
		break
	}
	if err := s.await(nil, func() bool { return s.completed != nil || s.interrupted() }); err != nil {
		return nil, err
	}
	if s.completed == nil {
		if err := s.cutShort(stop); err != nil {
			return nil, err
		}
	}
	return s.completed, nil
}

// mark queues a moment of sleep behind the running application. Applications of a channel run in turn, so when the marker
// completes, so has what was before it, even if that completion was lost with a connection.
func (s *session) mark() error {
	s.marker = esl.NewEventUUID()
	return s.order("queue a marker", func(ctx context.Context) error {
		return s.node.sw.Execute(ctx, s.channel, s.marker, markerOf(s.running))
	})
}

// findOut asks the channel, once the node is back, whether it was given an application, and marks its end if it was.
func (s *session) findOut(id string, app esl.App) (sent bool, err error) {
	s.unsure = true
	err = s.awaitUp()
	s.unsure = false
	if err != nil || s.completed != nil {
		return s.completed != nil, err
	}
	channel, err := s.readChannel()
	if err != nil || !took(channel, id, trace(app.Name(), app.Args())) {
		return false, err
	}
	if s.completed != nil || s.marker != "" {
		return true, nil
	}
	return true, s.mark()
}

// readChannel asks the switch for everything that it knows of the call's channel.
func (s *session) readChannel() (channel *esl.Event, err error) {
	err = s.order("read the channel", func(ctx context.Context) (err error) {
		channel, err = s.node.sw.Dump(ctx, s.channel)
		return err
	})
	return channel, err
}

package calls

import (
	"context"
	"errors"
	"time"

	"tandem/actions"
)

// waitWith runs a list of wait actions round and round until over, or until the call is interrupted. over is asked again when
// something happens to the call; whoever makes it true from another goroutine puts a nudge in the mailbox. An empty list is
// silence. The wait leaves no trace in the cursor and in the results: it is not the call's list.
func (s *session) waitWith(list []actions.Action, over func() bool) error {
	// From here on the channel bears the traces of other applications than the list's.
	if err := s.keep(); err != nil {
		return err
	}
	outer, idle, waiting := s.until, s.flow.idle, s.waiting
	s.until, s.waiting = func() bool { return over() || outer != nil && outer() }, true
	defer func() { s.until, s.flow.idle, s.waiting = outer, idle, waiting }()
	for !s.interrupted() {
		heard := false
		started := s.m.cfg.Now()
		for _, action := range list {
			if s.interrupted() {
				return nil
			}
			switch _, err := s.perform(action); {
			case errors.Is(err, errReplaced):
				return nil
			case err != nil:
				return err
			}
			heard = true
		}
		if heard && s.m.cfg.Now().Sub(started) >= briefest {
			continue
		}
		// Nothing to hear, or nothing that could be heard: a list that fails is tried again only now and then.
		if err := s.pause(waitRetry, s.interrupted); err != nil {
			return err
		}
	}
	return nil
}

// waitRetry is how long a caller waits in silence between two rounds of wait actions that cannot be heard.
const waitRetry = 2 * time.Second

// beside runs fn on a goroutine of its own and takes messages until it returns. When the call ends first, or is interrupted,
// fn's context is cancelled and fn is waited for. A caller who has waited a while without an answer is told that it rings.
func (s *session) beside(fn func(ctx context.Context)) error { return s.besideWith(fn, nil) }

// besideWith is beside for what may take long: an answered caller hears the wait actions after a while.
func (s *session) besideWith(fn func(ctx context.Context), wait []actions.Action) error {
	ctx, cancel := context.WithCancel(s.m.ctx)
	defer cancel()
	done := make(chan struct{})
	go func() {
		defer s.box.put(message{nudge: true})
		defer close(done)
		fn(ctx)
	}()
	finished := func() bool {
		select {
		case <-done:
			return true
		default:
			return false
		}
	}
	if s.call.Direction == DirectionInbound && !s.answered && !s.rung {
		timer := time.AfterFunc(s.m.cfg.RingAfter, func() { s.box.put(message{ring: true}) })
		defer timer.Stop()
	}
	stop := func() bool { return finished() || s.interrupted() }
	var err error
	if len(wait) > 0 && s.answered {
		err = s.pause(s.m.cfg.WaitAfter, stop)
		if err == nil && !stop() {
			err = s.waitWith(wait, finished)
		}
	}
	if err == nil {
		err = s.await(done, stop)
	}
	if err == nil && !finished() {
		err = errReplaced
	}
	if err != nil {
		cancel()
		<-done
	}
	return err
}

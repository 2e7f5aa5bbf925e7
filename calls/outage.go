package calls

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"tandem/models"
)

// How an outage of the database is watched.
const (
	// probeEvery is how long after its beginning it is looked whether the outage is over; the delay grows to probeMax. What the calls did
	// is in memory until then, and dies with the process: a database that is back must not wait for us.
	probeEvery   = 100 * time.Millisecond
	probeMax     = 500 * time.Millisecond
	probeTimeout = 2 * time.Second
	// backlogWriters is how many backlogs are written at a time when the database is back. They take their turns with all else that is to be
	// written, of which there may be hundreds: so must there be of these.
	backlogWriters = 256
	// backlogCalls is how many calls may be behind, once the database is back, before new calls are refused until they are not: what is in
	// memory comes first.
	backlogCalls = 32
	// backlogLimit is how many changes of one call wait. A call that has more waits itself.
	backlogLimit = 64
)

// backlog holds the changes of one call that wait for the database, oldest first.
type backlog struct {
	mu      sync.Mutex // held while they are written, too: nothing overtakes them
	changes []*models.Deferred
	// stale is set when the call was found to be another controller's.
	stale bool
}

// outage is the time during which the database takes no changes: who has changes that wait, and when it is over. A manager has
// one, which begins and ends again and again.
type outage struct {
	m *Manager

	mu       sync.Mutex
	over     chan struct{} // closed while the database takes changes
	on       bool
	watching bool          // the watch runs: until nobody is behind any more
	kind     error         // ErrUnreachable or ErrStorageFull, as the watch last saw it
	delay    time.Duration // until the next look
	behind   map[*session]struct{}
	waiting  int  // changes in all backlogs
	told     bool // that some wait
}

func newOutage(m *Manager) *outage {
	o := &outage{m: m, over: make(chan struct{}), behind: map[*session]struct{}{}, delay: probeEvery}
	close(o.over)
	return o
}

// begin notes that a change failed because the database is away, and has it watched from now on.
func (o *outage) begin() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.on {
		o.on, o.over, o.kind = true, make(chan struct{}), models.ErrUnreachable
		if kind := o.m.cfg.Store.Away(); kind != nil {
			o.kind = kind
		}
	}
	if o.watching {
		return
	}
	if o.watching = o.m.goWork(o.watch); !o.watching {
		o.end() // stopped: the sessions see that for themselves
	}
}

// end is the end of the outage: changes are made at once again, but for those of the sessions that are behind. o.mu is held.
func (o *outage) end() {
	o.on, o.kind = false, nil
	close(o.over)
}

// absent notes that a change was made at the first try: the next outage is another one.
func (o *outage) absent() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.on {
		o.delay = probeEvery
	}
}

// err is why the database takes no changes, nil when it does as far as is known.
func (o *outage) err() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.kind
}

// refuses is why no new call is taken for the database's sake: it is away, or it was, and what waited for it is not written yet.
func (o *outage) refuses() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if behind := len(o.behind); o.kind == nil && behind > backlogCalls {
		return fmt.Errorf("%w: changes of %d calls waited for the database and are written first", ErrOverloaded, behind)
	}
	return o.kind
}

// ended is closed when the outage is over.
func (o *outage) ended() <-chan struct{} {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.over
}

// holds says whether a change of a session must not be written now: the database is away, or the session has changes before it.
func (o *outage) holds(s *session) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	_, behind := o.behind[s]
	return o.on || behind
}

// room takes a place for a change, and reports false where the manager holds as many as it may.
func (o *outage) room(s *session) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.waiting >= o.m.cfg.Limits.Deferred {
		return false
	}
	o.waiting++
	o.behind[s] = struct{}{}
	if !o.told {
		o.told = true
		o.m.log.Warn("changes of calls wait in memory for the database")
	}
	return true
}

// written gives the places of a session's changes back.
func (o *outage) written(s *session, changes int, empty bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.waiting -= changes
	if empty {
		delete(o.behind, s)
	}
}

// hold puts a change into the session's backlog and returns the call as it is then, or nil where the change has to wait for the
// database.
func (s *session) hold(mark string, fn transaction) *models.Call {
	var call *models.Call
	ctx := context.WithoutCancel(s.m.ctx)
	deferred, err := s.m.cfg.Store.Defer(ctx, mark, func(tx *models.Store) (err error) {
		call, err = s.apply(ctx, tx, fn)
		return err
	})
	if err != nil {
		return nil
	}
	s.backlog.mu.Lock()
	defer s.backlog.mu.Unlock()
	if s.backlog.stale || len(s.backlog.changes) >= backlogLimit || !s.m.outage.room(s) {
		return nil
	}
	s.backlog.changes = append(s.backlog.changes, deferred)
	return call
}

// awaitStore waits until the database is back and the session's backlog is written.
func (s *session) awaitStore() error {
	for {
		select {
		case <-s.m.outage.ended():
		case <-s.m.ctx.Done():
			s.log.Error("changes not stored", "changes", s.dropBacklog())
			return errAbandoned
		}
		err := s.writeBacklog()
		switch {
		case err == nil:
			return nil
		case errors.Is(err, models.ErrStale):
			s.log.Warn("call changed elsewhere", "change", "backlog")
			return errAbandoned
		case storeAway(err):
			s.m.outage.begin()
		default:
			s.log.Error("changes not stored", "changes", s.dropBacklog(), "error", err)
			return errAbandoned
		}
	}
}

// writeBacklog writes what waits, in order, in one transaction.
func (s *session) writeBacklog() error {
	b := &s.backlog
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.stale {
		return models.ErrStale
	}
	if len(b.changes) == 0 {
		return nil
	}
	err := s.m.writeChanges(b.changes)
	if err != nil && !storeAway(err) && !errors.Is(err, models.ErrStale) && !errors.Is(err, models.ErrClosed) {
		err = s.writeSingly()
	}
	switch {
	case err == nil:
	case errors.Is(err, models.ErrStale):
		b.stale = true
	default:
		return err
	}
	s.m.outage.written(s, len(b.changes), true)
	b.changes = nil
	return err
}

// writeSingly writes what waits one by one after the database has refused it as a whole. What it refuses for itself is told and
// left out: it must not keep the rest of the call, least of all its end, from being written.
func (s *session) writeSingly() error {
	b := &s.backlog
	for len(b.changes) > 0 {
		err := s.m.writeChanges(b.changes[:1])
		if err != nil && (storeAway(err) || errors.Is(err, models.ErrStale) || errors.Is(err, models.ErrClosed)) {
			return err
		}
		if err != nil {
			s.log.Error("a change of the call was refused and is lost", "error", err)
		}
		s.m.outage.written(s, 1, false)
		b.changes = b.changes[1:]
	}
	return nil
}

// dropBacklog gives up what waits, and returns how much that was.
func (s *session) dropBacklog() int {
	b := &s.backlog
	b.mu.Lock()
	defer b.mu.Unlock()
	dropped := len(b.changes)
	s.m.outage.written(s, dropped, true)
	b.changes = nil
	return dropped
}

// writeChanges makes deferred changes in one transaction.
func (m *Manager) writeChanges(changes []*models.Deferred) error {
	ctx := models.WithLimit(context.WithoutCancel(m.ctx), storeTimeout)
	return m.cfg.Store.InTx(ctx, func(tx *models.Store) error {
		for _, change := range changes {
			if err := change.Write(ctx, tx); err != nil {
				return err
			}
		}
		return nil
	})
}

// watch looks again and again whether the database is back, and then writes what waits, until nothing does.
func (o *outage) watch() {
	began, total, calls := time.Now(), 0, 0
	for {
		if !o.awaitDatabase() {
			return // the sessions see that for themselves
		}
		behind := o.sessions()
		written, ok := o.writeAll(behind)
		total, calls = total+written, calls+len(behind)
		if !ok {
			o.begin()
			continue
		}
		done, told := o.finish()
		if !done {
			continue
		}
		if told {
			o.m.log.Info("changes of calls written that waited for the database", "changes", total, "calls", calls, "seconds", time.Since(began).Seconds())
		}
		return
	}
}

// awaitDatabase waits until the outage, if there is one, is over; false when the manager was stopped.
func (o *outage) awaitDatabase() bool {
	for {
		o.mu.Lock()
		on, delay := o.on, o.delay
		if on {
			o.delay = min(2*delay, probeMax)
		}
		o.mu.Unlock()
		if !on {
			return true
		}
		timer := time.NewTimer(delay)
		select {
		case <-timer.C:
		case <-o.m.ctx.Done():
			timer.Stop()
			return false
		}
		if o.probe() == nil {
			o.mu.Lock()
			o.end()
			o.mu.Unlock()
			return true
		}
	}
}

func (o *outage) probe() error {
	ctx, cancel := context.WithTimeout(o.m.ctx, probeTimeout)
	defer cancel()
	err := o.m.cfg.Store.Probe(ctx)
	if err == nil {
		return nil
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.kind = models.ErrUnreachable
	if errors.Is(err, models.ErrStorageFull) {
		o.kind = models.ErrStorageFull
	}
	return err
}

func (o *outage) sessions() []*session {
	o.mu.Lock()
	defer o.mu.Unlock()
	all := make([]*session, 0, len(o.behind))
	for s := range o.behind {
		all = append(all, s)
	}
	return all
}

// writeAll writes the backlogs of sessions, several at a time, and returns how many changes that were and whether the database
// took them all.
func (o *outage) writeAll(behind []*session) (written int, ok bool) {
	var mu sync.Mutex
	var writers sync.WaitGroup
	next := make(chan *session)
	ok = true
	for range min(backlogWriters, len(behind)) {
		writers.Go(func() {
			for s := range next {
				s.backlog.mu.Lock()
				changes := len(s.backlog.changes)
				s.backlog.mu.Unlock()
				err := s.writeBacklog()
				mu.Lock()
				if err == nil {
					written += changes
				}
				if err != nil && !errors.Is(err, models.ErrStale) {
					ok = false
				}
				mu.Unlock()
			}
		})
	}
	for _, s := range behind {
		next <- s
	}
	close(next)
	writers.Wait()
	return written, ok
}

// finish ends the watch, unless changes wait, and says whether it was told that some did.
func (o *outage) finish() (done, told bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.on || len(o.behind) > 0 {
		return false, false
	}
	told = o.told
	o.watching, o.told = false, false
	return true, told
}

package calls

import (
	"cmp"
	"context"
	"errors"

	"tandem/actions"
	"tandem/esl"
	"tandem/models"
)

// storedRoom takes over the stay in a conference that an earlier controller had begun.
func (s *session) storedRoom(name string, r *room) (known bool, err error) {
	if !s.repeats {
		return false, nil
	}
	var member *models.ConferenceMember
	var conference *models.Conference
	err = s.lookUp("read the membership", func(ctx context.Context) (err error) {
		if member, err = s.m.cfg.Store.ConferenceMemberOfCall(ctx, s.call.CustomerID, s.call.ID); err != nil {
			return err
		}
		conference, err = s.m.cfg.Store.Conference(ctx, s.call.CustomerID, member.ConferenceID)
		return err
	})
	if errors.Is(err, models.ErrNotFound) || err == nil && conference.Name != name {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	r.conference, r.member = *conference, *member
	for _, tape := range s.tapes {
		if r.record && tape.background && tape.row.Channels == mono {
			tape.background = false
			r.tape, r.taped = tape, tape.row.CreatedAt
		}
	}
	s.room, s.grouped, s.conferred = r, true, true
	// The switch told an earlier controller that the member is in; of one that is not yet, it is still going to tell.
	var members []esl.ConferenceMember
	err = s.order("read the members", func(ctx context.Context) (err error) {
		members, err = s.node.sw.ConferenceMembers(ctx, conference.Room)
		return err
	})
	var refused *esl.CommandError
	if errors.As(err, &refused) {
		return true, nil // there is no such room yet, or any more
	}
	if err != nil {
		return true, err
	}
	for _, m := range members {
		if m.ChannelID == s.channel {
			r.entered, r.memberID = true, m.ID
		}
	}
	return true, nil
}

// storedEntry is the place in a queue that an earlier controller had given the call, nil without one.
func (s *session) storedEntry(queue string) (*models.QueueEntry, error) {
	if !s.repeats {
		return nil, nil
	}
	var entry *models.QueueEntry
	err := s.lookUp("read the place in the queue", func(ctx context.Context) (err error) {
		entry, err = s.m.cfg.Store.QueueEntryOfCall(ctx, s.call.CustomerID, s.call.ID)
		return err
	})
	if errors.Is(err, models.ErrNotFound) || err == nil && entry.Queue != queue {
		return nil, nil
	}
	return entry, err
}

// rejoinQueue goes on waiting, or being connected, where an earlier controller has left off. A caller whom a taker had taken, and whom the
// switch has not connected, waits on at its old place: its taker looks for a caller anew.
func (s *session) rejoinQueue(t *ticket) error {
	s.ticket, s.grouped = t, true
	channel, err := s.readChannel()
	if err != nil {
		return err
	}
	t.connected = t.entry.State == models.QueueBridged
	if t.entry.State == models.QueueTaken && channel.Variable("bridge_to") != "" {
		t.connected = true
		if err := s.leaveQueue(t, queueBridged, t.entry.TakenBy); err != nil {
			return err
		}
	}
	s.flow.idle = 0
	if t.connected {
		if t.entry.LeftAt == nil { // the wait ended when it was taken, the stay has not ended yet
			t.entry.LeftAt = cmp.Or(t.entry.TakenAt, &t.entry.JoinedAt)
		}
		return nil
	}
	err = s.lookUp("read the position in the queue", func(ctx context.Context) (err error) {
		t.position, err = s.m.cfg.Store.QueuePosition(ctx, t.entry.ID)
		return err
	})
	if err != nil && !errors.Is(err, models.ErrNotFound) && !errors.Is(err, models.ErrStale) {
		return err
	}
	if t.entry.State != models.QueueTaken || t.entry.TakenAt == nil || !t.entry.TakenAt.Before(s.since) {
		return nil // or a taker of this controller's has it already, and says so
	}
	return s.returnToQueue(t)
}

// stayBridged follows a connection that an earlier controller has made. Both channels park when it ends, whoever ends it.
func (s *session) stayBridged(t *ticket) error {
	own, err := s.followBridge(func() bool { return s.interrupted() || t.asked })
	if err != nil {
		return err
	}
	if err := s.settle(own); err != nil {
		return err
	}
	return s.change("part", func(ctx context.Context, tx *models.Store, _ *models.Call) error {
		return moved(tx.LeaveQueue(ctx, t.entry.ID, queueBridged))
	})
}

// followBridge waits until the channel's bridge is over, or is to be left: then own is true, and the channel is still bridged.
func (s *session) followBridge(leave func() bool) (own bool, err error) {
	for {
		s.reparked = false
		channel, err := s.readChannel()
		if err != nil {
			return false, err
		}
		if channel.Variable("bridge_to") == "" {
			return true, nil // it has parked unseen, or is about to: parking it once more does no harm
		}
		s.looked = false
		if err := s.await(nil, func() bool { return s.reparked || s.looked || leave() }); err != nil {
			return false, err
		}
		switch {
		case leave():
			return true, nil
		case s.reparked:
			return false, nil
		}
	}
}

// talkOn follows the connection that an earlier controller has made for a dequeue action. The result is nil where there is none.
func (s *session) talkOn(a *actions.Dequeue, t *taking) (map[string]any, error) {
	channel, err := s.readChannel()
	if err != nil {
		return nil, err
	}
	peer := channel.Variable("bridge_to")
	if peer == "" {
		return nil, nil
	}
	var caller *models.Call
	err = s.lookUp("read the call that is connected", func(ctx context.Context) (err error) {
		caller, err = s.m.cfg.Store.CallByChannel(ctx, peer)
		return err
	})
	if errors.Is(err, models.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	t.since = microTime(channel.Get("Caller-Channel-Bridged-Time"))
	if t.since.IsZero() {
		t.since = s.m.cfg.Now()
	}
	limit := s.deadline(a.MaxSeconds - max(s.m.cfg.Now().Sub(t.since), 0))
	defer limit.stop()
	own, err := s.followBridge(func() bool { return s.interrupted() || limit.over() })
	if err != nil {
		return nil, err
	}
	result := map[string]any{"outcome": queueBridged, "peer_call_id": caller.ID, "seconds": seconds(t.since, s.nowPointer())}
	if own && limit.over() {
		result["outcome"] = "max_seconds"
	}
	return result, s.settle(own)
}

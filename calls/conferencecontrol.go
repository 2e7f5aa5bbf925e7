package calls

import (
	"context"
	"errors"
	"fmt"
	"time"

	"tandem/esl"
	"tandem/models"
)

// groupOrder is what live control wants of a call that is in a conference or a queue. The call's goroutine does it, one order
// after the other; one that comes too late does nothing.
type groupOrder struct {
	conferenceID string // of mute, kick and end
	mute         *bool
	kick, end    bool
	entryID      string // leave the queue
	command      string // the stored command that says so
}

// MuteMember mutes or unmutes a call in a live conference of a customer, by the conference's id or name. inTx, when set, runs in
// the transaction that found the member. Errors: models.ErrNotFound, ErrCallNotActive.
func (m *Manager) MuteMember(ctx context.Context, customerID, conferenceID, callID string, muted bool, inTx func(tx *models.Store, call *models.Call) error) error {
	return m.orderMember(ctx, customerID, conferenceID, callID, groupOrder{mute: &muted}, inTx)
}

// KickMember takes a call out of a live conference. The call goes on with its list; its outcome is kicked. inTx and errors are
// those of MuteMember.
func (m *Manager) KickMember(ctx context.Context, customerID, conferenceID, callID string, inTx func(tx *models.Store, call *models.Call) error) error {
	return m.orderMember(ctx, customerID, conferenceID, callID, groupOrder{kick: true}, inTx)
}

// orderMember checks that a call is in a conference and sends its session an order.
func (m *Manager) orderMember(ctx context.Context, customerID, conferenceID, callID string, wanted groupOrder, inTx func(tx *models.Store, call *models.Call) error) error {
	_, err := m.command(ctx, customerID, callID, func(tx *models.Store, _ *models.Call) (*order, error) {
		conference, _, err := liveConference(ctx, tx, customerID, conferenceID, callID)
		if err != nil {
			return nil, err
		}
		wanted.conferenceID = conference.ID
		return wanted.order(), nil
	}, inTx)
	return err
}

// liveConference finds a live conference with its members and, unless callID is empty, that a call is among them.
func liveConference(ctx context.Context, tx *models.Store, customerID, idOrName, callID string) (*models.Conference, []models.ConferenceMember, error) {
	conference, err := tx.Conference(ctx, customerID, idOrName)
	if err != nil {
		return nil, nil, fmt.Errorf("find conference: %w", err)
	}
	if conference.EndedAt != nil {
		return nil, nil, fmt.Errorf("find conference: it has ended: %w", models.ErrNotFound)
	}
	members, err := tx.ConferenceMembers(ctx, conference.ID)
	if err != nil {
		return nil, nil, fmt.Errorf("find the members of the conference: %w", err)
	}
	for i := range members {
		if members[i].CallID == callID {
			return conference, members, nil
		}
	}
	if callID != "" {
		return nil, nil, fmt.Errorf("find the member of the conference: %w", models.ErrNotFound)
	}
	return conference, members, nil
}

// EndConference takes every call out of a live conference, by its id or name. The calls go on with their lists; their outcome
// is ended. inTx, when set, runs in the transaction that found the conference. Error: models.ErrNotFound.
func (m *Manager) EndConference(ctx context.Context, customerID, conferenceID string, inTx func(tx *models.Store) error) error {
	var given []*models.Command
	err := m.cfg.Store.InTx(ctx, func(tx *models.Store) error {
		given = nil
		conference, members, err := liveConference(ctx, tx, customerID, conferenceID, "")
		if err != nil {
			return err
		}
		wanted := groupOrder{conferenceID: conference.ID, end: true}
		for _, member := range members {
			call, err := commandable(ctx, tx, customerID, member.CallID)
			if errors.Is(err, ErrCallNotActive) {
				continue // it has ended in this moment
			}
			if err != nil {
				return err
			}
			command, err := giveCommand(ctx, tx, call, wanted.order())
			if err != nil {
				return err
			}
			given = append(given, command)
		}
		if inTx == nil {
			return nil
		}
		return inTx(tx)
	})
	if err != nil {
		return err
	}
	for _, command := range given {
		m.handOver(ctx, command)
	}
	return nil
}

// LeaveQueue takes a waiting call out of a queue. The call goes on with its list; its outcome is left. inTx, when set, runs in
// the transaction that found the entry. Errors: models.ErrNotFound when the call does not wait in the queue (any more),
// ErrCallNotActive.
func (m *Manager) LeaveQueue(ctx context.Context, customerID, queue, callID string, inTx func(tx *models.Store, call *models.Call) error) error {
	_, err := m.command(ctx, customerID, callID, func(tx *models.Store, _ *models.Call) (*order, error) {
		entries, err := tx.QueueEntries(ctx, customerID, queue)
		if err != nil {
			return nil, fmt.Errorf("read queue %q: %w", queue, err)
		}
		for _, e := range entries {
			if e.CallID == callID && (e.State == models.QueueWaiting || e.State == models.QueueTaken) {
				wanted := groupOrder{entryID: e.ID}
				return wanted.order(), nil
			}
		}
		return nil, fmt.Errorf("find the call in queue %q: %w", queue, models.ErrNotFound)
	}, inTx)
	return err
}

// handleGroup does an order.
func (s *session) handleGroup(o *groupOrder) error {
	s.orders.did(o.command)
	r := s.room
	switch {
	case o.entryID != "":
		if s.ticket != nil && s.ticket.entry.ID == o.entryID {
			s.ticket.asked = true
		}
	case r == nil || r.conference.ID != o.conferenceID || r.why != "":
	case o.mute != nil:
		r.wanted = o.mute
		return s.muteWanted(r)
	case o.kick:
		r.why = roomKicked
	case o.end:
		r.why = roomEnded
	}
	return nil
}

// handleConference takes the switch's word that the call's channel has entered its room.
func (s *session) handleConference(ev *esl.Event) error {
	r := s.room
	if r == nil || ev.Get("Action") != "add-member" || ev.Get("Conference-Name") != r.conference.Room || r.entered {
		return nil
	}
	r.entered, r.memberID = true, ev.Get("Member-ID")
	if err := s.muteWanted(r); err != nil {
		return err
	}
	if r.record {
		return s.recordRoom(r)
	}
	return nil
}

// muteWanted mutes or unmutes the member, as was last asked for, once it is in.
func (s *session) muteWanted(r *room) error {
	if r.wanted == nil || !r.entered {
		return nil
	}
	muted := *r.wanted
	r.wanted = nil
	err := s.order("mute the member", func(ctx context.Context) error {
		return s.node.sw.ConferenceMute(ctx, r.conference.Room, r.memberID, muted)
	})
	var refused *esl.CommandError
	if errors.As(err, &refused) {
		s.log.Warn("member not muted", "muted", muted, "error", err)
		return nil
	}
	if err != nil {
		return err
	}
	return s.change("mute", func(ctx context.Context, tx *models.Store, call *models.Call) error {
		err := tx.SetMemberMuted(ctx, call.CustomerID, r.member.ID, muted)
		if errors.Is(err, models.ErrNotFound) {
			return nil
		}
		return err
	})
}

// kickSelf takes the call's own channel out of the room. Before the switch has said which member it is, the list of the room
// is asked.
func (s *session) kickSelf(ctx context.Context, r *room) error {
	for r.memberID == "" {
		members, err := s.node.sw.ConferenceMembers(ctx, r.conference.Room)
		var refused *esl.CommandError
		if err != nil && !errors.As(err, &refused) {
			return err
		}
		for _, m := range members {
			if m.ChannelID == s.channel {
				r.memberID = m.ID
			}
		}
		if r.memberID != "" {
			break
		}
		// The application has only just been sent.
		if err := s.pause(20*time.Millisecond, func() bool { return r.memberID != "" || s.completed != nil }); err != nil {
			return err
		}
		if s.completed != nil || ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return s.node.sw.ConferenceKick(ctx, r.conference.Room, r.memberID)
}

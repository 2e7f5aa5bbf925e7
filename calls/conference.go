package calls

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"tandem/actions"
	"tandem/esl"
	"tandem/models"
)

// The switch's side of conferences: the module, and the profile of freeswitch-conf that every room uses.
const (
	conferenceModule  = "mod_conference"
	conferenceProfile = "tandem"
)

// Outcomes of a stay in a conference.
const (
	roomEnded       = "ended"
	roomKicked      = "kicked"
	roomFull        = "full"
	roomFailed      = "failed"
	roomHangup      = "hangup"
	roomInterrupted = "interrupted"
	roomMaxSeconds  = "max_seconds"
)

// codeConferenceElsewhere is the code of call.error for a conference that another node carries.
const codeConferenceElsewhere = "conference_elsewhere"

// Sounds of a conference that beeps: what the others hear when somebody enters or leaves.
const (
	enterBeep = "tone_stream://%(200,0,800)"
	exitBeep  = "tone_stream://%(200,0,500)"
)

// room is a call's stay in a conference.
//
// The room of the switch is named by the conference's id, which no customer chose. The row of the member is written before the
// switch is told, in the transaction that counts the members; it ends with the stay. Whatever ends the stay ends the application
// that the call runs: the switch does it when the conference ends, we do it by kicking our own channel.
type room struct {
	conference models.Conference
	member     models.ConferenceMember
	memberID   string    // the switch's number of the member, empty until it has told
	entered    bool      // the switch has let the member in
	why        string    // why we end the stay, empty while we do not
	wanted     *bool     // a wish to mute or unmute from before the member was in
	limit      *deadline // of max_seconds
	record     bool
	tape       *recording
	taped      time.Time // when the recording began
}

// over says that the stay is to be ended.
func (r *room) over() bool {
	if r.why == "" && r.limit.over() {
		r.why = roomMaxSeconds
	}
	return r.why != ""
}

// doConference puts the call into the conference of a name and comes back when it has left it.
func (s *session) doConference(a *actions.Conference) (outcome, error) {
	if ok, err := s.canConfer(a); err != nil || !ok {
		return outcome{result: map[string]any{"outcome": roomFailed, "seconds": 0.0}}, err
	}
	music, err := s.waitMusic(a)
	if err != nil {
		return outcome{}, err
	}
	r := &room{record: a.Record}
	if known, err := s.storedRoom(a.Name, r); err != nil {
		return outcome{}, err
	} else if !known {
		if err := s.open(false); err != nil {
			return outcome{}, err
		}
		if err := s.prepareRoom(a, music); err != nil {
			return outcome{}, err
		}
		refusal, err := s.enterRoom(a, r)
		if err != nil {
			return outcome{}, err
		}
		if refusal != "" {
			return outcome{result: map[string]any{"outcome": refusal, "seconds": 0.0}}, nil
		}
	}
	app, err := esl.ConferenceApp(r.conference.Room, conferenceProfile, roomFlags(a)...)
	if err != nil {
		return outcome{}, err
	}
	id, err := s.begin(app)
	if err != nil {
		return outcome{}, err
	}
	s.m.rooms.enter(r.conference.ID, s.giveFile(music))
	defer s.leaveRooms(r)
	return s.stayInRoom(a, r, id, app)
}

// leaveRooms gives back what the room holds of the call. The end of the call ends the membership if the action did not.
func (s *session) leaveRooms(r *room) {
	s.m.media.release(s.m.rooms.leave(r.conference.ID))
}

// canConfer says whether the node can carry a conference.
func (s *session) canConfer(a *actions.Conference) (bool, error) {
	var loaded bool
	err := s.order("ask for the conference module", func(ctx context.Context) (err error) {
		loaded, err = s.node.capable(ctx, conferenceModule)
		return err
	})
	if err != nil || loaded {
		return loaded, err
	}
	return false, s.fail(a, codeNotSupported, "", "the node has no module for conferences")
}

// waitMusic fetches the file that whoever is alone, or waits for the start, hears. One that cannot be had is told; the caller waits in silence.
func (s *session) waitMusic(a *actions.Conference) (string, error) {
	if a.WaitURL == "" {
		return "", nil
	}
	files, failure, err := s.fetchFiles([]string{a.WaitURL})
	if err != nil {
		return "", err
	}
	if failure != nil {
		return "", s.skip(a, "wait_url", failure.Error())
	}
	return files[0], nil
}

// giveFile takes a file off the call's list: the conference holds it from now on, which may outlast the call.
func (s *session) giveFile(path string) []string {
	at := slices.Index(s.flow.files, path)
	if path == "" || at < 0 {
		return nil
	}
	s.flow.files = slices.Delete(s.flow.files, at, at+1)
	return []string{path}
}

// prepareRoom sets the channel variables that mod_conference reads. hangup_after_conference keeps the channel when the conference
// ends; without conference_controls a profile that an operator has changed could let callers' keys mute and kick others.
func (s *session) prepareRoom(a *actions.Conference, music string) error {
	variables := []esl.Var{
		{Name: "hangup_after_conference", Value: "false"}, {Name: "conference_controls", Value: "none"}, {Name: "conference_moh_sound", Value: music},
	}
	enter, exit := "", ""
	if a.Beep {
		enter, exit = enterBeep, exitBeep
	}
	variables = append(variables, esl.Var{Name: "conference_enter_sound", Value: enter}, esl.Var{Name: "conference_exit_sound", Value: exit})
	for _, v := range variables {
		if v.Value == "" && !s.conferred {
			continue // nothing that a stay of before has left
		}
		err := s.order("set up the conference", func(ctx context.Context) error {
			return s.node.sw.SetVariable(ctx, s.channel, v.Name, v.Value)
		})
		if err != nil {
			return err
		}
	}
	s.conferred = true
	return nil
}

// enterRoom opens or finds the conference, counts its members and stores the new one, in one transaction. refusal says why the
// call cannot come in.
func (s *session) enterRoom(a *actions.Conference, r *room) (refusal string, err error) {
	id := models.NewID(models.PrefixMember)
	elsewhere := false
	err = s.change("conference.joined", func(ctx context.Context, tx *models.Store, call *models.Call) error {
		refusal, elsewhere = "", false
		conference, _, err := tx.OpenConference(ctx, call.CustomerID, a.Name, s.node.row.ID)
		if err != nil {
			return fmt.Errorf("open conference %q: %w", a.Name, err)
		}
		if conference.NodeID != s.node.row.ID {
			refusal, elsewhere = roomFailed, true
			return nil
		}
		members, err := tx.ConferenceMembers(ctx, conference.ID)
		if err != nil {
			return fmt.Errorf("count the members of conference %q: %w", a.Name, err)
		}
		if len(members) >= a.MaxMembers {
			refusal = roomFull
			return nil
		}
		r.conference = *conference
		r.member = models.ConferenceMember{ID: id, ConferenceID: conference.ID, CustomerID: call.CustomerID, CallID: call.ID, Muted: a.Muted}
		present, err := tx.JoinConference(ctx, &r.member)
		if err != nil {
			return fmt.Errorf("join conference %q: %w", a.Name, err)
		}
		return emit(ctx, tx, call, "conference.joined", map[string]any{
			"conference_id": conference.ID, "conference": a.Name, "members": present, "muted": a.Muted,
		})
	})
	if err == nil && elsewhere {
		err = s.fail(a, codeConferenceElsewhere, "name", "the conference is carried by another node; calls of different nodes cannot meet in one")
	}
	if err == nil && refusal == "" {
		s.flow.idle = 0
		s.room, s.grouped = r, true
	}
	return refusal, err
}

// stayInRoom runs the conference application until the stay is over.
func (s *session) stayInRoom(a *actions.Conference, r *room, id string, app esl.App) (outcome, error) {
	left := a.MaxSeconds
	if s.underway != "" {
		left -= s.m.cfg.Now().Sub(r.member.JoinedAt)
	}
	r.limit = s.deadline(left)
	defer r.limit.stop()
	outer := s.until
	s.until = r.over
	done, err := s.executeUntil(id, app, func(ctx context.Context) error { return s.kickSelf(ctx, r) })
	s.until = outer
	s.stopRoomTape(r)
	if err != nil {
		return outcome{}, err // the end of the call ends the membership
	}
	if done.Get("Hangup-Cause") != "" {
		// The application ends before the channel's hangup is told; the end of the call ends the membership.
		return outcome{}, s.awaitHangup()
	}
	r.over() // the end may have come together with the limit
	word := r.why
	switch {
	case word != "":
	case s.interrupted():
		word = roomInterrupted
	case !r.entered && done.Variable("conference_name") != r.conference.Room:
		word = roomFailed
		if err := s.skip(a, "", "the switch did not let the call into the conference"); err != nil {
			return outcome{}, err
		}
	default:
		word = roomEnded
	}
	if err := s.keepRoomTape(r); err != nil {
		return outcome{}, err
	}
	if err := s.leaveRoom(r, word); err != nil {
		return outcome{}, err
	}
	return outcome{result: map[string]any{"outcome": word, "seconds": seconds(r.member.JoinedAt, r.member.LeftAt)}}, nil
}

// roomFlags says how the call takes part. A room whose first member does not start it plays its waiting music until one comes
// who does: a moderator, in the switch's words, which has no other meaning here.
func roomFlags(a *actions.Conference) []string {
	flags := []string{"wait-mod"}
	if a.StartOnEnter {
		flags = []string{"moderator"}
	}
	if a.Muted {
		flags = append(flags, "mute")
	}
	if a.EndOnExit {
		flags = append(flags, "endconf")
	}
	return flags
}

// leaveRoom ends the membership and tells of it.
func (s *session) leaveRoom(r *room, word string) error {
	now := s.m.cfg.Now()
	err := s.change("conference.left", func(ctx context.Context, tx *models.Store, call *models.Call) error {
		return leaveConference(ctx, tx, call, &r.member, word, now)
	})
	if err == nil {
		r.member.LeftAt, s.room = &now, nil
	}
	return err
}

// leaveConference is the part of a change that ends a membership. One that has ended already is left as it is.
func leaveConference(ctx context.Context, tx *models.Store, call *models.Call, member *models.ConferenceMember, word string, now time.Time) error {
	conference, left, err := tx.LeaveConference(ctx, member.ID, word)
	if errors.Is(err, models.ErrStale) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("leave conference %q: %w", member.ConferenceID, err)
	}
	return emit(ctx, tx, call, "conference.left", map[string]any{
		"conference_id": conference.ID, "conference": conference.Name, "outcome": word, "seconds": seconds(member.JoinedAt, &now), "members": left,
	})
}

// rooms holds the files that conferences play while they wait, for as long as one of this process's calls is in them.
type rooms struct {
	mu   sync.Mutex
	held map[string]*roomFiles // by conference id
}

type roomFiles struct {
	members int
	files   []string
}

func newRooms() *rooms { return &rooms{held: map[string]*roomFiles{}} }

// enter counts a member in, with the files that it brings.
func (r *rooms) enter(id string, files []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	h := r.held[id]
	if h == nil {
		h = &roomFiles{}
		r.held[id] = h
	}
	h.members++
	h.files = append(h.files, files...)
}

// leave counts a member out and returns the files that nobody needs any more.
func (r *rooms) leave(id string) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	h := r.held[id]
	if h.members--; h.members > 0 {
		return nil
	}
	delete(r.held, id)
	return h.files
}

package calls

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tandem/esl"
	"tandem/models"
	"tandem/models/modelstest"
)

// conferenceScene is a scene whose switch carries rooms, and whose application says nothing to results.
func conferenceScene(t *testing.T, store *models.Store, edit ...func(*Config)) *scene {
	t.Helper()
	s := newScene(t, store, edit...)
	s.sw.meets()
	s.answers("/out", status(204))
	return s
}

// confer lets a call in that enters a conference, and returns its channel and its call.
func (s *scene) confer(fields string) (channel, callID string) {
	s.t.Helper()
	s.answers("/answer", reply(`[{"action":"conference","name":"standup","result_url":"/out"`+fields+`}]`))
	channel = s.callIn()
	callID = s.callID(channel)
	s.happens(callID, "conference.joined")
	require.Eventually(s.t, func() bool {
		for _, c := range s.sw.members(s.conference().Room) {
			if c == channel {
				return true
			}
		}
		return false
	}, patience, time.Millisecond)
	return channel, callID
}

// conference is the live conference of the scene.
func (s *scene) conference() *models.Conference {
	s.t.Helper()
	c, err := s.store.Conference(s.t.Context(), s.customer.ID, "standup")
	require.NoError(s.t, err)
	return c
}

// leaves hangs a call up from the far end and waits until it has ended.
func (s *scene) leaves(channel string) models.Call {
	s.t.Helper()
	s.sw.leave(channel, "NORMAL_CLEARING", "variable_sip_hangup_disposition", "recv_bye")
	return s.end()
}

// noConference checks that the conference has ended, with its rows and files.
func (s *scene) noConference() {
	s.t.Helper()
	_, err := s.store.Conference(s.t.Context(), s.customer.ID, "standup")
	require.ErrorIs(s.t, err, models.ErrNotFound)
	require.Eventually(s.t, func() bool {
		s.manager.rooms.mu.Lock()
		defer s.manager.rooms.mu.Unlock()
		return len(s.manager.rooms.held) == 0
	}, patience, time.Millisecond)
}

func TestConferenceFromFirstToLast(t *testing.T) {
	t.Parallel()
	modelstest.Run(t, "", func(t *testing.T, store *models.Store) {
		s := conferenceScene(t, store)
		first, firstID := s.confer("")
		room := s.conference()
		require.NotContains(t, room.Room, "standup", "no customer chooses the name of a room of the switch")
		data := s.data(firstID, "conference.joined")
		require.Equal(t, []any{room.ID, "standup", 1.0, false}, []any{data["conference_id"], data["conference"], data["members"], data["muted"]})
		_, secondID := s.confer(`,"muted":true`)
		joined := s.data(secondID, "conference.joined")
		require.Equal(t, []any{room.ID, 2.0, true}, []any{joined["conference_id"], joined["members"], joined["muted"]})
		require.Contains(t, s.sw.log(), "execute conference "+room.Room+"@tandem+flags{moderator}")
		require.Contains(t, s.sw.log(), "execute conference "+room.Room+"@tandem+flags{moderator|mute}")
		require.Contains(t, s.sw.log(), "setvar hangup_after_conference=false")
		require.Contains(t, s.sw.log(), "setvar conference_controls=none")

		call := s.leaves(first)
		require.Equal(t, []any{firstID, ReasonCallerHangup}, []any{call.ID, call.Reason})
		left := s.data(firstID, "conference.left")
		require.Equal(t, []any{room.ID, "standup", roomHangup, 1.0}, []any{left["conference_id"], left["conference"], left["outcome"], left["members"]})
		require.Equal(t, []string{"call.ringing", "call.answered", "conference.joined", "conference.left", "call.completed"}, s.kinds(firstID))

		require.NoError(t, s.manager.EndConference(t.Context(), s.customer.ID, "standup", nil))
		result := s.result(secondID, "/out")
		require.Equal(t, roomEnded, result["outcome"])
		require.Contains(t, result, "seconds")
		require.Equal(t, secondID, s.end().ID)
		require.EqualValues(t, 0, s.data(secondID, "conference.left")["members"])
		s.noConference()

		// The same name again is another conference, in another room.
		channel, _ := s.confer("")
		require.NotEqual(t, []string{room.ID, room.Room}, []string{s.conference().ID, s.conference().Room})
		s.leaves(channel)
		s.noConference()
	})
}

func TestConferenceFlags(t *testing.T) {
	t.Parallel()
	s := conferenceScene(t, modelstest.Open(t))
	s.answers("/music.wav", func(w http.ResponseWriter, _ asked) { _, _ = w.Write(silentWAV()) })
	media := filepath.Join(s.node.ConfDir, "tandem", "media")
	held := func() []string {
		entries, err := os.ReadDir(media)
		require.NoError(t, err)
		var names []string
		for _, e := range entries {
			names = append(names, filepath.Join(media, e.Name()))
		}
		return names
	}
	first, _ := s.confer(`,"start_on_enter":false,"beep":true,"wait_url":"` + s.server.URL + `/music.wav"`)
	room := s.conference().Room
	require.Contains(t, s.sw.log(), "execute conference "+room+"@tandem+flags{wait-mod}")
	require.Len(t, held(), 1)
	for _, want := range []string{"conference_moh_sound=" + held()[0], "conference_enter_sound=" + enterBeep, "conference_exit_sound=" + exitBeep} {
		require.Contains(t, s.sw.log(), "setvar "+want)
	}
	_, secondID := s.confer(`,"end_on_exit":true`)
	require.Contains(t, s.sw.log(), "execute conference "+room+"@tandem+flags{moderator|endconf}")
	s.leaves(first)
	require.Len(t, held(), 1, "the room may still play what the first one brought")
	_, err := s.manager.Cancel(t.Context(), s.customer.ID, secondID, nil)
	require.NoError(t, err)
	require.Equal(t, ReasonAPIHangup, s.end().Reason)
	s.noConference()
	require.Empty(t, held())
}

func TestConferenceEndsWithTheOneWhoEndsIt(t *testing.T) {
	t.Parallel()
	s := conferenceScene(t, modelstest.Open(t))
	host, _ := s.confer(`,"end_on_exit":true`)
	_, guestID := s.confer("")
	s.sw.leave(host, "NORMAL_CLEARING", "variable_sip_hangup_disposition", "recv_bye")
	require.Equal(t, roomEnded, s.result(guestID, "/out")["outcome"])
	for range 2 {
		s.end()
	}
	require.Equal(t, roomEnded, s.data(guestID, "conference.left")["outcome"])
	s.noConference()
}

func TestConferenceMaxMembers(t *testing.T) {
	t.Parallel()
	modelstest.Run(t, "", func(t *testing.T, store *models.Store) {
		s := conferenceScene(t, store)
		var channels []string
		for range 2 {
			channel, _ := s.confer(`,"max_members":2`)
			channels = append(channels, channel)
		}
		s.answers("/answer", reply(`[{"action":"conference","name":"standup","max_members":2,"result_url":"/out"},{"action":"dtmf","digits":"7"}]`))
		third := s.callID(s.callIn())
		result := s.result(third, "/out")
		require.Equal(t, []any{roomFull, 0.0}, []any{result["outcome"], result["seconds"]})
		call := s.end()
		require.Equal(t, []any{third, ReasonCompleted}, []any{call.ID, call.Reason})
		require.Equal(t, []string{"call.ringing", "call.answered", "call.completed"}, s.kinds(third))
		require.Contains(t, s.sw.log(), "execute send_dtmf 7@100", "the list goes on")
		for _, channel := range channels {
			s.leaves(channel)
		}
		s.noConference()
	})
}

func TestConferenceMuteAndKick(t *testing.T) {
	t.Parallel()
	modelstest.Run(t, "", func(t *testing.T, store *models.Store) {
		s := conferenceScene(t, store)
		ctx := t.Context()
		first, firstID := s.confer("")
		_, secondID := s.confer("")
		room := s.conference()
		stranger := modelstest.Customer(t, store, 0)
		require.ErrorIs(t, s.manager.MuteMember(ctx, stranger.ID, room.ID, firstID, true, nil), models.ErrNotFound)
		require.ErrorIs(t, s.manager.KickMember(ctx, s.customer.ID, "other", firstID, nil), models.ErrNotFound)
		require.ErrorIs(t, s.manager.EndConference(ctx, stranger.ID, room.ID, nil), models.ErrNotFound)

		muted := func() bool {
			members, err := store.ConferenceMembers(ctx, room.ID)
			require.NoError(t, err)
			for _, m := range members {
				if m.CallID == firstID {
					return m.Muted
				}
			}
			return false
		}
		inTx := 0
		count := func(*models.Store, *models.Call) error { inTx++; return nil }
		require.NoError(t, s.manager.MuteMember(ctx, s.customer.ID, room.ID, firstID, true, count))
		require.Eventually(t, muted, patience, time.Millisecond)
		require.NoError(t, s.manager.MuteMember(ctx, s.customer.ID, "standup", firstID, false, count))
		require.Eventually(t, func() bool { return !muted() }, patience, time.Millisecond)
		require.Equal(t, []string{"conference_mute true", "conference_mute false"}, only(s.sw.log(), "conference_mute"))

		require.NoError(t, s.manager.KickMember(ctx, s.customer.ID, room.ID, secondID, count))
		require.Equal(t, roomKicked, s.result(secondID, "/out")["outcome"])
		call := s.end()
		require.Equal(t, []any{secondID, ReasonCompleted}, []any{call.ID, call.Reason}, "a kicked call goes on with its list")
		require.Equal(t, roomKicked, s.data(secondID, "conference.left")["outcome"])
		require.Equal(t, 3, inTx)
		require.ErrorIs(t, s.manager.KickMember(ctx, s.customer.ID, room.ID, secondID, nil), ErrCallNotActive)
		s.leaves(first)
		s.noConference()
		require.ErrorIs(t, s.manager.EndConference(ctx, s.customer.ID, room.ID, nil), models.ErrNotFound)
	})
}

// only keeps the lines with a prefix.
func only(lines []string, prefix string) []string {
	var kept []string
	for _, line := range lines {
		if strings.HasPrefix(line, prefix) {
			kept = append(kept, line)
		}
	}
	return kept
}

func TestConferenceKickBeforeTheSwitchHasLetIn(t *testing.T) {
	t.Parallel()
	s := conferenceScene(t, modelstest.Open(t))
	// The word of the switch is lost: who the member is stands in the list of the room only.
	sent := make(chan command, 1)
	s.sw.script("execute conference", func(c command) error { sent <- c; return nil })
	s.answers("/answer", reply(`[{"action":"conference","name":"standup","result_url":"/out"}]`))
	channel := s.callIn()
	c := <-sent
	id := s.callID(channel)
	require.NoError(t, s.manager.KickMember(t.Context(), s.customer.ID, "standup", id, nil))
	room := s.conference().Room
	s.sw.groups.mu.Lock()
	s.sw.groups.rooms[room] = []*fakeMember{{command: c, id: "4"}}
	s.sw.groups.mu.Unlock()
	require.Equal(t, roomKicked, s.result(id, "/out")["outcome"])
	s.end()
	s.noConference()
}

func TestConferenceMaxSeconds(t *testing.T) {
	t.Parallel()
	s := conferenceScene(t, modelstest.Open(t))
	_, id := s.confer(`,"max_seconds":1`)
	result := s.result(id, "/out")
	require.Equal(t, roomMaxSeconds, result["outcome"])
	require.InDelta(t, 1.0, result["seconds"], 0.9)
	s.end()
	s.noConference()
}

func TestConferenceReplaced(t *testing.T) {
	t.Parallel()
	s := conferenceScene(t, modelstest.Open(t))
	_, id := s.confer("")
	s.direct(id, ModeReplace, `[{"action":"dtmf","digits":"9"}]`)
	call := s.end()
	require.Equal(t, ReasonCompleted, call.Reason)
	require.Equal(t, roomInterrupted, s.data(id, "conference.left")["outcome"])
	require.Contains(t, s.sw.log(), "execute send_dtmf 9@100")
	require.Len(t, s.requests(), 1, "nobody is asked what follows")
	s.noConference()
}

func TestConferenceOnAnotherNode(t *testing.T) {
	t.Parallel()
	modelstest.Run(t, "", func(t *testing.T, store *models.Store) {
		s := conferenceScene(t, store)
		elsewhere := models.Node{Name: "elsewhere", ESLAddr: "127.0.0.1:8022", Password: "secret", ConfDir: t.TempDir(), IsActive: true}
		require.NoError(t, store.CreateNode(t.Context(), &elsewhere))
		require.NoError(t, store.InTx(t.Context(), func(tx *models.Store) error {
			_, created, err := tx.OpenConference(t.Context(), s.customer.ID, "standup", elsewhere.ID)
			require.True(t, created)
			return err
		}))
		s.answers("/answer", reply(`[{"action":"conference","name":"standup","result_url":"/out","id":"c"}]`))
		id := s.callID(s.callIn())
		require.Equal(t, roomFailed, s.result(id, "/out")["outcome"])
		data := s.data(id, "call.error")
		require.Equal(t, []any{codeConferenceElsewhere, "conference", "name", "c"}, []any{data["code"], data["action"], data["field"], data["id"]})
		s.end()
	})
}

func TestConferenceOnANodeWithoutTheModule(t *testing.T) {
	t.Parallel()
	s := conferenceScene(t, modelstest.Open(t))
	s.sw.mu.Lock()
	s.sw.modules = nil
	s.sw.mu.Unlock()
	s.answers("/answer", reply(`[{"action":"conference","name":"standup","result_url":"/out"}]`))
	id := s.callID(s.callIn())
	require.Equal(t, roomFailed, s.result(id, "/out")["outcome"])
	require.Equal(t, codeNotSupported, s.data(id, "call.error")["code"])
	s.end()
	require.Empty(t, only(s.sw.log(), "execute conference"))
}

func TestConferenceThatTheSwitchDoesNotOpen(t *testing.T) {
	t.Parallel()
	s := conferenceScene(t, modelstest.Open(t))
	s.sw.script("execute conference", func(c command) error { s.sw.complete(c); return nil })
	s.answers("/answer", reply(`[{"action":"conference","name":"standup","result_url":"/out"}]`))
	id := s.callID(s.callIn())
	require.Equal(t, roomFailed, s.result(id, "/out")["outcome"])
	require.Equal(t, codeActionFailed, s.data(id, "call.error")["code"])
	s.end()
	s.noConference()
}

func TestConferenceWaitURLThatCannotBeHad(t *testing.T) {
	t.Parallel()
	s := conferenceScene(t, modelstest.Open(t))
	channel, id := s.confer(`,"wait_url":"` + s.server.URL + `/none"`)
	data := s.data(id, "call.error")
	require.Equal(t, []any{codeActionFailed, "wait_url"}, []any{data["code"], data["field"]})
	s.leaves(channel)
	s.noConference()
}

func TestConferenceRecorded(t *testing.T) {
	t.Parallel()
	modelstest.Run(t, "", func(t *testing.T, store *models.Store) {
		s := conferenceScene(t, store)
		s.sw.script("conference_record", func(c command) error { writeWAV(t, c.args); return nil })
		channel, id := s.confer(`,"record":true`)
		s.sw.await("conference_record")
		s.leaves(channel)
		require.Equal(t, []string{"call.ringing", "call.answered", "conference.joined", "recording.started", "recording.available", "conference.left", "call.completed"}, s.kinds(id))
		rows, err := store.RecordingsOfCall(t.Context(), s.customer.ID, id)
		require.NoError(t, err)
		require.Len(t, rows, 1)
		require.Equal(t, []any{models.RecordingAvailable, 1.0}, []any{rows[0].Status, rows[0].Seconds})
		require.Equal(t, []string{"conference_record " + rows[0].Path, "conference_norecord " + rows[0].Path}, append(only(s.sw.log(), "conference_record"), only(s.sw.log(), "conference_norecord")...))

		_, id = s.confer(`,"record":true`)
		s.sw.await("conference_record")
		require.NoError(t, s.manager.KickMember(t.Context(), s.customer.ID, "standup", id, nil))
		s.end()
		require.Equal(t, []string{"call.ringing", "call.answered", "conference.joined", "recording.started", "recording.available", "conference.left", "call.completed"}, s.kinds(id))

		s.sw.script("conference_record", func(command) error { return &esl.CommandError{Command: "conference", Reply: "-ERR no"} })
		channel, id = s.confer(`,"record":true`)
		s.happens(id, "recording.failed")
		s.leaves(channel)
		s.noConference()
	})
}

func TestConferenceMembershipEndsWithTheNode(t *testing.T) {
	t.Parallel()
	s := conferenceScene(t, modelstest.Open(t))
	var ids []string
	for range 3 {
		_, id := s.confer("")
		ids = append(ids, id)
	}
	s.manager.RemoveNode(s.node.ID)
	for range ids {
		require.Equal(t, ReasonNodeLost, s.end().Reason)
	}
	for _, id := range ids {
		require.Equal(t, roomHangup, s.data(id, "conference.left")["outcome"])
	}
	s.noConference()
}

func TestConferencesOfTwoCustomersNeverMeet(t *testing.T) {
	t.Parallel()
	modelstest.Run(t, "", func(t *testing.T, store *models.Store) {
		s := conferenceScene(t, store)
		channel, _ := s.confer("")
		stranger := modelstest.Customer(t, store, 0)
		require.NoError(t, store.InTx(t.Context(), func(tx *models.Store) error {
			theirs, created, err := tx.OpenConference(t.Context(), stranger.ID, "standup", s.node.ID)
			if err != nil {
				return err
			}
			require.True(t, created)
			require.NotEqual(t, s.conference().Room, theirs.Room)
			return nil
		}))
		s.leaves(channel)
		s.noConference()
	})
}

func TestGroupsOfAnEarlierController(t *testing.T) {
	t.Parallel()
	modelstest.Run(t, "", func(t *testing.T, store *models.Store) {
		s := queueScene(t, store)
		s.answers("/out", status(204))
		_, memberID := s.confer("")
		_, waitingID := s.enqueue(waitInQueue)
		// The process dies: what it held is left to the next one.
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		require.Error(t, s.manager.Stop(gone))
		s.sw.mu.Lock()
		for _, ch := range s.sw.channels {
			ch.dead = true
		}
		s.sw.mu.Unlock()
		s.start()
		for _, id := range []string{memberID, waitingID} {
			s.happens(id, "call.completed")
		}
		require.Equal(t, roomHangup, s.data(memberID, "conference.left")["outcome"])
		require.Equal(t, queueHangup, s.data(waitingID, "queue.left")["outcome"])
		entries, err := store.QueueEntries(t.Context(), s.customer.ID, "help")
		require.NoError(t, err)
		require.Empty(t, entries)
		s.noConference()
	})
}

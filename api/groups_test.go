package api

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tandem/models"
	"tandem/models/modelstest"
)

// TestConferences lists, shows and steers conferences and their members.
func TestConferences(t *testing.T) {
	t.Parallel()
	onBoth(t, func(b *bench) {
		app := modelstest.Application(b.t, b.store, b.customer)
		board, first := b.conference(app, "board")
		other, elsewhere := b.conference(app, "other")
		second := b.member(app, board)
		require.NoError(b.t, b.store.SetMemberMuted(b.t.Context(), b.customer.ID, second.ID, true))

		list := b.get("/v1/conferences").is(200).data()
		require.Len(b.t, list, 2)
		require.Equal(b.t, []any{other.ID, "other", b.customer.ID}, pick(list[0], "id", "name", "customer_id"), "newest first")
		for _, key := range []string{board.ID, "board"} {
			got := b.get("/v1/conferences/" + key).is(200).json()
			require.Equal(b.t, board.ID, got["id"])
			members := got["members"].([]any)
			require.Len(b.t, members, 2)
			require.Equal(b.t, []any{first.CallID, false}, pick(members[0], "call_id", "muted"))
			require.Equal(b.t, []any{second.CallID, true}, pick(members[1], "call_id", "muted"))
		}
		room := "/v1/conferences/" + board.ID
		member := room + "/members/" + first.CallID
		var want []string
		for command, sent := range map[string]string{"mute": "mute true " + board.ID, "unmute": "mute false " + board.ID, "kick": "kick " + board.ID} {
			answer := b.postOnce(command, member+"/"+command, nil).is(202)
			require.Equal(b.t, first.CallID, answer.str("id"))
			require.Equal(b.t, string(answer.body), string(b.postOnce(command, member+"/"+command, nil).is(202).body))
			want = append(want, sent+" "+first.CallID)
			b.post(room+"/members/call_unknown/"+command, nil).refused(codeNotFound, "")
			b.post(member+"/"+command, object{"softly": true}).refused(codeInvalidRequest, "softly")
		}
		require.ElementsMatch(b.t, want, b.calls.sent(), "each command once, however often its key came")

		// Hanging up is for who is in this conference.
		b.post(room+"/members/"+elsewhere.CallID+"/hangup", nil).refused(codeNotFound, "")
		b.post("/v1/conferences/conf_unknown/members/"+first.CallID+"/hangup", nil).refused(codeNotFound, "")
		b.post(member+"/hangup", nil).is(202)
		require.Equal(b.t, models.CallCanceled, b.get("/v1/calls/"+first.CallID).str("status"))
		b.post(member+"/hangup", nil).refused(codeCallNotActive, "")

		b.post(room+"/end", nil).is(202)
		require.Contains(b.t, b.calls.sent(), "end "+board.ID)
		for _, path := range []string{"/v1/conferences/nobody", "/v1/conferences/conf_unknown"} {
			b.get(path).refused(codeNotFound, "")
			b.post(path+"/end", nil).refused(codeNotFound, "")
		}
		for _, member := range []*models.ConferenceMember{first, second} {
			_, _, err := b.store.LeaveConference(b.t.Context(), member.ID, "left")
			require.NoError(b.t, err)
		}
		require.Len(b.t, b.get("/v1/conferences").data(), 1, "what has ended is not listed")
		b.get("/v1/conferences/board").refused(codeNotFound, "")
	})
}

// TestConferencesArePaged pages through more conferences than fit.
func TestConferencesArePaged(t *testing.T) {
	t.Parallel()
	onBoth(t, func(b *bench) {
		app := modelstest.Application(b.t, b.store, b.customer)
		for i := range 5 {
			b.conference(app, fmt.Sprintf("room-%d", i))
		}
		var names []any
		for cursor := ""; ; {
			page := b.get("/v1/conferences?limit=2&cursor=" + cursor).is(200)
			for _, item := range page.data() {
				names = append(names, item.(map[string]any)["name"])
			}
			next, more := page.json()["next_cursor"].(string)
			if !more {
				break
			}
			cursor = next
		}
		require.Equal(b.t, []any{"room-4", "room-3", "room-2", "room-1", "room-0"}, names)
	})
}

// TestQueues lists and shows queues, and takes calls out of them.
func TestQueues(t *testing.T) {
	t.Parallel()
	onBoth(t, func(b *bench) {
		app := modelstest.Application(b.t, b.store, b.customer)
		late, urgent := b.queued(app, "sales", 0), b.queued(app, "sales", 5)
		taken := b.queued(app, "sales", 9)
		elsewhere := b.queued(app, "support", 0)
		taker := modelstest.Call(b.t, b.store, app)
		entry, err := b.store.TakeFromQueue(b.t.Context(), b.customer.ID, "sales", taker.ID, taken.NodeID)
		require.NoError(b.t, err)
		require.Equal(b.t, taken.ID, entry.ID)

		list := b.get("/v1/queues").is(200).data()
		require.Len(b.t, list, 2)
		require.Equal(b.t, []any{"sales", 2.0, stamp(late.JoinedAt)}, pick(list[0], "name", "waiting", "oldest_joined_at"))
		got := b.get("/v1/queues/sales").is(200).json()
		require.Equal(b.t, []any{"sales", 2.0}, pick(got, "name", "waiting"))
		var entries [][]any
		for _, item := range got["entries"].([]any) {
			entries = append(entries, pick(item, "call_id", "state", "position", "priority"))
		}
		require.Equal(b.t, [][]any{
			{taken.CallID, "taken", nil, 9.0}, {urgent.CallID, "waiting", 1.0, 5.0}, {late.CallID, "waiting", 2.0, 0.0},
		}, entries, "in the order in which they are taken")

		members := "/v1/queues/sales/members/"
		b.postOnce("k", members+late.CallID+"/kick", nil).is(202)
		b.postOnce("k", members+late.CallID+"/kick", nil).is(202)
		require.Equal(b.t, []string{"leave sales " + late.CallID}, b.calls.sent())
		b.post(members+elsewhere.CallID+"/hangup", nil).refused(codeNotFound, "")
		b.post(members+"call_unknown/hangup", nil).refused(codeNotFound, "")
		b.post(members+urgent.CallID+"/hangup", nil).is(202)
		require.Equal(b.t, models.CallCanceled, b.get("/v1/calls/"+urgent.CallID).str("status"))
		b.get("/v1/queues/nobody").refused(codeNotFound, "")
		b.get("/v1/queues?limit=2").refused(codeInvalidRequest, "limit")
	})
}

// TestGroupNames: a conference or a queue is found under whatever name an action may give it, and what can be no name is not found.
func TestGroupNames(t *testing.T) {
	t.Parallel()
	onBoth(t, func(b *bench) {
		app := modelstest.Application(b.t, b.store, b.customer)
		for _, name := range []string{"team-standup", "v1.2", "-", ".x", "A_b-c.9", strings.Repeat("n", 64)} {
			conference, member := b.conference(app, name)
			require.Equal(b.t, conference.ID, b.get("/v1/conferences/"+name).is(200).str("id"), name)
			b.post("/v1/conferences/"+name+"/members/"+member.CallID+"/mute", nil).is(202)
			b.post("/v1/conferences/"+name+"/members/"+member.CallID+"/hangup", nil).is(202)
			b.post("/v1/conferences/"+name+"/end", nil).is(202)
			entry := b.queued(app, name, 0)
			require.Equal(b.t, name, b.get("/v1/queues/"+name).is(200).str("name"))
			b.post("/v1/queues/"+name+"/members/"+entry.CallID+"/kick", nil).is(202)
		}
		for _, name := range []string{"%00", "%FF", "a%20b", "%2F", "a%2Fb", "%C3%A9", strings.Repeat("n", 65)} {
			for _, path := range []string{"/v1/conferences/" + name, "/v1/queues/" + name, "/v1/calls/" + name + "/events", "/v1/calls/" + name + "/legs"} {
				b.get(path).refused(codeNotFound, "")
			}
			for _, path := range []string{
				"/v1/conferences/" + name + "/end", "/v1/conferences/" + name + "/members/call_a/kick", "/v1/conferences/-/members/" + name + "/mute",
				"/v1/queues/" + name + "/members/call_a/kick", "/v1/queues/-/members/" + name + "/hangup", "/v1/calls/" + name + "/start",
			} {
				b.post(path, nil).refused(codeNotFound, "")
			}
		}
	})
}

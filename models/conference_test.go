package models_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	"pgregory.net/rapid"

	"tandem/models"
	"tandem/models/modelstest"
)

func TestConference(t *testing.T) {
	t.Parallel()
	modelstest.RunClock(t, "", func(t *testing.T, s *models.Store, clock *modelstest.Clock) {
		ctx := t.Context()
		app, node := modelstest.Application(t, s, modelstest.Customer(t, s, 0)), modelstest.Node(t, s)
		foreign := modelstest.Customer(t, s, 0)
		room, created, err := s.OpenConference(ctx, app.CustomerID, "standup", node.ID)
		require.NoError(t, err)
		require.True(t, created)
		require.Regexp(t, "^conf_", room.ID)
		require.Equal(t, models.Conference{ID: room.ID, CustomerID: app.CustomerID, Name: "standup", NodeID: node.ID, Room: room.ID, CreatedAt: s.Now()}, *room)
		again, created, err := s.OpenConference(ctx, app.CustomerID, "standup", modelstest.Node(t, s).ID)
		require.NoError(t, err)
		require.False(t, created)
		require.Equal(t, room, again, "where it is, not where it was asked for")
		other, created, err := s.OpenConference(ctx, foreign.ID, "standup", node.ID)
		require.NoError(t, err)
		require.True(t, created, "names are a customer's own")
		require.NotEqual(t, room.Room, other.Room)

		host, guest := modelstest.Call(t, s, app), modelstest.Call(t, s, app)
		member := &models.ConferenceMember{ConferenceID: room.ID, CustomerID: app.CustomerID, CallID: host.ID, MemberID: "1", Muted: true, Outcome: "nonsense"}
		members, err := s.JoinConference(ctx, member)
		require.NoError(t, err)
		require.Equal(t, 1, members)
		clock.Advance(time.Second)
		second := &models.ConferenceMember{ConferenceID: room.ID, CustomerID: app.CustomerID, CallID: guest.ID, MemberID: "2"}
		members, err = s.JoinConference(ctx, second)
		require.NoError(t, err)
		require.Equal(t, 2, members)
		there, err := s.ConferenceMembers(ctx, room.ID)
		require.NoError(t, err)
		require.Equal(t, []models.ConferenceMember{*member, *second}, there)
		require.Empty(t, there[0].Outcome)

		for name, refused := range map[string]struct {
			member models.ConferenceMember
			want   error
		}{
			"twice":              {models.ConferenceMember{ConferenceID: room.ID, CustomerID: app.CustomerID, CallID: host.ID}, models.ErrInUse},
			"another's room":     {models.ConferenceMember{ConferenceID: other.ID, CustomerID: app.CustomerID, CallID: modelstest.Call(t, s, app).ID}, models.ErrNotFound},
			"another's call":     {models.ConferenceMember{ConferenceID: other.ID, CustomerID: foreign.ID, CallID: modelstest.Call(t, s, app).ID}, models.ErrNotFound},
			"no such conference": {models.ConferenceMember{ConferenceID: "conf_none", CustomerID: app.CustomerID, CallID: host.ID}, models.ErrNotFound},
		} {
			_, err := s.JoinConference(ctx, &refused.member)
			require.ErrorIs(t, err, refused.want, name)
		}

		require.NoError(t, s.SetMemberMuted(ctx, app.CustomerID, member.ID, false))
		require.ErrorIs(t, s.SetMemberMuted(ctx, foreign.ID, member.ID, true), models.ErrNotFound)
		found, err := s.ConferenceMemberOfCall(ctx, app.CustomerID, host.ID)
		require.NoError(t, err)
		require.False(t, found.Muted)
		_, err = s.ConferenceMemberOfCall(ctx, foreign.ID, host.ID)
		require.ErrorIs(t, err, models.ErrNotFound)

		ended, err := s.EndConference(ctx, room.ID)
		require.NoError(t, err)
		require.False(t, ended, "there are members")
		left, members, err := s.LeaveConference(ctx, member.ID, "left")
		require.NoError(t, err)
		require.True(t, left.Live())
		require.Equal(t, 1, members)
		_, _, err = s.LeaveConference(ctx, member.ID, "hangup")
		require.ErrorIs(t, err, models.ErrStale)
		_, _, err = s.LeaveConference(ctx, "cm_none", "hangup")
		require.ErrorIs(t, err, models.ErrNotFound)
		require.ErrorIs(t, s.SetMemberMuted(ctx, app.CustomerID, member.ID, true), models.ErrNotFound, "it is there no more")
		left, members, err = s.LeaveConference(ctx, second.ID, "hangup")
		require.NoError(t, err)
		require.Zero(t, members)
		now := s.Now()
		require.Equal(t, &now, left.EndedAt, "it ends with the last")
		_, err = s.JoinConference(ctx, &models.ConferenceMember{ConferenceID: room.ID, CustomerID: app.CustomerID, CallID: host.ID})
		require.ErrorIs(t, err, models.ErrStale)

		// Found by its ID for good, by its name while it lives.
		byID, err := s.Conference(ctx, app.CustomerID, room.ID)
		require.NoError(t, err)
		require.Equal(t, &now, byID.EndedAt)
		_, err = s.Conference(ctx, app.CustomerID, "standup")
		require.ErrorIs(t, err, models.ErrNotFound)
		_, err = s.Conference(ctx, foreign.ID, room.ID)
		require.ErrorIs(t, err, models.ErrNotFound)
		next, created, err := s.OpenConference(ctx, app.CustomerID, "standup", node.ID)
		require.NoError(t, err)
		require.True(t, created)
		require.NotEqual(t, room.ID, next.ID)
		byName, err := s.Conference(ctx, app.CustomerID, "standup")
		require.NoError(t, err)
		require.Equal(t, next, byName)
		// One that is named like another's ID does not hide it.
		_, _, err = s.OpenConference(ctx, app.CustomerID, room.ID, node.ID)
		require.NoError(t, err)
		byID, err = s.Conference(ctx, app.CustomerID, room.ID)
		require.NoError(t, err)
		require.Equal(t, room.ID, byID.ID)

		live, cursor, err := s.Conferences(ctx, app.CustomerID, models.Page{Limit: 1})
		require.NoError(t, err)
		require.Len(t, live, 1)
		rest, cursor, err := s.Conferences(ctx, app.CustomerID, models.Page{Limit: 1, Cursor: cursor})
		require.NoError(t, err)
		require.Empty(t, cursor)
		require.Equal(t, next.ID, rest[0].ID)
		onNode, err := s.LiveConferences(ctx, node.ID)
		require.NoError(t, err)
		require.Len(t, onNode, 3)
		ended, err = s.EndConference(ctx, next.ID)
		require.NoError(t, err)
		require.True(t, ended, "nobody got in")
		ended, err = s.EndConference(ctx, next.ID)
		require.NoError(t, err)
		require.False(t, ended)
	})
}

// TestConferenceTogether has many calls open, join and leave one name at once, on two stores: there is one live conference at a
// time, its first member began it, and none is left when all have gone.
func TestConferenceTogether(t *testing.T) {
	t.Parallel()
	modelstest.RunPair(t, "", func(t *testing.T, s, other *models.Store) {
		ctx := t.Context()
		app, node := modelstest.Application(t, s, modelstest.Customer(t, s, 0)), modelstest.Node(t, s)
		var group errgroup.Group
		for i := range 16 {
			call := modelstest.Call(t, s, app)
			group.Go(func() error {
				store := []*models.Store{s, other}[i%2]
				for range 6 {
					member := &models.ConferenceMember{CustomerID: app.CustomerID, CallID: call.ID, MemberID: call.ID}
					for {
						err := store.InTx(ctx, func(tx *models.Store) error {
							room, created, err := tx.OpenConference(ctx, app.CustomerID, "room", node.ID)
							if err != nil {
								return err
							}
							member.ConferenceID = room.ID
							members, err := tx.JoinConference(ctx, member)
							if err == nil && created != (members == 1) {
								err = errors.New("who begins it is its first member, and nobody else")
							}
							return err
						})
						if err == nil {
							break
						}
						if !errors.Is(err, models.ErrStale) {
							return err
						}
					}
					if _, _, err := store.LeaveConference(ctx, member.ID, "left"); err != nil {
						return err
					}
				}
				return nil
			})
		}
		require.NoError(t, group.Wait())
		live, _, err := s.Conferences(ctx, app.CustomerID, models.Page{})
		require.NoError(t, err)
		require.Empty(t, live)
	})
}

// conferenceMachine is the model of a customer's conference of one name: who is in it.
type conferenceMachine struct {
	s      *models.Store
	ctx    context.Context //nolint:containedctx // a test's
	app    *models.Application
	node   *models.Node
	room   *models.Conference
	inside []*models.ConferenceMember
	calls  []string
}

func TestConferenceModel(t *testing.T) {
	t.Parallel()
	modelstest.Run(t, "", func(t *testing.T, s *models.Store) {
		app, node := modelstest.Application(t, s, modelstest.Customer(t, s, 0)), modelstest.Node(t, s)
		rapid.Check(t, func(rt *rapid.T) {
			m := &conferenceMachine{s: s, ctx: t.Context(), app: app, node: node}
			for range 4 {
				m.calls = append(m.calls, modelstest.Call(t, s, app).ID)
			}
			rt.Repeat(map[string]func(*rapid.T){"": m.check, "open": m.open, "join": m.join, "leave": m.leave, "end": m.end})
			for len(m.inside) > 0 {
				m.leave(rt)
			}
			if m.room != nil {
				m.end(rt)
			}
		})
	})
}

func (m *conferenceMachine) open(rt *rapid.T) {
	room, created, err := m.s.OpenConference(m.ctx, m.app.CustomerID, "model", m.node.ID)
	require.NoError(rt, err)
	require.Equal(rt, m.room == nil, created)
	if m.room != nil {
		require.Equal(rt, m.room.ID, room.ID)
	}
	m.room = room
}

func (m *conferenceMachine) join(rt *rapid.T) {
	if m.room == nil {
		rt.Skip("there is none")
	}
	member := &models.ConferenceMember{ConferenceID: m.room.ID, CustomerID: m.app.CustomerID, CallID: rapid.SampledFrom(m.calls).Draw(rt, "call")}
	members, err := m.s.JoinConference(m.ctx, member)
	if slices.ContainsFunc(m.inside, func(there *models.ConferenceMember) bool { return there.CallID == member.CallID }) {
		require.ErrorIs(rt, err, models.ErrInUse)
		return
	}
	require.NoError(rt, err)
	m.inside = append(m.inside, member)
	require.Equal(rt, len(m.inside), members)
}

func (m *conferenceMachine) leave(rt *rapid.T) {
	if len(m.inside) == 0 {
		rt.Skip("nobody is there")
	}
	i := rapid.IntRange(0, len(m.inside)-1).Draw(rt, "member")
	room, members, err := m.s.LeaveConference(m.ctx, m.inside[i].ID, "left")
	require.NoError(rt, err)
	m.inside = slices.Delete(m.inside, i, i+1)
	require.Equal(rt, len(m.inside), members)
	require.Equal(rt, len(m.inside) > 0, room.Live())
	if !room.Live() {
		m.room = nil
	}
}

func (m *conferenceMachine) end(rt *rapid.T) {
	if m.room == nil {
		rt.Skip("there is none")
	}
	ended, err := m.s.EndConference(m.ctx, m.room.ID)
	require.NoError(rt, err)
	require.Equal(rt, len(m.inside) == 0, ended)
	if ended {
		m.room = nil
	}
}

func (m *conferenceMachine) check(rt *rapid.T) {
	live, _, err := m.s.Conferences(m.ctx, m.app.CustomerID, models.Page{})
	require.NoError(rt, err)
	if m.room == nil {
		require.Empty(rt, live)
		return
	}
	require.Len(rt, live, 1)
	there, err := m.s.ConferenceMembers(m.ctx, m.room.ID)
	require.NoError(rt, err)
	require.Len(rt, there, len(m.inside))
	for i := range there {
		require.Equal(rt, m.inside[i].ID, there[i].ID)
	}
}

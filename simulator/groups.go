package simulator

import (
	"context"
	"fmt"
	"strings"
	"time"

	"tandem/actions"
	"tandem/esl"
)

// stay is how long the call is in a conference or a queue.
type stay struct {
	action actions.Action
	until  time.Time
	hangUp bool
}

// group begins, or goes on with, the stay of the action that runs, as the script says: by default half a minute.
func (g *stage) group() *stay {
	g.mu.Lock()
	action, known := g.current, g.stay
	g.mu.Unlock()
	if known != nil && known.action == action {
		return known
	}
	s := &stay{action: action, until: g.clock.Now().Add(30 * time.Second)}
	if in := g.cast.next(action, func(in *Input) bool { return in.Group != nil }); in != nil {
		s.until = g.clock.Now().Add(time.Duration(in.Group.Seconds * float64(time.Second)))
		s.hangUp = in.Group.Outcome == "hangup"
	} else if g.cast.hangsUp(action) {
		s.until, s.hangUp = g.clock.Now().Add(time.Second), true
	}
	g.mu.Lock()
	g.stay = s
	g.mu.Unlock()
	return s
}

// confer plays a stay in a conference. It reports false when the caller has hung up.
func (g *stage) confer(channelID string, app esl.App) (result []string, stays bool) {
	room, _, _ := strings.Cut(app.Args(), "@")
	g.event("CUSTOM", channelID, "Event-Subclass", "conference::maintenance", "Action", "add-member", "Conference-Name", room, "Member-ID", "1")
	s := g.group()
	left := s.until.Sub(g.clock.Now())
	if a, ok := s.action.(*actions.Conference); ok && left >= a.MaxSeconds {
		g.clock.pass(a.MaxSeconds)
		return []string{"variable_conference_name", room}, true
	}
	g.clock.pass(left)
	if s.hangUp {
		g.leave(channelID)
		return nil, false
	}
	return []string{"variable_conference_name", room}, true
}

// waitInQueue plays what a call hears that waits in a queue, or for one. Nobody is there to be connected with: the call is taken out of the
// queue in the end, or waits until its action's time is over.
func (g *stage) waitInQueue(channelID string, app esl.App) []string {
	s := g.group()
	left := s.until.Sub(g.clock.Now())
	_, waits := s.action.(*actions.Enqueue)
	if heard := length(app); heard < left || !waits && !s.hangUp {
		g.clock.pass(heard)
		return []string{"Application-Response", "FILE PLAYED"}
	}
	g.clock.pass(max(left, 0))
	if s.hangUp {
		g.leave(channelID)
		return nil
	}
	if a, ok := s.action.(*actions.Enqueue); ok {
		g.takeOut(a.Name)
	}
	return []string{"Application-Response", "FILE PLAYED"}
}

// BridgeChannels implements calls.Switch. There is one call in a simulation, and so nobody to be connected with.
func (g *stage) BridgeChannels(_ context.Context, channelID, other string) error {
	return g.sent(channelID, "api uuid_bridge %s %s", channelID, other)
}

// ConferenceKick implements calls.Switch.
func (g *stage) ConferenceKick(_ context.Context, conference, member string) error {
	return g.toRoom("api conference %s kick %s", conference, member)
}

// ConferenceMute implements calls.Switch.
func (g *stage) ConferenceMute(_ context.Context, conference, member string, muted bool) error {
	if muted {
		return g.toRoom("api conference %s mute %s", conference, member)
	}
	return g.toRoom("api conference %s unmute %s", conference, member)
}

// ConferenceRecord implements calls.Switch.
func (g *stage) ConferenceRecord(_ context.Context, conference, path string) error {
	return g.toRoom("api conference %s record %s", conference, path)
}

// ConferenceRecordStop implements calls.Switch.
func (g *stage) ConferenceRecordStop(_ context.Context, conference, path string) error {
	return g.toRoom("api conference %s norecord %s", conference, path)
}

// ConferenceMembers implements calls.Switch: the call's own stay tells of itself.
func (g *stage) ConferenceMembers(_ context.Context, conference string) ([]esl.ConferenceMember, error) {
	return nil, g.toRoom("api conference %s json_list", conference)
}

// toRoom notes a command to a room.
func (g *stage) toRoom(format string, args ...any) error {
	g.path.add(Step{Kind: StepCommand, Command: fmt.Sprintf(format, args...)})
	return nil
}

package simulator

import (
	"context"
	"fmt"

	"tandem/esl"
)

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

package esl

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
)

// ConferenceApp puts the channel into a room of mod_conference, which is made when it is the first, and ends when the channel leaves the room. The
// flags are those of mod_conference (conference_utils.c, conference_utils_set_mflags and conference_utils_set_cflags), at most ten.
func ConferenceApp(room, profile string, flags ...string) (App, error) {
	if err := checkID("conference", room); err != nil {
		return App{}, err
	}
	if err := checkPattern("profile", profile, wordPattern, "1 to 64 letters, digits, '-' or '_'"); err != nil {
		return App{}, err
	}
	if len(flags) > 10 {
		return App{}, refuse("flags", "must be at most 10")
	}
	for _, flag := range flags {
		if err := checkPattern("flags", flag, wordPattern, "words of letters, digits, '-' and '_'"); err != nil {
			return App{}, err
		}
	}
	args := room + "@" + profile
	if len(flags) > 0 {
		args += "+flags{" + strings.Join(flags, "|") + "}"
	}
	return App{name: "conference", args: args}, nil
}

// BridgeChannels connects two channels, of which at least the first must have media. What they run completes first. CHANNEL_BRIDGE and
// CHANNEL_UNBRIDGE come for the first; whoever is left over when the other has gone is hung up, unless its variable park_after_bridge is true. A
// first channel whose peer goes before they are connected is hung up unless its variable uuid_bridge_park_on_cancel is true
// (switch_ivr_bridge.c, switch_ivr_uuid_bridge and uuid_bridge_on_soft_execute).
func (n *Node) BridgeChannels(ctx context.Context, first, second string) error {
	if err := checkID("channel_id", first); err != nil {
		return err
	}
	if err := checkID("other_channel_id", second); err != nil {
		return err
	}
	_, err := n.api(ctx, "uuid_bridge", first+" "+second)
	return err
}

var memberPattern = regexp.MustCompile(`^[0-9]{1,10}$`)

// ConferenceMember is a channel in a room.
type ConferenceMember struct {
	ID        string // the switch's number of the member
	ChannelID string
	Muted     bool
}

// ConferenceMembers lists who is in a room. A room that does not exist is a *CommandError.
func (n *Node) ConferenceMembers(ctx context.Context, room string) ([]ConferenceMember, error) {
	reply, err := n.conference(ctx, room, "json_list")
	if err != nil {
		return nil, err
	}
	return parseMembers(reply)
}

// parseMembers reads the rooms of json_list. Recordings are members, too, but have no channel (mod_conference.c, conference_jlist). The plain list
// is not to be trusted: what a caller is named may hold its delimiter.
func parseMembers(doc string) ([]ConferenceMember, error) {
	var rooms []struct {
		Members []struct {
			ID    json.Number `json:"id"`
			UUID  string      `json:"uuid"`
			Flags struct {
				CanSpeak bool `json:"can_speak"`
			} `json:"flags"`
		} `json:"members"`
	}
	if err := json.Unmarshal([]byte(doc), &rooms); err != nil {
		return nil, fmt.Errorf("parse the members of a conference (%d bytes): %w", len(doc), err)
	}
	var members []ConferenceMember
	for _, room := range rooms {
		for _, m := range room.Members {
			if m.UUID != "" {
				members = append(members, ConferenceMember{ID: m.ID.String(), ChannelID: m.UUID, Muted: !m.Flags.CanSpeak})
			}
		}
	}
	return members, nil
}

// ConferenceKick takes a member out of a room. Its channel goes on, unless hangup_after_conference says otherwise.
func (n *Node) ConferenceKick(ctx context.Context, room, member string) error {
	return n.conferenceMember(ctx, room, "kick", member)
}

// ConferenceMute mutes a member, or lets it speak.
func (n *Node) ConferenceMute(ctx context.Context, room, member string, muted bool) error {
	if muted {
		return n.conferenceMember(ctx, room, "mute", member)
	}
	return n.conferenceMember(ctx, room, "unmute", member)
}

// conferenceMember refuses the words that stand for several members, such as all and last.
func (n *Node) conferenceMember(ctx context.Context, room, verb, member string) error {
	if err := checkPattern("member", member, memberPattern, "a number"); err != nil {
		return err
	}
	_, err := n.conference(ctx, room, verb+" "+member)
	return err
}

// ConferenceRecord records what a room hears into a file, until ConferenceRecordStop or the end of the room. The file is complete a moment after that.
func (n *Node) ConferenceRecord(ctx context.Context, room, path string) error {
	if err := checkFile("path", path); err != nil {
		return err
	}
	_, err := n.conference(ctx, room, "record "+path)
	return err
}

// ConferenceRecordStop ends what ConferenceRecord began.
func (n *Node) ConferenceRecordStop(ctx context.Context, room, path string) error {
	if err := checkFile("path", path); err != nil {
		return err
	}
	_, err := n.conference(ctx, room, "norecord "+path)
	return err
}

func (n *Node) conference(ctx context.Context, room, command string) (string, error) {
	if err := checkID("conference", room); err != nil {
		return "", err
	}
	return n.api(ctx, "conference", room+" "+command)
}

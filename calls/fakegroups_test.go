package calls

import (
	"context"
	"strconv"
	"strings"
	"sync"

	"tandem/esl"
)

// fakeGroups is what a fake switch knows of bridges and rooms.
type fakeGroups struct {
	mu    sync.Mutex
	peers map[string]string // both ways
	taker map[string]bool   // the channels that the bridges were commanded for
	rooms map[string][]*fakeMember
	ids   map[string]int // a channel's number stays
}

type fakeMember struct {
	command command
	id      string
	flags   string
}

// meets makes a fake switch bridge channels and carry rooms. What is played to a waiting call lasts until it is broken off.
func (f *fakeSwitch) meets() {
	f.mu.Lock()
	f.modules = map[string]bool{conferenceModule: true}
	f.mu.Unlock()
	f.hold("playback")
	g := &f.groups
	g.peers, g.taker, g.rooms, g.ids = map[string]string{}, map[string]bool{}, map[string][]*fakeMember{}, map[string]int{}
	f.script("park", func(c command) error {
		f.part(c.channel)
		f.event("CHANNEL_PARK", c.channel)
		return nil
	})
	f.script("kill", func(c command) error {
		f.leave(c.channel, c.args, "variable_sip_hangup_disposition", f.disposition(c.channel))
		return nil
	})
	f.script("execute conference", func(c command) error {
		room, flags, _ := strings.Cut(strings.Fields(c.args)[1], "@")
		g.mu.Lock()
		if g.ids[c.channel] == 0 {
			g.ids[c.channel] = len(g.ids) + 1
		}
		m := &fakeMember{command: c, id: strconv.Itoa(g.ids[c.channel]), flags: flags}
		g.rooms[room] = append(g.rooms[room], m)
		g.mu.Unlock()
		f.event("CUSTOM", c.channel, "Event-Subclass", "conference::maintenance", "Action", "add-member", "Conference-Name", room, "Member-ID", m.id)
		return nil
	})
}

// part ends the bridge of a channel, whose peer parks.
func (f *fakeSwitch) part(channel string) {
	g := &f.groups
	g.mu.Lock()
	peer, ok := g.peers[channel]
	delete(g.peers, channel)
	delete(g.peers, peer)
	first := peer
	if g.taker[channel] {
		first = channel
	}
	delete(g.taker, first)
	g.mu.Unlock()
	if ok {
		f.event("CHANNEL_UNBRIDGE", first)
		f.event("CHANNEL_PARK", peer)
	}
}

// leave hangs a channel up, wherever it is.
func (f *fakeSwitch) leave(channel, cause string, pairs ...string) {
	f.part(channel)
	f.groups.mu.Lock()
	var room string
	for name, members := range f.groups.rooms {
		for _, m := range members {
			if m.command.channel == channel {
				room = name
			}
		}
	}
	f.groups.mu.Unlock()
	if room != "" {
		f.takeOut(room, cause, func(m *fakeMember) bool { return m.command.channel == channel })
	}
	f.hangup(channel, cause, pairs...)
}

// takeOut ends the stay of a member, and of all if that one ends the room. A member that hangs up does so with a cause. It
// reports false when there is no such member.
func (f *fakeSwitch) takeOut(room, cause string, who func(m *fakeMember) bool) bool {
	g := &f.groups
	g.mu.Lock()
	var out []*fakeMember
	var kept []*fakeMember
	for _, m := range g.rooms[room] {
		if who(m) {
			out = append(out, m)
		} else {
			kept = append(kept, m)
		}
	}
	if len(out) > 0 && strings.Contains(out[0].flags, "endconf") {
		out, kept = append(out, kept...), nil
	}
	g.rooms[room] = kept
	if len(kept) == 0 {
		delete(g.rooms, room)
	}
	g.mu.Unlock()
	for i, m := range out {
		pairs := []string{"variable_conference_name", room}
		if i == 0 && cause != "" {
			pairs = append(pairs, "Hangup-Cause", cause)
		}
		f.complete(m.command, pairs...)
	}
	return len(out) > 0
}

// members are the channels in a room, in the order in which they came.
func (f *fakeSwitch) members(room string) []string {
	f.groups.mu.Lock()
	defer f.groups.mu.Unlock()
	var channels []string
	for _, m := range f.groups.rooms[room] {
		channels = append(channels, m.command.channel)
	}
	return channels
}

func (f *fakeSwitch) BridgeChannels(_ context.Context, channel, other string) error {
	return f.do(command{verb: "bridge", channel: channel, args: other}, func() error {
		return f.connect(channel, other)
	})
}

// connect bridges two channels that live.
func (f *fakeSwitch) connect(channel, other string) error {
	f.mu.Lock()
	gone := f.channels[other] == nil || f.channels[other].dead
	f.mu.Unlock()
	if gone {
		return &esl.CommandError{Command: "uuid_bridge", Reply: "-ERR Invalid uuid"}
	}
	f.groups.mu.Lock()
	f.groups.peers[channel], f.groups.peers[other], f.groups.taker[channel] = other, channel, true
	f.groups.mu.Unlock()
	f.event("CHANNEL_BRIDGE", channel, "Bridge-A-Unique-ID", channel, "Bridge-B-Unique-ID", other)
	return nil
}

var errNoMember = &esl.CommandError{Command: "conference", Reply: "-ERR Non-Existant ID"} //nolint:misspell // the switch spells it so

func (f *fakeSwitch) ConferenceKick(_ context.Context, room, member string) error {
	return f.do(f.roomCommand("conference_kick", room, member), func() error {
		if !f.takeOut(room, "", func(m *fakeMember) bool { return m.id == member }) {
			return errNoMember
		}
		return nil
	})
}

func (f *fakeSwitch) ConferenceMute(_ context.Context, room, member string, muted bool) error {
	return f.do(f.roomCommand("conference_mute", room, strconv.FormatBool(muted)), func() error {
		f.groups.mu.Lock()
		defer f.groups.mu.Unlock()
		for _, m := range f.groups.rooms[room] {
			if m.id == member {
				return nil
			}
		}
		return errNoMember
	})
}

func (f *fakeSwitch) ConferenceRecord(_ context.Context, room, path string) error {
	return f.do(f.roomCommand("conference_record", room, path), func() error { return nil })
}

func (f *fakeSwitch) ConferenceRecordStop(_ context.Context, room, path string) error {
	return f.do(f.roomCommand("conference_norecord", room, path), func() error { return nil })
}

// roomCommand is a command to a room: the fake switch finds it by one of its channels.
func (f *fakeSwitch) roomCommand(verb, room, args string) command {
	c := command{verb: verb, args: args}
	if members := f.members(room); len(members) > 0 {
		c.channel = members[0]
	}
	return c
}

func (f *fakeSwitch) ConferenceMembers(_ context.Context, room string) ([]esl.ConferenceMember, error) {
	f.groups.mu.Lock()
	defer f.groups.mu.Unlock()
	var list []esl.ConferenceMember
	for _, m := range f.groups.rooms[room] {
		list = append(list, esl.ConferenceMember{ID: m.id, ChannelID: m.command.channel})
	}
	return list, nil
}

package simswitch

import (
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	conferenceMaintenance = "conference::maintenance"
	conferenceProfile     = "tandem"
	conferenceDomain      = "cluecon.com"
)

var (
	fromRoom       = origin{"mod_conference.c", "conference_new"}
	fromRoomJoin   = origin{"conference_member.c", "conference_member_add"}
	fromRoomLeave  = origin{"conference_member.c", "conference_member_del"}
	fromRoomAPI    = origin{"conference_api.c", "conference_api_dispatch"}
	fromRoomRecord = origin{"conference_record.c", "conference_record_thread_run"}
)

// room is a conference of mod_conference. Its lock is taken before that of a member's channel.
type room struct {
	sw                  *Switch
	name, profile, uuid string
	begun               time.Time

	mu         sync.Mutex
	members    []*member
	limit      int
	waits      bool
	over       bool
	recordings []*roomRecording
}

// member is a channel in a room.
type member struct {
	room                     *room
	c                        *channel
	id                       int
	joined                   time.Time
	muted, moderator, ending bool
	out                      bool
}

type roomRecording struct {
	path  string
	begun time.Time
}

// appConference is conference_function of mod_conference.c: `room@profile+flags{…}`. It runs until the member is put out, leaves, or
// the room ends.
func (c *channel) appConference(data string) {
	where, flags, _ := strings.Cut(data, "+flags{")
	flags, _, _ = strings.Cut(flags, "}")
	where = strings.TrimLeft(where, " ")
	if where == "" {
		c.sw.log.Error("conference without a name", "channel", c.uuid)
		return
	}
	where, pin, _ := strings.Cut(where, "+")
	if pin != "" {
		c.sw.log.Error("a conference with a PIN is not simulated", "conference", where, "channel", c.uuid)
		return
	}
	name, profile := where, "default"
	if i := strings.LastIndexByte(where, '@'); i >= 0 {
		name, profile = where[:i], where[i+1:]
	}
	m := &member{c: c}
	r := c.sw.openRoom(name, profile, c)
	c.set("conference_name", name)
	if !c.outbound {
		c.answer()
		c.runOnAnswer()
	}
	waits := false
	for _, flag := range strings.FieldsFunc(flags+"|"+c.variable("conference_member_flags")+"|"+c.variable("conference_flags"), func(r rune) bool { return r == '|' || r == ',' }) {
		switch strings.TrimSpace(flag) {
		case "mute":
			m.muted = true
		case "moderator":
			m.moderator = true
		case "endconf":
			m.ending = true
		case "wait-mod":
			waits = true
		case "nomoh", "mintwo", "deaf", "ghost", "join-only", "dist-dtmf":
			c.sw.log.Error("conference flag is not simulated", "flag", flag, "channel", c.uuid)
		}
	}
	if !r.join(m, waits) {
		return
	}
	for c.ready() && !m.isOut() {
		c.parseEvents()
		c.takeBreak()
		for ok := true; ok; {
			_, ok = c.takeDigit()
		}
		if !c.ready() || m.isOut() {
			break
		}
		<-c.wake
	}
	r.leave(m)
}

// openRoom finds a room, or opens one with what the variables of the channel that opens it say.
func (s *Switch) openRoom(name, profile string, c *channel) *room {
	s.roomMu.Lock()
	defer s.roomMu.Unlock()
	if r := s.rooms[name]; r != nil {
		return r
	}
	if profile != conferenceProfile {
		s.log.Warn("conference profile is not there", "profile", profile, "channel", c.uuid)
		profile = "none"
	}
	r := &room{sw: s, name: name, profile: profile, uuid: newUUID(), begun: s.clock.now()}
	// 1 is no limit to mod_conference, it refuses it with an error in its log.
	if limit := leadingInt(c.variable("conference_max_members")); limit > 1 {
		r.limit = limit
	}
	if path := c.variable("conference_auto_record"); path != "" {
		r.recordings = append(r.recordings, &roomRecording{path: path, begun: s.clock.now()})
	}
	s.rooms[name] = r
	r.fireLocked("conference-create", fromRoom)
	return r
}

func (s *Switch) room(name string) *room {
	s.roomMu.Lock()
	defer s.roomMu.Unlock()
	return s.rooms[name]
}

// join is conference_member_add. It reports false when the room is full.
func (r *room) join(m *member, waits bool) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.limit > 0 && len(r.members) >= r.limit {
		r.sw.log.Info("conference is full", "conference", r.name, "channel", m.c.uuid)
		return false
	}
	m.room, m.joined = r, r.sw.clock.now()
	m.id = int(r.sw.memberIDs.Add(1))
	switch {
	case m.moderator:
		r.waits = false
	case waits && len(r.members) == 0:
		r.waits = true
	}
	r.members = slices.Insert(r.members, 0, m)
	m.c.mu.Lock()
	m.c.setLocked("conference_member_id", itoa(m.id))
	m.c.setLocked("conference_moderator", map[bool]string{true: "true", false: "false"}[m.moderator])
	m.c.setLocked("conference_ghost", "false")
	m.c.setLocked("conference_uuid", r.uuid)
	m.c.mu.Unlock()
	r.fireMemberLocked(m, "add-member", fromRoomJoin)
	return true
}

// leave is conference_member_del: the room ends with its last member, and with one that has the flag endconf.
func (r *room) leave(m *member) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.members = slices.DeleteFunc(r.members, func(other *member) bool { return other == m })
	r.fireMemberLocked(m, "del-member", fromRoomLeave)
	if r.over || !m.ending && len(r.members) > 0 {
		if len(r.members) == 0 {
			r.fireLocked("conference-destroy", fromRoom)
		}
		return
	}
	r.over = true
	r.sw.roomMu.Lock()
	delete(r.sw.rooms, r.name)
	r.sw.roomMu.Unlock()
	r.stopLocked("all")
	for _, other := range r.members {
		other.out = true
		if value := other.c.get("hangup_after_conference"); !isFalse(value["hangup_after_conference"]) {
			other.c.hangup(causeNormalClearing)
		}
		other.c.poke()
	}
	if len(r.members) == 0 {
		r.fireLocked("conference-destroy", fromRoom)
	}
}

func (m *member) isOut() bool {
	m.room.mu.Lock()
	defer m.room.mu.Unlock()
	return m.out
}

// fireLocked raises an event of the room itself.
func (r *room) fireLocked(action string, from origin, extra ...header) {
	r.sw.fire(evCustom, conferenceMaintenance, from, func(e *event) {
		r.dataLocked(e)
		e.add("Action", action)
		e.headers = append(e.headers, extra...)
	})
}

// dataLocked is conference_event_add_data.
func (r *room) dataLocked(e *event) {
	e.add("Conference-Name", r.name)
	e.add("Conference-Domain", conferenceDomain)
	e.add("Conference-Size", itoa(len(r.members)))
	e.add("Conference-Ghosts", "0")
	e.add("Conference-Profile-Name", r.profile)
	e.add("Conference-Unique-ID", r.uuid)
}

// fireMemberLocked raises an event of a member, with conference_member_add_event_data. It carries no variables.
func (r *room) fireMemberLocked(m *member, action string, from origin) {
	m.c.mu.Lock()
	defer m.c.mu.Unlock()
	r.sw.fire(evCustom, conferenceMaintenance, from, func(e *event) {
		r.dataLocked(e)
		e.add("Floor", "false")
		e.basic = true
		m.c.dataLocked(e)
		e.add("Video", "false")
		e.add("Hear", "true")
		e.add("See", "true")
		e.add("Speak", map[bool]string{true: "false", false: "true"}[m.muted])
		e.add("Talking", "false")
		e.add("Mute-Detect", "false")
		e.add("Hold", "false")
		e.add("Member-ID", itoa(m.id))
		e.add("Member-Type", m.kind())
		e.add("Member-Ghost", "false")
		e.add("Energy-Level", "100")
		e.add("Current-Energy", "0")
		e.add("Action", action)
	})
}

func (m *member) kind() string {
	if m.moderator {
		return "moderator"
	}
	return "member"
}

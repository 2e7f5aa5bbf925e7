package simswitch

import (
	"encoding/json"
	"path/filepath"
	"strings"
)

// conference is conference_api_main_real of conference_api.c, for what a controller does with a room and its members.
func (s *Switch) conference(arg string) string {
	words := separate(arg, ' ', 5)
	word := func(i int) string {
		if i < len(words) {
			return words[i]
		}
		return ""
	}
	switch word(0) {
	case "list":
		return s.listRooms()
	case "json_list":
		return s.roomsJSON("")
	case "":
		return "-ERR Conference command, not specified.\nTry 'help'\n"
	}
	r := s.room(word(0))
	if r == nil {
		return "-ERR Conference " + word(0) + " not found\n"
	}
	switch word(1) {
	case "":
		return "Conference command, not specified.\nTry 'help'\n"
	case "list":
		r.mu.Lock()
		defer r.mu.Unlock()
		if word(2) == "count" {
			return itoa(len(r.members))
		}
		return r.listLocked()
	case "json_list":
		return s.roomsJSON(r.name)
	case "kick", "hup", "mute", "unmute":
		return r.eachMember(word(1), word(2))
	case "record":
		return r.record(word(2))
	case "norecord":
		return r.norecord(word(2))
	}
	s.log.Error("conference command is not simulated", "command", arg)
	return "-ERR Conference command '" + word(1) + "' not found.\n"
}

var memberUsage = map[string]string{
	"kick":   "kick <[member_id|all|last|non_moderator]> [<optional sound file>]",
	"hup":    "hup <[member_id|all|last|non_moderator]>",
	"mute":   "mute <[member_id|all]|last|non_moderator> [<quiet>]",
	"unmute": "unmute <[member_id|all]|last|non_moderator> [<quiet>]",
}

// eachMember runs a command on the members that who means: a number, all, last or non_moderator.
func (r *room) eachMember(command, who string) string {
	if who == "" {
		return memberUsage[command]
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	var out strings.Builder
	for i, m := range r.members {
		switch {
		case who == "all", who == "last" && i == 0, who == "non_moderator" && !m.moderator, who == itoa(m.id):
			out.WriteString(r.commandLocked(command, m))
		}
	}
	if out.Len() == 0 && who != "all" && who != "last" && who != "non_moderator" {
		return "-ERR Non-Existant ID " + itoa(leadingInt(who)) + "\n" //nolint:misspell // mod_conference spells it so.
	}
	return out.String()
}

func (r *room) commandLocked(command string, m *member) string {
	done := command
	switch command {
	case "kick", "hup":
		if command == "kick" {
			done = "kicked"
		}
		r.fireMemberLocked(m, command+"-member", fromRoomAPI)
		m.out = true
		m.c.poke()
	case "mute", "unmute":
		m.muted = command == "mute"
		r.fireMemberLocked(m, command+"-member", fromRoomAPI)
	}
	return "+OK " + done + " " + itoa(m.id) + "\n"
}

func (r *room) record(path string) string {
	if path == "" {
		return "record <filename>"
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, other := range r.recordings {
		if other.path == path {
			return "-ERR file [" + path + "] is already being used for recording.\n"
		}
	}
	if !filepath.IsAbs(path) {
		r.sw.log.Error("a conference records to an absolute path only", "path", path, "conference", r.name)
		return "+OK Record file " + path + "\n"
	}
	r.recordings = append(r.recordings, &roomRecording{path: path, begun: r.sw.clock.now()})
	r.fireLocked("start-recording", fromRoomRecord, header{"Path", path})
	return "+OK Record file " + path + "\n"
}

func (r *room) norecord(path string) string {
	if path == "" {
		return "norecord <[filename|all]>"
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	// The recording's own thread ends it, so that none is counted yet when this is answered.
	return r.stopLocked(path) + "+OK Stopped recording 0 files\n"
}

// stopLocked ends recordings of the room and tells which.
func (r *room) stopLocked(path string) string {
	var out strings.Builder
	kept := r.recordings[:0]
	for _, rec := range r.recordings {
		if path != "all" && path != rec.path {
			kept = append(kept, rec)
			continue
		}
		length := r.sw.clock.now().Sub(rec.begun)
		if _, err := writeWAV(rec.path, length, 1); err != nil {
			r.sw.log.Error("cannot write recording", "path", rec.path, "conference", r.name, "error", err)
		}
		out.WriteString("Stopped recording file " + rec.path + "\n")
		r.fireLocked("stop-recording", fromRoomRecord, header{"Path", rec.path}, header{"Other-Recordings", "false"},
			header{"Samples-Out", itoa(int(length.Milliseconds()) * recordRate / 1000)}, header{"Samplerate", itoa(recordRate)},
			header{"Milliseconds-Elapsed", itoa(int(length.Milliseconds()))})
	}
	clear(r.recordings[len(kept):])
	r.recordings = kept
	return out.String()
}

func (s *Switch) allRooms(name string) []*room {
	s.roomMu.Lock()
	defer s.roomMu.Unlock()
	var rooms []*room
	for _, r := range s.rooms {
		if name == "" || r.name == name {
			rooms = append(rooms, r)
		}
	}
	return rooms
}

func (s *Switch) listRooms() string {
	var out strings.Builder
	for _, r := range s.allRooms("") {
		r.mu.Lock()
		plural := "s"
		if len(r.members) == 1 {
			plural = ""
		}
		flags := "running|answered|enforce_min|dynamic|exit_sound|enter_sound|json_status"
		if len(r.recordings) > 0 {
			flags = "recording|" + flags
		}
		out.WriteString("+OK Conference " + r.name + " (" + itoa(len(r.members)) + " member" + plural + " rate: 8000 flags: " + flags + ")\n")
		out.WriteString(r.listLocked())
		r.mu.Unlock()
	}
	if out.Len() == 0 {
		return "+OK No active conferences.\n"
	}
	return out.String()
}

// listLocked is conference_list: one line for each member.
func (r *room) listLocked() string {
	var out strings.Builder
	for _, m := range r.members {
		m.c.mu.Lock()
		fields := []string{itoa(m.id), m.c.name, m.c.uuid, m.c.profile.cidName, m.c.profile.cidNumber}
		m.c.mu.Unlock()
		flags := "hear"
		if !m.muted {
			flags += "|speak"
		}
		if m.moderator {
			flags += "|moderator"
		}
		out.WriteString(strings.Join(append(fields, flags, "0", "0", "100"), ";") + "\n")
	}
	return out.String()
}

// roomJSON and memberJSON are what json_list tells (conference_jlist), as far as anybody reads it.
type roomJSON struct {
	Name      string            `json:"conference_name"`
	Count     int               `json:"member_count"`
	Ghosts    int               `json:"ghost_count"`
	Rate      int               `json:"rate"`
	RunTime   int               `json:"run_time"`
	UUID      string            `json:"conference_uuid"`
	Locked    bool              `json:"locked"`
	WaitMod   bool              `json:"wait_mod"`
	Running   bool              `json:"running"`
	Answered  bool              `json:"answered"`
	Recording bool              `json:"recording"`
	Variables map[string]string `json:"variables"`
	Members   []any             `json:"members"`
}

type memberJSON struct {
	Type        string          `json:"type"`
	ID          int             `json:"id"`
	Flags       map[string]bool `json:"flags"`
	UUID        string          `json:"uuid"`
	Name        string          `json:"caller_id_name"`
	Number      string          `json:"caller_id_number"`
	JoinTime    int             `json:"join_time"`
	LastTalking int             `json:"last_talking"`
	Energy      int             `json:"energy"`
	VolumeIn    int             `json:"volume_in"`
	VolumeOut   int             `json:"volume_out"`
}

type recorderJSON struct {
	Type     string `json:"type"`
	Path     string `json:"record_path"`
	JoinTime int64  `json:"join_time"`
}

func (s *Switch) roomsJSON(name string) string {
	list := []roomJSON{}
	for _, r := range s.allRooms(name) {
		r.mu.Lock()
		list = append(list, r.jsonLocked())
		r.mu.Unlock()
	}
	b, err := json.MarshalIndent(list, "", "\t")
	if err != nil {
		return "-ERR " + err.Error() + "\n"
	}
	return string(b)
}

func (r *room) jsonLocked() roomJSON {
	now := r.sw.clock.now()
	out := roomJSON{Name: r.name, Count: len(r.members), Rate: recordRate, RunTime: int(now.Sub(r.begun).Seconds()), UUID: r.uuid,
		WaitMod: r.waits, Running: true, Answered: true, Recording: len(r.recordings) > 0, Variables: map[string]string{}, Members: []any{}}
	for _, rec := range r.recordings {
		out.Members = append(out.Members, recorderJSON{"recording_node", rec.path, rec.begun.Unix()})
	}
	for _, m := range r.members {
		m.c.mu.Lock()
		out.Members = append(out.Members, memberJSON{Type: "caller", ID: m.id, UUID: m.c.uuid, Name: m.c.profile.cidName,
			Number: m.c.profile.cidNumber, JoinTime: int(now.Sub(m.joined).Seconds()), Energy: 100,
			Flags: map[string]bool{"can_hear": true, "can_see": true, "can_speak": !m.muted, "hold": false, "mute_detect": false,
				"talking": false, "has_video": false, "has_floor": false, "is_moderator": m.moderator, "end_conference": m.ending,
				"pass_digits": false}})
		m.c.mu.Unlock()
	}
	return out
}

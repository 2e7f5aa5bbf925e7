package calls

import (
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tandem/actions"
	"tandem/models"
	"tandem/models/modelstest"
)

// dialedParty is what becomes of a leg that a fake switch dials.
type dialedParty struct {
	cause   string // "" lets it ring
	sip     string // "486"
	answers bool
	joined  bool
	lives   bool // it stays on the line
}

var originated = regexp.MustCompile(`origination_uuid=([0-9a-f-]{36})[^\]]*\]([^,]+)`)

// dials scripts the bridges of a fake switch: what becomes of the party at an address whose end is given. A bridge is over once
// nobody rings or talks.
func (f *fakeSwitch) dials(parties map[string]dialedParty) {
	f.script("execute bridge", func(c command) error {
		joined, open := "", 0
		for _, match := range originated.FindAllStringSubmatch(c.args, -1) {
			id := match[1]
			f.mu.Lock()
			f.channels[id] = &fakeChannel{direction: "outbound"}
			f.mu.Unlock()
			var p dialedParty
			for end, candidate := range parties {
				if strings.HasSuffix(match[2], end) {
					p = candidate
				}
			}
			f.event(eventProgress, id)
			if p.answers {
				f.answer(id)
			}
			if p.joined {
				f.answer(c.channel)
				f.event(eventBridge, c.channel, "Other-Leg-Unique-ID", id)
				joined = id
			}
			switch {
			case p.cause != "":
				f.hangup(id, p.cause, "variable_sip_hangup_disposition", "recv_refuse", "variable_sip_invite_failure_status", p.sip, "variable_billsec", "0")
			case p.joined && !p.lives:
				f.hangup(id, "NORMAL_CLEARING", "variable_sip_hangup_disposition", "recv_bye")
			default:
				open++
			}
		}
		if open > 0 {
			f.awaitEnd(c)
			return nil
		}
		disposition := "USER_BUSY"
		if joined != "" {
			disposition = "SUCCESS"
		}
		f.complete(c, "variable_originate_disposition", disposition)
		return nil
	})
}

// awaitEnd completes a bridge when the last of its legs has been killed.
func (f *fakeSwitch) awaitEnd(c command) {
	legs := originated.FindAllStringSubmatch(c.args, -1)
	f.script("kill", func(k command) error {
		f.hangup(k.channel, k.args, "variable_sip_hangup_disposition", f.disposition(k.channel))
		f.mu.Lock()
		over := true
		for _, match := range legs {
			over = over && f.channels[match[1]].dead
		}
		f.mu.Unlock()
		if over && k.channel != c.channel {
			f.complete(c, "variable_originate_disposition", "ORIGINATOR_CANCEL")
		}
		return nil
	})
}

// bridges are the dial strings so far.
func (s *scene) bridges() []string {
	var list []string
	for _, line := range s.sw.log() {
		if dial, ok := strings.CutPrefix(line, "execute bridge "); ok {
			list = append(list, dial)
		}
	}
	return list
}

// callOn is the ID of the call on a channel.
func (s *scene) callOn(channel string) string {
	s.t.Helper()
	call, err := s.store.CallByChannel(s.t.Context(), channel)
	require.NoError(s.t, err)
	return call.ID
}

func TestDialRounds(t *testing.T) {
	t.Parallel()
	modelstest.Run(t, "", func(t *testing.T, store *models.Store) {
		s := newScene(t, store)
		second := s.trunks(2)[1]
		s.sw.dials(map[string]dialedParty{
			"0486": {cause: "USER_BUSY", sip: "486"}, "0503": {cause: "NORMAL_TEMPORARY_FAILURE", sip: "503"}, "0200": {answers: true, joined: true},
			"0403": {cause: "CALL_REJECTED", sip: "403"}, "0603": {cause: "CALL_REJECTED", sip: "603"}, "0488": {cause: "INCOMPATIBLE_DESTINATION", sip: "488"},
			"0404": {cause: "UNALLOCATED_NUMBER", sip: "404"}, "0480": {cause: "NO_USER_RESPONSE", sip: "480"},
		})
		for _, tt := range []struct {
			dial, status, reason string
			rounds               []string // the ends of the numbers, and the trunk
		}{
			{`"to":"+15550000486"`, "busy", ReasonBusy, []string{"486/1"}},
			{`"to":"+15550000603"`, "failed", ReasonDeclined, []string{"603/1"}},
			{`"to":"+15550000480"`, "no_answer", ReasonUnavailable, []string{"480/1"}},
			{`"to":"+15550000404"`, "failed", ReasonInvalidNumber, []string{"404/1"}},
			{`"to":"+15550000503"`, "failed", ReasonCarrierError, []string{"503/1", "503/2"}},
			{`"to":"+15550000403"`, "failed", ReasonCarrierRejected, []string{"403/1", "403/2"}},
			{`"to":"+15550000488"`, "failed", ReasonCodecMismatch, []string{"488/1", "488/2"}},
			{`"to":{"number":"+15550000503","trunk_id":"` + second.ID + `"}`, "failed", ReasonCarrierError, []string{"503/2"}},
			{`"to":["+15550000503","+15550000486","+15550000603"]`, "failed", ReasonCarrierError, []string{"503/1 486/1 603/1", "503/2"}},
			{`"strategy":"sequential","to":["+15550000503","+15550000486","+15550000200","+15550000603"]`, "answered", ReasonCalleeHangup, []string{"503/1", "503/2", "486/1", "200/1"}},
		} {
			before := len(s.bridges())
			s.answers("/answer", reply(`[{"action":"dial",`+tt.dial+`,"result_url":"/result"}]`))
			s.answers("/result", status(204))
			s.callIn()
			call := s.end()
			asks := s.requests()
			result := asks[len(asks)-1].Result
			require.Equal(t, []any{tt.status, tt.reason}, []any{result["dial_status"], result["reason"]}, tt.dial)
			var rounds []string
			for _, dial := range s.bridges()[before:] {
				var legs []string
				for _, match := range originated.FindAllStringSubmatch(dial, -1) {
					number, trunk := match[2][len(match[2])-3:], "1"
					if strings.Contains(match[2], second.GatewayName) {
						trunk = "2"
					}
					legs = append(legs, number+"/"+trunk)
				}
				rounds = append(rounds, strings.Join(legs, " "))
			}
			require.Equal(t, tt.rounds, rounds, tt.dial)
			require.Len(t, s.dataOf(call.ID, "leg.ended"), len(strings.Fields(strings.Join(tt.rounds, " "))))
		}
	})
}

func TestDialLegsEndLate(t *testing.T) {
	t.Parallel()
	s := newScene(t, modelstest.Open(t))
	s.answers("/answer", reply(`[{"action":"dial","to":["+15550000001","+15550000002"],"result_url":"/result"},{"action":"answer"},{"action":"say","text":"done"}]`))
	s.answers("/result", status(204))
	s.sw.script("execute bridge", func(c command) error {
		legs := originated.FindAllStringSubmatch(c.args, -1)
		for _, match := range legs {
			s.sw.mu.Lock()
			s.sw.channels[match[1]] = &fakeChannel{direction: "outbound"}
			s.sw.mu.Unlock()
		}
		// One leg had a channel whose events are lost, the other none at all.
		s.sw.complete(c, "variable_originate_disposition", "USER_BUSY", "variable_originate_causes", legs[0][1]+";NO_ANSWER")
		return nil
	})
	s.sw.script("execute speak", func(c command) error {
		for _, match := range originated.FindAllStringSubmatch(s.bridges()[0], -1) {
			s.sw.hangup(match[1], "USER_BUSY") // too late
		}
		s.sw.complete(c)
		return nil
	})
	s.callIn()
	call := s.end()
	rows, err := s.store.LegsOfCall(t.Context(), s.customer.ID, call.ID)
	require.NoError(t, err)
	require.Equal(t, []any{"no_answer", "NO_ANSWER", "failed", "INVALID_GATEWAY"}, []any{rows[0].DialStatus, rows[0].Cause, rows[1].DialStatus, rows[1].Cause})
	require.Len(t, s.dataOf(call.ID, "leg.ended"), 2, "what comes after the end is ignored")
	s.noLegs()
}

func TestDialInterruptedOrEnded(t *testing.T) {
	t.Parallel()
	s := newScene(t, modelstest.Open(t))
	s.sw.dials(map[string]dialedParty{"0200": {answers: true, joined: true, lives: true}})
	list, err := actions.ParseList([]byte(`[{"action":"answer"},{"action":"say","text":"instead"}]`), "actions")
	require.NoError(t, err)
	for _, to := range []string{`["+15550000001","+15550000002"]`, `"+15550000200"`} {
		s.answers("/answer", reply(`[{"action":"dial","to":`+to+`,"result_url":"/never"}]`))
		channel := s.callIn()
		s.sw.await("execute bridge")
		id := s.callOn(channel)
		_, err = s.manager.Direct(t.Context(), s.customer.ID, id, DirectRequest{Actions: list})
		require.NoError(t, err)
		call := s.end()
		require.Equal(t, []any{StatusCompleted, ReasonCompleted}, []any{call.Status, call.Reason})
		rows, err := s.store.LegsOfCall(t.Context(), s.customer.ID, call.ID)
		require.NoError(t, err)
		for _, row := range rows {
			require.Equal(t, reasonInterrupted, row.Reason)
		}
		log := s.sw.log()
		require.Contains(t, log, "execute speak flite|slt|instead")
	}
	for _, q := range s.requests() {
		require.NotEqual(t, "/never", q.Path)
	}
}

func TestDialHoldsUntilTheVerdict(t *testing.T) {
	t.Parallel()
	s := newScene(t, modelstest.Open(t))
	s.answers("/answer", reply(`[{"action":"dial","to":"+15550000001","machine_detection":{"async":false,"on_machine":"hangup"},"result_url":"/result"}]`))
	s.answers("/result", status(204))
	for _, machine := range []bool{false, true} {
		var bridge command
		s.sw.script("record_start", func(c command) error {
			path, _, _ := strings.Cut(c.args, " ")
			spoken := 500 * time.Millisecond
			if machine {
				spoken = 4 * time.Second
			}
			wav := silentWAV()
			head, pcm := wav[:44], loudWAV()[44:]
			for range int(spoken / time.Second) {
				head = append(head, pcm...)
			}
			head = append(head, pcm[:int(spoken%time.Second*16000/time.Second)]...)
			head = append(head, make([]byte, 32000)...)
			require.NoError(t, os.WriteFile(path, head, 0o600))
			s.sw.event(eventRecordStop, c.channel, "Record-File-Path", path)
			return nil
		})
		s.sw.script("execute bridge", func(c command) error {
			bridge = c
			require.Contains(t, c.args, `group_confirm_file=playback\\ssilence_stream://16000`)
			leg := legOf(c.args)
			s.sw.mu.Lock()
			s.sw.channels[leg] = &fakeChannel{direction: "outbound"}
			s.sw.mu.Unlock()
			s.sw.answer(leg)
			return nil
		})
		s.sw.script("break", func(c command) error {
			require.Equal(t, legOf(bridge.args), c.channel)
			s.sw.answer(bridge.channel)
			s.sw.event(eventBridge, bridge.channel, "Other-Leg-Unique-ID", c.channel)
			s.sw.hangup(c.channel, "NORMAL_CLEARING", "variable_sip_hangup_disposition", "recv_bye")
			s.sw.complete(bridge, "variable_originate_disposition", "SUCCESS")
			return nil
		})
		s.sw.script("kill", func(c command) error {
			s.sw.hangup(c.channel, c.args, "variable_sip_hangup_disposition", s.sw.disposition(c.channel))
			if c.channel != bridge.channel {
				s.sw.complete(bridge, "variable_originate_disposition", "NORMAL_CLEARING")
			}
			return nil
		})
		s.callIn()
		call := s.end()
		rows, err := s.store.LegsOfCall(t.Context(), s.customer.ID, call.ID)
		require.NoError(t, err)
		require.Len(t, rows, 1)
		detected := s.data(call.ID, "call.machine_detected")
		require.Equal(t, rows[0].ID, detected["leg_id"])
		if machine {
			require.Equal(t, []any{"machine", "machine", reasonMachine}, []any{rows[0].AnsweredBy, rows[0].DialStatus, rows[0].Reason})
		} else {
			require.Equal(t, []any{"human", "answered"}, []any{rows[0].AnsweredBy, rows[0].DialStatus})
		}
	}
}

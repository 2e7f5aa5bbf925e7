package simswitch_test

import (
	"context"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tandem/esl/simswitch"
	"tandem/lab"
)

// party is the caller of one call.
type party interface {
	hangUp(t *testing.T)
	types(t *testing.T, digits string)
}

// rig is a switch that the scenes run against: the simulated one or a real FreeSWITCH with a real carrier.
type rig interface {
	login(t *testing.T) *client
	callIn(t *testing.T, to string) party
	media() string
}

const conformanceDialplan = `<include>
<context name="public">
  <extension name="elsewhere">
    <condition field="destination_number" expression="^(\+1555077)(\d\d)$">
      <action application="transfer" data="moved_$2 XML second"/>
    </condition>
  </extension>
  <extension name="nowhere">
    <condition field="destination_number" expression="^\+1555078">
      <action application="transfer" data="moved XML no_such_context"/>
    </condition>
  </extension>
  <extension name="refused">
    <condition field="destination_number" expression="^\+1555079">
      <action application="respond" data="403 Source Not Invited"/>
    </condition>
  </extension>
  <extension name="everything">
    <condition field="destination_number" expression="^.+$">
      <action application="park"/>
    </condition>
  </extension>
</context>
<context name="second">
  <extension name="wrong token">
    <condition field="${acl_token}" expression="^.+$">
      <action application="respond" data="500"/>
    </condition>
  </extension>
  <extension name="park">
    <condition field="destination_number" expression="^moved_"/>
    <condition field="${sip_network_ip}" expression="^127[.]0[.]0[.]1$">
      <action application="park"/>
    </condition>
  </extension>
</context>
</include>
`

func conformanceFiles(proxy string) map[string]string {
	return map[string]string{
		"tandem/dialplan/public.xml": conformanceDialplan,
		"tandem/gateways/carrier.xml": `<include>
  <gateway name="carrier">
    <param name="username" value="` + lab.CarrierUsername + `"/>
    <param name="password" value="` + lab.CarrierPassword + `"/>
    <param name="realm" value="` + lab.CarrierRealm + `"/>
    <param name="proxy" value="` + proxy + `"/>
    <param name="register" value="true"/>
  </gateway>
</include>
`,
	}
}

// simulatedRig is the simulated switch, in real time like the other.
type simulatedRig struct {
	sw  *simswitch.Switch
	dir string
}

func newSimulatedRig(t *testing.T) rig {
	t.Helper()
	dir := layOut(t, conformanceFiles("127.0.0.1:5090"))
	r := &simulatedRig{sw: start(t, simswitch.Config{ConfDir: dir}), dir: filepath.Join(dir, "tandem", "media")}
	awaitGateway(t, r.login(t), "carrier", "REGED")
	return r
}

func (r *simulatedRig) media() string { return r.dir }

func (r *simulatedRig) login(t *testing.T) *client { return login(t, r.sw.Addr(), password) }

func (r *simulatedRig) callIn(t *testing.T, to string) party {
	t.Helper()
	uuid, err := r.sw.CallIn(simswitch.IncomingCall{From: "+15559876", To: to})
	require.NoError(t, err)
	return simulatedParty{r.sw.Caller(uuid)}
}

type simulatedParty struct{ *simswitch.Caller }

func (p simulatedParty) hangUp(t *testing.T) { require.NoError(t, p.Hangup()) }

func (p simulatedParty) types(t *testing.T, digits string) { require.NoError(t, p.SendDTMF(digits)) }

// realRig is a FreeSWITCH with freeswitch-conf, and a second one as the carrier.
type realRig struct {
	node    *lab.Node
	carrier *lab.Carrier
	dir     string
}

func newRealRig(t *testing.T) rig {
	t.Helper()
	r := &realRig{node: lab.StartNode(t, lab.Options{}), carrier: lab.StartCarrier(t)}
	for name, content := range conformanceFiles(r.carrier.SIPAddr) {
		write(t, r.node.ConfDir, name, content)
	}
	r.dir = filepath.Join(r.node.ConfDir, "tandem", "media")
	c := r.login(t)
	require.Equal(t, "+OK [Success]\n", c.api("reloadxml"))
	require.Contains(t, c.api("sofia profile external rescan"), "+OK scan complete")
	awaitGateway(t, c, "carrier", "REGED")
	return r
}

func (r *realRig) media() string { return r.dir }

func (r *realRig) login(t *testing.T) *client { return login(t, r.node.ESLAddr, r.node.Password) }

func (r *realRig) callIn(t *testing.T, to string) party {
	t.Helper()
	leg, err := r.carrier.Call(t.Context(), lab.Caller{From: "+15559876", To: to, NodeSIP: r.node.SIPAddr, App: lab.AppPark})
	require.NoError(t, err)
	return realParty{leg}
}

type realParty struct{ *lab.Leg }

func (p realParty) hangUp(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	require.NoError(t, p.HangUp(ctx))
}

func (p realParty) types(t *testing.T, digits string) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	require.NoError(t, p.Answered(ctx))
	require.NoError(t, p.Types(ctx, digits))
}

// take is one run of a scene on one rig, seen from one of its calls.
type take struct {
	t      *testing.T
	rig    rig
	cl     *client
	to     string
	a      string
	caller party
	*record
}

// record is what a take keeps for its transcript, whichever call it comes from.
type record struct {
	legs  []string
	notes []string
	steps int
}

const conformanceEvents = "event json CHANNEL_CREATE CHANNEL_STATE CHANNEL_PROGRESS CHANNEL_PROGRESS_MEDIA CHANNEL_ORIGINATE CHANNEL_OUTGOING " +
	"CHANNEL_ANSWER CHANNEL_PARK CHANNEL_UNPARK CHANNEL_EXECUTE CHANNEL_EXECUTE_COMPLETE CHANNEL_BRIDGE CHANNEL_UNBRIDGE CHANNEL_HANGUP " +
	"CHANNEL_HANGUP_COMPLETE CHANNEL_DESTROY DTMF RECORD_START RECORD_STOP PLAYBACK_START PLAYBACK_STOP BACKGROUND_JOB " +
	"CUSTOM conference::maintenance avmd::start avmd::stop avmd::beep"

func newTake(t *testing.T, r rig, to string) *take {
	t.Helper()
	k := &take{t: t, rig: r, to: to, cl: r.login(t), record: &record{}}
	require.Equal(t, "+OK event listener enabled json", k.cl.command(conformanceEvents))
	return k
}

// call lets a call come in and waits until it is parked.
func (k *take) call() {
	k.t.Helper()
	k.ring()
	k.await("CHANNEL_PARK", named("CHANNEL_PARK", k.a))
}

// ring lets a call come in.
func (k *take) ring() {
	k.t.Helper()
	k.caller = k.rig.callIn(k.t, k.to)
	e := k.cl.await("CHANNEL_CREATE", func(e map[string]string) bool {
		return e["Event-Name"] == "CHANNEL_CREATE" && e["Caller-Destination-Number"] == k.to
	})
	k.a = e["Unique-ID"]
	k.legs = append(k.legs, k.a)
}

// another lets one more call come in and waits until it is parked. It is to the scene's number and suffix.
func (k *take) another(suffix string) *take {
	k.t.Helper()
	other := &take{t: k.t, rig: k.rig, to: k.to + suffix, cl: k.cl, record: k.record}
	other.call()
	return other
}

// parkedAgain waits until the call has been parked so many times.
func (k *take) parkedAgain(times int) {
	k.t.Helper()
	k.await("CHANNEL_PARK again", func(map[string]string) bool {
		seen := 0
		for _, e := range k.cl.eventsLocked(true) {
			if e["Event-Name"] == "CHANNEL_PARK" && e["Unique-ID"] == k.a {
				seen++
			}
		}
		return seen >= times
	})
}

// action waits for what a conference says of a channel, or of itself.
func (k *take) action(uuid, action string) map[string]string {
	k.t.Helper()
	return k.await(action, func(e map[string]string) bool {
		return e["Event-Subclass"] == "conference::maintenance" && e["Action"] == action && (uuid == "" || e["Unique-ID"] == uuid)
	})
}

// room is a conference of the scene's own. The sign would begin a PIN.
func (k *take) room() string { return "room" + strings.TrimPrefix(k.to, "+") }

func (k *take) joined(uuid string) { k.t.Helper(); k.action(uuid, "add-member") }

func (k *take) left(uuid string) { k.t.Helper(); k.action(uuid, "del-member") }

// memberID is the number that a conference gave to a channel.
func (k *take) memberID(uuid string) string {
	k.t.Helper()
	return k.action(uuid, "add-member")["Member-ID"]
}

func (k *take) await(what string, m match) map[string]string {
	k.t.Helper()
	return k.cl.await(what, m)
}

// start sends an application without waiting for its end, and returns its id.
func (k *take) start(app, arg string) string {
	k.t.Helper()
	k.steps++
	id := fmt.Sprintf("tandem-%s-%d", k.to, k.steps)
	k.cl.execute(k.a, id, app, arg)
	return id
}

// run sends an application and waits for its end.
func (k *take) run(app, arg string) map[string]string {
	k.t.Helper()
	id := k.start(app, arg)
	return k.await("the end of "+app, completed(id))
}

// gather asks for digits, lets the caller type while the prompt plays, and waits for the end.
func (k *take) gather(args, digits string) {
	k.t.Helper()
	id := k.start("play_and_get_digits", args)
	k.await("the prompt", named("PLAYBACK_START", k.a))
	k.caller.types(k.t, digits)
	k.await("the end of the gather", completed(id))
}

func (k *take) running(id string) {
	k.t.Helper()
	k.await("the start of "+id, func(e map[string]string) bool {
		return e["Event-Name"] == "CHANNEL_EXECUTE" && e["Application-UUID"] == id
	})
}

// api notes an API command's answer.
func (k *take) api(line string) string {
	k.t.Helper()
	reply := k.cl.api(line)
	k.notes = append(k.notes, "api "+k.translate(line)+" -> "+strings.TrimSpace(k.translate(reply)))
	return reply
}

func (k *take) kill() {
	k.t.Helper()
	k.api("uuid_kill " + k.a + " NORMAL_CLEARING")
	k.ended(k.a)
}

func (k *take) ended(uuid string) {
	k.t.Helper()
	k.await("the end", func(e map[string]string) bool {
		return e["Event-Name"] == "CHANNEL_STATE" && e["Channel-State"] == "CS_DESTROY" && e["Unique-ID"] == uuid
	})
}

// leg waits for a leg that was dialled to a number, and keeps it for the transcript.
func (k *take) leg(number string) string {
	k.t.Helper()
	e := k.await("a leg to "+number, func(e map[string]string) bool {
		return e["Event-Name"] == "CHANNEL_OUTGOING" && e["Caller-Destination-Number"] == number &&
			e["Other-Leg-Unique-ID"] == k.a
	})
	k.legs = append(k.legs, e["Unique-ID"])
	return e["Unique-ID"]
}

// originate places a call through the carrier and notes the job's result. The caller waits for what it needs.
func (k *take) originate(number, vars string) {
	k.t.Helper()
	k.a = fmt.Sprintf("00000000-0000-4000-8000-%012d", time.Now().UnixNano()%1e12)
	job := k.a[:8] + "-job-" + number
	k.legs = append(k.legs, k.a)
	line := fmt.Sprintf("bgapi originate {origination_uuid=%s,origination_caller_id_number=+15550100,tandem_call_id=call_demo%s}sofia/gateway/carrier/%s &park()\nJob-UUID: %s\n\n",
		k.a, vars, number, job)
	k.cl.send(line)
	require.Equal(k.t, job, k.cl.reply().head["Job-UUID"])
}

func (k *take) job() {
	k.t.Helper()
	e := k.await("the job's end", func(e map[string]string) bool {
		return e["Event-Name"] == "BACKGROUND_JOB" && strings.Contains(e["Job-Command-Arg"], k.a)
	})
	k.notes = append(k.notes, "job "+e["Job-Command"]+" -> "+strings.TrimSpace(k.translate(e["_body"])))
}

func (k *take) translate(s string) string {
	for i, uuid := range k.legs {
		s = strings.ReplaceAll(s, uuid, fmt.Sprintf("<leg %d>", i+1))
	}
	s = memberNumbers.ReplaceAllString(s, "$1 <member>")
	return strings.ReplaceAll(s, k.rig.media(), "<media>")
}

// transcript is what a controller sees of a scene: the events of each leg in their order with what it reads from them, and
// the answers to its commands.
func (k *take) transcript(loose []string) string {
	var out strings.Builder
	for i, uuid := range k.legs {
		fmt.Fprintf(&out, "== leg %d\n", i+1)
		var hangups []string
		unbridged := false
		for _, e := range k.cl.of(uuid) {
			name := e["Event-Name"]
			// A leg on its way out is told its fate by another thread than the one that moves it through its states: which
			// comes first is chance.
			chance := e["Call-Direction"] == "outbound" && e["Answer-State"] != "answered"
			if name == "CHANNEL_STATE" && chance {
				continue
			}
			// Channels that uuid_bridge joins pass through this state; how often they are seen in it is chance.
			if name == "CHANNEL_STATE" && e["Channel-State"] == "CS_CONSUME_MEDIA" {
				continue
			}
			// avmd tells everything twice, the second time through the channel's queue: in its own time.
			if strings.HasPrefix(e["Event-Subclass"], "avmd::") && e["Channel-State"] != "" {
				continue
			}
			if e["Event-Subclass"] == "conference::maintenance" && !contains(conferenceActions, e["Action"]) {
				continue
			}
			// The thread that hangs a channel up sets its state first and tells of it afterwards (switch_channel.c,
			// switch_channel_perform_hangup); the channel's own thread may be ahead by then. The place of this event, and what it
			// says of the channel besides the cause, is chance.
			if name == "CHANNEL_HANGUP" {
				hangups = append(hangups, e["Hangup-Cause"])
				continue
			}
			if name == "CHANNEL_STATE" {
				fmt.Fprintf(&out, "%s %s\n", name, e["Channel-State"])
				continue
			}
			// The called side's thread tells the caller how it ended, while the caller's thread raises these two: which comes first is
			// chance. What follows them says it.
			unbridged = name == "CHANNEL_UNBRIDGE" || unbridged && e["Application"] == "bridge"
			fmt.Fprintf(&out, "%s\n", name)
			for _, h := range conformanceHeaders {
				if unbridged && strings.HasPrefix(h, "variable_last_bridge_") && h != "variable_last_bridge_to" {
					continue
				}
				if value, ok := e[h]; ok && !contains(loose, h) && (!chance || h != "Channel-State") {
					fmt.Fprintf(&out, "    %s: %s\n", h, scrubTo(k.translate(strings.TrimSpace(value)), k.to))
				}
			}
		}
		fmt.Fprintf(&out, "CHANNEL_HANGUP, in its own time: %s\n", strings.Join(hangups, ", "))
	}
	out.WriteString("== replies\n")
	for _, note := range k.notes {
		out.WriteString(scrubTo(note, k.to) + "\n")
	}
	return out.String()
}

// memberNumbers finds the number of a conference's member in a command and its answer.
var memberNumbers = regexp.MustCompile(`\b(kick|kicked|hup|mute|muted|unmute|unmuted) [0-9]{1,4}\b`)

func contains(list []string, s string) bool {
	for _, item := range list {
		if item == s {
			return true
		}
	}
	return false
}

func scrubTo(s, to string) string {
	return strings.ReplaceAll(strings.ReplaceAll(scrub(s), to, "<to>"), "room"+strings.TrimPrefix(to, "+"), "<room>")
}

// conformanceHeaders are the headers that the controller reads and that do not tell a time, an address or a chance.
var conformanceHeaders = []string{
	"Channel-State", "Channel-Call-State", "Call-Direction", "Answer-State", "Hangup-Cause", "Application", "Application-Data",
	"Application-Response", "Caller-Caller-ID-Number", "Caller-Destination-Number", "Caller-Context", "Other-Type",
	"Other-Leg-Destination-Number", "Other-Leg-Unique-ID", "Playback-File-Path", "Playback-File-Type", "Playback-Status", "DTMF-Digit",
	"Record-File-Path", "variable_sip_network_ip", "variable_sip_term_status", "variable_sip_invite_failure_status",
	"variable_sip_invite_failure_phrase", "variable_proto_specific_hangup_cause", "variable_hangup_cause", "variable_hangup_cause_q850",
	"variable_sip_hangup_disposition", "variable_originate_disposition", "variable_DIALSTATUS", "variable_last_bridge_hangup_cause",
	"variable_last_bridge_proto_specific_hangup_cause", "variable_bridge_hangup_cause", "variable_originate_failed_cause", "variable_bridge_uuid",
	"variable_gathered", "variable_gathered_invalid", "variable_read_result", "variable_read_terminator_used",
	"variable_playback_terminator_used", "variable_current_application_response", "variable_digits_dialed", "variable_tandem_call_id",
	"variable_silence_hits_exhausted", "variable_record_completion_cause", "variable_endpoint_disposition",
	"Event-Subclass", "Action", "Conference-Name", "Conference-Size", "Conference-Profile-Name", "Member-Type", "Speak", "Hear",
	"Bridge-A-Unique-ID", "Bridge-B-Unique-ID", "variable_originate_causes", "variable_last_bridge_to",
	"variable_last_bridge_role", "variable_conference_name", "variable_bridge_to", "variable_wait_for_silence_timeout", "variable_wait_for_silence_listenhits",
	"variable_wait_for_silence_silence_hits", "Beep-Status", "Call-command", "variable_sip_refer_reply", "variable_sip_refer_status_code",
	"variable_detect_speech_result", "variable_record_session",
}

// conferenceActions are the actions of a conference that a controller hears of; the others tell who talks.
var conferenceActions = []string{"add-member", "del-member", "kick-member", "hup-member", "mute-member", "unmute-member"}

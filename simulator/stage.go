package simulator

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"tandem/actions"
	"tandem/calls"
	"tandem/esl"
)

// stage stands in for the switch: it notes every command, plays each application in no time and lets the scripted caller do
// what the script says. Its events are those of a FreeSWITCH as far as the calls package reads them.
type stage struct {
	path    *path
	clock   *clock
	handler esl.Handler

	mu       sync.Mutex
	cast     *cast
	channels map[string]*channel
	sequence int
	current  actions.Action // the action that runs
	stay     *stay          // in the conference or the queue of the last action that was in one
	pending  *pending       // what goes on until a command ends it
	// takeOut takes the call out of a queue.
	takeOut func(queue string)
}

// channel is one leg.
type channel struct {
	direction string
	headers   map[string]string
	variables map[string]string
	answered  time.Time
	dead      bool
	// scheduled is when the switch itself ends the leg.
	scheduled []scheduled
}

// scheduled is a hangup to come, under the group by which it is taken back.
type scheduled struct {
	group string
	at    time.Time
	cause string
}

var _ calls.Switch = (*stage)(nil)

func newStage(p *path, c *clock, script *Script) *stage {
	return &stage{path: p, clock: c, cast: newCast(script, p), channels: map[string]*channel{}}
}

// act notes the action that begins: inputs are for actions.
func (g *stage) act(action actions.Action) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.current = action
}

// sent notes a command and says whether its channel lives.
func (g *stage) sent(channelID, format string, args ...any) error {
	g.path.add(Step{Kind: StepCommand, Command: fmt.Sprintf(format, args...)})
	g.mu.Lock()
	defer g.mu.Unlock()
	if ch := g.channels[channelID]; ch == nil || ch.dead {
		return &esl.CommandError{Command: "simulated", Reply: "-ERR No such channel!"}
	}
	return nil
}

// event raises an event of a channel. pairs are header, value, …
func (g *stage) event(name, channelID string, pairs ...string) {
	g.mu.Lock()
	g.sequence++
	headers := map[string]string{
		"Event-Name": name, "Unique-ID": channelID, "Event-Sequence": strconv.Itoa(g.sequence),
		"Event-Date-Timestamp": strconv.FormatInt(g.clock.Now().UnixMicro(), 10),
	}
	if ch := g.channels[channelID]; ch != nil {
		headers["Call-Direction"] = ch.direction
		for name, value := range ch.headers {
			headers[name] = value
		}
		for name, value := range ch.variables {
			headers["variable_"+name] = value
		}
	}
	g.mu.Unlock()
	for i := 0; i+1 < len(pairs); i += 2 {
		headers[pairs[i]] = pairs[i+1]
	}
	doc, err := json.Marshal(headers)
	if err != nil {
		return // strings always encode
	}
	ev, err := esl.ParseEvent(string(doc))
	if err != nil {
		return // what encoding/json wrote is an event
	}
	g.handler.HandleEvent(ev)
}

// arrive parks an inbound leg.
func (g *stage) arrive(from, to, source string, sipHeaders map[string]string) {
	id := uuid.NewString()
	headers := map[string]string{
		"Caller-Caller-ID-Number": from, "Caller-Destination-Number": to, "variable_sip_network_ip": source,
	}
	for name, value := range sipHeaders {
		headers["variable_sip_h_"+name] = value
	}
	g.add(id, "inbound", headers)
	g.event("CHANNEL_PARK", id)
}

func (g *stage) add(id, direction string, headers map[string]string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.channels[id] = &channel{direction: direction, headers: headers, variables: map[string]string{}}
}

func (g *stage) set(channelID, name, value string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if ch := g.channels[channelID]; ch != nil {
		ch.variables[name] = value
	}
}

// answer answers a leg, unless it is.
func (g *stage) answer(channelID string) {
	g.mu.Lock()
	ch := g.channels[channelID]
	first := ch != nil && ch.answered.IsZero()
	if first {
		ch.answered = g.clock.Now()
	}
	g.mu.Unlock()
	if first {
		g.event("CHANNEL_ANSWER", channelID)
	}
}

// Dispositions of a hangup, as mod_sofia words them (mod_sofia.c, sofia_on_hangup).
const (
	theyHungUp  = "recv_bye"
	weHungUp    = "send_bye"
	weCanceled  = "send_cancel"
	weRefused   = "send_refuse"
	theyRefused = "recv_refuse"
)

// hangUp ends a leg.
func (g *stage) hangUp(channelID, cause, disposition string, pairs ...string) {
	g.mu.Lock()
	ch := g.channels[channelID]
	if ch == nil || ch.dead {
		g.mu.Unlock()
		return
	}
	ch.dead = true
	billed := 0
	if !ch.answered.IsZero() {
		billed = int((g.clock.Now().Sub(ch.answered) + time.Second - 1) / time.Second)
	}
	g.mu.Unlock()
	g.event("CHANNEL_HANGUP_COMPLETE", channelID, append([]string{
		"Hangup-Cause", cause, "variable_hangup_cause", cause, "variable_sip_hangup_disposition", disposition,
		"variable_billsec", strconv.Itoa(billed),
	}, pairs...)...)
}

// disposition is how our own end of a leg is worded.
func (g *stage) disposition(channelID string) string {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch ch := g.channels[channelID]; {
	case ch == nil:
		return ""
	case !ch.answered.IsZero():
		return weHungUp
	case ch.direction == "inbound":
		return weRefused
	default:
		return weCanceled
	}
}

// Up implements calls.Switch.
func (g *stage) Up() bool { return true }

// Execute implements calls.Switch.
func (g *stage) Execute(_ context.Context, channelID, eventUUID string, app esl.App) error {
	if err := g.sent(channelID, "sendmsg execute %s", strings.TrimSpace(app.Name()+" "+app.Args())); err != nil {
		return err
	}
	g.perform(channelID, eventUUID, app)
	return nil
}

// Originate implements calls.Switch: the party answers.
func (g *stage) Originate(ctx context.Context, o esl.Originate) (*esl.Job, error) {
	if err := o.Begin(ctx); err != nil {
		return nil, err
	}
	g.add(o.ChannelID, "outbound", nil)
	_ = g.sent(o.ChannelID, "bgapi originate sofia/gateway/%s/%s (timeout %s, caller id %s) &park()", o.Gateway, o.Number, o.Timeout, o.CallerIDNumber)
	g.clock.pass(time.Second)
	g.event("CHANNEL_PROGRESS", o.ChannelID)
	g.clock.pass(4 * time.Second)
	g.answer(o.ChannelID)
	g.event("CHANNEL_PARK", o.ChannelID)
	return &esl.Job{ID: uuid.NewString()}, nil
}

// Kill implements calls.Switch.
func (g *stage) Kill(_ context.Context, channelID, cause string) error {
	if err := g.sent(channelID, "api uuid_kill %s", cause); err != nil {
		return err
	}
	g.hangUp(channelID, cause, g.disposition(channelID))
	if p := g.judged(channelID); p != nil {
		g.complete("variable_originate_disposition", cause, "variable_last_bridge_hangup_cause", cause)
	}
	return nil
}

// Break implements calls.Switch. The stage plays everything in no time: all that can be broken is the silence in which a party waits for
// its verdict.
func (g *stage) Break(_ context.Context, channelID string) error {
	if err := g.sent(channelID, "api uuid_break all"); err != nil {
		return err
	}
	if g.judged(channelID) != nil {
		g.talkOn(true)
	}
	return nil
}

// judged is the bridge whose party is on a channel and waits for its verdict, nil when there is none.
func (g *stage) judged(channelID string) *pending {
	g.mu.Lock()
	defer g.mu.Unlock()
	if p := g.pending; p != nil && p.party != nil && p.party.channel == channelID {
		return p
	}
	return nil
}

// Park implements calls.Switch.
func (g *stage) Park(_ context.Context, channelID string) error {
	err := g.sent(channelID, "api uuid_transfer park inline")
	if err == nil {
		g.complete()
		g.event("CHANNEL_PARK", channelID)
	}
	return err
}

// HasModule implements calls.Switch.
func (g *stage) HasModule(context.Context, string) (bool, error) { return true, nil }

// SetVariable implements calls.Switch.
func (g *stage) SetVariable(_ context.Context, channelID, name, value string) error {
	if err := g.sent(channelID, "api uuid_setvar %s %s", name, value); err != nil {
		return err
	}
	g.set(channelID, name, value)
	return nil
}

// SetRingback implements calls.Switch.
func (g *stage) SetRingback(_ context.Context, channelID string, ringback esl.Ringback) error {
	return g.sent(channelID, "api uuid_setvar ringback %s", ringback)
}

// SchedHangup implements calls.Switch.
func (g *stage) SchedHangup(_ context.Context, channelID string, after time.Duration, cause string) error {
	if err := g.sent(channelID, "api sched_hangup +%d %s", int(after/time.Second), cause); err != nil {
		return err
	}
	g.schedule(channelID, scheduled{channelID, g.clock.Now().Add(after), cause})
	return nil
}

// ScheduleKill implements calls.Switch.
func (g *stage) ScheduleKill(_ context.Context, channelID, group string, after time.Duration, cause string) error {
	if err := g.sent(channelID, "api sched_api +%d uuid_kill %s", int(after/time.Second), cause); err != nil {
		return err
	}
	g.schedule(channelID, scheduled{group, g.clock.Now().Add(after), cause})
	return nil
}

func (g *stage) schedule(channelID string, hangup scheduled) {
	g.mu.Lock()
	defer g.mu.Unlock()
	ch := g.channels[channelID]
	ch.scheduled = append(ch.scheduled, hangup)
}

// Unschedule implements calls.Switch.
func (g *stage) Unschedule(_ context.Context, group string) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, ch := range g.channels {
		ch.scheduled = slices.DeleteFunc(ch.scheduled, func(hangup scheduled) bool { return hangup.group == group })
	}
	return nil
}

// Overlay implements calls.Switch.
func (g *stage) Overlay(_ context.Context, channelID, file string) error {
	return g.sent(channelID, "api uuid_displace start %s", baseName(file))
}

// capped ends a leg whose time is up, and says whether it was.
func (g *stage) capped(channelID string) bool {
	g.mu.Lock()
	var up *scheduled
	if ch := g.channels[channelID]; ch != nil {
		for i := range ch.scheduled {
			if hangup := &ch.scheduled[i]; !hangup.at.After(g.clock.Now()) && (up == nil || hangup.at.Before(up.at)) {
				up = hangup
			}
		}
	}
	g.mu.Unlock()
	if up != nil {
		g.hangUp(channelID, up.cause, weHungUp)
	}
	return up != nil
}

// RecordStartWith implements calls.Switch. Background recordings of a simulation are silent files; a recording that silence ends is
// that of a greeting.
func (g *stage) RecordStartWith(_ context.Context, channelID, file string, o esl.RecordOptions) error {
	if err := g.sent(channelID, "api uuid_record start %s", baseName(file)); err != nil {
		return err
	}
	if o.FinalSilence > 0 {
		return g.greet(channelID, file, o)
	}
	return writeSilence(file, time.Second)
}

// RecordStop implements calls.Switch.
func (g *stage) RecordStop(_ context.Context, channelID, file string) error {
	return g.sent(channelID, "api uuid_record stop %s", baseName(file))
}

// RecordPause implements calls.Switch.
func (g *stage) RecordPause(_ context.Context, channelID, file string) error {
	return g.sent(channelID, "api uuid_record pause %s", baseName(file))
}

// RecordResume implements calls.Switch.
func (g *stage) RecordResume(_ context.Context, channelID, file string) error {
	return g.sent(channelID, "api uuid_record resume %s", baseName(file))
}

// RecordMask implements calls.Switch.
func (g *stage) RecordMask(_ context.Context, channelID, file string) error {
	return g.sent(channelID, "api uuid_record mask %s", baseName(file))
}

// RecordUnmask implements calls.Switch.
func (g *stage) RecordUnmask(_ context.Context, channelID, file string) error {
	return g.sent(channelID, "api uuid_record unmask %s", baseName(file))
}

// StreamStart implements calls.Switch.
func (g *stage) StreamStart(_ context.Context, channelID string, stream esl.AudioStream) error {
	return g.sent(channelID, "api uuid_audio_stream start %s %s 8k", stream.URL, stream.Mix)
}

// StreamStop implements calls.Switch.
func (g *stage) StreamStop(_ context.Context, channelID string) error {
	return g.sent(channelID, "api uuid_audio_stream stop")
}

// Exists implements calls.Switch.
func (g *stage) Exists(_ context.Context, channelID string) (bool, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	ch := g.channels[channelID]
	return ch != nil && !ch.dead, nil
}

// Channels implements calls.Switch.
func (g *stage) Channels(context.Context) ([]esl.Channel, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	var list []esl.Channel
	for id, ch := range g.channels {
		if !ch.dead {
			list = append(list, esl.Channel{UUID: id})
		}
	}
	return list, nil
}

// Dump implements calls.Switch.
func (g *stage) Dump(_ context.Context, channelID string) (*esl.Event, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	ch := g.channels[channelID]
	if ch == nil || ch.dead {
		return nil, esl.ErrNoSuchChannel
	}
	headers := map[string]string{"Event-Name": "CHANNEL_DATA", "Unique-ID": channelID, "variable_sip_from_host": source, "variable_sip_to_host": source}
	for name, value := range ch.variables {
		headers["variable_"+name] = value
	}
	doc, err := json.Marshal(headers)
	if err != nil {
		return nil, fmt.Errorf("write the channel: %w", err)
	}
	return esl.ParseEvent(string(doc))
}

// baseName is a path without the folder, which is a temporary one.
func baseName(file string) string { return file[strings.LastIndexByte(file, '/')+1:] }

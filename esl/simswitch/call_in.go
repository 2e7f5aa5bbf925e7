package simswitch

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"
)

// IncomingCall is a call that the simulated carrier sends to the switch, and what the caller does in it. All times are the
// switch's (see Config.Speed).
type IncomingCall struct {
	// From and To are the calling and the called number as the INVITE has them.
	From, To string
	// FromName is the caller's display name. Default: From.
	FromName string
	// SourceIP is the address the INVITE comes from. Default 127.0.0.1.
	SourceIP string
	// Digits are pressed one after the other, the first DigitsAfter the answer and then one every DigitsEvery.
	Digits string
	// DigitsAfter is the time from the answer to the first digit. 0: the caller waits to be asked, and types half a second after
	// the first play_and_get_digits has begun. DigitsEvery defaults to 300 ms.
	DigitsAfter, DigitsEvery time.Duration
	// HangupAfter is the time from the answer until the caller hangs up. 0: never.
	HangupAfter time.Duration
	// CancelAfter is the time from the INVITE until the caller gives up on a call that is not answered. 0: never.
	CancelAfter time.Duration
	// TalkFor is how long after the answer the caller keeps talking; after that it is silent, which ends a recording
	// that has a silence limit.
	TalkFor time.Duration
	// Says is what the caller says once answered, as pairs of seconds: of silence, then of speech. It is what wait_for_silence hears.
	Says []float64
	// Speech is what a recognizer understands, one text for each time that it listens (play_and_detect_speech), half a second after it
	// has begun to. A text that begins with < or { is the recognizer's result as it is.
	Speech []string
	// SIPHeaders are X- headers of the INVITE; they become variables sip_h_NAME.
	SIPHeaders map[string]string
	// NoSound has not one packet of sound come from the caller: sound goes one way only. It goes without TalkFor, Says and Speech.
	NoSound bool
	// MediaTimeout is after how long without a packet the switch ends a call with NoSound, counted from the answer, as one does whose
	// profile or channel has a media timeout. 0: never.
	MediaTimeout time.Duration
}

// incomingJSON is IncomingCall as `sim_call` takes it: times in seconds.
type incomingJSON struct {
	From        string            `json:"from"`
	To          string            `json:"to"`
	FromName    string            `json:"from_name"`
	SourceIP    string            `json:"source_ip"`
	Digits      string            `json:"digits"`
	DigitsAfter float64           `json:"digits_after"`
	DigitsEvery float64           `json:"digits_every"`
	HangupAfter float64           `json:"hangup_after"`
	CancelAfter float64           `json:"cancel_after"`
	TalkFor     float64           `json:"talk_for"`
	Says        []float64         `json:"says"`
	Speech      []string          `json:"speech"`
	SIPHeaders  map[string]string `json:"sip_headers"`

	NoSound      bool    `json:"no_sound"`
	MediaTimeout float64 `json:"media_timeout"`
}

// Result is how an incoming call ended, or stands, as its caller and a CDR would tell.
type Result struct {
	// Channel is the UUID of the call's channel.
	Channel string `json:"channel"`
	// State is the channel state, CS_DESTROY once the call has ended.
	State string `json:"state"`
	// Answered and Ended say what has happened.
	Answered bool `json:"answered"`
	Ended    bool `json:"ended"`
	// Cause is the hang-up cause and SIPStatus the final status the caller's INVITE got: 200 for an answered call, 487 for
	// one the caller gave up.
	Cause     string `json:"cause"`
	SIPStatus int    `json:"sip_status"`
	// HungUpBy is "caller" or "switch".
	HungUpBy string `json:"hung_up_by"`
	// BillSeconds is the time from answer to end in the switch's time.
	BillSeconds float64 `json:"bill_seconds"`
	// Heard are the digits that the switch sent to the caller.
	Heard string `json:"heard"`
	// Application is what the channel runs or ran last.
	Application string `json:"application"`
}

// ErrNoChannel says that no channel has that UUID, nor had lately.
var ErrNoChannel = errors.New("no such channel")

// CallIn makes a call arrive. It returns the UUID of its channel as soon as the INVITE is taken in; the dialplan that
// Tandem wrote decides what becomes of it. Caller follows the call.
func (s *Switch) CallIn(call IncomingCall) (string, error) {
	call.SourceIP = cmp.Or(call.SourceIP, "127.0.0.1")
	call.FromName = cmp.Or(call.FromName, call.From)
	call.DigitsEvery = cmp.Or(call.DigitsEvery, 300*time.Millisecond)
	addr, err := netip.ParseAddr(call.SourceIP)
	if err != nil {
		return "", fmt.Errorf("incoming call: source address: %w", err)
	}
	for name, value := range map[string]string{"from": call.From, "to": call.To} {
		if value == "" || strings.ContainsFunc(value, func(r rune) bool { return r <= ' ' || r == 0x7f }) {
			return "", fmt.Errorf("incoming call: %s %q is no SIP user", name, value)
		}
	}
	switch silent := len(call.Says) == 0 && len(call.Speech) == 0 && call.TalkFor == 0; {
	case call.NoSound && !silent:
		return "", errors.New("incoming call: a caller with no_sound cannot have says, speech or talk_for")
	case call.MediaTimeout < 0, call.MediaTimeout > 0 && !call.NoSound:
		return "", errors.New("incoming call: media_timeout is a time for a caller with no_sound")
	}
	if strings.Trim(call.Digits, "0123456789*#ABCD") != "" {
		return "", fmt.Errorf("incoming call: digits %q", call.Digits)
	}
	s.mu.RLock()
	room := s.roomLocked(false)
	s.mu.RUnlock()
	if !room {
		return "", errNoRoomForCaller
	}
	c := newChannel(s, newUUID(), false)
	c.incoming = &call
	c.sessionID = s.sessions.Add(1)
	c.name = "sofia/" + profileName + "/" + call.From + "@" + call.SourceIP
	now := s.clock.micros()
	c.times = times{created: now, profileCreated: now}
	c.profile = profile{username: call.From, dialplan: "XML", cidName: call.FromName, cidNumber: call.From, origName: call.FromName,
		origNumber: call.From, networkAddr: call.SourceIP, ani: call.From, destination: call.To, source: "mod_sofia", context: "public"}
	c.inboundVars(&call)
	lists := s.plan.Load()
	owner := lists.owner(addr)
	if owner != nil {
		c.append("acl_token", owner.token)
		for _, v := range owner.vars {
			c.set(v.name, v.value)
		}
	}
	refused := owner == nil && lists.refuses(addr)
	if refused {
		c.profile = profile{} // which is made after the lists were asked, as most variables are
		c.vars = slices.DeleteFunc(c.vars, func(h header) bool {
			return !slices.Contains(refusedVars, strings.TrimPrefix(h.name, sessionHeaderPrefix))
		})
	}
	c.script = newScript(c)
	c.says = call.utterances()
	if err := s.register(c); errors.Is(err, errNoRoom) {
		return "", errNoRoomForCaller
	} else if err != nil {
		return "", fmt.Errorf("incoming call: %w", err)
	}
	c.script.start()
	go func() {
		defer s.wg.Done()
		if refused {
			c.runRefused()
			return
		}
		c.runIncoming()
	}()
	return c.uuid, nil
}

// errNoRoomForCaller is what sofia.c, sofia_event_callback answers.
var errNoRoomForCaller = errors.New("incoming call: 503 Maximum Calls In Progress")

// runIncoming is the session thread of a call that came in.
func (c *channel) runIncoming() {
	defer c.finish()
	if !c.enter(stateNew) {
		return
	}
	c.mu.Lock()
	c.codec = "PCMU"
	c.mu.Unlock()
	if !c.enter(stateInit) {
		return
	}
	c.mu.Lock()
	c.state = stateRouting
	c.fireLocked(evCreate, fromRun)
	c.callStateLocked(callRinging)
	c.mu.Unlock()
	c.live(c.route)
}

// refusedVars are the variables that a channel has when the access lists are asked.
var refusedVars = []string{"direction", "uuid", "call_uuid", "session_id", "sip_from_user", "sip_from_uri", "sip_from_host", "channel_name", "sip_call_id", "ep_codec_string"}

// runRefused is the session thread of a call that the profile's access lists refuse: its channel never leaves CS_NEW, and leaves no CDR
// (sofia.c, sofia_event_callback, nua_i_terminated with status 403).
func (c *channel) runRefused() {
	c.mu.Lock()
	c.respondCode, c.unrecorded = 403, true
	c.hangupLocked(causeOfSIP(c.respondCode))
	c.mu.Unlock()
	c.finish()
}

// simCall is the API command `sim_call {json}`, which a real switch does not have.
func (s *Switch) simCall(arg string) string {
	var in incomingJSON
	dec := json.NewDecoder(strings.NewReader(arg))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&in); err != nil {
		return "-ERR sim_call: " + err.Error() + "\n"
	}
	seconds := func(f float64) time.Duration { return time.Duration(f * float64(time.Second)) }
	uuid, err := s.CallIn(IncomingCall{From: in.From, To: in.To, FromName: in.FromName, SourceIP: in.SourceIP, Digits: in.Digits,
		DigitsAfter: seconds(in.DigitsAfter), DigitsEvery: seconds(in.DigitsEvery), HangupAfter: seconds(in.HangupAfter),
		CancelAfter: seconds(in.CancelAfter), TalkFor: seconds(in.TalkFor), Says: in.Says, Speech: in.Speech, SIPHeaders: in.SIPHeaders,
		NoSound: in.NoSound, MediaTimeout: seconds(in.MediaTimeout)})
	if err != nil {
		return "-ERR " + err.Error() + "\n"
	}
	return "+OK " + uuid + "\n"
}

// simResult is the API command `sim_result UUID`: the Result of an incoming call as JSON.
func (s *Switch) simResult(uuid string) string {
	result, err := s.Caller(strings.TrimSpace(uuid)).Result()
	if err != nil {
		return "-ERR " + err.Error() + "\n"
	}
	b, err := json.Marshal(result)
	if err != nil {
		return "-ERR " + err.Error() + "\n"
	}
	return string(b) + "\n"
}

func (c *channel) resultLocked() Result {
	r := Result{Channel: c.uuid, State: stateNames[c.running], Answered: c.answered, Ended: c.running == stateDestroy, Application: c.app, Heard: string(c.heard)}
	if c.cause == causeNone {
		return r
	}
	r.Cause = c.cause.String()
	disposition, _ := c.hasVariableLocked("sip_hangup_disposition")
	r.HungUpBy = "switch"
	if strings.HasPrefix(disposition, "recv_") {
		r.HungUpBy = "caller"
	}
	switch {
	case c.answered:
		r.SIPStatus = 200
		r.BillSeconds = float64(c.times.hangup-c.times.answered) / 1e6
	case disposition == "recv_cancel":
		r.SIPStatus = 487
	case c.respondCode != 0:
		r.SIPStatus = c.respondCode
	default:
		r.SIPStatus = sipOfCause(c.cause)
		if value, ok := c.hasVariableLocked("last_bridge_proto_specific_hangup_cause"); ok {
			if status := leadingInt(strings.TrimPrefix(value, "sip:")); status != 0 {
				r.SIPStatus = status
			}
		}
	}
	return r
}

// Caller is the far end of one call, for tests that script it by hand.
type Caller struct {
	sw   *Switch
	uuid string
}

// Caller returns the far end of a channel, of an incoming call or of one this switch dialled.
func (s *Switch) Caller(channel string) *Caller { return &Caller{sw: s, uuid: channel} }

// SendDTMF presses digits at once, one after the other.
func (p *Caller) SendDTMF(digits string) error {
	c := p.sw.channel(p.uuid)
	if c == nil {
		return fmt.Errorf("send digits to %s: %w", p.uuid, ErrNoChannel)
	}
	for i := range len(digits) {
		c.press(digits[i])
	}
	return nil
}

// Speak lets the far end say something now, of that length: what wait_for_silence hears.
func (p *Caller) Speak(length time.Duration) error { return p.sound(utterance{length: length}) }

// Beep lets the far end send a tone now, of that length: what avmd takes for a beep.
func (p *Caller) Beep(length time.Duration) error {
	return p.sound(utterance{length: length, tone: true})
}

func (p *Caller) sound(u utterance) error {
	c := p.sw.channel(p.uuid)
	if c == nil {
		return fmt.Errorf("speak on %s: %w", p.uuid, ErrNoChannel)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.hearLocked([]utterance{u})
	c.touchLocked()
	return nil
}

// Say lets the far end say a text to the recognizer that listens, or that will.
func (p *Caller) Say(text string) error {
	c := p.sw.channel(p.uuid)
	if c == nil {
		return fmt.Errorf("say to %s: %w", p.uuid, ErrNoChannel)
	}
	c.say(text)
	return nil
}

// Hangup hangs up, or gives up when nobody has answered.
func (p *Caller) Hangup() error {
	c := p.sw.channel(p.uuid)
	if c == nil {
		return fmt.Errorf("hang %s up: %w", p.uuid, ErrNoChannel)
	}
	c.byeReceived()
	return nil
}

// Result tells how the call stands, or how it ended.
func (p *Caller) Result() (Result, error) {
	if c := p.sw.channel(p.uuid); c != nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.resultLocked(), nil
	}
	p.sw.mu.RLock()
	defer p.sw.mu.RUnlock()
	r, ok := p.sw.finished[p.uuid]
	if !ok {
		return Result{}, fmt.Errorf("result of %s: %w", p.uuid, ErrNoChannel)
	}
	return r, nil
}

// Wait waits until the call satisfies a condition, and returns how it stood then. It fails when ctx ends first, or when the
// call ended without ever satisfying it.
func (p *Caller) Wait(ctx context.Context, until func(Result) bool) (Result, error) {
	for {
		c := p.sw.channel(p.uuid)
		if c == nil {
			r, err := p.Result()
			if err == nil && !until(r) {
				err = fmt.Errorf("wait for %s: the call ended with %s", p.uuid, r.Cause)
			}
			return r, err
		}
		c.mu.Lock()
		r, changed := c.resultLocked(), c.changed
		c.mu.Unlock()
		if until(r) {
			return r, nil
		}
		select {
		case <-changed:
		case <-c.done:
		case <-ctx.Done():
			return r, fmt.Errorf("wait for %s: %w", p.uuid, ctx.Err())
		}
	}
}

// script plays the caller of an incoming call.
type script struct {
	c     *channel
	mu    sync.Mutex
	tasks []*task
	// wasAsked says that an application has asked for digits.
	wasAsked bool
	// spoken counts the texts that have been said.
	spoken int
}

// reactionTime is how long the caller takes to type after it has been asked.
const reactionTime = 500 * time.Millisecond

func newScript(c *channel) *script {
	return &script{c: c}
}

// start begins what counts from the INVITE.
func (sc *script) start() {
	call := sc.c.incoming
	if call.CancelAfter > 0 {
		sc.after(call.CancelAfter, func() {
			sc.c.mu.Lock()
			answered := sc.c.answered
			sc.c.mu.Unlock()
			if !answered {
				sc.c.byeReceived()
			}
		})
	}
}

// answered begins what counts from the answer.
func (sc *script) answered() {
	call := sc.c.incoming
	if call.DigitsAfter > 0 {
		sc.types(call.DigitsAfter)
	}
	if call.HangupAfter > 0 {
		sc.after(call.HangupAfter, sc.c.byeReceived)
	}
	if call.MediaTimeout > 0 {
		sc.after(call.MediaTimeout, func() { sc.c.hangup(causeMediaTimeout) })
	}
}

// asked is the start of an application that collects digits.
func (sc *script) asked() {
	sc.mu.Lock()
	first := !sc.wasAsked
	sc.wasAsked = true
	sc.mu.Unlock()
	if first && sc.c.incoming.DigitsAfter <= 0 {
		sc.types(reactionTime)
	}
}

// listened is the start of an application that listens to speech: the next text of the script is said.
func (sc *script) listened() {
	sc.mu.Lock()
	n := sc.spoken
	sc.spoken++
	sc.mu.Unlock()
	if n < len(sc.c.incoming.Speech) {
		sc.after(reactionTime, func() { sc.c.say(sc.c.incoming.Speech[n]) })
	}
}

func (sc *script) types(first time.Duration) {
	call := sc.c.incoming
	for i := range len(call.Digits) {
		digit := call.Digits[i]
		sc.after(first+time.Duration(i)*call.DigitsEvery, func() { sc.c.press(digit) })
	}
}

func (sc *script) after(d time.Duration, fn func()) {
	t := sc.c.sw.tasks.after(d, "", fn)
	sc.mu.Lock()
	sc.tasks = append(sc.tasks, t)
	sc.mu.Unlock()
}

func (sc *script) stop() {
	sc.mu.Lock()
	tasks := sc.tasks
	sc.tasks = nil
	sc.mu.Unlock()
	for _, t := range tasks {
		sc.c.sw.tasks.cancel(t)
	}
}

package simswitch

import (
	"strings"
	"sync"
)

// state is a channel state (switch_types.h, switch_channel_state_t).
type state int

const (
	stateNew state = iota
	stateInit
	stateRouting
	stateSoftExecute
	stateExecute
	stateExchangeMedia
	statePark
	stateConsumeMedia
	stateHibernate
	stateReset
	stateHangup
	stateReporting
	stateDestroy
	stateNone
)

var stateNames = [...]string{"CS_NEW", "CS_INIT", "CS_ROUTING", "CS_SOFT_EXECUTE", "CS_EXECUTE", "CS_EXCHANGE_MEDIA", "CS_PARK",
	"CS_CONSUME_MEDIA", "CS_HIBERNATE", "CS_RESET", "CS_HANGUP", "CS_REPORTING", "CS_DESTROY", "CS_NONE"}

// callState is what people call the state of a call (switch_channel.h, switch_channel_callstate_t).
type callState int

const (
	callDown    callState = 0
	callRinging callState = 2
	callEarly   callState = 3
	callActive  callState = 4
	callWaiting callState = 6
	callHangup  callState = 8
)

func (c callState) String() string {
	switch c {
	case callRinging:
		return "RINGING"
	case callEarly:
		return "EARLY"
	case callActive:
		return "ACTIVE"
	case callWaiting:
		return "RING_WAIT"
	case callHangup:
		return "HANGUP"
	default:
		return "DOWN"
	}
}

const (
	// maxPrivateEvents is SWITCH_MESSAGE_QUEUE_LEN (switch_core_pvt.h): sendmsg beyond it fails.
	maxPrivateEvents = 256
	// maxStack is SWITCH_MAX_STACKS (switch_types.h): how deep applications nest.
	maxStack = 32
)

// profile is a caller profile: who calls whom.
type profile struct {
	username, dialplan, cidName, cidNumber, origName, origNumber string
	calleeName, calleeNumber, rdnis                              string
	networkAddr, ani, destination, source, context               string
	logicalDirection                                             string
}

// times are microseconds since 1970, zero for what has not happened.
type times struct {
	created, profileCreated, answered, progress, progressMedia, hangup, transfer, bridged int64
}

// application is one step of a dialplan extension.
type application struct{ name, data string }

// channel is one leg of a call. Its goroutine is FreeSWITCH's session thread: it routes the call, runs the applications
// and reports the end. Other goroutines only change what is under mu and wake it.
type channel struct {
	sw       *Switch
	uuid     string
	outbound bool
	name     string
	incoming *IncomingCall
	script   *script

	// wake tells the session goroutine that something under mu changed.
	wake chan struct{}
	// changed is closed and replaced at every change that Caller.Wait may wait for.
	changed chan struct{}
	// reported is closed after CHANNEL_HANGUP_COMPLETE, done after the channel is gone.
	reported chan struct{}
	done     chan struct{}

	mu        sync.Mutex
	state     state
	running   state
	callState callState
	profile   profile
	other     *otherLeg
	times     times
	vars      []header
	cause     cause
	callUUID  string
	hitPlan   bool
	answered  bool
	early     bool
	rang      bool
	hasMedia  bool
	codec     string

	private       []*message
	eventLock     int
	stack         int
	broadcast     bool
	onAnswerDone  bool
	stopBroadcast bool
	displaced     map[string]bool // the sounds that uuid_displace mixes in
	brk           bool
	parked        bool
	transferred   bool
	dtmf          []byte
	dialed        []byte
	app, appData  string
	recordings    []*recording
	partner       *channel
	bond          *bond
	originator    bool
	joining       *joining
	parkNext      bool
	dialedNumber  string
	next, errand  func()
	winner        bool
	says          []utterance
	voice         []sound
	beeps         *beeps
	speech        []string
	stream        string
	watch         chan struct{}
	settled       bool
	remote        bool
	gateway       *gateway
	heard         []byte
	lastApp       string
	lastArg       string
	respondCode   int
	unrecorded    bool // leaves no CDR
	sessionID     uint64
}

// otherLeg is what an event tells of the leg on the other side, copied when the two meet.
type otherLeg struct {
	kind      string
	uuid      string
	name      string
	direction string
	profile   profile
	times     times
}

// sessionHeaderPrefix begins the names of variables in an event; they are stored with it.
const sessionHeaderPrefix = "variable_"

func newChannel(s *Switch, uuid string, outbound bool) *channel {
	return &channel{
		sw:       s,
		uuid:     uuid,
		outbound: outbound,
		callUUID: uuid,
		name:     "N/A",
		wake:     make(chan struct{}, 1),
		changed:  make(chan struct{}),
		reported: make(chan struct{}),
		done:     make(chan struct{}),
		running:  stateNew,
	}
}

// poke wakes the session goroutine.
func (c *channel) poke() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// touchLocked wakes everyone who watches the channel.
func (c *channel) touchLocked() {
	close(c.changed)
	c.changed = make(chan struct{})
	c.poke()
	if c.watch != nil {
		select {
		case c.watch <- struct{}{}:
		default:
		}
	}
}

func (c *channel) direction() string {
	if c.outbound {
		return "outbound"
	}
	return "inbound"
}

// variable returns a channel variable, or a global one, or a field of the caller profile, as
// switch_channel_get_variable does.
func (c *channel) variable(name string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.variableLocked(name)
}

func (c *channel) variableLocked(name string) string {
	if i := c.findLocked(name); i >= 0 {
		return c.vars[i].value
	}
	if value, ok := c.profile.field(name); ok {
		return value
	}
	if name == "uuid" {
		return c.uuid
	}
	return c.sw.global(name)
}

func (c *channel) findLocked(name string) int {
	const prefix = len(sessionHeaderPrefix)
	for i := range c.vars {
		if len(c.vars[i].name) == prefix+len(name) && strings.EqualFold(c.vars[i].name[prefix:], name) {
			return i
		}
	}
	return -1
}

func (c *channel) hasVariableLocked(name string) (string, bool) {
	i := c.findLocked(name)
	if i < 0 {
		return "", false
	}
	return c.vars[i].value, true
}

// field is switch_caller_get_field_by_name, for what a dialplan may test or expand.
func (p *profile) field(name string) (string, bool) {
	switch strings.ToLower(name) {
	case "destination_number", "username_dest":
		return p.destination, true
	case "caller_id_number":
		return p.cidNumber, true
	case "caller_id_name":
		return p.cidName, true
	case "network_addr":
		return p.networkAddr, true
	case "ani":
		return p.ani, true
	case "context":
		return p.context, true
	case "username":
		return p.username, true
	case "dialplan":
		return p.dialplan, true
	case "source":
		return p.source, true
	}
	return "", false
}

// set sets a channel variable; an empty value deletes it, as in FreeSWITCH.
func (c *channel) set(name, value string) {
	c.mu.Lock()
	c.setLocked(name, value)
	c.mu.Unlock()
}

func (c *channel) setLocked(name, value string) {
	i := c.findLocked(name)
	switch {
	case value == "" && i >= 0:
		c.vars = append(c.vars[:i], c.vars[i+1:]...)
	case value == "":
	case i >= 0:
		c.vars[i].value = value
	default:
		c.vars = append(c.vars, header{sessionHeaderPrefix + name, value})
	}
}

// checkedSet refuses a value that would expand, as switch_channel_set_variable_var_check does for values that come from
// outside (a dial string, a variable of another channel).
func (c *channel) checkedSet(name, value string) {
	if strings.Contains(value, "${") {
		c.sw.log.Error("invalid data in channel variable", "variable", name, "channel", c.uuid)
		return
	}
	c.set(name, value)
}

// get returns the named variables that the channel has.
func (c *channel) get(names ...string) map[string]string {
	c.mu.Lock()
	defer c.mu.Unlock()
	found := map[string]string{}
	for _, name := range names {
		if value, ok := c.hasVariableLocked(name); ok {
			found[name] = value
		}
	}
	return found
}

// ready is switch_channel_ready: the channel is up and nobody wants it elsewhere.
func (c *channel) ready() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.readyLocked()
}

func (c *channel) readyLocked() bool {
	return c.cause == causeNone && c.state > stateRouting && c.state < stateHangup && !c.transferred
}

// up is switch_channel_up: it has not been hung up.
func (c *channel) up() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cause == causeNone
}

// queue puts a message on the private event queue (switch_core_session_queue_private_event).
func (c *channel) queue(m *message) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.private) >= maxPrivateEvents {
		return false
	}
	c.private = append(c.private, m)
	c.poke()
	return true
}

// stopBroadcastLocked is switch_channel_stop_broadcast: what a message started is to end.
func (c *channel) stopBroadcastLocked() {
	if c.broadcast {
		c.stopBroadcast = true
		c.brk = true
	}
	c.poke()
}

// stopApplications is uuid_break (mod_commands.c, break_function).
func (c *channel) stopApplications(all bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if all {
		c.private = nil
	}
	if c.broadcast {
		c.stopBroadcast = true
	}
	c.brk = true
	c.poke()
}

func (c *channel) takeBreak() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	broken := c.brk
	c.brk = false
	return broken
}

// press is a digit that the far end sends. On a bridged channel it goes to the other leg too.
func (c *channel) press(digit byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cause != causeNone {
		return
	}
	c.dtmf = append(c.dtmf, digit)
	c.poke()
}

// takeDigit is switch_channel_dequeue_dtmf: it raises DTMF for the digit it takes.
func (c *channel) takeDigit() (byte, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.dtmf) == 0 {
		return 0, false
	}
	digit := c.dtmf[0]
	c.dtmf = c.dtmf[1:]
	c.dialed = append(c.dialed, digit)
	c.fireLocked(evDTMF, origin{"switch_channel.c", "switch_channel_dequeue_dtmf"},
		header{"DTMF-Digit", string(digit)}, header{"DTMF-Duration", "1600"}, header{"DTMF-Source", "RTP"})
	return digit, true
}

func (c *channel) hasDigit() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.dtmf) > 0
}

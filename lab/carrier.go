package lab

import (
	"context"
	"crypto/rand"
	"embed"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// carrierConfiguration is what makes a FreeSWITCH a carrier.
//
//go:embed carrier
var carrierConfiguration embed.FS

// The account that the carrier's registrar knows.
const (
	CarrierRealm    = "carrier.test"
	CarrierUsername = "acme"
	CarrierPassword = "s3cret"
)

// Sources of the carrier's calls: profiles of its switch, each on its own loopback address.
const (
	SourceFirst  = "external" // 127.0.0.1
	SourceSecond = "second"   // 127.0.0.2
	SourceThird  = "third"    // 127.0.0.3
)

// What the carrier's side of a call does once the node has answered; see also Types, HangsUp and Sounds.
const (
	AppEcho = "&echo()"
	AppPark = "&park()"
)

// Types is a caller who waits, types digits (0-9 A-D * #, 200 ms each) and stays for half a minute.
func Types(after time.Duration, digits string) string {
	return fmt.Sprintf("'sleep:%d,send_dtmf:%s@200,sleep:30000' inline", after.Milliseconds(), digits)
}

// HangsUp is a caller who listens for a while and hangs up.
func HangsUp(after time.Duration) string {
	return fmt.Sprintf("'sleep:%d,hangup:NORMAL_CLEARING' inline", after.Milliseconds())
}

// Sounds is a caller who sounds a 440 Hz tone for a while and hangs up.
func Sounds(length time.Duration) string {
	return fmt.Sprintf("'playback:tone_stream://%%(%d\\,0\\,440),hangup:NORMAL_CLEARING' inline", length.Milliseconds())
}

// Carrier is a second FreeSWITCH that plays the telephone company. The end of the number that is dialled into it picks what
// happens:
//
//	486, 404, 603, 503   refuses with that SIP status
//	180                  rings for 60 s, never answers
//	183                  early media for 2 s, answers, hangs up after 3 s
//	184                  early media for a minute, never answers
//	700                  rings 0.3 s, answers, types 1 2 3 4 # after 1.5 s, stays for 20 s
//	701                  rings 0.3 s, answers, hangs up after 2 s
//	702                  rings 0.3 s, answers, sounds a tone for 20 s
//	703                  rings 0.3 s, answers, hangs up after 8 s
//	711 … 719            rings 1 … 9 s, answers, stays for a minute in silence
//	720                  answers as a person: says "Hello?" after half a second and listens for a minute
//	721                  answers as a machine: a greeting of some nine seconds, a beep, silence
//	722                  answers as a machine whose greeting no beep follows
//	723                  answers and says nothing for a minute
//	730 … 739            answers, presses the key 0 … 9 after a second, stays for a minute
//	+1 555 100 0000 …    rings 0.1 s, answers, plays the file that Carrier.Says gave that number, stays for a minute
//	+1 555 101 0000 …    the same by its own clock, not by that of the packets that it hears (Carrier.SaysSteadily)
//	anything else        rings 0.3 s, answers, echoes
type Carrier struct {
	// SIPAddr is where the carrier hears SIP over UDP: the proxy of a trunk.
	SIPAddr string
	// ESLAddr and Password open the carrier's own Event Socket.
	ESLAddr, Password string

	sounds  string
	process *process
	probe   *Probe
	mu      sync.Mutex
}

// Says makes a number of the carrier, 0 to 9999, answer with a sound file, a WAV, and returns it as it is dialled.
func (c *Carrier) Says(t testing.TB, number int, wav []byte) string {
	t.Helper()
	name := fmt.Sprintf("%04d", number)
	if err := os.WriteFile(filepath.Join(c.sounds, name+".wav"), wav, 0o600); err != nil {
		t.Fatalf("give the carrier a sound: %v", err)
	}
	return "+1555100" + name
}

// SaysSteadily is Says for a sound in which nothing that comes from the other side may be heard, such as packets that are late.
func (c *Carrier) SaysSteadily(t testing.TB, number int, wav []byte) string {
	t.Helper()
	return strings.Replace(c.Says(t, number, wav), "+1555100", "+1555101", 1)
}

// StartCarrier starts a carrier and stops it at the end of the test. It skips the test where there is no FreeSWITCH.
func StartCarrier(t testing.TB) *Carrier {
	t.Helper()
	binary := Require(t)
	base := t.TempDir()
	ports, err := reserve(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(ports.release)
	c := &Carrier{
		SIPAddr:  net.JoinHostPort("127.0.0.1", strconv.Itoa(ports.sip())),
		ESLAddr:  net.JoinHostPort("127.0.0.1", strconv.Itoa(ports.esl())),
		Password: password(),
		sounds:   filepath.Join(base, "sounds"),
	}
	if err := os.Mkdir(c.sounds, 0o750); err != nil {
		t.Fatal(err)
	}
	c.process = &process{
		binary: binary, base: base, eslAddr: c.ESLAddr, password: c.Password,
		env: environment(map[string]string{
			"CARRIER_ESL_PORT":       strconv.Itoa(ports.esl()),
			"CARRIER_ESL_PASSWORD":   c.Password,
			"CARRIER_SOUNDS":         c.sounds,
			"CARRIER_SIP_PORT":       strconv.Itoa(ports.sip()),
			"CARRIER_RTP_START_PORT": strconv.Itoa(ports.rtpStart()),
			"CARRIER_RTP_END_PORT":   strconv.Itoa(ports.rtpEnd()),
		}),
	}
	files, err := fs.Sub(carrierConfiguration, "carrier")
	if err == nil {
		err = os.CopyFS(filepath.Join(base, "conf"), files)
	}
	if err != nil {
		t.Fatalf("lay out the carrier's configuration: %v", err)
	}
	run(t, "carrier", c.process, c.process.kill)
	c.probe = open(t, c.ESLAddr, c.Password)
	return c
}

// Caller is a call that the carrier places into a node.
type Caller struct {
	// From and To are numbers; To may hold parameters of the request URI.
	From, To string
	// NodeSIP is the node's SIP address.
	NodeSIP string
	// App is what the caller does once answered: AppEcho by default.
	App string
	// Source is the profile, and with it the address, that the call comes from: SourceFirst by default.
	Source string
	// Timeout is how long the caller lets it ring: 30 s by default.
	Timeout time.Duration
}

// Call places a call and returns the carrier's channel at once; Result tells what became of it.
func (c *Carrier) Call(ctx context.Context, caller Caller) (*Leg, error) {
	id, job := uuid(), uuid()
	app, source, timeout := caller.App, caller.Source, caller.Timeout
	if app == "" {
		app = AppEcho
	}
	if source == "" {
		source = SourceFirst
	}
	if timeout == 0 {
		timeout = 30 * time.Second
	}
	watch, err := DialESL(ctx, c.ESLAddr, c.Password)
	if err != nil {
		return nil, err
	}
	if err := watch.Subscribe(ctx, "BACKGROUND_JOB", "CHANNEL_ANSWER", "CHANNEL_HANGUP_COMPLETE"); err != nil {
		_ = watch.Close()
		return nil, err
	}
	line := fmt.Sprintf("originate {origination_uuid=%s,origination_caller_id_number=%s,origination_caller_id_name=%s,ignore_early_media=true,originate_timeout=%d}sofia/%s/%s@%s %s",
		id, caller.From, caller.From, int(timeout.Seconds()), source, caller.To, caller.NodeSIP, app)
	frame, err := watch.Command(ctx, "bgapi "+line+"\nJob-UUID: "+job)
	if err != nil {
		_ = watch.Close()
		return nil, err
	}
	if text := frame.Header.Get("Reply-Text"); !strings.HasPrefix(text, "+OK") {
		_ = watch.Close()
		return nil, fmt.Errorf("originate: %s", text)
	}
	return &Leg{UUID: id, job: job, carrier: c, watch: watch}, nil
}

// CallIn places a call as Call does and does not wait for what becomes of it.
func (c *Carrier) CallIn(from, to, nodeSIP, app string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	leg, err := c.Call(ctx, Caller{From: from, To: to, NodeSIP: nodeSIP, App: app})
	if err != nil {
		return err
	}
	return leg.watch.Close()
}

// API runs an api command on the carrier.
func (c *Carrier) API(ctx context.Context, line string) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.probe.API(ctx, line)
}

// LogText returns what the carrier logged so far.
func (c *Carrier) LogText() string { return c.process.logText() }

// Stop takes the carrier away, as a power cut would.
func (c *Carrier) Stop() { c.process.kill() }

// Restart brings the carrier back on the same addresses.
func (c *Carrier) Restart(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.process.kill()
	_ = c.probe.Close()
	if err := c.process.start(ctx); err != nil {
		return err
	}
	probe, err := DialESL(ctx, c.ESLAddr, c.Password)
	if err != nil {
		return err
	}
	c.probe = probe
	return nil
}

// Leg is the carrier's side of a call it placed.
type Leg struct {
	// UUID is the carrier's channel.
	UUID string

	job     string
	carrier *Carrier
	watch   *Probe
}

// Outcome is how a call that the carrier placed ended, as the carrier saw it.
type Outcome struct {
	// Answered tells whether the node answered.
	Answered bool
	// Cause is FreeSWITCH's name of the hangup cause.
	Cause string
	// SIPCode is the status with which the node refused; 0 when it did not refuse.
	SIPCode int
	// HungUpBy is who sent the BYE of an answered call: "send_bye" is the carrier, "recv_bye" the node.
	HungUpBy string
}

// Ended waits until the call is over and tells how.
func (l *Leg) Ended(ctx context.Context) (Outcome, error) {
	defer func() { _ = l.watch.Close() }()
	var outcome Outcome
	for {
		event, err := l.watch.Next(ctx)
		if err != nil {
			return outcome, fmt.Errorf("wait for the end of the carrier's call: %w", err)
		}
		switch {
		case event.Event("Event-Name") == "BACKGROUND_JOB" && event.Event("Job-UUID") == l.job:
			// A refused originate may never have had a channel that we could see ending.
			if _, body, _ := strings.Cut(event.Body, "\n\n"); strings.HasPrefix(body, "-ERR") && outcome.Cause == "" {
				outcome.Cause = strings.TrimSpace(strings.TrimPrefix(body, "-ERR"))
			}
		case event.Event("Unique-ID") != l.UUID:
		case event.Event("Event-Name") == "CHANNEL_ANSWER":
			outcome.Answered = true
		case event.Event("Event-Name") == "CHANNEL_HANGUP_COMPLETE":
			outcome.Cause = event.Event("Hangup-Cause")
			outcome.SIPCode, _ = strconv.Atoi(event.Event("variable_sip_invite_failure_status"))
			outcome.HungUpBy = event.Event("variable_sip_hangup_disposition")
			return outcome, nil
		}
	}
}

// Answered waits until the node answers the call.
func (l *Leg) Answered(ctx context.Context) error {
	for {
		event, err := l.watch.Next(ctx)
		if err != nil {
			return fmt.Errorf("wait for the answer: %w", err)
		}
		if event.Event("Unique-ID") != l.UUID {
			continue
		}
		switch event.Event("Event-Name") {
		case "CHANNEL_ANSWER":
			return nil
		case "CHANNEL_HANGUP_COMPLETE":
			return fmt.Errorf("the call ended unanswered: %s", event.Event("Hangup-Cause"))
		}
	}
}

// Types sends digits on a call that is up.
func (l *Leg) Types(ctx context.Context, digits string) error {
	return l.do(ctx, "uuid_send_dtmf "+l.UUID+" "+digits+"@200")
}

// HangUp ends the call from the carrier's side.
func (l *Leg) HangUp(ctx context.Context) error {
	return l.do(ctx, "uuid_kill "+l.UUID)
}

func (l *Leg) do(ctx context.Context, line string) error {
	reply, err := l.carrier.API(ctx, line)
	if err == nil && strings.HasPrefix(reply, "-") {
		err = fmt.Errorf("%s: %s", line, reply)
	}
	return err
}

func uuid() string {
	var b [16]byte
	_, _ = rand.Read(b[:])
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

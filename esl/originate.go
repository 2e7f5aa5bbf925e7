package esl

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/google/uuid"
)

// Originate is a call to place.
type Originate struct {
	ChannelID string // Unique-ID of the new channel; required, so that the call can be found whatever becomes of us
	JobUUID   string // default: a new one

	Gateway string // with Number
	Number  string
	SIPURI  string // instead of Gateway and Number
	Profile string // SIP profile for SIPURI

	CallerIDNumber string
	CallerIDName   string
	Timeout        time.Duration // until answered; default 60 s
	Codecs         []string      // as of Target
	Variables      []Var
	// ExecuteOnAnswer run in the switch the moment the call is answered, with no controller alive: the cap on its length above all. FreeSWITCH
	// expands their arguments in any case (switch_channel.c, switch_channel_execute_on_value); variable values cannot hold a '$'.
	ExecuteOnAnswer []App
	// App runs once the call is answered; default [Park].
	App App
	// Begin is called when it is the command's turn and nothing but the writing is left, more than once perhaps. Its error is returned, and nothing sent.
	Begin func(ctx context.Context) error
}

// jobGrace is how much longer than the call's own timeout its job may take before its end counts as unknown.
const jobGrace = 15 * time.Second

// Originate places a call in the background of the switch and returns when the switch has accepted the command. The job ends with the answer, or
// with a *CommandError whose Cause says why there was none. ErrBusy says that nothing was sent until ctx, or Config.CommandTimeout, ended.
func (n *Node) Originate(ctx context.Context, o Originate) (*Job, error) {
	args, err := o.arguments()
	if err != nil {
		return nil, err
	}
	if o.JobUUID != "" {
		if err := checkID("job_uuid", o.JobUUID); err != nil {
			return nil, err
		}
	}
	id := cmp.Or(o.JobUUID, uuid.NewString())
	m := backgroundMessage("originate", args, id)
	m.begin = o.Begin
	ctx, cancel := n.bound(ctx)
	defer cancel()
	select {
	case n.dials <- struct{}{}:
		defer func() { <-n.dials }()
	case <-ctx.Done():
		return nil, fmt.Errorf("esl: originate: waiting to send: %w: %w", ErrBusy, context.Cause(ctx))
	}
	return n.background(ctx, m, id, o.ChannelID, cmp.Or(o.Timeout, time.Minute)+jobGrace)
}

// arguments writes the command line. It is split at blanks before the dial string is read (mod_commands.c, originate_function), which is the third
// layer of unescaping.
func (o *Originate) arguments() (string, error) {
	if o.ChannelID == "" {
		return "", refuse("channel_id", "is required")
	}
	t := Target{
		Gateway: o.Gateway, Number: o.Number, SIPURI: o.SIPURI, Profile: o.Profile, ChannelID: o.ChannelID,
		CallerIDNumber: o.CallerIDNumber, CallerIDName: o.CallerIDName, Timeout: cmp.Or(o.Timeout, time.Minute), Codecs: o.Codecs,
		Variables: o.Variables,
	}
	hooks := make([]Var, 0, len(o.ExecuteOnAnswer))
	for i, app := range o.ExecuteOnAnswer {
		name := "execute_on_answer"
		if len(o.ExecuteOnAnswer) > 1 {
			name += "_" + strconv.Itoa(i+1)
		}
		value := app.name
		if app.args != "" {
			value += " " + app.args
		}
		if err := checkVariableValue("execute_on_answer", value); err != nil || app.name == "" {
			return "", cmp.Or(err, refuse("execute_on_answer", "must come from a builder"))
		}
		hooks = append(hooks, Var{name, value})
	}
	vars, err := t.variables(hooks)
	if err != nil {
		return "", err
	}
	address, err := t.address()
	if err != nil {
		return "", err
	}
	app := cmp.Or(o.App, Park())
	// The application stands in one blank-separated word and ends at the first ')'.
	if err := checkPattern("app", app.args, appArgsPattern, "without arguments that need escaping"); err != nil {
		return "", err
	}
	args := escapeWord(vars.list()) + address + " &" + app.name + "(" + app.args + ")"
	if len(args) > maxLineBytes {
		return "", refuse("variables", "make the command longer than %d bytes", maxLineBytes)
	}
	return args, nil
}

// background sends a bgapi command under a job of ours.
func (n *Node) background(ctx context.Context, m message, id, channel string, limit time.Duration) (*Job, error) {
	s := n.current.Load()
	if s == nil {
		return nil, fmt.Errorf("esl: %s: %w", m.label, ErrDown)
	}
	job, err := n.jobs.add(id, m.label, channel, limit)
	if err != nil {
		return nil, err
	}
	ctx, cancel := n.bound(ctx)
	defer cancel()
	if _, err := s.commands.do(ctx, m); err != nil {
		n.jobs.finish(id, "", err)
		return nil, err
	}
	return job, nil
}

// slow runs a command that would hold up the command connection, and waits for its end.
func (n *Node) slow(ctx context.Context, verb, args string) (string, error) {
	return n.slowly(ctx, slowLimit, verb, args)
}

// slowly is slow with a limit of its own.
func (n *Node) slowly(ctx context.Context, limit time.Duration, verb, args string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	id := uuid.NewString()
	job, err := n.background(ctx, backgroundMessage(verb, args, id), id, "", limit)
	if err != nil {
		return "", err
	}
	return job.Wait(ctx)
}

// slowLimit bounds commands like reloadxml: a million DIDs take a quarter of a minute.
const slowLimit = 2 * time.Minute

package esl

import (
	"context"
	"strings"
)

// drainVariable is the global variable of the switch that says that its pause is ours, and ours to end: an operator may have paused it by hand.
const drainVariable = "tandem_draining"

// Drain makes the switch refuse every new call that comes in, before its dialplan: 503 with "Retry-After: 300", and 503 to OPTIONS
// (sofia.c, sofia_event_callback and sofia_handle_sip_i_options). Calls that live are not touched, and may be joined with parties that are called
// out. It lasts until Undrain or until the switch is restarted, also with no controller alive.
func (n *Node) Drain(ctx context.Context) error {
	if _, err := n.api(ctx, "global_setvar", drainVariable+"=true"); err != nil {
		return err
	}
	_, err := n.api(ctx, "fsctl", "pause inbound")
	return err
}

// Undrain takes Drain back. A switch that was paused by somebody else stays so.
func (n *Node) Undrain(ctx context.Context) error {
	ours, err := n.GlobalVariable(ctx, drainVariable)
	if err != nil || ours != "true" {
		return err
	}
	if _, err := n.api(ctx, "fsctl", "resume inbound"); err != nil {
		return err
	}
	_, err = n.api(ctx, "global_setvar", drainVariable+"=")
	return err
}

// Pause is what a switch refuses.
type Pause struct {
	// Inbound and Outbound say that calls in, or legs out, are refused.
	Inbound, Outbound bool
	// Draining says that Inbound is our doing, by Drain.
	Draining bool
}

// Paused asks the switch what it refuses.
func (n *Node) Paused(ctx context.Context) (Pause, error) {
	var p Pause
	for direction, paused := range map[string]*bool{"inbound": &p.Inbound, "outbound": &p.Outbound} {
		reply, err := n.api(ctx, "fsctl", "pause_check "+direction)
		if err != nil {
			return Pause{}, err
		}
		*paused = strings.TrimSpace(reply) == "true"
	}
	ours, err := n.GlobalVariable(ctx, drainVariable)
	p.Draining = p.Inbound && ours == "true"
	return p, err
}

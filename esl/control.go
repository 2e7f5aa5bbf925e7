package esl

import (
	"context"
	"strings"
	"time"
)

// Kill ends a channel at once, whatever runs on it.
func (n *Node) Kill(ctx context.Context, channel, cause string) error {
	if err := checkID("channel_id", channel); err != nil {
		return err
	}
	if err := checkCause(cause); err != nil {
		return err
	}
	_, err := n.api(ctx, "uuid_kill", channel+" "+cause)
	return err
}

// Break interrupts what plays on a channel and forgets the applications that wait there; they never complete.
func (n *Node) Break(ctx context.Context, channel string) error {
	if err := checkID("channel_id", channel); err != nil {
		return err
	}
	_, err := n.api(ctx, "uuid_break", channel+" all")
	if err == nil {
		// The flushed applications raise no event that would give their slots back.
		n.inflight.clear(channel)
	}
	return err
}

// Park tears a channel out of whatever it runs and parks it, where it waits for its controller (mod_commands.c,
// uuid_transfer_function). What it ran completes; a channel that was recording with [Record] is hung up by it.
func (n *Node) Park(ctx context.Context, channel string) error {
	if err := checkID("channel_id", channel); err != nil {
		return err
	}
	_, err := n.api(ctx, "uuid_transfer", channel+" park inline")
	return err
}

// SetVariable sets a channel variable; an empty value unsets it. A value cannot hold "${", which an application that reads it would expand.
func (n *Node) SetVariable(ctx context.Context, channel, name, value string) error {
	args, err := setVariableArgs(channel, name, value)
	if err != nil {
		return err
	}
	_, err = n.api(ctx, "uuid_setvar", args)
	return err
}

// setVariableArgs writes three words, of which the value is unescaped once (mod_commands.c, uuid_setvar_function).
func setVariableArgs(channel, name, value string) (string, error) {
	if err := checkID("channel_id", channel); err != nil {
		return "", err
	}
	if err := checkVariableName("name", name); err != nil {
		return "", err
	}
	if err := checkText("value", value, maxVariableBytes); err != nil {
		return "", err
	}
	if hasExpansion(value) {
		return "", refuse("value", "holds ${, which the switch would expand")
	}
	if value == "" {
		return channel + " " + name, nil
	}
	return channel + " " + name + " " + escapeWord(value), nil
}

// SchedHangup makes the switch end a channel after a time, with nobody else alive.
func (n *Node) SchedHangup(ctx context.Context, channel string, after time.Duration, cause string) error {
	if err := checkID("channel_id", channel); err != nil {
		return err
	}
	if err := checkCause(cause); err != nil {
		return err
	}
	seconds, err := wholeSeconds("after", after, time.Second, 30*24*time.Hour)
	if err != nil {
		return err
	}
	_, err = n.api(ctx, "sched_hangup", "+"+seconds+" "+channel+" "+cause)
	return err
}

// ScheduleKill makes the switch end a channel after a time, with nobody else alive, and names a group by which that is taken back again with
// Unschedule: a channel may be given a new end before the old one is deleted. It stays scheduled when the channel ends before, for a while that does
// no harm, unless the group is the channel's id (switch_core_session.c, switch_core_session_perform_destroy).
func (n *Node) ScheduleKill(ctx context.Context, channel, group string, after time.Duration, cause string) error {
	if err := checkID("channel_id", channel); err != nil {
		return err
	}
	if err := checkGroup(group); err != nil {
		return err
	}
	if err := checkCause(cause); err != nil {
		return err
	}
	seconds, err := wholeSeconds("after", after, time.Second, 366*24*time.Hour)
	if err != nil {
		return err
	}
	_, err = n.api(ctx, "sched_api", "+"+seconds+" "+group+" uuid_kill "+channel+" "+cause)
	return err
}

// Unschedule deletes what is scheduled under a group: with SchedHangup the group is the channel. That there is nothing is no error.
func (n *Node) Unschedule(ctx context.Context, group string) error {
	if err := checkGroup(group); err != nil {
		return err
	}
	_, err := n.api(ctx, "sched_del", group)
	return err
}

// checkGroup accepts the name of a group: that of a channel, and what may follow after a dot. Digits alone are the number of a task.
func checkGroup(group string) error {
	if err := checkID("group", group); err != nil {
		return err
	}
	if strings.Trim(group, "0123456789") == "" {
		return refuse("group", "must not be a number")
	}
	return nil
}

// Overlay mixes a sound into what the party on a channel hears, whatever the channel does (mod_commands.c, session_displace_function).
func (n *Node) Overlay(ctx context.Context, channel, path string) error {
	if err := checkID("channel_id", channel); err != nil {
		return err
	}
	if err := checkFile("path", path); err != nil {
		return err
	}
	_, err := n.api(ctx, "uuid_displace", channel+" start "+path+" 0 m")
	return err
}

// Exists asks whether a channel lives.
func (n *Node) Exists(ctx context.Context, channel string) (bool, error) {
	if err := checkID("channel_id", channel); err != nil {
		return false, err
	}
	reply, err := n.api(ctx, "uuid_exists", channel)
	return strings.TrimSpace(reply) == "true", err
}

// Dump returns all headers and variables of a channel, as an event of the name CHANNEL_DATA.
func (n *Node) Dump(ctx context.Context, channel string) (*Event, error) {
	if err := checkID("channel_id", channel); err != nil {
		return nil, err
	}
	reply, err := n.api(ctx, "uuid_dump", channel+" json")
	if err != nil {
		return nil, err
	}
	return ParseEvent(reply)
}

// HasModule says whether the switch has loaded a module.
func (n *Node) HasModule(ctx context.Context, name string) (bool, error) {
	if err := checkPattern("module", name, wordPattern, "1 to 64 letters, digits, '-' or '_'"); err != nil {
		return false, err
	}
	reply, err := n.api(ctx, "module_exists", name)
	return strings.TrimSpace(reply) == "true", err
}

// Channels lists the channels of the switch; see [Snapshot] for how far to trust it.
func (n *Node) Channels(ctx context.Context) ([]Channel, error) {
	reply, err := n.api(ctx, "show", "channels as json")
	if err != nil {
		return nil, err
	}
	return parseChannels(reply)
}

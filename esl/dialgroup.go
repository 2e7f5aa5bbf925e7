package esl

import (
	"context"
	"strings"
	"time"
)

// maxGroup is the most parties of one dial string.
const maxGroup = 10

// Group is parties who are called at once. The first to answer wins, or, with Confirm, the first to press the key.
type Group struct {
	// Targets are 1 to 10 parties. Their Variables and CallerIDName must be empty: what all legs get is in Variables here.
	Targets []Target
	// Confirm asks whoever answers for a key; nil does not.
	Confirm *Confirm
	// Announce is played to whoever answers, who is joined after it; nil joins at once. It excludes Confirm.
	Announce *Announcement
	// Hold keeps whoever answers in silence before it is joined, for so long or until [Node.Break] ends it; 1 s to 5 min, 0 joins at
	// once. It excludes Confirm and Announce.
	Hold time.Duration
	// IgnoreEarlyMedia keeps what the parties send before their answer from the caller.
	IgnoreEarlyMedia bool
	// Variables are set on every leg.
	Variables []Var
}

// Confirm asks the party that answers to press a key before it is joined (switch_ivr_originate.c, collect_thread_run). The
// prompt is repeated until the key is pressed or the time is over, when the leg ends with ALLOTTED_TIMEOUT.
type Confirm struct {
	Key    string // one of 0-9 A-D * #
	Prompt Prompt // what the party hears; a short tone when empty
	// Engine and Voice speak the texts of the prompt.
	Engine, Voice string
	Timeout       time.Duration // from the answer on, 1 s to 5 min
}

// Announcement is what the party that answers hears before it is joined (switch_ivr_originate.c, collect_thread_run: the key
// exec runs an application instead of asking).
type Announcement struct {
	Prompt Prompt
	// Engine and Voice speak the texts of the prompt.
	Engine, Voice string
	Limit         time.Duration // ends a party that has not heard it out, 1 s to 10 min
}

// NewDialGroup writes the dial string of parties that are called at once. Text stands only in the list that is for all legs,
// which two layers of the switch unescape; a leg's own list, which four do, holds nothing that would need it.
func NewDialGroup(g Group) (DialString, error) {
	if len(g.Targets) == 0 || len(g.Targets) > maxGroup {
		return DialString{}, refuse("targets", "must be 1 to %d parties", maxGroup)
	}
	var longest time.Duration
	legs := make([]string, len(g.Targets))
	for i := range g.Targets {
		t := &g.Targets[i]
		longest = max(longest, t.Timeout)
		leg, err := t.leg()
		if err != nil {
			return DialString{}, err
		}
		legs[i] = leg
	}
	vars, err := g.variables(longest)
	if err != nil {
		return DialString{}, err
	}
	text := vars.list() + strings.Join(legs, ",")
	if len(text) > maxLineBytes {
		return DialString{}, refuse("targets", "make the dial string longer than %d bytes", maxLineBytes)
	}
	return DialString{text: text}, nil
}

// leg writes one party with the variables that are its own.
func (t *Target) leg() (string, error) {
	if len(t.Variables) > 0 || t.CallerIDName != "" {
		return "", refuse("targets", "must have no variables and no caller_id_name of their own")
	}
	address, err := t.address()
	if err != nil {
		return "", err
	}
	own := *t
	own.Timeout = 0
	vars, err := own.variables(nil)
	if err != nil {
		return "", err
	}
	if t.Timeout != 0 {
		seconds, err := wholeSeconds("timeout", t.Timeout, time.Second, time.Hour)
		if err != nil {
			return "", err
		}
		// The switch counts leg_timeout until media comes; bridge_answer_timeout is for a party that sounds and never answers.
		vars = append(vars, Var{"leg_timeout", seconds}, Var{"bridge_answer_timeout", seconds})
	}
	if len(vars) == 0 {
		return address, nil
	}
	pairs := make([]string, len(vars))
	open, delimiter := "[", ","
	if len(t.Codecs) > 0 {
		// The names of codecs are joined by commas. None of the values holds a colon.
		open, delimiter = "[^^:", ":"
	}
	for i, v := range vars {
		pairs[i] = v.Name + "=" + v.Value
	}
	return open + strings.Join(pairs, delimiter) + "]" + address, nil
}

// variables are those of all legs. The time of the whole is a little longer than that of any leg, so that each ends by its own.
func (g *Group) variables(longest time.Duration) (variables, error) {
	var vars variables
	whole := longest + 5*time.Second
	if g.Confirm != nil {
		confirm, err := g.Confirm.variables()
		if err != nil {
			return nil, err
		}
		vars = append(vars, confirm...)
		whole += g.Confirm.Timeout
	}
	if g.Announce != nil {
		if g.Confirm != nil {
			return nil, refuse("announce", "excludes confirm")
		}
		announce, err := g.Announce.variables()
		if err != nil {
			return nil, err
		}
		vars = append(vars, announce...)
		whole += g.Announce.Limit
	}
	if g.Hold != 0 {
		if g.Confirm != nil || g.Announce != nil {
			return nil, refuse("hold", "excludes confirm and announce")
		}
		hold, err := holdVariables(g.Hold)
		if err != nil {
			return nil, err
		}
		vars = append(vars, hold...)
		whole += g.Hold + holdSlack
	}
	if longest > 0 {
		seconds, err := wholeSeconds("timeout", whole, time.Second, 2*time.Hour)
		if err != nil {
			return nil, err
		}
		vars = append(vars, Var{"originate_timeout", seconds})
	}
	if g.IgnoreEarlyMedia {
		vars = append(vars, Var{"ignore_early_media", "true"})
	}
	for _, v := range g.Variables {
		if err := v.check(); err != nil {
			return nil, err
		}
		vars = append(vars, v)
	}
	return vars, nil
}

// confirmRead is how long the switch listens for the key after each time that the prompt was played.
const confirmRead = "3000"

// confirmTone tells a party without a prompt that a key is waited for.
const confirmTone = "tone_stream://%(200,100,640)"

// variables write the question. What a dial string would read as syntax and nobody would hear is left out of the prompt.
func (c *Confirm) variables() (variables, error) {
	if len(c.Key) != 1 || !strings.Contains("0123456789ABCD*#", c.Key) {
		return nil, refuse("confirm.key", "must be one of 0-9 A-D * #")
	}
	seconds, err := wholeSeconds("confirm.timeout", c.Timeout, time.Second, 5*time.Minute)
	if err != nil {
		return nil, err
	}
	vars := variables{
		{"group_confirm_key", c.Key}, {"group_confirm_timeout", seconds}, {"group_confirm_read_timeout", confirmRead},
	}
	if c.Prompt.Parts() == 0 {
		return append(vars, Var{"group_confirm_file", confirmTone}), nil
	}
	prompt, err := promptVariables("confirm", "", c.Prompt, c.Engine, c.Voice)
	return append(vars, prompt...), err
}

// variables write the announcement.
func (a *Announcement) variables() (variables, error) {
	if a.Prompt.Parts() == 0 {
		return nil, refuse("announce", "must hold something to hear")
	}
	seconds, err := wholeSeconds("announce.limit", a.Limit, time.Second, 10*time.Minute)
	if err != nil {
		return nil, err
	}
	vars := variables{{"group_confirm_key", "exec"}, {"group_confirm_timeout", seconds}}
	prompt, err := promptVariables("announce", "playback ", a.Prompt, a.Engine, a.Voice)
	return append(vars, prompt...), err
}

// holdSlack is how much longer than it should the silence may take, before the leg is ended.
const holdSlack = 5 * time.Second

// holdVariables write the silence before the joining.
func holdVariables(hold time.Duration) (variables, error) {
	ms, err := milliseconds("hold", hold, time.Second, 5*time.Minute)
	if err != nil {
		return nil, err
	}
	seconds, err := wholeSeconds("hold", hold+holdSlack, time.Second, 10*time.Minute)
	if err != nil {
		return nil, err
	}
	return variables{{"group_confirm_key", "exec"}, {"group_confirm_timeout", seconds}, {"group_confirm_file", "playback silence_stream://" + ms}}, nil
}

// promptVariables write what a leg plays before it is joined, behind the application that plays it.
func promptVariables(field, app string, prompt Prompt, engine, voice string) (variables, error) {
	for _, word := range []struct{ name, value string }{{"engine", engine}, {"voice", voice}} {
		if err := checkPattern(field+"."+word.name, word.value, wordPattern, "1 to 64 letters, digits, '-' or '_'"); err != nil {
			return nil, err
		}
	}
	file := app + prompt.joined(dropDialSyntax)
	if err := checkVariableValue(field+".prompt", file); err != nil {
		return nil, err
	}
	return variables{{"group_confirm_file", file}, {"tts_engine", engine}, {"tts_voice", voice}, {"playback_delimiter", PromptDelimiter}}, nil
}

// dropDialSyntax takes out of a part of a prompt what survives no escaping in a dial string (checkVariableValue). Of ":_:" only the line goes:
// a colon may be the one of "say:".
func dropDialSyntax(s string) string {
	s = strings.Map(func(r rune) rune {
		if strings.ContainsRune("{}[]<>|^$", r) {
			return ' '
		}
		return r
	}, s)
	return strings.ReplaceAll(s, ":_", ": ")
}

// Ringback is what a caller hears while other parties are called. The zero value is what they send themselves.
type Ringback struct {
	value string
}

// String is the tone or the file.
func (r Ringback) String() string { return r.value }

// ToneRingback is a tone in FreeSWITCH's notation (TGML), such as "%(2000,4000,440,480)".
func ToneRingback(spec string) (Ringback, error) {
	if err := checkPattern("tone", spec, tonePattern, "a tone such as %%(2000,4000,440,480)"); err != nil {
		return Ringback{}, err
	}
	return Ringback{value: spec}, nil
}

// FileRingback is a file of ours, played again and again.
func FileRingback(path string) (Ringback, error) {
	if err := checkFile("ringback", path); err != nil {
		return Ringback{}, err
	}
	return Ringback{value: path}, nil
}

// SetRingback sets what a channel hears during its next bridge, before it is answered and after (switch_ivr_originate.c reads
// ringback and transfer_ringback).
func (n *Node) SetRingback(ctx context.Context, channel string, r Ringback) error {
	if err := checkID("channel_id", channel); err != nil {
		return err
	}
	for _, name := range []string{"ringback", "transfer_ringback"} {
		args := channel + " " + name
		if r.value != "" {
			args += " " + escapeWord(r.value)
		}
		if _, err := n.api(ctx, "uuid_setvar", args); err != nil {
			return err
		}
	}
	return nil
}

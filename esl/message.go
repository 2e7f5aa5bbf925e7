package esl

import (
	"context"
	"strings"

	"github.com/percipia/eslgo/command"
	"github.com/percipia/eslgo/command/call"
)

// message is what goes onto the wire, whole, in one write: FreeSWITCH spins on a body that comes late (mod_event_socket.c, read_packet). The
// label stands for it in errors and never holds an argument.
type message struct {
	label string
	text  string
	// asks says that it changes nothing: it may be sent while it is not known whether the switch is still ours. unfenced is a question
	// that finds that out.
	asks, unfenced bool
	begin          func(ctx context.Context) error // see Originate.Begin
}

// line makes a message of a command without body.
func line(label string, c command.Command) message {
	return message{label: label, text: c.BuildMessage() + "\n\n"}
}

// apiMessage makes an api command. The arguments must have been checked.
func apiMessage(verb, args string) message {
	c := command.API{Command: verb, Arguments: args}
	return message{label: verb, text: strings.TrimRight(c.BuildMessage(), " ") + "\n\n"}
}

// backgroundMessage makes a bgapi command with a Job-UUID of ours, which eslgo's builder has no place for.
func backgroundMessage(verb, args, job string) message {
	c := command.API{Command: verb, Arguments: args, Background: true}
	return message{label: verb, text: strings.TrimRight(c.BuildMessage(), " ") + "\nJob-UUID: " + job + "\n\n"}
}

// executeMessage makes the sendmsg that runs an application. The argument travels in the body, where a blank line is text and not the end of the
// message, and event-lock makes applications wait for each other instead of nesting. eslgo ends lines with CRLF; FreeSWITCH merges lines where
// both endings meet, so the header is given one.
func executeMessage(channel, eventUUID string, app App) message {
	e := call.Execute{UUID: channel, AppName: app.name, AppArgs: app.args, AppUUID: eventUUID, Sync: true, ForceBody: true}
	head, body, _ := strings.Cut(e.BuildMessage(), "\r\n\r\n")
	return message{label: "execute " + app.name, text: strings.ReplaceAll(head, "\r\n", "\n") + "\n\n" + body}
}

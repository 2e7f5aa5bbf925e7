package esl

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// AcceptVariable is the global variable of the switch that says whether calls are taken: the dialplan parks them while it is true
// and refuses them otherwise.
const AcceptVariable = "tandem_accept"

const (
	acceptCalls = AcceptVariable + "=true"
	refuseCalls = AcceptVariable + "=false"
	// Groups of the tasks that end the taking. The second is for the moment in which the first is cleared.
	acceptGroup     = AcceptVariable
	acceptGroupNext = AcceptVariable + "_next"
)

// AcceptCalls lets the dialplan take calls for a while, in whole seconds: a task of the switch ends it, should nobody say so
// again. It returns that task, for the next time; previous is the last one's, "" where there is none or it is not known. Whatever
// fails on the way, the taking ends by itself.
func (n *Node) AcceptCalls(ctx context.Context, lasting time.Duration, previous string) (task string, err error) {
	if lasting < time.Second {
		return "", fmt.Errorf("esl: accept calls for %s: less than a second", lasting)
	}
	steps := []func() error{
		func() (err error) { task, err = n.endAccepting(ctx, acceptGroup, lasting); return err },
		func() error { return n.forget(ctx, previous) },
	}
	if previous == "" {
		// Somebody else's task may be waiting, and must not end what begins here. At no moment is there none.
		steps = []func() error{
			func() error { _, err := n.endAccepting(ctx, acceptGroupNext, lasting); return err },
			func() error { return n.forget(ctx, acceptGroup) },
			steps[0],
			func() error { return n.forget(ctx, acceptGroupNext) },
		}
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return "", err
		}
	}
	if _, err := n.api(ctx, "global_setvar", acceptCalls); err != nil {
		return "", err
	}
	return task, nil
}

// endAccepting schedules the end of the taking and returns its task (mod_commands.c, sched_api_function: "+OK Added: %u").
func (n *Node) endAccepting(ctx context.Context, group string, after time.Duration) (task string, err error) {
	reply, err := n.api(ctx, "sched_api", fmt.Sprintf("+%d %s global_setvar %s", int(after/time.Second), group, refuseCalls))
	if err != nil {
		return "", err
	}
	task, ok := strings.CutPrefix(strings.TrimSpace(reply), "+OK Added: ")
	if !ok || task == "" || strings.Trim(task, "0123456789") != "" {
		return "", &CommandError{Command: "sched_api", Reply: strings.TrimSpace(reply)}
	}
	return task, nil
}

// forget takes scheduled tasks back: one, or all of a group. That there are none is no failure.
func (n *Node) forget(ctx context.Context, tasks string) error {
	_, err := n.api(ctx, "sched_del", tasks)
	return err
}

// RefuseCalls makes the dialplan refuse calls from now on.
func (n *Node) RefuseCalls(ctx context.Context) error {
	_, err := n.api(ctx, "global_setvar", refuseCalls)
	return err
}

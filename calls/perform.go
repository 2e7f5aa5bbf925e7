package calls

import (
	"errors"
	"fmt"

	"tandem/actions"
	"tandem/esl"
)

// perform does one action.
func (s *session) perform(action actions.Action) (outcome, error) {
	out, err := s.performVerb(action)
	var input *esl.InputError
	if errors.As(err, &input) {
		// The switch cannot be told this safely. The list was valid, so the call goes on without the action.
		return outcome{}, s.skip(action, input.Field, input.Reason)
	}
	return out, err
}

func (s *session) performVerb(action actions.Action) (outcome, error) {
	switch a := action.(type) {
	case *actions.Answer:
		return s.doAnswer()
	case *actions.Say:
		return s.doSay(a)
	case *actions.Play:
		return s.doPlay(a)
	case *actions.Gather:
		return s.doGather(a)
	case *actions.Record:
		return s.doRecord(a)
	case *actions.RecordCall:
		return s.doRecordCall(a)
	case *actions.Dial:
		return s.doDial(a)
	case *actions.Transfer:
		return s.doTransfer(a)
	case *actions.MachineDetection:
		return s.detectMachine(a)
	case *actions.Conference:
		return s.doConference(a)
	case *actions.Enqueue:
		return s.doEnqueue(a)
	case *actions.Dequeue:
		return s.doDequeue(a)
	case *actions.Stream:
		return s.doStream(a)
	case *actions.Pause:
		return s.doPause(a)
	case *actions.DTMF:
		return s.doDTMF(a)
	case *actions.Set:
		return s.doSet(a)
	case *actions.Redirect:
		return s.doRedirect(a)
	case *actions.Notify:
		return s.doNotify(a)
	case *actions.Hangup:
		return s.doHangup(a)
	case *actions.Reject:
		return s.doReject(a)
	default:
		return outcome{}, fmt.Errorf("no way to do %q", action.Verb())
	}
}

// skip tells that an action could not be done. The call goes on with the next one.
func (s *session) skip(action actions.Action, field, message string) error {
	return s.fail(action, codeActionFailed, field, message)
}

// Codes of call.error for actions that could not be done.
const (
	codeActionFailed = "action_failed"
	codeNotSupported = "not_supported_by_node"
)

// fail is skip with a code of its own.
func (s *session) fail(action actions.Action, code, field, message string) error {
	return s.tellFailure(action.Verb(), action.Meta().ID, code, field, message)
}

// failVerb is fail for the action at the cursor, where only its verb is at hand.
func (s *session) failVerb(verb, code, field, message string) error {
	return s.tellFailure(verb, s.flow.list[s.flow.index].Meta().ID, code, field, message)
}

func (s *session) tellFailure(verb, id, code, field, message string) error {
	data := map[string]any{"code": code, "index": s.flow.index, "action": verb, "message": message}
	if field != "" {
		data["field"] = field
	}
	if id != "" {
		data["id"] = id
	}
	return s.tell("call.error", data)
}

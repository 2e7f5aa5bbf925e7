package calls

import (
	"fmt"

	"tandem/actions"
	"tandem/esl"
)

func (s *session) handleBeep(*esl.Event) error       { return nil }
func (s *session) handleDTMF(*esl.Event) error       { return nil }
func (s *session) handleRecordStop(*esl.Event) error { return nil }

func (s *session) doTransfer(a *actions.Transfer) (outcome, error) { return notYet(a) }
func (s *session) detectMachine(a *actions.MachineDetection) (outcome, error) {
	return notYet(a)
}
func (s *session) detectAtAnswer() error                       { return nil }
func (s *session) doStream(a *actions.Stream) (outcome, error) { return notYet(a) }

func (s *session) screenLeg(*leg) error { return nil }

func notYet(a actions.Action) (outcome, error) {
	return outcome{}, fmt.Errorf("%s is being written", a.Verb())
}

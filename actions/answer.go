package actions

var answerVerb = verb{
	name:    "answer",
	make:    func() Action { return &Answer{} },
	doc:     "Answers the call; actions that are heard answer by themselves, so it is only needed to answer earlier.",
	example: `{"action": "answer"}`,
}

// Answer answers the call. Actions that need media answer by themselves, so it is only needed to answer earlier.
type Answer struct{ Base }

// Verb returns "answer".
func (*Answer) Verb() string { return "answer" }

func (*Answer) fields() []field { return nil }

// MarshalJSON writes the canonical form.
func (a *Answer) MarshalJSON() ([]byte, error) { return marshalAction(a) }

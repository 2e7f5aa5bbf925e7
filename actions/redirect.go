package actions

var redirectVerb = verb{
	name:    "redirect",
	make:    func() Action { return &Redirect{} },
	doc:     "Asks another URL what the call shall do; its actions replace the list.",
	example: `{"action": "redirect", "url": "/closed"}`,
}

// Redirect asks another URL for the actions that go on.
type Redirect struct {
	Base
	// URL is absolute or relative to the answer_url.
	URL string
}

// Verb returns "redirect".
func (*Redirect) Verb() string { return "redirect" }

func (a *Redirect) fields() []field {
	return []field{{name: "url", required: true, value: link{to: &a.URL, form: urlRelative}, doc: "The URL to ask."}}
}

// MarshalJSON writes the canonical form.
func (a *Redirect) MarshalJSON() ([]byte, error) { return marshalAction(a) }

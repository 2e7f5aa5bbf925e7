package actions

// Redirect asks another URL for the actions that go on.
type Redirect struct {
	Base
	// URL is absolute or relative to the answer_url.
	URL string
}

// Verb returns "redirect".
func (*Redirect) Verb() string { return "redirect" }

func (a *Redirect) fields() []field {
	return []field{{name: "url", required: true, value: link{to: &a.URL, form: urlRelative}}}
}

// MarshalJSON writes the canonical form.
func (a *Redirect) MarshalJSON() ([]byte, error) { return marshalAction(a) }

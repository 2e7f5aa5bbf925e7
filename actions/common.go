package actions

// maxID is the longest id of an action, in characters.
const maxID = 64

// commonFields is the part of the table that all verbs share.
func (b *Base) commonFields() []field {
	return []field{
		{name: "id", value: text{to: &b.ID, max: maxID}, doc: "Your own name for the action, echoed in its result and events."},
		{name: "result_url", value: link{to: &b.ResultURL, form: urlRelative}, doc: "Where the result is posted; the actions that come back replace the list."},
	}
}

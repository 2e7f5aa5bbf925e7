package actions

// maxID is the longest id of an action, in characters.
const maxID = 64

// commonFields is the part of the table that all verbs share.
func (b *Base) commonFields() []field {
	return []field{
		{name: "id", value: text{to: &b.ID, max: maxID}},
		{name: "result_url", value: link{to: &b.ResultURL, form: urlRelative}},
	}
}

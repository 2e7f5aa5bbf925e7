package actions

// verb is one word of the vocabulary.
type verb struct {
	name string
	// make returns the zero value, which holds the table of fields.
	make func() Action
	doc  string
	// media tells that the action answers an unanswered call first.
	media   bool
	results []result
	example string
}

// verbs holds the vocabulary in the order of the documentation.
var verbs = []verb{
	answerVerb, sayVerb, playVerb, gatherVerb, recordVerb, recordCallVerb, dialVerb, machineDetectionVerb, transferVerb,
	conferenceVerb, enqueueVerb, dequeueVerb, dtmfVerb, pauseVerb, redirectVerb, setVerb, notifyVerb, streamVerb, hangupVerb,
	rejectVerb,
}

// aliases are the names other services use; they ease a migration.
var aliases = map[string]string{
	"talk":        "say",
	"input":       "gather",
	"connect":     "dial",
	"wait":        "pause",
	"send_digits": "dtmf",
	"recording":   "record_call",
}

// laterVerbs are of the vocabulary, but this version cannot do them.
var laterVerbs = []string{"ai"}

// Names returns the canonical names of the verbs, in the order of the documentation.
func Names() []string {
	names := make([]string, len(verbs))
	for i, v := range verbs {
		names[i] = v.name
	}
	return names
}

// table returns all fields of an action, the common ones first.
func table(action Action) []field { return append(action.base().commonFields(), action.fields()...) }

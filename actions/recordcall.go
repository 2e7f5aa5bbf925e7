package actions

// What a record_call does; see RecordCall.Op.
const (
	// OpStart begins.
	OpStart = "start"
	// OpStop ends.
	OpStop = "stop"
	// OpPause leaves out what follows, until OpResume.
	OpPause = "pause"
	// OpResume goes on after OpPause.
	OpResume = "resume"
	// OpMask records silence, until OpUnmask.
	OpMask = "mask"
	// OpUnmask goes on after OpMask.
	OpUnmask = "unmask"
)

// How the parties of a call lie in a recording; see RecordCall.Channels.
const (
	// ChannelsMono mixes both parties.
	ChannelsMono = "mono"
	// ChannelsDual gives each party a channel of its own: the call's own left, the other right.
	ChannelsDual = "dual"
)

var recordCallVerb = verb{
	name: "record_call",
	make: func() Action { return &RecordCall{} },
	doc:  "Records the call in the background while further actions run, and steers that recording.",
	results: []result{
		{"outcome", resultWord, []string{"done", "failed"}, "Whether it was done; failed when there is no recording to steer."},
		{"recording_id", resultText, nil, "The recording, as in GET /v1/calls/:id/recordings."},
	},
	example: `{"action": "record_call", "op": "start", "channels": "dual", "format": "wav"}`,
}

// RecordCall records the call in the background while further actions run, and steers that recording.
type RecordCall struct {
	Base
	// Op is OpStart, OpStop, OpPause, OpResume, OpMask or OpUnmask.
	Op string
	// Channels is ChannelsMono or ChannelsDual; it means something only to OpStart.
	Channels string
	// Format is FormatWAV or FormatMP3; it means something only to OpStart.
	Format string
}

// Verb returns "record_call".
func (*RecordCall) Verb() string { return "record_call" }

func (a *RecordCall) fields() []field {
	return []field{
		{name: "op", value: choice{to: &a.Op, fallback: OpStart, words: []string{OpStart, OpStop, OpPause, OpResume, OpMask, OpUnmask}}, doc: "What to do: pause and resume leave out a part, mask and unmask replace it by silence."},
		{name: "channels", value: choice{to: &a.Channels, fallback: ChannelsDual, words: []string{ChannelsMono, ChannelsDual}}, doc: "Both parties mixed, or each on a channel of its own; only to start."},
		{name: "format", value: recordingFormat(&a.Format), doc: "The format of the file; only to start, and mp3 is refused where the node cannot write it."},
	}
}

// MarshalJSON writes the canonical form.
func (a *RecordCall) MarshalJSON() ([]byte, error) { return marshalAction(a) }

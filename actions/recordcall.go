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
		{name: "op", value: choice{to: &a.Op, fallback: OpStart, words: []string{OpStart, OpStop, OpPause, OpResume, OpMask, OpUnmask}}},
		{name: "channels", value: choice{to: &a.Channels, fallback: ChannelsDual, words: []string{ChannelsMono, ChannelsDual}}},
		{name: "format", value: choice{to: &a.Format, fallback: FormatWAV, words: []string{FormatWAV, FormatMP3}}},
	}
}

// MarshalJSON writes the canonical form.
func (a *RecordCall) MarshalJSON() ([]byte, error) { return marshalAction(a) }

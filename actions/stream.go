package actions

// Which audio a stream carries; see Stream.Track.
const (
	// TrackInbound is what the call's own party says.
	TrackInbound = "inbound"
	// TrackOutbound is what that party hears.
	TrackOutbound = "outbound"
	// TrackBoth is both.
	TrackBoth = "both"
)

// Stream sends the call's audio to a WebSocket in the background while further actions run.
type Stream struct {
	Base
	// Op is OpStart or OpStop.
	Op string
	// URL is the wss:// URL of the WebSocket; empty for OpStop.
	URL string
	// Track is TrackInbound, TrackOutbound or TrackBoth; it means something only to OpStart.
	Track string
	// Bidirectional plays what the WebSocket sends back to the call.
	Bidirectional bool
}

// Verb returns "stream".
func (*Stream) Verb() string { return "stream" }

func (a *Stream) fields() []field {
	return []field{
		{name: "op", value: choice{to: &a.Op, fallback: OpStart, words: []string{OpStart, OpStop}}},
		{name: "url", value: link{to: &a.URL, form: urlSocket}},
		{name: "track", value: choice{to: &a.Track, fallback: TrackInbound, words: []string{TrackInbound, TrackOutbound, TrackBoth}}},
		{name: "bidirectional", value: boolean{to: &a.Bidirectional}},
	}
}

// validate wants a URL for a start, and only there.
func (a *Stream) validate(*node) *fieldError {
	switch {
	case a.Op == OpStart && a.URL == "":
		return &fieldError{"url", "is required to start"}
	case a.Op == OpStop && a.URL != "":
		return &fieldError{"url", "is only to start; a call has one stream"}
	default:
		return nil
	}
}

// MarshalJSON writes the canonical form.
func (a *Stream) MarshalJSON() ([]byte, error) { return marshalAction(a) }

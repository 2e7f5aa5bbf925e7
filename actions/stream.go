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

var streamVerb = verb{
	name:  "stream",
	make:  func() Action { return &Stream{} },
	doc:   "Sends the call's audio to a WebSocket in the background while further actions run.",
	media: true,
	results: []result{
		{"outcome", resultWord, []string{"started", "stopped", "failed"}, "What became of it; failed where the node has no module for streams."},
	},
	example: `{"action": "stream", "url": "wss://media.example/audio", "track": "both"}`,
}

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
		{name: "op", value: choice{to: &a.Op, fallback: OpStart, words: []string{OpStart, OpStop}}, doc: "Whether to start or to stop; a call has one stream."},
		{name: "url", value: link{to: &a.URL, form: urlSocket}, doc: "The WebSocket; required to start."},
		{name: "track", value: choice{to: &a.Track, fallback: TrackInbound, words: []string{TrackInbound, TrackOutbound, TrackBoth}}, doc: "What the caller says, what the caller hears, or both."},
		{name: "bidirectional", value: boolean{to: &a.Bidirectional}, doc: "Plays what the WebSocket sends back to the caller."},
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

func (*Stream) rules() []schema {
	stop := schema{"properties": schema{"op": schema{"const": OpStop}}, "required": []string{"op"}}
	return []schema{{"if": stop, "then": schema{"not": having("url")}, "else": having("url")}}
}

// MarshalJSON writes the canonical form.
func (a *Stream) MarshalJSON() ([]byte, error) { return marshalAction(a) }

package esl

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Event is one event of a switch. It keeps the document as it came and decodes a header when it is asked for, because a controller reads about
// twenty of the two hundred headers of a channel event. An Event is immutable and safe for concurrent use.
type Event struct {
	doc     string
	fields  []field
	name    string
	channel string
}

// ParseEvent reads an event in the form that `event json` and `uuid_dump … json` give: one flat JSON object of strings.
func ParseEvent(doc string) (*Event, error) {
	fields, err := scan(doc)
	if err != nil {
		return nil, fmt.Errorf("parse event of %d bytes: %w", len(doc), err)
	}
	e := &Event{doc: doc, fields: fields}
	e.name = e.Get("Event-Name")
	e.channel = e.Get("Unique-ID")
	return e, nil
}

// Name is the Event-Name, such as CHANNEL_ANSWER.
func (e *Event) Name() string { return e.name }

// Subclass is the Event-Subclass of a CUSTOM event, such as sofia::gateway_state, and empty for all others.
func (e *Event) Subclass() string { return e.Get("Event-Subclass") }

// ChannelID is the Unique-ID of the channel that the event is about, or empty.
func (e *Event) ChannelID() string { return e.channel }

// ApplicationID is the Application-UUID of CHANNEL_EXECUTE and CHANNEL_EXECUTE_COMPLETE: the event UUID that was given to [Node.Execute].
func (e *Event) ApplicationID() string { return e.Get("Application-UUID") }

// CoreUUID names the life of the switch that raised the event; it changes with every start of FreeSWITCH.
func (e *Event) CoreUUID() string { return e.Get("Core-UUID") }

// Sequence is the Event-Sequence, which grows with every event that the switch raises, or 0 when there is none. Under load FreeSWITCH may
// deliver events of different channels out of this order (switch_event.c, switch_event_deliver_thread_pool).
func (e *Event) Sequence() uint64 {
	n, err := strconv.ParseUint(e.Get("Event-Sequence"), 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// Time is when the switch raised the event (Event-Date-Timestamp, microseconds), in UTC, or the zero time when the header is missing.
func (e *Event) Time() time.Time {
	us, err := strconv.ParseInt(e.Get("Event-Date-Timestamp"), 10, 64)
	if err != nil {
		return time.Time{}
	}
	return time.UnixMicro(us).UTC()
}

// Body is the text that came with the event: the reply of a BACKGROUND_JOB, for instance.
func (e *Event) Body() string { return e.Get("_body") }

// Variable is a channel variable, which events carry as the header "variable_" + name.
func (e *Event) Variable(name string) string { return e.Get("variable_" + name) }

// Get is the value of a header, found without regard to case, or empty. A header that occurs more than once gives its first value; one that
// holds a list gives FreeSWITCH's own notation for it, ARRAY::first|:second.
func (e *Event) Get(header string) string {
	for i := range e.fields {
		f := &e.fields[i]
		key := e.doc[f.keyStart:f.keyEnd]
		if f.keyEscaped {
			key = unescape(key)
		}
		if len(key) == len(header) && (key == header || strings.EqualFold(key, header)) {
			return e.value(f)
		}
	}
	return ""
}

// Headers calls yield with each header and value in the order they came in, until it returns false.
func (e *Event) Headers(yield func(header, value string) bool) {
	for i := range e.fields {
		f := &e.fields[i]
		key := e.doc[f.keyStart:f.keyEnd]
		if f.keyEscaped {
			key = unescape(key)
		}
		if !yield(key, e.value(f)) {
			return
		}
	}
}

func (e *Event) value(f *field) string {
	v := e.doc[f.valueStart:f.valueEnd]
	switch f.kind {
	case arrayField:
		var list []string
		if err := json.Unmarshal([]byte(v), &list); err != nil {
			return v
		}
		return "ARRAY::" + strings.Join(list, "|:")
	case stringField:
		if f.valueEscaped {
			return unescape(v)
		}
	}
	return v
}

// size is what the event costs while it waits in a queue.
func (e *Event) size() int64 { return int64(len(e.doc)) }

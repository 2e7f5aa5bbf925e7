package simswitch

import (
	"strconv"
	"strings"
	"time"
)

// header is one name and value of an event, a message or a channel variable.
type header struct{ name, value string }

// eventNames is EVENT_NAMES of switch_event.c, in its order; what `event` and `nixevent` accept.
var eventNames = strings.Fields(`CUSTOM CLONE CHANNEL_CREATE CHANNEL_DESTROY CHANNEL_STATE CHANNEL_CALLSTATE CHANNEL_ANSWER
CHANNEL_HANGUP CHANNEL_HANGUP_COMPLETE CHANNEL_EXECUTE CHANNEL_EXECUTE_COMPLETE CHANNEL_HOLD CHANNEL_UNHOLD CHANNEL_BRIDGE
CHANNEL_UNBRIDGE CHANNEL_PROGRESS CHANNEL_PROGRESS_MEDIA CHANNEL_OUTGOING CHANNEL_PARK CHANNEL_UNPARK CHANNEL_APPLICATION
CHANNEL_ORIGINATE CHANNEL_UUID API LOG INBOUND_CHAN OUTBOUND_CHAN STARTUP SHUTDOWN PUBLISH UNPUBLISH TALK NOTALK SESSION_CRASH
MODULE_LOAD MODULE_UNLOAD DTMF MESSAGE PRESENCE_IN NOTIFY_IN PRESENCE_OUT PRESENCE_PROBE MESSAGE_WAITING MESSAGE_QUERY ROSTER
CODEC BACKGROUND_JOB DETECTED_SPEECH DETECTED_TONE PRIVATE_COMMAND HEARTBEAT TRAP ADD_SCHEDULE DEL_SCHEDULE EXE_SCHEDULE
RE_SCHEDULE RELOADXML NOTIFY PHONE_FEATURE PHONE_FEATURE_SUBSCRIBE SEND_MESSAGE RECV_MESSAGE REQUEST_PARAMS CHANNEL_DATA GENERAL
COMMAND SESSION_HEARTBEAT CLIENT_DISCONNECTED SERVER_DISCONNECTED SEND_INFO RECV_INFO RECV_RTCP_MESSAGE SEND_RTCP_MESSAGE
CALL_SECURE NAT RECORD_START RECORD_STOP PLAYBACK_START PLAYBACK_STOP CALL_UPDATE FAILURE SOCKET_DATA MEDIA_BUG_START
MEDIA_BUG_STOP CONFERENCE_DATA_QUERY CONFERENCE_DATA CALL_SETUP_REQ CALL_SETUP_RESULT CALL_DETAIL DEVICE_STATE TEXT
SHUTDOWN_REQUESTED ALL`)

// eventID is the place of an event in eventNames.
type eventID uint8

const maxEvents = 128

var eventIDs = func() map[string]eventID {
	ids := make(map[string]eventID, len(eventNames))
	for i, name := range eventNames {
		ids[name] = eventID(i)
	}
	return ids
}()

// parseEventName is switch_name_event: any case, with or without the SWITCH_EVENT_ prefix.
func parseEventName(s string) (eventID, bool) {
	s = strings.TrimPrefix(strings.ToUpper(s), "SWITCH_EVENT_")
	id, ok := eventIDs[s]
	return id, ok
}

func mustEvent(name string) eventID {
	id, ok := eventIDs[name]
	if !ok {
		panic("simswitch: no event named " + name)
	}
	return id
}

var (
	evCustom          = mustEvent("CUSTOM")
	evCreate          = mustEvent("CHANNEL_CREATE")
	evDestroy         = mustEvent("CHANNEL_DESTROY")
	evState           = mustEvent("CHANNEL_STATE")
	evCallState       = mustEvent("CHANNEL_CALLSTATE")
	evAnswer          = mustEvent("CHANNEL_ANSWER")
	evHangup          = mustEvent("CHANNEL_HANGUP")
	evHangupComplete  = mustEvent("CHANNEL_HANGUP_COMPLETE")
	evExecute         = mustEvent("CHANNEL_EXECUTE")
	evExecuteComplete = mustEvent("CHANNEL_EXECUTE_COMPLETE")
	evBridge          = mustEvent("CHANNEL_BRIDGE")
	evUnbridge        = mustEvent("CHANNEL_UNBRIDGE")
	evProgress        = mustEvent("CHANNEL_PROGRESS")
	evProgressMedia   = mustEvent("CHANNEL_PROGRESS_MEDIA")
	evOutgoing        = mustEvent("CHANNEL_OUTGOING")
	evPark            = mustEvent("CHANNEL_PARK")
	evUnpark          = mustEvent("CHANNEL_UNPARK")
	evOriginate       = mustEvent("CHANNEL_ORIGINATE")
	evShutdown        = mustEvent("SHUTDOWN")
	evDTMF            = mustEvent("DTMF")
	evBackgroundJob   = mustEvent("BACKGROUND_JOB")
	evPrivateCommand  = mustEvent("PRIVATE_COMMAND")
	evHeartbeat       = mustEvent("HEARTBEAT")
	evReloadXML       = mustEvent("RELOADXML")
	evChannelData     = mustEvent("CHANNEL_DATA")
	evRecordStart     = mustEvent("RECORD_START")
	evRecordStop      = mustEvent("RECORD_STOP")
	evPlaybackStart   = mustEvent("PLAYBACK_START")
	evPlaybackStop    = mustEvent("PLAYBACK_STOP")
	evAll             = mustEvent("ALL")
)

// verboseEvents carry every channel variable (switch_channel_event_set_extended_data in switch_channel.c).
var verboseEvents = func() (verbose [maxEvents]bool) {
	for _, id := range []eventID{evCreate, evOriginate, evAnswer, evPark, evUnpark, evBridge, evUnbridge, evProgress,
		evProgressMedia, evHangup, evHangupComplete, evChannelData, evExecute, evExecuteComplete, evDestroy, evRecordStart,
		evRecordStop, evPlaybackStart, evPlaybackStop, evCustom} {
		verbose[id] = true
	}
	return verbose
}()

// origin is the place in FreeSWITCH's sources that raises an event, as its headers tell.
type origin struct{ file, function string }

// event is one event under construction.
type event struct {
	id       eventID
	subclass string
	headers  []header
	body     string
	hasBody  bool
	// basic leaves the variables of a channel out.
	basic bool
}

func (e *event) add(name, value string) { e.headers = append(e.headers, header{name, value}) }

// get finds a header in any case, as switch_event_get_header does.
func (e *event) get(name string) (string, bool) {
	return lookup(e.headers, name)
}

func lookup(headers []header, name string) (string, bool) {
	for i := range headers {
		if len(headers[i].name) == len(name) && strings.EqualFold(headers[i].name, name) {
			return headers[i].value, true
		}
	}
	return "", false
}

// begin adds the headers that every event starts with (switch_event_prep_for_delivery).
func (s *Switch) begin(e *event, from origin) {
	now := s.clock.now().UTC()
	e.add("Event-Name", eventNames[e.id])
	if e.subclass != "" {
		e.add("Event-Subclass", e.subclass)
	}
	e.add("Core-UUID", s.core)
	e.add("FreeSWITCH-Hostname", s.hostname)
	e.add("FreeSWITCH-Switchname", s.hostname)
	e.add("FreeSWITCH-IPv4", "127.0.0.1")
	e.add("FreeSWITCH-IPv6", "::1")
	e.add("Event-Date-Local", now.Format(time.DateTime))
	e.add("Event-Date-GMT", now.Format("Mon, 02 Jan 2006 15:04:05 GMT"))
	e.add("Event-Date-Timestamp", strconv.FormatInt(now.UnixMicro(), 10))
	e.add("Event-Calling-File", from.file)
	e.add("Event-Calling-Function", from.function)
	e.add("Event-Calling-Line-Number", "1")
	e.add("Event-Sequence", strconv.FormatUint(s.sequence.Add(1), 10))
}

// appendJSON is switch_event_serialize_json: a flat object in header order, the body last.
func (e *event) appendJSON(b []byte) []byte {
	b = append(b, '{')
	for i := range e.headers {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendJSONString(b, e.headers[i].name)
		b = append(b, ':')
		b = appendJSONValue(b, e.headers[i].value)
	}
	if e.hasBody {
		b = append(b, `,"Content-Length":"`...)
		b = strconv.AppendInt(b, int64(len(e.body)), 10)
		b = append(b, `","_body":`...)
		b = appendJSONString(b, e.body)
	}
	return append(b, '}')
}

// arrayMark begins the value of a variable that holds several, with arrayComma between them (switch_event.c,
// switch_event_add_array).
const (
	arrayMark  = "ARRAY::"
	arrayComma = "|:"
)

// arrayValue is the value of a variable that was pushed to: plain for one item.
func arrayValue(items []string) string {
	if len(items) < 2 {
		return strings.Join(items, "")
	}
	return arrayMark + strings.Join(items, arrayComma)
}

// appendJSONValue writes a string, or an array for a value that holds several.
func appendJSONValue(b []byte, s string) []byte {
	items, ok := strings.CutPrefix(s, arrayMark)
	if !ok {
		return appendJSONString(b, s)
	}
	b = append(b, '[')
	for i, item := range strings.Split(items, arrayComma) {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendJSONString(b, item)
	}
	return append(b, ']')
}

// appendJSONString is cJSON's print_string_ptr: only the quote, the backslash and control characters are escaped.
func appendJSONString(b []byte, s string) []byte {
	const hex = "0123456789abcdef"
	b = append(b, '"')
	start := 0
	for i := range len(s) {
		ch := s[i]
		if ch >= 0x20 && ch != '"' && ch != '\\' {
			continue
		}
		b = append(b, s[start:i]...)
		start = i + 1
		switch ch {
		case '"', '\\':
			b = append(b, '\\', ch)
		case '\n':
			b = append(b, '\\', 'n')
		case '\r':
			b = append(b, '\\', 'r')
		case '\t':
			b = append(b, '\\', 't')
		case '\b':
			b = append(b, '\\', 'b')
		case '\f':
			b = append(b, '\\', 'f')
		default:
			b = append(b, '\\', 'u', '0', '0', hex[ch>>4], hex[ch&15])
		}
	}
	b = append(b, s[start:]...)
	return append(b, '"')
}

// appendPlain is switch_event_serialize with encoding: a line per header, and the body after a blank line.
func (e *event) appendPlain(b []byte) []byte {
	for i := range e.headers {
		b = append(b, e.headers[i].name...)
		b = append(b, ": "...)
		b = appendURLEncoded(b, e.headers[i].value)
		b = append(b, '\n')
	}
	if e.hasBody {
		b = append(b, "Content-Length: "...)
		b = strconv.AppendInt(b, int64(len(e.body)), 10)
		b = append(b, "\n\n"...)
		return append(b, e.body...)
	}
	return append(b, '\n')
}

// appendURLEncoded is switch_url_encode (switch_utils.c), with its flaw: what already looks like %XX is left as it is.
func appendURLEncoded(b []byte, s string) []byte {
	const hex = "0123456789ABCDEF"
	const unsafe = "\r\n #%&+:;<=>?@[\\]^`{|}\""
	for i := range len(s) {
		ch := s[i]
		if ch == '%' && i+2 < len(s) && strings.IndexByte(hex, s[i+1]) >= 0 && strings.IndexByte(hex, s[i+2]) >= 0 {
			b = append(b, ch)
			continue
		}
		if ch < ' ' || ch > '~' || strings.IndexByte(unsafe, ch) >= 0 {
			b = append(b, '%', hex[ch>>4], hex[ch&15])
			continue
		}
		b = append(b, ch)
	}
	return b
}

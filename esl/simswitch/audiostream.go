package simswitch

import "strings"

const audioStreamUsage = "-USAGE: <uuid> start <wss-url> [mono | mixed | stereo] [8000 | 16000] [metadata] | stop | pause | resume | send_text <text>\n"

var fromAudioStream = origin{"mod_audio_stream.c", "responseHandler"}

// uuidAudioStream is stream_function of mod_audio_stream, a module that is not part of FreeSWITCH, as its documentation tells; a switch
// has it only where its Config names it. Nothing is sent anywhere: every server is taken to answer.
func (s *Switch) uuidAudioStream(arg string) string {
	words := separate(arg, ' ', 6)
	if len(words) < 2 {
		return audioStreamUsage
	}
	c := s.channel(words[0])
	if c == nil {
		return "-ERR Operation Failed\n"
	}
	var done bool
	switch words[1] {
	case "start":
		if len(words) < 4 || !strings.HasPrefix(words[2], "ws://") && !strings.HasPrefix(words[2], "wss://") {
			s.log.Error("uuid_audio_stream needs a ws or wss address and a mix", "channel", c.uuid)
			return audioStreamUsage
		}
		done = c.startStream(words[2])
	case "stop":
		c.mu.Lock()
		done = c.endStreamLocked()
		c.mu.Unlock()
	case "pause", "resume", "send_text":
		c.mu.Lock()
		done = c.stream != ""
		c.mu.Unlock()
	default:
		return audioStreamUsage
	}
	if !done {
		return "-ERR Operation Failed\n"
	}
	return "+OK Success\n"
}

func (c *channel) startStream(url string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stream != "" || c.cause != causeNone || !c.hasMedia {
		return false
	}
	c.stream = url
	c.fireStreamLocked("mod_audio_stream::connect", `{"status":"connected"}`)
	return true
}

func (c *channel) endStreamLocked() bool {
	if c.stream == "" {
		return false
	}
	c.stream = ""
	c.fireStreamLocked("mod_audio_stream::disconnect", `{"status":"disconnected"}`)
	return true
}

func (c *channel) fireStreamLocked(subclass, body string) {
	c.sw.fire(evCustom, subclass, fromAudioStream, func(e *event) {
		c.dataLocked(e)
		e.body, e.hasBody = body, true
	})
}

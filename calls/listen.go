package calls

import (
	"encoding/json"
	"encoding/xml"
	"strconv"
	"strings"

	"tandem/actions"
	"tandem/esl"
)

// Recognizer is a speech recognizer that the operator has given the nodes: a module of FreeSWITCH with an ASR interface.
type Recognizer struct {
	// Engine is the name of its interface, such as vosk; empty where there is none.
	Engine string
	// Module is the module that has it, such as mod_vosk.
	Module string
}

// canListen says whether the node understands speech, and tells when it does not.
func (s *session) canListen(a *actions.Gather) (bool, error) {
	if s.m.cfg.Recognizer.Engine == "" {
		return false, s.fail(a, codeNotSupported, "input", "this service has no speech recognizer; ask for digits only")
	}
	return s.hasModule(a, s.m.cfg.Recognizer.Module, "input", "this node has no speech recognizer: it has no "+s.m.cfg.Recognizer.Module)
}

// listen gathers what the caller says. Where digits will do as well, the first key ends the listening and the rest is typed.
func (s *session) listen(a *actions.Gather, heard esl.Prompt) (map[string]any, error) {
	app, build := esl.DetectSpeech(esl.Recognition{
		Engine: s.m.cfg.Recognizer.Engine, Language: a.Speech.Language, Prompt: heard, NoInput: a.Timeout, EndSilence: a.Speech.EndSilence,
		Limit: a.Speech.MaxSeconds,
	})
	if !a.Hears(actions.InputDigits) {
		done, err := s.mediaUntil(app, build, noTerminators, false, s.tearOut)
		if err != nil {
			return nil, err
		}
		return speechResult(done), nil
	}
	outer := s.until
	s.keys = ""
	s.until = func() bool { return s.keys != "" || outer != nil && outer() }
	done, err := s.mediaUntil(app, build, noTerminators, false, s.tearOut)
	s.until = outer
	if err != nil {
		return nil, err
	}
	if s.keys == "" {
		return speechResult(done), nil
	}
	return s.typeOn(a, s.keys)
}

// typeOn gathers the rest of an answer whose first keys ended the listening. The switch has thrown these away: what listens takes every
// key off the channel, and a key's event is raised when it is taken (switch_ivr_async.c, play_and_detect_input_callback;
// switch_channel.c, switch_channel_dequeue_dtmf).
func (s *session) typeOn(a *actions.Gather, typed string) (map[string]any, error) {
	if at := strings.IndexAny(typed, a.FinishOnKey); at >= 0 {
		return digitsResult(a, typed[:at], typed[at:at+1]), nil
	}
	if len(typed) >= a.MaxDigits {
		return digitsResult(a, typed[:a.MaxDigits], ""), nil
	}
	if !a.Sensitive {
		var at gatherState
		s.recalls(&at)
		s.remember(gatherState{Try: at.Try, Typed: typed})
	}
	return s.gatherDigits(a, esl.Prompt{}, typed)
}

// speechResult reads what a recognizer understood.
func speechResult(done attributes) map[string]any {
	switch done.Get("Application-Response") {
	case "ASR INIT ERROR", "GRAMMAR ERROR", "USAGE ERROR":
		return map[string]any{"outcome": "failed"}
	}
	text, confidence := readSpeech(done.Variable("detect_speech_result"))
	if text == "" {
		return map[string]any{"outcome": "timeout"}
	}
	return map[string]any{"outcome": "speech", "speech": map[string]any{"text": text, "confidence": confidence}}
}

// readSpeech reads the answer of a recognizer: vosk's JSON, an NLSML document (draft-ietf-speechsc-mrcpv2, which unimrcp passes on), or
// plain text. The confidence is 0 where none is given.
func readSpeech(raw string) (text string, confidence float64) {
	raw = strings.TrimSpace(raw)
	switch {
	case strings.HasPrefix(raw, "{"):
		var answer struct {
			Text         string `json:"text"`
			Alternatives []struct {
				Text       string  `json:"text"`
				Confidence float64 `json:"confidence"`
			} `json:"alternatives"`
			Result []struct {
				Confidence float64 `json:"conf"`
			} `json:"result"`
		}
		if err := json.Unmarshal([]byte(raw), &answer); err != nil {
			return "", 0
		}
		if len(answer.Alternatives) > 0 {
			return strings.TrimSpace(answer.Alternatives[0].Text), share(answer.Alternatives[0].Confidence)
		}
		for _, word := range answer.Result {
			confidence += word.Confidence / float64(len(answer.Result))
		}
		return strings.TrimSpace(answer.Text), share(confidence)
	case strings.HasPrefix(raw, "<"):
		var answer struct {
			Interpretation []struct {
				Confidence string `xml:"confidence,attr"`
				Input      string `xml:"input"`
				Instance   string `xml:"instance"`
			} `xml:"interpretation"`
		}
		if err := xml.Unmarshal([]byte(raw), &answer); err != nil || len(answer.Interpretation) == 0 {
			return "", 0
		}
		best := answer.Interpretation[0]
		text = strings.TrimSpace(best.Input)
		if text == "" {
			text = strings.TrimSpace(best.Instance)
		}
		value, err := strconv.ParseFloat(best.Confidence, 64)
		if err != nil {
			value = 0
		}
		return text, share(value)
	default:
		return raw, 0
	}
}

// share brings a confidence, which some recognizers give in percent, between 0 and 1.
func share(confidence float64) float64 {
	if confidence > 1 {
		confidence /= 100
	}
	return min(max(confidence, 0), 1)
}

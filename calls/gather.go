package calls

import (
	"context"
	"maps"
	"slices"
	"strings"

	"tandem/actions"
	"tandem/esl"
)

// doGather plays the prompt and gathers digits or speech, as often as tries allows. Each try is one application; what the digits may
// be is decided here, so that a wrong answer can be told from none.
func (s *session) doGather(a *actions.Gather) (outcome, error) {
	if a.Hears(actions.InputSpeech) {
		if ok, err := s.canListen(a); err != nil || !ok {
			return outcome{result: map[string]any{"outcome": "failed"}}, err
		}
	}
	prompt, failure, err := s.prompt(a, a.Prompt, "prompt")
	if err != nil || failure {
		return outcome{result: map[string]any{"outcome": "failed"}}, err
	}
	invalid, failure, err := s.prompt(a, a.InvalidPrompt, "invalid_prompt")
	if err != nil || failure {
		return outcome{result: map[string]any{"outcome": "failed"}}, err
	}
	if !a.Sensitive {
		result, err := s.gatherTries(a, prompt, invalid)
		return outcome{result: result}, err
	}
	return s.gatherSensitive(a, prompt, invalid)
}

// gatherState is what a gather needs to go on: the try, and what was typed before the application that runs.
type gatherState struct {
	Try   int    `json:"try"`
	Typed string `json:"typed,omitempty"`
}

// gatherTries gathers answers until one fits.
func (s *session) gatherTries(a *actions.Gather, prompt, invalid esl.Prompt) (result map[string]any, err error) {
	var at gatherState
	s.recalls(&at)
	for try := max(1, at.Try); try <= a.Tries; try++ {
		heard := prompt
		if try > 1 {
			heard = esl.Prompts(invalid, prompt)
		}
		if at.Typed != "" {
			// It was taken over while the rest of what had begun as listening was typed.
			result, err = s.gatherDigits(a, esl.Prompt{}, at.Typed)
		} else {
			s.remember(gatherState{Try: try})
			result, err = s.gatherOnce(a, heard)
		}
		if err != nil {
			return nil, err
		}
		at = gatherState{}
		result["tries"] = try
		if s.interrupted() {
			result["outcome"] = reasonInterrupted
			break
		}
		if outcome := result["outcome"]; outcome == "digits" || outcome == "speech" || outcome == "failed" {
			break
		}
	}
	return result, nil
}

// gatherSensitive gathers what nobody but the application that asked is told: no event, no later request, no recording and no log
// of ours holds it.
func (s *session) gatherSensitive(a *actions.Gather, prompt, invalid esl.Prompt) (outcome, error) {
	unmask, err := s.maskTapes()
	if err != nil {
		return outcome{}, err
	}
	s.private = true
	defer func() { s.private = false }()
	result, err := s.gatherTries(a, prompt, invalid)
	if err != nil {
		return outcome{}, err
	}
	if err := unmask(); err != nil {
		return outcome{}, err
	}
	masked := maps.Clone(result)
	for _, secret := range []string{"digits", "speech", "terminator"} {
		delete(masked, secret)
	}
	return outcome{result: result, masked: masked}, nil
}

// gatherOnce gathers one answer.
func (s *session) gatherOnce(a *actions.Gather, heard esl.Prompt) (map[string]any, error) {
	if err := s.setPromptVariables(heard, s.voiceOf(a)); err != nil {
		return nil, err
	}
	if a.Hears(actions.InputSpeech) {
		return s.listen(a, heard)
	}
	return s.gatherDigits(a, heard, "")
}

// gatherDigits gathers what the caller types, after what was typed already.
func (s *session) gatherDigits(a *actions.Gather, heard esl.Prompt, typed string) (map[string]any, error) {
	id := s.nextID()
	variable := "tandem_digits_" + id[strings.LastIndexByte(id, '-')+1:] // of this gather alone, and known to whoever takes over
	timeout := a.Timeout
	if typed != "" {
		timeout = a.DigitTimeout
	}
	app, build := esl.PlayAndGetDigits(esl.Digits{
		Min: 1, Max: a.MaxDigits - len(typed), Tries: 1, Timeout: timeout, DigitTimeout: a.DigitTimeout, Terminators: a.FinishOnKey,
		Prompt: heard, Variable: variable,
	})
	fresh := s.resumed == nil
	// A break only ends the prompt, and leaves the switch listening; the park ends both.
	done, err := s.mediaUntil(app, build, noTerminators, false, s.tearOut)
	if err != nil {
		return nil, err
	}
	result := digitsResult(a, typed+done.Variable(variable), done.Variable("read_terminator_used"))
	if a.Sensitive && !fresh && result["digits"] == "" && result["terminator"] == nil && !s.interrupted() {
		// An earlier controller may have taken the digits off the channel before it died.
		return s.gatherDigits(a, heard, typed)
	}
	if a.Sensitive {
		s.hide(variable)
	}
	return result, nil
}

// digitsResult is the result of digits and of the key that ended them, if one did.
func digitsResult(a *actions.Gather, digits, key string) map[string]any {
	result := map[string]any{"digits": digits, "outcome": digitsOutcome(a, digits, key)}
	if key != "" {
		result["terminator"] = key
	}
	return result
}

// hide empties a variable of the channel that held a secret: later events of the channel would carry it.
func (s *session) hide(variable string) {
	ctx, cancel := s.command()
	defer cancel()
	for _, name := range []string{variable, "read_result", "digits_dialed"} {
		if err := s.node.sw.SetVariable(ctx, s.channel, name, ""); err != nil {
			s.log.Warn("variable not emptied", "error", err)
			return
		}
	}
}

// digitsOutcome judges what the caller typed.
func digitsOutcome(a *actions.Gather, digits, key string) string {
	switch {
	case digits == "" && key == "":
		return "timeout"
	case len(digits) < a.MinDigits:
		return "invalid"
	case a.ValidDigits != "" && strings.Trim(digits, a.ValidDigits) != "":
		return "invalid"
	default:
		return "digits"
	}
}

// prompt turns say and play actions into one prompt that digits interrupt. failed says that a part could not be had, which was told.
func (s *session) prompt(a actions.Action, list []actions.Action, field string) (heard esl.Prompt, failed bool, err error) {
	return s.promptFor(a.Verb(), list, field)
}

// promptFor is prompt for the action of that verb at the cursor.
func (s *session) promptFor(verb string, list []actions.Action, field string) (heard esl.Prompt, failed bool, err error) {
	var parts []esl.Prompt
	for _, action := range list {
		part, loops, failure, err := s.promptPart(action)
		if err != nil {
			return esl.Prompt{}, false, err
		}
		if failure != nil {
			return esl.Prompt{}, true, s.failVerb(verb, soundCode(failure), field, failure.Error())
		}
		for range max(1, loops) {
			parts = append(parts, part)
		}
	}
	return esl.Prompts(parts...), false, nil
}

// promptPart is one say or play of a prompt, and how often it is heard.
func (s *session) promptPart(action actions.Action) (part esl.Prompt, loops int, failure, err error) {
	switch a := action.(type) {
	case *actions.Say:
		spoken, failure, err := s.prepareSpeech(a)
		if err != nil || failure != nil {
			return part, 0, failure, err
		}
		part, err = spoken.prompt()
		return part, a.Loop, nil, err
	case *actions.Play:
		if a.Tone != "" {
			spec, _ := actions.ToneSpec(a.Tone)
			part, err = esl.TonePrompt(spec)
			return part, a.Loop, nil, err
		}
		files, failure, err := s.fetchFiles(a.URLs)
		if err != nil || failure != nil {
			return part, 0, failure, err
		}
		for _, file := range files {
			one, err := esl.FilePrompt(file)
			if err != nil {
				return part, 0, nil, err
			}
			part = esl.Prompts(part, one)
		}
		return part, a.Loop, nil, nil
	}
	return part, 0, nil, nil
}

// setPromptVariables tells the channel how to speak a prompt and where one ends and the next begins.
func (s *session) setPromptVariables(heard esl.Prompt, voice string) error {
	if heard.Parts() == 0 || s.promptVoice == voice {
		return nil
	}
	variables := []esl.Var{{Name: "tts_voice", Value: voice}}
	if s.promptVoice == "" {
		variables = append(variables, esl.Var{Name: "tts_engine", Value: switchEngine(s.m.cfg.VoiceEngine)}, esl.Var{Name: "playback_delimiter", Value: esl.PromptDelimiter})
	}
	for _, v := range variables {
		err := s.order("set up prompts", func(ctx context.Context) error {
			return s.node.sw.SetVariable(ctx, s.channel, v.Name, v.Value)
		})
		if err != nil {
			return err
		}
	}
	s.promptVoice = voice
	return nil
}

// voiceOf is the voice of a prompt: that of its first text which names one. A prompt has one voice.
func (s *session) voiceOf(a *actions.Gather) string {
	if s.m.cfg.VoiceEngine == EngineHTTP {
		return fallbackVoice // what is not a file is spoken by the switch, in the voice that it has
	}
	return firstVoice(slices.Concat(a.Prompt, a.InvalidPrompt), s.m.cfg.Voice)
}

// firstVoice is the first voice that a list names, or the fallback.
func firstVoice(list []actions.Action, fallback string) string {
	for _, action := range list {
		if say, ok := action.(*actions.Say); ok && say.Voice != "" {
			return say.Voice
		}
	}
	return fallback
}

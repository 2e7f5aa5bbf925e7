package calls

import (
	"context"
	"slices"
	"strconv"
	"strings"

	"tandem/actions"
	"tandem/esl"
)

// doGather plays the prompt and gathers digits, as often as tries allows. Each try is one application; what the digits may
// be is decided here, so that a wrong answer can be told from none.
func (s *session) doGather(a *actions.Gather) (outcome, error) {
	prompt, failure, err := s.prompt(a, a.Prompt, "prompt")
	if err != nil || failure {
		return outcome{}, err
	}
	invalid, failure, err := s.prompt(a, a.InvalidPrompt, "invalid_prompt")
	if err != nil || failure {
		return outcome{}, err
	}
	var result map[string]any
	for try := 1; try <= a.Tries; try++ {
		heard := prompt
		if try > 1 {
			heard = esl.Prompts(invalid, prompt)
		}
		if result, err = s.gatherOnce(a, heard); err != nil {
			return outcome{}, err
		}
		result["tries"] = try
		if result["outcome"] == "digits" {
			break
		}
	}
	return outcome{result: result}, nil
}

// gatherOnce gathers one answer.
func (s *session) gatherOnce(a *actions.Gather, heard esl.Prompt) (map[string]any, error) {
	if err := s.setPromptVariables(heard, s.voiceOf(a)); err != nil {
		return nil, err
	}
	s.gathers++
	variable := "tandem_digits_" + strconv.Itoa(s.gathers)
	app, build := esl.PlayAndGetDigits(esl.Digits{
		Min: 1, Max: a.MaxDigits, Tries: 1, Timeout: a.Timeout, DigitTimeout: a.DigitTimeout, Terminators: a.FinishOnKey,
		Prompt: heard, Variable: variable,
	})
	done, err := s.media(app, build, noTerminators, false)
	if err != nil {
		return nil, err
	}
	digits := done.Variable(variable)
	key := done.Variable("read_terminator_used")
	result := map[string]any{"digits": digits, "outcome": digitsOutcome(a, digits, key)}
	if key != "" {
		result["terminator"] = key
	}
	return result, nil
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

// prompt turns say and play actions into one prompt that digits interrupt. failed says that a file could not be had, which
// was told.
func (s *session) prompt(a actions.Action, list []actions.Action, field string) (heard esl.Prompt, failed bool, err error) {
	return s.promptFor(a.Verb(), list, field)
}

// promptFor is prompt for the action of that verb at the cursor.
func (s *session) promptFor(verb string, list []actions.Action, field string) (heard esl.Prompt, failed bool, err error) {
	var parts []esl.Prompt
	for _, action := range list {
		switch part := action.(type) {
		case *actions.Say:
			spoken, err := esl.SpeechPrompt(part.Text)
			if err != nil {
				return esl.Prompt{}, false, err
			}
			for range max(1, part.Loop) {
				parts = append(parts, spoken)
			}
		case *actions.Play:
			files, failure, err := s.fetchFiles(part.URLs)
			if err != nil {
				return esl.Prompt{}, false, err
			}
			if failure != nil {
				return esl.Prompt{}, true, s.failVerb(verb, field, failure.Error())
			}
			for range max(1, part.Loop) {
				for _, file := range files {
					played, err := esl.FilePrompt(file)
					if err != nil {
						return esl.Prompt{}, false, err
					}
					parts = append(parts, played)
				}
			}
		}
	}
	return esl.Prompts(parts...), false, nil
}

// setPromptVariables tells the channel how to speak a prompt and where one ends and the next begins.
func (s *session) setPromptVariables(heard esl.Prompt, voice string) error {
	if heard.Parts() == 0 || s.promptVoice == voice {
		return nil
	}
	variables := []esl.Var{{Name: "tts_voice", Value: voice}}
	if s.promptVoice == "" {
		variables = append(variables, esl.Var{Name: "tts_engine", Value: s.m.cfg.VoiceEngine}, esl.Var{Name: "playback_delimiter", Value: esl.PromptDelimiter})
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

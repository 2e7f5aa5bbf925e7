package esl

import (
	"cmp"
	"strconv"
	"strings"
	"time"
)

// PromptDelimiter must be the channel's playback_delimiter variable before a [Prompt] is played: the switch then splits the prompt there, and
// unescapes each part (switch_ivr_play_say.c, switch_ivr_play_file).
const PromptDelimiter = "!"

// Prompt is what a caller hears while digits are gathered. Its zero value is silence; any other needs [PromptDelimiter].
type Prompt struct {
	parts []string
}

// FilePrompt plays a file of ours.
func FilePrompt(path string) (Prompt, error) {
	if err := checkFile("file", path); err != nil {
		return Prompt{}, err
	}
	return Prompt{parts: []string{path}}, nil
}

// SpeechPrompt says a text with the engine and voice that the channel variables tts_engine and tts_voice name
// (switch_ivr_play_say.c, switch_ivr_play_file). The text is treated as in [Speak].
func SpeechPrompt(text string) (Prompt, error) {
	spoken, err := speech(text)
	if err != nil {
		return Prompt{}, err
	}
	return Prompt{parts: []string{"say:" + spoken}}, nil
}

// TonePrompt plays a tone in FreeSWITCH's notation (TGML) once.
func TonePrompt(spec string) (Prompt, error) {
	if err := checkPattern("tone", spec, tonePattern, "a tone such as %%(500,0,640)"); err != nil {
		return Prompt{}, err
	}
	return Prompt{parts: []string{"tone_stream://" + spec}}, nil
}

// Prompts plays prompts one after the other.
func Prompts(prompts ...Prompt) Prompt {
	var all Prompt
	for _, p := range prompts {
		all.parts = append(all.parts, p.parts...)
	}
	return all
}

// Parts is how many files and texts the prompt plays.
func (p Prompt) Parts() int { return len(p.parts) }

// word writes the prompt as one argument among several. A part is escaped for the delimiter even when it is the only one: on a channel whose
// playback_delimiter is set, what follows a "!" in a text would be the name of a file.
func (p Prompt) word(silence string) string {
	if len(p.parts) == 0 {
		return silence
	}
	return escapeWord(p.joined(func(part string) string { return part }))
}

// joined writes the prompt as one argument of its own, each part edited first.
func (p Prompt) joined(edit func(part string) string) string {
	parts := make([]string, len(p.parts))
	for i, part := range p.parts {
		parts[i] = escapeLayer(edit(part), PromptDelimiter[0])
	}
	return strings.Join(parts, PromptDelimiter)
}

// Digits is what [PlayAndGetDigits] gathers.
type Digits struct {
	Min, Max     int           // how many digits: 0 to 128, Max at least 1
	Tries        int           // 1 to 10; default 1
	Timeout      time.Duration // for the first digit, at least 1 s (FreeSWITCH's own floor); default 5 s
	DigitTimeout time.Duration // between digits; default Timeout
	Terminators  string        // digits that end the input; empty: none
	Prompt       Prompt
	Invalid      Prompt // played after a try that did not match
	Variable     string // the channel variable that holds the digits afterwards
	Regexp       string // what the digits must match; empty: any digits. The switch searches: anchor it with ^ and $
}

// PlayAndGetDigits plays a prompt and gathers digits into a channel variable, which is unset when none matched
// (mod_dptools.c, play_and_get_digits_function).
func PlayAndGetDigits(d Digits) (App, error) {
	switch {
	case d.Min < 0 || d.Min > 128:
		return App{}, refuse("min_digits", "must be from 0 to 128")
	case d.Max < 1 || d.Max > 128 || d.Max < d.Min:
		return App{}, refuse("max_digits", "must be from 1 to 128 and not below min_digits")
	}
	tries := cmp.Or(d.Tries, 1)
	if tries < 1 || tries > 10 {
		return App{}, refuse("tries", "must be from 1 to 10")
	}
	timeout, err := milliseconds("timeout", cmp.Or(d.Timeout, 5*time.Second), time.Second, 10*time.Minute)
	if err != nil {
		return App{}, err
	}
	between, err := milliseconds("digit_timeout", cmp.Or(d.DigitTimeout, d.Timeout, 5*time.Second), 100*time.Millisecond, 10*time.Minute)
	if err != nil {
		return App{}, err
	}
	// FreeSWITCH reads no terminators as "#". A letter that no phone sends is the way to say none.
	terminators := cmp.Or(d.Terminators, "X")
	if d.Terminators != "" && strings.Trim(d.Terminators, "0123456789ABCD*#") != "" {
		return App{}, refuse("terminators", "must be digits, A-D, * or #")
	}
	if err := checkVariableName("variable", d.Variable); err != nil {
		return App{}, err
	}
	expression := cmp.Or(d.Regexp, ".*")
	if err := checkRegexp(expression); err != nil {
		return App{}, err
	}
	return App{name: "play_and_get_digits", args: strings.Join([]string{
		strconv.Itoa(d.Min), strconv.Itoa(d.Max), strconv.Itoa(tries), timeout, terminators,
		d.Prompt.word("silence"), d.Invalid.word("silence_stream://1"), d.Variable, escapeWord(expression), between,
	}, " ")}, nil
}

// checkRegexp accepts expressions over digits: what a phone can send, classes, groups, alternatives and repetition.
func checkRegexp(expression string) error {
	if len(expression) > 512 || strings.Trim(expression, `0123456789ABCDd*#+?.,|()[]{}^$\-`) != "" {
		return refuse("regexp", "must be an expression over digits, A-D, * and #, of at most 512 bytes")
	}
	if hasExpansion(expression) {
		return refuse("regexp", "holds ${, which the switch would expand")
	}
	return nil
}

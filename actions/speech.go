package actions

import (
	"fmt"
	"time"
)

// Bounds of the hints of a Speech.
const (
	maxHints     = 100
	maxHintRunes = 100
)

// Speech says how a gather listens to what the caller says.
type Speech struct {
	// Language is a language tag such as "en-US".
	Language string
	// Hints are words and phrases that are likely, at most 100.
	Hints []string
	// EndSilence is the silence that ends the caller's answer.
	EndSilence time.Duration
	// MaxSeconds ends the listening.
	MaxSeconds time.Duration
}

func (s *Speech) fields() []field {
	return []field{
		{name: "language", value: text{to: &s.Language, fallback: "en-US", max: 35, rule: word}, doc: "The language that is spoken, as a tag such as de-DE."},
		{name: "hints", value: phrases{to: &s.Hints}, doc: "Words and phrases that are likely."},
		{name: "end_silence", value: seconds{to: &s.EndSilence, fallback: 2 * time.Second, min: 500 * time.Millisecond, max: 10 * time.Second}, doc: "The silence that ends the answer."},
		{name: "max_seconds", value: seconds{to: &s.MaxSeconds, fallback: time.Minute, min: time.Second, max: 5 * time.Minute}, doc: "Ends the listening."},
	}
}

// listening is a Speech as the field of a gather. It is written only when the gather listens.
type listening struct {
	to     *Speech
	gather *Gather
}

func (l listening) reset() { *l.to = Speech{} }

func (l listening) decode(p *parser, n *node) error {
	l.reset()
	if n.none() {
		return nil
	}
	if n.kind != kindObject {
		return fmt.Errorf("must be %s, was %s", l.allowed(), n.describe())
	}
	return p.object(n, l.to.fields())
}

func (l listening) encode() (any, bool) {
	if !l.gather.Hears(InputSpeech) {
		return nil, false
	}
	return encodeTable(l.to.fields()), true
}

func (listening) allowed() string {
	return "an object with language, hints, end_silence and max_seconds"
}

func (listening) schema() schema {
	return schema{"anyOf": []schema{none(), object((&Speech{}).fields())}}
}

// phrases is a list of things a caller may say.
type phrases struct{ to *[]string }

func (h phrases) reset() { *h.to = nil }

func (h phrases) decode(p *parser, n *node) error {
	if n.kind != kindList || len(n.items) > maxHints {
		return fmt.Errorf("must be %s, was %s", h.allowed(), n.describe())
	}
	var list []string
	for i, item := range n.items {
		var phrase string
		if err := p.decode(fmt.Sprintf("[%d]", i), text{to: &phrase, max: maxHintRunes, rule: speakable}, item); err != nil {
			return err
		}
		list = append(list, phrase)
	}
	*h.to = list
	return nil
}

func (h phrases) encode() (any, bool) { return *h.to, len(*h.to) > 0 }

func (phrases) allowed() string {
	return fmt.Sprintf("a list of at most %d texts of %d characters", maxHints, maxHintRunes)
}

func (phrases) schema() schema {
	return schema{"type": "array", "maxItems": maxHints, "items": text{max: maxHintRunes, rule: speakable}.schema()}
}

package actions

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// tones are the signals that play.tone and ringback can name, each as a script of FreeSWITCH's tone generator:
// %(on,off,frequency…), in milliseconds and hertz, one period of the signal. The values are those of national networks,
// ITU-T E.180 Supplement 2, as in FreeSWITCH's own conf/vanilla/vars.xml.
var tones = map[string]string{
	"beep":          "%(300,0,1000)",
	"busy_de":       "%(480,480,425)",
	"busy_fr":       "%(500,500,440)",
	"busy_uk":       "%(375,375,400)",
	"busy_us":       "%(500,500,480,620)",
	"congestion_de": "%(240,240,425)",
	"congestion_uk": "%(400,350,400);%(225,525,400)",
	"congestion_us": "%(250,250,480,620)",
	"dial_de":       "%(1000,0,425)",
	"dial_uk":       "%(1000,0,350,440)",
	"dial_us":       "%(1000,0,350,440)",
	"ringback_au":   "%(400,200,383,417);%(400,2000,383,417)",
	"ringback_cn":   "%(1000,4000,450)",
	"ringback_de":   "%(1000,4000,425)",
	"ringback_es":   "%(1500,3000,425)",
	"ringback_fr":   "%(1500,3500,440)",
	"ringback_in":   "%(400,200,425,375);%(400,2000,425,375)",
	"ringback_it":   "%(1000,4000,425)",
	"ringback_jp":   "%(1000,2000,420,380)",
	"ringback_pl":   "%(1000,4000,425)",
	"ringback_ru":   "%(800,3200,425)",
	"ringback_tr":   "%(2000,4000,450)",
	"ringback_uk":   "%(400,200,400,450);%(400,2000,400,450)",
	"ringback_us":   "%(2000,4000,440,480)",
	"sit":           "%(274,0,913.8);%(274,0,1370.6);%(380,0,1776.7)",
}

// ToneSpec returns the tone script of a named signal (FreeSWITCH's tone generator, libteletone), one period of it, and
// whether there is one of that name.
func ToneSpec(name string) (string, bool) {
	spec, ok := tones[name]
	return spec, ok
}

// ToneNames returns the names that ToneSpec knows, in alphabetical order.
func ToneNames() []string { return slices.Sorted(maps.Keys(tones)) }

// RingbackNone is the ringback of silence.
const RingbackNone = "none"

// tone is the name of a signal.
type tone struct{ to *string }

func (t tone) choice() choice { return choice{to: t.to, words: ToneNames()} }

func (t tone) reset() { *t.to = "" }

func (t tone) decode(p *parser, n *node) error { return t.choice().decode(p, n) }

func (t tone) encode() (any, bool) { return *t.to, *t.to != "" }

func (t tone) allowed() string { return "the name of a tone: " + strings.Join(ToneNames(), ", ") }

func (t tone) schema() schema { return t.choice().schema() }

// ringback is what a caller hears while a target rings: a named tone, "none", or the URL of a file.
type ringback struct{ to *string }

func (r ringback) reset() { *r.to = "" }

func (r ringback) decode(_ *parser, n *node) error {
	if n.kind != kindString {
		return fmt.Errorf("must be %s, was %s", r.allowed(), n.describe())
	}
	if _, ok := tones[n.text]; ok || n.text == RingbackNone {
		*r.to = n.text
		return nil
	}
	if !strings.Contains(n.text, ":") {
		return fmt.Errorf("must be %s, was %s%s", r.allowed(), n.describe(), meant(n.text, append(ToneNames(), RingbackNone)))
	}
	if err := checkURL(n.text, urlMedia); err != nil {
		return err
	}
	*r.to = n.text
	return nil
}

func (r ringback) encode() (any, bool) { return *r.to, *r.to != "" }

func (r ringback) allowed() string {
	return "a tone (" + strings.Join(ToneNames(), ", ") + "), none, or the URL of a file"
}

func (r ringback) schema() schema {
	return schema{"anyOf": []schema{{"enum": append(ToneNames(), RingbackNone)}, link{}.schema()}}
}

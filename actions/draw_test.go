package actions

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// strings that fields take, or nearly take.
var pool = []string{
	"", " ", "a", "Hello, world", "Grüße 🙂", "\u00a0", "{x}", "a {b}", "${x}", "#{x}", "$\\{x", "line\nbreak", "\u2028", "nul\x00",
	"slt", "en-US", "a b", "a|b", "x_1.y-z", strings.Repeat("n", 64), strings.Repeat("n", 65), strings.Repeat("é", 101),
	"1", "#", "*#", "12", "11", "0123456789ABCD*#", "ww1234#", "W", "e", strings.Repeat("1", 64), strings.Repeat("1", 65),
	"+14155550100", "+442071838750", "+1", "+0123456789", "4155550100", "+1234567890123456", "+1415555O100",
	"sip:alice@example.com", "SIPS:[2001:db8::1]:5061", "sip:example.com:65535;transport=TLS", "sip:a@b:65536", "sip:a@b:0", "sip:a@b:080",
	"sip:a@b;user=phone", "sip:", "sip:-", "sip:a b@c",
	"https://a.example/x.wav", "http://a.example", "HTTP://A.example:8080/?q=1#f", "https://u:p@a.example/", "https://u@a.example/", "https://:80/", "https://",
	"https:a", "https://a.example/{x}", "https://a.example/a b", "https://a.example/@x", "https://[::1]/x", "https://a.example?x@y", "https://a.example/%zz", "https://a.example/%41?%zz#%42", "https://a.example/#%zz", "https://a.example:x/", "https://a:1:2/", "https://[::1/", "https://a.example:/",
	"/next", "?a=b", "../a:b", "a:b", "#f", "//b.example/x", "file:///etc/passwd", "javascript:x", "ftp://a.example/",
	"wss://a.example/s", "WSS://a.example", "ws://a.example/", "wss:///", "https://a.example/" + strings.Repeat("x", 2048),
	"beep", "ringback_us", "none", "%(1000,0,440)",
}

// beyondSchema are fragments of the messages for what a JSON Schema cannot say.
var beyondSchema = []string{"must be at least min_digits", "must name each key once", "bytes, was", "nested ones included"}

// drawing makes random replies. Junk of every kind is mixed in when the test wants it.
type drawing struct {
	t    *rapid.T
	junk bool
}

func (d drawing) chance(one int, in int) bool {
	return rapid.IntRange(1, in).Draw(d.t, "chance") <= one
}

func (d drawing) reply() any {
	list := []any{}
	for range rapid.IntRange(0, 3).Draw(d.t, "actions") {
		list = append(list, d.action(verbs))
	}
	if d.chance(1, 4) {
		reply := map[string]any{"actions": list}
		if d.chance(1, 2) {
			reply["variables"] = d.value(variables{})
		}
		return reply
	}
	return list
}

func (d drawing) action(from []verb) any {
	v := rapid.SampledFrom(from).Draw(d.t, "verb")
	object := d.object(table(v.make()))
	if d.chance(1, 8) {
		object["verb"] = rapid.SampledFrom(v.written()).Draw(d.t, "name")
	} else {
		object["action"] = v.name
	}
	if d.junk && d.chance(1, 40) {
		object[rapid.SampledFrom([]string{"verb", "action", "Text", "x"}).Draw(d.t, "key")] = d.any()
	}
	return object
}

func (d drawing) object(fields []field) map[string]any {
	object := map[string]any{}
	for _, f := range fields {
		if (f.required && (!d.junk || !d.chance(1, 20))) || d.chance(1, 3) {
			object[f.name] = d.value(f.value)
		}
	}
	return object
}

func (d drawing) any() any {
	return rapid.SampledFrom([]any{
		nil, true, false, 0, 1, -1, 1.5, 2.0, json.Number("1e2"), json.Number("1e400"), "", "a", "1", []any{}, []any{"a"}, []any{nil}, map[string]any{},
		map[string]any{"a": 1},
	}).Draw(d.t, "any")
}

// string draws one of the pool; without junk, one that the value takes.
func (d drawing) string(v value) string {
	candidates := pool
	if !d.junk {
		candidates = slices.DeleteFunc(slices.Clone(pool), func(s string) bool {
			return v.decode(&parser{}, &node{kind: kindString, text: s}) != nil
		})
	}
	return rapid.SampledFrom(candidates).Draw(d.t, "string")
}

func (d drawing) value(v value) any {
	if d.junk && d.chance(1, 12) {
		return d.any()
	}
	var s string
	switch v := v.(type) {
	case boolean:
		return rapid.Bool().Draw(d.t, "boolean")
	case integer:
		return d.integer(v)
	case shorthand:
		return d.integer(v.integer)
	case seconds:
		return d.seconds(v)
	case choice:
		return d.word(v.words)
	case tone:
		return d.word(ToneNames())
	case ringback:
		if d.chance(1, 2) {
			return d.word(append(ToneNames(), RingbackNone))
		}
		return d.string(ringback{&s})
	case later:
		return rapid.SampledFrom([]any{false, nil}).Draw(d.t, "none")
	case inputs:
		return rapid.SampledFrom([][]string{{"digits"}, {"speech"}, {"digits", "speech"}, {"speech", "digits"}}).Draw(d.t, "input")
	case payload:
		return d.any()
	case text:
		v.to = &s
		return d.string(v)
	case sipURI:
		return d.string(sipURI{&s})
	case link:
		v.to = &s
		return d.string(v)
	}
	return d.compound(v)
}

// compound draws the values that hold other values.
func (d drawing) compound(v value) any {
	var s string
	switch v := v.(type) {
	case links:
		if d.chance(1, 2) {
			return d.string(link{to: &s})
		}
		return d.list(1, v.max, func() any { return d.value(link{to: &s}) })
	case phrases:
		return d.list(0, 3, func() any { return d.value(text{max: maxHintRunes, rule: speakable}) })
	case target:
		return d.target()
	case targets:
		if d.chance(1, 2) {
			return d.target()
		}
		return d.list(1, maxTargets, d.target)
	case confirmation:
		return d.object((&Confirm{}).fields())
	case listening:
		return d.object((&Speech{}).fields())
	case detection:
		if d.chance(1, 3) {
			return rapid.Bool().Draw(d.t, "detection")
		}
		return d.object((&MachineDetection{}).fields())
	case nested:
		from := slices.DeleteFunc(slices.Clone(verbs), func(known verb) bool { return !slices.Contains(v.in.verbs, known.name) })
		if d.junk && d.chance(1, 20) {
			from = verbs
		}
		return d.list(0, 2, func() any { return d.action(from) })
	case variables:
		object := map[string]any{}
		for range rapid.IntRange(0, 3).Draw(d.t, "count") {
			name := rapid.SampledFrom([]string{"a", "B.c-d", "_x"}).Draw(d.t, "name")
			if d.junk && d.chance(1, 10) {
				name = "1x"
			}
			object[name] = rapid.SampledFrom([]any{"", "é", true, 1.5, json.Number("1e2"), "1"}).Draw(d.t, "variable")
		}
		return object
	}
	d.t.Fatalf("no way to draw a %T", v)
	return nil
}

func (d drawing) list(least, most int, one func() any) []any {
	if d.junk && d.chance(1, 20) {
		least, most = 0, most+1
	}
	list := []any{}
	for range rapid.IntRange(least, most).Draw(d.t, "length") {
		list = append(list, one())
	}
	return list
}

func (d drawing) target() any {
	if d.junk && d.chance(1, 4) {
		return d.string(target{})
	}
	written := &Target{}
	object := d.object(written.fields())
	if d.junk && d.chance(1, 4) {
		return object
	}
	if d.chance(1, 2) {
		delete(object, "sip")
		object["number"] = "+14155550100"
		return object
	}
	delete(object, "number")
	delete(object, "trunk_id")
	object["sip"] = "sip:a@b.example"
	return object
}

func (d drawing) integer(i integer) any {
	least, most := i.min, i.max
	if d.junk {
		least, most = least-1, most+1
	}
	return rapid.SampledFrom([]int{least, most, i.min, i.max, (i.min + i.max) / 2}).Draw(d.t, "integer")
}

func (d drawing) seconds(s seconds) any {
	most, least := s.max.Seconds(), s.min.Seconds()
	numbers := []float64{least, most, (least + most) / 2, least + 0.0004, most - 0.0004, least + 0.123456}
	if s.zero != "" {
		numbers = append(numbers, 0)
	}
	if d.junk {
		numbers = append(numbers, 0, -1, least-0.0004, least/2, most+0.0004)
	}
	return rapid.SampledFrom(numbers).Draw(d.t, "seconds")
}

func (d drawing) word(words []string) any {
	if d.junk && d.chance(1, 10) {
		return rapid.SampledFrom([]string{"", "x", "START", words[0] + "s"}).Draw(d.t, "word")
	}
	return rapid.SampledFrom(words).Draw(d.t, "word")
}

// TestRoundTrip proves that the canonical form of whatever Parse accepts reads back as the same actions, is itself
// canonical, and is what the schema describes.
func TestRoundTrip(t *testing.T) {
	t.Parallel()
	judge := compileSchema(t)
	accepted := 0
	rapid.Check(t, func(t *rapid.T) {
		body, err := marshal(drawing{t: t}.reply())
		require.NoError(t, err)
		reply, err := Parse(body)
		if err != nil {
			return // rules that span fields
		}
		accepted++
		encoded, err := Encode(reply.Actions)
		require.NoError(t, err)
		again, err := Decode(encoded)
		require.NoError(t, err, "%s", encoded)
		require.Equal(t, reply.Actions, again, "%s", body)
		twice, err := Encode(again)
		require.NoError(t, err)
		require.Equal(t, string(encoded), string(twice))
		require.NoError(t, judge(encoded), "%s", encoded)
	})
	require.Greater(t, accepted, 20, "most of what is drawn should be accepted")
}

// TestSchemaAgrees holds the schema to the parser: what the parser accepts the schema accepts, and what the parser refuses
// the schema refuses, unless a schema cannot say why.
func TestSchemaAgrees(t *testing.T) {
	t.Parallel()
	judge := compileSchema(t)
	refused, accepted := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		body, err := marshal(drawing{t: t, junk: rapid.Bool().Draw(t, "junk")}.reply())
		require.NoError(t, err)
		_, wrong := Parse(body)
		verdict := judge(body)
		if wrong == nil {
			accepted++
			require.NoError(t, verdict, "the parser accepts %s", body)
			return
		}
		if slices.ContainsFunc(beyondSchema, func(fragment string) bool { return strings.Contains(wrong.Error(), fragment) }) {
			return
		}
		refused++
		require.Error(t, verdict, "the parser refuses %s: %s", body, wrong)
	})
	require.Greater(t, accepted, 10, "too little is accepted for the test to mean anything")
	require.Greater(t, refused, 10, "too little is refused for the test to mean anything")
}

// TestEveryValueAgrees gives every string of the pool, and a few other values, to every field of every verb alone.
func TestEveryValueAgrees(t *testing.T) {
	t.Parallel()
	judge := compileSchema(t)
	values := []any{nil, true, false, 0, 1, 5, 2.5, 100, 101, 1e6, -1, []any{}, []any{"digits"}, map[string]any{}}
	for _, s := range pool {
		values = append(values, s, []any{s})
	}
	required := map[string]any{"text": "a", "to": "+14155550100", "name": "a", "digits": "1", "url": "https://a.example/", "variables": map[string]any{}, "payload": 1}
	for _, v := range verbs {
		for _, f := range table(v.make()) {
			for _, given := range values {
				object := map[string]any{"action": v.name, f.name: given}
				for _, other := range table(v.make()) {
					if value, ok := required[other.name]; other.required && other.name != f.name && ok {
						object[other.name] = value
					}
				}
				if v.name == "stream" && f.name != "url" && given != "stop" {
					object["url"] = "wss://a.example/"
				}
				if v.name == "play" && f.name != "url" && f.name != "tone" {
					object["tone"] = "beep"
				}
				body, err := marshal([]any{object})
				require.NoError(t, err)
				_, wrong := Parse(body)
				if wrong != nil && slices.ContainsFunc(beyondSchema, func(fragment string) bool { return strings.Contains(wrong.Error(), fragment) }) {
					continue
				}
				require.Equal(t, wrong == nil, judge(body) == nil, "%s: parser says %v, schema says %v", body, wrong, judge(body))
			}
		}
	}
}

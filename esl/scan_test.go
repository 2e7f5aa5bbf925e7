package esl

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestEvent(t *testing.T) {
	t.Parallel()
	e, err := ParseEvent(`{ "Event-Name":"CHANNEL_EXECUTE_COMPLETE", "Core-UUID":"core", "Event-Date-Timestamp":"1795214680541647","Event-Sequence":"1216",` +
		`"Unique-ID":"chan","Application-UUID":"tandem-1","variable_x":"a%2Fb?q=100%25%20x","variable_quote":"say \"hi\"\\ \u00e9 \ud83d\ude00\n",` +
		`"variable_list":["a","b\"c"],"variable_twice":"first","variable_twice":"second","Number":17,"Flag":true,"Nothing":null,"Nested":{"a":["}"]},` +
		`"variable_[odd] na:me\"":"odd","empty":"","_body":"+OK\n"}` + "\n")
	require.NoError(t, err)
	require.Equal(t, "CHANNEL_EXECUTE_COMPLETE", e.Name())
	require.Equal(t, "chan", e.ChannelID())
	require.Equal(t, "tandem-1", e.ApplicationID())
	require.Equal(t, "core", e.CoreUUID())
	require.EqualValues(t, 1216, e.Sequence())
	require.Equal(t, time.UnixMicro(1795214680541647).UTC(), e.Time())
	require.Equal(t, "a%2Fb?q=100%25%20x", e.Variable("x"), "percent signs are nothing special in JSON")
	require.Equal(t, "say \"hi\"\\ é 😀\n", e.Variable("quote"))
	require.Equal(t, `ARRAY::a|:b"c`, e.Variable("list"))
	require.Equal(t, "first", e.Variable("twice"))
	require.Equal(t, "17", e.Get("Number"))
	require.Equal(t, "true", e.Get("flag"), "without regard to case")
	require.JSONEq(t, `{"a":["}"]}`, e.Get("Nested"))
	require.Equal(t, "odd", e.Variable(`[odd] na:me"`))
	require.Equal(t, "+OK\n", e.Body())
	require.Empty(t, e.Get("empty"))
	require.Empty(t, e.Get("missing"))
	require.Empty(t, e.Subclass())
	count := 0
	e.Headers(func(_, _ string) bool { count++; return count < 3 })
	require.Equal(t, 3, count)

	e, err = ParseEvent("{}")
	require.NoError(t, err)
	require.Zero(t, e.Sequence())
	require.True(t, e.Time().IsZero())
	e, err = ParseEvent("{\"Event-Name\":\"X\",\"bad\":\"\xff\xfe\",\"esc\":\"\\q\",\"after\":\"1\"}")
	require.NoError(t, err)
	require.Equal(t, "\xff\xfe", e.Get("bad"))
	require.Equal(t, `\q`, e.Get("esc"))
	require.Equal(t, "1", e.Get("after"))
}

func TestNotAnEvent(t *testing.T) {
	t.Parallel()
	for _, doc := range []string{
		"", " ", "null", "[]", `"x"`, "{", `{"a"`, `{"a":`, `{"a":"b`, `{"a":"b"`, `{"a":"b",`, `{"a":"b",}`, `{"a" "b"}`, `{"a":}`, `{"a":"b"} x`, `{a:"b"}`,
		`{"a":["b"`, `{"a":{"b":1}`, `{"a":"\`, `{"a":"b\"}`, `{"a":["b\"]}`,
	} {
		_, err := ParseEvent(doc)
		require.Error(t, err, doc)
	}
}

func FuzzScan(f *testing.F) {
	f.Add(`{"Event-Name":"HEARTBEAT","a":["b","c"],"n":1,"t":true,"z":null,"o":{"x":"}"}}`)
	f.Add(`{"a":"\\\"","b":"\u0041\ud800","c\"":"d"}`)
	f.Add(`{"a":"b"`)
	f.Add("{\"a\":\"\xff\"}")
	f.Add(`{ "a" : [ "x" , [ 1 ] ] , "b":-1.5e3 }`)
	f.Fuzz(func(t *testing.T, doc string) {
		fields, err := scan(doc)
		var want map[string]json.RawMessage
		if json.Unmarshal([]byte(doc), &want) != nil || want == nil {
			// Not JSON: refused or not, it must not panic, and what was found lies inside the document.
			for _, fl := range fields {
				require.LessOrEqual(t, int(fl.valueEnd), len(doc))
			}
			return
		}
		require.NoError(t, err, "all that encoding/json takes as an object")
		e := &Event{doc: doc, fields: fields}
		seen := map[string]bool{}
		e.Headers(func(header, _ string) bool {
			header = strings.ToValidUTF8(header, "\uFFFD")
			if seen[header] {
				return true // encoding/json keeps the last of duplicates
			}
			seen[header] = true
			return true
		})
		for key, raw := range want {
			var text string
			if strings.Contains(key, "\uFFFD") || json.Unmarshal(raw, &text) != nil || string(raw) == "null" || strings.Contains(text, "\uFFFD") {
				continue
			}
			require.True(t, seen[key], "key %q", key)
			if strings.Count(doc, `"`+key+`"`) == 1 && !strings.Contains(key, `\`) {
				found := false
				e.Headers(func(header, value string) bool {
					if header == key && value == text {
						found = true
					}
					return !found
				})
				require.True(t, found, "value of %q", key)
			}
		}
	})
}

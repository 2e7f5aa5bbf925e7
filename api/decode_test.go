package api

import (
	"encoding/json"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

// decoded has a field of each kind that bodies are made of.
type decoded struct {
	Text   *string           `json:"text"`
	Null   *string           `json:"null" nullable:"true"`
	Flag   *bool             `json:"flag"`
	Number *int              `json:"number"`
	Map    map[string]string `json:"map"`
}

func TestDecode(t *testing.T) {
	t.Parallel()
	var got decoded
	given, err := decode([]byte(`{"text":"\u0041","null":null,"flag":false,"number":-7,"map":{"a":"b"}}`), &got)
	require.NoError(t, err)
	require.Equal(t, "A", *got.Text)
	require.Nil(t, got.Null)
	require.False(t, *got.Flag)
	require.Equal(t, -7, *got.Number)
	require.Equal(t, map[string]string{"a": "b"}, got.Map)
	require.Equal(t, fieldSet{"text": true, "null": false, "flag": true, "number": true, "map": true}, given)
	require.True(t, given.has("null"))
	require.False(t, given.has("other"))
}

func TestDecodeNamesLongAndOddFields(t *testing.T) {
	t.Parallel()
	for body, field := range map[string]string{
		`{"` + string(make([]byte, 0)) + `":1}`: `""`,
		`{"a b":1}`:                             `"a b"`,
		`{"a\nb":1}`:                            `"a\nb"`,
		`{"TEXT":"a"}`:                          "TEXT",
		`{"text":1}`:                            "text",
		`{"flag":"true"}`:                       "flag",
		`{"number":1.0}`:                        "number",
		`{"number":1e3}`:                        "number",
		`{"number":99999999999}`:                "number",
		`{"map":{"a":{}}}`:                      "map.a",
		`{"map":"x"}`:                           "map",
		`{"text":null}`:                         "text",
		`{"map":null}`:                          "map",
	} {
		_, err := decode([]byte(body), &decoded{})
		var refused *Error
		require.ErrorAs(t, err, &refused, body)
		require.Equal(t, codeInvalidRequest, refused.Code, body)
		require.Equal(t, field, refused.Field, body)
	}
}

// FuzzDecode holds decode to encoding/json: it fails on everything that does, with one of the two codes, and what it accepts
// encoding/json reads alike.
func FuzzDecode(f *testing.F) {
	for _, seed := range []string{
		`{}`, `{"text":"a"}`, `{"text":"a","text":"b"}`, `{"null":null}`, `{"number":1e9}`, `{"number":-0}`, `{"map":{"a":"b","a":"c"}}`,
		`{"map":{"a":null}}`, `[]`, `null`, `{"x":{"y":[{}]}}`, `{"text":"\ud800"}`, "{\"\xff\":1}", `{"TEXT":"a"}`, `{} {}`, "", `{"text":`,
		`{"flag":tru}`, `{"number":01}`, "\ufeff{}",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		var got decoded
		given, err := decode(body, &got)
		if err != nil {
			var refused *Error
			require.ErrorAs(t, err, &refused)
			require.Contains(t, []string{codeInvalidJSON, codeInvalidRequest}, refused.Code)
			require.Equal(t, refused.Code == codeInvalidJSON, !json.Valid(body) || !utf8.Valid(body))
			require.True(t, utf8.ValidString(refused.Message))
			return
		}
		var want decoded
		require.NoError(t, json.Unmarshal(body, &want))
		require.Equal(t, want, got)
		var members map[string]json.RawMessage
		require.NoError(t, json.Unmarshal(body, &members))
		require.Len(t, given, len(members))
	})
}

// FuzzFields feeds every check with the same text: none panics, and what passes holds no control characters and, where it
// goes into a switch's configuration, none of the characters that mean something there.
func FuzzFields(f *testing.F) {
	for _, seed := range []string{
		"", "a", "sip.example:5060", "[::1]:5060", "[::1", "https://a.example/x?y=z", "http://[::1%25eth0]/", "+31201234567", "192.0.2.0/24",
		"::ffff:192.0.2.1", "sip:a@b.example;transport=tcp", "${system(x)}", "a\r\nb", "_all_", "..", "\x00", "a,b|c", "fe80::1%eth0", "://", "http://:80",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, value string) {
		for name, check := range map[string]func(*checks) string{
			"text":    func(c *checks) string { return c.text("f", &value, 100) },
			"url":     func(c *checks) string { return c.webURL("f", &value) },
			"gateway": func(c *checks) string { return c.gatewayName("f", &value) },
			"host":    func(c *checks) string { return c.host("f", &value) },
			"proxy":   func(c *checks) string { return c.proxy("f", &value) },
			"user":    func(c *checks) string { return c.credential("f", &value, notInUsername) },
			"realm":   func(c *checks) string { return c.credential("f", &value, notInRealm) },
			"address": func(c *checks) string { return c.address("f", &value) },
			"sip":     func(c *checks) string { return c.sipURI("f", &value) },
			"number":  func(c *checks) string { return c.number("f", &value) },
		} {
			c := &checks{}
			kept := check(c)
			if err := c.failed(); err != nil {
				var refused *Error
				require.ErrorAs(t, err, &refused)
				require.Equal(t, "f", refused.Field)
				require.Empty(t, kept, name)
				continue
			}
			require.NotContains(t, kept, "\n", name)
			require.NotContains(t, kept, "\x00", name)
			switch name {
			case "gateway", "host", "proxy", "address", "sip", "number":
				for _, r := range kept {
					require.NotContains(t, "${}<>|,^'\"`\\ &()", string(r), name)
				}
			}
		}
	})
}

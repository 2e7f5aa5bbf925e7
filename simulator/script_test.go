package simulator

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestScriptsThatAreRefused(t *testing.T) {
	t.Parallel()
	for script, field := range map[string]string{
		`[]`:                          "",
		`{"from":"123"}`:              "from",
		`{"to":"+0"}`:                 "to",
		`{"direction":"up"}`:          "direction",
		`{"speed":2}`:                 "speed",
		`{"from":7}`:                  "from",
		`{} {}`:                       "",
		`{"sip_headers":{"Via":"x"}}`: "sip_headers",
		`{"input":[{}]}`:              "input[0]",
		`{"input":[{"digits":"1","silence":true}]}`:                       "input[0]",
		`{"input":[{"silence":true},{"digits":"x"}]}`:                     "input[1].digits",
		`{"input":[{"speech":{"text":""}}]}`:                              "input[0].speech.text",
		`{"input":[{"speech":{"text":"a","confidence":2}}]}`:              "input[0].speech.confidence",
		`{"input":[{"record":{"seconds":-1}}]}`:                           "input[0].record.seconds",
		`{"input":[{"record":{"seconds":1,"ended_by":"me"}}]}`:            "input[0].record.ended_by",
		`{"input":[{"dial":{"outcome":"perhaps"}}]}`:                      "input[0].dial.outcome",
		`{"input":[{"dial":{"outcome":"busy","ended_by":"nobody"}}]}`:     "input[0].dial.ended_by",
		`{"input":[{"dial":{"outcome":"busy","seconds":1e9}}]}`:           "input[0].dial.seconds",
		`{"input":[{"machine":"robot"}]}`:                                 "input[0].machine",
		`{"input":[{"group":{"outcome":"won"}}]}`:                         "input[0].group.outcome",
		`{"input":[{"at":"","hangup":true},{"at":"a\nb","hangup":true}]}`: "input[1].at",
	} {
		_, err := ParseScript([]byte(script))
		var refused *FieldError
		require.ErrorAs(t, err, &refused, script)
		require.Equal(t, field, refused.Field, script)
		require.NotEmpty(t, refused.Message, script)
	}
	_, err := ParseScript([]byte(`{"from":"` + strings.Repeat("1", MaxScriptBytes) + `"}`))
	require.ErrorContains(t, err, "at most")
	many, err := json.Marshal(Script{Input: make([]Input, MaxInputs+1)})
	require.NoError(t, err)
	_, err = ParseScript(many)
	require.ErrorContains(t, err, "at most 200")
}

func TestTheEmptyScript(t *testing.T) {
	t.Parallel()
	script, err := ParseScript(nil)
	require.NoError(t, err)
	require.Equal(t, &Script{Direction: "inbound", From: "+15550100001", To: "+15550100002"}, script)
}

func FuzzParseScript(f *testing.F) {
	f.Add([]byte(`{"input":[{"digits":"1#"},{"at":"agent","dial":{"to":"+14155550100","outcome":"answered","seconds":3}}],"expect":{"errors":0}}`))
	f.Add([]byte(`{"direction":"outbound","metadata":{"a":"b"},"input":[{"speech":{"text":"yes"}},{"hangup":true}]}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		script, err := ParseScript(body)
		if err != nil {
			var refused *FieldError
			require.ErrorAs(t, err, &refused)
			return
		}
		again, err := json.Marshal(script)
		require.NoError(t, err)
		if len(again) > MaxScriptBytes {
			return // defaults made it longer
		}
		second, err := ParseScript(again)
		require.NoError(t, err)
		if len(script.Input) > 0 || len(second.Input) > 0 {
			require.Equal(t, script.Input, second.Input)
		}
	})
}

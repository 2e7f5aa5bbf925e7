package calls

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tandem/models"
)

// captured are CDRs that a FreeSWITCH 1.10.12 posted.
func captured(t testing.TB, name string) []byte {
	t.Helper()
	body, err := os.ReadFile(filepath.Join("testdata", "cdr", name+".json"))
	require.NoError(t, err)
	return body
}

func at(micros int64) *time.Time {
	moment := time.UnixMicro(micros).UTC()
	return &moment
}

func TestParseCDR(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]models.CDR{
		// Before its end somebody set uuid, billsec, BillSec, Hangup_Cause, hangup_cause_q850 and variables full of JSON and of bytes
		// that are no UTF-8.
		"hostile-variables": {
			Direction: "outbound", Cause: "NORMAL_CLEARING", Q850: 16, Disposition: "send_bye", BilledSeconds: 1,
			StartedAt: *at(1795250202324643), AnsweredAt: at(1795250202652771), EndedAt: *at(1795250203332765),
		},
		"refused": {
			Direction: "outbound", Cause: "USER_BUSY", Q850: 17, SIPCode: 486, Disposition: "recv_refuse",
			StartedAt: *at(1795250203353173), EndedAt: *at(1795250203353173),
		},
		"bridged-caller": {
			Direction: "outbound", Cause: "NORMAL_CLEARING", Q850: 16, Disposition: "send_bye", BilledSeconds: 3,
			StartedAt: *at(1795250203353173), AnsweredAt: at(1795250203692762), EndedAt: *at(1795250206052788),
		},
		"bridged-callee": {
			Direction: "outbound", Cause: "NORMAL_CLEARING", Q850: 16, SIPCode: 200, Disposition: "recv_bye", BilledSeconds: 2,
			StartedAt: *at(1795250203692762), AnsweredAt: at(1795250204012769), EndedAt: *at(1795250206032773),
		},
		"inbound-killed": {
			Direction: "inbound", Cause: "MANAGER_REQUEST", Q850: 16, Disposition: "send_refuse",
			StartedAt: *at(1795250206072777), EndedAt: *at(1795250211072791),
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			body := captured(t, name)
			want.ChannelID = "11111111-2222-3333-4444-555555555555"
			cdr, err := ParseCDR(want.ChannelID, body)
			require.NoError(t, err)
			require.Regexp(t, `^[0-9a-f-]{36}$`, cdr.SIPCallID)
			require.Regexp(t, `^127\.0\.0\.1:[0-9]+$`, cdr.Peer)
			want.SIPCallID, want.Peer, want.Codec, want.PacketsIn, want.PacketsOut = cdr.SIPCallID, cdr.Peer, cdr.Codec, cdr.PacketsIn, cdr.PacketsOut
			require.Equal(t, want, cdr)
			again, err := ParseCDR(want.ChannelID, append(body, '\n'))
			require.NoError(t, err, "as in the file")
			require.Equal(t, cdr, again)
			facts := factsOf(&cdr)
			require.Equal(t, []any{want.Cause, want.BilledSeconds, want.AnsweredAt == nil}, []any{facts.cause, facts.billed, facts.answeredAt.IsZero()})
		})
	}
}

// TestCDRSignalling: what is not as the switch writes it is left out, and refuses nothing.
func TestCDRSignalling(t *testing.T) {
	t.Parallel()
	read := func(change map[string]any) models.CDR {
		cdr, err := ParseCDR("channel", variation(t, change))
		require.NoError(t, err)
		return cdr
	}
	in, out := int64(250), int64(0)
	cdr := read(map[string]any{
		"variables.sip_call_id": "a84b4c76e66710@pc33.example.com", "variables.sip_network_ip": "2001:db8::1", "variables.sip_network_port": "5060",
		"variables.read_codec": "G722", "variables.rtp_audio_in_media_packet_count": "250", "variables.rtp_audio_out_media_packet_count": "0",
	})
	require.Equal(t, []any{"a84b4c76e66710@pc33.example.com", "[2001:db8::1]:5060", "G722", &in, &out}, []any{cdr.SIPCallID, cdr.Peer, cdr.Codec, cdr.PacketsIn, cdr.PacketsOut})
	for name, values := range map[string][]any{
		"sip_call_id":                     {nil, "", "a b", "a\r\nVia: x", "\x1b[2J", "ü", strings.Repeat("x", 256)},
		"sip_network_ip":                  {nil, "", "localhost", "fe80::1%eth0", "1.2.3.4 "},
		"sip_network_port":                {nil, "65536", "-1", "sip"},
		"read_codec":                      {nil, "", "PCMU\n", "a b", strings.Repeat("x", 33)},
		"rtp_audio_in_media_packet_count": {nil, "", "-1", "1.5", "99999999999999"},
	} {
		for _, value := range values {
			cdr := read(map[string]any{"variables." + name: value})
			switch name {
			case "sip_call_id":
				require.Empty(t, cdr.SIPCallID, "%q", value)
			case "read_codec":
				require.Empty(t, cdr.Codec, "%q", value)
			case "rtp_audio_in_media_packet_count":
				require.Nil(t, cdr.PacketsIn, "%q", value)
			default:
				require.Empty(t, cdr.Peer, "%s %q", name, value)
			}
		}
	}
}

// variation is a CDR as a switch writes it, with some variables changed: nil takes one away.
func variation(t testing.TB, change map[string]any) []byte {
	t.Helper()
	var document map[string]any
	require.NoError(t, json.Unmarshal(captured(t, "bridged-callee"), &document))
	for name, value := range change {
		place, name, _ := strings.Cut(name, ".")
		if name == "" {
			document[place] = value
			continue
		}
		if value == nil {
			delete(document[place].(map[string]any), name)
			continue
		}
		document[place].(map[string]any)[name] = value
	}
	body, err := json.Marshal(document)
	require.NoError(t, err)
	return body
}

func TestBadCDRIsRefused(t *testing.T) {
	t.Parallel()
	const channel = "11111111-2222-3333-4444-555555555555"
	good := captured(t, "bridged-callee")
	for name, tc := range map[string]struct {
		channel string
		body    []byte
		want    string
	}{
		"no channel":             {channel: "", body: good, want: `"" names no channel`},
		"a path":                 {channel: "../etc/passwd", body: good, want: "names no channel"},
		"a long channel":         {channel: strings.Repeat("a", 65), body: good, want: "names no channel"},
		"empty":                  {body: nil, want: "EOF"},
		"half":                   {body: good[:len(good)/2], want: "unexpected EOF"},
		"a list":                 {body: []byte("[]"), want: "cannot unmarshal array"},
		"text":                   {body: []byte("cdr=%7B%7D"), want: "invalid character"},
		"two":                    {body: append(append([]byte{}, good...), good...), want: "more than one JSON value"},
		"garbage behind":         {body: append(append([]byte{}, good...), "]"...), want: "more than one JSON value"},
		"huge":                   {body: append(append([]byte{}, good...), make([]byte, CDRLimit)...), want: "bytes, at most 2097152 are read"},
		"deep":                   {body: []byte(`{"variables":` + strings.Repeat("[", 20_000)), want: "exceeded max depth"},
		"no variables":           {body: []byte(`{"channel_data":{"direction":"inbound"}}`), want: "not a flat JSON object"},
		"variables are a list":   {body: variation(t, map[string]any{"variables": []int{1}}), want: "not a flat JSON object"},
		"no direction":           {body: variation(t, map[string]any{"channel_data.direction": "sideways"}), want: `the direction is "sideways"`},
		"no start":               {body: variation(t, map[string]any{"variables.start_uepoch": nil}), want: "start_uepoch is"},
		"no end":                 {body: variation(t, map[string]any{"variables.end_uepoch": "0"}), want: `end_uepoch is "0"`},
		"an end that is text":    {body: variation(t, map[string]any{"variables.end_uepoch": "soon"}), want: `end_uepoch is "soon"`},
		"an end far away":        {body: variation(t, map[string]any{"variables.end_uepoch": "9223372036854775807"}), want: "end_uepoch is"},
		"an answer before time":  {body: variation(t, map[string]any{"variables.answer_uepoch": "-5"}), want: `answer_uepoch is "-5"`},
		"an end that is a map":   {body: variation(t, map[string]any{"variables.end_uepoch": map[string]any{"a": 1}}), want: `end_uepoch is "{`},
		"no cause":               {body: variation(t, map[string]any{"variables.hangup_cause": nil}), want: `hangup_cause is ""`},
		"a cause of its own":     {body: variation(t, map[string]any{"variables.hangup_cause": "'; DROP TABLE calls"}), want: "hangup_cause is"},
		"a hostile disposition":  {body: variation(t, map[string]any{"variables.sip_hangup_disposition": "<script>"}), want: "sip_hangup_disposition is"},
		"a q850 out of range":    {body: variation(t, map[string]any{"variables.hangup_cause_q850": "70000"}), want: "hangup_cause_q850 is 70000"},
		"a status out of range":  {body: variation(t, map[string]any{"variables.sip_term_status": "70000"}), want: "the SIP status is 70000"},
		"ages":                   {body: variation(t, map[string]any{"variables.billsec": "99999999999"}), want: "99999999999 seconds billed"},
		"billed, never answered": {body: variation(t, map[string]any{"variables.answer_uepoch": "0"}), want: "2 seconds are billed, and nobody answered"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if tc.channel == "" && name != "no channel" {
				tc.channel = channel
			}
			cdr, err := ParseCDR(tc.channel, tc.body)
			require.ErrorIs(t, err, ErrBadCDR)
			require.ErrorContains(t, err, tc.want)
			require.Less(t, len(err.Error()), 300, "nobody's log is filled")
			require.Zero(t, cdr.BilledSeconds)
		})
	}
	// What is odd and harmless.
	for name, change := range map[string]map[string]any{
		"keys in another case": {"variables.BillSec": "4242", "variables.Answer_Uepoch": "1"},
		"values of all kinds":  {"variables.x": []any{1, nil}, "variables.y": 5, "variables.z": nil, "callflow": 7},
	} {
		cdr, err := ParseCDR(channel, variation(t, change))
		require.NoError(t, err, name)
		require.Equal(t, 2, cdr.BilledSeconds, name)
	}
	negative, err := ParseCDR(channel, variation(t, map[string]any{"variables.billsec": "-3"}))
	require.NoError(t, err)
	require.Zero(t, negative.BilledSeconds, "the switch's clock was set back")
}

func FuzzParseCDR(f *testing.F) {
	for _, name := range []string{"hostile-variables", "refused", "bridged-caller", "bridged-callee", "inbound-killed"} {
		f.Add("11111111-2222-3333-4444-555555555555", captured(f, name))
	}
	f.Add("", []byte(`{"variables":{"billsec":"1e9"}}`))
	f.Add("a", []byte(`{"Variables":null,"channel_data":[]}`))
	f.Fuzz(func(t *testing.T, channel string, body []byte) {
		cdr, err := ParseCDR(channel, body)
		if err != nil {
			require.ErrorIs(t, err, ErrBadCDR)
			require.Less(t, len(err.Error()), 1000)
			require.Equal(t, models.CDR{}, cdr)
			return
		}
		// What is taken is safe to store and to bill by.
		require.Equal(t, channel, cdr.ChannelID)
		require.Regexp(t, `^[A-Z][A-Z0-9_]*$`, cdr.Cause)
		require.GreaterOrEqual(t, cdr.BilledSeconds, 0)
		require.True(t, cdr.AnsweredAt != nil || cdr.BilledSeconds == 0)
		require.True(t, cdr.Direction == models.Inbound || cdr.Direction == models.Outbound)
		require.Positive(t, cdr.EndedAt.UnixMicro())
	})
}

func BenchmarkParseCDR(b *testing.B) {
	body := captured(b, "bridged-caller")
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := ParseCDR("11111111-2222-3333-4444-555555555555", body); err != nil {
			b.Fatal(err)
		}
	}
}

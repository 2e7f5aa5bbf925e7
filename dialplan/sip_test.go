package dialplan

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestNormalizeSIPURI(t *testing.T) {
	t.Parallel()
	for uri, want := range map[string]string{
		"sip:alice@example.com":                      "sip:alice@example.com",
		"SIP:Alice@Example.com:5060":                 "sip:Alice@Example.com:5060",
		"sips:alice@example.com;transport=TLS":       "sips:alice@example.com;transport=tls",
		"sip:pbx.example.com":                        "sip:pbx.example.com",
		"sip:+15551234567@203.0.113.7:05080":         "sip:+15551234567@203.0.113.7:5080",
		"sip:a@[2001:DB8:0:0::1]:5060;TRANSPORT=tcp": "sip:a@[2001:db8::1]:5060;transport=tcp",
		"sip:*97#@pbx":                               "sip:*97#@pbx",
	} {
		got, err := NormalizeSIPURI(uri)
		require.NoError(t, err, uri)
		require.Equal(t, want, got)
	}
	for _, uri := range []string{
		"", "sip:", "tel:+15551234567", "alice@example.com", "sip:@example.com", "sip:a b@example.com", "sip:a@b@example.com",
		"sip:a@example.com,sofia/external/b", "sip:a@example.com|b", "sip:a@example.com:_:b", "sip:[leg_timeout=1]a@example.com", "sip:{a=b}@h",
		"sip:a@example.com;fs_path=sip:evil", "sip:a@example.com;transport=udp;x=y", "sip:a@example.com?Replaces=x", "sip:a:pass@example.com",
		"sip:a@example.com:0", "sip:a@example.com:65536", "sip:a@example.com:", "sip:a@[::1", "sip:a@[::1]x", "sip:a@[::1]:", "sip:a@[1.2.3.4]",
		"sip:a@[fe80::1%eth0]", "sip:${system(id)}@h", "sip:a@${x}", "sip:a%20b@h", "sip:a@-h", "sip:a@h\n", "sip:a@h'", `sip:a@h"`, "sip:a@h$", "sip:a@h^",
	} {
		_, err := NormalizeSIPURI(uri)
		require.Error(t, err, "%q", uri)
	}
}

func FuzzNormalizeSIPURI(f *testing.F) {
	for _, uri := range []string{"sip:alice@example.com:5060;transport=tcp", "sips:[::1]:1", "sip:a@h,b", "sip:${x}@h"} {
		f.Add(uri)
	}
	f.Fuzz(func(t *testing.T, uri string) {
		got, err := NormalizeSIPURI(uri)
		if err != nil {
			return
		}
		require.Regexp(t, `^sips?:([A-Za-z0-9._+*#-]+@)?(\[[0-9a-f:.]+\]|[A-Za-z0-9.-]+)(:[1-9][0-9]{0,4})?(;transport=(udp|tcp|tls))?$`, got)
		again, err := NormalizeSIPURI(got)
		require.NoError(t, err)
		require.Equal(t, got, again)
	})
}

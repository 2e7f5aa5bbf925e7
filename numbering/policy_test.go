package numbering_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"tandem/numbering"
)

func TestCountry(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		number, country string
		digits          int
	}{
		{"+12025550100", "US", 4}, {"+14165550100", "CA", 4}, {"+18095550100", "DO", 4}, {"+18295550100", "DO", 4}, {"+18765550100", "JM", 4}, {"+16585550100", "JM", 4},
		{"+12425550100", "BS", 4}, {"+17875550100", "PR", 4}, {"+12640000000", "AI", 4}, {"+15550100", "", 4}, {"+15551234567", "", 4}, {"+18005550100", "US", 4},
		{"+4930123456", "DE", 2}, {"+49999999999999", "DE", 2}, {"+442079460000", "GB", 2}, {"+441534700000", "JE", 2}, {"+441481700000", "GG", 2},
		{"+74951234567", "RU", 1}, {"+77172123456", "KZ", 1}, {"+390612345678", "IT", 2}, {"+390669812345", "VA", 2}, {"+35312345678", "IE", 3},
		{"+881612345678", "", 0}, {"+882161234567", "", 0}, {"+979123456789", "", 0}, {"+999123456", "", 0}, {"+2101234567", "", 0}, {"12025550100", "", 0}, {"+", "", 0}, {"+1", "", 4},
	} {
		country, digits := numbering.Country(c.number)
		require.Equal(t, c.country, country, c.number)
		if country != "" {
			require.Equal(t, c.digits, digits, c.number)
		}
	}
	require.True(t, numbering.IsCountry("US"))
	for _, no := range []string{"", "us", "USA", "XX", "001", "00"} {
		require.False(t, numbering.IsCountry(no), no)
	}
}

// Who narrows what another allows has that one's types where it names none.
func TestPolicyWithinAnother(t *testing.T) {
	t.Parallel()
	const premium, satellite = "+19002345678", "+881612345678"
	for _, c := range []struct {
		types              []string
		premium, satellite bool
	}{{nil, true, true}, {[]string{}, false, false}, {[]string{numbering.TypePremium}, true, false}} {
		policy := numbering.Within(nil, nil, c.types)
		require.Equal(t, []bool{c.premium, c.satellite}, []bool{policy.Number(premium).Allowed, policy.Number(satellite).Allowed})
		require.Equal(t, []bool{c.premium, c.satellite}, []bool{policy.SIP("sip:" + premium + "@example.com").Allowed, policy.SIP("sip:" + satellite + "@example.com").Allowed})
		require.Equal(t, c.types == nil, policy.Unrestricted())
	}
	require.False(t, numbering.Within([]string{"US"}, nil, nil).Number("+4930123456").Allowed)
	require.False(t, numbering.Within(nil, []string{"DE"}, nil).Number("+4930123456").Allowed)
}

func TestPolicyOfNumbers(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name        string
		allow, deny []string
		number      string
		want        bool
		by          string
	}{
		{"nothing said", nil, nil, "+18095550100", true, "*"},
		{"an empty list", []string{}, nil, "+12025550100", false, ""},
		{"a country", []string{"US"}, nil, "+12025550100", true, "US"},
		{"not its neighbour", []string{"US"}, nil, "+14165550100", false, ""},
		{"not the Caribbean", []string{"US", "CA"}, nil, "+18095550100", false, ""},
		{"nor what is nobody's", []string{"US", "CA"}, nil, "+15551234567", false, ""},
		{"the code has all of them", []string{"+1"}, nil, "+18765550100", true, "+1"},
		{"but for a country", []string{"+1"}, []string{"JM", "DO"}, "+18765550100", false, "JM"},
		{"but for an area code", []string{"+1"}, []string{"+1876"}, "+18765550100", false, "+1876"},
		{"of which a part", []string{"+1", "+187655"}, []string{"+1876"}, "+18765550100", true, "+187655"},
		{"a country wins over its code", []string{"US"}, []string{"+1"}, "+12025550100", true, "US"},
		{"deny wins a tie", []string{"US"}, []string{"+1202"}, "+12025550100", false, "+1202"},
		{"deny wins the same", []string{"+49"}, []string{"+49"}, "+4930123456", false, "+49"},
		{"a deny alone", nil, []string{"+882"}, "+882161234567", false, "+882"},
		{"leaves the others", nil, []string{"+882"}, "+4930123456", true, "*"},
		{"all is denied", []string{"*"}, []string{"*"}, "+4930123456", false, "*"},
		{"all but one", []string{"+4930"}, []string{"*"}, "+4930123456", true, "+4930"},
		{"an island", []string{"GB"}, nil, "+441534700000", false, ""},
		{"with its code", []string{"+44"}, []string{"JE"}, "+441534700000", false, "JE"},
		{"SIP says nothing of numbers", []string{"sip:*"}, nil, "+4930123456", false, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			verdict := numbering.Policy{Allow: c.allow, Deny: c.deny}.Number(c.number)
			require.Equal(t, numbering.Verdict{Allowed: c.want, Entry: c.by}, verdict, verdict.String())
		})
	}
}

func TestPolicyOfSIPURIs(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		allow, deny []string
		uri         string
		want        bool
	}{
		{nil, nil, "sip:+18095550100@carrier.example.com", true},
		{[]string{"DE"}, nil, "sip:desk@pbx.example.com", false},
		{[]string{"sip:*"}, nil, "sip:desk@pbx.example.com:5070;transport=tcp", true},
		{[]string{"sip:*"}, nil, "sip:100@pbx.example.com", true},
		{[]string{"sip:*"}, nil, "sip:+18095550100@carrier.example.com", false},
		{[]string{"sip:*"}, nil, "sip:18095550100@carrier.example.com", false},
		{[]string{"sip:*"}, nil, "sip:0018095550100@carrier.example.com", false},
		{[]string{"sip:*"}, nil, "sip:9*011-1809-555.0100@carrier.example.com", false},
		{[]string{"sip:*", "DO"}, nil, "sip:01118095550100@carrier.example.com", true},
		{[]string{"sip:*", "DE"}, nil, "sip:+4930123456@carrier.example.com", true},
		{[]string{"sip:*", "+4"}, nil, "sip:030123456@carrier.example.com", false},
		{[]string{"sip:*"}, nil, "sip:+18095550100;phone-context=x@carrier.example.com", false},
		{[]string{"sip:PBX.example.com"}, nil, "sip:+18095550100@pbx.EXAMPLE.com:5060", false}, // entries are stored in their normal form
		{[]string{"sip:pbx.example.com"}, nil, "sip:+18095550100@pbx.EXAMPLE.com.:5060", true},
		{[]string{"sip:pbx.example.com"}, nil, "sips:desk@other.example.com", false},
		{[]string{"sip:2001:db8::1"}, nil, "sip:desk@[2001:DB8:0::1]:5060", true},
		{[]string{"sip:192.0.2.1"}, nil, "sip:192.0.2.1", true},
		{[]string{"sip:*"}, []string{"sip:bad.example.com"}, "sip:a@bad.example.com", false},
		{nil, []string{"sip:*"}, "sip:a@pbx.example.com", false},
		{[]string{"sip:pbx.example.com"}, []string{"sip:*"}, "sip:a@pbx.example.com", true},
		{nil, []string{"DO"}, "sip:+18095550100@carrier.example.com", false},
		{nil, []string{"DO"}, "sip:0301234567@carrier.example.com", true},
	} {
		require.Equal(t, c.want, numbering.Policy{Allow: c.allow, Deny: c.deny}.SIP(c.uri).Allowed, "%v without %v: %s", c.allow, c.deny, c.uri)
	}
}

func TestParseEntry(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		" +44 ": "+44", "us": "US", "*": "*", "SIP:*": "sip:*", "sip:PBX.example.com.": "sip:pbx.example.com", "sip:[2001:DB8::1]": "sip:2001:db8::1", "sip:192.0.2.1": "sip:192.0.2.1",
	} {
		got, err := numbering.ParseEntry(in)
		require.NoError(t, err, in)
		require.Equal(t, want, got)
	}
	for _, bad := range []string{"", "44", "+", "+0", "+44*", "+1234567890123456", "XX", "USA", "sip:", "sip:a b", "sip:a@b", "sip:b:5060", "sip:-a", "tel:+44", "**"} {
		_, err := numbering.ParseEntry(bad)
		require.Error(t, err, bad)
	}
}

// The order of entries means nothing, an entry more in Deny allows nothing more, and one more in Allow denies nothing more.
func TestPolicyIsMonotone(t *testing.T) {
	t.Parallel()
	entry := rapid.OneOf(rapid.SampledFrom([]string{"*", "US", "CA", "DO", "DE", "GB", "JE"}), rapid.StringMatching(`\+[1-9][0-9]{0,5}`))
	rapid.Check(t, func(t *rapid.T) {
		allow, deny := rapid.SliceOfN(entry, 0, 5).Draw(t, "allow"), rapid.SliceOfN(entry, 0, 5).Draw(t, "deny")
		number := rapid.OneOf(rapid.StringMatching(`\+1[2-9][0-9]{9}`), rapid.StringMatching(`\+[1-9][0-9]{6,14}`)).Draw(t, "number")
		now := numbering.Policy{Allow: allow, Deny: deny}.Number(number).Allowed
		one := entry.Draw(t, "one more")
		if !now {
			require.False(t, numbering.Policy{Allow: allow, Deny: append([]string{one}, deny...)}.Number(number).Allowed)
		} else {
			require.True(t, numbering.Policy{Allow: append([]string{one}, allow...), Deny: deny}.Number(number).Allowed)
		}
	})
}

func FuzzParseEntry(f *testing.F) {
	for _, seed := range []string{"+44", "us", "sip:*", "sip:[::1]", "sip:pbx.example.com", "*", ""} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, s string) {
		normal, err := numbering.ParseEntry(s)
		if err != nil {
			return
		}
		again, err := numbering.ParseEntry(normal)
		require.NoError(t, err)
		require.Equal(t, normal, again)
	})
}

func FuzzPolicy(f *testing.F) {
	for _, seed := range []string{"+12025550100", "sip:+1809@x", "sip:[::", "sips:a;b?c", "", "+390"} {
		f.Add(seed)
	}
	policy := numbering.Policy{Allow: []string{"US", "IT", "RU", "sip:*"}, Deny: []string{"+1900"}}
	f.Fuzz(func(t *testing.T, s string) {
		if policy.Number(s).Allowed {
			require.True(t, strings.HasPrefix(s, "+1") || strings.HasPrefix(s, "+39") || strings.HasPrefix(s, "+7"))
		}
		policy.SIP(s)
		require.True(t, numbering.Policy{}.SIP(s).Allowed)
	})
}

func BenchmarkPolicy(b *testing.B) {
	policy := numbering.Policy{Allow: []string{"US", "CA", "GB", "DE", "FR", "+34"}, Deny: []string{"+1900", "+882"}}
	for _, number := range []string{"+12025550100", "+442079460000", "+4930123456"} {
		b.Run(number, func(b *testing.B) {
			for b.Loop() {
				policy.Number(number)
			}
		})
	}
}

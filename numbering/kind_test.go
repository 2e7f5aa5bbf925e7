package numbering_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"tandem/numbering"
)

func TestTypeOf(t *testing.T) {
	t.Parallel()
	for number, want := range map[string]string{
		"+19002345678": numbering.TypePremium, "+190023456789": numbering.TypePremium, "+1900234567890": numbering.TypePremium, "+449012345678": numbering.TypePremium,
		"+4909001234567": numbering.TypePremium, "+979123456789": numbering.TypePremium, "+9791": numbering.TypePremium,
		"+870773111632": numbering.TypeSatellite, "+881612345678": numbering.TypeSatellite, "+8821612345678": numbering.TypeSatellite, "+883510001234": numbering.TypeSatellite,
		"+878101234567890": numbering.TypeSatellite, "+80812345678": numbering.TypeSharedCost, "+491801234567": numbering.TypeSharedCost, "+611300123456": numbering.TypeSharedCost,
		"+12025550100": "", "+15550100002": "", "+18005550100": "", "+442079460000": "", "+4930123456": "", "+80012345678": "", "+999123456": "", "+": "", "": "", "sip": "", "+88": "",
	} {
		require.Equal(t, want, numbering.TypeOf(number), number)
	}
}

// A type is refused however the number's prefix or country is allowed, and where nothing else is said.
func TestPolicyOfTypes(t *testing.T) {
	t.Parallel()
	premium := "+19002345678"
	for _, c := range []struct {
		name               string
		allow, deny, types []string
		want               numbering.Verdict
	}{
		{"nothing said", nil, nil, nil, numbering.Verdict{Type: numbering.TypePremium}},
		{"everything", []string{"*"}, nil, nil, numbering.Verdict{Type: numbering.TypePremium}},
		{"its prefix", []string{"+1900"}, nil, nil, numbering.Verdict{Type: numbering.TypePremium}},
		{"another type", nil, nil, []string{numbering.TypeSatellite, numbering.TypeSharedCost}, numbering.Verdict{Type: numbering.TypePremium}},
		{"the type", nil, nil, []string{numbering.TypePremium}, numbering.Verdict{Allowed: true, Entry: "*"}},
		{"all types", nil, nil, numbering.Types, numbering.Verdict{Allowed: true, Entry: "*"}},
		{"the type, and not the prefix", nil, []string{"+1900"}, numbering.Types, numbering.Verdict{Entry: "+1900"}},
		{"the type, and not the country", []string{"DE"}, nil, numbering.Types, numbering.Verdict{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			policy := numbering.Policy{Allow: c.allow, Deny: c.deny, Types: c.types}
			require.Equal(t, c.want, policy.Number(premium))
			require.Equal(t, c.want.Allowed, policy.SIP("sip:"+premium+"@carrier.example.com").Allowed && policy.Number(premium).Allowed)
		})
	}
	for uri, want := range map[string]bool{
		"sip:+19002345678@carrier.example.com": false, "sip:01119002345678@carrier.example.com": false, "sip:00881612345678@carrier.example.com": false,
		"sip:+12025550100@carrier.example.com": true, "sip:desk@pbx.example.com": true,
	} {
		require.Equal(t, want, numbering.Policy{}.SIP(uri).Allowed, uri)
	}
	require.True(t, numbering.Policy{Allow: []string{"sip:carrier.example.com"}}.SIP("sip:+19002345678@carrier.example.com").Allowed, "the host is named")
	require.Equal(t, "premium numbers are not allowed", numbering.Verdict{Type: numbering.TypePremium}.String())
}

func BenchmarkTypeOf(b *testing.B) {
	for name, number := range map[string]string{"known": "+442079460000", "in no plan": "+15550100002"} {
		b.Run(name, func(b *testing.B) {
			for range b.N {
				numbering.TypeOf(number)
			}
		})
	}
}

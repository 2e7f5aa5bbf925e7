package numbering

import (
	"slices"
	"strings"

	"github.com/nyaruka/phonenumbers"
)

// Types of numbers that cost more than a country's others, and that are called only where that was allowed.
const (
	// TypePremium are premium-rate numbers, those of +979 among them.
	TypePremium = "premium"
	// TypeSatellite are numbers of satellites and of other networks that are in no country: +870, +878, +881, +882 and +883.
	TypeSatellite = "satellite"
	// TypeSharedCost are numbers whose price caller and called share, those of +808 among them.
	TypeSharedCost = "shared_cost"
)

// Types are all types, in the order in which they are shown.
var Types = []string{TypePremium, TypeSatellite, TypeSharedCost}

// globalTypes are the types of country calling codes that are no country's (ITU-T E.164, list of assigned codes): everything behind them is of the
// type, whether it is in a plan or not.
var globalTypes = map[string]string{
	"808": TypeSharedCost, "870": TypeSatellite, "878": TypeSatellite, "881": TypeSatellite, "882": TypeSatellite, "883": TypeSatellite, "979": TypePremium,
}

// shortestNumber is how many characters of a number that is in no plan are left at least when its end is cut off: the plus and seven digits.
const shortestNumber = 8

// TypeOf returns the type of an E.164 number (with +), empty for any other number. A number that is in no plan is of the type of the number that it
// begins with: exchanges take no notice of digits that are too many. What is in no plan otherwise has no type.
func TypeOf(number string) string {
	if len(number) > longestCode {
		if global, ok := globalTypes[strings.TrimPrefix(number[:longestCode+1], "+")]; ok {
			return global
		}
	}
	for len(number) >= shortestNumber {
		parsed, err := phonenumbers.Parse(number, "")
		if err != nil {
			return ""
		}
		switch phonenumbers.GetNumberType(parsed) {
		case phonenumbers.PREMIUM_RATE:
			return TypePremium
		case phonenumbers.SHARED_COST:
			return TypeSharedCost
		case phonenumbers.UNKNOWN:
			number = number[:len(number)-1]
		default:
			return ""
		}
	}
	return ""
}

// ofType says whether a number is refused for its type.
func (p Policy) ofType(number string) Verdict {
	if p.typeless() {
		return Verdict{Allowed: true, Entry: anything}
	}
	if kind := TypeOf(number); kind != "" && !slices.Contains(p.Types, kind) {
		return Verdict{Type: kind}
	}
	return Verdict{Allowed: true, Entry: anything}
}

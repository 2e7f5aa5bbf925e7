package numbering

import (
	"strconv"
	"strings"
	"sync"

	"github.com/nyaruka/phonenumbers"
)

// nanp is the country calling code that the United States, Canada and two dozen others share (ITU-T E.164, Annex to List of assigned codes): who has
// a number there is told by the three digits of the area code.
const nanp = "1"

// longestCode is the most digits that a country calling code has (ITU-T E.164 §6.2.1).
const longestCode = 3

// notGeographic is libphonenumber's region of codes that are no country's, such as +883.
const notGeographic = "001"

// IsCountry says whether code is the ISO 3166-1 code (two capital letters) of a country that has telephone numbers.
func IsCountry(code string) bool {
	return len(code) == 2 && phonenumbers.GetSupportedRegions()[code]
}

// Country returns the ISO 3166-1 code of the country that an E.164 number (with +) belongs to, and how many digits say so: those of the country
// calling code, with +1 those of the area code as well. Of a code that several countries share, a number that is in none of their plans has no
// country, nor has one of a code that is no country's: the code is empty then.
func Country(number string) (code string, digits int) {
	calling := callingCode(number)
	switch calling {
	case "":
		return "", 0
	case nanp:
		return areaCountry(number), len(nanp) + areaDigits
	}
	n, _ := strconv.Atoi(calling) // its digits have been looked at
	regions := phonenumbers.GetRegionCodesForCountryCode(n)
	switch {
	case len(regions) == 1 && regions[0] != notGeographic:
		return regions[0], len(calling)
	case len(regions) < 2:
		return "", 0
	}
	parsed, err := phonenumbers.Parse(number, "")
	if err != nil {
		return "", 0
	}
	region := phonenumbers.GetRegionCodeForNumber(parsed)
	if !IsCountry(region) {
		return "", 0
	}
	return region, len(calling)
}

// callingCode is the country calling code of a number, empty where it has none. No code is the beginning of another.
func callingCode(number string) string {
	digits, ok := strings.CutPrefix(number, "+")
	if !ok {
		return ""
	}
	codes := phonenumbers.GetSupportedCallingCodes()
	for length := 1; length <= min(longestCode, len(digits)); length++ {
		if n, err := strconv.Atoi(digits[:length]); err == nil && codes[n] {
			return digits[:length]
		}
	}
	return ""
}

const areaDigits = 3

// areaCountries are the countries of area codes that were asked for: at most a thousand.
var areaCountries sync.Map

// areaCountry is the country of a number that begins with +1. Only its area code counts: what follows is not everywhere kept up to date, and never
// changes the country.
func areaCountry(number string) string {
	begin := len("+" + nanp)
	if len(number) < begin+areaDigits {
		return ""
	}
	area := number[begin : begin+areaDigits]
	if known, ok := areaCountries.Load(area); ok {
		return known.(string)
	}
	country := ""
	// Any number that the plan allows in an area: the exchange begins with 2 to 9.
	if parsed, err := phonenumbers.Parse("+"+nanp+area+"2345678", ""); err == nil {
		if region := phonenumbers.GetRegionCodeForNumber(parsed); IsCountry(region) {
			country = region
		}
	}
	if _, err := strconv.ParseUint(area, 10, 16); err == nil { // otherwise there would be no bound
		areaCountries.Store(area, country)
	}
	return country
}

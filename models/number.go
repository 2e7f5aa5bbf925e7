package models

import (
	"regexp"
	"strings"
)

var e164 = regexp.MustCompile(`^\+[1-9][0-9]{6,14}$`)

// IsE164 reports whether s is a plus sign and 7 to 15 digits, the first not zero (ITU-T E.164).
func IsE164(s string) bool { return e164.MatchString(s) }

// MaskedNumber is a number as logs have it: all but its last four characters are hidden.
func MaskedNumber(number string) string {
	const shown = 4
	if len(number) <= shown {
		return strings.Repeat("*", len(number))
	}
	return strings.Repeat("*", len(number)-shown) + strings.ToValidUTF8(number[len(number)-shown:], "?")
}

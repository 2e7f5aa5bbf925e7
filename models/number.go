package models

import "regexp"

var e164 = regexp.MustCompile(`^\+[1-9][0-9]{6,14}$`)

// IsE164 reports whether s is a plus sign and 7 to 15 digits, the first not zero (ITU-T E.164).
func IsE164(s string) bool { return e164.MatchString(s) }

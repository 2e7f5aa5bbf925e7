package calls

import (
	"fmt"
	"strings"
	"unicode"

	"tandem/models"
)

// ParseNumber returns the E.164 number that s holds (a leading +, 7 to 15 digits, the first not 0; ITU-T E.164 §6.2),
// or an error that says what is wrong with it. Nothing is guessed: a number without + has no country.
func ParseNumber(s string) (string, error) {
	if !strings.HasPrefix(s, "+") {
		return "", fmt.Errorf("must be an E.164 number such as +15550100, with a leading +")
	}
	if !models.IsE164(s) {
		return "", fmt.Errorf("must be an E.164 number: + and 7 to 15 digits, the first not 0")
	}
	return s, nil
}

// switchNumber returns the E.164 form of a number that a carrier sent, with or without its +. It reports false for
// anything else, such as an anonymous caller.
func switchNumber(s string) (string, bool) {
	if !strings.HasPrefix(s, "+") {
		s = "+" + s
	}
	return s, models.IsE164(s)
}

// maxParty is the longest caller or called name kept when it is not a number.
const maxParty = 64

// party is what the API shows for a remote side: the E.164 number where there is one, otherwise the remote text with
// everything unprintable removed and its length bounded, because whoever calls chooses it.
func party(s string) string {
	if n, ok := switchNumber(s); ok {
		return n
	}
	clean := strings.Map(func(r rune) rune {
		if r == unicode.ReplacementChar || !unicode.IsPrint(r) {
			return -1
		}
		return r
	}, s)
	if runes := []rune(clean); len(runes) > maxParty {
		clean = string(runes[:maxParty])
	}
	return clean
}

package models

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// NumberRange is a block of consecutive numbers of one length, First and Last included.
type NumberRange struct{ First, Last string }

// ParseNumberRange reads a number in E.164 form, or a block of numbers: "+4930123400-+4930123499", also with an en dash and with blanks around
// it, or "+4930123400-99", where the last number is given by its last digits.
func ParseNumberRange(text string) (NumberRange, error) {
	first, last, block := strings.Cut(strings.ReplaceAll(text, "–", "-"), "-")
	first, last = strings.TrimSpace(first), strings.TrimSpace(last)
	if !IsE164(first) {
		return NumberRange{}, errors.New("must be an E.164 number such as +31201234567, or a range such as +4930123400-+4930123499")
	}
	if !block {
		return NumberRange{first, first}, nil
	}
	if len(last) < len(first)-1 && isDigits(last) {
		last = first[:len(first)-len(last)] + last
	}
	switch {
	case !IsE164(last):
		return NumberRange{}, errors.New("must end with an E.164 number, or with the last digits of one")
	case len(last) != len(first):
		return NumberRange{}, errors.New("must begin and end with numbers of one length")
	case last < first:
		return NumberRange{}, errors.New("must not end before it begins")
	}
	return NumberRange{first, last}, nil
}

func isDigits(s string) bool {
	return s != "" && strings.Trim(s, "0123456789") == ""
}

// Len returns how many numbers the range has.
func (r NumberRange) Len() int64 { return digits(r.Last) - digits(r.First) + 1 }

// Numbers calls yield with each number, in order.
func (r NumberRange) Numbers(yield func(string) bool) {
	for n := digits(r.First); n <= digits(r.Last); n++ {
		if !yield("+" + strconv.FormatInt(n, 10)) {
			return
		}
	}
}

// digits is an E.164 number without its plus: at most 15 digits, the first of which is no zero.
func digits(number string) int64 {
	n, _ := strconv.ParseInt(number[1:], 10, 64)
	return n
}

// String returns the range as ParseNumberRange reads it.
func (r NumberRange) String() string {
	if r.First == r.Last {
		return r.First
	}
	return fmt.Sprintf("%s-%s", r.First, r.Last)
}

package billing

import (
	"fmt"
	"strconv"
	"strings"
)

// ParseAmount reads a decimal amount of currency, such as "12.5", into millionths. At most six decimals are allowed, so
// that nothing is ever rounded.
func ParseAmount(s string) (int64, error) {
	digits, negative := strings.CutPrefix(strings.TrimSpace(s), "-")
	whole, frac, _ := strings.Cut(digits, ".")
	if whole == "" || len(whole) > 12 || len(frac) > 6 {
		return 0, fmt.Errorf("amount %q: want digits with at most six decimals", s)
	}
	n, err := strconv.ParseUint(whole+frac+strings.Repeat("0", 6-len(frac)), 10, 63)
	if err != nil {
		return 0, fmt.Errorf("amount %q: want digits with at most six decimals", s)
	}
	if negative {
		return -int64(n), nil
	}
	return int64(n), nil
}

// FormatAmount writes millionths as a decimal amount, with at least two decimals.
func FormatAmount(micros int64) string {
	sign, value := "", uint64(micros)
	if micros < 0 {
		sign, value = "-", -value
	}
	frac := strings.TrimRight(fmt.Sprintf("%06d", value%1e6), "0")
	for len(frac) < 2 {
		frac += "0"
	}
	return fmt.Sprintf("%s%d.%s", sign, value/1e6, frac)
}

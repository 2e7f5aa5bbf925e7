package actions

import (
	"fmt"
	"strings"
)

// nearest returns the name that a customer most likely meant, or "" when none is near. Case, dashes and underscores do
// not count, so that numDigits finds num_digits.
func nearest(written string, names []string) string {
	const longest = 40 // no name is longer, and the work is quadratic
	if len(written) > longest {
		return ""
	}
	best, found := 3, ""
	plain := bare(written)
	for _, name := range names {
		target := bare(name)
		// A short word is near only what differs in one letter, or every word would be near every other.
		allowed := 1 + min(len(target), len(plain))/5
		if d := distance(plain, target); d <= allowed && d < best {
			best, found = d, name
		}
	}
	return found
}

// meant is nearest as the end of a message.
func meant(written string, names []string) string {
	if near := nearest(written, names); near != "" {
		return fmt.Sprintf("; did you mean %q?", near)
	}
	return ""
}

func bare(s string) string {
	return strings.ToLower(strings.NewReplacer("_", "", "-", "", " ", "").Replace(s))
}

// distance is the number of bytes to insert, delete, replace or swap with a neighbour to make b of a (optimal string
// alignment).
func distance(a, b string) int {
	rows := make([][]int, len(a)+1)
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
		rows[i][0] = i
	}
	for j := range rows[0] {
		rows[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			d := min(rows[i-1][j]+1, rows[i][j-1]+1, rows[i-1][j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				d = min(d, rows[i-2][j-2]+1)
			}
			rows[i][j] = d
		}
	}
	return rows[len(a)][len(b)]
}

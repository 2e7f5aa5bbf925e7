package simswitch

import (
	"fmt"
	"strings"
	"time"
)

// toneLength is how long a teletone script sounds (libs/libteletone, teletone_run; mod_tone_stream.c): %(on,off,frequency…) in
// milliseconds and single keys of a telephone, with settings before them (L= loops, D= duration and w= wait of the keys) and the
// whole of it `loops` times. -1 is for ever.
func toneLength(script string) (time.Duration, error) {
	script, settings, _ := cutLoops(script)
	total, passes := time.Duration(0), 1
	keyOn, keyOff := 0, 0
	found := false
	for rest := script; rest != ""; {
		switch {
		case strings.HasPrefix(rest, "%("):
			args, after, closed := strings.Cut(rest[2:], ")")
			if !closed {
				return 0, fmt.Errorf("tone script %q is not closed: %w", script, errUnknownMedia)
			}
			words := strings.Split(args, ",")
			if len(words) < 3 {
				return 0, fmt.Errorf("tone script %q: %w", script, errUnknownMedia)
			}
			total += milliseconds(words[0]) + milliseconds(words[1])
			found, rest = true, after
		case len(rest) > 1 && rest[1] == '=':
			value, after, _ := strings.Cut(rest[2:], ";")
			switch rest[0] {
			case 'L', 'l':
				passes = leadingInt(value)
			case 'd', 'D':
				keyOn = leadingInt(value)
			case 'w', 'W':
				keyOff = leadingInt(value)
			}
			rest = after
		default:
			if strings.IndexByte("0123456789*#ABCD", rest[0]) >= 0 {
				total += time.Duration(max(keyOn, 0)+max(keyOff, 0)) * time.Millisecond
				found = true
			}
			rest = rest[1:]
		}
	}
	if !found {
		return 0, fmt.Errorf("tone script %q has no tone: %w", script, errUnknownMedia)
	}
	if settings < 0 || passes < 0 {
		return endless, nil
	}
	times := min(max(1, settings), maxLoops) * min(max(1, passes), maxLoops)
	return min(total, maxTone) * time.Duration(times), nil
}

// Nothing plays longer than this; the bounds keep the product of all three a duration.
const (
	maxTone  = time.Hour
	maxLoops = 1000
)

func milliseconds(s string) time.Duration {
	return time.Duration(max(0, leadingInt(s))) * time.Millisecond
}

// cutLoops takes `;loops=N` off a script.
func cutLoops(script string) (rest string, loops int, given bool) {
	i := strings.Index(script, ";loops=")
	if i < 0 {
		return script, 1, false
	}
	value, after, _ := strings.Cut(script[i+len(";loops="):], ";")
	return script[:i] + strings.TrimSuffix(";"+after, ";"), leadingInt(value), true
}

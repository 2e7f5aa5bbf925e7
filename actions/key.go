package actions

import (
	"fmt"
)

// keypad is what a caller can type.
const keypad = "0123456789ABCD*#"

// keys is a set of keys: those of a keypad, each once; it may be empty.
var keys = rule{
	check: func(s string) error {
		if err := characters(keypad, "the keys "+keypad)(s); err != nil {
			return err
		}
		for i := range s {
			for j := range i {
				if s[i] == s[j] {
					return fmt.Errorf("must name each key once, was %q", s)
				}
			}
		}
		return nil
	},
	says:   "keys of " + keypad + ", each once",
	schema: schema{"pattern": `^[0-9A-D*#]*$`},
}

// oneKey is one key of a keypad.
var oneKey = rule{
	check: func(s string) error {
		if len(s) != 1 {
			return fmt.Errorf("must be one of the keys %s, was %q", keypad, s)
		}
		return characters(keypad, "one of the keys "+keypad)(s)
	},
	says:   "one of the keys " + keypad,
	schema: schema{"pattern": `^[0-9A-D*#]$`},
}

// maxTones is the most digits that one action sends.
const maxTones = 64

// toneCharacters are the keys, and w and W for a pause of half a second and of one second (FreeSWITCH's send_dtmf).
const toneCharacters = "0123456789ABCD*#wW"

// dialled is a series of keys and pauses; it may be empty.
var dialled = rule{
	check:  characters(toneCharacters, "the characters "+toneCharacters),
	says:   "of the characters " + toneCharacters,
	open:   true,
	schema: schema{"pattern": `^[0-9A-D*#wW]*$`},
}

// someDialled is a series that must be given.
var someDialled = rule{
	check: func(s string) error {
		if err := notBlank(s); err != nil {
			return err
		}
		return dialled.check(s)
	},
	says:   dialled.says,
	open:   true,
	schema: schema{"pattern": `^[0-9A-D*#wW]+$`},
}

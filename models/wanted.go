package models

import (
	"slices"
	"strings"
)

// QuietKinds are the kinds of events that an application is told only where it says so: they are many, and few want them.
var QuietKinds = []string{"call.dtmf", "call.action_completed"}

// Wanted reports whether an application that chose kinds is told events of a kind. A choice is a kind, a family ("call.*") or
// everything ("*"); nil is the default set, all but QuietKinds, and an empty list is nothing.
func Wanted(kinds []string, kind string) bool {
	if kinds == nil {
		return !slices.Contains(QuietKinds, kind)
	}
	return slices.ContainsFunc(kinds, func(chosen string) bool {
		family, ok := strings.CutSuffix(chosen, "*")
		return chosen == kind || ok && strings.HasPrefix(kind, family)
	})
}

package api

import (
	"fmt"
	"slices"
	"strings"

	"tandem/models"
)

// destinationFields are the fields of callLimits that say where calls may go: an inbound trunk takes them nowhere.
var destinationFields = []string{"allowed_destinations", "denied_destinations", "allowed_destination_types"}

// trunkBounds are the limits of a trunk in a response.
type trunkBounds struct {
	MaxCalls          int `json:"max_calls,omitempty" doc:"When there is a limit."`
	MaxCallsPerSecond int `json:"max_calls_per_second,omitempty" doc:"When there is a limit."`

	MaxCallsPerDay       int   `json:"max_calls_per_day,omitempty" doc:"When there is a limit."`
	MaxSpendPerDayMicros int64 `json:"max_spend_per_day_micros,omitempty" doc:"When there is a limit: on the calls that go over the trunk themselves, with all that they cost."`
	MaxCallSeconds       int   `json:"max_call_seconds,omitempty" doc:"When there is a limit."`

	AllowedDestinations *[]string `json:"allowed_destinations,omitempty" doc:"Outbound trunks that do not call everywhere."`
	DeniedDestinations  []string  `json:"denied_destinations,omitempty" doc:"Outbound trunks that do not call everywhere."`
	AllowedTypes        *[]string `json:"allowed_destination_types,omitempty" doc:"Outbound trunks that do not call all the types of numbers that the account may."`
}

func toBounds(t *models.Trunk) trunkBounds {
	l := &t.Limits
	return trunkBounds{
		MaxCalls: l.MaxCalls, MaxCallsPerSecond: l.MaxCallsPerSecond, MaxCallsPerDay: l.MaxCallsPerDay, MaxSpendPerDayMicros: l.MaxSpendPerDayMicros,
		MaxCallSeconds: l.MaxCallSeconds, AllowedDestinations: listed(l.AllowedDestinations), DeniedDestinations: l.DeniedDestinations,
		AllowedTypes: listed(l.AllowedDestinationTypes),
	}
}

// trunkLimits changes what the request names. Only numbers are called over trunks.
func (c *checks) trunkLimits(in *callLimits, given fieldSet, to *models.CallLimits) {
	c.callLimits(in, given, to)
	for _, list := range []struct {
		field   string
		entries []string
	}{{"allowed_destinations", to.AllowedDestinations}, {"denied_destinations", to.DeniedDestinations}} {
		if i := slices.IndexFunc(list.entries, func(entry string) bool { return strings.HasPrefix(entry, "sip:") }); i >= 0 {
			place := fmt.Sprintf("%s[%d]", list.field, i)
			c.refuse(place, "%s must be a prefix such as +44, a country such as US, or *: SIP URIs are not called over trunks", place)
		}
	}
}

package api

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"tandem/models"
	"tandem/numbering"
)

// Bounds of what customers, applications and trunks may be limited to; docs/limits.md lists them.
const (
	maxCalls             = 1_000_000
	maxCallsPerSecond    = 10_000
	maxCallsPerDay       = 100_000_000
	maxSpendPerDayMicros = 1_000_000_000_000_000
	maxCallSeconds       = 86_400
)

// callLimits are the fields of a request that bound the calls of a customer, an application or a trunk.
type callLimits struct {
	MaxCalls             *int     `json:"max_calls" nullable:"true" minimum:"1" maximum:"1000000" doc:"How many calls of both directions, and parties that they have dialled, may live at a time. null: any number."`
	MaxCallsPerSecond    *int     `json:"max_calls_per_second" nullable:"true" minimum:"1" maximum:"10000" doc:"How many outbound calls and dialled parties, on a trunk calls in as well, may begin in any one second. null: any number."`
	MaxCallsPerDay       *int     `json:"max_calls_per_day" nullable:"true" minimum:"1" maximum:"100000000" doc:"How many of the calls that max_calls_per_second counts may begin on a day (UTC). null: any number."`
	MaxSpendPerDayMicros *int64   `json:"max_spend_per_day_micros" nullable:"true" minimum:"1" maximum:"1000000000000000" doc:"What the calls of a day (UTC) may cost, with what live ones hold, in millionths of the currency's unit. null: any amount."`
	MaxCallSeconds       *int     `json:"max_call_seconds" nullable:"true" minimum:"1" maximum:"86400" doc:"How long a call may last from its answer, in seconds; the least of customer, application and trunk counts. null: as the configuration says."`
	AllowedDestinations  []string `json:"allowed_destinations" nullable:"true" doc:"Where calls may go: prefixes (+44), countries (US), sip:HOST, sip:* and *; on applications and trunks, of what the account may call. null: everywhere; []: nowhere."`
	DeniedDestinations   []string `json:"denied_destinations" nullable:"true" doc:"Where they may not go all the same, in the same words. The longest entry of both lists counts, of two as long this one."`
	AllowedTypes         []string `json:"allowed_destination_types" nullable:"true" doc:"Which numbers may be called of those that cost more: premium, satellite and shared_cost. A number of another of these types is refused, whatever else is allowed. []: none; null: none of an account, on applications and trunks those of the account."`
}

// callBounds are the same of a response.
type callBounds struct {
	MaxCalls             *int      `json:"max_calls" doc:"How many calls of both directions, and parties that they have dialled, may live at a time; null: any number."`
	MaxCallsPerSecond    *int      `json:"max_calls_per_second" doc:"How many outbound calls and dialled parties may begin in any one second; null: any number."`
	MaxCallsPerDay       *int      `json:"max_calls_per_day" doc:"How many calls may begin on a day (UTC); null: any number."`
	MaxSpendPerDayMicros *int64    `json:"max_spend_per_day_micros" doc:"What the calls of a day (UTC) may cost, with what live ones hold, in millionths of the currency's unit; null: any amount."`
	MaxCallSeconds       *int      `json:"max_call_seconds" doc:"How long a call may last from its answer, in seconds; null: as the configuration says."`
	AllowedDestinations  *[]string `json:"allowed_destinations" doc:"Where calls may go; null: everywhere, for applications of what the account may call."`
	DeniedDestinations   []string  `json:"denied_destinations" doc:"Where they may not go all the same."`
	AllowedTypes         *[]string `json:"allowed_destination_types" doc:"Which numbers may be called of those that cost more: premium, satellite, shared_cost; null, which accounts do not have: those of the account."`
}

func toCallBounds(l *models.CallLimits) callBounds {
	return callBounds{
		MaxCalls: bound(l.MaxCalls), MaxCallsPerSecond: bound(l.MaxCallsPerSecond), MaxCallsPerDay: bound(l.MaxCallsPerDay),
		MaxSpendPerDayMicros: bound(l.MaxSpendPerDayMicros), MaxCallSeconds: bound(l.MaxCallSeconds), AllowedDestinations: listed(l.AllowedDestinations),
		DeniedDestinations: append([]string{}, l.DeniedDestinations...), AllowedTypes: listed(l.AllowedDestinationTypes),
	}
}

// bound shows 0, which is no limit, as null.
func bound[T int | int64](n T) *T {
	if n == 0 {
		return nil
	}
	return &n
}

// listed shows a list that is not set as null, and one with nothing in it as such.
func listed(list []string) *[]string {
	if list == nil {
		return nil
	}
	return &list
}

// callLimits changes what the request names.
func (c *checks) callLimits(in *callLimits, given fieldSet, to *models.CallLimits) {
	for _, number := range []struct {
		field     string
		value, to *int
		most      int
	}{
		{"max_calls", in.MaxCalls, &to.MaxCalls, maxCalls}, {"max_calls_per_second", in.MaxCallsPerSecond, &to.MaxCallsPerSecond, maxCallsPerSecond},
		{"max_calls_per_day", in.MaxCallsPerDay, &to.MaxCallsPerDay, maxCallsPerDay}, {"max_call_seconds", in.MaxCallSeconds, &to.MaxCallSeconds, maxCallSeconds},
	} {
		if given.has(number.field) {
			*number.to = c.between(number.field, number.value, 1, number.most)
		}
	}
	if given.has("max_spend_per_day_micros") {
		to.MaxSpendPerDayMicros = 0
		if in.MaxSpendPerDayMicros != nil {
			if to.MaxSpendPerDayMicros = *in.MaxSpendPerDayMicros; to.MaxSpendPerDayMicros < 1 || to.MaxSpendPerDayMicros > maxSpendPerDayMicros {
				c.refuse("max_spend_per_day_micros", "max_spend_per_day_micros must be between 1 and %d", int64(maxSpendPerDayMicros))
			}
		}
	}
	if given.has("allowed_destinations") {
		to.AllowedDestinations = c.destinations("allowed_destinations", in.AllowedDestinations, given["allowed_destinations"])
	}
	if given.has("denied_destinations") {
		to.DeniedDestinations = c.destinations("denied_destinations", in.DeniedDestinations, given["denied_destinations"])
	}
	if given.has("allowed_destination_types") {
		to.AllowedDestinationTypes = c.destinationTypes(in.AllowedTypes)
	}
}

// destinations accepts the entries of a numbering.Policy, nil for null.
func (c *checks) destinations(field string, list []string, valued bool) []string {
	if !valued {
		return nil
	}
	if len(list) > numbering.MaxEntries {
		c.refuse(field, "%s must hold at most %d entries", field, numbering.MaxEntries)
		return nil
	}
	normal := make([]string, len(list))
	for i := range list {
		var err error
		if normal[i], err = numbering.ParseEntry(list[i]); err != nil {
			place := fmt.Sprintf("%s[%d]", field, i)
			c.refuse(place, "%s %s", place, err)
			return nil
		}
	}
	return normal
}

// destinationTypes accepts types of numbers, each once.
func (c *checks) destinationTypes(list []string) []string {
	for i, kind := range list {
		if !slices.Contains(numbering.Types, kind) || slices.Contains(list[:i], kind) {
			place := fmt.Sprintf("allowed_destination_types[%d]", i)
			c.refuse(place, "%s must be one of %s, each once", place, strings.Join(numbering.Types, ", "))
			return nil
		}
	}
	return list
}

// queueTimeout accepts how long a call may wait for room under the limits.
func (c *checks) queueTimeout(value *int) int {
	return c.between("queue_timeout", value, 1, int(24*time.Hour/time.Second))
}

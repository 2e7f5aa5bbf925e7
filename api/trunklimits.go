package api

import "tandem/models"

// Bounds of what a trunk may be limited to; docs/api.md lists them.
const (
	maxTrunkCalls          = 100_000
	maxTrunkCallsPerSecond = 1000
)

// trunkLimits are the fields of a request that bound the calls of a trunk, whichever its direction.
type trunkLimits struct {
	MaxCalls          *int `json:"max_calls" nullable:"true" minimum:"1" maximum:"100000" doc:"How many calls and dialled parties may be on the trunk at a time. null (default): any number."`
	MaxCallsPerSecond *int `json:"max_calls_per_second" nullable:"true" minimum:"1" maximum:"1000" doc:"How many calls may begin on the trunk in any one second. null (default): any number."`
	dailyLimits
}

// trunkBounds are the same of a response.
type trunkBounds struct {
	MaxCalls          int `json:"max_calls,omitempty" doc:"When there is a limit."`
	MaxCallsPerSecond int `json:"max_calls_per_second,omitempty" doc:"When there is a limit."`

	MaxCallsPerDay       int   `json:"max_calls_per_day,omitempty" doc:"When there is a limit."`
	MaxSpendPerDayMicros int64 `json:"max_spend_per_day_micros,omitempty" doc:"When there is a limit: on the calls that go over the trunk themselves, with all that they cost."`
	MaxCallSeconds       int   `json:"max_call_seconds,omitempty" doc:"When there is a limit."`
}

func toBounds(t *models.Trunk) trunkBounds {
	return trunkBounds{
		MaxCalls: t.Limits.MaxCalls, MaxCallsPerSecond: t.Limits.MaxCallsPerSecond, MaxCallsPerDay: t.Limits.MaxCallsPerDay,
		MaxSpendPerDayMicros: t.Limits.MaxSpendPerDayMicros, MaxCallSeconds: t.Limits.MaxCallSeconds,
	}
}

// limits changes what the request names.
func (c *checks) limits(in *trunkLimits, given fieldSet, to *models.TrunkLimits) {
	if given.has("max_calls") {
		to.MaxCalls = c.between("max_calls", in.MaxCalls, 1, maxTrunkCalls)
	}
	if given.has("max_calls_per_second") {
		to.MaxCallsPerSecond = c.between("max_calls_per_second", in.MaxCallsPerSecond, 1, maxTrunkCallsPerSecond)
	}
	c.daily(&in.dailyLimits, given, &to.DailyLimits)
}

package api

import "tandem/models"

// applicationLimits are the fields of a request that bound an application, within what its customer may do.
type applicationLimits struct {
	MaxCalls            *int     `json:"max_calls" nullable:"true" minimum:"1" maximum:"1000000" doc:"How many calls of both directions, and parties that they have dialled, may live at a time. null (default): any number."`
	MaxCallsPerSecond   *int     `json:"max_calls_per_second" nullable:"true" minimum:"1" maximum:"10000" doc:"How many outbound calls and dialled parties may begin in any one second. null (default): any number."`
	AllowedDestinations []string `json:"allowed_destinations" nullable:"true" doc:"Where calls may go, of what your account may call: prefixes (+44), countries (US), sip:HOST, sip:* and *. null (default): everywhere; []: nowhere."`
	DeniedDestinations  []string `json:"denied_destinations" nullable:"true" doc:"Where they may not go all the same, in the same words. The longest entry of both lists counts, of two as long this one."`
	dailyLimits
}

// applicationBounds are the same of a response.
type applicationBounds struct {
	MaxCalls            *int      `json:"max_calls" doc:"How many calls and dialled parties may live at a time; null: any number."`
	MaxCallsPerSecond   *int      `json:"max_calls_per_second" doc:"How many outbound calls and dialled parties may begin in any one second; null: any number."`
	AllowedDestinations *[]string `json:"allowed_destinations" doc:"Where calls may go, of what your account may call; null: everywhere."`
	DeniedDestinations  []string  `json:"denied_destinations" doc:"Where they may not go all the same."`
	dailyBounds
}

func toApplicationBounds(l *models.ApplicationLimits) applicationBounds {
	object := applicationBounds{
		MaxCalls: bound(l.MaxCalls), MaxCallsPerSecond: bound(l.MaxCallsPerSecond), DeniedDestinations: append([]string{}, l.DeniedDestinations...),
		dailyBounds: toDaily(&l.DailyLimits),
	}
	if l.AllowedDestinations != nil {
		object.AllowedDestinations = &l.AllowedDestinations
	}
	return object
}

// applicationLimits changes what the request names.
func (c *checks) applicationLimits(in *applicationLimits, given fieldSet, to *models.ApplicationLimits) {
	if given.has("max_calls") {
		to.MaxCalls = c.between("max_calls", in.MaxCalls, 1, maxCustomerCalls)
	}
	if given.has("max_calls_per_second") {
		to.MaxCallsPerSecond = c.between("max_calls_per_second", in.MaxCallsPerSecond, 1, maxCustomerCallsPerSecond)
	}
	if given.has("allowed_destinations") {
		to.AllowedDestinations = c.destinations("allowed_destinations", in.AllowedDestinations, given["allowed_destinations"])
	}
	if given.has("denied_destinations") {
		to.DeniedDestinations = c.destinations("denied_destinations", in.DeniedDestinations, given["denied_destinations"])
	}
	c.daily(&in.dailyLimits, given, &to.DailyLimits)
}

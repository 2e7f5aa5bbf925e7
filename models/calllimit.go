package models

// CallLimits bound the calls of a customer, an application or a trunk. What an application's and a trunk's allow is within what their customer's do. The zero
// value bounds nothing, but that no customer may call the numbers of numbering.Types then.
type CallLimits struct {
	// MaxCalls is how many calls of both directions, and parties that they have dialled, may live at a time, whichever controllers they are at; 0 is
	// no bound. Queued calls are not counted.
	MaxCalls int
	// MaxCallsPerSecond is how many outbound calls and dialled parties, of a trunk calls in as well, may begin in any one second; 0 is no bound.
	MaxCallsPerSecond int
	DailyLimits
	Destinations
}

// Destinations are where calls may go: see numbering.Policy.
type Destinations struct {
	// AllowedDestinations is nil where everything is allowed that DeniedDestinations do not name.
	AllowedDestinations []string `gorm:"serializer:optional"`
	DeniedDestinations  []string `gorm:"serializer:optional"`
	// AllowedDestinationTypes are the types of numbers that may be called of those which cost more: see numbering.Types. nil is none for a customer, and
	// those of the customer for an application and a trunk.
	AllowedDestinationTypes []string `gorm:"serializer:optional"`
}

// Bounded says whether there is a bound on the number of calls or on what they cost.
func (l *CallLimits) Bounded() bool {
	return l.MaxCalls > 0 || l.MaxCallsPerSecond > 0 || l.bounded()
}

// columnsWith are the columns of CallLimits and others, for what updates a row.
func columnsWith(others ...string) []string {
	return append(others, "max_calls", "max_calls_per_second", "max_calls_per_day", "max_spend_per_day_micros", "max_call_seconds",
		"allowed_destinations", "denied_destinations", "allowed_destination_types")
}

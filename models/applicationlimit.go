package models

import "context"

// ApplicationLimits bound the calls of an application, within what its customer may do; the zero value bounds nothing.
type ApplicationLimits struct {
	// MaxCalls is how many calls of both directions, and parties that they have dialled, may live at a time, whichever controllers they are at; 0 is
	// no bound. Queued calls are not counted.
	MaxCalls int
	// MaxCallsPerSecond is how many outbound calls and dialled parties may begin in any one second; 0 is no bound.
	MaxCallsPerSecond int
	DailyLimits
	// AllowedDestinations and DeniedDestinations are where calls may go: see numbering.Policy. nil in the first allows what the customer may call.
	AllowedDestinations []string `gorm:"serializer:optional"`
	DeniedDestinations  []string `gorm:"serializer:optional"`
}

// Bounded says whether there is a bound on the number of calls or on what they cost.
func (l *ApplicationLimits) Bounded() bool {
	return l.MaxCalls > 0 || l.MaxCallsPerSecond > 0 || l.bounded()
}

// TakeApplication is TakeCustomer for the limits of an application, with a *LimitError that is ErrApplicationFull.
func (s *Store) TakeApplication(ctx context.Context, applicationID string, b Beginning) {
	if all := s.begin(ctx); all != nil {
		all.applications[applicationID] = all.applications[applicationID].plus(b)
	}
}

var applicationCeiling = ceiling{
	what: SubjectApplication, table: applicationTable, column: "application_id", usage: "application_usage", starts: "application_starts",
	live: `SELECT (SELECT COUNT(*) FROM calls WHERE application_id = ? AND status IN ` + liveStatuses + ` AND status <> '` + CallQueued + `')
		+ (SELECT COUNT(*) FROM legs l JOIN calls c ON c.id = l.call_id
			WHERE c.application_id = ? AND c.status IN ` + liveStatuses + ` AND l.status <> 'ended')`,
}

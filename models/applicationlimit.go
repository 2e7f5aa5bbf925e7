package models

import "context"

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

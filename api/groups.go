package api

import (
	"time"

	"tandem/models"
)

// emptyCreate is the body of a command that says everything in its path.
type emptyCreate struct{}

// conferenceObject is a live conference.
type conferenceObject struct {
	ID         string `json:"id" example:"conf_01jd3v5q8n6w4x2y0z9a8b7c6d"`
	CustomerID string `json:"customer_id"`
	Name       string `json:"name"`
	CreatedAt  string `json:"created_at" format:"date-time"`
}

// conferenceWithMembers is a conference and who is in it.
type conferenceWithMembers struct {
	conferenceObject
	Members []memberObject `json:"members"`
}

// memberObject is a call in a conference.
type memberObject struct {
	CallID   string `json:"call_id"`
	Muted    bool   `json:"muted"`
	JoinedAt string `json:"joined_at" format:"date-time"`
}

func toConference(c *models.Conference) conferenceObject {
	return conferenceObject{ID: c.ID, CustomerID: c.CustomerID, Name: c.Name, CreatedAt: stamp(c.CreatedAt)}
}

func (s *Server) listConferences(r *request) (any, error) {
	page, err := r.page()
	if err != nil {
		return nil, err
	}
	rows, next, err := s.store.Conferences(r.ctx, r.customer, page)
	if err != nil {
		return nil, err
	}
	return listOf(rows, next, toConference), nil
}

func (s *Server) getConference(r *request) (any, error) {
	conference, err := s.store.Conference(r.ctx, r.customer, r.params["id"])
	if err != nil {
		return nil, orNotFound(err, "conference")
	}
	members, err := s.store.ConferenceMembers(r.ctx, conference.ID)
	if err != nil {
		return nil, err
	}
	answer := conferenceWithMembers{conferenceObject: toConference(conference), Members: make([]memberObject, len(members))}
	for i, m := range members {
		answer.Members[i] = memberObject{CallID: m.CallID, Muted: m.Muted, JoinedAt: stamp(m.JoinedAt)}
	}
	return answer, nil
}

// commandMember runs a command to a member of a conference or a queue and answers with the member's call.
func (s *Server) commandMember(r *request, what string, send func(keep func(tx *models.Store, call *models.Call) error) error) (any, error) {
	var answer callObject
	err := send(func(tx *models.Store, call *models.Call) error {
		answer = toCall(call)
		return r.keep(tx, accepted, answer)
	})
	if err != nil {
		return nil, orNotFound(err, what)
	}
	return answer, nil
}

func (s *Server) muteMember(r *request) (any, error) { return s.setMuted(r, true) }

func (s *Server) unmuteMember(r *request) (any, error) { return s.setMuted(r, false) }

func (s *Server) setMuted(r *request, muted bool) (any, error) {
	return s.commandMember(r, "conference member", func(keep func(tx *models.Store, call *models.Call) error) error {
		return s.calls.MuteMember(r.ctx, r.customer, r.params["id"], r.params["call_id"], muted, keep)
	})
}

func (s *Server) kickMember(r *request) (any, error) {
	return s.commandMember(r, "conference member", func(keep func(tx *models.Store, call *models.Call) error) error {
		return s.calls.KickMember(r.ctx, r.customer, r.params["id"], r.params["call_id"], keep)
	})
}

// hangupMember ends the call of a member. Who is not in the conference is not found, whatever else the call does.
func (s *Server) hangupMember(r *request) (any, error) {
	conference, err := s.store.Conference(r.ctx, r.customer, r.params["id"])
	if err != nil {
		return nil, orNotFound(err, "conference")
	}
	member, err := s.store.ConferenceMemberOfCall(r.ctx, r.customer, r.params["call_id"])
	if err != nil {
		return nil, orNotFound(err, "conference member")
	}
	if member.ConferenceID != conference.ID {
		return nil, notFound("conference member")
	}
	return s.cancel(r, member.CallID)
}

func (s *Server) endConference(r *request) (any, error) {
	answer := conferenceObject{}
	conference, err := s.store.Conference(r.ctx, r.customer, r.params["id"])
	if err != nil {
		return nil, orNotFound(err, "conference")
	}
	err = s.calls.EndConference(r.ctx, r.customer, conference.ID, func(tx *models.Store) error {
		answer = toConference(conference)
		return r.keep(tx, accepted, answer)
	})
	if err != nil {
		return nil, orNotFound(err, "conference")
	}
	return answer, nil
}

// queueObject is a queue that somebody waits in.
type queueObject struct {
	Name           string  `json:"name"`
	Waiting        int     `json:"waiting" doc:"Calls that wait."`
	OldestJoinedAt *string `json:"oldest_joined_at" format:"date-time"`
}

// queueWithEntries is a queue and who waits in it.
type queueWithEntries struct {
	queueObject
	Entries []queueEntryObject `json:"entries" doc:"In the order in which they are taken."`
}

// queueEntryObject is a call that waits in a queue.
type queueEntryObject struct {
	ID          string  `json:"id"`
	CallID      string  `json:"call_id"`
	State       string  `json:"state" enum:"waiting,taken,bridged"`
	Position    *int    `json:"position" doc:"From 1; null once it is taken."`
	Priority    int     `json:"priority"`
	WaitSeconds float64 `json:"wait_seconds"`
	JoinedAt    string  `json:"joined_at" format:"date-time"`
}

func (s *Server) listQueues(r *request) (any, error) {
	rows, err := s.store.Queues(r.ctx, r.customer)
	if err != nil {
		return nil, err
	}
	return listOf(rows, "", func(q *models.QueueSummary) queueObject {
		return queueObject{Name: q.Name, Waiting: q.Waiting, OldestJoinedAt: stampOrNil(q.OldestJoinedAt)}
	}), nil
}

func (s *Server) getQueue(r *request) (any, error) {
	rows, err := s.store.QueueEntries(r.ctx, r.customer, r.params["name"])
	if err != nil {
		return nil, err
	}
	if len(rows) == 0 {
		return nil, notFound("queue")
	}
	now := s.store.Now()
	answer := queueWithEntries{queueObject: queueObject{Name: r.params["name"]}, Entries: make([]queueEntryObject, len(rows))}
	for i := range rows {
		row := &rows[i]
		entry := queueEntryObject{
			ID: row.ID, CallID: row.CallID, State: row.State, Priority: row.Priority, JoinedAt: stamp(row.JoinedAt),
			WaitSeconds: waited(row.JoinedAt, row.TakenAt, now),
		}
		if row.State == models.QueueWaiting {
			answer.Waiting++
			position := answer.Waiting
			entry.Position = &position
			if answer.OldestJoinedAt == nil || stamp(row.JoinedAt) < *answer.OldestJoinedAt {
				answer.OldestJoinedAt = stampOrNil(&row.JoinedAt)
			}
		}
		answer.Entries[i] = entry
	}
	return answer, nil
}

// waited is how long a call waits or has waited, in seconds.
func waited(joined time.Time, taken *time.Time, now time.Time) float64 {
	until := now
	if taken != nil {
		until = *taken
	}
	return float64(until.Sub(joined).Milliseconds()) / 1000
}

func (s *Server) leaveQueue(r *request) (any, error) {
	return s.commandMember(r, "queue entry", func(keep func(tx *models.Store, call *models.Call) error) error {
		return s.calls.LeaveQueue(r.ctx, r.customer, r.params["name"], r.params["call_id"], keep)
	})
}

// hangupQueued ends the call of somebody who waits in a queue.
func (s *Server) hangupQueued(r *request) (any, error) {
	entry, err := s.store.QueueEntryOfCall(r.ctx, r.customer, r.params["call_id"])
	if err != nil {
		return nil, orNotFound(err, "queue entry")
	}
	if entry.Queue != r.params["name"] {
		return nil, notFound("queue entry")
	}
	return s.cancel(r, entry.CallID)
}

package models

import (
	"context"
	"errors"
	"fmt"
	"time"

	"gorm.io/gorm/clause"
)

// Conference is a room in which calls of one customer hear each other. A customer has one live conference of a name; it lives
// from the first who joins until the last has left, on one node.
type Conference struct {
	ID         string
	CustomerID string
	Name       string
	NodeID     string `gorm:"serializer:reference"`
	// Room is its name on the switch, which no other conference has.
	Room      string
	CreatedAt time.Time  `gorm:"serializer:moment;autoCreateTime:false"`
	EndedAt   *time.Time `gorm:"serializer:moment"`
}

// Live reports whether the conference has not ended.
func (c *Conference) Live() bool { return c.EndedAt == nil }

// ConferenceMember is a call that is, or was, in a conference.
type ConferenceMember struct {
	ID           string
	ConferenceID string
	CustomerID   string
	CallID       string
	// MemberID is the switch's number of the member, unique in its room.
	MemberID string
	Muted    bool
	JoinedAt time.Time  `gorm:"serializer:moment"`
	LeftAt   *time.Time `gorm:"serializer:moment"`
	// Outcome says why it left.
	Outcome string
}

// OpenConference returns the live conference of a customer with a name, and created true where it had to begin one, on the node.
// A live one may be on another node: see NodeID.
func (s *Store) OpenConference(ctx context.Context, customerID, name, nodeID string) (conference *Conference, created bool, err error) {
	err = s.InTx(ctx, func(tx *Store) error {
		for {
			row := &Conference{ID: NewID(PrefixConference), CustomerID: customerID, Name: name, NodeID: nodeID, CreatedAt: tx.Now()}
			row.Room = row.ID
			// Waits for another transaction that begins one of the same name.
			result := tx.write(ctx).Clauses(clause.OnConflict{
				Columns:     []clause.Column{{Name: "customer_id"}, {Name: "name"}},
				TargetWhere: clause.Where{Exprs: []clause.Expression{clause.Expr{SQL: "ended_at IS NULL"}}},
				DoNothing:   true,
			}).Create(row)
			if result.Error != nil {
				return explain(result.Error, "open conference %q", name)
			}
			if result.RowsAffected == 1 {
				conference, created = row, true
				return nil
			}
			found, err := tx.lockConference(ctx, "customer_id = ? AND name = ? AND ended_at IS NULL", customerID, name)
			if errors.Is(err, ErrNotFound) {
				continue // it ended in between
			}
			conference, created = found, false
			return err
		}
	})
	if err != nil {
		return nil, false, err
	}
	return conference, created, nil
}

// lockConference reads a conference that a transaction is about to change or to add to: until the transaction ends, it does not
// end and nobody joins or leaves.
func (s *Store) lockConference(ctx context.Context, where string, args ...any) (*Conference, error) {
	var row Conference
	err := s.write(ctx).Clauses(clause.Locking{Strength: clause.LockingStrengthUpdate}).Where(where, args...).Take(&row).Error
	if err != nil {
		return nil, explain(err, "conference %v", args)
	}
	return &row, nil
}

// JoinConference inserts a member, fills its ID and time, and returns how many there are with it. ErrStale where the conference
// has ended, ErrInUse where the call is in a conference already, ErrNotFound where call or conference is not the customer's.
func (s *Store) JoinConference(ctx context.Context, member *ConferenceMember) (members int, err error) {
	err = s.InTx(ctx, func(tx *Store) error {
		row := *member
		if row.ID == "" {
			row.ID = NewID(PrefixMember)
		}
		row.JoinedAt, row.LeftAt, row.Outcome = tx.Now(), nil, ""
		conference, err := tx.lockConference(ctx, "id = ? AND customer_id = ?", row.ConferenceID, row.CustomerID)
		if err != nil {
			return err
		}
		if !conference.Live() {
			return fmt.Errorf("join conference %q: %w", row.ConferenceID, ErrStale)
		}
		if err := tx.write(ctx).Create(&row).Error; err != nil {
			return explain(err, "join conference %q with call %q", row.ConferenceID, row.CallID)
		}
		if members, err = tx.countMembers(ctx, row.ConferenceID); err != nil {
			return err
		}
		*member = row
		return nil
	})
	if err != nil {
		return 0, err
	}
	return members, nil
}

func (s *Store) countMembers(ctx context.Context, conferenceID string) (int, error) {
	var count int
	err := s.write(ctx).Raw("SELECT COUNT(*) FROM conference_members WHERE conference_id = ? AND left_at IS NULL", conferenceID).Row().Scan(&count)
	return count, explain(err, "count members of conference %q", conferenceID)
}

// LeaveConference takes a member (by its ID) out of its conference and returns the conference, which has ended with the last
// one, and how many are left. ErrStale where it has left already.
func (s *Store) LeaveConference(ctx context.Context, id, outcome string) (conference *Conference, members int, err error) {
	err = s.InTx(ctx, func(tx *Store) error {
		var row ConferenceMember
		if err := tx.read(ctx).Where("id = ?", id).Take(&row).Error; err != nil {
			return explain(err, "conference member %q", id)
		}
		// The conference before the member, as JoinConference does: who leaves and who joins come one after the other.
		found, err := tx.lockConference(ctx, "id = ?", row.ConferenceID)
		if err != nil {
			return err
		}
		now := tx.Now()
		result := tx.write(ctx).Exec("UPDATE conference_members SET left_at = ?, outcome = ? WHERE id = ? AND left_at IS NULL", micros(now), outcome, id)
		if result.Error == nil && result.RowsAffected == 0 {
			return fmt.Errorf("leave conference %q: %w", row.ConferenceID, ErrStale)
		}
		if result.Error != nil {
			return explain(result.Error, "leave conference %q", row.ConferenceID)
		}
		if members, err = tx.countMembers(ctx, row.ConferenceID); err != nil {
			return err
		}
		if members == 0 && found.Live() {
			if err := tx.endConference(ctx, found, now); err != nil {
				return err
			}
		}
		conference = found
		return nil
	})
	if err != nil {
		return nil, 0, err
	}
	return conference, members, nil
}

func (s *Store) endConference(ctx context.Context, conference *Conference, at time.Time) error {
	conference.EndedAt = &at
	err := s.write(ctx).Exec("UPDATE conferences SET ended_at = ? WHERE id = ?", micros(at), conference.ID).Error
	return explain(err, "end conference %q", conference.ID)
}

// EndConference ends a live conference that has no members: it was opened, and whoever opened it never got in. It reports
// whether it ended it; one with members lives on, and one that has ended stays as it is.
func (s *Store) EndConference(ctx context.Context, id string) (ended bool, err error) {
	err = s.InTx(ctx, func(tx *Store) error {
		ended = false
		found, err := tx.lockConference(ctx, "id = ?", id)
		if err != nil || !found.Live() {
			return err
		}
		members, err := tx.countMembers(ctx, id)
		if err != nil || members > 0 {
			return err
		}
		ended = true
		return tx.endConference(ctx, found, tx.Now())
	})
	return ended, err
}

// SetMemberMuted says whether a member (by its ID) of a customer's conference is muted. ErrNotFound where it is not there.
func (s *Store) SetMemberMuted(ctx context.Context, customerID, id string, muted bool) error {
	return s.InTx(ctx, func(tx *Store) error {
		result := tx.write(ctx).Exec("UPDATE conference_members SET muted = ? WHERE id = ? AND customer_id = ? AND left_at IS NULL", muted, id, customerID)
		return changedOne(result, "mute conference member %q", id)
	})
}

// Conferences returns a page of a customer's live conferences, newest first, and the cursor of the next page.
func (s *Store) Conferences(ctx context.Context, customerID string, page Page) ([]Conference, string, error) {
	query := s.read(ctx).Where("customer_id = ? AND ended_at IS NULL", customerID)
	rows, next, err := paged(query, page, func(c *Conference) (time.Time, string) { return c.CreatedAt, c.ID })
	return rows, next, explain(err, "list conferences")
}

// LiveConferences returns the conferences of a node that have not ended, oldest first.
func (s *Store) LiveConferences(ctx context.Context, nodeID string) ([]Conference, error) {
	var rows []Conference
	err := s.read(ctx).Where("node_id = ? AND ended_at IS NULL", nodeID).Order("created_at, id").Find(&rows).Error
	return rows, explain(err, "read live conferences of node %q", nodeID)
}

// Conference returns a customer's conference: by its ID, ended or not, or the live one of a name. ErrNotFound otherwise.
func (s *Store) Conference(ctx context.Context, customerID, idOrName string) (*Conference, error) {
	var row Conference
	err := s.read(ctx).Where("customer_id = ? AND (id = ? OR name = ? AND ended_at IS NULL)", customerID, idOrName, idOrName).
		Order(clause.OrderBy{Expression: clause.Expr{SQL: "CASE WHEN id = ? THEN 0 ELSE 1 END", Vars: []any{idOrName}}}).Limit(1).Take(&row).Error
	if err != nil {
		return nil, explain(err, "conference %q", idOrName)
	}
	return &row, nil
}

// ConferenceMembers returns those that are in a conference, in the order in which they joined.
func (s *Store) ConferenceMembers(ctx context.Context, conferenceID string) ([]ConferenceMember, error) {
	var rows []ConferenceMember
	err := s.read(ctx).Where("conference_id = ? AND left_at IS NULL", conferenceID).Order("joined_at, id").Find(&rows).Error
	return rows, explain(err, "read members of conference %q", conferenceID)
}

// ConferenceMemberOfCall returns the membership that a customer's call has now, or ErrNotFound.
func (s *Store) ConferenceMemberOfCall(ctx context.Context, customerID, callID string) (*ConferenceMember, error) {
	var row ConferenceMember
	err := s.read(ctx).Where("call_id = ? AND customer_id = ? AND left_at IS NULL", callID, customerID).Take(&row).Error
	if err != nil {
		return nil, explain(err, "conference of call %q", callID)
	}
	return &row, nil
}

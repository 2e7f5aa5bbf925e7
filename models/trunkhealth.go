package models

import (
	"context"
	"errors"
	"time"
)

// A registration that fails once is tried again by the switch within half a minute, and a carrier that is in trouble may come and go for hours.
// Customers are told of what lasts:
const (
	// RegistrationEnds is how long a registration must have been away before its end is told.
	RegistrationEnds = time.Minute
	// FlapLimit is how many ends within FlapWindow make a registration one that comes and goes: it must last for FlapStable before it is told again.
	FlapLimit  = 3
	FlapWindow = 10 * time.Minute
	FlapStable = 5 * time.Minute
)

// Kinds of changes of a trunk's health.
const (
	ChangeRegistration = "registration"
	ChangePing         = "ping"
)

// What pings of a gateway say.
const (
	PingUp   = "UP"
	PingDown = "DOWN"
)

// TrunkHealth is what one node last said of one trunk, kept while the node is away.
type TrunkHealth struct {
	NodeID  string `gorm:"primaryKey"`
	TrunkID string `gorm:"primaryKey"`
	// State is the gateway's when Registered last changed.
	State string
	// Registered is nil before the first word of it. RegisteredAt is when that was said first.
	Registered   *bool
	RegisteredAt *time.Time `gorm:"serializer:moment"`
	// Ping is PingUp, PingDown or empty; PingAt is when that was said first.
	Ping   string
	PingAt *time.Time `gorm:"serializer:moment"`
	// DueAt is when the customer is to be told that Registered is what it is; nil where there is nothing to tell.
	DueAt *time.Time `gorm:"serializer:moment"`
}

// TableName implements gorm's schema.Tabler.
func (TrunkHealth) TableName() string { return "trunk_health" }

// TrunkChange is a change of what a node said of a trunk: that it registered, or answered pings, or did so no more.
type TrunkChange struct {
	ID      string
	TrunkID string
	NodeID  string
	// Kind is ChangeRegistration or ChangePing.
	Kind string
	Up   bool
	// Flap says that what was up went down, other than by a change of the trunk.
	Flap bool
	// State is the gateway's state or, of a ping, its status.
	State     string
	CreatedAt time.Time `gorm:"serializer:moment;autoCreateTime:false"`
}

// healthOf returns what is known of a trunk at a node, which nobody else changes until the transaction ends, and whether the trunk registers. It is
// nil where either is gone.
func (s *Store) healthOf(ctx context.Context, nodeID, trunkID string) (health *TrunkHealth, registers bool, err error) {
	err = s.write(ctx).Exec(`INSERT INTO trunk_health (node_id, trunk_id, state, ping) SELECT n.id, t.id, '', '' FROM nodes n CROSS JOIN trunks t
		WHERE n.id = ? AND t.id = ? AND t.deleted_at IS NULL ON CONFLICT (node_id, trunk_id) DO NOTHING`, nodeID, trunkID).Error
	if err != nil {
		return nil, false, explain(err, "begin the health of trunk %q", trunkID)
	}
	lock := ""
	if s.dialect == DialectPostgres {
		lock = " FOR UPDATE OF h"
	}
	var rows []struct {
		TrunkHealth `gorm:"embedded"`
		Registers   bool
	}
	err = s.write(ctx).Raw(`SELECT h.*, t.register AS registers FROM trunk_health h JOIN trunks t ON t.id = h.trunk_id
		WHERE h.node_id = ? AND h.trunk_id = ? AND t.deleted_at IS NULL`+lock, nodeID, trunkID).Scan(&rows).Error
	if err != nil || len(rows) == 0 {
		return nil, false, explain(err, "read the health of trunk %q", trunkID)
	}
	return &rows[0].TrunkHealth, rows[0].Registers, nil
}

// noteHealth takes a report into what is known of the trunk, and tells of its registration when that is due.
func (s *Store) noteHealth(ctx context.Context, report *GatewayReport, changed OnRegistration) error {
	if report.Registered == nil && report.Status != PingUp && report.Status != PingDown {
		return nil
	}
	at := report.UpdatedAt
	if at.IsZero() {
		at = s.Now()
	}
	var known []TrunkHealth
	if err := s.read(ctx).Where("node_id = ? AND trunk_id = ?", report.NodeID, report.TrunkID).Find(&known).Error; err != nil {
		return explain(err, "read the health of trunk %q", report.TrunkID)
	}
	if len(known) == 1 && known[0].covers(report, at) {
		return nil // nearly always
	}
	health, registers, err := s.healthOf(ctx, report.NodeID, report.TrunkID)
	if err != nil || health == nil {
		return err
	}
	before := *health
	if report.Status == PingUp || report.Status == PingDown {
		if err := s.notePing(ctx, health, report.Status, at); err != nil {
			return err
		}
	}
	if report.Registered != nil && (registers || !*report.Registered) {
		if err := s.noteRegistration(ctx, health, report, at, changed); err != nil {
			return err
		}
	}
	if *health == before {
		return nil
	}
	return explain(s.write(ctx).Save(health).Error, "save the health of trunk %q", report.TrunkID)
}

// covers says whether a report says nothing new, and makes nothing due.
func (h *TrunkHealth) covers(report *GatewayReport, at time.Time) bool {
	if (report.Status == PingUp || report.Status == PingDown) && report.Status != h.Ping {
		return false
	}
	if report.Registered == nil {
		return true
	}
	return h.Registered != nil && *h.Registered == *report.Registered && (h.DueAt == nil || h.DueAt.After(at))
}

func (s *Store) notePing(ctx context.Context, health *TrunkHealth, status string, at time.Time) error {
	if health.Ping == status || health.PingAt != nil && at.Before(*health.PingAt) {
		return nil
	}
	flap := health.Ping == PingUp
	health.Ping, health.PingAt = status, cut(&at)
	return s.noteChange(ctx, health, TrunkChange{Kind: ChangePing, Up: status == PingUp, Flap: flap, State: status}, at)
}

func (s *Store) noteRegistration(ctx context.Context, health *TrunkHealth, report *GatewayReport, at time.Time, changed OnRegistration) error {
	if health.RegisteredAt != nil && at.Before(*health.RegisteredAt) {
		return nil // said before what is known, written after
	}
	up := *report.Registered
	if health.Registered == nil && report.State == stateNoRegistration {
		return nil // it does not register and never did
	}
	if health.Registered == nil || *health.Registered != up {
		was := health.Registered != nil && *health.Registered
		health.Registered, health.RegisteredAt, health.State = &up, cut(&at), report.State
		change := TrunkChange{Kind: ChangeRegistration, Up: up, Flap: was && report.State != stateNoRegistration, State: report.State}
		if err := s.noteChange(ctx, health, change, at); err != nil {
			return err
		}
		if err := s.planTelling(ctx, health, at); err != nil {
			return err
		}
	}
	if health.DueAt == nil || health.DueAt.After(at) {
		return nil
	}
	health.DueAt = nil
	return s.recordRegistration(ctx, report, changed)
}

// stateNoRegistration is FreeSWITCH's state of a gateway that does not register (mod_sofia.c, sofia_state_names).
const stateNoRegistration = "NOREG"

// planTelling decides when the customer is told that a registration is what it has just become.
func (s *Store) planTelling(ctx context.Context, health *TrunkHealth, at time.Time) error {
	health.DueAt = nil
	var told bool
	err := s.write(ctx).Raw("SELECT EXISTS (SELECT 1 FROM trunk_registrations WHERE node_id = ? AND trunk_id = ? AND registered)", health.NodeID, health.TrunkID).
		Row().Scan(&told)
	if err != nil {
		return explain(err, "look for what was told of trunk %q", health.TrunkID)
	}
	if told == *health.Registered {
		return nil
	}
	due := at
	switch {
	case *health.Registered:
		flaps, err := s.flapsAt(ctx, health, at.Add(-FlapWindow))
		if err != nil {
			return err
		}
		if flaps >= FlapLimit {
			due = at.Add(FlapStable)
		}
	case health.State != stateNoRegistration:
		due = at.Add(RegistrationEnds)
	}
	health.DueAt = cut(&due)
	return nil
}

func (s *Store) flapsAt(ctx context.Context, health *TrunkHealth, since time.Time) (flaps int, err error) {
	err = s.write(ctx).Raw("SELECT COUNT(*) FROM trunk_changes WHERE trunk_id = ? AND created_at > ? AND node_id = ? AND kind = '"+ChangeRegistration+"' AND flap",
		health.TrunkID, micros(since), health.NodeID).Row().Scan(&flaps)
	return flaps, explain(err, "count the flaps of trunk %q", health.TrunkID)
}

func (s *Store) noteChange(ctx context.Context, health *TrunkHealth, change TrunkChange, at time.Time) error {
	change.ID, change.TrunkID, change.NodeID, change.CreatedAt = NewID(PrefixChange), health.TrunkID, health.NodeID, at.UTC().Truncate(time.Microsecond)
	return explain(s.write(ctx).Create(&change).Error, "note a change of trunk %q", health.TrunkID)
}

// TellRegistrations calls changed, in a transaction of its own each, for the registrations at the nodes that have been what they are for so long that it is to be
// told. at is the time of now. What cannot be told stays due.
func (s *Store) TellRegistrations(ctx context.Context, nodeIDs []string, at time.Time, changed OnRegistration) error {
	if len(nodeIDs) == 0 {
		return nil
	}
	var due []TrunkHealth
	if err := s.read(ctx).Where("node_id IN ? AND due_at <= ?", nodeIDs, micros(at)).Order("trunk_id, node_id").Find(&due).Error; err != nil {
		return explain(err, "look for registrations to tell of")
	}
	var failures []error
	for i := range due {
		failures = append(failures, s.InTx(ctx, func(tx *Store) error { return tx.tellDue(ctx, &due[i], at, changed) }))
	}
	return errors.Join(failures...)
}

func (s *Store) tellDue(ctx context.Context, known *TrunkHealth, at time.Time, changed OnRegistration) error {
	health, _, err := s.healthOf(ctx, known.NodeID, known.TrunkID)
	if err != nil || health == nil {
		return err
	}
	if health.DueAt == nil || health.DueAt.After(at) || health.Registered == nil {
		return nil // another process has told of it, or it has changed back
	}
	health.DueAt = nil
	if err := s.write(ctx).Save(health).Error; err != nil {
		return explain(err, "save the health of trunk %q", health.TrunkID)
	}
	return s.recordRegistration(ctx, &GatewayReport{
		GatewayStatus: GatewayStatus{NodeID: health.NodeID, TrunkID: health.TrunkID, State: health.State, Status: health.Ping, UpdatedAt: at}, Registered: health.Registered,
	}, changed)
}

// TrunkHealths returns what the nodes last said of a trunk, by node.
func (s *Store) TrunkHealths(ctx context.Context, trunkID string) ([]TrunkHealth, error) {
	var rows []TrunkHealth
	err := s.read(ctx).Where("trunk_id = ?", trunkID).Order("node_id").Find(&rows).Error
	return rows, explain(err, "read the health of trunk %q", trunkID)
}

// TrunkFlaps counts, by trunk, how often since a moment what was registered or answered pings did so no more, at all nodes together.
func (s *Store) TrunkFlaps(ctx context.Context, trunkIDs []string, since time.Time) (map[string]int, error) {
	flaps := make(map[string]int, len(trunkIDs))
	if len(trunkIDs) == 0 {
		return flaps, nil
	}
	var rows []struct {
		TrunkID string
		Flaps   int
	}
	err := s.read(ctx).Raw("SELECT trunk_id, COUNT(*) AS flaps FROM trunk_changes WHERE trunk_id IN ? AND created_at > ? AND flap GROUP BY trunk_id",
		trunkIDs, micros(since)).Scan(&rows).Error
	for _, row := range rows {
		flaps[row.TrunkID] = row.Flaps
	}
	return flaps, explain(err, "count the flaps of trunks")
}

// TrunkChanges returns a page of a trunk's changes, newest first, and the cursor of the next page. They are kept for TrunkChangesKept.
func (s *Store) TrunkChanges(ctx context.Context, trunkID string, page Page) ([]TrunkChange, string, error) {
	rows, next, err := paged(s.read(ctx).Where("trunk_id = ?", trunkID), page, func(c *TrunkChange) (time.Time, string) { return c.CreatedAt, c.ID })
	return rows, next, explain(err, "list the changes of trunk %q", trunkID)
}

// TrunkChangesKept is how long the changes of trunks are kept.
const TrunkChangesKept = 30 * 24 * time.Hour

package models

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"
)

// GatewayReport is what a node says of a trunk's gateway, and what that means for its registration.
type GatewayReport struct {
	GatewayStatus
	// Registered says whether the gateway is registered; nil where the report leaves that open, as while it renews.
	Registered *bool
}

// OnRegistration is called in the transaction that stores a registration's change, to tell of it. Its error undoes the change.
type OnRegistration func(ctx context.Context, tx *Store, change RegistrationChange) error

// RegistrationChange is a trunk that registered at a node, or whose registration there ended: what Status says.
type RegistrationChange struct {
	Trunk      Trunk
	Status     GatewayStatus
	Registered bool
}

// RecordGateways stores what nodes report, as SaveGatewayStatus does, with what changes by it (TrunkChanges), and calls changed, in the same
// transaction, for each report by which a trunk has registered: once, whichever process reports it and however often. The end of a registration is
// told by TellRegistrations when it has lasted, and so is one that comes and goes; see RegistrationEnds. A trunk that does not register makes no
// registration, but one that it had ends, at once.
func (s *Store) RecordGateways(ctx context.Context, reports []GatewayReport, changed OnRegistration) error {
	if len(reports) == 0 {
		return nil
	}
	return s.InTx(ctx, func(tx *Store) error {
		// One order of locks for all processes.
		ordered := slices.SortedStableFunc(slices.Values(reports), func(a, b GatewayReport) int {
			return cmp.Or(cmp.Compare(a.TrunkID, b.TrunkID), cmp.Compare(a.NodeID, b.NodeID))
		})
		statuses := make([]GatewayStatus, len(ordered))
		for i := range ordered {
			statuses[i] = ordered[i].GatewayStatus
		}
		if err := tx.SaveGatewayStatus(ctx, statuses); err != nil {
			return err
		}
		for i := range ordered {
			if err := tx.noteHealth(ctx, &ordered[i], changed); err != nil {
				return err
			}
		}
		return nil
	})
}

func (s *Store) recordRegistration(ctx context.Context, report *GatewayReport, changed OnRegistration) error {
	at := report.UpdatedAt
	if at.IsZero() {
		at = s.Now()
	}
	moved, err := s.moveRegistration(ctx, report, at)
	if err != nil || !moved {
		return err
	}
	trunk, err := s.TrunkByID(ctx, report.TrunkID)
	if err != nil {
		return err
	}
	if err := changed(ctx, s, RegistrationChange{Trunk: *trunk, Status: report.GatewayStatus, Registered: *report.Registered}); err != nil {
		return fmt.Errorf("registration of trunk %q: %w", report.TrunkID, err)
	}
	return nil
}

// moveRegistration reports whether the row moved: that is the moment to tell of it, for one transaction only.
func (s *Store) moveRegistration(ctx context.Context, report *GatewayReport, at time.Time) (bool, error) {
	if !*report.Registered {
		result := s.write(ctx).Exec(`UPDATE trunk_registrations SET registered = FALSE, changed_at = ?
			WHERE node_id = ? AND trunk_id = ? AND registered AND changed_at <= ?
				AND EXISTS (SELECT 1 FROM trunks t WHERE t.id = trunk_registrations.trunk_id AND t.deleted_at IS NULL)`,
			micros(at), report.NodeID, report.TrunkID, micros(at))
		return result.RowsAffected > 0, explain(result.Error, "end registration of trunk %q", report.TrunkID)
	}
	result := s.write(ctx).Exec(`INSERT INTO trunk_registrations (node_id, trunk_id, registered, changed_at)
		SELECT n.id, t.id, TRUE, CAST(? AS BIGINT) FROM nodes n CROSS JOIN trunks t WHERE n.id = ? AND t.id = ? AND t.deleted_at IS NULL AND t.register
		ON CONFLICT (node_id, trunk_id) DO UPDATE SET registered = TRUE, changed_at = excluded.changed_at
		WHERE NOT trunk_registrations.registered AND trunk_registrations.changed_at <= excluded.changed_at`,
		micros(at), report.NodeID, report.TrunkID)
	return result.RowsAffected > 0, explain(result.Error, "begin registration of trunk %q", report.TrunkID)
}

// EndRegistrations forgets what a node reported until then of trunks that are not active any more, and so not on the node, and
// ends the registrations that they had there.
func (s *Store) EndRegistrations(ctx context.Context, nodeID string, at time.Time, changed OnRegistration) error {
	const inactive = " AND trunk_id IN (SELECT t.id FROM trunks t WHERE NOT t.is_active AND t.deleted_at IS NULL)"
	var due bool
	err := s.read(ctx).Raw("SELECT EXISTS (SELECT 1 FROM gateway_statuses WHERE node_id = ?"+inactive+`)
		OR EXISTS (SELECT 1 FROM trunk_health WHERE node_id = ?`+inactive+`)
		OR EXISTS (SELECT 1 FROM trunk_registrations WHERE registered AND node_id = ?`+inactive+")", nodeID, nodeID, nodeID).Row().Scan(&due)
	if err != nil {
		return explain(err, "look for registrations of inactive trunks")
	}
	if !due {
		return nil // nearly always; a look must not cost a write transaction
	}
	return s.InTx(ctx, func(tx *Store) error {
		err := tx.write(ctx).Exec("DELETE FROM gateway_statuses WHERE node_id = ? AND updated_at <= ?"+inactive, nodeID, micros(at)).Error
		if err != nil {
			return explain(err, "drop statuses of inactive trunks")
		}
		if err := tx.write(ctx).Exec("DELETE FROM trunk_health WHERE node_id = ?"+inactive, nodeID).Error; err != nil {
			return explain(err, "drop the health of inactive trunks")
		}
		var trunks []string
		err = tx.write(ctx).Raw("SELECT trunk_id FROM trunk_registrations WHERE registered AND node_id = ?"+inactive+" ORDER BY trunk_id", nodeID).Scan(&trunks).Error
		if err != nil {
			return explain(err, "read registrations of inactive trunks")
		}
		ended := false
		for _, trunk := range trunks {
			report := GatewayReport{
				GatewayStatus: GatewayStatus{NodeID: nodeID, TrunkID: trunk, State: StateDown, Status: "DOWN", UpdatedAt: at}, Registered: &ended,
			}
			if err := tx.recordRegistration(ctx, &report, changed); err != nil {
				return err
			}
		}
		return nil
	})
}

// StateDown is FreeSWITCH's state of a gateway that was unloaded (mod_sofia.c, sofia_state_names).
const StateDown = "DOWN"

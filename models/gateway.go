package models

import (
	"context"
	"time"
)

// GatewayStatus is what one node says of one trunk's gateway: State as FreeSWITCH spells it (REGED, TRYING, FAIL_WAIT, NOREG,
// …), Status UP or DOWN by its OPTIONS pings, PingMS the round trip of the last one.
type GatewayStatus struct {
	NodeID    string `gorm:"primaryKey"`
	TrunkID   string `gorm:"primaryKey"`
	State     string
	Status    string
	PingMS    float64   `gorm:"column:ping_ms"`
	UpdatedAt time.Time `gorm:"serializer:moment;autoUpdateTime:false"`
}

// TableName implements gorm's schema.Tabler.
func (GatewayStatus) TableName() string { return "gateway_statuses" }

// SaveGatewayStatus stores what nodes report, the newest report winning. Reports of nodes or trunks that are gone are
// dropped: a node may speak of a gateway that was deleted a moment ago.
func (s *Store) SaveGatewayStatus(ctx context.Context, statuses []GatewayStatus) error {
	if len(statuses) == 0 {
		return nil
	}
	return s.InTx(ctx, func(tx *Store) error {
		for _, status := range statuses {
			at := status.UpdatedAt
			if at.IsZero() {
				at = tx.Now()
			}
			err := tx.write(ctx).Exec(`INSERT INTO gateway_statuses (node_id, trunk_id, state, status, ping_ms, updated_at)
				SELECT n.id, t.id, CAST(? AS TEXT), CAST(? AS TEXT), CAST(? AS DOUBLE PRECISION), CAST(? AS BIGINT)
				FROM nodes n CROSS JOIN trunks t WHERE n.id = ? AND t.id = ? AND t.deleted_at IS NULL
				ON CONFLICT (node_id, trunk_id) DO UPDATE SET state = excluded.state, status = excluded.status,
					ping_ms = excluded.ping_ms, updated_at = excluded.updated_at
				WHERE gateway_statuses.updated_at <= excluded.updated_at`,
				status.State, status.Status, status.PingMS, micros(at), status.NodeID, status.TrunkID).Error
			if err != nil {
				return explain(err, "save status of gateway of trunk %q", status.TrunkID)
			}
		}
		return nil
	})
}

// DropGatewayStatuses forgets what a node reported of its gateways until then: its switch is away, and nobody knows. What was
// reported later stays, by whichever process looks after the node now.
func (s *Store) DropGatewayStatuses(ctx context.Context, nodeID string, until time.Time) error {
	return s.InTx(ctx, func(tx *Store) error {
		err := tx.write(ctx).Exec("DELETE FROM gateway_statuses WHERE node_id = ? AND updated_at <= ?", nodeID, micros(until)).Error
		return explain(err, "drop gateway statuses of node %q", nodeID)
	})
}

// GatewayStatuses returns, for each trunk that a node has reported on, the best report: REGED first, then UP, then NOREG,
// then the newest.
func (s *Store) GatewayStatuses(ctx context.Context, trunkIDs []string) (map[string]GatewayStatus, error) {
	best := make(map[string]GatewayStatus, len(trunkIDs))
	if len(trunkIDs) == 0 {
		return best, nil
	}
	var rows []GatewayStatus
	if err := s.read(ctx).Where("trunk_id IN ?", trunkIDs).Order("trunk_id, node_id").Find(&rows).Error; err != nil {
		return nil, explain(err, "read gateway statuses")
	}
	for _, row := range rows {
		if known, ok := best[row.TrunkID]; !ok || row.better(&known) {
			best[row.TrunkID] = row
		}
	}
	return best, nil
}

// GatewayStatusesOf returns what each node reports of a trunk, by node.
func (s *Store) GatewayStatusesOf(ctx context.Context, trunkID string) ([]GatewayStatus, error) {
	var rows []GatewayStatus
	err := s.read(ctx).Where("trunk_id = ?", trunkID).Order("node_id").Find(&rows).Error
	return rows, explain(err, "read gateway statuses of trunk %q", trunkID)
}

// BestStatus is the one of a trunk's reports that GatewayStatuses returns, nil for none.
func BestStatus(reports []GatewayStatus) *GatewayStatus {
	var best *GatewayStatus
	for i := range reports {
		if best == nil || reports[i].better(best) {
			best = &reports[i]
		}
	}
	return best
}

func (g *GatewayStatus) better(than *GatewayStatus) bool {
	return g.rank() > than.rank() || g.rank() == than.rank() && g.UpdatedAt.After(than.UpdatedAt)
}

func (g *GatewayStatus) rank() int {
	switch {
	case g.State == "REGED":
		return 3
	case g.Status == "UP":
		return 2
	case g.State == "NOREG":
		return 1
	default:
		return 0
	}
}

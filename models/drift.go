package models

import (
	"context"
	"slices"
	"time"
)

// Kinds of drift: ways in which a node is not as it should be that no change of ours explains.
const (
	// DriftFileEdited: somebody changed or removed a file that we wrote. It is written again.
	DriftFileEdited = "file_edited"
	// DriftFileUnknown: somebody put a file into a folder of ours. It is removed.
	DriftFileUnknown = "file_unknown"
	// DriftGatewayUnknown: the switch has a gateway in our profile that we did not give it.
	DriftGatewayUnknown = "gateway_unknown"
	// DriftGatewayMissing: the switch has not loaded a gateway although its file is there.
	DriftGatewayMissing = "gateway_missing"
	// DriftContextStale: the switch has another dialplan context in memory than its file says.
	DriftContextStale = "context_stale"
)

// DriftKinds are the kinds of drift.
var DriftKinds = []string{DriftFileEdited, DriftFileUnknown, DriftGatewayUnknown, DriftGatewayMissing, DriftContextStale}

// Drift is one way in which a node is not as it should be, or was until EndedAt. Name is a file, a gateway or a context.
type Drift struct {
	ID      string
	NodeID  string
	Kind    string
	Name    string
	FoundAt time.Time  `gorm:"serializer:moment"`
	EndedAt *time.Time `gorm:"serializer:moment"`
}

// TableName implements gorm's schema.Tabler.
func (Drift) TableName() string { return "node_drifts" }

// driftsKept is how many drifts that are over are kept of a node.
const driftsKept = 200

// RecordDrifts stores what is found on a node now: of the kinds that were looked for, what was found before and is not any more has ended. One that
// is healed already ends as it is found. It returns the drifts that are new.
func (s *Store) RecordDrifts(ctx context.Context, nodeID string, kinds []string, found []Drift, healed []Drift) (news []Drift, err error) {
	found, healed = named(found), named(healed)
	err = s.InTx(ctx, func(tx *Store) error {
		news = nil
		now := tx.Now()
		var open []Drift
		if err := tx.write(ctx).Where("node_id = ? AND ended_at IS NULL AND kind IN ?", nodeID, kinds).Find(&open).Error; err != nil {
			return explain(err, "read the drifts of node %q", nodeID)
		}
		present := map[[2]string]bool{}
		for _, d := range found {
			present[[2]string{d.Kind, d.Name}] = true
		}
		known := map[[2]string]bool{}
		for _, d := range open {
			known[[2]string{d.Kind, d.Name}] = true
			if present[[2]string{d.Kind, d.Name}] {
				continue
			}
			if err := tx.write(ctx).Exec("UPDATE node_drifts SET ended_at = ? WHERE id = ?", micros(now), d.ID).Error; err != nil {
				return explain(err, "end a drift of node %q", nodeID)
			}
		}
		add := func(d Drift, ended *time.Time) error {
			row := Drift{ID: NewID(PrefixDrift), NodeID: nodeID, Kind: d.Kind, Name: d.Name, FoundAt: now, EndedAt: ended}
			news = append(news, row)
			return explain(tx.write(ctx).Create(&row).Error, "record a drift of node %q", nodeID)
		}
		for _, d := range found {
			if key := [2]string{d.Kind, d.Name}; !known[key] {
				known[key] = true
				if err := add(d, nil); err != nil {
					return err
				}
			}
		}
		for _, d := range healed {
			if err := add(d, cut(&now)); err != nil {
				return err
			}
		}
		return explain(tx.write(ctx).Exec(`DELETE FROM node_drifts WHERE node_id = ? AND ended_at IS NOT NULL AND id NOT IN
			(SELECT id FROM node_drifts WHERE node_id = ? AND ended_at IS NOT NULL ORDER BY found_at DESC, id DESC LIMIT ?)`,
			nodeID, nodeID, driftsKept).Error, "delete old drifts of node %q", nodeID)
	})
	return news, err
}

// named are drifts with names as the database takes them: a file may be called anything.
func named(drifts []Drift) []Drift {
	drifts = slices.Clone(drifts)
	for i := range drifts {
		drifts[i].Name = clip(drifts[i].Name)
	}
	return drifts
}

// Drifts returns the drifts of a node, newest first: those that last, and the latest of those that are over.
func (s *Store) Drifts(ctx context.Context, nodeID string) ([]Drift, error) {
	var rows []Drift
	err := s.read(ctx).Where("node_id = ?", nodeID).Order("found_at DESC, id DESC").Find(&rows).Error
	return rows, explain(err, "read the drifts of node %q", nodeID)
}

// DriftGroup is what is known of the drifts of one kind on a node.
type DriftGroup struct {
	NodeID, Kind string
	// Lasting is how many have not ended, FoundAt when the latest was found, of those that are over, too.
	Lasting int
	FoundAt time.Time `gorm:"serializer:moment"`
}

// DriftGroups counts the drifts of all nodes by node and kind. A node without any of a kind has no group of it.
func (s *Store) DriftGroups(ctx context.Context) ([]DriftGroup, error) {
	var rows []DriftGroup
	err := s.read(ctx).Model(&Drift{}).
		Select("node_id, kind, SUM(CASE WHEN ended_at IS NULL THEN 1 ELSE 0 END) AS lasting, MAX(found_at) AS found_at").
		Group("node_id, kind").Order("node_id, kind").Find(&rows).Error
	return rows, explain(err, "count drifts")
}

// LiveCallsByGateway returns the ids of the live calls on a node that go through the gateway of each trunk, by themselves or by a party that
// they dialled, oldest first. It does not matter whether the trunk still takes calls.
func (s *Store) LiveCallsByGateway(ctx context.Context, nodeID string) (map[string][]string, error) {
	var rows []struct{ ID, GatewayName string }
	const live = "calls.node_id = ? AND calls.status IN " + liveStatuses + " AND trunks.gateway_name <> ''"
	err := s.read(ctx).Raw(`SELECT calls.id, trunks.gateway_name, calls.created_at FROM calls JOIN trunks ON trunks.id = calls.trunk_id WHERE `+live+`
		UNION SELECT calls.id, trunks.gateway_name, calls.created_at FROM calls JOIN legs ON legs.call_id = calls.id AND legs.status <> 'ended'
			JOIN trunks ON trunks.id = legs.trunk_id WHERE `+live+`
		ORDER BY 3, 1`, nodeID, nodeID).Scan(&rows).Error
	if err != nil {
		return nil, explain(err, "read the live calls of node %q", nodeID)
	}
	calls := map[string][]string{}
	for _, row := range rows {
		calls[row.GatewayName] = append(calls[row.GatewayName], row.ID)
	}
	return calls, nil
}

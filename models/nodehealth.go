package models

import (
	"context"
	"fmt"
	"time"

	"gorm.io/gorm/clause"
)

// NodeHealth is what the controller that holds a node last found out about it.
type NodeHealth struct {
	NodeID string `gorm:"primaryKey"`
	// MeasuredAt is when the node was asked, HeartbeatAt when its last HEARTBEAT came, nil where none has come to the holder.
	MeasuredAt  time.Time  `gorm:"serializer:moment"`
	HeartbeatAt *time.Time `gorm:"serializer:moment"`
	Version     string
	// UptimeSeconds is how long the switch runs.
	UptimeSeconds int64
	// Ready is false while the switch takes no sessions at all. InboundPaused and OutboundPaused say that calls in, or legs out, are refused;
	// Drained that the former is so because the node drains.
	Ready, InboundPaused, OutboundPaused, Drained bool
	// Sessions are the legs that live on the switch, MaxSessions how many may.
	Sessions, PeakSessions, PeakSessionsFiveMinutes, MaxSessions int
	SessionsSinceStart                                           int64
	// Rate is how many legs began in the last second, MaxRate the limit of the switch.
	Rate, PeakRate, PeakRateFiveMinutes, MaxRate int
	// IdleCPU and MinIdleCPU are percent: below MinIdleCPU, where that is not 0, the switch takes no sessions.
	IdleCPU    float64 `gorm:"column:idle_cpu"`
	MinIdleCPU float64 `gorm:"column:min_idle_cpu"`
	// ClockSkew is how far the switch's clock is ahead of the controller's, Answer how long the switch took to answer.
	ClockSkew Micros `gorm:"column:clock_skew_us"`
	Answer    Micros `gorm:"column:answer_us"`
	// MissingModules are those that calls may need and the switch has not loaded.
	MissingModules []string `gorm:"serializer:optional"`
	// Problems are what an operator should mend, the worst first.
	Problems []NodeProblem `gorm:"serializer:optional"`
}

// TableName implements gorm's schema.Tabler.
func (NodeHealth) TableName() string { return "node_health" }

// Micros is a length of time that is stored in microseconds.
type Micros int64

// Duration returns the length of time.
func (m Micros) Duration() time.Duration { return time.Duration(m) * time.Microsecond }

// MicrosOf cuts a length of time to microseconds.
func MicrosOf(d time.Duration) Micros { return Micros(d.Microseconds()) }

// Severities of a NodeProblem.
const (
	// SeverityError: calls fail, or strangers get in.
	SeverityError = "error"
	// SeverityWarning: something that calls may need is missing, or soon will be.
	SeverityWarning = "warning"
)

// NodeProblem is something about a node that an operator should mend.
type NodeProblem struct {
	// Code names the kind of problem, for programs.
	Code     string `json:"code"`
	Severity string `json:"severity"`
	// Message says what was found, Fix what to do; neither holds a secret.
	Message string `json:"message"`
	Fix     string `json:"fix"`
}

// RecordNodeHealth stores what was found out about a node, for the holder of its lease with the token; ErrStale for anyone else.
func (s *Store) RecordNodeHealth(ctx context.Context, token int64, health *NodeHealth) error {
	return s.InTx(ctx, func(tx *Store) error {
		query := "SELECT lease_token FROM nodes WHERE id = ?"
		if tx.dialect == DialectPostgres {
			query += " FOR KEY SHARE"
		}
		var tokens []int64
		if err := tx.write(ctx).Raw(query, health.NodeID).Scan(&tokens).Error; err != nil {
			return explain(err, "look at the lease of node %q", health.NodeID)
		}
		if len(tokens) == 0 || tokens[0] != token {
			return fmt.Errorf("record health of node %q: %w", health.NodeID, ErrStale)
		}
		row := *health
		row.HeartbeatAt = cut(row.HeartbeatAt)
		err := tx.write(ctx).Clauses(clause.OnConflict{Columns: []clause.Column{{Name: "node_id"}}, UpdateAll: true}).Create(&row).Error
		return explain(err, "record health of node %q", health.NodeID)
	})
}

// NodeHealths returns what is known of each node by its id; nodes of which nothing is known are left out.
func (s *Store) NodeHealths(ctx context.Context) (map[string]NodeHealth, error) {
	var rows []NodeHealth
	if err := s.read(ctx).Find(&rows).Error; err != nil {
		return nil, explain(err, "read the health of nodes")
	}
	healths := make(map[string]NodeHealth, len(rows))
	for _, row := range rows {
		healths[row.NodeID] = row
	}
	return healths, nil
}

// LiveCallsByNode counts the calls that have not ended, by the id of their node. Calls that wait to be started have none.
func (s *Store) LiveCallsByNode(ctx context.Context) (map[string]int, error) {
	groups, err := s.LiveCallGroups(ctx)
	if err != nil {
		return nil, err
	}
	counts := map[string]int{}
	for _, group := range groups {
		if group.NodeID != "" {
			counts[group.NodeID] += group.Calls
		}
	}
	return counts, nil
}

// LiveCallGroup counts the calls of one kind that have not ended.
type LiveCallGroup struct {
	// NodeID is empty for calls that wait to be started.
	NodeID, Direction, Status string
	Calls                     int
}

// LiveCallGroups counts the calls that have not ended, by node, direction and status.
func (s *Store) LiveCallGroups(ctx context.Context) ([]LiveCallGroup, error) {
	var rows []LiveCallGroup
	err := s.read(ctx).Raw("SELECT COALESCE(node_id, '') AS node_id, direction, status, COUNT(*) AS calls FROM calls WHERE status IN " + liveStatuses +
		" GROUP BY node_id, direction, status ORDER BY 1, 2, 3").Scan(&rows).Error
	return rows, explain(err, "count live calls")
}

// Backlog is what of the webhook queue waits to be delivered.
type Backlog struct {
	// Events is how many events wait, also those whose next attempt is not due.
	Events int64
	// Lag is how long the one that waits longest has been due, 0 where none is.
	Lag time.Duration
}

// WebhookBacklog measures the webhook queue.
func (s *Store) WebhookBacklog(ctx context.Context) (Backlog, error) {
	var row struct {
		Events int64
		Oldest *int64
	}
	err := s.read(ctx).Raw(`SELECT CAST(COALESCE(SUM(last_seq - acked_seq), 0) AS BIGINT) AS events, MIN(due_at) AS oldest
		FROM webhook_streams WHERE due_at IS NOT NULL`).Scan(&row).Error
	if err != nil {
		return Backlog{}, explain(err, "measure the webhook queue")
	}
	backlog := Backlog{Events: row.Events}
	if row.Oldest != nil {
		backlog.Lag = max(s.Now().Sub(time.UnixMicro(*row.Oldest)), 0)
	}
	return backlog, nil
}

// ConnectedNode is a node that some controller holds and is connected to, with what new calls are placed by.
type ConnectedNode struct {
	ID       string
	Weight   int
	Draining bool
	// Load is what the node last said; its MeasuredAt is the zero time where it has said nothing.
	Load NodeLoad
}

// NodeLoad is the part of NodeHealth that new calls are placed by.
type NodeLoad struct {
	MeasuredAt            time.Time
	Ready, OutboundPaused bool
	Sessions, MaxSessions int
	MaxRate               int
	IdleCPU, MinIdleCPU   float64
}

// ConnectedNodes returns the nodes that some controller holds and is connected to, by id.
func (s *Store) ConnectedNodes(ctx context.Context) ([]ConnectedNode, error) {
	now, err := s.leaseNow(ctx)
	if err != nil {
		return nil, err
	}
	var found []connectedRow
	err = s.read(ctx).Raw(`SELECT n.id, n.weight, n.draining_at IS NOT NULL AS draining, h.measured_at,
			COALESCE(h.ready, FALSE) AS ready, COALESCE(h.outbound_paused, FALSE) AS outbound_paused, COALESCE(h.sessions, 0) AS sessions,
			COALESCE(h.max_sessions, 0) AS max_sessions, COALESCE(h.max_rate, 0) AS max_rate, COALESCE(h.idle_cpu, 0) AS idle_cpu,
			COALESCE(h.min_idle_cpu, 0) AS min_idle_cpu
		FROM nodes n LEFT JOIN node_health h ON h.node_id = n.id
		WHERE n.is_active AND n.lease_until > ? AND n.connected_until > ? ORDER BY n.id`, now, now).Scan(&found).Error
	if err != nil {
		return nil, explain(err, "look for connected nodes")
	}
	nodes := make([]ConnectedNode, len(found))
	for i := range found {
		nodes[i] = found[i].node()
	}
	return nodes, nil
}

// connectedRow is a node as ConnectedNodes reads it.
type connectedRow struct {
	ID             string
	Weight         int
	Draining       bool
	MeasuredAt     *int64
	Ready          bool
	OutboundPaused bool
	Sessions       int
	MaxSessions    int
	MaxRate        int
	IdleCPU        float64 `gorm:"column:idle_cpu"`
	MinIdleCPU     float64 `gorm:"column:min_idle_cpu"`
}

func (r *connectedRow) node() ConnectedNode {
	node := ConnectedNode{ID: r.ID, Weight: r.Weight, Draining: r.Draining}
	if r.MeasuredAt != nil {
		node.Load = NodeLoad{
			MeasuredAt: time.UnixMicro(*r.MeasuredAt).UTC(), Ready: r.Ready, OutboundPaused: r.OutboundPaused, Sessions: r.Sessions,
			MaxSessions: r.MaxSessions, MaxRate: r.MaxRate, IdleCPU: r.IdleCPU, MinIdleCPU: r.MinIdleCPU,
		}
	}
	return node
}

package models

import (
	"context"
	"time"
)

// EndedCall is a call that has ended on a node, with the channels of it and of its legs that the node has not reported.
type EndedCall struct {
	CallID   string
	EndedAt  time.Time
	Channels []string
}

// UnwitnessedCalls returns calls of a node that ended behind another one (its end and its id; an empty id stands for the moment alone) and not after a
// moment, the earliest first, at most limit of them. Those that the node has reported whole are there, too, without channels, so that the last one is
// where to go on.
func (s *Store) UnwitnessedCalls(ctx context.Context, nodeID string, after time.Time, afterID string, before time.Time, limit int) ([]EndedCall, error) {
	var rows []struct {
		ID        string
		ChannelID string
		EndedAt   time.Time `gorm:"serializer:moment"`
	}
	// pruned_at: the index is of those calls.
	err := s.read(ctx).Model(&Call{}).Select("id, channel_id, ended_at").
		Where("node_id = ? AND pruned_at IS NULL AND ended_at >= ? AND ended_at <= ? AND (ended_at > ? OR id > ?)", nodeID, micros(after), micros(before), micros(after), afterID).
		Order("ended_at, id").Limit(limit).Find(&rows).Error
	if err != nil || len(rows) == 0 {
		return nil, explain(err, "read the ended calls of node %q", nodeID)
	}
	calls := make([]EndedCall, len(rows))
	at := make(map[string]int, len(rows))
	ids := make([]string, len(rows))
	var channels []string
	owner := map[string]int{}
	for i, row := range rows {
		calls[i], at[row.ID], ids[i] = EndedCall{CallID: row.ID, EndedAt: row.EndedAt}, i, row.ID
		if row.ChannelID != "" {
			channels = append(channels, row.ChannelID)
			owner[row.ChannelID] = i
		}
	}
	var legs []struct{ CallID, ChannelID string }
	if err := s.read(ctx).Raw("SELECT call_id, channel_id FROM legs WHERE call_id IN ? AND channel_id <> '' ORDER BY created_at, id", ids).Scan(&legs).Error; err != nil {
		return nil, explain(err, "read the legs of ended calls of node %q", nodeID)
	}
	for _, leg := range legs {
		if _, known := owner[leg.ChannelID]; !known {
			channels = append(channels, leg.ChannelID)
			owner[leg.ChannelID] = at[leg.CallID]
		}
	}
	reported, err := s.CDRs(ctx, nodeID, channels)
	if err != nil {
		return nil, err
	}
	for _, channel := range channels {
		if _, there := reported[channel]; !there {
			call := &calls[owner[channel]]
			call.Channels = append(call.Channels, channel)
		}
	}
	return calls, nil
}

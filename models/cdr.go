package models

import (
	"context"
	"fmt"
	"time"

	"gorm.io/gorm/clause"
)

// CDR is what a switch wrote down when one of its channels had ended: the second witness of a call's end, besides the events
// that a controller hears. Of what the parties sent nothing is kept but the cause and the Call-ID.
type CDR struct {
	NodeID    string
	ChannelID string
	Direction string
	// Cause is FreeSWITCH's name of the hangup cause, SIPCode the status that ended the dialogue, Disposition who sent BYE,
	// CANCEL or the refusal.
	Cause       string
	Q850        int `gorm:"column:q850"`
	SIPCode     int `gorm:"column:sip_code"`
	Disposition string
	// BilledSeconds is the time from the answer to the end, RecordedMS the length of the channel's last recording.
	BilledSeconds int
	RecordedMS    int64      `gorm:"column:recorded_ms"`
	StartedAt     time.Time  `gorm:"serializer:moment"`
	AnsweredAt    *time.Time `gorm:"serializer:moment"`
	EndedAt       time.Time  `gorm:"serializer:moment"`
	// SIPCallID is the Call-ID of the dialogue, by which a capture of the network has it, and Peer the address and port that the other side's
	// SIP came from; empty where the switch does not say.
	SIPCallID string `gorm:"column:sip_call_id"`
	Peer      string
	// Codec is the one that was heard last. PacketsIn and PacketsOut count the packets of sound that came and went; nil where the switch does
	// not say.
	Codec      string
	PacketsIn  *int64
	PacketsOut *int64
	// ReceivedAt is when it was stored. Only SaveCDRs sets it.
	ReceivedAt time.Time `gorm:"serializer:moment"`
	// CheckedAt is when it was held against what was billed. Only CheckCDRs sets it.
	CheckedAt *time.Time `gorm:"serializer:moment"`
}

// TableName implements gorm's schema.Tabler.
func (CDR) TableName() string { return "cdrs" }

// BillingDifference is an ended call that was billed other seconds than its node's CDR says. Money is not moved for it: it is
// for people to look at.
type BillingDifference struct {
	CallID        string
	NodeID        string
	ChannelID     string
	BilledSeconds int
	CDRSeconds    int       `gorm:"column:cdr_seconds"`
	FoundAt       time.Time `gorm:"serializer:moment"`
}

// channelsAtOnce bounds how many channels one statement names.
const channelsAtOnce = 500

// SaveCDRs stores what nodes report, all or nothing. The first report of a node's channel stands: one that comes again changes
// nothing.
func (s *Store) SaveCDRs(ctx context.Context, cdrs []CDR) error {
	if len(cdrs) == 0 {
		return nil
	}
	return s.InTx(ctx, func(tx *Store) error {
		now := tx.Now()
		rows := make([]CDR, len(cdrs))
		for i := range cdrs {
			rows[i] = cdrs[i]
			rows[i].AnsweredAt = cut(rows[i].AnsweredAt)
			rows[i].ReceivedAt, rows[i].CheckedAt = now, nil
		}
		err := tx.write(ctx).Clauses(clause.OnConflict{
			Columns: []clause.Column{{Name: "node_id"}, {Name: "channel_id"}}, DoNothing: true,
		}).Create(&rows).Error
		return explain(err, "save %d CDRs", len(rows))
	})
}

// CDR returns what a node reported of a channel, or ErrNotFound.
func (s *Store) CDR(ctx context.Context, nodeID, channelID string) (*CDR, error) {
	var row CDR
	if err := s.read(ctx).Where("node_id = ? AND channel_id = ?", nodeID, channelID).Take(&row).Error; err != nil {
		return nil, explain(err, "CDR of channel %q", channelID)
	}
	return &row, nil
}

// CDRs returns, by channel, what a node reported of the channels; one that it has not reported is missing.
func (s *Store) CDRs(ctx context.Context, nodeID string, channels []string) (map[string]CDR, error) {
	found := make(map[string]CDR, len(channels))
	for len(channels) > 0 {
		some := channels[:min(channelsAtOnce, len(channels))]
		channels = channels[len(some):]
		var rows []CDR
		if err := s.read(ctx).Where("node_id = ? AND channel_id IN ?", nodeID, some).Find(&rows).Error; err != nil {
			return nil, explain(err, "CDRs of %d channels of node %q", len(some), nodeID)
		}
		for i := range rows {
			found[rows[i].ChannelID] = rows[i]
		}
	}
	return found, nil
}

// UnheardCDRs returns the CDRs of a node, stored before a moment, of channels that are still taken to be alive: those of live
// calls, and of their legs that have not ended.
func (s *Store) UnheardCDRs(ctx context.Context, nodeID string, before time.Time) ([]CDR, error) {
	var rows []CDR
	err := s.read(ctx).Raw(`SELECT cdrs.* FROM calls JOIN cdrs ON cdrs.node_id = calls.node_id AND cdrs.channel_id = calls.channel_id
			WHERE calls.node_id = ? AND calls.status IN `+liveStatuses+` AND cdrs.received_at < ?
		UNION SELECT cdrs.* FROM calls JOIN legs ON legs.call_id = calls.id AND legs.status <> '`+LegEnded+`'
			JOIN cdrs ON cdrs.node_id = calls.node_id AND cdrs.channel_id = legs.channel_id
			WHERE calls.node_id = ? AND calls.status IN `+liveStatuses+` AND cdrs.received_at < ?
		ORDER BY 1, 2`, nodeID, micros(before), nodeID, micros(before)).Scan(&rows).Error
	return rows, explain(err, "unheard CDRs of node %q", nodeID)
}

// CheckCDRs holds at most limit CDRs, stored before a moment and not held against their calls yet, against what these were
// billed, oldest first. It stores and returns the differences. A CDR whose call has not ended is left for later, one of a
// channel that is no call's own is passed over. More says that there were as many as limit.
func (s *Store) CheckCDRs(ctx context.Context, before time.Time, limit int) (found []BillingDifference, more bool, err error) {
	err = s.InTx(ctx, func(tx *Store) error {
		found, more = nil, false // when the transaction is run again
		var rows []struct {
			NodeID, ChannelID, CallID string
			CDRSeconds                int `gorm:"column:cdr_seconds"`
			BilledSeconds             int
		}
		err := tx.write(ctx).Raw(`SELECT cdrs.node_id, cdrs.channel_id, cdrs.billed_seconds AS cdr_seconds, COALESCE(calls.id, '') AS call_id,
				COALESCE(calls.billed_seconds, 0) AS billed_seconds
			FROM cdrs LEFT JOIN calls ON calls.channel_id = cdrs.channel_id AND calls.channel_id <> '' AND calls.node_id = cdrs.node_id
			WHERE cdrs.checked_at IS NULL AND cdrs.received_at < ? AND (calls.id IS NULL OR calls.settled_at IS NOT NULL)
			ORDER BY cdrs.received_at, cdrs.channel_id LIMIT ?`, micros(before), limit).Scan(&rows).Error
		if err != nil {
			return explain(err, "read CDRs to check")
		}
		more = len(rows) == limit
		now := tx.Now()
		channels := map[string][]string{}
		for _, row := range rows {
			channels[row.NodeID] = append(channels[row.NodeID], row.ChannelID)
			if row.CallID != "" && row.CDRSeconds != row.BilledSeconds {
				found = append(found, BillingDifference{
					CallID: row.CallID, NodeID: row.NodeID, ChannelID: row.ChannelID, BilledSeconds: row.BilledSeconds, CDRSeconds: row.CDRSeconds, FoundAt: now,
				})
			}
		}
		for node, some := range channels {
			err := tx.write(ctx).Exec("UPDATE cdrs SET checked_at = ? WHERE node_id = ? AND channel_id IN ?", micros(now), node, some).Error
			if err != nil {
				return explain(err, "note that %d CDRs were checked", len(some))
			}
		}
		if len(found) == 0 {
			return nil
		}
		err = tx.write(ctx).Clauses(clause.OnConflict{Columns: []clause.Column{{Name: "call_id"}}, DoNothing: true}).Create(&found).Error
		return explain(err, "save %d billing differences", len(found))
	})
	if err != nil {
		return nil, false, fmt.Errorf("check CDRs: %w", err)
	}
	return found, more, nil
}

// BillingDifferences returns all that CheckCDRs has found, newest first.
func (s *Store) BillingDifferences(ctx context.Context) ([]BillingDifference, error) {
	var rows []BillingDifference
	err := s.read(ctx).Order("found_at DESC, call_id").Find(&rows).Error
	return rows, explain(err, "read billing differences")
}

// EndedChannels returns those of the channels of a node that should not be there any more: of calls that have ended, and of legs
// that have ended or whose call has, unless the channel is a live call's own.
func (s *Store) EndedChannels(ctx context.Context, nodeID string, channels []string) ([]string, error) {
	var ended []string
	for len(channels) > 0 {
		some := channels[:min(channelsAtOnce, len(channels))]
		channels = channels[len(some):]
		var found []string
		err := s.read(ctx).Raw(`SELECT channel_id FROM calls WHERE channel_id IN ? AND channel_id <> '' AND node_id = ? AND status NOT IN `+liveStatuses+`
			UNION SELECT legs.channel_id FROM legs JOIN calls ON calls.id = legs.call_id
				WHERE legs.channel_id IN ? AND calls.node_id = ? AND (legs.status = '`+LegEnded+`' OR calls.status NOT IN `+liveStatuses+`)
				AND NOT EXISTS (SELECT 1 FROM calls AS own WHERE own.channel_id = legs.channel_id AND own.channel_id <> '' AND own.status IN `+liveStatuses+`)
			ORDER BY 1`, some, nodeID, some, nodeID).Scan(&found).Error
		if err != nil {
			return nil, explain(err, "look for ended channels of node %q", nodeID)
		}
		ended = append(ended, found...)
	}
	return ended, nil
}

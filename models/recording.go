package models

import (
	"cmp"
	"context"
	"time"

	"gorm.io/gorm/clause"
)

// Statuses of a recording.
const (
	RecordingRunning = "recording"
	RecordingPaused  = "paused"
	// RecordingProcessing has ended and is still on its way to us from the node.
	RecordingProcessing = "processing"
	RecordingAvailable  = "available"
	RecordingFailed     = "failed"
)

// Recording is a sound file of a call. Path is where the node wrote it; Seconds its length, once it has ended.
type Recording struct {
	ID         string
	CallID     string
	CustomerID string
	Path       string
	Format     string
	// Channels is 1 for mixed sound and 2 where each side has its own; 0 is stored as 1.
	Channels int
	Status   string
	// Remote says that Path is the node's, whose disk we do not share; once the recording is available, Path is ours. Size is then how
	// many bytes it has.
	Remote bool
	Size   int64
	// Masked says that the application has it write silence, for the time being.
	Masked    bool
	Seconds   float64
	CreatedAt time.Time  `gorm:"serializer:moment;autoCreateTime:false"`
	EndedAt   *time.Time `gorm:"serializer:moment"`
}

// SaveRecording inserts a recording, or updates path, format, channels, status, length, size and end of the one with its ID.
func (s *Store) SaveRecording(ctx context.Context, recording *Recording) error {
	return s.InTx(ctx, func(tx *Store) error {
		row := *recording
		if row.ID == "" {
			row.ID = NewID(PrefixRecording)
		}
		if row.CreatedAt.IsZero() {
			row.CreatedAt = tx.Now()
		}
		row.Channels = cmp.Or(row.Channels, 1)
		row.EndedAt = cut(row.EndedAt)
		if tx.later(func(ctx context.Context, tx *Store) error { return tx.SaveRecording(ctx, &row) }) {
			*recording = row
			return nil
		}
		err := tx.write(ctx).Clauses(clause.OnConflict{
			Columns:   []clause.Column{{Name: "id"}},
			DoUpdates: clause.AssignmentColumns([]string{"path", "format", "channels", "status", "masked", "remote", "size", "seconds", "ended_at"}),
		}).Create(&row).Error
		if err != nil {
			return explain(err, "save recording of call %q", row.CallID)
		}
		*recording = row
		return nil
	})
}

// LiveRecordings returns the recordings that run or are paused of all live calls of a node, oldest first.
func (s *Store) LiveRecordings(ctx context.Context, nodeID string) ([]Recording, error) {
	var rows []Recording
	err := s.read(ctx).Where("status IN ? AND call_id IN "+liveCallsOfNode, []string{RecordingRunning, RecordingPaused}, nodeID).Order("created_at, id").Find(&rows).Error
	return rows, explain(err, "read live recordings of node %q", nodeID)
}

// RecordingsOfCall returns a call's recordings, oldest first.
func (s *Store) RecordingsOfCall(ctx context.Context, customerID, callID string) ([]Recording, error) {
	var rows []Recording
	err := s.read(ctx).Where("call_id = ? AND customer_id = ?", callID, customerID).Order("created_at, id").Find(&rows).Error
	return rows, explain(err, "read recordings of call %q", callID)
}

package models

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"time"

	"gorm.io/gorm"
	"gorm.io/gorm/clause"
)

// RecordingUpload is a recording that a node has and we do not share the disk of. It is there until the node's file is gone: what
// has no StoredAt is to be sent, what has one to be deleted there.
type RecordingUpload struct {
	RecordingID string `gorm:"primaryKey"`
	NodeID      string
	// Path is where the node has the file.
	Path string
	// Attempts counts how often the node was asked for it, DueAt is when it will be the next time, Error why the last time failed.
	Attempts int
	DueAt    time.Time  `gorm:"serializer:moment"`
	StoredAt *time.Time `gorm:"serializer:moment"`
	// Refusals counts how often what came was no recording; Hopeless says that it never will be one that can be taken.
	Refusals  int
	Hopeless  bool
	Error     string
	CreatedAt time.Time `gorm:"serializer:moment;autoCreateTime:false"`
}

// recordingUploadRow is an upload as stored: of the token that admits it, only the SHA-256.
type recordingUploadRow struct {
	RecordingUpload `gorm:"embedded"`
	TokenHash       []byte
	TokenUntil      *time.Time `gorm:"serializer:moment"`
}

// TableName implements gorm's schema.Tabler.
func (recordingUploadRow) TableName() string { return "recording_uploads" }

// AwaitRecording notes that a recording is to come from a node, when it is due. One that is noted already stays as it is.
func (s *Store) AwaitRecording(ctx context.Context, recordingID, nodeID, path string, due time.Time) error {
	return s.InTx(ctx, func(tx *Store) error {
		if tx.later(func(ctx context.Context, tx *Store) error {
			return tx.AwaitRecording(ctx, recordingID, nodeID, path, due)
		}) {
			return nil
		}
		row := recordingUploadRow{RecordingUpload: RecordingUpload{RecordingID: recordingID, NodeID: nodeID, Path: path, DueAt: due, CreatedAt: tx.Now()}}
		// No token is NULL; SQLite's driver would store one of no bytes.
		err := tx.write(ctx).Clauses(clause.OnConflict{Columns: []clause.Column{{Name: "recording_id"}}, DoNothing: true}).Omit("TokenHash").Create(&row).Error
		return explain(err, "await recording %q", recordingID)
	})
}

// DueUploads returns the uploads of a node whose time has come, the ones that have waited longest first.
func (s *Store) DueUploads(ctx context.Context, nodeID string, limit int) ([]RecordingUpload, error) {
	var rows []recordingUploadRow
	err := s.read(ctx).Where("node_id = ? AND due_at <= ?", nodeID, micros(s.Now())).Order("due_at, recording_id").Limit(limit).Find(&rows).Error
	if err != nil {
		return nil, explain(err, "read the uploads of node %q", nodeID)
	}
	uploads := make([]RecordingUpload, 0, len(rows))
	for i := range rows {
		uploads = append(uploads, rows[i].RecordingUpload)
	}
	return uploads, nil
}

// BeginUpload counts an attempt, puts the next one off until due, and returns the token that admits the file until then: 32 random
// bytes in hex. An earlier token is worth nothing from then on. ErrStale where the file has come already.
func (s *Store) BeginUpload(ctx context.Context, recordingID string, due time.Time) (token string, err error) {
	var raw [32]byte
	_, _ = rand.Read(raw[:]) // never fails: crypto/rand.Read crashes the program instead
	token = hex.EncodeToString(raw[:])
	hash := sha256.Sum256([]byte(token))
	err = s.InTx(ctx, func(tx *Store) error {
		result := tx.write(ctx).Exec(`UPDATE recording_uploads SET attempts = attempts + 1, due_at = ?, token_hash = ?, token_until = ?
			WHERE recording_id = ? AND stored_at IS NULL`, micros(due), hash[:], micros(due), recordingID)
		return unlessStale(result, "begin the upload of recording %q", recordingID)
	})
	if err != nil {
		return "", err
	}
	return token, nil
}

// AdmitUpload returns the upload that a token of a node's admits now, or ErrNotFound.
func (s *Store) AdmitUpload(ctx context.Context, nodeID, token string) (*RecordingUpload, error) {
	hash := sha256.Sum256([]byte(token))
	var row recordingUploadRow
	err := s.read(ctx).Where("token_hash = ? AND node_id = ? AND token_until > ? AND stored_at IS NULL", hash[:], nodeID, micros(s.Now())).Take(&row).Error
	if err != nil {
		return nil, explain(err, "admit an upload")
	}
	return &row.RecordingUpload, nil
}

// FinishUpload notes that the file of a token has come and is durable; the token is used up, and the node's file to be deleted from now
// on. ErrStale where the token admits nothing any more.
func (s *Store) FinishUpload(ctx context.Context, recordingID, token string) error {
	hash := sha256.Sum256([]byte(token))
	return s.InTx(ctx, func(tx *Store) error {
		now := micros(tx.Now())
		result := tx.write(ctx).Exec(`UPDATE recording_uploads SET stored_at = ?, due_at = ?, attempts = 0, error = '', token_hash = NULL, token_until = NULL
			WHERE recording_id = ? AND token_hash = ? AND stored_at IS NULL`, now, now, recordingID, hash[:])
		return unlessStale(result, "finish the upload of recording %q", recordingID)
	})
}

// unlessStale reports ErrStale where a change found its row in another state.
func unlessStale(result *gorm.DB, format string, args ...any) error {
	if result.Error == nil && result.RowsAffected == 0 {
		return fmt.Errorf(format+": %w", append(args, ErrStale)...)
	}
	return explain(result.Error, format, args...)
}

// RefuseUpload notes that what came was no recording, and why; final says that another try would end the same.
func (s *Store) RefuseUpload(ctx context.Context, recordingID, reason string, final bool) error {
	return s.InTx(ctx, func(tx *Store) error {
		result := tx.write(ctx).Exec("UPDATE recording_uploads SET error = ?, refusals = refusals + 1, hopeless = ? WHERE recording_id = ? AND stored_at IS NULL",
			reason, final, recordingID)
		return explain(result.Error, "refuse the upload of recording %q", recordingID)
	})
}

// Upload returns the upload of a recording, or ErrNotFound.
func (s *Store) Upload(ctx context.Context, recordingID string) (*RecordingUpload, error) {
	var row recordingUploadRow
	if err := s.read(ctx).Where("recording_id = ?", recordingID).Take(&row).Error; err != nil {
		return nil, explain(err, "upload of recording %q", recordingID)
	}
	return &row.RecordingUpload, nil
}

// PutOffUpload notes why an attempt failed and when the next one is due.
func (s *Store) PutOffUpload(ctx context.Context, recordingID, reason string, due time.Time) error {
	return s.InTx(ctx, func(tx *Store) error {
		result := tx.write(ctx).Exec("UPDATE recording_uploads SET error = ?, due_at = ? WHERE recording_id = ?", reason, micros(due), recordingID)
		return explain(result.Error, "put off the upload of recording %q", recordingID)
	})
}

// CountCleanup counts a try to delete a node's file whose recording we have.
func (s *Store) CountCleanup(ctx context.Context, recordingID string, due time.Time) error {
	return s.InTx(ctx, func(tx *Store) error {
		result := tx.write(ctx).Exec("UPDATE recording_uploads SET attempts = attempts + 1, due_at = ? WHERE recording_id = ?", micros(due), recordingID)
		return explain(result.Error, "count the deletion of the node's file of recording %q", recordingID)
	})
}

// EndUpload forgets an upload: the node's file is gone, or will never come.
func (s *Store) EndUpload(ctx context.Context, recordingID string) error {
	return s.InTx(ctx, func(tx *Store) error {
		return explain(tx.write(ctx).Exec("DELETE FROM recording_uploads WHERE recording_id = ?", recordingID).Error, "end the upload of recording %q", recordingID)
	})
}

// FailRecording forgets the upload of a recording and notes that it has failed. ErrStale where the recording is not on its way (any more).
func (s *Store) FailRecording(ctx context.Context, recordingID string) (*Recording, error) {
	var row *Recording
	err := s.InTx(ctx, func(tx *Store) error {
		// The upload first, as FinishUpload does: of a file that comes in this moment, one of the two sees what became of it.
		if err := tx.EndUpload(ctx, recordingID); err != nil {
			return err
		}
		result := tx.write(ctx).Exec("UPDATE recordings SET status = '"+RecordingFailed+"' WHERE id = ? AND status = '"+RecordingProcessing+"'", recordingID)
		if err := unlessStale(result, "give up recording %q", recordingID); err != nil {
			return err
		}
		var err error
		row, err = tx.RecordingByID(ctx, recordingID)
		return err
	})
	return row, err
}

// LostRecordings returns the ids of recordings that are on their way from nowhere: their node was deleted. The oldest come first, at most limit.
func (s *Store) LostRecordings(ctx context.Context, limit int) (ids []string, err error) {
	err = s.read(ctx).Raw("SELECT id FROM recordings WHERE status = '"+RecordingProcessing+`' AND NOT EXISTS
		(SELECT 1 FROM recording_uploads u WHERE u.recording_id = recordings.id) ORDER BY created_at LIMIT ?`, limit).Scan(&ids).Error
	return ids, explain(err, "look for lost recordings")
}

// UnsentRecordings returns the ids of the recordings that have not come from a node, the oldest first.
func (s *Store) UnsentRecordings(ctx context.Context, nodeID string) ([]string, error) {
	var ids []string
	err := s.write(ctx).Raw("SELECT recording_id FROM recording_uploads WHERE node_id = ? AND stored_at IS NULL ORDER BY created_at, recording_id", nodeID).Scan(&ids).Error
	return ids, explain(err, "read the uploads of node %q", nodeID)
}

// RecordingByID returns a recording whosesoever it is. Never answer a customer's request from it.
func (s *Store) RecordingByID(ctx context.Context, id string) (*Recording, error) {
	var row Recording
	if err := s.read(ctx).Where("id = ?", id).Take(&row).Error; err != nil {
		return nil, explain(err, "recording %q", id)
	}
	return &row, nil
}

// PendingUploads counts, by node, the recordings that have not come yet.
func (s *Store) PendingUploads(ctx context.Context) (map[string]int, error) {
	var rows []struct {
		NodeID string
		Count  int
	}
	err := s.read(ctx).Table("recording_uploads").Select("node_id, COUNT(*) AS count").Where("stored_at IS NULL").Group("node_id").Scan(&rows).Error
	if err != nil {
		return nil, explain(err, "count the uploads")
	}
	counts := map[string]int{}
	for _, row := range rows {
		counts[row.NodeID] = row.Count
	}
	return counts, nil
}

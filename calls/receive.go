package calls

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"tandem/actions"
	"tandem/models"
)

// Errors of Receive; test with errors.Is.
var (
	// ErrNoUpload: the token is unknown, another node's, too old, or was used.
	ErrNoUpload = errors.New("no recording is awaited under this token")
	// ErrRecordingTooLarge: the file has more bytes than a recording may have.
	ErrRecordingTooLarge = errors.New("the recording is too large")
	// ErrNotRecording: the file is no sound file of the recording's format, or the switch has not finished it.
	ErrNotRecording = errors.New("the file is no finished recording")
)

// unfinishedTries is how often a WAV file is refused whose header says another length than it has. Afterwards it is taken as it is: the switch was
// stopped hard and never will correct it.
const unfinishedTries = 3

// Receive stores the recording that a node brings under a token, durably, and tells the customer of it, before it returns. length is what the
// node says that it will be, -1 when it does not. The errors are ErrNoUpload, ErrRecordingTooLarge, ErrNotRecording, io.ErrUnexpectedEOF for
// a file that did not come whole, and those of the disk and the database, after which the same file may come again.
func (m *Manager) Receive(ctx context.Context, nodeID, token string, body io.Reader, length int64) error {
	if m.cfg.Remote == nil {
		return ErrNoUpload
	}
	upload, err := m.cfg.Store.AdmitUpload(ctx, nodeID, token)
	if errors.Is(err, models.ErrNotFound) {
		return ErrNoUpload
	}
	if err != nil {
		return err
	}
	err = m.receive(ctx, upload, token, body, length)
	if large := errors.Is(err, ErrRecordingTooLarge); large || errors.Is(err, ErrNotRecording) {
		// The node is told no more than that it failed, and tells no more; see fetchRecording.
		err = errors.Join(err, m.cfg.Store.RefuseUpload(ctx, upload.RecordingID, err.Error(), large))
	}
	return err
}

// receive stores a recording that is awaited.
func (m *Manager) receive(ctx context.Context, upload *models.RecordingUpload, token string, body io.Reader, length int64) error {
	row, err := m.cfg.Store.RecordingByID(ctx, upload.RecordingID)
	if err != nil {
		return err
	}
	if length > m.cfg.Remote.Limit {
		return ErrRecordingTooLarge
	}
	dir := m.cfg.Remote.Dir
	file, err := receiveFile(dir, body, length, m.cfg.Remote.Limit)
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(file.path) }() // when it has not got its name
	seconds, err := checkRecording(file.path, row.Format, upload.Refusals >= unfinishedTries)
	if err != nil {
		return err
	}
	stored := filepath.Join(dir, row.ID+"."+row.Format)
	if err := os.Rename(file.path, stored); err != nil {
		return fmt.Errorf("store a recording: %w", err)
	}
	if err := syncDir(dir); err != nil {
		return fmt.Errorf("store a recording: %w", err)
	}
	row.Path, row.Size, row.Status = stored, file.size, models.RecordingAvailable
	if seconds > 0 {
		row.Seconds = seconds
	}
	err = m.cfg.Store.InTx(ctx, func(tx *models.Store) error {
		if err := tx.FinishUpload(ctx, row.ID, token); err != nil {
			return err
		}
		return m.settleRecording(ctx, tx, &recording{row: *row})
	})
	if errors.Is(err, models.ErrStale) {
		return ErrNoUpload // the same file came twice: it is there
	}
	return err
}

// receivingName begins the names of files that are being received; receivingDead is how long nothing has come of one that a process has left behind
// when it died.
const (
	receivingName = ".receiving-"
	receivingDead = time.Hour
)

// dropDead deletes what was received in part by processes that are no more. Other controllers may be receiving into the same folder.
func dropDead(dir string, now time.Time) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look for recordings that came in part: %w", err)
	}
	var failures []error
	for _, entry := range entries {
		if !strings.HasPrefix(entry.Name(), receivingName) {
			continue
		}
		info, err := entry.Info()
		if err == nil && now.Sub(info.ModTime()) > receivingDead {
			err = os.Remove(filepath.Join(dir, entry.Name()))
		}
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			failures = append(failures, err)
		}
	}
	return errors.Join(failures...)
}

type receivedFile struct {
	path string
	size int64
}

// receiveFile writes a body to the disk, whole, under a temporary name.
func receiveFile(dir string, body io.Reader, length, limit int64) (_ receivedFile, err error) {
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return receivedFile{}, fmt.Errorf("make the recordings folder: %w", err)
	}
	out, err := os.CreateTemp(dir, receivingName+"*")
	if err != nil {
		return receivedFile{}, fmt.Errorf("store a recording: %w", err)
	}
	defer func() {
		if err != nil {
			_ = os.Remove(out.Name())
		}
	}()
	size, err := io.Copy(out, io.LimitReader(body, limit+1))
	switch {
	case err != nil:
		err = fmt.Errorf("receive a recording: %w", err)
	case size > limit:
		err = ErrRecordingTooLarge
	case length >= 0 && size != length:
		err = fmt.Errorf("receive a recording: %w", io.ErrUnexpectedEOF)
	default:
		err = out.Sync()
	}
	if err = errors.Join(err, out.Close()); err != nil {
		return receivedFile{}, err
	}
	return receivedFile{out.Name(), size}, nil
}

// checkRecording makes sure that a file is what it should be, and returns its length, 0 where the format does not tell.
func checkRecording(file, format string, asItIs bool) (seconds float64, err error) {
	in, err := os.Open(file)
	if err != nil {
		return 0, fmt.Errorf("check a recording: %w", err)
	}
	defer func() { _ = in.Close() }()
	if format == actions.FormatMP3 {
		if suffix, err := soundKind(in, true); err != nil || suffix != ".mp3" {
			return 0, fmt.Errorf("%w: it is no MP3 file", ErrNotRecording)
		}
		return 0, nil
	}
	info, err := readWAV(in)
	switch {
	case err != nil:
		return 0, fmt.Errorf("%w: %w", ErrNotRecording, err)
	case info.seconds == 0:
		return 0, fmt.Errorf("%w: it holds no sound", ErrNotRecording)
	case !info.whole && !asItIs:
		return 0, fmt.Errorf("%w: its header says another length than it has", ErrNotRecording)
	}
	return info.seconds, nil
}

// syncDir makes the names in a folder durable.
func syncDir(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

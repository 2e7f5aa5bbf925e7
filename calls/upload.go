package calls

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"sync"
	"time"

	"tandem/esl"
	"tandem/models"
)

// A recording of a node whose disk is not shared is "processing" when it has ended. The controller of the node has it sent: it makes a token for
// the file, tells the switch to PUT it, and tries again until it is here. Only then is the node's own file deleted, and only then are the
// customers told. Each step is in the database: whoever takes the node over goes on.

const (
	// uploadLook is how often it is looked for recordings that are to be sent.
	uploadLook = time.Second
	// uploadsAtOnce is how many a node sends at a time.
	uploadsAtOnce = 4
	// uploadLimit bounds the sending of one, and is how long its token is good.
	uploadLimit = 15 * time.Minute
	// uploadSettle is what a switch gets to finish a file before it is asked for it.
	uploadSettle = 2 * time.Second
	// The pause after a failure doubles from the one to the other; after so many tries in all, of more than two days, the recording is given up.
	uploadRetryMin = 5 * time.Second
	uploadRetryMax = 15 * time.Minute
	uploadTries    = 200
	// badUploadTries is how often a file may come that is no recording, or is not finished.
	badUploadTries = 5
	// trashName takes the place of files that are to go: each is replaced by the next.
	trashName = "tandem/.trash"
)

func uploadRetry(attempts int) time.Duration {
	pause := uploadRetryMin
	for range min(attempts, 16) {
		pause *= 2
	}
	return min(pause, uploadRetryMax)
}

// uploads looks for recordings that nodes are to send, until ctx ends.
func (m *Manager) uploads(ctx context.Context) {
	if err := dropDead(m.cfg.Remote.Dir, time.Now()); err != nil {
		m.log.Error("recordings that came in part not deleted", "error", err)
	}
	ticker := time.NewTicker(uploadLook)
	defer ticker.Stop()
	for {
		var all sync.WaitGroup
		for _, n := range m.remoteNodes() {
			all.Go(func() { n.upload(ctx) })
		}
		all.Wait()
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}

func (m *Manager) remoteNodes() []*node {
	m.mu.Lock()
	var nodes []*node
	for _, n := range m.nodes {
		if n.row.Remote() {
			nodes = append(nodes, n)
		}
	}
	m.mu.Unlock()
	return slices.DeleteFunc(nodes, func(n *node) bool { return !n.connected() })
}

// upload begins what is due of a node, as far as it sends less than it may. It does not wait for what it began.
func (n *node) upload(ctx context.Context) {
	room := uploadsAtOnce - len(n.sending)
	if room <= 0 {
		return
	}
	due, err := n.m.cfg.Store.DueUploads(ctx, n.row.ID, room)
	if err != nil {
		if ctx.Err() == nil && !storeAway(err) {
			n.log.Error("recordings that are to be sent not read", "error", err)
		}
		return
	}
	for i := range due {
		u := due[i]
		if !n.beginSending(u.RecordingID) {
			continue
		}
		n.sending <- struct{}{}
		begun := n.m.goWork(func() {
			defer func() {
				n.endSending(u.RecordingID)
				<-n.sending
			}()
			n.send(ctx, &u)
		})
		if !begun {
			n.endSending(u.RecordingID)
			<-n.sending
		}
	}
}

func (n *node) beginSending(recording string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.inTransit[recording] {
		return false
	}
	n.inTransit[recording] = true
	return true
}

func (n *node) endSending(recording string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.inTransit, recording)
}

// send takes one recording one step on: here, or away from the node's disk.
func (n *node) send(ctx context.Context, u *models.RecordingUpload) {
	log := n.log.With("recording_id", u.RecordingID, "attempt", u.Attempts+1)
	store := n.m.cfg.Store
	c, err := n.courier()
	if err != nil {
		log.Error("recording stays on its node", "error", err)
		n.putOff(ctx, u, err)
		return
	}
	if u.StoredAt == nil {
		err = n.fetchRecording(ctx, c, u)
		switch {
		case errors.Is(err, models.ErrStale): // it has come already
		case ctx.Err() != nil:
			return
		case errors.Is(err, errNoFile), errors.Is(err, errHopeless), err != nil && u.Attempts+1 >= uploadTries:
			log.Error("recording given up", "error", err)
			if err := n.m.failRecording(ctx, u.RecordingID); err != nil && ctx.Err() == nil {
				log.Error("recording not noted as failed", "error", err)
				n.putOff(ctx, u, err)
			}
			return
		case err != nil:
			log.Warn("recording not sent, trying again", "error", err)
			n.putOff(ctx, u, err)
			return
		}
	}
	if err := n.removeFile(ctx, c, u.Path); err != nil {
		if ctx.Err() != nil {
			return
		}
		log.Warn("file of a recording that we have not deleted on its node", "error", err)
		if err := store.CountCleanup(ctx, u.RecordingID, n.m.cfg.Now().Add(uploadRetry(u.Attempts))); err != nil && !storeAway(err) {
			log.Error("failed deletion not noted", "error", err)
		}
		return
	}
	if err := store.EndUpload(ctx, u.RecordingID); err != nil && ctx.Err() == nil && !storeAway(err) {
		log.Error("upload not ended", "error", err)
	}
}

func (n *node) putOff(ctx context.Context, u *models.RecordingUpload, cause error) {
	err := n.m.cfg.Store.PutOffUpload(ctx, u.RecordingID, cause.Error(), n.m.cfg.Now().Add(uploadRetry(u.Attempts)))
	if err != nil && ctx.Err() == nil && !storeAway(err) {
		n.log.Error("upload not put off", "recording_id", u.RecordingID, "error", err)
	}
}

var (
	// errNoFile: the switch has no file of the recording.
	errNoFile = errors.New("the node has no such file")
	// errHopeless: another try would end the same.
	errHopeless = errors.New("what the node sends cannot be taken")
)

// fetchRecording has the switch send a file and returns when it is here, durably.
func (n *node) fetchRecording(ctx context.Context, c courier, u *models.RecordingUpload) error {
	token, err := n.m.cfg.Store.BeginUpload(ctx, u.RecordingID, n.m.cfg.Now().Add(uploadLimit))
	if err != nil {
		return err
	}
	sending, cancel := context.WithTimeout(ctx, uploadLimit)
	defer cancel()
	err = c.SendFile(sending, n.m.cfg.Remote.URL+"/internal/recordings/"+token+"/"+path.Base(u.Path), u.Path)
	if err != nil {
		there, asked := c.FileExists(ctx, u.Path)
		if asked == nil && !there || errors.Is(err, esl.ErrEmptyFile) {
			return fmt.Errorf("%w: %w", errNoFile, err)
		}
	}
	// The switch does not say what it was answered, and what it says is not what is stored.
	now, asked := n.m.cfg.Store.Upload(ctx, u.RecordingID)
	switch {
	case asked != nil:
		return errors.Join(err, asked)
	case now.StoredAt != nil:
		return nil
	case err == nil:
		return errors.New("the switch says that it has sent the file, and it is not here")
	case now.Hopeless || now.Refusals >= badUploadTries:
		return fmt.Errorf("%w: %s", errHopeless, now.Error)
	case now.Error != "":
		return fmt.Errorf("%w: %s", err, now.Error)
	}
	return err
}

// removeFile deletes a file of the node's: it becomes the one that everything that is to go becomes.
func (n *node) removeFile(ctx context.Context, c courier, file string) error {
	there, err := c.FileExists(ctx, file)
	if err != nil || !there {
		return err
	}
	return c.MoveFiles(ctx, []esl.Move{{From: file, To: path.Join(n.row.ConfDir, trashName)}})
}

// failRecording gives a recording up that will not come, and tells of it.
func (m *Manager) failRecording(ctx context.Context, id string) error {
	err := m.cfg.Store.InTx(ctx, func(tx *models.Store) error { return m.failRecordingIn(ctx, tx, id, "") })
	if errors.Is(err, models.ErrStale) {
		return nil // it has come in this moment, or somebody else has given it up
	}
	return err
}

func (m *Manager) failRecordingIn(ctx context.Context, tx *models.Store, id, why string) error {
	row, err := tx.FailRecording(ctx, id)
	if err != nil {
		return err
	}
	return m.settleRecording(ctx, tx, &recording{row: *row, lost: why})
}

// nodeRemoved is why a recording is lost that was on the disk of a node.
const nodeRemoved = "the node that has the sound file was removed before it was sent"

// RemovingNode ends what will never come from a node that is removed in the same transaction: recordings that are on its disk alone become failed, and
// their customers are told.
func (m *Manager) RemovingNode(ctx context.Context, tx *models.Store, nodeID string) error {
	ids, err := tx.UnsentRecordings(ctx, nodeID)
	if err != nil {
		return err
	}
	for _, id := range ids {
		if err := m.failRecordingIn(ctx, tx, id, nodeRemoved); err != nil && !errors.Is(err, models.ErrStale) {
			return err
		}
	}
	return nil
}

// failLost gives up the recordings that nobody awaits: of calls that ended on a node after it had been removed.
func (m *Manager) failLost(ctx context.Context) {
	lost, err := m.cfg.Store.LostRecordings(ctx, lostAtOnce)
	if err != nil {
		if ctx.Err() == nil && !storeAway(err) {
			m.log.Error("recordings that are lost not looked for", "error", err)
		}
		return
	}
	for _, id := range lost {
		err := m.failRecording(ctx, id)
		switch {
		case err == nil:
			m.log.Warn("recording given up: its node was deleted", "recording_id", id)
		case ctx.Err() != nil || storeAway(err):
			return
		default:
			m.log.Error("recording not noted as failed", "recording_id", id, "error", err)
		}
	}
}

// lostAtOnce is how many of them one look of the watchdog gives up at most.
const lostAtOnce = 500

// settleRecording stores what became of a recording of a call that may have ended, and tells of it.
func (m *Manager) settleRecording(ctx context.Context, tx *models.Store, r *recording) error {
	call, err := tx.CallByID(ctx, r.row.CallID)
	if err != nil {
		return err
	}
	call.Fence = 0 // the call may have ended, and its node be another controller's: what is told here is not the call's state
	return r.save(ctx, tx, call)
}

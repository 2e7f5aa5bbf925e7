package calls

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path"
	"sync"
	"time"

	"tandem/esl"
	"tandem/models"
)

// A node that cannot post a CDR writes it to its own disk, where nobody of us can list files: FreeSWITCH has no command for that. But each file is
// named by its channel, and the database knows the channels of our calls. So the controller of a remote node asks for the files of channels whose CDR
// is missing, has the switch send those that there are, stores them, and has the files taken away.
//
// Channels that are no call's of ours (numbers with a sip or reject route) leave files that nobody asks for; they bill nobody.

const (
	// cdrLook is how often it is looked for missing CDRs.
	cdrLook = 2 * time.Second
	// cdrSettle is how long after its end a call's CDRs are asked for: until then they may be posted, or be written (json_cdr.conf.xml, timeout).
	cdrSettle = 10 * time.Second
	// cdrBack is how far back calls are looked at when a node is taken. Every cdrAgain it is looked back by cdrOverlap once more: what was kept in
	// memory while the database was away is written later than what ended after it.
	cdrBack    = 24 * time.Hour
	cdrAgain   = 5 * time.Minute
	cdrOverlap = 15 * time.Minute
	// cdrCalls is how many calls are looked at together, cdrsAtOnce how many files are on their way at a time.
	cdrCalls   = 200
	cdrsAtOnce = 4
	// cdrTries is how often a file is asked for that does not come; cdrsLate is how many such are remembered of a node.
	cdrTries = 50
	cdrsLate = 10_000
)

// cdrFetch is how far a remote node's missing CDRs were asked for. Only the goroutine of cdrs uses it.
type cdrFetch struct {
	at    time.Time // up to this end and
	call  string    // this call
	again time.Time // when to look back once more
	late  map[string]*lateCDR
}

// lateCDR is a file that is there and did not come.
type lateCDR struct {
	tries int
	due   time.Time
}

// cdrs asks remote nodes for missing CDRs, until ctx ends.
func (m *Manager) cdrs(ctx context.Context) {
	ticker := time.NewTicker(cdrLook)
	defer ticker.Stop()
	progress := map[*node]*cdrFetch{}
	for {
		nodes := m.remoteNodes()
		next := make(map[*node]*cdrFetch, len(nodes))
		var all sync.WaitGroup
		for _, n := range nodes {
			f := progress[n]
			if f == nil {
				now := m.cfg.Now()
				f = &cdrFetch{at: now.Add(-cdrBack), again: now.Add(cdrAgain), late: map[string]*lateCDR{}}
			}
			next[n] = f
			all.Go(func() { n.askForCDRs(ctx, f) })
		}
		all.Wait()
		for n, f := range progress {
			if next[n] == nil && !n.shut() {
				next[n] = f // away for a moment
			}
		}
		progress = next
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}

// askForCDRs asks a node for what calls wait for, what did not come, and what the next ended calls lack.
func (n *node) askForCDRs(ctx context.Context, f *cdrFetch) {
	c, err := n.courier()
	if err != nil || n.m.cfg.Remote.Want == nil {
		return // that the node's disk is out of reach is told where recordings are awaited
	}
	now := n.m.cfg.Now()
	wanted := n.witness.waiting()
	for channel, late := range f.late {
		if !late.due.After(now) {
			wanted = append(wanted, channel)
		}
	}
	if !n.collectCDRs(ctx, c, f, wanted) {
		return // away: all is asked for again
	}
	// Not for long: somebody may wait for a CDR meanwhile.
	for began, more := time.Now(), true; more && ctx.Err() == nil && time.Since(began) < cdrLook; {
		more = n.askForEnded(ctx, c, f, now.Add(-cdrSettle))
	}
	if !f.again.After(now) {
		f.again = now.Add(cdrAgain)
		if back := now.Add(-cdrOverlap); back.Before(f.at) {
			f.at, f.call = back, ""
		}
	}
}

// askForEnded asks for what the next calls lack that ended until a moment, and reports whether there may be more of them.
func (n *node) askForEnded(ctx context.Context, c courier, f *cdrFetch, until time.Time) (more bool) {
	ended, err := n.m.cfg.Store.UnwitnessedCalls(ctx, n.row.ID, f.at, f.call, until, cdrCalls)
	if err != nil {
		if ctx.Err() == nil && !storeAway(err) {
			n.log.Error("calls without CDRs not read", "error", err)
		}
		return false
	}
	if len(ended) == 0 {
		return false
	}
	var wanted []string
	for i := range ended {
		for _, channel := range ended[i].Channels {
			if f.late[channel] == nil { // that one has its time
				wanted = append(wanted, channel)
			}
		}
	}
	if !n.collectCDRs(ctx, c, f, wanted) {
		return false
	}
	last := &ended[len(ended)-1]
	f.at, f.call = last.EndedAt, last.CallID
	return len(ended) == cdrCalls
}

// errNodeAway: the switch cannot be asked now.
var errNodeAway = errors.New("the node is away")

// collectCDRs fetches the CDRs of channels, as far as the node has files of them, stores them, and takes the files away. It reports false where the
// node is away.
func (n *node) collectCDRs(ctx context.Context, c courier, f *cdrFetch, channels []string) bool {
	var mu sync.Mutex
	var cdrs []models.CDR
	var files []string
	away := false
	places := make(chan struct{}, cdrsAtOnce)
	var all sync.WaitGroup
	for _, channel := range channels {
		mu.Lock()
		stop := away
		mu.Unlock()
		if stop || ctx.Err() != nil {
			break
		}
		places <- struct{}{}
		all.Go(func() {
			defer func() { <-places }()
			file := n.cdrFile(channel)
			cdr, err := n.fetchCDR(ctx, c, channel, file)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil && cdr != nil:
				cdrs, files = append(cdrs, *cdr), append(files, file)
			case err == nil:
				delete(f.late, channel)
			case errors.Is(err, errNodeAway), ctx.Err() != nil:
				away = true
			default:
				f.miss(n, channel, err)
			}
		})
	}
	all.Wait()
	if len(cdrs) == 0 {
		return !away
	}
	if err := n.m.cfg.Store.SaveCDRs(ctx, cdrs); err != nil {
		if ctx.Err() == nil && !storeAway(err) {
			n.log.Error("CDRs of a node not stored", "error", err)
		}
		return false
	}
	moves := make([]esl.Move, len(files))
	for i, file := range files {
		moves[i] = esl.Move{From: file, To: path.Join(n.row.ConfDir, trashName)}
		delete(f.late, cdrs[i].ChannelID)
	}
	n.log.Info("collected CDRs that a node could not post", "count", len(cdrs))
	if err := c.MoveFiles(ctx, moves); err != nil && ctx.Err() == nil {
		// They are stored: nobody asks for them again.
		n.log.Warn("files of CDRs that we have not deleted on their node", "count", len(files), "error", err)
	}
	return !away
}

// miss notes that a file is there and did not come.
func (f *cdrFetch) miss(n *node, channel string, cause error) {
	late := f.late[channel]
	if late == nil {
		if len(f.late) >= cdrsLate {
			n.log.Error("CDR stays on its node", "fs_uuid", channel, "error", cause)
			return
		}
		late = &lateCDR{}
		f.late[channel] = late
	}
	if late.tries++; late.tries >= cdrTries || errors.Is(cause, ErrBadCDR) && late.tries >= badUploadTries {
		delete(f.late, channel)
		n.log.Error("CDR stays on its node", "fs_uuid", channel, "error", cause)
		return
	}
	late.due = n.m.cfg.Now().Add(uploadRetry(late.tries - 1))
	n.log.Warn("CDR not sent, trying again", "fs_uuid", channel, "attempt", late.tries, "error", cause)
}

// fetchCDR returns the CDR of a channel that a node has a file of, nil where it has none.
func (n *node) fetchCDR(ctx context.Context, c courier, channel, file string) (*models.CDR, error) {
	if !cdrChannel.MatchString(channel) {
		return nil, nil //nolint:nilnil // no CDR can be of such a channel
	}
	there, err := c.FileExists(ctx, file)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errNodeAway, err)
	}
	if !there {
		return nil, nil //nolint:nilnil // it has posted it, or never had the channel
	}
	url, arrived, done := n.m.cfg.Remote.Want(n.row.ID, path.Base(file), CDRLimit)
	defer done()
	if err := c.SendFile(ctx, url, file); err != nil {
		if errors.Is(err, esl.ErrDown) {
			return nil, fmt.Errorf("%w: %w", errNodeAway, err)
		}
		return nil, fmt.Errorf("have the file sent: %w", err)
	}
	var content []byte
	select {
	case content = <-arrived:
	default:
		return nil, errors.New("the switch says that it has sent the file, and it is not here")
	}
	cdr, err := ParseCDR(channel, bytes.TrimSuffix(content, []byte("\n")))
	if err != nil {
		return nil, err
	}
	cdr.NodeID = n.row.ID
	return &cdr, nil
}

// bringCDR has a remote node's file of a channel's CDR fetched now, where there is one and nobody has the CDR: for who must say how a channel ended.
// That it cannot be is told in the log only, since it is asked for again later.
func (n *node) bringCDR(ctx context.Context, channel string) *models.CDR {
	if !n.row.Remote() || !n.connected() {
		return nil
	}
	c, err := n.courier()
	if err != nil || n.m.cfg.Remote.Want == nil {
		return nil
	}
	file := n.cdrFile(channel)
	cdr, err := n.fetchCDR(ctx, c, channel, file)
	if err == nil && cdr != nil {
		if err = n.m.cfg.Store.SaveCDRs(ctx, []models.CDR{*cdr}); err == nil {
			err = n.removeFile(ctx, c, file)
		}
	}
	if err != nil && ctx.Err() == nil {
		n.log.Warn("CDR not fetched", "fs_uuid", channel, "error", err)
	}
	return cdr
}

// bringLegCDRs does that for the parties of an orphan that have not ended.
func (n *node) bringLegCDRs(ctx context.Context, call *models.Call) {
	if !n.row.Remote() {
		return
	}
	legs, err := n.m.cfg.Store.LegsOfCall(ctx, call.CustomerID, call.ID)
	if err != nil {
		return // they end as lost; whoever ends the call meets the same error
	}
	for i := range legs {
		if legs[i].Status != models.LegEnded {
			n.bringCDR(ctx, legs[i].ChannelID)
		}
	}
}

// cdrFile is where a node writes the CDR of a channel that it cannot post (json_cdr.conf.xml, err-log-dir; mod_json_cdr.c, my_on_reporting).
func (n *node) cdrFile(channel string) string {
	return path.Join(n.row.ConfDir, "tandem", "cdr", channel+".cdr.json")
}

// waiting are the channels whose CDRs are waited for.
func (w *witness) waiting() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	channels := make([]string, 0, len(w.wanted))
	for channel := range w.wanted {
		channels = append(channels, channel)
	}
	return channels
}

package calls

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"tandem/models"
)

// An orphan is a live call that has no session: its controller has died, or its node is gone. One whose channel is gone is ended
// here, as its CDR says, and as lost where no CDR comes. Nothing but the database is needed for that: it works for nodes that
// nobody reaches.

// orphansAtOnce bounds how many orphans of a node are ended at a time: enough to share commits, few enough to leave room.
const orphansAtOnce = 32

// gone says whether the channel of a call that has no session is gone. The list that the switch gives may be stale: one that
// it does not name is asked for.
func (n *node) gone(ctx context.Context, call *models.Call) (bool, error) {
	alive, err := n.sw.Exists(ctx, call.ChannelID)
	if err != nil {
		return false, fmt.Errorf("ask for channel %s of call %s: %w", call.ChannelID, call.ID, err)
	}
	return !alive, nil
}

// endOrphan ends a live call that has no session and whose channel is gone. It returns
// at once: the end waits for the call's CDR. Called again for the same call meanwhile, it does nothing.
func (n *node) endOrphan(call *models.Call) {
	if !n.claimOrphan(call.ID) {
		return
	}
	orphan := *call
	orphan.Fence = n.row.LeaseToken // whoever has taken the node since has a greater one
	begun := n.m.goWork(func() {
		defer n.dropOrphan(orphan.ID)
		n.buryOrphan(&orphan)
	})
	if !begun {
		n.dropOrphan(orphan.ID)
	}
}

func (n *node) claimOrphan(callID string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.orphans[callID] {
		return false
	}
	n.orphans[callID] = true
	return true
}

func (n *node) dropOrphan(callID string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.orphans, callID)
}

// buryOrphan waits for an orphan's CDR and writes its end, again and again while the database does not take it.
func (n *node) buryOrphan(call *models.Call) {
	log := n.log.With("call_id", call.ID, "fs_uuid", call.ChannelID)
	t := n.testify(call.ChannelID)
	select {
	case <-t.done:
	case <-n.m.ctx.Done():
		return
	}
	cdr := t.cdr
	n.bringLegCDRs(n.m.ctx, call)
	select {
	case n.burials <- struct{}{}:
		defer func() { <-n.burials }()
	case <-n.m.ctx.Done():
		return
	}
	for delay := 50 * time.Millisecond; n.m.ctx.Err() == nil && !n.shut() && n.m.callSession(call.ID) == nil; delay = min(2*delay, storeRetryMax) {
		ended, err := n.m.endUnseen(n.m.ctx, call, cdr, n.lastSign(call))
		switch {
		case err == nil:
			log.Warn("call has ended unseen", "cdr", cdr != nil, "status", ended.Status, "reason", ended.Reason, "billed_seconds", ended.BilledSeconds)
			if n.m.cfg.OnEnd != nil {
				n.m.cfg.OnEnd(*ended)
			}
			return
		case errors.Is(err, models.ErrStale), errors.Is(err, models.ErrNotFound), errors.Is(err, models.ErrClosed):
			return // somebody else has ended it, or steers it
		}
		if !storeAway(err) { // the store tells of that once
			log.Error("orphan call not ended, trying again", "error", err)
		}
		select {
		case <-time.After(delay):
		case <-n.m.ctx.Done():
		}
	}
}

// lastContact is when the node was last heard of before the connection that it has now, by this controller or an earlier one.
func (n *node) lastContact() time.Time {
	n.mu.Lock()
	defer n.mu.Unlock()
	contact := n.downAt
	if n.row.SeenAt != nil {
		contact = later(contact, *n.row.SeenAt)
	}
	return contact
}

// lastSign is the last moment at which an orphan is known to have lived: its last change, or the last word of its node while it
// was steered.
func (n *node) lastSign(call *models.Call) time.Time {
	return later(call.UpdatedAt, n.lastContact())
}

// endUnseen writes the end of a live call that no session has: with its CDR as the switch's word, or without one as lost, billed
// until the last sign of life. ErrStale where the call has ended, or another controller has taken it meanwhile.
func (m *Manager) endUnseen(ctx context.Context, orphan *models.Call, cdr *models.CDR, sign time.Time) (*models.Call, error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	var ended *models.Call
	err := m.cfg.Store.InTx(ctx, func(tx *models.Store) error {
		call, err := tx.CallByID(ctx, orphan.ID)
		if err != nil {
			return err
		}
		if !call.Live() || call.Fence > orphan.Fence {
			return models.ErrStale
		}
		ended = call
		return m.endUnseenIn(ctx, tx, call, cdr, sign)
	})
	if err != nil {
		return nil, fmt.Errorf("end call %s unseen: %w", orphan.ID, err)
	}
	return ended, nil
}

func (m *Manager) endUnseenIn(ctx context.Context, tx *models.Store, call *models.Call, cdr *models.CDR, sign time.Time) error {
	now := m.cfg.Now()
	end := ending{status: StatusFailed, reason: ReasonNodeLost, source: SourcePlatform}
	var facts hangupFacts
	if cdr != nil {
		facts = factsOf(cdr)
		if err := m.answerUnseen(ctx, tx, call, facts.answeredAt); err != nil {
			return err
		}
		end = conclude(call.Direction, call.Status == StatusInProgress, facts, wishOf(&call.Cursor))
	} else if call.Status == StatusInProgress {
		end.status, end.sip, end.billed = StatusCompleted, http.StatusOK, billable(call, sign)
	}
	if err := m.endLegsUnseen(ctx, tx, call, now, sign); err != nil {
		return err
	}
	tapes, err := runningTapes(ctx, tx, call)
	if err != nil {
		return err
	}
	for _, tape := range tapes {
		tape.close(now, facts.recordedMS)
		if err := tape.save(ctx, tx, call); err != nil {
			return err
		}
	}
	if err := leaveGroups(ctx, tx, call, now); err != nil {
		return err
	}
	return m.end(ctx, tx, call, end, endOf(call, facts, now))
}

// endOf is when a call ended: when the switch says, where that is between the call's beginning and now, and otherwise now.
func endOf(call *models.Call, facts hangupFacts, now time.Time) time.Time {
	start := call.CreatedAt
	if call.AnsweredAt != nil {
		start = later(start, *call.AnsweredAt)
	}
	if facts.endedAt.Before(start) || facts.endedAt.After(now) {
		return now
	}
	return facts.endedAt
}

// answerUnseen tells of an answer that only the CDR knows of.
func (m *Manager) answerUnseen(ctx context.Context, tx *models.Store, call *models.Call, at time.Time) error {
	arrow, ok := next(call.Status, onAnswer)
	if at.IsZero() || !ok {
		return nil
	}
	call.Status, call.AnsweredAt = arrow.to[0], &at
	return transit(ctx, tx, call, arrow, nil)
}

// endLegsUnseen ends the parties of a call that no session has, each as its own CDR says where there is one.
func (m *Manager) endLegsUnseen(ctx context.Context, tx *models.Store, call *models.Call, now, sign time.Time) error {
	legs, err := tx.LegsOfCall(ctx, call.CustomerID, call.ID)
	if err != nil || call.NodeID == nil {
		return err
	}
	for i := range legs {
		leg := &legs[i]
		if leg.Status == models.LegEnded {
			continue
		}
		cdr, err := tx.CDR(ctx, *call.NodeID, leg.ChannelID)
		if err != nil && !errors.Is(err, models.ErrNotFound) {
			return err
		}
		endLegUnseen(leg, cdr, now, sign)
		if err := tx.SaveLeg(ctx, leg); err != nil {
			return err
		}
		if err := emit(ctx, tx, call, "leg.ended", legData(leg)); err != nil {
			return err
		}
	}
	return nil
}

// endLegUnseen writes into a leg how it ended. sign is when its call is last known to have lived.
func endLegUnseen(leg *models.Leg, cdr *models.CDR, now, sign time.Time) {
	leg.Status, leg.EndedAt = models.LegEnded, &now
	if cdr == nil {
		leg.DialStatus, leg.Reason, leg.BilledSeconds = dialFailed, ReasonNodeLost, billableLeg(leg, sign)
		if leg.AnsweredAt != nil {
			leg.DialStatus = dialAnswered
		}
		return
	}
	facts := factsOf(cdr)
	leg.EndedAt, leg.BilledSeconds = &cdr.EndedAt, facts.billed
	leg.Cause, leg.Q850, leg.SIPCode = facts.cause, cmp.Or(facts.q850, q850[facts.cause]), facts.sip
	if leg.AnsweredAt == nil && cdr.AnsweredAt != nil {
		leg.AnsweredAt = cdr.AnsweredAt
	}
	switch {
	case leg.AnsweredAt == nil && facts.cause == causeCancel:
		leg.DialStatus, leg.Reason = dialCanceled, ReasonCallerHangup
	case leg.AnsweredAt == nil:
		v := unansweredVerdict(facts.cause, facts.sip)
		leg.DialStatus, leg.Reason = dialStatuses[v.status], v.reason
	default:
		leg.DialStatus, leg.Reason, leg.SIPCode = dialAnswered, ReasonCallerHangup, cmp.Or(leg.SIPCode, http.StatusOK)
		switch {
		case facts.cause == causeTimeLimit:
			leg.Reason = ReasonTimeLimit
		case strings.HasPrefix(facts.disposition, "recv_"):
			leg.Reason = ReasonCalleeHangup
		}
		leg.Seconds = seconds(*leg.AnsweredAt, leg.EndedAt)
	}
}

// runningTapes are the recordings of a call that an earlier controller began.
func runningTapes(ctx context.Context, store *models.Store, call *models.Call) ([]*recording, error) {
	rows, err := store.RecordingsOfCall(ctx, call.CustomerID, call.ID)
	if err != nil {
		return nil, err
	}
	var tapes []*recording
	for _, row := range rows {
		if row.Status == models.RecordingRunning || row.Status == models.RecordingPaused {
			tapes = append(tapes, &recording{row: row})
		}
	}
	return tapes, nil
}

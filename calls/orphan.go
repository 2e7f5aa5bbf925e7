package calls

import (
	"context"
	"errors"
	"fmt"

	"tandem/models"
)

// hangUpOrphan ends a live call that has no session and whose channel lives.
func (n *node) hangUpOrphan(ctx context.Context, call *models.Call) {
	log := n.log.With("call_id", call.ID, "channel", call.ChannelID)
	tapes, err := n.runningTapes(ctx, call)
	if err != nil {
		log.Error("recordings of an orphan call not read", "error", err)
		return
	}
	s := newSession(n, call.ChannelID)
	s.adopted, s.grouped = true, true // it may be in a conference or a queue
	s.tapes = tapes
	s.answered = call.Status == StatusInProgress
	s.setCall(call)
	s.ask(intent{reason: ReasonControllerRestarted, source: SourcePlatform, status: StatusFailed, cause: causeTempFailure, sip: 503})
	if err := n.m.register(s); err != nil {
		log.Error("orphan call not ended", "error", err)
		return
	}
	log.Warn("call of an earlier controller is hung up")
	go s.run()
}

// gone says whether the channel of a call that has no session is gone. The list that the switch gives may be stale: one that
// it does not name is asked for.
func (n *node) gone(ctx context.Context, call *models.Call, listed, restarted bool) (bool, error) {
	if restarted || listed {
		return restarted, nil
	}
	alive, err := n.sw.Exists(ctx, call.ChannelID)
	if err != nil {
		return false, fmt.Errorf("ask for channel %s of call %s: %w", call.ChannelID, call.ID, err)
	}
	return !alive, nil
}

// endOrphan ends a live call that has no session and whose channel is gone; restarted says that the whole switch is.
func (n *node) endOrphan(ctx context.Context, call *models.Call, restarted bool) {
	log := n.log.With("call_id", call.ID, "channel", call.ChannelID, "restarted", restarted)
	tapes, err := n.runningTapes(ctx, call)
	if err != nil {
		log.Error("recordings of an orphan call not read", "error", err)
		return
	}
	end := ending{status: StatusFailed, reason: ReasonNodeLost, source: SourcePlatform}
	if call.Status == StatusInProgress {
		end.status, end.sip = StatusCompleted, 200
		// Nobody watched: the last moment at which the call is known to have lived is its last change.
		end.billed = billable(call, call.UpdatedAt)
	}
	now := n.m.cfg.Now()
	for _, tape := range tapes {
		tape.close(now, 0)
	}
	err = n.m.cfg.Store.InTx(ctx, func(tx *models.Store) error {
		ended := *call
		for _, tape := range tapes {
			if err := tape.save(ctx, tx, &ended); err != nil {
				return err
			}
		}
		if err := leaveGroups(ctx, tx, &ended, now); err != nil {
			return err
		}
		return n.m.end(ctx, tx, &ended, end, now)
	})
	switch {
	case errors.Is(err, models.ErrStale):
	case err != nil:
		log.Error("orphan call not ended", "error", err)
	default:
		log.Warn("call of an earlier controller has ended unseen")
	}
}

// runningTapes are the recordings of a call that an earlier controller began.
func (n *node) runningTapes(ctx context.Context, call *models.Call) ([]*recording, error) {
	rows, err := n.m.cfg.Store.RecordingsOfCall(ctx, call.CustomerID, call.ID)
	if err != nil {
		return nil, err
	}
	var tapes []*recording
	for _, row := range rows {
		if row.Status == models.RecordingRunning {
			tapes = append(tapes, &recording{row: row})
		}
	}
	return tapes, nil
}

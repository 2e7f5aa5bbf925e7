package calls

import (
	"context"
	"errors"

	"tandem/models"
)

// endOrphan ends a live call that has no session.
func (n *node) endOrphan(ctx context.Context, call *models.Call, present, restarted bool) {
	log := n.log.With("call_id", call.ID, "channel", call.ChannelID)
	if !present && !restarted {
		// The list that the switch gives may be stale; ask about this one.
		alive, err := n.sw.Exists(ctx, call.ChannelID)
		if err != nil {
			log.Error("orphan call not checked", "error", err)
			return
		}
		present = alive
	}
	tapes, err := n.runningTapes(ctx, call)
	if err != nil {
		log.Error("recordings of an orphan call not read", "error", err)
		return
	}
	if present && !restarted {
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

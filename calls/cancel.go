package calls

import (
	"context"
	"fmt"

	"tandem/models"
)

// Cancel ends a customer's live call, whatever its state: an unanswered one ends as canceled, an answered one as completed
// with the reason api_hangup. It returns the call as it stands: a queued one has ended, any other is still live, and its end
// follows with its event. inTx, when set, runs in a transaction after the checks, such as for an idempotency record. Errors:
// models.ErrNotFound, ErrCallNotActive.
func (m *Manager) Cancel(ctx context.Context, customerID, callID string, inTx func(tx *models.Store, call *models.Call) error) (*models.Call, error) {
	call, err := m.endQueued(ctx, customerID, callID, ending{status: StatusCanceled, reason: ReasonCanceled, source: SourceAPI, cause: causeCancel, q850: q850[causeCancel]}, inTx)
	if err != nil || call != nil {
		return call, err
	}
	return m.command(ctx, customerID, callID, func(*models.Store, *models.Call) (*order, error) {
		return &order{kind: models.CommandCancel, payload: struct{}{}}, nil
	}, inTx)
}

// endQueued ends a call that nobody has dialled yet: there is no channel to wait for. It returns nil for any other call.
func (m *Manager) endQueued(ctx context.Context, customerID, callID string, e ending, inTx func(tx *models.Store, call *models.Call) error) (*models.Call, error) {
	var ended *models.Call
	err := m.cfg.Store.InTx(ctx, func(tx *models.Store) error {
		ended = nil
		call, err := tx.LockCall(ctx, customerID, callID)
		if err != nil {
			return fmt.Errorf("find call: %w", err)
		}
		if call.Status != StatusQueued {
			return nil
		}
		if err := m.end(ctx, tx, call, e, m.cfg.Now()); err != nil {
			return err
		}
		ended = call
		if inTx == nil {
			return nil
		}
		return inTx(tx, call)
	})
	if err != nil {
		return nil, err
	}
	if ended != nil && m.cfg.OnEnd != nil {
		m.cfg.OnEnd(*ended)
	}
	return ended, nil
}

func cancelIntent() *intent {
	return &intent{reason: ReasonAPIHangup, early: ReasonCanceled, source: SourceAPI, status: StatusCanceled, cause: causeCancel}
}

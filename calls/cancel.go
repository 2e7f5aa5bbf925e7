package calls

import (
	"context"
	"fmt"

	"tandem/models"
)

// Cancel ends a customer's live call, whatever its state: an unanswered one ends as canceled, an answered one as completed
// with the reason api_hangup. It returns the call as it stands, which is still live: the end follows with its event.
// inTx, when set, runs in a transaction after the checks, such as for an idempotency record. Errors: models.ErrNotFound,
// ErrCallNotActive, ErrNoNode when the call's node is not connected to this process.
func (m *Manager) Cancel(ctx context.Context, customerID, callID string, inTx func(tx *models.Store, call *models.Call) error) (*models.Call, error) {
	var call *models.Call
	err := m.cfg.Store.InTx(ctx, func(tx *models.Store) error {
		found, err := tx.Call(ctx, customerID, callID)
		if err != nil {
			return fmt.Errorf("find call: %w", err)
		}
		call = found
		if !call.Live() {
			return ErrCallNotActive
		}
		if m.callSession(call.ID) == nil {
			return fmt.Errorf("the call's session is not here: %w", ErrNoNode)
		}
		if inTx == nil {
			return nil
		}
		return inTx(tx, call)
	})
	if err != nil {
		return nil, err
	}
	if s := m.callSession(call.ID); s != nil {
		s.box.put(message{ending: cancelIntent()})
	}
	return call, nil
}

func cancelIntent() *intent {
	return &intent{reason: ReasonAPIHangup, early: ReasonCanceled, source: SourceAPI, status: StatusCanceled, cause: causeCancel}
}

package calls

import (
	"context"
	"errors"
	"fmt"

	"tandem/actions"
	"tandem/models"
)

// StartCall dials a call that was created to wait. The money is reserved now. It returns the call with the state dialing.
// inTx, when set, runs in the transaction that starts the call. Errors: models.ErrNotFound, ErrCallNotActive,
// ErrCallNotQueued, *DestinationError, ErrNoActiveTrunk, ErrDestinationNotAllowed, ErrTrunksFull, models.ErrLimit, models.ErrInsufficientBalance, ErrNoNode; on any of them the call waits on.
func (m *Manager) StartCall(ctx context.Context, customerID, callID string, inTx func(tx *models.Store, call *models.Call) error) (*models.Call, error) {
	call, err := m.startCall(ctx, customerID, callID, inTx)
	return call, m.refused(err)
}

func (m *Manager) startCall(ctx context.Context, customerID, callID string, inTx func(tx *models.Store, call *models.Call) error) (*models.Call, error) {
	if err := m.Accepting(); err != nil {
		return nil, err
	}
	defer m.load.begin()()
	waiting, err := m.cfg.Store.Call(ctx, customerID, callID)
	if err != nil {
		return nil, fmt.Errorf("find call: %w", err)
	}
	if err := startable(waiting); err != nil {
		return nil, err
	}
	app, err := m.cfg.Store.ApplicationByID(ctx, waiting.ApplicationID)
	if err != nil {
		return nil, fmt.Errorf("find application: %w", err)
	}
	stored, err := m.onNode(ctx, waiting, app, func(s *session, over *way) (*models.Call, error) {
		return m.start(ctx, waiting, &over.trunk, withLimits(ctx, app, &over.trunk, withDial(ctx, s, inTx)))
	})
	if errors.Is(err, errKnownCall) {
		return nil, ErrCallNotQueued
	}
	m.tellExhausted(ctx, customerID, err)
	return stored, startedBefore(err)
}

// startedBefore words that a call which was found waiting does not wait any more.
func startedBefore(err error) error {
	if errors.Is(err, models.ErrStale) {
		return ErrCallNotQueued
	}
	return err
}

// startable says why a call cannot be started.
func startable(call *models.Call) error {
	switch {
	case !call.Live():
		return ErrCallNotActive
	case call.Status != StatusQueued:
		return ErrCallNotQueued
	default:
		return nil
	}
}

// start stores that a queued call is dialled, where and for how much.
func (m *Manager) start(ctx context.Context, placed *models.Call, trunk *models.Trunk, inTx func(tx *models.Store, call *models.Call) error) (*models.Call, error) {
	arrow, ok := next(StatusQueued, onDispatch)
	if !ok {
		return nil, errors.New("the state table starts no queued call")
	}
	var stored *models.Call
	err := m.reserving(ctx, func(tx *models.Store, reserve reserve) error {
		call, err := tx.LockCall(ctx, placed.CustomerID, placed.ID)
		if err != nil {
			return fmt.Errorf("find call: %w", err)
		}
		if err := startable(call); err != nil {
			return err
		}
		call.MaxSeconds = placed.MaxSeconds
		held, err := reserve(ctx, tx, priced(call, trunk), call.MaxSeconds)
		if err != nil {
			return fmt.Errorf("reserve: %w", err)
		}
		held.Give(call)
		if held.Bounded {
			tx.TakeCustomer(ctx, call.CustomerID, beginningOf(call))
		}
		call.TrunkID, call.NodeID, call.ChannelID, call.Fence = placed.TrunkID, placed.NodeID, placed.ChannelID, placed.Fence
		call.Status = arrow.to[0]
		if err := tx.StartCall(ctx, call); err != nil {
			return fmt.Errorf("%s: %w", arrow.event, err)
		}
		if err := emit(ctx, tx, call, arrow.event, nil); err != nil {
			return err
		}
		stored = call
		if inTx == nil {
			return nil
		}
		return inTx(tx, call)
	})
	if err != nil {
		return nil, err
	}
	return stored, nil
}

// Retry places a customer's ended outbound call once more, as a new call that names the old one. inTx, when set, runs in the
// transaction that inserts the new call. Errors: those of Create, and ErrCallActive while the call lives.
func (m *Manager) Retry(ctx context.Context, customerID, callID string, inTx func(tx *models.Store, call *models.Call) error) (*models.Call, error) {
	old, err := m.cfg.Store.Call(ctx, customerID, callID)
	if err != nil {
		return nil, fmt.Errorf("find call: %w", err)
	}
	switch {
	case old.Direction != DirectionOutbound:
		return nil, &RequestError{Field: "id", Message: "must be of an outbound call: a caller cannot be made to call again"}
	case old.Live():
		return nil, ErrCallActive
	}
	req := CreateRequest{
		CustomerID: old.CustomerID, ApplicationID: old.ApplicationID, From: old.From, To: old.To, Record: old.Record,
		Metadata: old.Metadata, Timeout: min(max(old.TimeoutSeconds, minRing), maxRing), RetryOf: &old.ID, InTx: inTx,
	}
	if len(old.MachineDetection) > 0 {
		if req.MachineDetection, err = actions.ParseMachineDetection(old.MachineDetection); err != nil {
			return nil, fmt.Errorf("read machine_detection of call %q: %w", old.ID, err)
		}
	}
	return m.Create(ctx, req)
}

package api

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"

	"tandem/billing"
	"tandem/calls"
	"tandem/models"
)

// fakeCalls stands for the call manager: it stores calls as that does, and dials nobody.
type fakeCalls struct {
	store *models.Store

	mu       sync.Mutex
	fail     error
	dialled  []string
	commands []string
	removed  []string // nodes
}

var _ Calls = (*fakeCalls)(nil)

// RemovingNode notes whose node is removed, and undoes the removal where it is told to fail.
func (f *fakeCalls) RemovingNode(_ context.Context, _ *models.Store, nodeID string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.removed = append(f.removed, nodeID)
	return f.fail
}

func (f *fakeCalls) failWith(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fail = err
}

func (f *fakeCalls) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.dialled)
}

// Foresee knows no trunks: it has one to offer, at a price of its own.
func (f *fakeCalls) Foresee(context.Context, calls.CreateRequest) (*calls.Prospect, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.fail != nil {
		return nil, f.fail
	}
	offer := billing.Offer{LongestSeconds: 600}
	offer.Rate = models.Rate{Prefix: "44", Destination: "United Kingdom", PerMinuteMicros: 12_000, IncrementSeconds: 60}
	offer.HoldMicros, offer.GrantedSeconds = 24_000, 120
	return &calls.Prospect{Trunk: models.Trunk{ID: "trunk_1", GatewayName: "carrier"}, Number: "0044", Offer: offer}, nil
}

func (f *fakeCalls) Create(ctx context.Context, request calls.CreateRequest) (*models.Call, error) {
	f.mu.Lock()
	fail := f.fail
	f.mu.Unlock()
	if fail != nil {
		return nil, fail
	}
	var made *models.Call
	err := f.store.InTx(ctx, func(tx *models.Store) error {
		call := &models.Call{
			CustomerID: request.CustomerID, ApplicationID: request.ApplicationID, Direction: models.Outbound, Status: "dialing",
			From: request.From, To: request.To, Record: request.Record, Metadata: request.Metadata, RetryOf: request.RetryOf,
		}
		if request.Queued {
			call.Status = models.CallQueued
		}
		if err := tx.CreateCall(ctx, call); err != nil {
			return err
		}
		made = call
		return request.InTx(tx, call)
	})
	if err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.dialled = append(f.dialled, made.ID)
	return made, nil
}

func (f *fakeCalls) Cancel(ctx context.Context, customerID, callID string, inTx func(tx *models.Store, call *models.Call) error) (*models.Call, error) {
	var canceled *models.Call
	err := f.store.InTx(ctx, func(tx *models.Store) error {
		call, err := tx.Call(ctx, customerID, callID)
		if err != nil {
			return err
		}
		call.Status = "canceled"
		if err := tx.TransitionCall(ctx, call, []string{"dialing", "ringing", "in_progress"}); err != nil {
			if errors.Is(err, models.ErrStale) {
				return calls.ErrCallNotActive
			}
			return err
		}
		canceled = call
		return inTx(tx, call)
	})
	return canceled, err
}

// accept runs a command that the manager would carry out later.
func (f *fakeCalls) accept(ctx context.Context, command, customerID, callID string, inTx func(tx *models.Store, call *models.Call) error) (*models.Call, error) {
	f.mu.Lock()
	fail := f.fail
	f.mu.Unlock()
	if fail != nil {
		return nil, fail
	}
	var found *models.Call
	err := f.store.InTx(ctx, func(tx *models.Store) error {
		call, err := tx.Call(ctx, customerID, callID)
		if err != nil {
			return err
		}
		if !call.Live() {
			return calls.ErrCallNotActive
		}
		found = call
		return inTx(tx, call)
	})
	if err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.commands = append(f.commands, command+" "+callID)
	return found, nil
}

func (f *fakeCalls) Direct(ctx context.Context, customerID, callID string, request calls.DirectRequest) (*models.Call, error) {
	return f.accept(ctx, fmt.Sprintf("%s %d", cmp.Or(request.Mode, "replace"), len(request.Actions)), customerID, callID, request.InTx)
}

func (f *fakeCalls) StartCall(ctx context.Context, customerID, callID string, inTx func(tx *models.Store, call *models.Call) error) (*models.Call, error) {
	return f.accept(ctx, "start", customerID, callID, inTx)
}

func (f *fakeCalls) Retry(ctx context.Context, customerID, callID string, inTx func(tx *models.Store, call *models.Call) error) (*models.Call, error) {
	old, err := f.store.Call(ctx, customerID, callID)
	if err != nil {
		return nil, err
	}
	if old.Live() {
		return nil, calls.ErrCallActive
	}
	return f.Create(ctx, calls.CreateRequest{
		CustomerID: customerID, ApplicationID: old.ApplicationID, From: old.From, To: old.To, RetryOf: &old.ID, InTx: inTx,
	})
}

func (f *fakeCalls) MuteMember(ctx context.Context, customerID, conferenceID, callID string, muted bool, inTx func(tx *models.Store, call *models.Call) error) error {
	_, err := f.accept(ctx, fmt.Sprintf("mute %t %s", muted, conferenceID), customerID, callID, inTx)
	return err
}

func (f *fakeCalls) KickMember(ctx context.Context, customerID, conferenceID, callID string, inTx func(tx *models.Store, call *models.Call) error) error {
	_, err := f.accept(ctx, "kick "+conferenceID, customerID, callID, inTx)
	return err
}

func (f *fakeCalls) EndConference(ctx context.Context, _, conferenceID string, inTx func(tx *models.Store) error) error {
	if err := f.store.InTx(ctx, inTx); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.commands = append(f.commands, "end "+conferenceID)
	return nil
}

func (f *fakeCalls) LeaveQueue(ctx context.Context, customerID, queue, callID string, inTx func(tx *models.Store, call *models.Call) error) error {
	_, err := f.accept(ctx, "leave "+queue, customerID, callID, inTx)
	return err
}

// sent are the commands so far.
func (f *fakeCalls) sent() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]string{}, f.commands...)
}

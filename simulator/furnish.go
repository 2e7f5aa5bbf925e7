package simulator

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"

	"tandem/actions"
	"tandem/calls"
	"tandem/models"
)

// source is the address that simulated callers come from; it belongs to nobody (RFC 5737).
const source = "192.0.2.1"

// furnish puts what a call needs into the database that is thrown away: the application as it is, and its customer with a
// number and a trunk.
func (r *run) furnish(ctx context.Context, store *models.Store, dir string, app *models.Application) (*models.Node, error) {
	node := &models.Node{Name: "simulation", ESLAddr: source + ":8021", Password: "none", ConfDir: filepath.Join(dir, "node"), IsActive: true}
	err := store.InTx(ctx, func(tx *models.Store) error {
		customer := &models.Customer{ID: app.CustomerID, Name: "simulation"}
		if err := tx.CreateCustomer(ctx, customer); err != nil {
			return err
		}
		copied := *app
		if err := tx.CreateApplication(ctx, &copied); err != nil {
			return err
		}
		number := r.script.To
		if r.script.Direction == models.Outbound {
			number = r.script.From
		}
		did := &models.DID{CustomerID: customer.ID, ApplicationID: &copied.ID, NumberE164: number, Provider: "simulation"}
		if err := tx.CreateDID(ctx, did); err != nil {
			return err
		}
		trunk := &models.Trunk{
			CustomerID: customer.ID, Name: "simulation", Direction: models.Outbound, GatewayName: "simulation", Proxy: source, IsActive: true,
		}
		if err := tx.CreateTrunk(ctx, trunk); err != nil {
			return err
		}
		return tx.CreateNode(ctx, node)
	})
	if err != nil {
		return nil, fmt.Errorf("set the stage: %w", err)
	}
	return node, nil
}

// open lets the call begin.
func (r *run) open(ctx context.Context, manager *calls.Manager, app *models.Application) error {
	if r.script.Direction == models.Inbound {
		r.stage.arrive(r.script.From, r.script.To, source, r.script.SIPHeaders)
		return nil
	}
	_, err := manager.Create(ctx, calls.CreateRequest{
		CustomerID: app.CustomerID, ApplicationID: app.ID, From: r.script.From, To: r.script.To, Metadata: r.script.Metadata,
	})
	return err
}

// begin notes an action that begins.
func (r *run) begin(index int, action actions.Action) {
	r.stage.act(action)
	fields, err := json.Marshal(action)
	if err != nil {
		fields = nil // what was parsed can be written; the step is worth having without
	}
	r.path.add(Step{Kind: StepAction, Index: &index, Action: action.Verb(), Fields: fields})
}

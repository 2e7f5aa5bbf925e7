package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"tandem/calls"
	"tandem/dialplan"
	"tandem/models"
)

// orderLimit bounds the carrying out of one order.
const orderLimit = 5 * time.Minute

// takeOrders begins to carry out the orders for nodes that are ours. life ends with this controller.
func (k *nodeKeeper) takeOrders(asking, life context.Context) error {
	orders, err := k.store.OpenOrders(asking)
	if err != nil {
		return err
	}
	for i := range orders {
		order := orders[i]
		held := k.holding(order.NodeID)
		if held == nil || held.lost.Load() || !k.beginOrder(order.ID) {
			continue
		}
		k.carrying.Go(func() {
			defer k.endOrder(order.ID)
			k.carryOut(life, held, &order, orderLimit)
		})
	}
	return nil
}

func (k *nodeKeeper) beginOrder(id string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.orders[id] {
		return false
	}
	k.orders[id] = true
	return true
}

func (k *nodeKeeper) endOrder(id string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.orders, id)
}

// carryOut does what an order says and notes what came of it. An order that this controller does not get done before its end is the next one's;
// one that takes longer than the limit has failed: begun again and again, it would never be answered.
func (k *nodeKeeper) carryOut(life context.Context, held *heldNode, order *models.NodeOrder, limit time.Duration) {
	ctx, cancel := context.WithTimeout(life, limit)
	defer cancel()
	var result any
	var err error
	switch order.Kind {
	case models.OrderDiff:
		result, err = k.diff(ctx, held)
	case models.OrderApply:
		var report dialplan.Report
		report, err = k.syncer.Apply(ctx, order.NodeID, order.Prune)
		report.Problems, report.Drifted = nil, nil
		result = report
		k.logger.Info("configuration applied on request", "node", held.row.Name, "files_written", len(report.Written), "files_removed", len(report.Removed),
			"gateways_unloaded", len(report.Killed), "pruned", order.Prune, "ok", err == nil)
	case models.OrderStrays:
		result, err = k.manager.Strays(ctx, order.NodeID)
	case models.OrderReap:
		var reaped []calls.Stray
		reaped, err = k.manager.Reap(ctx, order.NodeID)
		result = reaped
		k.logger.Info("strays reaped on request", "node", held.row.Name, "strays", len(reaped), "ok", err == nil)
	case models.OrderExec:
		if result, err = k.told(ctx, held, order); life.Err() == nil && errors.Is(err, models.ErrStale) {
			err = errors.New("it was begun by a controller that has not said how it ended")
		}
		k.logger.Info("switch told an operator's command", "node", held.row.Name, "ok", err == nil)
	default:
		err = fmt.Errorf("this controller does not know the order %q", order.Kind)
	}
	if life.Err() != nil || errors.Is(err, dialplan.ErrUnknownNode) || errors.Is(err, calls.ErrNotHeld) {
		return
	}
	failure := ""
	if err != nil {
		failure = err.Error()
	}
	encoded, err := json.Marshal(result)
	if err != nil {
		k.logger.Error("result of an order not written", "node", held.row.Name, "error", err)
		return
	}
	if err := k.store.FinishOrder(life, order.ID, encoded, failure); err != nil && !errors.Is(err, models.ErrStale) {
		k.logger.Error("order not finished", "node", held.row.Name, "error", err)
	}
}

// told is what a node's switch says to an operator's command, as much of it as is kept. models.ErrStale where somebody has begun to send it before.
func (k *nodeKeeper) told(ctx context.Context, held *heldNode, order *models.NodeOrder) (models.SwitchReply, error) {
	if err := k.store.BeginOrder(ctx, order.ID); err != nil {
		return models.SwitchReply{}, err
	}
	text, err := held.conn.API(ctx, order.Command)
	reply := models.SwitchReply{Text: strings.ToValidUTF8(strings.ReplaceAll(text, "\x00", "\uFFFD"), "\uFFFD")}
	if len(reply.Text) > models.MaxSwitchReply {
		reply.Text, reply.Truncated = strings.ToValidUTF8(reply.Text[:models.MaxSwitchReply], ""), true
	}
	return reply, err
}

func (k *nodeKeeper) diff(ctx context.Context, held *heldNode) (*dialplan.Plan, error) {
	calls, err := k.store.LiveCallsByGateway(ctx, held.row.ID)
	if err != nil {
		return nil, err
	}
	plan, err := k.syncer.Plan(ctx, held.row, held.conn, calls)
	if plan != nil {
		plan.Problems = nil // the same of every node, and told by the configuration itself
	}
	return plan, err
}

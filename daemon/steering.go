package daemon

import (
	"context"
	"log/slog"
	"sync/atomic"

	"tandem/dialplan"
	"tandem/esl"
	"tandem/metrics"
	"tandem/models"
)

// steering passes what a node says to the calls and the dialplan. A node that lacks a wall against hostile input
// (DESIGN §4) is not steered: nothing is passed on, so no call is placed or taken on it.
type steering struct {
	node, name string
	conn       *esl.Node
	hold       *hold
	calls      esl.Handler
	syncer     *dialplan.Syncer
	store      *models.Store
	logger     *slog.Logger
	// entrance lets calls in, unless there is something against it.
	entrance *entrance
	against  func() error
	// drainage keeps calls out while the node drains.
	drainage *drainage
	vital    *vital
	metrics  *metrics.Metrics

	// safe is set while the node is up and has both walls.
	safe atomic.Bool
}

var _ esl.Handler = (*steering)(nil)

// HandleUp implements esl.Handler. The calls learn of it first: their channels wait.
func (s *steering) HandleUp(snapshot esl.Snapshot) {
	ctx, cancel := context.WithTimeout(context.Background(), doctorPatience)
	defer cancel()
	if err := checkWalls(ctx, s.conn); err != nil {
		s.logger.Error("node is not steered: it would run commands out of customers' text; see `tandem doctor`", "node", s.name, "error", err)
		return
	}
	s.safe.Store(true)
	s.logger.Info("node is up", "node", s.name, "core_uuid", snapshot.CoreUUID, "channels", len(snapshot.Channels))
	s.calls.HandleUp(snapshot)
	// A switch that was restarted has forgotten that it drains: it is told before it may take a call.
	s.drainage.reset()
	if _, err := s.drainage.keep(ctx); err != nil {
		s.logger.Warn("node not told whether it drains", "node", s.name, "error", err)
	}
	s.entrance.reset()
	if _, err := s.entrance.keep(ctx, s.against()); err != nil {
		s.logger.Warn("node not told whether it takes calls", "node", s.name, "error", err)
	}
	s.syncer.HandleUp(s.node)
	// Only now: a controller that dies before is told once more that the switch was restarted.
	if err := s.store.SetNodeCore(ctx, s.node, snapshot.CoreUUID); err != nil {
		s.logger.Error("cannot note which switch runs on the node", "node", s.name, "error", err)
	}
	s.hold.moved()
}

// HandleEvent implements esl.Handler.
func (s *steering) HandleEvent(event *esl.Event) {
	if event.Name() == "HEARTBEAT" {
		s.vital.beat(s.store.Now())
		return
	}
	if !s.safe.Load() {
		return
	}
	if event.Subclass() == "sofia::gateway_state" {
		s.metrics.GatewayState(s.name, event.Get("Gateway"), event.Get("State"), event.Get("Ping-Status"))
	}
	s.calls.HandleEvent(event)
	s.syncer.HandleEvent(s.node, event)
}

// HandleDown implements esl.Handler.
func (s *steering) HandleDown(reason error) {
	s.syncer.HandleDown(s.node) // a node that is not steered is asked for its gateways, too
	if !s.safe.Swap(false) {
		return
	}
	s.logger.Warn("node is down", "node", s.name, "error", reason)
	s.hold.moved()
	s.calls.HandleDown(reason)
}

package dialplan

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"tandem/models"
)

// pollsPerCompare is how many polls may trust that nobody else changed a node's files.
const pollsPerCompare = 10

// follow applies changes and polls until ctx ends.
func (s *Syncer) follow(ctx context.Context) {
	poll := time.NewTicker(s.interval)
	defer poll.Stop()
	gather := time.NewTimer(s.coalesce)
	gather.Stop()
	defer gather.Stop()
	gathering := false
	var took time.Duration
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.changed:
			// A reload of many numbers is work for the switch; a stream of changes may keep it busy a third of the time at most.
			if !gathering {
				gathering = true
				gather.Reset(max(s.coalesce, 2*took))
			}
		case <-gather.C:
			gathering = false
			took = s.syncAll(ctx)
		case <-poll.C:
			if s.due(ctx) {
				took = s.syncAll(ctx)
			} else {
				s.pollAll(ctx)
			}
		}
	}
}

// due tells whether a poll has to render: the database changed (in another process, since our own says so), a node is behind,
// or it is time to look at the files again.
func (s *Syncer) due(ctx context.Context) bool {
	s.polls++
	if s.polls >= pollsPerCompare {
		return true
	}
	for _, n := range s.current() {
		if !n.settled.Load() || n.renewed.Load() {
			return true
		}
	}
	revision, err := s.store.RoutingRevision(ctx)
	return err != nil || revision != s.revision // rendering will tell what is wrong with the database
}

func (s *Syncer) current() []*node {
	s.mu.Lock()
	defer s.mu.Unlock()
	nodes := make([]*node, 0, len(s.nodes))
	for _, n := range s.nodes {
		nodes = append(nodes, n)
	}
	slices.SortFunc(nodes, func(a, b *node) int { return strings.Compare(a.id, b.id) })
	return nodes
}

// syncAll renders once, brings all nodes up to date and asks them for their gateways, side by side: a slow one does not keep
// the others waiting.
func (s *Syncer) syncAll(ctx context.Context) time.Duration {
	nodes := s.current()
	if len(nodes) == 0 {
		return 0
	}
	began := time.Now()
	revision, err := s.store.RoutingRevision(ctx) // before the rows: what changes while they are read is seen the next time
	var rendering *Rendering
	if err == nil {
		rendering, err = s.render(ctx)
	}
	if err != nil {
		s.revision = ""
		if ctx.Err() == nil {
			s.logger.Error("dialplan not rendered, nothing changed", "error", err)
		}
		s.pollAll(ctx)
		return time.Since(began)
	}
	s.revision, s.polls = revision, 0
	s.complain(rendering.Problems)
	var all sync.WaitGroup
	for _, n := range nodes {
		all.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, s.timeout)
			defer cancel()
			report, err := n.sync(ctx, rendering)
			s.tellReport(ctx, report, err)
			if err == nil && !report.Pending {
				s.statuses.sync(n.id, s.store.Now())
			}
			s.poll(ctx, n)
		})
	}
	all.Wait()
	return time.Since(began)
}

func (s *Syncer) tellReport(ctx context.Context, report Report, err error) {
	switch {
	case err != nil && ctx.Err() == nil:
		s.logger.Error("node not synchronised", "node_id", report.NodeID, "error", err, "files_written", len(report.Written), "pending", report.Pending)
	case err == nil && (report.Changed() || report.Reloaded):
		s.logger.Info("node synchronised", "node_id", report.NodeID, "files_written", len(report.Written), "files_removed", len(report.Removed),
			"gateways_unloaded", len(report.Killed), "pending", report.Pending, "took_ms", report.Took.Milliseconds())
	}
}

// complain logs problems that were not there the last time.
func (s *Syncer) complain(problems []Problem) {
	for _, p := range problems {
		if !slices.Contains(s.complained, p) {
			s.logger.Warn("row not rendered as it is", "kind", p.Kind, "id", p.ID, "problem", p.Message)
		}
	}
	s.complained = problems
}

// pollAll asks the switches for their gateways.
func (s *Syncer) pollAll(ctx context.Context) {
	var all sync.WaitGroup
	for _, n := range s.current() {
		all.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, s.timeout)
			defer cancel()
			s.poll(ctx, n)
		})
	}
	all.Wait()
}

// poll asks one switch for its gateways and has the answer recorded, and what could not be recorded before.
func (s *Syncer) poll(ctx context.Context, n *node) {
	defer signal(s.reported)
	gateways := s.statuses.gateways()
	if len(gateways) == 0 {
		return
	}
	statuses, missing, err := n.poll(ctx, gateways, s.store.Now())
	if err != nil && ctx.Err() == nil {
		s.logger.Warn("gateways not polled", "node_id", n.id, "error", err)
	}
	if len(missing) > 0 {
		s.logger.Warn("switch lacks gateways", "node_id", n.id, "gateways", missing)
	}
	s.statuses.polled(statuses)
}

// record writes what the switches reported. Apart from follow, so that a long reload does not hold back a trunk that failed.
func (s *Syncer) record(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.reported:
			s.recordOnce(ctx)
		}
	}
}

// recordOnce writes what waits; what cannot be written waits for the next report or poll.
func (s *Syncer) recordOnce(ctx context.Context) {
	lost, reports := s.statuses.take()
	for node, at := range lost {
		if err := s.store.DropGatewayStatuses(ctx, node, at); err != nil {
			s.statuses.notDropped(node, at)
			if ctx.Err() == nil {
				s.logger.Error("gateway status of a lost node not dropped", "node_id", node, "error", err)
			}
		}
	}
	s.recordReports(ctx, reports)
	for node, at := range s.statuses.takeSynced() {
		if err := s.store.EndRegistrations(ctx, node, at, s.announce); err != nil && ctx.Err() == nil {
			// The next complete synchronisation looks again.
			s.logger.Error("registrations of inactive trunks not ended", "node_id", node, "error", err)
		}
	}
}

func (s *Syncer) recordReports(ctx context.Context, reports []models.GatewayReport) {
	if len(reports) == 0 {
		return
	}
	if err := s.store.RecordGateways(ctx, reports, s.announce); err != nil {
		s.statuses.failed(reports)
		if ctx.Err() == nil {
			s.logger.Error("gateway status not saved", "error", err)
		}
		return
	}
	s.statuses.written(reports)
}

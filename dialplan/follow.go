package dialplan

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"tandem/models"
)

// reportsAtOnce is how many reports of gateways are written in one transaction: others wait for it.
const reportsAtOnce = 200

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
	var ended time.Time
	apply := func(whole bool) {
		took = s.syncAll(ctx, whole)
		ended = time.Now()
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.changed:
			// A reload of many numbers is work for the switch; a stream of changes may keep it busy a third of the time at most. A change
			// after a quiet time waits for those that come with it only.
			if !gathering {
				gathering = true
				gather.Reset(max(s.coalesce, 2*took-time.Since(ended)))
			}
		case <-gather.C:
			gathering = false
			apply(false)
		case <-poll.C:
			s.polls++
			switch whole := s.polls >= pollsPerCompare; {
			case whole || s.due(ctx):
				apply(whole)
			default:
				s.pollAll(ctx)
			}
		}
	}
}

// due tells whether a poll has to render: the database changed (in another process, since our own says so), or a node is behind. It may be
// behind although nothing has changed since the last rendering: that was made to be looked at, or for another node.
func (s *Syncer) due(ctx context.Context) bool {
	generation := s.catalogue.current()
	for _, n := range s.current() {
		if !n.settled.Load() || n.renewed.Load() || n.applied.Load() != generation {
			return true
		}
	}
	return s.catalogue.changed(ctx)
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

// syncAll renders what changed once, brings all nodes up to date and asks them for their gateways, side by side. One that failed the last time is
// not waited for until it has succeeded: it may take minutes to fail again, and the others are to have the next change at once. The
// whole of it looks at all rows and all files.
func (s *Syncer) syncAll(ctx context.Context, whole bool) time.Duration {
	nodes := s.current()
	if len(nodes) == 0 {
		return 0
	}
	began := time.Now()
	rendering, err := s.render(ctx, whole)
	if err != nil {
		if ctx.Err() == nil {
			s.logger.Error("dialplan not rendered, nothing changed", "error", err)
		}
		s.pollAll(ctx)
		return time.Since(began)
	}
	if whole {
		s.polls = 0
	}
	s.complain(rendering.Problems)
	var all sync.WaitGroup
	for _, n := range nodes {
		switch {
		case !n.failing.Load():
			all.Go(func() { s.syncOne(ctx, n, rendering, whole) })
		case n.busy.CompareAndSwap(false, true):
			s.done.Go(func() {
				defer n.busy.Store(false)
				s.syncOne(ctx, n, rendering, whole)
				if !n.failing.Load() && n.applied.Load() != s.catalogue.current() {
					s.Changed() // what has changed while it was tried
				}
			})
		}
	}
	all.Wait()
	return time.Since(began)
}

// syncOne brings one node up to date and asks it for its gateways.
func (s *Syncer) syncOne(life context.Context, n *node, rendering *Rendering, whole bool) {
	ctx, cancel := context.WithTimeout(life, s.timeout)
	defer cancel()
	if whole {
		n.doubt()
	}
	report, err := n.sync(ctx, rendering)
	s.tellReport(life, report, err)
	if err == nil {
		s.watchFiles(ctx, n, report, rendering, whole)
	}
	if err == nil && !report.Pending {
		s.statuses.sync(n.id, s.store.Now())
	}
	if life.Err() == nil {
		n.failing.Store(err != nil)
	}
	s.poll(life, n)
}

func (s *Syncer) tellReport(ctx context.Context, report Report, err error) {
	switch {
	case err != nil && ctx.Err() == nil:
		s.logger.Error("node not synchronised", "node_id", report.NodeID, "error", err, "files_written", len(report.Written), "pending", report.Pending)
	case err == nil && (report.Changed() || report.Reloaded):
		s.logger.Info("node synchronised", "node_id", report.NodeID, "files_written", len(report.Written), "files_removed", len(report.Removed),
			"gateways_unloaded", len(report.Killed), "pending", report.Pending, "duration_ms", report.Took.Milliseconds())
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

// pollAll asks the switches for their gateways, but for one that is being tried again.
func (s *Syncer) pollAll(ctx context.Context) {
	var all sync.WaitGroup
	for _, n := range s.current() {
		if n.busy.Load() {
			continue
		}
		all.Go(func() { s.poll(ctx, n) })
	}
	all.Wait()
}

// poll asks one switch for its gateways and has the answer recorded, and what could not be recorded before.
func (s *Syncer) poll(life context.Context, n *node) {
	defer signal(s.reported)
	ctx, cancel := context.WithTimeout(life, s.timeout)
	defer cancel()
	gateways := s.statuses.gateways()
	if len(gateways) == 0 && s.drifts == nil {
		return
	}
	statuses, missing, err := n.poll(ctx, gateways, s.store.Now())
	if err != nil && life.Err() == nil {
		s.logger.Warn("gateways not polled", "node_id", n.id, "error", err)
	}
	if len(missing) > 0 {
		s.logger.Warn("switch lacks gateways", "node_id", n.id, "gateways", missing)
	}
	s.statuses.polled(statuses)
	if err == nil {
		s.watchGateways(ctx, n)
	}
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
	s.tellRegistrations(ctx)
	for node, at := range s.statuses.takeSynced() {
		if err := s.store.EndRegistrations(ctx, node, at, s.announce); err != nil && ctx.Err() == nil {
			// The next complete synchronisation looks again.
			s.logger.Error("registrations of inactive trunks not ended", "node_id", node, "error", err)
		}
	}
}

// tellRegistrations tells of what has lasted at the nodes of this process. It is asked for with each poll.
func (s *Syncer) tellRegistrations(ctx context.Context) {
	var ids []string
	for _, n := range s.current() {
		ids = append(ids, n.id)
	}
	if err := s.store.TellRegistrations(ctx, ids, s.store.Now(), s.announce); err != nil && ctx.Err() == nil {
		s.logger.Error("registrations of trunks not told", "error", err)
	}
}

func (s *Syncer) recordReports(ctx context.Context, reports []models.GatewayReport) {
	for len(reports) > 0 {
		part := reports[:min(len(reports), reportsAtOnce)]
		if err := s.store.RecordGateways(ctx, part, s.announce); err != nil {
			s.statuses.failed(reports)
			if ctx.Err() == nil {
				s.logger.Error("gateway status not saved", "error", err)
			}
			return
		}
		s.statuses.written(part)
		reports = reports[len(part):]
	}
}

package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"tandem/esl"
	"tandem/models"
)

const (
	// pulseEvery is how often a node is asked for its load, inspectEvery how often its configuration is looked over.
	pulseEvery   = 5 * time.Second
	inspectEvery = time.Minute
	// pulseTimeout bounds one measurement.
	pulseTimeout = 4 * time.Second
)

// pulse measures the nodes that this controller holds, for whoever places calls, operators and metrics.
type pulse struct {
	nodes   func() []*heldNode
	record  func(ctx context.Context, token int64, health *models.NodeHealth) error
	now     func() time.Time
	modules []module
	logger  *slog.Logger

	cancel context.CancelFunc
	done   chan struct{}
}

// vital is what is remembered of a node between two measurements.
type vital struct {
	// heartbeat is when the last HEARTBEAT came, in microseconds since 1970, 0 for never.
	heartbeat atomic.Int64
	// last is the last measurement, nil before the first.
	last atomic.Pointer[models.NodeHealth]

	mu        sync.Mutex // one measurement at a time
	core      string     // of the switch that was inspected
	inspected time.Time
	found     inspection
	silent    bool // told that it does not answer
	told      map[string]bool
}

// beat notes a HEARTBEAT.
func (v *vital) beat(at time.Time) { v.heartbeat.Store(at.UnixMicro()) }

func (v *vital) lastBeat() *time.Time {
	micros := v.heartbeat.Load()
	if micros == 0 {
		return nil
	}
	at := time.UnixMicro(micros).UTC()
	return &at
}

// start measures now and then until stop.
func (p *pulse) start(ctx context.Context) {
	ctx, p.cancel = context.WithCancel(ctx)
	p.done = make(chan struct{})
	go func() {
		defer close(p.done)
		ticker := time.NewTicker(pulseEvery)
		defer ticker.Stop()
		// A node is measured soon after it was taken, not up to a whole interval later.
		soon := time.NewTicker(pulseEvery / 10)
		defer soon.Stop()
		for all := true; ; {
			p.measureAll(ctx, all)
			select {
			case <-ticker.C:
				all = true
			case <-soon.C:
				all = false
			case <-ctx.Done():
				return
			}
		}
	}()
}

func (p *pulse) stop(context.Context) error {
	p.cancel()
	<-p.done
	return nil
}

// measureAll measures the nodes side by side: all that are connected, or those that never were measured.
func (p *pulse) measureAll(ctx context.Context, all bool) {
	var measuring sync.WaitGroup
	for _, held := range p.nodes() {
		if !held.conn.Up() || !all && held.vital.last.Load() != nil {
			continue
		}
		measuring.Go(func() { p.measure(ctx, held) })
	}
	measuring.Wait()
}

func (p *pulse) measure(ctx context.Context, held *heldNode) {
	ctx, cancel := context.WithTimeout(ctx, pulseTimeout)
	defer cancel()
	held.vital.mu.Lock()
	defer held.vital.mu.Unlock()
	health, pause, err := p.examine(ctx, held.conn, &held.row, held.vital, held.conn.Core(), held.drainage.wanted.Load())
	if err != nil {
		if ctx.Err() == nil || errors.Is(ctx.Err(), context.DeadlineExceeded) {
			p.tellSilent(held, err)
		}
		return
	}
	held.vital.silent = false
	if held.drainage.wanted.Load() && !pause.Inbound {
		held.drainage.reset() // somebody has resumed it by hand, or it was restarted a moment ago
	}
	p.tellProblems(held, health.Problems)
	held.vital.last.Store(health)
	if err := p.record(ctx, held.token, health); err != nil && !errors.Is(err, models.ErrStale) && ctx.Err() == nil {
		p.logger.Debug("health of node not stored", "node", held.row.Name, "error", err)
	}
}

// tellSilent logs once that a node that is connected does not answer.
func (p *pulse) tellSilent(held *heldNode, err error) {
	if !held.vital.silent && held.conn.Up() {
		held.vital.silent = true
		p.logger.Warn("node does not say how it is", "node", held.row.Name, "error", err)
	}
}

// tellProblems logs each problem once, until it is over.
func (p *pulse) tellProblems(held *heldNode, problems []models.NodeProblem) {
	now := make(map[string]bool, len(problems))
	for _, found := range problems {
		key := found.Code
		if found.Code == problemModule {
			key = found.Message
		}
		now[key] = true
		if !held.vital.told[key] {
			p.logger.Warn("node has a problem", "node", held.row.Name, "problem", found.Code, "severity", found.Severity, "finding", found.Message, "fix", found.Fix)
		}
	}
	held.vital.told = now
}

// examine asks a node for everything. v is what was found out before, whose lock the caller holds.
func (p *pulse) examine(ctx context.Context, conn measured, row *models.Node, v *vital, core string, draining bool) (*models.NodeHealth, esl.Pause, error) {
	asked := time.Now()
	status, err := conn.Status(ctx)
	if err != nil {
		return nil, esl.Pause{}, fmt.Errorf("ask for the status: %w", err)
	}
	answer := time.Since(asked)
	pause, err := conn.Paused(ctx)
	if err != nil {
		return nil, esl.Pause{}, fmt.Errorf("ask what is paused: %w", err)
	}
	skew, err := clockSkew(ctx, conn, p.now)
	if err != nil {
		return nil, esl.Pause{}, err
	}
	if v.core != core || time.Since(v.inspected) >= inspectEvery {
		if v.found, err = inspect(ctx, conn, row, p.modules); err != nil {
			return nil, esl.Pause{}, fmt.Errorf("look the configuration over: %w", err)
		}
		v.core, v.inspected = core, time.Now()
	}
	problems := append(judge(&status, pause, skew, draining), v.found.problems...)
	return &models.NodeHealth{
		NodeID: row.ID, MeasuredAt: p.now(), HeartbeatAt: v.lastBeat(), Version: status.Version, UptimeSeconds: int64(status.Uptime / time.Second),
		Ready: status.Ready, InboundPaused: pause.Inbound, OutboundPaused: pause.Outbound, Drained: pause.Draining,
		Sessions: status.Sessions, PeakSessions: status.PeakSessions, PeakSessionsFiveMinutes: status.PeakSessionsFiveMinutes, MaxSessions: status.MaxSessions,
		SessionsSinceStart: status.SessionsSinceStart, Rate: status.Rate, PeakRate: status.PeakRate, PeakRateFiveMinutes: status.PeakRateFiveMinutes,
		MaxRate: status.MaxRate, IdleCPU: status.IdleCPU, MinIdleCPU: status.MinIdleCPU, ClockSkew: models.MicrosOf(skew), Answer: models.MicrosOf(answer),
		MissingModules: v.found.missing, Problems: worstFirst(problems),
	}, pause, nil
}

// clockSkew is how far the switch's clock is ahead of ours: at the middle of the time that the question took, as near as can be known.
func clockSkew(ctx context.Context, conn measured, now func() time.Time) (time.Duration, error) {
	asked := now()
	clock, err := conn.Clock(ctx)
	if err != nil {
		if refused := new(esl.CommandError); errors.As(err, &refused) {
			return 0, nil // without mod_dptools it knows no such command; that is told of
		}
		return 0, fmt.Errorf("ask for the time: %w", err)
	}
	return clock.Sub(asked.Add(now().Sub(asked) / 2)), nil
}

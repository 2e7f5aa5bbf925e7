package daemon

import (
	"context"
	"log/slog"
	"time"

	"tandem/api"
	"tandem/models"
)

const (
	// houseEvery is how often what has served its time is removed.
	houseEvery = time.Hour
	// longestRest bounds the pause between two transactions of retention, which is as long as the one before it took: what calls
	// write finds the database free at least half of the time.
	longestRest = time.Second
	// importsKept is how long imports of numbers are kept since they last went on, with what they rejected.
	importsKept = 90 * 24 * time.Hour
)

// housekeeper removes what has served its time: stored answers of idempotency keys, old imports of numbers, and what retention says.
type housekeeper struct {
	store  *models.Store
	keep   models.Retention
	logger *slog.Logger
	cancel context.CancelFunc
	done   chan struct{}
}

// startHousekeeper cleans now and then every hour until stop.
func startHousekeeper(ctx context.Context, store *models.Store, keep models.Retention, logger *slog.Logger) *housekeeper {
	h := &housekeeper{store: store, keep: keep, logger: logger, done: make(chan struct{})}
	ctx, h.cancel = context.WithCancel(ctx)
	go func() {
		defer close(h.done)
		ticker := time.NewTicker(houseEvery)
		defer ticker.Stop()
		for {
			h.clean(ctx)
			h.cleanImports(ctx)
			h.prune(ctx)
			select {
			case <-ticker.C:
			case <-ctx.Done():
				return
			}
		}
	}()
	return h
}

func (h *housekeeper) clean(ctx context.Context) {
	removed, err := h.store.PruneIdempotent(ctx, h.store.Now().Add(-api.IdempotencyWindow))
	if err != nil && ctx.Err() == nil {
		h.logger.Error("cannot remove old answers of idempotency keys", "error", err)
		return
	}
	if removed > 0 {
		h.logger.Info("removed old answers of idempotency keys", "count", removed)
	}
}

func (h *housekeeper) cleanImports(ctx context.Context) {
	removed, err := h.store.PruneImports(ctx, h.store.Now().Add(-importsKept))
	if err != nil && ctx.Err() == nil {
		h.logger.Error("cannot remove old imports", "error", err)
		return
	}
	if removed > 0 {
		h.logger.Info("removed old imports", "count", removed)
	}
}

// prune removes what is older than it is to be kept, if no other controller has done so in this hour.
func (h *housekeeper) prune(ctx context.Context) {
	// A little less than the period, so that the ticks of one controller alone do not miss every second turn.
	turn, err := h.store.TakeRetention(ctx, houseEvery-houseEvery/10)
	if err == nil && !turn {
		return
	}
	var gone models.Pruned
	if err == nil {
		gone, err = h.store.Prune(ctx, h.keep, func(took time.Duration) error { return pause(ctx, min(took, longestRest)) })
	}
	if gone != (models.Pruned{}) {
		h.logger.Info("removed what is old", "events", gone.Events, "deliveries", gone.Deliveries, "attempts", gone.Attempts,
			"streams", gone.Streams, "calls_emptied", gone.Calls, "conferences", gone.Conferences, "cdrs", gone.CDRs,
			"trunk_changes", gone.TrunkChanges, "strangers", gone.Strangers, "blocks", gone.Blocks, "days", gone.Days)
	}
	if err != nil && ctx.Err() == nil {
		h.logger.Error("cannot remove what is old", "error", err)
	}
}

func (h *housekeeper) stop(context.Context) error {
	h.cancel()
	<-h.done
	return nil
}

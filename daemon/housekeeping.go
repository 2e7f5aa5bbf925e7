package daemon

import (
	"context"
	"log/slog"
	"time"

	"tandem/api"
	"tandem/models"
)

// houseEvery is how often rows that nobody needs any more are removed.
const houseEvery = time.Hour

// housekeeper removes what has served its time: the stored answers of idempotency keys.
type housekeeper struct {
	store  *models.Store
	logger *slog.Logger
	cancel context.CancelFunc
	done   chan struct{}
}

// startHousekeeper cleans now and then every hour until stop.
func startHousekeeper(ctx context.Context, store *models.Store, logger *slog.Logger) *housekeeper {
	h := &housekeeper{store: store, logger: logger, done: make(chan struct{})}
	ctx, h.cancel = context.WithCancel(ctx)
	go func() {
		defer close(h.done)
		ticker := time.NewTicker(houseEvery)
		defer ticker.Stop()
		for {
			h.clean(ctx)
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

func (h *housekeeper) stop(context.Context) error {
	h.cancel()
	<-h.done
	return nil
}

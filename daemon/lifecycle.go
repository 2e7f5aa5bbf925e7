package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"
)

// lifecycle stops what was started, last started first. Each part has its share of the time that is left, so that one
// that hangs does not keep the others from closing.
type lifecycle struct {
	logger *slog.Logger
	parts  []part
}

type part struct {
	name string
	stop func(context.Context) error
}

// add registers how to stop the part that was just started.
func (l *lifecycle) add(name string, stop func(context.Context) error) {
	l.parts = append(l.parts, part{name: name, stop: stop})
}

// stop stops all parts in reverse order within the timeout and returns what went wrong. A second call does nothing.
func (l *lifecycle) stop(timeout time.Duration) error {
	parts := l.parts
	l.parts = nil
	slices.Reverse(parts)
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	var failures []error
	for _, p := range parts {
		began := time.Now()
		if err := stopPart(ctx, p); err != nil {
			failures = append(failures, err)
			l.logger.Error("part did not stop in order", "part", p.name, "error", err)
			continue
		}
		l.logger.Debug("part stopped", "part", p.name, "duration_ms", time.Since(began).Milliseconds())
	}
	return errors.Join(failures...)
}

// stopPart waits for one part, but not beyond the context: a part that ignores its context is left behind and named.
func stopPart(ctx context.Context, p part) error {
	done := make(chan error, 1)
	go func() { done <- p.stop(ctx) }()
	select {
	case err := <-done:
		if err != nil {
			return fmt.Errorf("stop %s: %w", p.name, err)
		}
		return nil
	case <-ctx.Done():
		return fmt.Errorf("stop %s: %w", p.name, ctx.Err())
	}
}

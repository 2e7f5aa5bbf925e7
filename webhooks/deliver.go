package webhooks

import (
	"context"
	"errors"
	"time"

	"tandem/models"
)

// Reasons why an endpoint is disabled, as stored with it.
const (
	// DisabledGone: the endpoint answered 410 Gone.
	DisabledGone = "gone"
	// DisabledFailing: the endpoint did nothing but fail for five days.
	DisabledFailing = "failing"
)

// maxBatch is how many results are stored in one transaction.
const maxBatch = 128

// finished is a result on its way to the database.
type finished struct {
	outcome models.Outcome
	attempt Attempt
}

func (f *finished) lease() models.Lease {
	return models.Lease{SubjectID: f.outcome.SubjectID, EndpointID: f.outcome.EndpointID, Token: f.outcome.LeaseToken}
}

// deliver makes one attempt at the head of a claimed stream and hands its result on.
func (w *Worker) deliver(ctx context.Context, app *models.Application, claimed *claim) {
	outcome := models.Outcome{
		SubjectID:  claimed.SubjectID,
		EndpointID: claimed.EndpointID,
		LeaseToken: claimed.LeaseToken,
		EventID:    claimed.Event.ID,
	}
	attempt := Attempt{
		EventID:       claimed.Event.ID,
		SubjectID:     claimed.Event.SubjectID,
		ApplicationID: claimed.EndpointID,
		Type:          claimed.Event.Type,
		Sequence:      claimed.Told,
		Number:        claimed.Attempts + 1,
	}
	switch {
	case claimed.ctx.Err() != nil:
		outcome.Result = models.ResultReleased
	case app.WebhookURL == "":
		outcome.Result = models.ResultSkipped
	default:
		w.try(ctx, app, claimed, &outcome, &attempt)
	}
	if outcome.Result == models.ResultReleased && errors.Is(context.Cause(claimed.ctx), errLeaseLost) {
		w.cfg.Logger.Warn("webhook attempt given up, its lease was lost", "application_id", attempt.ApplicationID,
			"subject_id", attempt.SubjectID, "event_id", attempt.EventID)
	}
	attempt.Result = outcome.Result
	w.outcomes <- finished{outcome, attempt}
}

// try posts the event and judges the answer.
func (w *Worker) try(ctx context.Context, app *models.Application, claimed *claim, outcome *models.Outcome, attempt *Attempt) {
	x := w.post(claimed.ctx, app, &claimed.Event)
	attempt.Status, attempt.Failure, attempt.Latency = x.status, x.failure, x.latency
	if x.canceled {
		outcome.Result = models.ResultReleased
		return
	}
	outcome.Attempt = models.Attempt{
		Number:    attempt.Number,
		StartedAt: x.startedAt,
		LatencyMS: float64(x.latency) / float64(time.Millisecond),
		Status:    x.status,
		Error:     x.failure,
		Response:  x.response,
	}
	if x.delivered() {
		outcome.Result = models.ResultDelivered
		return
	}
	outcome.DisableReason = w.disable(ctx, claimed.EndpointID, x)
	attempt.Disabled = outcome.DisableReason
	outcome.Result = models.ResultDead
	now := w.cfg.Store.Now()
	if from := claimed.PulledFrom; from != nil && from.After(now) {
		// It was tried before its time because the endpoint had answered something else: that costs it nothing.
		outcome.Result, outcome.RetryAt = models.ResultRetry, latest(*from, now.Add(x.retryAfter))
	} else if delay, ok := w.delay(claimed.Stream.Attempts+1, x, w.cfg.Rand()); ok {
		outcome.Result = models.ResultRetry
		outcome.RetryAt = now.Add(delay)
	}
	attempt.RetryAt = outcome.RetryAt
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// disable returns the reason to disable an endpoint after a failure, or "". What waits for it stays pending, for when the
// customer enables it again.
func (w *Worker) disable(ctx context.Context, endpointID string, x *exchange) string {
	if x.gone() {
		return DisabledGone
	}
	state, err := w.cfg.Store.EndpointState(ctx, endpointID)
	if err != nil {
		// The next failure asks again; five days are long.
		w.cfg.Logger.Error("webhook endpoint state could not be read", "application_id", endpointID, "error", err)
		return ""
	}
	if state.FailingSince != nil && x.startedAt.Sub(*state.FailingSince) >= disableAfter {
		return DisabledFailing
	}
	return ""
}

// finishAll stores results until the outcomes are closed and read to the end. Results that wait are stored together.
func (w *Worker) finishAll(ctx context.Context) {
	for first := range w.outcomes {
		batch := []finished{first}
	gather:
		for len(batch) < maxBatch {
			select {
			case next, ok := <-w.outcomes:
				if !ok {
					break gather
				}
				batch = append(batch, next)
			default:
				break gather
			}
		}
		w.finish(ctx, batch)
		for i := range batch {
			w.claims.drop(batch[i].lease())
		}
		if w.behind.Swap(false) {
			w.Wake()
		}
	}
}

// finish stores a batch, again and again while the database is away, for storeTime: nothing is claimed meanwhile, and the
// leases are extended when the database is back, so usually nothing is sent twice. After the worker was aborted it tries
// once more, for finishTime.
func (w *Worker) finish(ctx context.Context, batch []finished) {
	outcomes := make([]models.Outcome, len(batch))
	for i := range batch {
		outcomes[i] = batch[i].outcome
	}
	giveUp := time.NewTimer(storeTime)
	defer giveUp.Stop()
	for {
		aborted := ctx.Err() != nil
		storeCtx, cancel := ctx, context.CancelFunc(func() {})
		if aborted {
			storeCtx, cancel = context.WithTimeout(context.WithoutCancel(ctx), finishTime)
		}
		err := w.cfg.Store.FinishDeliveries(storeCtx, outcomes)
		cancel()
		if err == nil {
			w.report(batch)
			return
		}
		if !w.behind.Swap(true) {
			w.cfg.Logger.Error("webhook results could not be stored, trying again", "results", len(batch), "error", err)
		}
		if aborted || !w.again(ctx, giveUp.C) {
			if !aborted && ctx.Err() != nil {
				continue // aborted while waiting: the one last try
			}
			w.cfg.Logger.Error("webhook results are lost and will be delivered again", "results", len(batch))
			return
		}
	}
}

// again waits before another try to store; false when it is time to give up or the worker was aborted.
func (w *Worker) again(ctx context.Context, giveUp <-chan time.Time) bool {
	timer := time.NewTimer(w.cfg.Poll)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-giveUp:
		return false
	case <-ctx.Done():
		return false
	}
}

// report logs what a customer or an operator wants to know of and calls OnAttempt.
func (w *Worker) report(batch []finished) {
	for i := range batch {
		a := &batch[i].attempt
		if a.Disabled != "" {
			w.cfg.Logger.Warn("webhook endpoint disabled", "application_id", a.ApplicationID, "reason", a.Disabled)
		}
		if a.Result == models.ResultDead {
			w.cfg.Logger.Warn("webhook event is dead", "application_id", a.ApplicationID, "subject_id", a.SubjectID,
				"event_id", a.EventID, "attempts", a.Number, "status", a.Status)
		}
		if w.cfg.OnAttempt != nil {
			w.cfg.OnAttempt(*a)
		}
	}
}

package calls

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/google/uuid"

	"tandem/actions"
	"tandem/billing"
	"tandem/esl"
	"tandem/models"
)

// Bounds of the time an outbound call may ring, in seconds.
const (
	minRing = 5
	maxRing = 600
)

// CreateRequest asks for an outbound call.
type CreateRequest struct {
	CustomerID    string
	ApplicationID string
	// From and To are E.164 numbers.
	From, To string
	// Record records the call from its answer to its end.
	Record bool
	// Metadata are the client's own strings; they come back in every event.
	Metadata map[string]string
	// Timeout is how many seconds the call may ring, 5 to 600; 0 is the default.
	Timeout int
	// Queued stores the call without dialling it: StartCall does. Nothing is reserved until then.
	Queued bool
	// Overflow stores a call that limits on calls at a time or per second refuse now: it is queued, and dialled by itself when there is room, behind those
	// of the customer that wait already. QueueTimeout is for how many seconds it waits, 1 to 86,400; 0 is the default, an hour.
	Overflow     bool
	QueueTimeout int
	// MachineDetection, when set, judges who answers.
	MachineDetection *actions.MachineDetection
	// RetryOf is the call that this one repeats.
	RetryOf *string
	// InTx, when set, runs in the transaction that inserts the call, such as for an idempotency record. Its error undoes all.
	InTx func(tx *models.Store, call *models.Call) error
}

func (r *CreateRequest) validate() error {
	for _, field := range []struct{ name, value string }{{"from", r.From}, {"to", r.To}} {
		if field.value == "" {
			return &RequestError{Field: field.name, Message: "is required"}
		}
		if _, err := ParseNumber(field.value); err != nil {
			return &RequestError{Field: field.name, Message: err.Error()}
		}
	}
	if r.Timeout != 0 && (r.Timeout < minRing || r.Timeout > maxRing) {
		return &RequestError{Field: "timeout", Message: fmt.Sprintf("must be from %d to %d seconds", minRing, maxRing)}
	}
	return r.validateQueue()
}

// Create stores an outbound call with its hold and its call.created event in one transaction, and dials after the commit.
// The call returned has the state dialing, or queued when that was asked for. Errors: *RequestError, models.ErrNotFound for an
// application that is not the customer's, *DestinationError, ErrNoActiveTrunk, ErrDestinationNotAllowed, ErrTrunksFull, models.ErrLimit, models.ErrInsufficientBalance, ErrNoNode, and
// those of Accepting. On any error nothing is dialled or charged.
func (m *Manager) Create(ctx context.Context, req CreateRequest) (*models.Call, error) {
	call, err := m.newCall(&req)
	if err != nil {
		return nil, err
	}
	if !req.Queued {
		if err := m.Accepting(); err != nil {
			return nil, err
		}
		defer m.load.begin()()
	}
	app, err := m.cfg.Store.Application(ctx, req.CustomerID, req.ApplicationID)
	if err != nil {
		return nil, fmt.Errorf("find application: %w", err)
	}
	also := func(tx *models.Store, call *models.Call) error {
		if req.InTx == nil {
			return nil
		}
		return req.InTx(tx, call)
	}
	behind, err := m.waitsItsTurn(ctx, &req)
	if err != nil {
		return nil, err
	}
	if req.Queued || behind {
		return m.enqueue(ctx, call, app, also)
	}
	stored, err := m.onNode(ctx, call, app, func(s *session, over *way) (*models.Call, error) {
		return m.insert(ctx, call, onCreate, &over.trunk, withLimits(ctx, app, &over.trunk, withDial(ctx, s, also)))
	})
	m.tellExhausted(ctx, req.CustomerID, err) // the call may be its session's by now
	if req.Overflow && leavesRoom(err) {
		if call, err = m.newCall(&req); err != nil { // without the place that was looked for
			return nil, err
		}
		return m.enqueue(ctx, call, app, also)
	}
	return stored, m.refused(lostNode(err))
}

// tellExhausted has a customer told whose call was refused with err for want of money: the transaction that would have is undone.
func (m *Manager) tellExhausted(ctx context.Context, customerID string, err error) {
	if !errors.Is(err, models.ErrInsufficientBalance) {
		return
	}
	if failed := m.cfg.Store.BalanceShort(ctx, customerID); failed != nil {
		m.log.Error("customer not told that its balance is exhausted", "customer_id", customerID, "error", failed)
	}
}

// overWays stores an outbound call over the first of its ways whose trunk takes it now, at a price that the balance pays. ErrTrunksFull where none does, with
// the *models.LimitError of the one that will first; where no trunk is full, what the first way's price was refused with, see priceless.
func overWays(call *models.Call, s *session, ways []way, store func(over *way) (*models.Call, error)) (*models.Call, error) {
	var full *models.LimitError
	var refused error
	decks := map[string]bool{} // they have no price for the call that will do
	for i := range ways {
		over := &ways[i]
		if decks[over.trunk.RateDeckID] {
			continue
		}
		call.TrunkID, call.MaxSeconds = &over.trunk.ID, over.longest
		if s != nil {
			s.flow.over = *over
		}
		stored, err := store(over)
		switch {
		case errors.Is(err, models.ErrTrunkFull):
			full = sooner(full, err)
		case priceless(err):
			decks[over.trunk.RateDeckID] = true
			refused = cmp.Or(refused, err)
		default:
			return stored, err
		}
	}
	if full == nil {
		return nil, refused
	}
	return nil, fmt.Errorf("%w: %w", ErrTrunksFull, full)
}

// priceless says whether err is that a deck has no price for a call, or none that the balance pays: that of another trunk may.
func priceless(err error) bool {
	return errors.Is(err, billing.ErrUnlisted) || errors.Is(err, models.ErrInsufficientBalance)
}

// newCall is the call that a request asks for, without a node.
func (m *Manager) newCall(req *CreateRequest) (*models.Call, error) {
	if err := req.validate(); err != nil {
		return nil, err
	}
	timeout := req.Timeout
	if timeout == 0 {
		timeout = int(m.cfg.RingTimeout / time.Second)
	}
	call := &models.Call{
		ID: models.NewID("call_"), CustomerID: req.CustomerID, ApplicationID: req.ApplicationID,
		Direction: DirectionOutbound, From: req.From, To: req.To, Record: req.Record, Metadata: req.Metadata,
		TimeoutSeconds: timeout, RetryOf: req.RetryOf, QueueUntil: m.queueUntil(req),
	}
	if req.MachineDetection != nil {
		raw, err := json.Marshal(req.MachineDetection)
		if err != nil {
			return nil, fmt.Errorf("store machine_detection: %w", err)
		}
		call.MachineDetection = raw
	}
	return call, nil
}

// place finds a call's ways and gives it its node, its channel and, where the node is this controller's, a session, which is registered
// but does not run. The session is known before the call is stored as dialing: whoever cancels the call the moment that it is
// finds it. The call of a node that is another controller's has no session here. Either must be stored overWays and withDial.
func (m *Manager) place(ctx context.Context, call *models.Call, app *models.Application) (*session, []way, error) {
	ways, err := m.waysOut(ctx, call, app)
	if err != nil {
		return nil, nil, err
	}
	n, elsewhere, err := m.pick(ctx)
	if err != nil {
		return nil, nil, err
	}
	call.ChannelID = uuid.NewString()
	if n == nil {
		call.NodeID, call.Fence = &elsewhere, 0
		return nil, ways, nil
	}
	call.NodeID, call.Fence = &n.row.ID, n.row.LeaseToken
	s := newSession(n, call.ChannelID)
	s.app = app
	s.unplaced.Store(true)
	s.setCall(call)
	if err := m.register(s); err != nil {
		m.unplace(n.row.ID)
		return nil, nil, fmt.Errorf("%w: %w", ErrNoNode, err)
	}
	return s, ways, nil
}

// dispatch starts the session of a call that has been stored, and returns a copy of the call.
func (s *session) dispatch(stored *models.Call) *models.Call {
	*s.call = *stored
	s.relog()
	created := *stored
	go s.run()
	return &created
}

// insert stores a new call with its hold and its first event, in one transaction. trunk is the one that it goes over or comes by, nil for none.
func (m *Manager) insert(ctx context.Context, call *models.Call, on trigger, trunk *models.Trunk, also func(tx *models.Store, call *models.Call) error) (*models.Call, error) {
	arrow, ok := next("", on)
	if !ok {
		return nil, fmt.Errorf("no new call is %s", on)
	}
	var stored models.Call
	err := m.reserving(ctx, func(tx *models.Store, reserve reserve) error {
		stored = *call
		stored.Status = arrow.to[0]
		if stored.Status != StatusQueued {
			held, err := reserve(ctx, tx, priced(&stored, trunk), stored.MaxSeconds)
			if err != nil {
				return fmt.Errorf("reserve: %w", err)
			}
			held.Give(&stored)
			if held.Bounded {
				tx.TakeCustomer(ctx, stored.CustomerID, beginningOf(&stored))
			}
		}
		if stored.Status == StatusRinging {
			now := m.cfg.Now()
			stored.RingingAt = &now
		}
		if err := tx.CreateCall(ctx, &stored); err != nil {
			return fmt.Errorf("insert call: %w", err)
		}
		if err := emit(ctx, tx, &stored, arrow.event, nil); err != nil {
			return err
		}
		if also != nil {
			return also(tx, &stored)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	m.trunks.foresee(ctx, stored.CustomerID)
	return &stored, nil
}

// reserve is how a transaction reserves some of a balance.
type reserve func(ctx context.Context, tx *models.Store, leg billing.Leg, maxSeconds int) (billing.Reservation, error)

// priced is what a call's own leg is priced as.
func priced(call *models.Call, trunk *models.Trunk) billing.Leg {
	leg := billing.Leg{CustomerID: call.CustomerID, Direction: call.Direction, Number: call.To}
	if trunk != nil {
		leg.TrunkDeckID = trunk.RateDeckID
	}
	return leg
}

// reserving runs a transaction that reserves some of a balance, and once more for the least where others have taken of it meanwhile, or where the day may not
// cost as much.
func (m *Manager) reserving(ctx context.Context, fn func(tx *models.Store, reserve reserve) error) error {
	try := func(reserve reserve) error {
		return m.cfg.Store.InTx(ctx, func(tx *models.Store) error { return fn(tx, reserve) })
	}
	err := try(m.cfg.Rater.Reserve)
	if errors.Is(err, models.ErrBalanceTaken) || errors.Is(err, models.ErrSpendLimit) {
		err = try(m.cfg.Rater.ReserveLeast)
	}
	return err
}

// dialOnce originates the leg and waits until it is answered and ours to steer, or returns errNoRoom.
func (s *session) dialOnce() error {
	limit, err := esl.SchedHangupApp(time.Duration(s.call.GrantedSeconds)*time.Second, causeTimeLimit)
	if err != nil {
		return fmt.Errorf("cap the call: %w", err)
	}
	job, err := s.originate(limit)
	if err != nil {
		switch {
		case errors.Is(err, errAbandoned), unsent(err) && s.box.leaving():
			return s.passOn() // the connection was ended because the node is another controller's
		case s.dial != nil:
			if err := s.claimEnd(); err != nil {
				return err
			}
		}
		switch {
		case errors.Is(err, errEnded), errors.Is(err, errEnding):
			return s.neverDialed(err)
		case errors.Is(err, esl.ErrNoReply):
			return s.dialedOrNot()
		}
		s.log.Warn("originate failed", "error", err)
		why := intent{reason: ReasonInternalError, source: SourcePlatform, status: StatusFailed, cause: causeTempFailure, sip: http.StatusServiceUnavailable}
		if unsent(err) {
			why.reason = ReasonNodeLost
		}
		s.ask(why)
		// The switch never took the command: there is no channel to end.
		s.ended, s.lost = true, true
		return errEnded
	}
	s.job = job
	s.watchJob(job)
	return s.awaitAnswered()
}

// dialedOrNot goes on where the command to dial was sent and its reply did not come: only the switch knows whether it has it.
func (s *session) dialedOrNot() error {
	s.jobDone = true
	if err := s.awaitUp(); err != nil {
		return err
	}
	if err := s.confirm(false); err != nil {
		return err
	}
	return s.awaitAnswered()
}

// awaitAnswered waits until an outbound call is answered and ours to steer.
func (s *session) awaitAnswered() error {
	s.terms = noTerminators
	for {
		err := s.await(nil, func() bool { return s.jobDone && s.jobErr != nil || s.answered && s.parked })
		switch {
		case err != nil:
			return err
		case s.jobErr == nil:
			return nil
		case s.jobFailed():
			return s.awaitJobHangup()
		}
		// The job's end was lost with a connection, or came late: only the switch knows whether there is a channel.
		s.job, s.jobErr = nil, nil
		if err := s.confirm(false); err != nil {
			return err
		}
	}
}

// awaitTurn waits until the switch may begin another session. An error is one of the time before the dialling.
func (s *session) awaitTurn() error {
	if delay := s.node.pace.turn(); delay > 0 {
		return s.pause(delay, nil)
	}
	return nil
}

// originate tells the switch to dial. A command that was surely not sent, because the node was away or busy, is sent when it is back, as long as
// the call may ring: by us, or by the next controller if we die before. An error of the session is one of the time before that.
func (s *session) originate(limit esl.App) (*esl.Job, error) {
	ring := cmp.Or(s.limit, time.Duration(s.call.TimeoutSeconds)*time.Second)
	patience := s.deadline(ring)
	defer patience.stop()
	if err := s.awaitTurn(); err != nil {
		return nil, err
	}
	for delay := storeRetry; ; delay = min(2*delay, storeRetryMax) {
		ctx, cancel := s.command()
		s.unplaced.Store(false)
		job, err := s.node.sw.Originate(ctx, esl.Originate{
			ChannelID: s.channel, Gateway: s.flow.over.trunk.GatewayName, Number: s.flow.over.number, CallerIDNumber: s.flow.over.callerID,
			Codecs: s.flow.over.trunk.Routing.Codecs, Timeout: ring, ExecuteOnAnswer: []esl.App{limit},
			Variables: []esl.Var{
				// Only an answer ends the originate: with early media it would end at once, and the ring timer with it.
				{Name: "ignore_early_media", Value: "true"},
				{Name: "playback_terminators", Value: noTerminators},
			},
			Begin: func(ctx context.Context) error {
				if err := s.claimDial(ctx); err != nil {
					return err
				}
				return s.node.pace.begin(ctx)
			},
		})
		cancel()
		s.unplaced.Store(err != nil && !errors.Is(err, esl.ErrNoReply))
		switch {
		case err == nil:
			s.dialedAt = time.Now()
			return job, nil
		case errors.Is(err, models.ErrStale):
			return nil, errAbandoned // another controller dials it
		case patience.over() || s.box.leaving():
			return nil, err
		case unsent(err):
			if err := s.shelve(); err != nil {
				s.log.Warn("call that waits for its node is not stored as such", "error", err)
			}
			if err := s.awaitUp(); err != nil {
				return nil, err
			}
		case s.dial != nil && storeAway(err): // also where its turn did not come in time
			if err := s.pause(delay, nil); err != nil {
				return nil, err
			}
		default:
			return nil, err
		}
	}
}

// neverDialed ends a call that was ended, or whose node was lost, before the switch was told of it: there is no channel to end.
func (s *session) neverDialed(err error) error {
	s.ended = true
	if errors.Is(err, errEnding) {
		s.facts = hangupFacts{cause: causeCancel}
	}
	return errEnded
}

// jobFailed says whether the switch has reported that the originate failed; an unknown end is no failure.
func (s *session) jobFailed() bool {
	var refused *esl.CommandError
	return s.jobDone && errors.As(s.jobErr, &refused)
}

// watchJob turns the end of the originate into a message. run stops the watch.
func (s *session) watchJob(job *esl.Job) {
	ctx, cancel := context.WithCancel(s.m.ctx)
	done := make(chan struct{})
	channel := s.channel
	go func() {
		defer close(done)
		_, err := job.Wait(ctx)
		if ctx.Err() == nil {
			s.box.put(message{job: &jobResult{channel: channel, err: err}})
		}
	}()
	s.stopJob = func() {
		cancel()
		<-done
	}
}

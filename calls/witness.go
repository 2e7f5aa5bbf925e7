package calls

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"tandem/esl"
	"tandem/models"
)

// witnessEvery is how often the database is asked for the CDRs that are waited for.
const witnessEvery = 250 * time.Millisecond

// witness waits for the CDRs of a node's channels that are gone: with one query for all of them, however many calls wait.
type witness struct {
	m      *Manager
	nodeID string

	mu      sync.Mutex
	wanted  map[string]*testimony // by channel
	running bool
}

// testimony is a CDR that is waited for. The fields but until are set before done is closed.
type testimony struct {
	until time.Time
	cdr   *models.CDR
	done  chan struct{}
}

func newWitness(m *Manager, nodeID string) *witness {
	return &witness{m: m, nodeID: nodeID, wanted: map[string]*testimony{}}
}

// call asks for the CDR of a channel, which is waited for at most a while and, beyond that, for the database. Where the manager
// stops, nothing comes.
func (w *witness) call(channel string, wait time.Duration) *testimony {
	w.mu.Lock()
	defer w.mu.Unlock()
	t := w.wanted[channel]
	if t == nil {
		t = &testimony{until: time.Now().Add(max(0, wait)), done: make(chan struct{})}
		w.wanted[channel] = t
	}
	if !w.running {
		w.running = w.m.goWork(w.run)
	}
	return t
}

// run asks until nothing is waited for.
func (w *witness) run() {
	ticker := time.NewTicker(witnessEvery)
	defer ticker.Stop()
	for {
		if !w.ask() {
			return
		}
		select {
		case <-ticker.C:
		case <-w.m.ctx.Done():
			w.mu.Lock()
			w.running = false
			w.mu.Unlock()
			return
		}
	}
}

// ask looks for all that are waited for, and reports false when there are none left.
func (w *witness) ask() bool {
	w.mu.Lock()
	channels := make([]string, 0, len(w.wanted))
	for channel := range w.wanted {
		channels = append(channels, channel)
	}
	w.mu.Unlock()
	ctx, cancel := context.WithTimeout(w.m.ctx, 10*time.Second)
	defer cancel()
	found, err := w.m.cfg.Store.CDRs(ctx, w.nodeID, channels)
	if err != nil && w.m.ctx.Err() == nil && !storeAway(err) {
		// Nothing can be ended without the database either, which is told once by the store.
		w.m.log.Error("CDRs not read", "node_id", w.nodeID, "error", err)
	}
	now := time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, channel := range channels {
		t := w.wanted[channel]
		cdr, ok := found[channel]
		if ok {
			t.cdr = &cdr
		}
		if ok || err == nil && !now.Before(t.until) {
			close(t.done)
			delete(w.wanted, channel)
		}
	}
	w.running = len(w.wanted) > 0
	return w.running
}

// testify asks for the CDR of a channel that is gone. A node that is connected has a while to report it: it may have gone a
// moment ago. One that was given up for lost had its time.
func (n *node) testify(channel string) *testimony {
	var wait time.Duration
	if n.connected() {
		wait = n.m.cfg.CDRWait
	}
	return n.witness.call(channel, wait)
}

// askCDR lets the switch's own record say how a session ended that heard nothing, or the event, should it come after all. Where
// there is neither, the session stays lost. The end is another controller's where that takes the call meanwhile.
func (s *session) askCDR() error {
	if s.m.cfg.Simulated {
		return nil
	}
	t := s.node.testify(s.channel)
	for {
		err := s.await(t.done, nil)
		switch {
		case errors.Is(err, errAbandoned):
			return err
		case s.facts.cause != "":
			s.lost = false
			return nil
		case err != nil: // that it is lost, or to be ended, is known
		case t.cdr == nil:
			return nil
		default:
			s.log.Info("the end of a lost call is its CDR's", "cause", t.cdr.Cause, "billed_seconds", t.cdr.BilledSeconds)
			s.facts, s.lost = factsOf(t.cdr), false
			return nil
		}
	}
}

// hangupOf is the event that a switch raises after a channel's end, made of its CDR, for a session that has missed it.
func hangupOf(cdr *models.CDR) (*esl.Event, error) {
	headers := map[string]string{
		"Event-Name": eventHangupComplete, "Unique-ID": cdr.ChannelID, "Call-Direction": cdr.Direction, "Hangup-Cause": cdr.Cause,
		"Event-Date-Timestamp":            strconv.FormatInt(cdr.EndedAt.UnixMicro(), 10),
		"variable_hangup_cause":           cdr.Cause,
		"variable_hangup_cause_q850":      strconv.Itoa(cdr.Q850),
		"variable_billsec":                strconv.Itoa(cdr.BilledSeconds),
		"variable_record_ms":              strconv.FormatInt(cdr.RecordedMS, 10),
		"variable_sip_hangup_disposition": cdr.Disposition,
		"variable_sip_term_status":        strconv.Itoa(cdr.SIPCode),
		"Caller-Channel-Answered-Time":    "0",
	}
	if cdr.AnsweredAt != nil {
		headers["Caller-Channel-Answered-Time"] = strconv.FormatInt(cdr.AnsweredAt.UnixMicro(), 10)
	}
	text, err := json.Marshal(headers)
	if err != nil {
		return nil, fmt.Errorf("make the hangup of channel %s: %w", cdr.ChannelID, err)
	}
	return esl.ParseEvent(string(text))
}

package dialplan

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"tandem/esl"
	"tandem/models"
	"tandem/numbering"
)

// rounding is how exactly times are told.
const rounding = time.Millisecond

// nodeWord is what one node says of a trunk.
type nodeWord struct {
	node    string
	state   string // of its registration; empty where nobody can say
	ping    string // UP, DOWN or empty
	pingMS  float64
	answer  registerAnswer
	problem string
}

// registerAnswer is what a carrier said to the last registration that it refused, as the switch tells of it.
type registerAnswer struct {
	status, phrase string
	at             time.Time
}

// answerBook keeps them by node and gateway.
type answerBook struct {
	mu      sync.Mutex
	answers map[gatewayKey]registerAnswer
}

// note takes a sofia::gateway_state event. One that says that all is well forgets what was said before.
func (b *answerBook) note(node string, e event, at time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	key := gatewayKey{node, e.Get("Gateway")}
	status := e.Get("Status")
	switch {
	case e.Get("State") == "REGED":
		delete(b.answers, key)
	case status != "" && status != "200":
		if b.answers == nil {
			b.answers = map[gatewayKey]registerAnswer{}
		}
		b.answers[key] = registerAnswer{status: status, phrase: e.Get("Phrase"), at: at}
	}
}

func (b *answerBook) of(node, gateway string) registerAnswer {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.answers[gatewayKey{node, gateway}]
}

// forget drops a node.
func (b *answerBook) forget(node string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for key := range b.answers {
		if key.node == node {
			delete(b.answers, key)
		}
	}
}

// askNodes asks the switches of this process, and the database for what those of others have reported.
func (s *Syncer) askNodes(ctx context.Context, trunk *models.Trunk) []nodeWord {
	ctx, cancel := context.WithTimeout(ctx, testPatience)
	defer cancel()
	nodes := s.current()
	words := make([]nodeWord, len(nodes))
	own := map[string]bool{}
	var all sync.WaitGroup
	for i, n := range nodes {
		own[n.id] = true
		all.Go(func() { words[i] = s.askNode(ctx, n, trunk.GatewayName) })
	}
	all.Wait()
	reported, err := s.store.GatewayStatusesOf(ctx, trunk.ID)
	if err != nil {
		return append(words, nodeWord{node: "other controllers'", problem: "what they reported cannot be read now"})
	}
	for i := range reported {
		if r := &reported[i]; !own[r.NodeID] {
			words = append(words, nodeWord{node: r.NodeID, state: r.State, ping: r.Status, pingMS: r.PingMS})
		}
	}
	return words
}

func (s *Syncer) askNode(ctx context.Context, n *node, gateway string) nodeWord {
	word := nodeWord{node: n.id}
	if !n.control.Up() {
		word.problem = "the node is away"
		return word
	}
	loaded, err := n.control.Gateway(ctx, gateway)
	switch {
	case err != nil:
		word.problem = "the switch does not say"
	case loaded == nil:
		word.problem = "the switch does not have the gateway"
	default:
		word.state, word.ping, word.pingMS, word.answer = loaded.State, loaded.Status, loaded.PingMS, s.answers.of(n.id, gateway)
	}
	return word
}

// pings adds what the nodes' pings say, and counts.
func (e *examination) pings(step *TrunkStep) (up, down int) {
	for _, word := range e.words {
		switch {
		case word.problem != "":
			step.note("node %s: %s", word.node, word.problem)
		case word.ping == models.PingUp:
			up++
			step.note("node %s: answered, the last ping in %s", word.node, time.Duration(word.pingMS*float64(time.Millisecond)).Round(rounding))
		case word.ping == models.PingDown && word.state != "REGED" && e.trunk.Register:
			// The switch calls a gateway down that is not registered, whatever the pings say.
			step.note("node %s: not registered, which counts as down", word.node)
		case word.ping == models.PingDown:
			down++
			step.note("node %s: three pings in a row had no answer", word.node)
		}
	}
	return up, down
}

// registrations adds what the nodes say of theirs, and counts.
func (e *examination) registrations(step *TrunkStep) (registered, failing int) {
	for _, word := range e.words {
		if word.problem != "" {
			step.note("node %s: %s", word.node, word.problem)
			continue
		}
		text := fmt.Sprintf("node %s: %s", word.node, word.state)
		if word.answer.status != "" {
			text += fmt.Sprintf("; the carrier answered %s %s at %s", word.answer.status, oneLine(word.answer.phrase), word.answer.at.UTC().Format(time.RFC3339))
		}
		step.note("%s", text)
		if word.state == "REGED" {
			registered++
		} else {
			failing++
		}
	}
	return registered, failing
}

// oneLine is a text from outside as it may be shown.
func oneLine(text string) string {
	const most = 200
	text = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return -1
		}
		return r
	}, strings.ToValidUTF8(text, "\uFFFD"))
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "")
	}
	return text
}

// Limits of the call of a test.
const (
	defaultTestRing = 15 * time.Second
	maxTestRing     = 30 * time.Second
	// testTalk is for how long the switch leaves a call up that was answered, should nobody be there to end it.
	testTalk = 5 * time.Second
)

// listener gets the events of the channel of a test.
type listener chan channelWord

// channelWord is what an event says that a test looks at.
type channelWord struct{ name, cause, status, phrase string }

// listenerBook sends the events of channels to who listens for them.
type listenerBook struct {
	mu        sync.Mutex
	listeners map[string]listener
}

func (b *listenerBook) add(channel string) (heard listener, end func()) {
	heard = make(listener, 8)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.listeners == nil {
		b.listeners = map[string]listener{}
	}
	b.listeners[channel] = heard
	return heard, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.listeners, channel)
	}
}

// hear passes on an event of a channel that somebody listens for. It never waits.
func (b *listenerBook) hear(e event) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.listeners) == 0 {
		return
	}
	heard := b.listeners[e.Get("Unique-ID")]
	if heard == nil {
		return
	}
	word := channelWord{name: e.Name(), cause: e.Get("Hangup-Cause")}
	for _, name := range []string{"sip_term_status", "sip_invite_failure_status"} {
		if word.status == "" {
			word.status = e.Get("variable_" + name)
		}
	}
	word.phrase = e.Get("variable_sip_invite_failure_phrase")
	select {
	case heard <- word:
	default:
	}
}

// invite has a node call the number.
func (e *examination) invite(ctx context.Context, step *TrunkStep) {
	switch {
	case e.test.To == "":
		step.conclude(StepSkipped, "No number was named to call.", "Name one in to: the call ends as soon as it rings.")
		return
	case !e.trunk.IsActive:
		step.conclude(StepSkipped, "The trunk is not active.", "")
		return
	case !e.trunk.Routing.Allows(e.test.To):
		step.conclude(StepFailed, "The trunk may not call the number: see its allowed_prefixes.", "Add the beginning of the number to allowed_prefixes, or name another number.")
		return
	}
	if verdict := e.allowed(); !verdict.Allowed {
		step.conclude(StepFailed, "The trunk may not call the number: "+verdict.String()+".",
			"Change allowed_destinations, denied_destinations or allowed_destination_types of the trunk, or name another number.")
		return
	}
	for _, n := range e.s.current() {
		if n.control.Up() {
			e.call(ctx, step, n)
			return
		}
	}
	step.conclude(StepSkipped, "No node is connected to the controller that answered this request.", "Try again: another controller may answer.")
}

// allowed is what the limits of the trunk say of the number.
func (e *examination) allowed() numbering.Verdict {
	limits := &e.trunk.Limits
	return numbering.Within(limits.AllowedDestinations, limits.DeniedDestinations, limits.AllowedDestinationTypes).Number(e.test.To)
}

// call places the call and waits until it is known what becomes of it.
func (e *examination) call(ctx context.Context, step *TrunkStep, n *node) {
	ring := e.test.Ring
	if ring <= 0 {
		ring = defaultTestRing
	}
	ring = min(ring, maxTestRing)
	limit, err := esl.SchedHangupApp(testTalk, "NORMAL_CLEARING")
	if err != nil {
		step.conclude(StepFailed, "The call could not be placed.", "")
		return
	}
	channel := uuid.NewString()
	heard, end := e.s.listeners.add(channel)
	defer end()
	routing := &e.trunk.Routing
	shown := e.test.From
	if routing.CallerIDPolicy == models.CallerIDFixed || shown == "" || routing.CallerIDPolicy == models.CallerIDOwn && routing.CallerID != "" {
		shown = routing.CallerID
	}
	number := routing.Dialled(e.test.To)
	step.note("node %s calls %s, showing %q", n.id, number, shown)
	begun := time.Now()
	sending, cancel := context.WithTimeout(ctx, testPatience)
	job, err := n.control.Originate(sending, esl.Originate{
		ChannelID: channel, Gateway: e.trunk.GatewayName, Number: number, CallerIDNumber: shown, Timeout: ring, Codecs: routing.Codecs,
		ExecuteOnAnswer: []esl.App{limit}, Variables: []esl.Var{{Name: "ignore_early_media", Value: "true"}},
	})
	cancel()
	if err != nil {
		step.conclude(StepFailed, "The switch did not take the call.", "Try again. If it stays so, the node is busy or away.")
		return
	}
	defer e.hangUp(n, channel)
	ended := make(chan error, 1)
	waiting, stop := context.WithTimeout(ctx, ring+testPatience)
	defer stop()
	var all sync.WaitGroup
	defer all.Wait()
	defer stop()
	all.Go(func() {
		_, err := job.Wait(waiting)
		ended <- err
	})
	after := func() time.Duration { return time.Since(begun).Round(rounding) }
	for failed := (<-chan time.Time)(nil); ; {
		select {
		case word := <-heard:
			switch word.name {
			case "CHANNEL_PROGRESS", "CHANNEL_PROGRESS_MEDIA":
				step.note("rang after %s", after())
				step.conclude(StepOK, "The carrier takes calls: the number rings.", "")
				return
			case "CHANNEL_ANSWER":
				step.note("answered after %s", after())
				step.conclude(StepOK, "The carrier takes calls: the number answered.", "")
				return
			case "CHANNEL_HANGUP_COMPLETE":
				e.refused(step, word, after())
				return
			}
		case err := <-ended:
			var refused *esl.CommandError
			switch {
			case errors.As(err, &refused):
				// The end of the channel says more, where there was one; it is on the way.
				step.note("the switch: %s", oneLine(refused.Cause()))
				if noChannel(refused.Cause()) {
					e.refused(step, channelWord{cause: refused.Cause()}, after())
					return
				}
				failed = time.After(time.Second)
			case err != nil:
				step.conclude(StepFailed, "It is not known what became of the call.", "Try again.")
				return
			}
		case <-failed:
			e.refused(step, channelWord{}, after())
			return
		case <-waiting.Done():
			step.conclude(StepFailed, fmt.Sprintf("The number did not ring within %s.", ring), "The carrier takes the call and does nothing with it: ask it for the call.")
			return
		}
	}
}

// noChannel says whether a cause is of a call for which no channel was made.
func noChannel(cause string) bool {
	return cause == "INVALID_GATEWAY" || cause == "GATEWAY_DOWN" || cause == "INVALID_PROFILE"
}

// hangUp ends the call of a test, whatever became of it.
func (e *examination) hangUp(n *node, channel string) {
	ctx, cancel := context.WithTimeout(context.Background(), testPatience)
	defer cancel()
	if err := n.control.Kill(ctx, channel, "ORIGINATOR_CANCEL"); err != nil && !errors.Is(err, esl.ErrNoSuchChannel) {
		e.s.logger.Warn("call of a trunk's test not hung up: the switch ends it", "node_id", n.id, "channel", channel, "error", err)
	}
}

// inviteAdvice is what to do about a refusal, by its SIP status or, without one, its cause.
var inviteAdvice = map[string][2]string{
	"401":                      {"The carrier refuses the login.", "Check username, password and realm."},
	"407":                      {"The carrier refuses the login.", "Check username, password and realm."},
	"403":                      {"The carrier forbids the call.", "Have the carrier allow the addresses of the nodes, the number that is shown and the destination."},
	"404":                      {"The carrier does not know the number.", "Check the form in which the carrier wants numbers: see strip_prefix and add_prefix."},
	"484":                      {"The carrier finds the number too short.", "Check the form in which the carrier wants numbers: see strip_prefix and add_prefix."},
	"488":                      {"The carrier takes none of the codecs.", "Name those that it takes in codecs."},
	"402":                      {"The carrier wants money.", "Look at the account with the carrier."},
	"503":                      {"The carrier has no room, or is out of order.", "Try again; if it stays so, ask the carrier."},
	"486":                      {"The number is busy: the carrier takes calls.", ""},
	"480":                      {"The number is not reachable now: the carrier takes calls.", ""},
	"603":                      {"The number declined: the carrier takes calls.", ""},
	"INVALID_GATEWAY":          {"The switch does not have the gateway.", "Wait a moment after a change; see the log for why the trunk was not rendered."},
	"GATEWAY_DOWN":             {"The switch does not use the gateway: it is not registered, or does not answer pings.", "See the steps options and register."},
	"RECOVERY_ON_TIMER_EXPIRE": {"The carrier did not answer the INVITE.", "Check host, port and transport, and that the carrier allows the addresses of the nodes."},
	"NO_USER_RESPONSE":         {"The carrier did not answer the INVITE.", "Check host, port and transport, and that the carrier allows the addresses of the nodes."},
}

// refused says what a call came to that did not ring.
func (e *examination) refused(step *TrunkStep, word channelWord, after time.Duration) {
	step.note("ended after %s: %s, SIP status %q %s", after, oneLine(word.cause), oneLine(word.status), oneLine(word.phrase))
	said, known := inviteAdvice[word.status]
	if !known {
		said, known = inviteAdvice[word.cause]
	}
	switch {
	case known && said[1] == "":
		step.conclude(StepOK, said[0], "")
	case known:
		step.conclude(StepFailed, said[0], said[1])
	default:
		step.conclude(StepFailed, "The call failed.", "The cause and the SIP status are in the evidence: ask the carrier for this call.")
	}
}

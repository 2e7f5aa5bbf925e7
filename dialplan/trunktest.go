package dialplan

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"tandem/models"
	"tandem/sipprobe"
)

// The test of a trunk asks, step by step, what a call over it needs: where DNS says that the carrier is, whether that can be reached, whether it answers
// OPTIONS, whether it takes the login, and whether it connects a call to a number. What the controller sees by itself is told apart from what the
// nodes say, which have other addresses and are the ones that calls come from. Nothing is changed by it, and nobody is registered.

// ErrTestBusy says that the trunk is being tested already, or as many trunks of the customer, or of all, as can be.
var ErrTestBusy = errors.New("too many trunks are being tested")

// Outcomes of a step.
const (
	StepOK      = "ok"
	StepWarning = "warning"
	StepFailed  = "failed"
	StepSkipped = "skipped"
)

// Steps of the test of a trunk, in their order.
const (
	StepConfiguration = "configuration"
	StepDNS           = "dns"
	StepReachability  = "reachability"
	StepOptions       = "options"
	StepRegister      = "register"
	StepInvite        = "invite"
)

// Limits of a test.
const (
	testsAtOnce = 8
	// testsOfCustomer is how many of these may be of one customer.
	testsOfCustomer = 2
	// testLimit bounds a whole test, testPatience one look at a switch.
	testLimit    = 50 * time.Second
	testPatience = 5 * time.Second
)

// TrunkTest says what to test beyond what is always tested.
type TrunkTest struct {
	// To is an E.164 number to call, empty for no call. The call is ended as soon as it rings or is answered.
	To string
	// From is the number that it shows, where the trunk's caller_id_policy lets it; may be empty.
	From string
	// Ring is how long the call may take until it rings; 15 s when zero, at most 30 s.
	Ring time.Duration
}

// TrunkStep is what one step has found.
type TrunkStep struct {
	Name    string
	Outcome string
	// Summary says it in a sentence, Advice what to do where it is not ok. Evidence are lines that show it.
	Summary  string
	Evidence []string
	Advice   string
	Took     time.Duration
}

// TrunkReport is what a test has found. Outcome is the worst of the steps'.
type TrunkReport struct {
	TrunkID string
	Outcome string
	Steps   []TrunkStep
	Took    time.Duration
}

// note adds a line of evidence.
func (s *TrunkStep) note(format string, args ...any) {
	s.Evidence = append(s.Evidence, fmt.Sprintf(format, args...))
}

// conclude says what came of a step.
func (s *TrunkStep) conclude(outcome, summary, advice string) {
	s.Outcome, s.Summary, s.Advice = outcome, summary, advice
}

// testBook are the tests that run.
type testBook struct {
	mu     sync.Mutex
	trunks map[string]string // the customer of each trunk
}

func (b *testBook) begin(customerID, trunkID string) (end func(), ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	of := 0
	for _, customer := range b.trunks {
		if customer == customerID {
			of++
		}
	}
	if _, tested := b.trunks[trunkID]; tested || of >= testsOfCustomer || len(b.trunks) >= testsAtOnce {
		return nil, false
	}
	if b.trunks == nil {
		b.trunks = map[string]string{}
	}
	b.trunks[trunkID] = customerID
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.trunks, trunkID)
	}, true
}

// examination is one test of one trunk.
type examination struct {
	s      *Syncer
	trunk  *models.Trunk
	test   TrunkTest
	proxy  Proxy
	domain string // of From and of the registrar
	words  []nodeWord
	lines  []probed
}

// TestTrunk tests an outbound trunk, which takes up to 50 s. ErrTestBusy where it, or too many others, are being tested. That something is wrong with the
// trunk is no error.
func (s *Syncer) TestTrunk(ctx context.Context, trunk *models.Trunk, test TrunkTest) (*TrunkReport, error) {
	end, ok := s.tests.begin(trunk.CustomerID, trunk.ID)
	if !ok {
		return nil, fmt.Errorf("test trunk %q: %w", trunk.ID, ErrTestBusy)
	}
	defer end()
	ctx, cancel := context.WithTimeout(ctx, testLimit)
	defer cancel()
	begun := time.Now()
	e := &examination{s: s, trunk: trunk, test: test}
	report := &TrunkReport{TrunkID: trunk.ID}
	configuration, fit := e.configuration()
	report.Steps = append(report.Steps, configuration)
	if fit {
		report.Steps = append(report.Steps, e.run(ctx)...)
	} else {
		for _, name := range []string{StepDNS, StepReachability, StepOptions, StepRegister, StepInvite} {
			report.Steps = append(report.Steps, TrunkStep{Name: name, Outcome: StepSkipped, Summary: "The trunk's settings have to be put right first."})
		}
	}
	order := []string{StepSkipped, StepOK, StepWarning, StepFailed}
	worst := 1
	for i := range report.Steps {
		worst = max(worst, slices.Index(order, report.Steps[i].Outcome))
	}
	report.Outcome, report.Took = order[worst], time.Since(begun)
	if ctx.Err() != nil && errors.Is(context.Cause(ctx), context.Canceled) {
		return nil, fmt.Errorf("test trunk %q: %w", trunk.ID, ctx.Err())
	}
	return report, nil
}

// configuration looks at what the trunk says of itself, and whether a gateway can be made of it.
func (e *examination) configuration() (step TrunkStep, fit bool) {
	step = TrunkStep{Name: StepConfiguration}
	proxy, err := ProxyOf(e.trunk)
	if err == nil {
		_, err = renderGateway(e.trunk)
	}
	if err != nil {
		step.conclude(StepFailed, fmt.Sprintf("No gateway can be made of the trunk: %s.", err), "Change what it names with PATCH /v1/trunks/:id.")
		return step, false
	}
	e.proxy, e.domain = proxy, fromDomain(e.trunk, proxy)
	step.note("proxy %s, gateway %s", e.trunk.Proxy, e.trunk.GatewayName)
	if !e.trunk.IsActive {
		step.conclude(StepFailed, "The trunk is not active: no node has its gateway.", "Set is_active to true.")
		return step, true
	}
	step.conclude(StepOK, "The trunk is active and its settings make a gateway.", "")
	return step, true
}

// fromDomain is the domain of the trunk's From and of its registrations, as its gateway has it.
func fromDomain(trunk *models.Trunk, proxy Proxy) string {
	if trunk.FromDomain != "" {
		return trunk.FromDomain
	}
	return proxy.Host
}

// run does all other steps: the call, which takes longest, beside the others.
func (e *examination) run(ctx context.Context) []TrunkStep {
	var call, words, probe sync.WaitGroup
	invite := TrunkStep{Name: StepInvite}
	call.Go(func() { timed(&invite, func() { e.invite(ctx, &invite) }) })
	words.Go(func() { e.words = e.s.askNodes(ctx, e.trunk) })
	dns, reach, options, register := TrunkStep{Name: StepDNS}, TrunkStep{Name: StepReachability}, TrunkStep{Name: StepOptions}, TrunkStep{Name: StepRegister}
	probe.Go(func() {
		var found *sipprobe.Resolution
		timed(&dns, func() { found = e.dns(ctx, &dns) })
		timed(&reach, func() { e.reach(ctx, &reach, found) })
		defer e.closeLines()
		words.Wait()
		timed(&options, func() { e.options(ctx, &options) })
		timed(&register, func() { e.register(ctx, &register) })
	})
	probe.Wait()
	call.Wait()
	return []TrunkStep{dns, reach, options, register, invite}
}

func timed(step *TrunkStep, fn func()) {
	begun := time.Now()
	fn()
	step.Took = time.Since(begun)
}

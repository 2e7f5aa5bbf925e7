package dialplan

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"tandem/models"
)

// What becomes of a call that comes in.
const (
	OutcomeApplication = "application" // parked for the controller, which asks the application
	OutcomeBridge      = "bridge"      // connected with a SIP address by the switch itself
	OutcomeRefuse      = "refuse"      // answered with a SIP status by the switch itself
)

// Outcome is what becomes of a call.
type Outcome struct {
	Kind      string
	SIPStatus int    // of a refusal
	Phrase    string // of a refusal that is Tandem's own; a number's reject route has that of its status
	Target    string // SIP URI of a bridge
}

// Explanation tells what the nodes do with a call, and why.
type Explanation struct {
	Dialed string
	Number string // Dialed in E.164 form; empty where it has none
	From   netip.Addr
	Token  string // what the access list says of From; empty where it is nobody's
	// Trunk is the one that From is an address of, active or not, and Provider the operator's provider that it belongs to.
	Trunk    *models.Trunk
	Provider string
	// Blocked is the block that From is refused by, nil where none is in the way.
	Blocked *models.Block
	// DID has the number, whosesoever it is.
	DID *models.DID
	// Outcome is what becomes of the call while a controller takes calls, Unsteered while none does. Steps are the extensions that lead to Outcome.
	Outcome, Unsteered Outcome
	Steps              []Step
	Problems           []Problem // with the rows that decide
	Why                []string  // in words, in the order of the decisions
}

var dialedPattern = regexp.MustCompile(dialedNumber)

// Dialed is a number as dialed in E.164 form, as the nodes understand it; empty where it has none.
func Dialed(number string) string {
	groups := dialedPattern.FindStringSubmatch(number)
	if groups == nil {
		return ""
	}
	return "+" + groups[1]
}

// Providers are the networks of the operator's providers.
func (s *Syncer) Providers() []netip.Prefix { return slices.Clone(s.catalogue.providers) }

// Explain tells what the nodes do with a call to a number, as dialed, from an address. It renders what the database says of both, as the nodes
// have it, and follows the call through the documents.
func (s *Syncer) Explain(ctx context.Context, dialed string, from netip.Addr) (*Explanation, error) {
	x := &Explanation{Dialed: dialed, From: from.Unmap()}
	in := Input{Providers: s.catalogue.providers, Profile: s.profile}
	trunk, err := s.store.TrunkByAddress(ctx, x.From)
	if err != nil && !errors.Is(err, models.ErrNotFound) {
		return nil, fmt.Errorf("explain a call: %w", err)
	}
	if err == nil {
		x.Trunk, in.Trunks = trunk, []models.Trunk{*trunk}
	}
	if in.Blocked, err = s.store.BlockedNetworks(ctx); err != nil {
		return nil, fmt.Errorf("explain a call: %w", err)
	}
	if x.Number = Dialed(dialed); x.Number != "" {
		err := s.store.DIDsOfShards(ctx, []string{models.ShardOf(x.Number)}, func(_ string, dids []models.DID) error {
			in.DIDs = append(in.DIDs, dids...)
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("explain a call: %w", err)
		}
	}
	blocked, err := x.follow(in)
	if err != nil {
		return nil, fmt.Errorf("explain a call: %w", err)
	}
	if blocked {
		// One that was lifted in this moment is in the way no more.
		if x.Blocked, err = s.store.BlockOf(ctx, x.From); err != nil && !errors.Is(err, models.ErrNotFound) {
			return nil, fmt.Errorf("explain a call: %w", err)
		}
	}
	if x.Blocked != nil {
		x.Outcome, x.Unsteered, x.Steps = refuseBlocked, refuseBlocked, nil
	}
	x.reason()
	return x, nil
}

// follow renders the input and follows the call through it, as if its source were not blocked, and tells whether it is.
func (x *Explanation) follow(in Input) (blocked bool, err error) {
	for i := range in.DIDs {
		if in.DIDs[i].NumberE164 == x.Number {
			x.DID = &in.DIDs[i]
		}
	}
	rendering, err := Render(in)
	if err != nil {
		return false, err
	}
	for _, problem := range rendering.Problems {
		if x.Trunk != nil && problem.ID == x.Trunk.ID || x.DID != nil && problem.ID == x.DID.ID {
			x.Problems = append(x.Problems, problem)
		}
	}
	loaded, err := readFiles(rendering.Files)
	if err != nil {
		return false, err
	}
	x.Token = loaded.token(x.From)
	if x.Steps, err = loaded.call(x.Token, x.Dialed, "true"); err != nil {
		return false, err
	}
	unsteered, err := loaded.call(x.Token, x.Dialed, "")
	if err != nil {
		return false, err
	}
	x.Outcome, x.Unsteered = outcome(x.Steps), outcome(unsteered)
	for _, p := range in.Providers {
		if p := unmapped(p); strings.HasPrefix(x.Token, providerName+".") && p.Contains(x.From) {
			x.Provider = p.String()
		}
	}
	return x.Token == "" && loaded.blocks(x.From), nil
}

func outcome(steps []Step) Outcome {
	last := steps[len(steps)-1]
	switch last.Application {
	case parkApplication:
		return Outcome{Kind: OutcomeApplication}
	case "bridge":
		target := strings.SplitN(last.Data, "/", 3) // sofia/PROFILE/URI, see route
		return Outcome{Kind: OutcomeBridge, Target: target[len(target)-1]}
	default: // respond
		code, phrase, _ := strings.Cut(last.Data, " ")
		status, _ := strconv.Atoi(code) // ours, see refusals and route
		return Outcome{Kind: OutcomeRefuse, SIPStatus: status, Phrase: phrase}
	}
}

// sourceCustomer is the customer whose trunk the call comes from, empty where it comes from none.
func (x *Explanation) sourceCustomer() string {
	customer, _, _ := strings.Cut(x.Token, ".")
	if customer == providerName {
		return ""
	}
	return customer
}

func (x *Explanation) because(format string, args ...any) {
	x.Why = append(x.Why, fmt.Sprintf(format, args...))
}

// reason puts into words what decided.
func (x *Explanation) reason() {
	x.reasonSource()
	if x.Blocked != nil {
		x.reasonBlocked(x.Blocked)
		return
	}
	x.reasonNumber()
	for _, problem := range x.Problems {
		x.because("%s %s is not as configured on the nodes: %s", problem.Kind, problem.ID, problem.Message)
	}
	switch {
	case x.Token == "":
		x.because("calls from an address that nobody has named are refused, whatever they dial")
	case x.DID != nil && x.Provider == "" && x.DID.CustomerID != x.sourceCustomer():
		x.because("a customer's trunk may call that customer's numbers only")
	}
	x.because("%s", x.Outcome.words("the call is "))
	if x.Unsteered != x.Outcome {
		x.because("%s", x.Unsteered.words("while no controller takes calls it is "))
	} else {
		x.because("the switch decides that by itself, also while no controller takes calls")
	}
}

func (x *Explanation) reasonSource() {
	switch {
	case x.Provider != "":
		x.because("%s belongs to the provider network %s, which may call every number", x.From, x.Provider)
	case x.Token != "":
		x.because("%s is an address of trunk %s of customer %s", x.From, x.Trunk.ID, x.Trunk.CustomerID)
	case x.Trunk != nil && !x.Trunk.IsActive:
		x.because("%s is an address of trunk %s of customer %s, which is not active", x.From, x.Trunk.ID, x.Trunk.CustomerID)
	case x.Trunk != nil:
		x.because("%s is an address of trunk %s of customer %s, which the nodes do not have", x.From, x.Trunk.ID, x.Trunk.CustomerID)
	default:
		x.because("%s is no address of an inbound trunk or of a provider", x.From)
	}
}

func (x *Explanation) reasonNumber() {
	switch {
	case x.Number == "":
		x.because("%q is no number in E.164 form, with or without its plus or with 00 in its place", shortened(x.Dialed))
	case x.DID == nil:
		x.because("%s is nobody's number", x.Number)
	case x.DID.Status != models.DIDActive:
		x.because("%s is number %s of customer %s and %s", x.Number, x.DID.ID, x.DID.CustomerID, x.DID.Status)
	default:
		x.because("%s is number %s of customer %s, with route_mode %s", x.Number, x.DID.ID, x.DID.CustomerID, x.DID.RouteMode)
	}
	if last := x.Steps[len(x.Steps)-1]; last.Extension == "trunk" {
		x.because("the trunk has an application of its own, %s, for what is no number of its customer", *x.Trunk.ApplicationID)
	}
}

func (o Outcome) words(before string) string {
	switch o.Kind {
	case OutcomeApplication:
		return before + "given to the controller, which asks the application"
	case OutcomeBridge:
		return before + "connected with " + o.Target
	default:
		return strings.TrimSpace(fmt.Sprintf("%srefused with SIP status %d %s", before, o.SIPStatus, o.Phrase))
	}
}

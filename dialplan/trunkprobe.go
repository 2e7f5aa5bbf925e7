package dialplan

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"

	"tandem/sipprobe"
)

// probed is an address of a carrier and what it said.
type probed struct {
	place sipprobe.Place
	line  *sipprobe.Line
	err   error
	reply *sipprobe.Reply // to OPTIONS
}

// dns finds out where the carrier is.
func (e *examination) dns(ctx context.Context, step *TrunkStep) *sipprobe.Resolution {
	target := sipprobe.Target{Host: e.proxy.Host, Port: e.proxy.Port, Transport: e.proxy.Transport}
	found, err := e.s.prober.Resolve(ctx, target)
	step.Evidence = found.Records
	if err != nil {
		step.conclude(StepFailed, fmt.Sprintf("The proxy %s cannot be found.", e.proxy.Host),
			"Check the spelling of proxy. A carrier that names its servers by SRV records only needs a proxy without a port.")
		return found
	}
	for _, place := range found.Places {
		step.note("to be tried: %s", place)
	}
	step.conclude(StepOK, fmt.Sprintf("The proxy is at %s.", found.Places[0]), "")
	return found
}

// reach connects to all addresses of the carrier.
func (e *examination) reach(ctx context.Context, step *TrunkStep, found *sipprobe.Resolution) {
	e.lines = make([]probed, len(found.Places))
	var all sync.WaitGroup
	for i, place := range found.Places {
		e.lines[i].place = place
		all.Go(func() { e.lines[i].line, e.lines[i].err = e.s.prober.Connect(ctx, place, e.proxy.Host) })
	}
	all.Wait()
	connected, reached, blocked := 0, 0, 0
	for i := range e.lines {
		probed := &e.lines[i]
		switch {
		case errors.Is(probed.err, sipprobe.ErrBlocked):
			blocked++
			step.note("%s: not an address that this service connects to", probed.place)
		case probed.err != nil:
			step.note("%s", probed.err)
		case probed.place.Transport == sipprobe.UDP:
			reached++
			step.note("%s: UDP has no connection; see the step options", probed.place)
		default:
			reached, connected = reached+1, connected+1
			step.note("%s: connected in %s", probed.place, probed.line.Took.Round(rounding))
			if probed.line.Certificate != "" {
				step.note("%s: %s", probed.place, probed.line.Certificate)
			}
		}
	}
	switch {
	case len(e.lines) == 0:
		step.conclude(StepSkipped, "There is no address to connect to.", "")
	case blocked == len(e.lines):
		step.conclude(StepSkipped, "The addresses are private or otherwise special: only the nodes speak to them.", "")
	case reached == 0:
		step.conclude(StepFailed, "No connection can be made to the carrier.",
			"Check port and transport. Where the evidence names a certificate, it must be valid and for the name in proxy. A carrier that lets in known addresses only may refuse the controller and take the nodes.")
	case reached < len(e.lines)-blocked:
		step.conclude(StepWarning, "Not all addresses of the carrier can be connected to.", "Calls may take long while the switch tries the others. Tell the carrier which address it is.")
	case connected == 0:
		step.conclude(StepOK, "Nothing stands in the way of sending.", "")
	default:
		step.conclude(StepOK, "The carrier can be connected to.", "")
	}
}

// options asks all addresses for their OPTIONS, and looks at the pings of the nodes, which are the same.
func (e *examination) options(ctx context.Context, step *TrunkStep) {
	from := sipprobe.Identity{User: percentEncoded(e.trunk.Username), Domain: e.domain}
	var all sync.WaitGroup
	for i := range e.lines {
		if probed := &e.lines[i]; probed.line != nil {
			all.Go(func() { probed.reply, probed.err = probed.line.Options(ctx, from, e.proxy.Host) })
		}
	}
	all.Wait()
	asked, answered := 0, 0
	for i := range e.lines {
		switch probed := &e.lines[i]; {
		case probed.line == nil:
		case probed.reply != nil:
			asked, answered = asked+1, answered+1
			step.note("controller: %s", probed.reply)
		default:
			asked++
			step.note("controller: %s", probed.err)
		}
	}
	up, down := e.pings(step)
	switch {
	case up > 0 && down == 0 && (answered > 0 || asked == 0):
		step.conclude(StepOK, "The carrier answers.", "")
	case up > 0 && down == 0:
		step.conclude(StepOK, "The carrier answers the nodes; it does not answer the controller, which calls do not need.", "")
	case up > 0:
		step.conclude(StepWarning, "The carrier answers some nodes and not others.", "Have the carrier allow the addresses of all nodes.")
	case answered > 0 && down > 0:
		step.conclude(StepFailed, "The carrier answers the controller and not the nodes: calls over the trunk fail.", "Have the carrier allow the addresses of the nodes, and look for a firewall between them.")
	case answered > 0:
		step.conclude(StepWarning, "The carrier answers; no node has anything to say of it yet.", "Wait until a node is connected and has the trunk.")
	case asked == 0 && down == 0:
		step.conclude(StepSkipped, "Nobody could ask.", "")
	default:
		step.conclude(StepFailed, "The carrier does not answer.",
			"Check host, port and transport with the carrier; a transport that is not offered looks like this, and so does a firewall. Carriers often answer known addresses only: give them those of the nodes.")
	}
}

// register logs in without registering, and looks at the registrations of the nodes.
func (e *examination) register(ctx context.Context, step *TrunkStep) {
	if !e.trunk.Register {
		step.conclude(StepSkipped, "The trunk does not register.", "")
		return
	}
	reply := e.login(ctx, step)
	registered, failing := e.registrations(step)
	switch {
	case registered > 0 && failing == 0:
		step.conclude(StepOK, "The nodes are registered.", "")
	case registered > 0:
		step.conclude(StepWarning, "Some nodes are registered and others are not.", "The carrier may allow one registration at a time, or not know the addresses of all nodes.")
	case reply == nil:
		step.conclude(StepFailed, "No node is registered, and the carrier does not answer a login.", "See the steps before.")
	case reply.Status < 300:
		step.conclude(StepWarning, "The login is right, and no node is registered.", "Wait half a minute, after which nodes try again. Then have the carrier allow the addresses of the nodes.")
	case refusedLogin(reply):
		step.conclude(StepFailed, "The carrier refuses the login.", "Check username, password and realm: "+spoken(reply)+".")
	case reply.Status == http.StatusNotFound:
		step.conclude(StepFailed, "The carrier does not know the user.", "Check username and from_domain: "+spoken(reply)+".")
	default:
		step.conclude(StepFailed, "The carrier refuses the registration: "+spoken(reply)+".", "Ask the carrier what this answer means for the account.")
	}
}

// refusedLogin says whether a login was refused as such.
func refusedLogin(reply *sipprobe.Reply) bool {
	return slices.Contains([]int{http.StatusUnauthorized, http.StatusForbidden, http.StatusProxyAuthRequired}, reply.Status)
}

// spoken is what the carrier said.
func spoken(reply *sipprobe.Reply) string {
	return fmt.Sprintf("it answered %d %s", reply.Status, reply.Phrase)
}

// login asks the first address that answers. It is nil where none does.
func (e *examination) login(ctx context.Context, step *TrunkStep) *sipprobe.Reply {
	who := sipprobe.Identity{User: percentEncoded(e.trunk.Username), Domain: e.domain}
	for i := range e.lines {
		probed := &e.lines[i]
		if probed.reply == nil {
			continue
		}
		reply, err := probed.line.Bindings(ctx, who, e.trunk.Username, string(e.trunk.Password))
		if err != nil {
			step.note("controller: %s", err)
			continue
		}
		step.note("controller, login without registering: %s", reply)
		for _, contact := range reply.Contacts {
			step.note("registered there: %s", contact)
		}
		return reply
	}
	return nil
}

func (e *examination) closeLines() {
	for i := range e.lines {
		if e.lines[i].line != nil {
			_ = e.lines[i].line.Close() // nothing is sent any more
		}
	}
}

package daemon

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"tandem/esl"
	"tandem/models"
)

// Check is one finding of Doctor.
type Check struct {
	OK bool `json:"ok"`
	// Warning is set where nothing fails yet, or nothing that must not.
	Warning bool   `json:"warning,omitempty"`
	Subject string `json:"subject"`
	Finding string `json:"finding"`
	Fix     string `json:"fix,omitempty"`
}

// doctorPatience bounds how long one node may take to answer.
const doctorPatience = 5 * time.Second

// Doctor checks the database, the ledger, every node, and what the nodes say of the outbound trunks.
func (o *Operator) Doctor(ctx context.Context) ([]Check, error) {
	checks := []Check{{OK: true, Subject: "database", Finding: o.store.Dialect() + ", reachable and migrated"}}
	violations, err := o.store.VerifyLedger(ctx)
	if err != nil {
		return nil, fmt.Errorf("verify the ledger: %w", err)
	}
	ledger := Check{OK: true, Subject: "ledger", Finding: "every invariant holds"}
	if len(violations) > 0 {
		ledger = Check{Subject: "ledger", Finding: strings.Join(violations, "; "), Fix: "compare with the switch's CDRs; see docs/money.md"}
	}
	checks = append(checks, ledger)
	nodes, err := o.store.Nodes(ctx)
	if err != nil {
		return nil, fmt.Errorf("list nodes: %w", err)
	}
	if len(nodes) == 0 {
		checks = append(checks, Check{Subject: "nodes", Finding: "there is none", Fix: "tandem nodes add NAME --esl-addr HOST:PORT --esl-password-file FILE --conf-dir DIR"})
	}
	live, err := o.store.LiveCallsByNode(ctx)
	if err != nil {
		return nil, fmt.Errorf("count live calls: %w", err)
	}
	// Side by side: one that does not answer takes its whole time.
	examined := make([][]Check, len(nodes))
	var examining sync.WaitGroup
	for i := range nodes {
		examining.Go(func() { examined[i] = o.examine(ctx, &nodes[i], live[nodes[i].ID]) })
	}
	examining.Wait()
	checks = append(checks, slices.Concat(examined...)...)
	trunks, err := o.examineTrunks(ctx)
	return append(checks, trunks...), err
}

// examine says who steers a node, and connects to it to find out the rest.
func (o *Operator) examine(ctx context.Context, row *models.Node, live int) []Check {
	subject := "node " + row.Name
	checks := standing(row, live, o.store.Now())
	conn, err := esl.NewNode(esl.Config{
		Name: row.Name, Addr: row.ESLAddr, Password: string(row.Password), Handler: deaf{}, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return append(checks, Check{Subject: subject, Finding: err.Error(), Fix: "tandem nodes set " + row.Name + " --esl-addr HOST:PORT"})
	}
	ctx, cancel := context.WithTimeout(ctx, doctorPatience)
	defer cancel()
	if err := conn.Start(ctx); err != nil {
		return append(checks, Check{Subject: subject, Finding: err.Error()})
	}
	defer conn.Stop()
	if err := conn.WaitUp(ctx); err != nil {
		return append(checks, Check{Subject: subject, Finding: "no answer from " + row.ESLAddr + ": " + err.Error(), Fix: "is FreeSWITCH running, and are address and password right?"})
	}
	p := &pulse{now: o.store.Now, modules: modulesFor(&o.cfg)}
	health, _, err := p.examine(ctx, conn, row, &vital{}, conn.Core(), row.Draining())
	if err != nil {
		return append(checks, Check{Subject: subject, Finding: "answers on " + row.ESLAddr + " and does not say how it is: " + err.Error(), Fix: "look into the log of FreeSWITCH"})
	}
	checks = append(checks, Check{OK: true, Subject: subject, Finding: fmt.Sprintf("answers on %s in %.1f ms: FreeSWITCH %s, %d of %d sessions, CPU %.0f %% idle",
		row.ESLAddr, float64(health.Answer)/1000, shortVersion(health.Version), health.Sessions, health.MaxSessions, health.IdleCPU)})
	for _, found := range health.Problems {
		checks = append(checks, Check{OK: found.Severity == models.SeverityWarning, Warning: found.Severity == models.SeverityWarning,
			Subject: subject, Finding: found.Message, Fix: found.Fix})
	}
	return checks
}

// standing is what the database says of a node: whether anybody steers it, and whether it gets calls.
func standing(row *models.Node, live int, now time.Time) []Check {
	subject := "node " + row.Name
	var checks []Check
	warn := func(fix, finding string, args ...any) {
		checks = append(checks, Check{OK: true, Warning: true, Subject: subject, Finding: fmt.Sprintf(finding, args...), Fix: fix})
	}
	switch {
	case !row.IsActive:
		warn("", "is not active: nobody steers it")
	case row.LeaseUntil == nil || !row.LeaseUntil.After(now):
		warn("start `tandem serve` with this database", "no controller steers it: it takes no calls")
	case row.ConnectedUntil == nil || !row.ConnectedUntil.After(now):
		checks = append(checks, Check{Subject: subject, Finding: "the controller " + row.LeaseOwner + " holds it and is not connected to it",
			Fix: "can that machine reach " + row.ESLAddr + "? Its log says why it does not steer the node"})
	}
	if row.Draining() {
		warn("tandem nodes resume "+row.Name, "takes no new calls since %s (%s); %d calls are left", row.DrainingAt.Format(time.DateTime), drainer(row), live)
	}
	if row.Weight == 0 {
		warn("tandem nodes set "+row.Name+" --weight 100", "has the weight 0: no outbound calls are placed on it")
	}
	return checks
}

// drainer is who wanted a node drained, and why.
func drainer(row *models.Node) string {
	who := cmp.Or(row.DrainedBy, "unknown")
	if row.DrainReason != "" {
		who += ": " + row.DrainReason
	}
	return who
}

// deaf hears a node without doing anything.
type deaf struct{}

// HandleUp implements esl.Handler.
func (deaf) HandleUp(esl.Snapshot) {}

// HandleEvent implements esl.Handler.
func (deaf) HandleEvent(*esl.Event) {}

// HandleDown implements esl.Handler.
func (deaf) HandleDown(error) {}

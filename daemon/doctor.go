package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	"tandem/esl"
	"tandem/models"
)

// Check is one finding of Doctor.
type Check struct {
	OK      bool   `json:"ok"`
	Subject string `json:"subject"`
	Finding string `json:"finding"`
	Fix     string `json:"fix,omitempty"`
}

// doctorPatience bounds how long one node may take to answer.
const doctorPatience = 5 * time.Second

// Doctor checks the database, the ledger and every node.
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
	for i := range nodes {
		checks = append(checks, examine(ctx, &nodes[i])...)
	}
	return checks, nil
}

// examine connects to one node and checks what it must have before a customer's text may reach it.
func examine(ctx context.Context, row *models.Node) []Check {
	subject := "node " + row.Name
	conn, err := esl.NewNode(esl.Config{
		Name: row.Name, Addr: row.ESLAddr, Password: string(row.Password), Handler: deaf{}, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return []Check{{Subject: subject, Finding: err.Error(), Fix: "tandem nodes remove, then add it again"}}
	}
	ctx, cancel := context.WithTimeout(ctx, doctorPatience)
	defer cancel()
	if err := conn.Start(ctx); err != nil {
		return []Check{{Subject: subject, Finding: err.Error()}}
	}
	defer conn.Stop()
	if err := conn.WaitUp(ctx); err != nil {
		return []Check{{Subject: subject, Finding: "no answer from " + row.ESLAddr + ": " + err.Error(), Fix: "is FreeSWITCH running, and are address and password right?"}}
	}
	checks := []Check{{OK: true, Subject: subject, Finding: "answers on " + row.ESLAddr}}
	if err := checkPassword(row); err != nil {
		checks = append(checks, Check{Subject: subject, Finding: err.Error(), Fix: "set another password in event_socket.conf.xml"})
	}
	if err := checkWalls(ctx, conn); err != nil {
		checks = append(checks, Check{Subject: subject, Finding: err.Error(), Fix: "use freeswitch-conf, or set both as it does, and restart the node"})
	} else {
		checks = append(checks, Check{OK: true, Subject: subject, Finding: "text of customers is never expanded"})
	}
	return append(checks, checkCDRs(ctx, conn, row))
}

// checkCDRs checks that a node says how its channels ended, to the endpoint or by files, and that none of the files were refused.
func checkCDRs(ctx context.Context, conn commander, row *models.Node) Check {
	subject := "node " + row.Name
	loaded, err := conn.API(ctx, "module_exists mod_json_cdr")
	switch {
	case err != nil:
		return Check{Subject: subject, Finding: "mod_json_cdr was not asked for: " + err.Error()}
	case strings.TrimSpace(loaded) != "true":
		return Check{Subject: subject, Finding: "mod_json_cdr is not loaded: calls that end while no controller listens are billed by guess", Fix: "load it, as freeswitch-conf does"}
	}
	folder := filepath.Join(cdrFolder(row.ConfDir), refusedCDRs)
	refused, err := os.ReadDir(folder)
	if err == nil && len(refused) > 0 {
		return Check{Subject: subject, Finding: fmt.Sprintf("%d files in %s are no CDRs", len(refused), folder), Fix: "look at them and delete them; the log of tandem says what is wrong with each"}
	}
	return Check{OK: true, Subject: subject, Finding: "reports how its channels ended"}
}

// checkPassword refuses FreeSWITCH's well-known default on an address that others can reach.
func checkPassword(row *models.Node) error {
	addr, err := netip.ParseAddrPort(row.ESLAddr)
	if row.Password == "ClueCon" && (err != nil || !addr.Addr().IsLoopback()) {
		return errors.New("uses FreeSWITCH's default Event Socket password off loopback")
	}
	return nil
}

// commander is what checkWalls needs of a node.
type commander interface {
	GlobalVariable(ctx context.Context, name string) (string, error)
	API(ctx context.Context, line string) (string, error)
}

// checkWalls checks the two settings without which FreeSWITCH runs commands out of a customer's text (DESIGN §4):
// switch_core_session.c expands application arguments unless app_disable_expand_variables is set, and switch_channel.c
// runs ${api(…)} unless api-expansion is off (mod_commands.c, fsctl api_expansion, tells).
func checkWalls(ctx context.Context, node commander) error {
	disabled, err := node.GlobalVariable(ctx, "app_disable_expand_variables")
	if err != nil {
		return fmt.Errorf("read app_disable_expand_variables: %w", err)
	}
	expansion, err := node.API(ctx, "fsctl api_expansion")
	if err != nil {
		return fmt.Errorf("read api_expansion: %w", err)
	}
	var missing []string
	if strings.TrimSpace(disabled) != "true" {
		missing = append(missing, "the global variable app_disable_expand_variables is not true")
	}
	if !strings.Contains(expansion, "is off") {
		missing = append(missing, "api-expansion is on in switch.conf")
	}
	if len(missing) > 0 {
		return errors.New(strings.Join(missing, " and "))
	}
	return nil
}

// deaf hears a node without doing anything.
type deaf struct{}

// HandleUp implements esl.Handler.
func (deaf) HandleUp(esl.Snapshot) {}

// HandleEvent implements esl.Handler.
func (deaf) HandleEvent(*esl.Event) {}

// HandleDown implements esl.Handler.
func (deaf) HandleDown(error) {}

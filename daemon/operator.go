package daemon

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"tandem/models"
)

// Operator is what the command line does to the database, without a running controller.
type Operator struct {
	store *models.Store
	cfg   Config
}

// OpenOperator opens the database and brings its schema up to date.
func OpenOperator(ctx context.Context, cfg Config) (*Operator, error) {
	store, err := openStore(ctx, cfg, newLogger(cfg, os.Stderr))
	if err != nil {
		return nil, err
	}
	return &Operator{store: store, cfg: cfg}, nil
}

// Close closes the database.
func (o *Operator) Close() error { return o.store.Close() }

// Migration is one step of the schema and whether it has been applied.
type Migration struct {
	Version int64  `json:"version"`
	Name    string `json:"name"`
	State   string `json:"state"`
}

// Migrations lists the schema's steps; opening the operator has applied them.
func (o *Operator) Migrations(ctx context.Context) ([]Migration, error) {
	status, err := o.store.MigrationStatus(ctx)
	if err != nil {
		return nil, fmt.Errorf("list migrations: %w", err)
	}
	out := make([]Migration, 0, len(status))
	for _, m := range status {
		state := "pending"
		if m.AppliedAt != nil {
			state = "applied"
		}
		out = append(out, Migration{Version: m.Version, Name: m.Name, State: state})
	}
	return out, nil
}

// Customer is a customer as the command line shows one; amounts are decimal.
type Customer struct {
	ID       string `json:"id"`
	Name     string `json:"name"`
	Balance  string `json:"balance"`
	Held     string `json:"held"`
	Currency string `json:"currency"`
}

func customerOf(c *models.Customer) Customer {
	return Customer{ID: c.ID, Name: c.Name, Balance: FormatMoney(c.BalanceMicros), Held: FormatMoney(c.HeldMicros), Currency: c.Currency}
}

var currencyCode = regexp.MustCompile(`^[A-Z]{3}$`)

// CreateCustomer creates a customer with an opening balance; an empty currency means the configured one.
func (o *Operator) CreateCustomer(ctx context.Context, name, balance, currency string) (Customer, error) {
	if name = strings.TrimSpace(name); name == "" {
		return Customer{}, errors.New("create customer: name is required")
	}
	micros, err := ParseMoney(balance)
	if err != nil || micros < 0 {
		return Customer{}, fmt.Errorf("create customer: balance must be an amount such as 25.00, was %q", balance)
	}
	if currency == "" {
		currency = o.cfg.Currency
	}
	if !currencyCode.MatchString(currency) {
		return Customer{}, fmt.Errorf("create customer: currency must be an ISO 4217 code such as USD, was %q", currency)
	}
	customer := &models.Customer{Name: name, Currency: currency, BalanceMicros: micros}
	if err := o.store.CreateCustomer(ctx, customer); err != nil {
		return Customer{}, fmt.Errorf("create customer: %w", err)
	}
	return customerOf(customer), nil
}

// Customer reads one customer.
func (o *Operator) Customer(ctx context.Context, id string) (Customer, error) {
	c, err := o.store.Customer(ctx, id)
	if err != nil {
		return Customer{}, fmt.Errorf("read customer %s: %w", id, err)
	}
	return customerOf(c), nil
}

// Customers lists all customers, newest first.
func (o *Operator) Customers(ctx context.Context) ([]Customer, error) {
	out := []Customer{}
	for page := (models.Page{Limit: models.MaxPageLimit}); ; {
		customers, next, err := o.store.ListCustomers(ctx, page)
		if err != nil {
			return nil, fmt.Errorf("list customers: %w", err)
		}
		for i := range customers {
			out = append(out, customerOf(&customers[i]))
		}
		if next == "" {
			return out, nil
		}
		page.Cursor = next
	}
}

// Credit adds an amount to a balance. The same key adds once, however often it is called.
func (o *Operator) Credit(ctx context.Context, customerID, amount, key, note string) (Customer, error) {
	micros, err := ParseMoney(amount)
	if err != nil || micros <= 0 {
		return Customer{}, fmt.Errorf("credit %s: amount must be more than zero, such as 25.00, was %q", customerID, amount)
	}
	if _, err := o.store.Customer(ctx, customerID); err != nil {
		return Customer{}, fmt.Errorf("credit %s: %w", customerID, err)
	}
	if _, err := o.store.Credit(ctx, customerID, "topup:"+customerID+":"+key, models.LedgerTopup, micros, note); err != nil {
		return Customer{}, fmt.Errorf("credit %s: %w", customerID, err)
	}
	return o.Customer(ctx, customerID)
}

// Key is an API key as the command line shows one. Secret is set only by CreateKey.
type Key struct {
	ID          string `json:"id"`
	Name        string `json:"name"`
	Prefix      string `json:"prefix"`
	Application string `json:"application_id,omitempty"`
	State       string `json:"state"`
	Secret      string `json:"api_key,omitempty"`
}

func keyOf(k *models.APIKey) Key {
	key := Key{ID: k.ID, Name: k.Name, Prefix: k.Prefix, State: "active"}
	if k.ApplicationID != nil {
		key.Application = *k.ApplicationID
	}
	if k.RevokedAt != nil {
		key.State = "revoked"
	}
	return key
}

// CreateKey makes an API key for a customer, of one of its applications or of none. Only this answer holds the secret.
func (o *Operator) CreateKey(ctx context.Context, customerID, applicationID, name string) (Key, error) {
	key := &models.APIKey{CustomerID: customerID, Name: name}
	if _, err := o.store.Customer(ctx, customerID); err != nil {
		return Key{}, fmt.Errorf("create key: customer %s: %w", customerID, err)
	}
	if applicationID != "" {
		if _, err := o.store.Application(ctx, customerID, applicationID); err != nil {
			return Key{}, fmt.Errorf("create key: application %s: %w", applicationID, err)
		}
		key.ApplicationID = &applicationID
	}
	secret, err := o.store.CreateAPIKey(ctx, key, "")
	if err != nil {
		return Key{}, fmt.Errorf("create key: %w", err)
	}
	made := keyOf(key)
	made.Secret = secret
	return made, nil
}

// Keys lists a customer's keys, of all its applications.
func (o *Operator) Keys(ctx context.Context, customerID string) ([]Key, error) {
	keys, err := o.store.ListAPIKeys(ctx, customerID, "")
	if err != nil {
		return nil, fmt.Errorf("list keys of %s: %w", customerID, err)
	}
	out := make([]Key, 0, len(keys))
	for i := range keys {
		out = append(out, keyOf(&keys[i]))
	}
	return out, nil
}

// RevokeKey makes a key worthless at once.
func (o *Operator) RevokeKey(ctx context.Context, customerID, keyID string) error {
	if err := o.store.RevokeAPIKey(ctx, customerID, "", keyID); err != nil {
		return fmt.Errorf("revoke key %s: %w", keyID, err)
	}
	return nil
}

// Node is a FreeSWITCH node as the command line shows one.
type Node struct {
	ID      string `json:"id"`
	Name    string `json:"name"`
	ESLAddr string `json:"esl_addr"`
	ConfDir string `json:"conf_dir"`
	// HeldBy is the controller that holds the node's lease, or "-".
	HeldBy string `json:"held_by"`
	// CDRToken proves the node's reports. Only the answer of what made it has it.
	CDRToken string `json:"cdr_token,omitempty"`
}

func nodeOf(n *models.Node, now time.Time) Node {
	node := Node{ID: n.ID, Name: n.Name, ESLAddr: n.ESLAddr, ConfDir: n.ConfDir, HeldBy: "-"}
	if n.LeaseUntil != nil && n.LeaseUntil.After(now) {
		node.HeldBy = n.LeaseOwner
	}
	return node
}

var nodeName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`)

// newNode checks what describes a node and reads its password.
func newNode(name, eslAddr, passwordFile, confDir string) (*models.Node, error) {
	if !nodeName.MatchString(name) {
		return nil, fmt.Errorf("name must be 1 to 63 letters, digits, dots, dashes or underscores, was %q", name)
	}
	if _, _, err := net.SplitHostPort(eslAddr); err != nil {
		return nil, fmt.Errorf("esl-addr must be HOST:PORT, was %q", eslAddr)
	}
	password, err := readPassword(passwordFile)
	if err != nil {
		return nil, err
	}
	confDir, err = filepath.Abs(confDir)
	if err != nil {
		return nil, fmt.Errorf("conf-dir: %w", err)
	}
	info, err := os.Stat(confDir)
	if err != nil {
		return nil, fmt.Errorf("conf-dir: %w", err)
	}
	if !info.IsDir() {
		return nil, fmt.Errorf("conf-dir: %s is not a folder", confDir)
	}
	return &models.Node{Name: name, ESLAddr: eslAddr, Password: models.Secret(password), ConfDir: confDir, IsActive: true}, nil
}

func readPassword(file string) (string, error) {
	raw, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("esl-password-file: %w", err)
	}
	password := strings.TrimRight(string(raw), "\r\n")
	if password == "" || strings.ContainsAny(password, "\r\n") {
		return "", fmt.Errorf("esl-password-file: %s must hold the password in one line", file)
	}
	return password, nil
}

// AddNode registers a node. Running controllers take it at their next look, within seconds. Its CDR token is that of tokenFile, or
// a new one, which only this answer has, where tokenFile is empty.
func (o *Operator) AddNode(ctx context.Context, name, eslAddr, passwordFile, confDir, tokenFile string) (Node, error) {
	node, err := newNode(name, eslAddr, passwordFile, confDir)
	if err != nil {
		return Node{}, fmt.Errorf("add node: %w", err)
	}
	token, made, err := cdrToken(tokenFile)
	if err != nil {
		return Node{}, fmt.Errorf("add node %s: %w", name, err)
	}
	err = o.store.InTx(ctx, func(tx *models.Store) error {
		if err := tx.CreateNode(ctx, node); err != nil {
			return err
		}
		return tx.SetCDRToken(ctx, node.ID, token)
	})
	if err != nil {
		return Node{}, fmt.Errorf("add node %s: %w", name, err)
	}
	added := nodeOf(node, o.store.Now())
	added.CDRToken = made
	return added, nil
}

// RenewCDRToken gives a node another CDR token: that of tokenFile, or a new one, which only this answer has, where tokenFile is
// empty. The one before is worth nothing from then on.
func (o *Operator) RenewCDRToken(ctx context.Context, name, tokenFile string) (Node, error) {
	token, made, err := cdrToken(tokenFile)
	if err != nil {
		return Node{}, fmt.Errorf("renew the CDR token of node %s: %w", name, err)
	}
	node, err := o.store.NodeByName(ctx, name)
	if err != nil {
		return Node{}, fmt.Errorf("renew the CDR token of node %s: %w", name, err)
	}
	if err := o.store.SetCDRToken(ctx, node.ID, token); err != nil {
		return Node{}, fmt.Errorf("renew the CDR token of node %s: %w", name, err)
	}
	renewed := nodeOf(node, o.store.Now())
	renewed.CDRToken = made
	return renewed, nil
}

// tokenText is what a CDR token is made of: freeswitch-conf pastes it into XML, and a colon ends the name before it.
var tokenText = regexp.MustCompile(`^[A-Za-z0-9._~-]{16,128}$`)

// cdrToken reads a token from a file, or makes one where no file is given.
func cdrToken(file string) (token, made string, err error) {
	if file == "" {
		made = models.NewCDRToken()
		return made, made, nil
	}
	raw, err := os.ReadFile(file)
	if err != nil {
		return "", "", fmt.Errorf("cdr-token-file: %w", err)
	}
	token = strings.TrimRight(string(raw), "\r\n")
	if !tokenText.MatchString(token) {
		return "", "", fmt.Errorf("cdr-token-file: %s must hold 16 to 128 letters, digits, dots, dashes, underscores or tildes in one line", file)
	}
	return token, "", nil
}

// Nodes lists the nodes.
func (o *Operator) Nodes(ctx context.Context) ([]Node, error) {
	nodes, err := o.store.Nodes(ctx)
	if err != nil {
		return nil, fmt.Errorf("list nodes: %w", err)
	}
	out := make([]Node, 0, len(nodes))
	for i := range nodes {
		out = append(out, nodeOf(&nodes[i], o.store.Now()))
	}
	return out, nil
}

// RemoveNode removes a node that carries no live call.
func (o *Operator) RemoveNode(ctx context.Context, name string) error {
	node, err := o.store.NodeByName(ctx, name)
	if err != nil {
		return fmt.Errorf("remove node %s: %w", name, err)
	}
	live, err := o.store.LiveCalls(ctx, node.ID)
	if err != nil {
		return fmt.Errorf("remove node %s: %w", name, err)
	}
	if len(live) > 0 {
		return fmt.Errorf("remove node %s: %d calls are live on it", name, len(live))
	}
	if err := o.store.DeleteNode(ctx, node.ID); err != nil {
		return fmt.Errorf("remove node %s: %w", name, err)
	}
	return nil
}

// VerifyLedger names each invariant of the ledger that does not hold.
func (o *Operator) VerifyLedger(ctx context.Context) ([]string, error) {
	violations, err := o.store.VerifyLedger(ctx)
	if err != nil {
		return nil, fmt.Errorf("verify the ledger: %w", err)
	}
	return violations, nil
}

// Difference is an ended call that was billed other seconds than its switch recorded.
type Difference struct {
	CallID        string    `json:"call_id"`
	NodeID        string    `json:"node_id"`
	ChannelID     string    `json:"channel_id"`
	BilledSeconds int       `json:"billed_seconds"`
	CDRSeconds    int       `json:"cdr_seconds"`
	FoundAt       time.Time `json:"found_at"`
}

// Differences lists the calls that were billed other seconds than their switches recorded, newest first.
func (o *Operator) Differences(ctx context.Context) ([]Difference, error) {
	found, err := o.store.BillingDifferences(ctx)
	if err != nil {
		return nil, fmt.Errorf("list billing differences: %w", err)
	}
	out := make([]Difference, 0, len(found))
	for _, d := range found {
		out = append(out, Difference(d))
	}
	return out, nil
}

package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"tandem/models"
	"tandem/numbering"
	"tandem/webhooks"
)

// The numbers of `tandem dev`. A simulated callee whose number ends in 700 answers and types 1 2 3 4 #.
const (
	devNumber = "+12025550100"
	devCallee = "+12025550700"
	devDID    = "+12025550199"
	devNode   = "dev"
)

// seed names what the first start of `tandem dev` makes. It is kept in seed.json and written before the rows are made:
// a start that died in between makes them at the next one, under the same ids.
type seed struct {
	CustomerID    string `json:"customer_id"`
	ApplicationID string `json:"application_id"`
	TrunkID       string `json:"trunk_id"`
	DIDID         string `json:"did_id"`
}

// openSeed reads the seed of an earlier start, or chooses a new one and writes it down.
func openSeed(file string) (*seed, error) {
	raw, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		s := &seed{
			CustomerID: models.NewID("cust_"), ApplicationID: models.NewID("app_"),
			TrunkID: models.NewID("trunk_"), DIDID: models.NewID("did_"),
		}
		return s, s.write(file)
	}
	if err != nil {
		return nil, fmt.Errorf("read the seed: %w", err)
	}
	var s seed
	if err := json.Unmarshal(raw, &s); err != nil {
		return nil, fmt.Errorf("read the seed %s: %w", file, err)
	}
	return &s, nil
}

func (s *seed) write(file string) error {
	raw, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return fmt.Errorf("write the seed: %w", err)
	}
	temporary := file + ".new"
	if err := os.WriteFile(temporary, append(raw, '\n'), 0o600); err != nil {
		return fmt.Errorf("write the seed: %w", err)
	}
	if err := os.Rename(temporary, file); err != nil {
		return fmt.Errorf("write the seed: %w", err)
	}
	return nil
}

// planted tells whether an earlier start has made the rows.
func (s *seed) planted(ctx context.Context, store *models.Store) (bool, error) {
	_, err := store.Customer(ctx, s.CustomerID)
	if errors.Is(err, models.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("look for the dev customer: %w", err)
	}
	return true, nil
}

// plant makes the customer, application, trunk, DID and API key of a first start in one transaction, and returns the
// key. baseURL is where the example's answer_url and webhook receiver are served.
func (s *seed) plant(ctx context.Context, store *models.Store, baseURL, presetKey, currency string) (string, error) {
	customer := &models.Customer{ID: s.CustomerID, Name: "Dev customer", Currency: currency, BalanceMicros: 100_000_000,
		Limits: models.CustomerLimits{CallLimits: models.CallLimits{Destinations: models.Destinations{AllowedDestinationTypes: numbering.Types}}}}
	application := &models.Application{
		ID: s.ApplicationID, CustomerID: s.CustomerID, Name: "Example", AnswerURL: baseURL + "/dev/answer",
		WebhookURL: baseURL + "/dev/webhooks", WebhookSecret: models.Secret(webhooks.NewSecret()),
	}
	trunk := &models.Trunk{
		ID: s.TrunkID, CustomerID: s.CustomerID, Name: "Dev carrier", Direction: "outbound",
		GatewayName: "dev-carrier", Proxy: "127.0.0.1:5090", IsActive: true,
	}
	did := &models.DID{
		ID: s.DIDID, CustomerID: s.CustomerID, ApplicationID: &s.ApplicationID, NumberE164: devDID,
		Provider: "simulated", Status: "active", RouteMode: "webhook",
	}
	key := &models.APIKey{CustomerID: s.CustomerID, ApplicationID: &s.ApplicationID, Name: "tandem dev"}
	var secret string
	err := store.InTx(ctx, func(tx *models.Store) error {
		if err := tx.CreateCustomer(ctx, customer); err != nil {
			return err
		}
		if err := tx.CreateApplication(ctx, application); err != nil {
			return err
		}
		if err := tx.CreateTrunk(ctx, trunk); err != nil {
			return err
		}
		if err := tx.CreateDID(ctx, did); err != nil {
			return err
		}
		var err error
		secret, err = tx.CreateAPIKey(ctx, key, presetKey)
		return err
	})
	if err != nil {
		return "", fmt.Errorf("make the first customer: %w", err)
	}
	return secret, nil
}

// keepKey makes a preset key work on a database that an earlier start made without it.
func keepKey(ctx context.Context, store *models.Store, s *seed, presetKey string) error {
	if presetKey == "" {
		return nil
	}
	_, err := store.AuthenticateKey(ctx, presetKey)
	if err == nil {
		return nil
	}
	if !errors.Is(err, models.ErrNotFound) {
		return fmt.Errorf("look up TANDEM_DEV_API_KEY: %w", err)
	}
	key := &models.APIKey{CustomerID: s.CustomerID, ApplicationID: &s.ApplicationID, Name: "TANDEM_DEV_API_KEY"}
	if _, err := store.CreateAPIKey(ctx, key, presetKey); err != nil {
		return fmt.Errorf("add TANDEM_DEV_API_KEY: %w", err)
	}
	return nil
}

// moveExample points the example application at this start's address, unless its URLs were changed by hand.
func moveExample(ctx context.Context, store *models.Store, s *seed, baseURL string) error {
	application, err := store.ApplicationByID(ctx, s.ApplicationID)
	if errors.Is(err, models.ErrNotFound) {
		return nil // deleted by hand: the rest of the seed goes on without it
	}
	if err != nil {
		return fmt.Errorf("read the example application: %w", err)
	}
	moved := *application
	for path, url := range map[string]*string{"/dev/answer": &moved.AnswerURL, "/dev/webhooks": &moved.WebhookURL} {
		if isLoopbackURL(*url, path) {
			*url = baseURL + path
		}
	}
	if moved.AnswerURL == application.AnswerURL && moved.WebhookURL == application.WebhookURL {
		return nil
	}
	if err := store.UpdateApplication(ctx, &moved); err != nil {
		return fmt.Errorf("move the example application: %w", err)
	}
	return nil
}

// seedNode registers the switch of this start as the node "dev", replacing the address of an earlier start, and
// the CDR token where one is given.
func seedNode(ctx context.Context, store *models.Store, node *models.Node, token string) error {
	known, err := store.NodeByName(ctx, node.Name)
	if errors.Is(err, models.ErrNotFound) {
		if err := store.CreateNode(ctx, node); err != nil {
			return fmt.Errorf("add the dev node: %w", err)
		}
		return setToken(ctx, store, node.ID, token)
	}
	if err != nil {
		return fmt.Errorf("read the dev node: %w", err)
	}
	known.ESLAddr, known.Password, known.ConfDir, known.IsActive = node.ESLAddr, node.Password, node.ConfDir, true
	if err := store.UpdateNode(ctx, known); err != nil {
		return fmt.Errorf("move the dev node: %w", err)
	}
	return setToken(ctx, store, known.ID, token)
}

func setToken(ctx context.Context, store *models.Store, nodeID, token string) error {
	if token == "" {
		return nil
	}
	if err := store.SetCDRToken(ctx, nodeID, token); err != nil {
		return fmt.Errorf("let the dev node report: %w", err)
	}
	return nil
}

// lockData keeps two `tandem dev` from using one data folder: each would steer the other's calls.
func lockData(dir string) (release func() error, err error) {
	file, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock %s: %w", dir, err)
	}
	if err := lockFile(file); err != nil {
		_ = file.Close()
		return nil, fmt.Errorf("another `tandem dev` uses %s: %w", dir, err)
	}
	return file.Close, nil
}

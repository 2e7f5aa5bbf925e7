package daemon

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"tandem/calls"
	"tandem/egress"
	"tandem/models"
	"tandem/simulator"
)

// SimulationReport is what a simulation led to.
type SimulationReport = simulator.Report

// SimulationStep is one step of it.
type SimulationStep = simulator.Step

// SimulateOptions say what `tandem simulate` runs: an application of a server, or an answer_url with nothing else at hand.
type SimulateOptions struct {
	// Script is the scripted caller, JSON.
	Script []byte

	// ApplicationID is run by the server at APIURL, with APIKey.
	ApplicationID, APIURL, APIKey string

	// AnswerURL is run in this process instead. It and FallbackURL may be on loopback and on private networks: whoever runs
	// this command could reach them anyway.
	AnswerURL, FallbackURL string
	// Secret signs the requests, as the application's webhook_secret would.
	Secret string
}

// ErrScript marks what is wrong with the script or the options, not with the application.
var ErrScript = errors.New("simulate")

// maxReport bounds the report of a server, in bytes.
const maxReport = 32 << 20

// Simulate runs a simulation and returns its report. An error says that there was no run; a run that went wrong is a report
// that is not OK.
func Simulate(ctx context.Context, opts SimulateOptions) (*SimulationReport, error) {
	if opts.AnswerURL != "" {
		return simulateHere(ctx, opts)
	}
	return simulateThere(ctx, opts)
}

// simulateHere runs an answer_url in this process.
func simulateHere(ctx context.Context, opts SimulateOptions) (*SimulationReport, error) {
	script, err := simulator.ParseScript(opts.Script)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrScript, err)
	}
	for name, raw := range map[string]string{"--answer-url": opts.AnswerURL, "--fallback-url": opts.FallbackURL} {
		if raw == "" {
			continue
		}
		if _, err := egress.CheckURL(raw); err != nil {
			return nil, fmt.Errorf("%w: %s: %w", ErrScript, name, err)
		}
	}
	client := egress.NewClient(egress.Config{
		AllowedNetworks: []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}, AllowAnyPort: true,
	})
	defer client.CloseIdleConnections()
	runner, err := simulator.New(simulator.Config{Client: client, Recognizer: calls.Recognizer{Engine: "simulated", Module: "simulated"}})
	if err != nil {
		return nil, err
	}
	return runner.Run(ctx, models.Application{
		ID: "app_simulation", CustomerID: "cust_simulation", Name: "simulation",
		AnswerURL: opts.AnswerURL, FallbackURL: opts.FallbackURL, WebhookSecret: models.Secret(opts.Secret),
	}, script)
}

// simulateThere asks a server to run one of its applications.
func simulateThere(ctx context.Context, opts SimulateOptions) (*SimulationReport, error) {
	base, err := url.Parse(opts.APIURL)
	if err != nil || base.Host == "" || base.Scheme != "http" && base.Scheme != "https" {
		return nil, fmt.Errorf("%w: --api-url must be an http or https URL, was %q", ErrScript, opts.APIURL)
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	target := base.JoinPath("v1", "applications", opts.ApplicationID, "simulate")
	body := opts.Script
	if len(bytes.TrimSpace(body)) == 0 {
		body = []byte("{}")
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, target.String(), bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("make the request: %w", err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+opts.APIKey)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, fmt.Errorf("ask the server: %w", err)
	}
	defer func() {
		_ = resp.Body.Close()
	}()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxReport))
	if err != nil {
		return nil, fmt.Errorf("read the server's answer: %w", err)
	}
	if resp.StatusCode != http.StatusOK {
		return nil, refusedBy(resp.StatusCode, answer)
	}
	report := &SimulationReport{}
	if err := json.Unmarshal(answer, report); err != nil {
		return nil, fmt.Errorf("read the server's report: %w", err)
	}
	return report, nil
}

// refusedBy words the error that a server answered a simulation with.
func refusedBy(status int, answer []byte) error {
	err := refusal(status, answer)
	if status == http.StatusBadRequest {
		return fmt.Errorf("%w: %w", ErrScript, err)
	}
	return err
}

// refusal words the error that a server answered with.
func refusal(status int, answer []byte) error {
	var body struct {
		Error struct {
			Code    string `json:"code"`
			Message string `json:"message"`
		} `json:"error"`
	}
	if err := json.Unmarshal(answer, &body); err != nil || body.Error.Code == "" {
		return fmt.Errorf("the server answered %d: %s", status, strings.TrimSpace(string(answer[:min(len(answer), 200)])))
	}
	return fmt.Errorf("the server answered %d %s: %s", status, body.Error.Code, body.Error.Message)
}

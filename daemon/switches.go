package daemon

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"tandem/esl"
	"tandem/esl/simswitch"
)

// SimSwitchOptions configure `tandem simswitch`.
type SimSwitchOptions struct {
	ESLAddr, ESLPasswordFile, ConfDir string
	Out, Log                          io.Writer
}

// SimSwitch runs the simulated switch alone until ctx ends.
func SimSwitch(ctx context.Context, opts SimSwitchOptions) error {
	password, err := readPassword(opts.ESLPasswordFile)
	if err != nil {
		return err
	}
	logger := slog.New(slog.NewTextHandler(opts.Log, nil))
	sim, err := startSimSwitch(opts.ESLAddr, password, opts.ConfDir, cdrsFromEnvironment(), logger)
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintf(opts.Out, "simulated switch: Event Socket on %s, reads %s\n", sim.Addr(), filepath.Join(opts.ConfDir, "tandem")); err != nil {
		return errors.Join(err, sim.Close())
	}
	select {
	case <-ctx.Done():
	case <-sim.Closed(): // fsctl shutdown
	}
	return sim.Close()
}

// cdrsFromEnvironment reads where CDRs go from the variables that freeswitch-conf reads.
func cdrsFromEnvironment() *simswitch.CDRs {
	cdrs := &simswitch.CDRs{Credentials: os.Getenv("TANDEM_CDR_CREDENTIALS")}
	for _, name := range []string{"TANDEM_CDR_URL", "TANDEM_CDR_URL_2", "TANDEM_CDR_URL_3"} {
		if address := os.Getenv(name); address != "" {
			cdrs.URLs = append(cdrs.URLs, address)
		}
	}
	return cdrs
}

func startSimSwitch(addr, password, confDir string, cdrs *simswitch.CDRs, logger *slog.Logger) (*simswitch.Switch, error) {
	if err := os.MkdirAll(confDir, 0o750); err != nil {
		return nil, fmt.Errorf("make the simulated switch's folder: %w", err)
	}
	// What freeswitch-conf sets on a real node: see checkWalls.
	variables := map[string]string{"app_disable_expand_variables": "true"}
	sim, err := simswitch.New(simswitch.Config{Addr: addr, Password: password, ConfDir: confDir, Logger: logger, Variables: variables, CDRs: cdrs})
	if err != nil {
		return nil, fmt.Errorf("simulated switch: %w", err)
	}
	if err := sim.Start(); err != nil {
		return nil, fmt.Errorf("start the simulated switch: %w", err)
	}
	return sim, nil
}

// randomPassword is the Event Socket password of a switch that lives as long as this process.
func randomPassword() (string, error) {
	raw := make([]byte, 16)
	if _, err := rand.Read(raw); err != nil {
		return "", fmt.Errorf("make a password: %w", err)
	}
	return hex.EncodeToString(raw), nil
}

// callIn asks a simulated switch to receive a call from the operator's provider on loopback. A real FreeSWITCH does not
// know the command, and says so.
func callIn(ctx context.Context, node *esl.Node, call incomingCall) (string, error) {
	if node == nil {
		return "", errors.New("the switch is not connected")
	}
	request, err := json.Marshal(map[string]any{
		"from": call.From, "to": call.To, "digits": call.Digits, "no_sound": call.NoSound, "media_timeout": call.MediaTimeout, "source_ip": "127.0.0.1",
	})
	if err != nil {
		return "", fmt.Errorf("let a call in: %w", err)
	}
	reply, err := node.API(ctx, "sim_call "+string(request))
	if err != nil {
		return "", fmt.Errorf("let a call in (only a simulated switch can; on a real one, call in through your carrier): %w", err)
	}
	channel, ok := strings.CutPrefix(strings.TrimSpace(reply), "+OK ")
	if !ok {
		return "", fmt.Errorf("let a call in (only a simulated switch can; on a real one, call in through your carrier): %s", strings.TrimSpace(reply))
	}
	return channel, nil
}

// unregister asks a simulated switch to have a gateway lose its registration for some seconds. A real FreeSWITCH does not know the
// command, and says so.
func unregister(ctx context.Context, node *esl.Node, gateway string, seconds float64) error {
	if node == nil {
		return errors.New("the switch is not connected")
	}
	reply, err := node.API(ctx, fmt.Sprintf("sim_unregister %s %g", gateway, seconds))
	if err != nil {
		return fmt.Errorf("end a registration (only a simulated switch can): %w", err)
	}
	if reply = strings.TrimSpace(reply); reply != "+OK" {
		return fmt.Errorf("end a registration (only a simulated switch can): %s", strings.TrimPrefix(reply, "-ERR "))
	}
	return nil
}

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"time"

	"github.com/spf13/cobra"
)

const (
	// minEvery and maxEvery bound --every of `tandem simulate flap`: half of it is away, at least a second, and registering again takes half a second.
	minEvery = 2 * time.Second
	maxEvery = time.Hour
	// maxFlaps bounds --times.
	maxFlaps = 1000
	// minAgain is the least time between the end of a loss and the next one.
	minAgain = time.Second
	// arrivalPatience is how long a call that was let in may take to be known, and arrivalPause how often that is looked at.
	arrivalPatience = 10 * time.Second
	arrivalPause    = 100 * time.Millisecond
)

// devServer speaks to what `tandem dev` serves below /dev, beside the API. It needs no token.
type devServer struct {
	base    *url.URL
	timeout time.Duration
}

// devServer is the server at an address, or the one of the context that is chosen, or the one of this machine.
func (o *options) devServer(address string) (*devServer, error) {
	if address == "" || o.context != "" {
		switch chosen, err := o.installation(); {
		case err == nil:
			address = chosen.URL
		case o.context != "":
			return nil, err
		default:
			address = defaultAPIURL
		}
	}
	base, err := parseAPIURL(address)
	if err != nil {
		return nil, err
	}
	return &devServer{base: base, timeout: o.timeout}, nil
}

// errNoArrival says that a channel is no call yet.
var errNoArrival = errors.New("no call has come of it")

// ask sends a request to a path below /dev and reads the answer. A server that is no `tandem dev` does not know the path.
func (d *devServer) ask(ctx context.Context, method string, path []string, body, answer any) error {
	ctx, cancel := context.WithTimeout(ctx, d.timeout)
	defer cancel()
	content, err := jsonBody(body)
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, method, d.base.JoinPath(append([]string{"dev"}, path...)...).String(), content)
	if err != nil {
		return fmt.Errorf("write the request: %w", err)
	}
	request.Header.Set("Content-Type", "application/json")
	got, err := exchange(http.DefaultClient, request, d.base)
	if err != nil {
		return err
	}
	if got.refused() {
		var said struct {
			Error string `json:"error"`
		}
		// The API's own errors are objects.
		if json.Unmarshal(got.body, &said) != nil || said.Error == "" {
			return fmt.Errorf("%s is no `tandem dev`: it answered %s; only a simulated switch can do this", d.base, got.status)
		}
		if got.code == http.StatusNotFound && method == http.MethodGet {
			return errNoArrival
		}
		return errors.New(said.Error)
	}
	if err := json.Unmarshal(got.body, answer); err != nil {
		return fmt.Errorf("%s is no `tandem dev`: %w", d.base, err)
	}
	return nil
}

// pause waits, unless the command is broken off before.
func pause(ctx context.Context, length time.Duration) error {
	timer := time.NewTimer(length)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func newSimulateFlap(opts *options) *cobra.Command {
	var address string
	var times int
	var every, away time.Duration
	cmd := &cobra.Command{
		Use:   "flap TRUNK",
		Short: "Have a trunk lose its registration at a simulated switch and regain it",
		Long: "flap has the simulated carrier of `tandem dev` end the registration of a trunk, refuse it for a while and take it\n" +
			"again, so that the trunk's status, history, flap count and webhooks show. TRUNK is the id or the gateway name of\n" +
			"a trunk that registers. Each loss ends by itself, also when the command is broken off.\n\n" +
			"The end of a registration is told (trunk.unregistered) when it has lasted a minute: --every 3m --away 90s.",
		Args: args(cobra.ExactArgs(1)),
	}
	cmd.Flags().StringVar(&address, "api-url", os.Getenv(envAPIURL), "address of `tandem dev` (TANDEM_API_URL; default: the current context's, or "+defaultAPIURL+")")
	cmd.Flags().IntVar(&times, "times", 1, "how often, 1 to 1000")
	cmd.Flags().DurationVar(&every, "every", 5*time.Second, "from one loss to the next, 2s to 1h")
	cmd.Flags().DurationVar(&away, "away", 0, "how long each loss lasts, from 1s to a second less than --every (default half of --every)")
	cmd.RunE = func(cmd *cobra.Command, positional []string) error {
		if !cmd.Flags().Changed("away") {
			away = every / 2
		}
		switch {
		case times < 1 || times > maxFlaps:
			return usage("--times must be from 1 to %d, was %d", maxFlaps, times)
		case every < minEvery || every > maxEvery:
			return usage("--every must be from %s to %s, was %s", minEvery, maxEvery, every)
		case away < time.Second || away > every-minAgain:
			return usage("--away must be from 1s to a second less than --every, was %s", away)
		}
		server, err := opts.devServer(address)
		if err != nil {
			return err
		}
		return opts.flap(cmd, server, positional[0], times, every, away)
	}
	return cmd
}

// flap asks for one loss after the other. What it does goes to standard error, the trunk to standard output.
func (o *options) flap(cmd *cobra.Command, server *devServer, trunk string, times int, every, away time.Duration) error {
	var done struct {
		TrunkID     string `json:"trunk_id"`
		GatewayName string `json:"gateway_name"`
		Losses      int    `json:"losses"`
	}
	for i := range times {
		if i > 0 {
			if err := pause(cmd.Context(), every); err != nil {
				return fmt.Errorf("broken off after %d of %d losses: %w", i, times, err)
			}
		}
		if err := server.ask(cmd.Context(), http.MethodPost, []string{"unregister"}, map[string]any{"trunk": trunk, "seconds": away.Seconds()}, &done); err != nil {
			return fmt.Errorf("loss %d of %d: %w", i+1, times, err)
		}
		done.Losses = i + 1
		if _, err := fmt.Fprintf(cmd.ErrOrStderr(), "%d of %d: %s has lost its registration for %s\n", i+1, times, printable(done.GatewayName), away); err != nil {
			return fmt.Errorf("print: %w", err)
		}
	}
	return o.print(cmd.OutOrStdout(), done, []string{"TRUNK", "GATEWAY", "LOSSES"}, [][]string{{done.TrunkID, done.GatewayName, fmt.Sprint(done.Losses)}})
}

// silentCall is what `tandem simulate one-way` asks for.
type silentCall struct {
	From         string  `json:"from,omitempty"`
	To           string  `json:"to,omitempty"`
	NoSound      bool    `json:"no_sound"`
	MediaTimeout float64 `json:"media_timeout,omitempty"`
}

func newSimulateOneWay(opts *options) *cobra.Command {
	var address string
	var timeout time.Duration
	call := silentCall{NoSound: true}
	cmd := &cobra.Command{
		Use:   "one-way",
		Short: "Let a call come in to a simulated switch whose caller sends no sound",
		Long: "one-way lets a call come in to the simulated switch of `tandem dev` from whom not one packet of sound comes, as\n" +
			"behind a firewall that lets only one direction through, and prints the call's id. `tandem calls trace ID` then\n" +
			"marks the channel that was answered for 5 s or more and received no packets. With --media-timeout the switch ends\n" +
			"the call, as one does that has a media timeout.",
		Args: args(cobra.NoArgs),
	}
	cmd.Flags().StringVar(&address, "api-url", os.Getenv(envAPIURL), "address of `tandem dev` (TANDEM_API_URL; default: the current context's, or "+defaultAPIURL+")")
	cmd.Flags().StringVar(&call.From, "from", "", "number of the caller (default +12025550123)")
	cmd.Flags().StringVar(&call.To, "to", "", "number that is called (default the example's)")
	cmd.Flags().DurationVar(&timeout, "media-timeout", 0, "after how long without sound the switch ends the call, 1s to 1h (default never)")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if cmd.Flags().Changed("media-timeout") && (timeout < time.Second || timeout > time.Hour) {
			return usage("--media-timeout must be from 1s to 1h, was %s", timeout)
		}
		call.MediaTimeout = timeout.Seconds()
		server, err := opts.devServer(address)
		if err != nil {
			return err
		}
		return opts.oneWay(cmd, server, call)
	}
	return cmd
}

// oneWay lets the call in and waits until it is known.
func (o *options) oneWay(cmd *cobra.Command, server *devServer, call silentCall) error {
	var arrived struct {
		Channel string `json:"channel"`
		CallID  string `json:"call_id"`
		Status  string `json:"status"`
	}
	if err := server.ask(cmd.Context(), http.MethodPost, []string{"call-in"}, call, &arrived); err != nil {
		return err
	}
	path := []string{"call-in", url.PathEscape(arrived.Channel)}
	ctx, cancel := context.WithTimeout(cmd.Context(), arrivalPatience)
	defer cancel()
	for {
		err := server.ask(ctx, http.MethodGet, path, nil, &arrived)
		if err == nil {
			break
		}
		if errors.Is(err, errNoArrival) {
			if pause(ctx, arrivalPause) == nil {
				continue
			}
			err = fmt.Errorf("channel %s: %w; is the called number one that there is? `tandem strangers ls` lists refused callers", printable(arrived.Channel), err)
		}
		return err
	}
	if _, err := fmt.Fprintf(cmd.ErrOrStderr(), "its story: tandem calls trace %s --follow\n", printable(arrived.CallID)); err != nil {
		return fmt.Errorf("print: %w", err)
	}
	return o.print(cmd.OutOrStdout(), arrived, []string{"CALL", "CHANNEL", "STATUS"}, [][]string{{arrived.CallID, arrived.Channel, arrived.Status}})
}

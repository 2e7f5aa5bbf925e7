package main

import (
	"errors"
	"os"

	"github.com/spf13/cobra"

	"tandem/daemon"
)

func newListen(opts *options) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "listen --forward URL",
		Short: "Forward the events of your calls to a URL of your own, as signed webhooks",
		Long: "Follows the journal of the server at --api-url with the key in TANDEM_API_KEY and posts each event to\n" +
			"--forward, with the body and the headers of a webhook: for development, where no webhook_url reaches you.\n" +
			"One line is printed for each. While your server or the API is away, the events wait. With --cursor-file\n" +
			"the next run goes on where this one was; otherwise it begins with what happens from now on.\n\n" +
			"Exit code 0: it was stopped. 1: the API refuses, or the cursor cannot be kept. 2: the command is wrong.",
		Args: args(cobra.NoArgs),
	}
	run := daemon.ListenOptions{}
	cmd.Flags().StringVar(&run.Forward, "forward", "", "URL that gets the events")
	cmd.Flags().StringVar(&run.APIURL, "api-url", envOr(envAPIURL, defaultAPIURL), "server whose events are followed (TANDEM_API_URL)")
	cmd.Flags().StringVar(&run.Secret, "secret", os.Getenv("TANDEM_WEBHOOK_SECRET"), "secret that signs the events (TANDEM_WEBHOOK_SECRET); without one, one is made and printed")
	cmd.Flags().StringVar(&run.From, "from", "", "where to begin: start, or a cursor that an earlier run printed")
	cmd.Flags().StringVar(&run.CursorFile, "cursor-file", "", "file that keeps how far the events were forwarded")
	cmd.Flags().StringVar(&run.Types, "type", "", "only these kinds of events: names or families, separated by commas")
	cmd.Flags().StringVar(&run.ApplicationID, "application", "", "only events of this application")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if opts.output != "table" && opts.output != "json" {
			return usageError{errors.New("--output must be table or json, was " + opts.output)}
		}
		if run.Forward == "" {
			return usageError{errors.New("--forward is required")}
		}
		if run.APIKey = os.Getenv("TANDEM_API_KEY"); run.APIKey == "" {
			return usageError{errors.New("TANDEM_API_KEY must hold an API key")}
		}
		run.JSON, run.Out, run.Log = opts.output == "json", cmd.OutOrStdout(), cmd.ErrOrStderr()
		err := daemon.Listen(cmd.Context(), run)
		if errors.Is(err, daemon.ErrListen) {
			return usageError{err}
		}
		return err
	}
	return cmd
}

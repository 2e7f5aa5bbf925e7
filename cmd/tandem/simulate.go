package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"tandem/daemon"
)

// newSimulate is the group of what is simulated. By itself it does what `simulate call` does, as it did before there were others.
func newSimulate(opts *options) *cobra.Command {
	cmd := newSimulateCall(opts)
	cmd.Use = "simulate [APPLICATION_ID] [SCRIPT]"
	cmd.Short = "Simulate a call, a trunk that flaps, or sound that goes one way"
	cmd.Long = "Without the name of a command below, simulate does what simulate call does.\n\n" + cmd.Long
	cmd.AddCommand(newSimulateCall(opts), newSimulateFlap(opts), newSimulateOneWay(opts))
	return cmd
}

func newSimulateCall(opts *options) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "call [APPLICATION_ID] [SCRIPT]",
		Short: "Run an application against a scripted caller, with no call and no charge",
		Long: "Runs an application's real answer_url against a scripted caller and prints the path that the call takes:\n" +
			"each request, each validated action, each result, each error, and the commands a switch would get.\n\n" +
			"With --answer-url nothing else is needed, no server and no switch. With an APPLICATION_ID the server at\n" +
			"--api-url runs its application. SCRIPT is a JSON file, - is standard input; without one the caller only listens.\n\n" +
			"Exit code 0: the run is ok. 1: it is not, or could not be made. 2: the command or the script is wrong.",
		Args: args(cobra.MaximumNArgs(2)),
	}
	run := daemon.SimulateOptions{}
	cmd.Flags().StringVar(&run.AnswerURL, "answer-url", "", "answer_url to run in this process")
	cmd.Flags().StringVar(&run.FallbackURL, "fallback-url", "", "fallback_url of --answer-url")
	cmd.Flags().StringVar(&run.Secret, "secret", os.Getenv("TANDEM_WEBHOOK_SECRET"), "secret that signs the requests of --answer-url (TANDEM_WEBHOOK_SECRET)")
	cmd.Flags().StringVar(&run.APIURL, "api-url", envOr(envAPIURL, defaultAPIURL), "server that runs APPLICATION_ID (TANDEM_API_URL)")
	cmd.RunE = func(cmd *cobra.Command, positional []string) error {
		if opts.output != "table" && opts.output != "json" {
			return usageError{fmt.Errorf("--output must be table or json, was %q", opts.output)}
		}
		script := ""
		switch {
		case run.AnswerURL != "" && len(positional) == 2:
			return usageError{errors.New("give --answer-url or an APPLICATION_ID, not both")}
		case run.AnswerURL != "" && len(positional) == 1:
			script = positional[0]
		case run.AnswerURL == "" && len(positional) == 0:
			return usageError{errors.New("give --answer-url or an APPLICATION_ID")}
		case run.AnswerURL == "":
			run.ApplicationID, run.APIKey = positional[0], os.Getenv("TANDEM_API_KEY")
			if run.APIKey == "" {
				return usageError{errors.New("TANDEM_API_KEY must hold the application's API key")}
			}
			if len(positional) == 2 {
				script = positional[1]
			}
		}
		var err error
		if run.Script, err = readScript(cmd.InOrStdin(), script); err != nil {
			return usageError{err}
		}
		report, err := daemon.Simulate(cmd.Context(), run)
		if errors.Is(err, daemon.ErrScript) {
			return usageError{err}
		}
		if err != nil {
			return err
		}
		if err := printReport(cmd.OutOrStdout(), opts.output, report); err != nil {
			return err
		}
		if !report.OK {
			return fmt.Errorf("the simulation is not ok: %d problems", len(report.Problems))
		}
		return nil
	}
	return cmd
}

func readScript(stdin io.Reader, name string) ([]byte, error) {
	switch name {
	case "":
		return nil, nil
	case "-":
		raw, err := io.ReadAll(stdin)
		if err != nil {
			return nil, fmt.Errorf("read the script: %w", err)
		}
		return raw, nil
	}
	raw, err := os.ReadFile(name)
	if err != nil {
		return nil, fmt.Errorf("read the script: %w", err)
	}
	return raw, nil
}

// printReport writes the report as JSON, or one line for each step and the verdict below.
func printReport(w io.Writer, output string, report *daemon.SimulationReport) error {
	if output == "json" {
		encoder := json.NewEncoder(w)
		encoder.SetIndent("", "  ")
		encoder.SetEscapeHTML(false)
		return encoder.Encode(report)
	}
	for i := range report.Path {
		step := &report.Path[i]
		if _, err := fmt.Fprintf(w, "%8.3fs  %-8s %s\n", float64(step.AtMS)/1000, step.Kind, stepText(step)); err != nil {
			return err
		}
	}
	verdict := "ok"
	if !report.OK {
		verdict = "not ok"
	}
	if _, err := fmt.Fprintf(w, "\n%s: %s, %s, hung up by %s after %.1f s\n", verdict, report.Call.Status, report.Call.Reason, report.Call.HangupSource, report.Call.Seconds); err != nil {
		return err
	}
	for _, problem := range report.Problems {
		if _, err := fmt.Fprintln(w, "  -", problem); err != nil {
			return err
		}
	}
	return nil
}

// stepText is what a step says, on one line.
func stepText(step *daemon.SimulationStep) string {
	switch {
	case step.Request != nil:
		text := fmt.Sprintf("%s %s -> %d in %d ms", step.Request.Method, step.Request.URL, step.Request.Status, step.Request.TookMS)
		if step.Request.Error != "" {
			text += ": " + step.Request.Error
		}
		return text
	case step.Action != "":
		return fmt.Sprintf("[%d] %s", *step.Index, step.Fields)
	case step.Command != "":
		return step.Command
	case step.Input != nil:
		input, err := json.Marshal(step.Input)
		if err != nil {
			return fmt.Sprintf("input[%d]", *step.InputIndex)
		}
		return fmt.Sprintf("input[%d] %s", *step.InputIndex, input)
	default:
		return fmt.Sprintf("%s %s", step.Event, step.Data)
	}
}

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/spf13/cobra"
)

// trunkReport is what a trunk's test has found.
type trunkReport struct {
	TrunkID    string      `json:"trunk_id"`
	Outcome    string      `json:"outcome"`
	DurationMS int64       `json:"duration_ms"`
	Steps      []trunkStep `json:"steps"`
}

// trunkStep is one step of it.
type trunkStep struct {
	Step       string   `json:"step"`
	Outcome    string   `json:"outcome"`
	Summary    string   `json:"summary"`
	Evidence   []string `json:"evidence"`
	Advice     string   `json:"advice"`
	DurationMS int64    `json:"duration_ms"`
}

// testPatience is how long a trunk's test may take: DNS and probes that are not answered, and a call that rings.
const testPatience = 2 * time.Minute

func newTrunksTest(opts *options) *cobra.Command {
	var to, from string
	var ring time.Duration
	cmd := &cobra.Command{
		Use:   "test TRUNK_ID",
		Short: "Find out what is wrong with an outbound trunk; exit 1 when something is",
		Long: "test looks at the trunk's configuration, its DNS, whether its host is reached and answers OPTIONS, whether it\n" +
			"registers and, with --to, whether a call rings: a real call over the carrier, that ends as soon as it does. Each\n" +
			"step says what shows it and what to do.",
		Args: args(cobra.ExactArgs(1)), ValidArgsFunction: opts.completeItems("/trunks", "id"),
		RunE: opts.withClient(func(cmd *cobra.Command, c *client, positional []string) error {
			body := map[string]any{}
			for name, value := range map[string]string{"to": to, "from": from} {
				if value != "" {
					body[name] = value
				}
			}
			if ring != 0 {
				body["timeout"] = int(ring.Seconds())
			}
			if to != "" {
				if err := opts.confirm(cmd.Context(), cmd, "Call %s over trunk %s?", to, positional[0]); err != nil {
					return err
				}
			}
			c.timeout = max(c.timeout, testPatience)
			var raw json.RawMessage
			if err := c.call(cmd.Context(), http.MethodPost, "/trunks/"+segment(positional[0])+"/test", nil, body, &raw); err != nil {
				return err
			}
			return printTrunkReport(opts, cmd.OutOrStdout(), raw)
		}),
	}
	cmd.Flags().StringVar(&to, "to", "", "number to call; without it no call is made")
	cmd.Flags().StringVar(&from, "from", "", "number that the call shows")
	cmd.Flags().DurationVar(&ring, "ring", 0, "how long the call may take until it rings, 5s to 30s (default 15s)")
	return cmd
}

func printTrunkReport(opts *options, w io.Writer, raw json.RawMessage) error {
	var report trunkReport
	if err := json.Unmarshal(raw, &report); err != nil {
		return fmt.Errorf("the server answered something that this version does not understand: %w", err)
	}
	if opts.output != outputTable && opts.output != outputWide {
		rows := make([][]string, len(report.Steps))
		for i := range report.Steps {
			rows[i] = []string{report.Steps[i].Step}
		}
		if err := opts.print(w, raw, nil, rows); err != nil {
			return err
		}
	} else if err := report.write(w); err != nil {
		return err
	}
	if report.Outcome == "failed" {
		return fmt.Errorf("trunk %s does not work", report.TrunkID)
	}
	return nil
}

// write prints a line for each step, what shows it, and what to do.
func (r *trunkReport) write(w io.Writer) error {
	for i := range r.Steps {
		step := &r.Steps[i]
		lines := []string{fmt.Sprintf("%-8s %-14s %s (%d ms)", step.Outcome, step.Step, step.Summary, step.DurationMS)}
		for _, evidence := range step.Evidence {
			lines = append(lines, "           "+evidence)
		}
		if step.Advice != "" {
			lines = append(lines, "         → "+step.Advice)
		}
		for _, line := range lines {
			if _, err := fmt.Fprintln(w, printable(line)); err != nil {
				return fmt.Errorf("print: %w", err)
			}
		}
	}
	return nil
}

package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"tandem/daemon"
)

// differenceItem is a difference of a bill as tables show one.
type differenceItem struct {
	CallID        string `json:"call_id"`
	NodeID        string `json:"node_id"`
	ChannelID     string `json:"channel_id"`
	BilledSeconds int    `json:"billed_seconds"`
	CDRSeconds    int    `json:"cdr_seconds"`
	FoundAt       string `json:"found_at"`
}

var differenceView = view[differenceItem]{
	name: func(i *differenceItem) string { return i.CallID },
	columns: []column[differenceItem]{
		{title: "CALL", text: func(i *differenceItem) string { return i.CallID }},
		{title: "BILLED S", text: func(i *differenceItem) string { return fmt.Sprint(i.BilledSeconds) }},
		{title: "SWITCH S", text: func(i *differenceItem) string { return fmt.Sprint(i.CDRSeconds) }},
		{title: "NODE", text: func(i *differenceItem) string { return i.NodeID }},
		{title: "CHANNEL", text: func(i *differenceItem) string { return i.ChannelID }},
		{title: "FOUND", text: func(i *differenceItem) string { return i.FoundAt }},
	},
}

func newLedger(opts *options) *cobra.Command {
	return group("ledger", "The ledger of balances", newLedgerList(opts), newLedgerExport(opts), newLedgerVerify(opts), newLedgerDifferences(opts))
}

func newLedgerVerify(opts *options) *cobra.Command {
	var database bool
	cmd := &cobra.Command{
		Use: "verify", Short: "Check the ledger's invariants; exit 1 when one does not hold", Args: args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if database {
				return opts.withDatabase(cmd, func(o *daemon.Operator) error {
					violations, err := o.VerifyLedger(cmd.Context())
					if err != nil {
						return err
					}
					return printViolations(cmd, opts, violations)
				})
			}
			return opts.withClient(func(cmd *cobra.Command, c *client, _ []string) error {
				var verdict struct {
					Violations []string `json:"violations"`
				}
				if err := c.get(cmd.Context(), "/ledger/verify", nil, &verdict); err != nil {
					return err
				}
				return printViolations(cmd, opts, verdict.Violations)
			})(cmd, nil)
		},
	}
	cmd.Flags().BoolVar(&database, "database", false, "read the database of the configuration itself, without a server")
	return cmd
}

func printViolations(cmd *cobra.Command, opts *options, violations []string) error {
	rows := make([][]string, len(violations))
	for i, violation := range violations {
		rows[i] = []string{violation}
	}
	if len(rows) > 0 || opts.output == outputJSON || opts.output == outputYAML {
		if err := opts.print(cmd.OutOrStdout(), append([]string{}, violations...), []string{"VIOLATION"}, rows); err != nil {
			return err
		}
	}
	if len(violations) > 0 {
		return fmt.Errorf("%d invariants of the ledger do not hold", len(violations))
	}
	note(cmd, "the ledger holds")
	return nil
}

func newLedgerDifferences(opts *options) *cobra.Command {
	return &cobra.Command{
		Use: "differences", Short: "List calls that were billed other seconds than their switch recorded; nothing is changed", Args: args(cobra.NoArgs),
		RunE: opts.withClient(func(cmd *cobra.Command, c *client, _ []string) error {
			var all listing
			if err := c.get(cmd.Context(), "/ledger/differences", nil, &all); err != nil {
				return err
			}
			return showList(opts, cmd.OutOrStdout(), differenceView, all.Data)
		}),
	}
}

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
)

// strayItem is something that fell between the parts of a node.
type strayItem struct {
	Kind      string  `json:"kind"`
	CallID    *string `json:"call_id"`
	ChannelID string  `json:"channel_id"`
}

// fates is what reaping does, by kind.
var fates = map[string]string{
	"unsteered": "is taken over",
	"gone":      "ends as its CDR says, or as lost",
	"unlisted":  "the switch is asked for it; without a channel it ends",
	"stuck":     "a call that has it ends; listed until the switch starts again",
	"stale":     "is hung up",
}

func newCallsReap(opts *options) *cobra.Command {
	var patience time.Duration
	var dry bool
	cmd := &cobra.Command{
		Use:   "reap [NODE]...",
		Short: "Find calls that nobody steers and channels that nobody has, and end or take them over",
		Long: "reap has the controllers do now what their watchdogs do every 30 seconds: look for calls that have no controller or no\n" +
			"channel, and for channels whose calls have ended. It shows them, asks, and deals with them. Both looks are taken twice, two\n" +
			"seconds apart, and calls younger than a minute are left alone, because they may be on their way. Calls of a node that no\n" +
			"controller holds are not looked for here: they end as lost by themselves.\n\n" +
			"Exit code 1: a node could not be looked at.",
		Args: args(cobra.ArbitraryArgs),
		RunE: opts.withClient(func(cmd *cobra.Command, c *client, nodes []string) error {
			if dry || !opts.yes {
				found, raw, err := order(cmd.Context(), c, nodes, patience, map[string]any{"kind": "strays"})
				if err != nil {
					return err
				}
				if dry {
					return printStrays(opts, cmd.OutOrStdout(), found, raw)
				}
				strays, err := len(strayRows(found)), notLookedAt(found)
				if strays == 0 {
					if err == nil {
						note(cmd, "nothing to reap")
					}
					return err
				}
				if err := writeTable(cmd.ErrOrStderr(), append([][]string{strayTitles}, strayRows(found)...)); err != nil {
					return err
				}
				if err := opts.confirm(cmd.Context(), cmd, "Reap these %d?", strays); err != nil {
					return err
				}
			}
			reaped, raw, err := order(cmd.Context(), c, nodes, patience, map[string]any{"kind": "reap"})
			if err != nil {
				return err
			}
			return printStrays(opts, cmd.OutOrStdout(), reaped, raw)
		}),
		ValidArgsFunction: opts.completeItems("/nodes", "name"),
	}
	cmd.Flags().DurationVar(&patience, "wait", time.Minute, "how long the controllers may take")
	cmd.Flags().BoolVar(&dry, "dry-run", false, "show what there is and leave it alone")
	return cmd
}

var strayTitles = []string{"CHANNEL", "CALL", "KIND", "NODE", "FATE"}

func strayRows(orders []orderItem) [][]string {
	var rows [][]string
	for _, o := range orders {
		for _, stray := range o.Strays {
			rows = append(rows, []string{stray.ChannelID, text(stray.CallID), stray.Kind, o.Node, fates[stray.Kind]})
		}
	}
	return rows
}

func printStrays(opts *options, w io.Writer, orders []orderItem, raw []json.RawMessage) error {
	if err := opts.print(w, raw, strayTitles, strayRows(orders)); err != nil {
		return err
	}
	return notLookedAt(orders)
}

// notLookedAt is the error of orders that failed, nil where none did.
func notLookedAt(orders []orderItem) error {
	failed, first := 0, ""
	for _, o := range orders {
		if o.Error != nil {
			failed++
			if first == "" {
				first = printable(o.Node + ": " + *o.Error)
			}
		}
	}
	if failed > 0 {
		return fmt.Errorf("%d of %d nodes were not looked at: %s", failed, len(orders), first)
	}
	return nil
}

package main

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// namedCalls is how many live calls a question names.
const namedCalls = 5

func newTrunksDisable(opts *options) *cobra.Command {
	return &cobra.Command{
		Use: "disable TRUNK_ID", Short: "Take a trunk out of use", Args: args(cobra.ExactArgs(1)),
		Long: "No call goes out over the trunk or comes in by it from then on, until `tandem trunks enable`. Live calls go on; their\n" +
			"next attempts go over the customer's other trunks.",
		ValidArgsFunction: opts.completeItems("/trunks", "id"),
		RunE: opts.withClient(func(cmd *cobra.Command, c *client, positional []string) error {
			if !opts.yes {
				live, err := liveOverTrunk(cmd, c, positional[0])
				if err != nil {
					return err
				}
				if err := opts.confirm(cmd.Context(), cmd, "Take trunk %s out of use? %s", positional[0], live); err != nil {
					return err
				}
			}
			return switchTrunk(cmd, opts, c, positional[0], false)
		}),
	}
}

func newTrunksEnable(opts *options) *cobra.Command {
	return &cobra.Command{
		Use: "enable TRUNK_ID", Short: "Take a trunk back into use", Args: args(cobra.ExactArgs(1)),
		ValidArgsFunction: opts.completeItems("/trunks", "id"),
		RunE: opts.withClient(func(cmd *cobra.Command, c *client, positional []string) error {
			return switchTrunk(cmd, opts, c, positional[0], true)
		}),
	}
}

func switchTrunk(cmd *cobra.Command, opts *options, c *client, trunk string, active bool) error {
	var changed json.RawMessage
	if err := c.patch(cmd.Context(), "/trunks/"+segment(trunk), map[string]any{"is_active": active}, &changed); err != nil {
		return err
	}
	return show(opts, cmd.OutOrStdout(), trunkView, changed)
}

// liveOverTrunk says which live calls go over a trunk.
func liveOverTrunk(cmd *cobra.Command, c *client, trunk string) (string, error) {
	items, more, err := c.list(cmd.Context(), "/calls", parameters("trunk_id", trunk, "state", "live"), namedCalls)
	if err != nil {
		return "", err
	}
	calls, err := decodeAll[callItem](items)
	if err != nil {
		return "", err
	}
	if len(calls) == 0 {
		return "It has no live calls.", nil
	}
	names := make([]string, len(calls))
	for i := range calls {
		names[i] = calls[i].ID
	}
	text := strings.Join(names, " ")
	if more {
		text += " and more"
	}
	return fmt.Sprintf("Its live calls go on: %s.", text), nil
}

package main

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/spf13/cobra"
)

// rotated is what the answer to a rotation says of the key or token that was replaced.
type rotated struct {
	PreviousID         string `json:"previous_id"`
	PreviousValidUntil string `json:"previous_valid_until"`
}

// grace is how long what is replaced goes on working.
type grace struct{ time.Duration }

func (g *grace) register(cmd *cobra.Command) {
	cmd.Flags().DurationVar(&g.Duration, "grace", 24*time.Hour, "how long the old one goes on working, at most 2160h; 0 revokes it at once")
}

// ask checks the grace, and asks before something stops working at once.
func (g *grace) ask(cmd *cobra.Command, opts *options, what string) error {
	if g.Duration < 0 || g.Duration%time.Second != 0 {
		return usage("--grace must be whole seconds and not less than 0, was %s", g.Duration)
	}
	if g.Duration > 0 {
		return nil
	}
	return opts.confirm(cmd.Context(), cmd, "Replace %s and revoke it? What uses it stops working at once.", what)
}

func (g *grace) seconds() int { return int(g.Duration / time.Second) }

// tell says until when the old one works.
func (g *grace) tell(cmd *cobra.Command, r rotated) {
	if g.Duration == 0 {
		note(cmd, "%s is revoked", printable(r.PreviousID))
		return
	}
	note(cmd, "%s goes on working until %s", printable(r.PreviousID), printable(r.PreviousValidUntil))
}

func newKeysRotate(opts *options) *cobra.Command {
	after := &grace{}
	cmd := &cobra.Command{
		Use:   "rotate CUSTOMER_ID KEY_ID",
		Short: "Replace a key and print the new one, once",
		Long: "The new key has the name and the application of the old one, which goes on working for --grace, so that what uses it\n" +
			"can be changed meanwhile: LAST USED of `tandem keys ls` tells whether something still does.",
		Args:              args(cobra.ExactArgs(2)),
		ValidArgsFunction: opts.completeItems("/customers", "id"),
		RunE: opts.withClient(func(cmd *cobra.Command, c *client, positional []string) error {
			if err := after.ask(cmd, opts, fmt.Sprintf("key %s of %s", positional[1], positional[0])); err != nil {
				return err
			}
			var made json.RawMessage
			path := keysPath(positional[0]) + "/" + segment(positional[1]) + "/rotate"
			if err := c.post(cmd.Context(), path, map[string]any{"grace_seconds": after.seconds()}, &made); err != nil {
				return err
			}
			read, err := decodeAll[keyItem]([]json.RawMessage{made})
			if err != nil {
				return err
			}
			after.tell(cmd, read[0].rotated)
			return show(opts, cmd.OutOrStdout(), newKeyView, made)
		}),
	}
	after.register(cmd)
	return cmd
}

func newOperatorsRotate(opts *options) *cobra.Command {
	after := &grace{}
	var expires time.Duration
	var save string
	cmd := &cobra.Command{
		Use:   "rotate ID",
		Short: "Replace an operator's token and print the new one, once",
		Long: "The new token has the name and the role of the old one, which goes on working for --grace. Where the old one has an\n" +
			"end, --expires-in gives the new one its own. With --save the new token is kept as a context and not printed: the name\n" +
			"of the context in use replaces the token there.",
		Args:              args(cobra.ExactArgs(1)),
		ValidArgsFunction: opts.completeItems("/operators", "id"),
		RunE: opts.withClient(func(cmd *cobra.Command, c *client, positional []string) error {
			if save != "" && !contextName.MatchString(save) {
				return usage("a context's name has 1 to 63 letters, digits, dots, dashes or underscores, was %q", save)
			}
			if expires < 0 {
				return usage("--expires-in must be more than 0, was %s", expires)
			}
			if err := after.ask(cmd, opts, "the token of operator "+positional[0]); err != nil {
				return err
			}
			body := map[string]any{"grace_seconds": after.seconds()}
			if expires > 0 {
				body["expires_at"] = time.Now().Add(expires).UTC().Format(time.RFC3339)
			}
			var made json.RawMessage
			if err := c.post(cmd.Context(), "/operators/"+segment(positional[0])+"/rotate", body, &made); err != nil {
				return err
			}
			read, err := decodeAll[operatorItem]([]json.RawMessage{made})
			if err != nil {
				return err
			}
			after.tell(cmd, read[0].rotated)
			if save == "" {
				return show(opts, cmd.OutOrStdout(), newOperatorRow, made)
			}
			return keepContext(cmd, save, installation{URL: c.base.String(), Token: read[0].Token}, false)
		}),
	}
	after.register(cmd)
	cmd.Flags().DurationVar(&expires, "expires-in", 0, "how long the new token works, such as 720h (default: until it is revoked)")
	cmd.Flags().StringVar(&save, "save", "", "keep the new token as the context of this name instead of printing it")
	return cmd
}

package main

import (
	"encoding/json"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// accountFlags are the flags that set how far an account may go. Those that are not given change nothing.
type accountFlags struct{ credit, low string }

func (f *accountFlags) register(set *pflag.FlagSet) {
	set.StringVar(&f.credit, "credit-limit", "", "how far below zero the balance may be, in units of the currency")
	set.StringVar(&f.low, "low-balance", "", "at or below which balance and credit the customer is told (balance.low), or none")
}

// fill puts what the flags say into the body of a request.
func (f *accountFlags) fill(set *pflag.FlagSet, body map[string]any) {
	if set.Changed("credit-limit") {
		body["credit_limit"] = f.credit
	}
	if set.Changed("low-balance") {
		body["low_balance"] = f.low
		if f.low == limitNone {
			body["low_balance"] = nil
		}
	}
}

func newCustomersUpdate(opts *options) *cobra.Command {
	var name string
	account := &accountFlags{}
	cmd := &cobra.Command{
		Use: "update CUSTOMER_ID", Short: "Change a customer's name, credit limit or low-balance threshold", Args: args(cobra.ExactArgs(1)),
		Example:           "  tandem customers update cust_… --credit-limit 100 --low-balance 20",
		ValidArgsFunction: opts.completeItems("/customers", "id"),
		RunE: opts.withClient(func(cmd *cobra.Command, c *client, positional []string) error {
			body := map[string]any{}
			if cmd.Flags().Changed("name") {
				body["name"] = name
			}
			account.fill(cmd.Flags(), body)
			if len(body) == 0 {
				return usage("nothing to change: name --name, --credit-limit or --low-balance")
			}
			return updateCustomer(cmd, opts, c, positional[0], body)
		}),
	}
	cmd.Flags().StringVar(&name, "name", "", "what the customer is called")
	account.register(cmd.Flags())
	return cmd
}

// newCustomersStatus is the command that gives a customer a status.
func newCustomersStatus(opts *options, verb, status, short string) *cobra.Command {
	return &cobra.Command{
		Use: verb + " CUSTOMER_ID", Short: short, Args: args(cobra.ExactArgs(1)),
		ValidArgsFunction: opts.completeItems("/customers", "id"),
		RunE: opts.withClient(func(cmd *cobra.Command, c *client, positional []string) error {
			return updateCustomer(cmd, opts, c, positional[0], map[string]any{"status": status})
		}),
	}
}

func updateCustomer(cmd *cobra.Command, opts *options, c *client, id string, body map[string]any) error {
	var changed json.RawMessage
	if err := c.patch(cmd.Context(), "/customers/"+segment(id), body, &changed); err != nil {
		return err
	}
	return show(opts, cmd.OutOrStdout(), customerView, changed)
}

func newCustomersAdjust(opts *options) *cobra.Command {
	var key, remark string
	cmd := &cobra.Command{
		Use: "adjust CUSTOMER_ID AMOUNT --key KEY --note TEXT", Short: "Correct a customer's balance, up or down; the same key adjusts once", Args: args(cobra.ExactArgs(2)),
		Long:              "What live calls hold cannot be taken. A negative amount stands behind --, so that it is no flag. The customer sees the note.",
		Example:           "  tandem customers adjust cust_… 3.20 --key ticket-4711 --note \"no sound\"\n  tandem customers adjust --key ticket-4712 --note \"refunded twice\" -- cust_… -3.20",
		ValidArgsFunction: opts.completeItems("/customers", "id"),
		RunE: opts.withClient(func(cmd *cobra.Command, c *client, positional []string) error {
			body := map[string]any{"amount": positional[1], "key": key, "note": remark}
			if err := c.post(cmd.Context(), "/customers/"+segment(positional[0])+"/adjustments", body, nil); err != nil {
				return err
			}
			return printCustomer(cmd, opts, c, positional[0], customerView)
		}),
	}
	cmd.Flags().StringVar(&key, "key", "", "idempotency key of this adjustment, such as the number of a ticket")
	cmd.Flags().StringVar(&remark, "note", "", "what it is for")
	_ = cmd.MarkFlagRequired("key")
	_ = cmd.MarkFlagRequired("note")
	return cmd
}

package main

import (
	"encoding/json"
	"fmt"
	"net/url"

	"github.com/spf13/cobra"
)

// customerItem is a customer as tables show one.
type customerItem struct {
	ID          string  `json:"id"`
	Name        string  `json:"name"`
	Status      string  `json:"status"`
	Currency    string  `json:"currency"`
	Balance     string  `json:"balance"`
	Held        string  `json:"held"`
	CreditLimit string  `json:"credit_limit"`
	Available   string  `json:"available"`
	LowBalance  *string `json:"low_balance"`
	RateDeckID  *string `json:"rate_deck_id"`
	CreatedAt   string  `json:"created_at"`
	LiveCalls   *int64  `json:"live_calls"`
}

var customerColumns = []column[customerItem]{
	{title: "ID", text: func(i *customerItem) string { return i.ID }},
	{title: "NAME", text: func(i *customerItem) string { return i.Name }},
	{title: "STATUS", text: func(i *customerItem) string { return i.Status }},
	{title: "BALANCE", text: func(i *customerItem) string { return i.Balance }},
	{title: "HELD", text: func(i *customerItem) string { return i.Held }},
	{title: "CURRENCY", text: func(i *customerItem) string { return i.Currency }},
	{title: "CREATED", wide: true, text: func(i *customerItem) string { return i.CreatedAt }},
}

func customerName(i *customerItem) string { return i.ID }

var (
	customersView = view[customerItem]{name: customerName, columns: customerColumns}
	customerView  = view[customerItem]{name: customerName, columns: append(customerColumns[:5:5],
		column[customerItem]{title: "CREDIT", text: func(i *customerItem) string { return i.CreditLimit }},
		column[customerItem]{title: "AVAILABLE", text: func(i *customerItem) string { return i.Available }},
		column[customerItem]{title: "LOW AT", text: func(i *customerItem) string { return text(i.LowBalance) }},
		column[customerItem]{title: "CURRENCY", text: func(i *customerItem) string { return i.Currency }},
		column[customerItem]{title: "RATE DECK", text: func(i *customerItem) string { return text(i.RateDeckID) }},
		column[customerItem]{title: "LIVE CALLS", text: func(i *customerItem) string {
			if i.LiveCalls == nil {
				return ""
			}
			return fmt.Sprint(*i.LiveCalls)
		}},
	)}
	balanceView = view[customerItem]{name: customerName, columns: []column[customerItem]{
		{title: "ID", text: func(i *customerItem) string { return i.ID }},
		{title: "NAME", wide: true, text: func(i *customerItem) string { return i.Name }},
		{title: "BALANCE", text: func(i *customerItem) string { return i.Balance }},
		{title: "HELD", text: func(i *customerItem) string { return i.Held }},
		{title: "AVAILABLE", text: func(i *customerItem) string { return i.Available }},
		{title: "CURRENCY", text: func(i *customerItem) string { return i.Currency }},
	}}
)

// ledgerItem is a change of a balance as tables show one.
type ledgerItem struct {
	ID        string  `json:"id"`
	Kind      string  `json:"kind"`
	Key       string  `json:"key"`
	Amount    string  `json:"amount"`
	Balance   string  `json:"balance"`
	CallID    *string `json:"call_id"`
	Note      string  `json:"note"`
	Actor     *string `json:"actor"`
	CreatedAt string  `json:"created_at"`
}

var ledgerView = view[ledgerItem]{
	name: func(i *ledgerItem) string { return i.ID },
	columns: []column[ledgerItem]{
		{title: "ID", wide: true, text: func(i *ledgerItem) string { return i.ID }},
		{title: "WHEN", text: func(i *ledgerItem) string { return i.CreatedAt }},
		{title: "KIND", text: func(i *ledgerItem) string { return i.Kind }},
		{title: "AMOUNT", text: func(i *ledgerItem) string { return i.Amount }},
		{title: "BALANCE", text: func(i *ledgerItem) string { return i.Balance }},
		{title: "CALL", text: func(i *ledgerItem) string { return text(i.CallID) }},
		{title: "NOTE", text: func(i *ledgerItem) string { return i.Note }},
		{title: "BY", text: func(i *ledgerItem) string { return text(i.Actor) }},
		{title: "KEY", wide: true, text: func(i *ledgerItem) string { return i.Key }},
	},
}

func newCustomers(opts *options) *cobra.Command {
	return group("customers", "Customers and their balance",
		newCustomersList(opts), newCustomersGet(opts), newCustomersBalance(opts), newCustomersCreate(opts), newCustomersCredit(opts), newCustomersLedger(opts),
		newCustomersLimits(opts), newCustomersUpdate(opts), newCustomersStatus(opts, "suspend", "suspended", "Let a customer begin no more calls; those that live go on"),
		newCustomersStatus(opts, "resume", "active", "Let a suspended customer call again"), newCustomersAdjust(opts))
}

func newCustomersList(opts *options) *cobra.Command {
	flags := &listFlags{}
	cmd := &cobra.Command{
		Use: "ls", Aliases: []string{"list"}, Short: "List the customers, newest first", Args: args(cobra.NoArgs),
		RunE: opts.withClient(func(cmd *cobra.Command, c *client, _ []string) error {
			return runList(cmd, opts, c, flags, "/customers", func() url.Values { return url.Values{} }, customersView)
		}),
	}
	flags.register(cmd, false)
	return cmd
}

func newCustomersGet(opts *options) *cobra.Command {
	return &cobra.Command{
		Use: "show CUSTOMER_ID", Aliases: []string{"get"}, Short: "Show a customer with its account and how many calls it has", Args: args(cobra.ExactArgs(1)),
		ValidArgsFunction: opts.completeItems("/customers", "id"),
		RunE: opts.withClient(func(cmd *cobra.Command, c *client, positional []string) error {
			return printCustomer(cmd, opts, c, positional[0], customerView)
		}),
	}
}

func newCustomersBalance(opts *options) *cobra.Command {
	return &cobra.Command{
		Use: "balance CUSTOMER_ID", Short: "Show a customer's balance, what live calls hold of it, and what is free for new ones", Args: args(cobra.ExactArgs(1)),
		ValidArgsFunction: opts.completeItems("/customers", "id"),
		RunE: opts.withClient(func(cmd *cobra.Command, c *client, positional []string) error {
			return printCustomer(cmd, opts, c, positional[0], balanceView)
		}),
	}
}

func printCustomer(cmd *cobra.Command, opts *options, c *client, id string, shown view[customerItem]) error {
	var found json.RawMessage
	if err := c.get(cmd.Context(), "/customers/"+segment(id), nil, &found); err != nil {
		return err
	}
	return show(opts, cmd.OutOrStdout(), shown, found)
}

func newCustomersCreate(opts *options) *cobra.Command {
	var balance, currency string
	limits, account := &limitFlags{}, &accountFlags{}
	cmd := &cobra.Command{
		Use: "create NAME", Short: "Create a customer", Args: args(cobra.ExactArgs(1)),
		RunE: opts.withClient(func(cmd *cobra.Command, c *client, positional []string) error {
			body := map[string]any{"name": positional[0], "balance": balance}
			if currency != "" {
				body["currency"] = currency
			}
			account.fill(cmd.Flags(), body)
			if err := limits.fill(cmd.Flags(), body); err != nil {
				return err
			}
			var made json.RawMessage
			if err := c.post(cmd.Context(), "/customers", body, &made); err != nil {
				return err
			}
			return show(opts, cmd.OutOrStdout(), customersView, made)
		}),
	}
	cmd.Flags().StringVar(&balance, "balance", "0", "opening balance, in units of the currency")
	limits.register(cmd.Flags())
	account.register(cmd.Flags())
	cmd.Flags().StringVar(&currency, "currency", "", "ISO 4217 code (default: the one that the server is configured with)")
	return cmd
}

func newCustomersCredit(opts *options) *cobra.Command {
	var key, remark string
	cmd := &cobra.Command{
		Use: "credit CUSTOMER_ID AMOUNT --key KEY", Short: "Add to a customer's balance; the same key adds once", Args: args(cobra.ExactArgs(2)),
		ValidArgsFunction: opts.completeItems("/customers", "id"),
		RunE: opts.withClient(func(cmd *cobra.Command, c *client, positional []string) error {
			id, amount := positional[0], positional[1]
			body := map[string]any{"amount": amount, "key": key}
			if remark != "" {
				body["note"] = remark
			}
			if err := c.post(cmd.Context(), "/customers/"+segment(id)+"/credits", body, nil); err != nil {
				return err
			}
			return printCustomer(cmd, opts, c, id, customerView)
		}),
	}
	cmd.Flags().StringVar(&key, "key", "", "idempotency key of this payment, such as an invoice number")
	cmd.Flags().StringVar(&remark, "note", "", "what the payment is for")
	_ = cmd.MarkFlagRequired("key")
	return cmd
}

func newCustomersLedger(opts *options) *cobra.Command {
	flags := &listFlags{}
	cmd := &cobra.Command{
		Use: "ledger CUSTOMER_ID", Short: "List the changes of a customer's balance, newest first", Args: args(cobra.ExactArgs(1)),
		ValidArgsFunction: opts.completeItems("/customers", "id"),
		RunE: opts.withClient(func(cmd *cobra.Command, c *client, positional []string) error {
			path := "/customers/" + segment(positional[0]) + "/ledger"
			return runList(cmd, opts, c, flags, path, func() url.Values { return url.Values{} }, ledgerView)
		}),
	}
	flags.register(cmd, false)
	return cmd
}

package main

import (
	"encoding/json"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// accountOf are the flags of commands that look at a customer's account.
type accountOf struct{ customer, from, to string }

// register adds the flags; the times only where the API takes them.
func (f *accountOf) register(opts *options, cmd *cobra.Command, times bool) {
	cmd.Flags().StringVar(&f.customer, "customer", "", "the customer's id")
	_ = cmd.MarkFlagRequired("customer")
	_ = cmd.RegisterFlagCompletionFunc("customer", opts.completeItems("/customers", "id"))
	if times {
		cmd.Flags().StringVar(&f.from, "from", "", "from this day (2026-01-31, in UTC) or moment (2026-01-31T12:00:00Z) on")
		cmd.Flags().StringVar(&f.to, "to", "", "until this day or moment, which is not meant any more")
	}
}

func (f *accountOf) path(resource string) string {
	return "/customers/" + segment(f.customer) + "/" + resource
}

// moment reads a day or a moment in the form that the API takes.
func moment(flag, value string) (time.Time, error) {
	for _, form := range []string{time.DateOnly, time.RFC3339} {
		if at, err := time.Parse(form, value); err == nil {
			return at.UTC(), nil
		}
	}
	return time.Time{}, usage("--%s must be a day such as 2026-01-31 or a moment such as 2026-01-31T12:00:00Z, was %q", flag, value)
}

// fill puts the times into a query.
func (f *accountOf) fill(query url.Values, from, to string, last time.Duration) error {
	if f.from != "" {
		at, err := moment("from", f.from)
		if err != nil {
			return err
		}
		query.Set(from, at.Format(time.RFC3339))
	}
	if f.to != "" {
		at, err := moment("to", f.to)
		if err != nil {
			return err
		}
		query.Set(to, at.Add(-last).Format(time.RFC3339Nano))
	}
	return nil
}

// ledgerFlags narrow a ledger.
type ledgerFlags struct {
	accountOf
	kind, call string
}

func (f *ledgerFlags) register(opts *options, cmd *cobra.Command) {
	f.accountOf.register(opts, cmd, true)
	cmd.Flags().StringVar(&f.kind, "kind", "", "only entries of this kind: topup, call or adjust")
	cmd.Flags().StringVar(&f.call, "call", "", "only the entry of this call")
	complete(cmd, "kind", "topup", "call", "adjust")
}

func (f *ledgerFlags) query() (url.Values, error) {
	query := url.Values{}
	for name, value := range map[string]string{"kind": f.kind, "call_id": f.call} {
		if value != "" {
			query.Set(name, value)
		}
	}
	// The API means created_before itself as well; the ledger counts microseconds.
	return query, f.fill(query, "created_after", "created_before", time.Microsecond)
}

func newLedgerList(opts *options) *cobra.Command {
	flags, which := &listFlags{}, &ledgerFlags{}
	cmd := &cobra.Command{
		Use: "list --customer CUSTOMER_ID", Aliases: []string{"ls"}, Short: "List the changes of a customer's balance, newest first", Args: args(cobra.NoArgs),
		RunE: opts.withClient(func(cmd *cobra.Command, c *client, _ []string) error {
			query, err := which.query()
			if err != nil {
				return err
			}
			return runList(cmd, opts, c, flags, which.path("ledger"), func() url.Values { return query }, ledgerView)
		}),
	}
	flags.register(cmd, false)
	which.register(opts, cmd)
	return cmd
}

func newLedgerExport(opts *options) *cobra.Command {
	which := &ledgerFlags{}
	cmd := &cobra.Command{
		Use: "export --customer CUSTOMER_ID", Short: "Write a customer's ledger, all of it, as CSV to standard output", Args: args(cobra.NoArgs),
		Example: "  tandem ledger export --customer cust_… --from 2026-01-01 --to 2026-02-01 > january.csv",
		RunE: opts.withClient(func(cmd *cobra.Command, c *client, _ []string) error {
			query, err := which.query()
			if err != nil {
				return err
			}
			query.Set("format", "csv")
			return c.download(cmd.Context(), which.path("ledger"), query, cmd.OutOrStdout())
		}),
	}
	which.register(opts, cmd)
	return cmd
}

// usageItem is a group of calls as tables show one.
type usageItem struct {
	Key           *string  `json:"key"`
	Name          *string  `json:"name"`
	Calls         int64    `json:"calls"`
	Answered      int64    `json:"answered"`
	Seconds       int64    `json:"seconds"`
	BilledSeconds int64    `json:"billed_seconds"`
	Cost          string   `json:"cost"`
	ASR           *float64 `json:"asr"`
	ACD           *float64 `json:"acd"`
}

func decimal(value *float64) string {
	if value == nil {
		return ""
	}
	return strconv.FormatFloat(*value, 'f', -1, 64)
}

var usageGroupings = []string{"day", "application", "trunk", "direction", "destination"}

// usageView shows groups of a kind.
func usageView(by string) view[usageItem] {
	whole := func(n int64) string { return strconv.FormatInt(n, 10) }
	return view[usageItem]{
		name: func(i *usageItem) string { return text(i.Key) },
		columns: []column[usageItem]{
			{title: strings.ToUpper(by), text: func(i *usageItem) string { return text(i.Key) }},
			{title: "NAME", wide: by != "application" && by != "trunk", text: func(i *usageItem) string { return text(i.Name) }},
			{title: "CALLS", text: func(i *usageItem) string { return whole(i.Calls) }},
			{title: "ANSWERED", text: func(i *usageItem) string { return whole(i.Answered) }},
			{title: "SECONDS", text: func(i *usageItem) string { return whole(i.Seconds) }},
			{title: "BILLED S", text: func(i *usageItem) string { return whole(i.BilledSeconds) }},
			{title: "COST", text: func(i *usageItem) string { return i.Cost }},
			{title: "ASR", text: func(i *usageItem) string { return decimal(i.ASR) }},
			{title: "ACD", text: func(i *usageItem) string { return decimal(i.ACD) }},
		},
	}
}

func newUsage(opts *options) *cobra.Command {
	which := &accountOf{}
	var by string
	var csv bool
	cmd := &cobra.Command{
		Use: "usage --customer CUSTOMER_ID", Short: "Sum up a customer's calls, by day or otherwise", Args: args(cobra.NoArgs),
		Long: "A call belongs to the time in which it was settled. Day, application and direction count calls, trunk and destination legs; the sum of the cost is the same in all of\n" +
			"them. Without --from and --to it is this month so far, in UTC.",
		RunE: opts.withClient(func(cmd *cobra.Command, c *client, _ []string) error {
			query := url.Values{"group_by": {by}}
			if err := which.fill(query, "from", "to", 0); err != nil {
				return err
			}
			if csv {
				query.Set("format", "csv")
				return c.download(cmd.Context(), which.path("usage"), query, cmd.OutOrStdout())
			}
			var whole json.RawMessage
			if err := c.get(cmd.Context(), which.path("usage"), query, &whole); err != nil {
				return err
			}
			if opts.output == outputJSON || opts.output == outputYAML {
				return opts.structured(cmd.OutOrStdout(), whole)
			}
			var found struct {
				Data     []json.RawMessage `json:"data"`
				Currency string            `json:"currency"`
				From     string            `json:"from"`
				To       string            `json:"to"`
				Total    usageItem         `json:"total"`
			}
			if err := json.Unmarshal(whole, &found); err != nil {
				return fmt.Errorf("the server answered something that this version does not understand: %w", err)
			}
			if err := showList(opts, cmd.OutOrStdout(), usageView(by), found.Data); err != nil {
				return err
			}
			note(cmd, "%d calls or legs for %s %s, from %s until %s", found.Total.Calls, printable(found.Total.Cost), printable(found.Currency), printable(found.From), printable(found.To))
			return nil
		}),
	}
	which.register(opts, cmd, true)
	cmd.Flags().StringVar(&by, "by", "day", strings.Join(usageGroupings, ", "))
	cmd.Flags().BoolVar(&csv, "csv", false, "write CSV")
	complete(cmd, "by", usageGroupings...)
	return cmd
}

// statementItem is a statement as tables show one.
type statementItem struct {
	Month    string `json:"month"`
	Currency string `json:"currency"`
	Opening  string `json:"opening"`
	Topups   string `json:"topups"`
	Adjusted string `json:"adjustments"`
	Calls    string `json:"calls"`
	Closing  string `json:"closing"`
	Final    bool   `json:"final"`
}

var statementView = view[statementItem]{
	name: func(i *statementItem) string { return i.Month },
	columns: []column[statementItem]{
		{title: "MONTH", text: func(i *statementItem) string { return i.Month }},
		{title: "OPENING", text: func(i *statementItem) string { return i.Opening }},
		{title: "TOP-UPS", text: func(i *statementItem) string { return i.Topups }},
		{title: "ADJUSTMENTS", text: func(i *statementItem) string { return i.Adjusted }},
		{title: "CALLS", text: func(i *statementItem) string { return i.Calls }},
		{title: "CLOSING", text: func(i *statementItem) string { return i.Closing }},
		{title: "CURRENCY", text: func(i *statementItem) string { return i.Currency }},
		{title: "FINAL", text: func(i *statementItem) string { return strconv.FormatBool(i.Final) }},
	},
}

func newStatements(opts *options) *cobra.Command {
	which := &accountOf{}
	var csv bool
	cmd := &cobra.Command{
		Use: "statements --customer CUSTOMER_ID [MONTH]", Short: "Show what a customer's balance went through, month by month", Args: args(cobra.MaximumNArgs(1)),
		Example: "  tandem statements --customer cust_…\n  tandem statements --customer cust_… 2026-01 --csv",
		RunE: opts.withClient(func(cmd *cobra.Command, c *client, positional []string) error {
			path := which.path("statements")
			if len(positional) > 0 {
				path += "/" + segment(positional[0])
			}
			if csv {
				return c.download(cmd.Context(), path, url.Values{"format": {"csv"}}, cmd.OutOrStdout())
			}
			if len(positional) > 0 {
				var one json.RawMessage
				if err := c.get(cmd.Context(), path, nil, &one); err != nil {
					return err
				}
				return show(opts, cmd.OutOrStdout(), statementView, one)
			}
			var all listing
			if err := c.get(cmd.Context(), path, nil, &all); err != nil {
				return err
			}
			return showList(opts, cmd.OutOrStdout(), statementView, all.Data)
		}),
	}
	which.register(opts, cmd, false)
	cmd.Flags().BoolVar(&csv, "csv", false, "write CSV")
	return cmd
}

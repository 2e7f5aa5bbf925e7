package main

import (
	"context"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
)

// rateItem is a rate as tables and files show one.
type rateItem struct {
	ID        string `json:"id"`
	Direction string `json:"direction"`
	priceItem
	ValidFrom string  `json:"valid_from"`
	ValidTo   *string `json:"valid_to"`
}

// priceItem is what a call costs.
type priceItem struct {
	Prefix      string `json:"prefix"`
	Destination string `json:"destination"`
	PerMinute   string `json:"per_minute"`
	Connect     string `json:"connect"`
	ConnectOn   string `json:"connect_on"`
	Minimum     int    `json:"minimum"`
	Increment   int    `json:"increment"`
}

// billing is minimum and increment in the usual notation.
func (p *priceItem) billing() string { return fmt.Sprintf("%d/%d", p.Minimum, p.Increment) }

var ratesView = view[rateItem]{
	name: func(i *rateItem) string { return i.ID },
	columns: []column[rateItem]{
		{title: "DIRECTION", text: func(i *rateItem) string { return i.Direction }},
		{title: "PREFIX", text: func(i *rateItem) string { return i.Prefix }},
		{title: "DESTINATION", text: func(i *rateItem) string { return i.Destination }},
		{title: "PER MINUTE", text: func(i *rateItem) string { return i.PerMinute }},
		{title: "CONNECT", text: func(i *rateItem) string { return i.Connect }},
		{title: "CONNECT ON", wide: true, text: func(i *rateItem) string { return i.ConnectOn }},
		{title: "BILLING", text: func(i *rateItem) string { return i.billing() }},
		{title: "VALID FROM", text: func(i *rateItem) string { return i.ValidFrom }},
		{title: "VALID TO", text: func(i *rateItem) string { return text(i.ValidTo) }},
		{title: "ID", wide: true, text: func(i *rateItem) string { return i.ID }},
	},
}

// rateImport is an import of rates.
type rateImport struct {
	importJob
	DeckID    string `json:"deck_id"`
	Mode      string `json:"mode"`
	StartsAt  string `json:"starts_at"`
	Unchanged int64  `json:"unchanged"`
	Ended     int64  `json:"ended"`
}

var rateImportsView = view[rateImport]{
	name: func(i *rateImport) string { return i.ID },
	columns: append(importColumns(func(i *rateImport) *importJob { return &i.importJob }),
		column[rateImport]{title: "UNCHANGED", text: func(i *rateImport) string { return strconv.FormatInt(i.Unchanged, 10) }},
		column[rateImport]{title: "ENDED", text: func(i *rateImport) string { return strconv.FormatInt(i.Ended, 10) }},
		column[rateImport]{title: "MODE", wide: true, text: func(i *rateImport) string { return i.Mode }},
		column[rateImport]{title: "STARTS", wide: true, text: func(i *rateImport) string { return i.StartsAt }},
		column[rateImport]{title: "DECK", wide: true, text: func(i *rateImport) string { return i.DeckID }},
	),
}

func newRates(opts *options) *cobra.Command {
	return group("rates", "What calls cost: decks, their rates, and which of them counts",
		newRatesDecks(opts), newRatesList(opts), newRatesSet(opts), newRatesEnd(opts), newRatesRemove(opts), newRatesImport(opts),
		newImports(opts, "/rate-imports", "Imports of rates", rateImportsView), newRatesExport(opts), newRatesAssign(opts), newRatesTest(opts))
}

// deckNamed returns the id of the deck with a name, or an id as it is.
func (c *client) deckNamed(ctx context.Context, name string) (string, error) {
	items, _, err := c.list(ctx, "/rate-decks", url.Values{"name": {name}}, 1)
	if err != nil {
		return "", err
	}
	decks, err := decodeAll[deckItem](items)
	if err != nil {
		return "", err
	}
	switch {
	case len(decks) > 0:
		return decks[0].ID, nil
	case strings.HasPrefix(name, "deck_"):
		return name, nil
	}
	return "", fmt.Errorf("there is no rate deck %q", name)
}

// rateFilter are the flags that choose rates.
type rateFilter struct{ direction, prefix, number, on string }

func (f *rateFilter) register(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.direction, "direction", "", "only those of calls outbound or inbound")
	cmd.Flags().StringVar(&f.prefix, "prefix", "", "only those whose prefix begins so, such as 31")
	cmd.Flags().StringVar(&f.number, "number", "", "only those that this number could get")
	cmd.Flags().StringVar(&f.on, "on", "", "only those that are valid on this day, such as 2026-02-01")
	complete(cmd, "direction", "outbound", "inbound")
}

func (f *rateFilter) query() url.Values {
	return parameters("direction", f.direction, "prefix", f.prefix, "number", f.number, "on", f.on)
}

func newRatesList(opts *options) *cobra.Command {
	flags, filter := &listFlags{}, &rateFilter{}
	cmd := &cobra.Command{
		Use: "ls DECK", Aliases: []string{"list"}, Short: "List the rates of a deck", Args: args(cobra.ExactArgs(1)),
		ValidArgsFunction: opts.completeItems("/rate-decks", "name"),
		RunE: opts.withClient(func(cmd *cobra.Command, c *client, positional []string) error {
			if err := flags.check(); err != nil {
				return err
			}
			deck, err := c.deckNamed(cmd.Context(), positional[0])
			if err != nil {
				return err
			}
			return runList(cmd, opts, c, flags, "/rate-decks/"+segment(deck)+"/rates", filter.query, ratesView)
		}),
	}
	flags.register(cmd, false)
	filter.register(cmd)
	return cmd
}

// rateFlags are those that a rate and an import of rates have in common.
type rateFlags struct{ direction, connectOn, billing, validFrom string }

func (f *rateFlags) register(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.direction, "direction", "", "outbound or inbound (default: outbound)")
	cmd.Flags().StringVar(&f.connectOn, "connect-on", "", "when the connection fee is due: answer, or attempt (default: answer)")
	cmd.Flags().StringVar(&f.billing, "billing", "", "minimum/increment in seconds, such as 60/1 (default: 0/60)")
	cmd.Flags().StringVar(&f.validFrom, "valid-from", "", "day or moment from when on it is valid, such as 2026-02-01 (default: now)")
	complete(cmd, "direction", "outbound", "inbound")
	complete(cmd, "connect-on", "answer", "attempt")
	complete(cmd, "billing", "60/60", "60/1", "30/6", "1/1")
}

// body is what was given, and further pairs of name and value.
func (f *rateFlags) body(pairs ...string) map[string]any {
	body := map[string]any{}
	pairs = append(pairs, "direction", f.direction, "connect_on", f.connectOn, "billing", f.billing, "valid_from", f.validFrom)
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			body[pairs[i]] = pairs[i+1]
		}
	}
	return body
}

func newRatesSet(opts *options) *cobra.Command {
	flags := &rateFlags{}
	var perMinute, connect, destination, validTo string
	cmd := &cobra.Command{
		Use: "set DECK PREFIX --per-minute AMOUNT", Short: "Set the rate of a prefix; it ends the one that is valid when it begins", Args: args(cobra.ExactArgs(2)),
		Long: "Set the rate of a prefix: the first digits of numbers, * for every number, or sip for SIP URIs. It ends the one that is valid\n" +
			"when it begins, and takes the place of one that begins at the same moment. Calls keep what they were promised.",
		ValidArgsFunction: opts.completeItems("/rate-decks", "name"),
		RunE: opts.withClient(func(cmd *cobra.Command, c *client, positional []string) error {
			deck, err := c.deckNamed(cmd.Context(), positional[0])
			if err != nil {
				return err
			}
			body := flags.body("prefix", positional[1], "per_minute", perMinute, "connect", connect, "destination", destination, "valid_to", validTo)
			var item json.RawMessage
			if err := c.post(cmd.Context(), "/rate-decks/"+segment(deck)+"/rates", body, &item); err != nil {
				return err
			}
			return show(opts, cmd.OutOrStdout(), ratesView, item)
		}),
	}
	flags.register(cmd)
	cmd.Flags().StringVar(&perMinute, "per-minute", "", "price of a minute, such as 0.0125")
	cmd.Flags().StringVar(&connect, "connect", "", "connection fee (default: 0)")
	cmd.Flags().StringVar(&destination, "destination", "", "what the numbers are called")
	cmd.Flags().StringVar(&validTo, "valid-to", "", "day or moment when it ends")
	_ = cmd.MarkFlagRequired("per-minute")
	return cmd
}

func newRatesEnd(opts *options) *cobra.Command {
	var at string
	cmd := &cobra.Command{
		Use: "end RATE_ID --at DATE", Short: "Say when a rate ends", Args: args(cobra.ExactArgs(1)),
		RunE: opts.withClient(func(cmd *cobra.Command, c *client, positional []string) error {
			var item json.RawMessage
			body := map[string]any{"valid_to": at}
			if at == limitNone {
				body["valid_to"] = nil
			}
			if err := c.patch(cmd.Context(), "/rates/"+segment(positional[0]), body, &item); err != nil {
				return err
			}
			return show(opts, cmd.OutOrStdout(), ratesView, item)
		}),
	}
	cmd.Flags().StringVar(&at, "at", "", "day or moment, such as 2026-03-01; none: where the next rate of the prefix begins")
	_ = cmd.MarkFlagRequired("at")
	return cmd
}

func newRatesRemove(opts *options) *cobra.Command {
	return &cobra.Command{
		Use: "rm RATE_ID", Aliases: []string{"delete"}, Short: "Delete a rate; one that it had ended stays ended", Args: args(cobra.ExactArgs(1)),
		RunE: opts.withClient(func(cmd *cobra.Command, c *client, positional []string) error {
			if err := opts.confirm(cmd.Context(), cmd, "Delete rate %s?", positional[0]); err != nil {
				return err
			}
			return c.delete(cmd.Context(), "/rates/"+segment(positional[0]))
		}),
	}
}

func newRatesImport(opts *options) *cobra.Command {
	flags, columns := &importFlags{}, &rateFlags{}
	var deck string
	var replace bool
	cmd := &cobra.Command{
		Use: "import FILE --deck DECK", Short: "Import a CSV file of rates; broken off, the same command goes on", Args: args(cobra.ExactArgs(1)),
		Long: "Import a CSV file of rates. Its first line names the columns: prefix, per_minute, and any of direction, destination, connect,\n" +
			"connect_on, billing (60/1) or minimum and increment, valid_from, valid_to. What a record leaves empty is what the flags say.\n" +
			"With --replace, what the deck has and the file does not name ends, once the whole file was taken; where a record was\n" +
			"rejected nothing ends: correct the file and import it whole.\n\n" + importHelp,
		ValidArgsFunction: completeCSV,
		RunE: opts.withClient(func(cmd *cobra.Command, c *client, positional []string) error {
			id, err := c.deckNamed(cmd.Context(), deck)
			if err != nil {
				return err
			}
			mode, unless := "merge", ""
			if replace {
				mode, unless = "replace", "; so nothing that the file does not name has ended: correct the file and import it whole"
			}
			job := &fileImport{
				path: "/rate-imports", flags: flags, defaults: columns.body(), rest: map[string]string{"deck_id": id, "mode": mode}, unless: unless,
				shown: func(item json.RawMessage) error { return show(opts, cmd.OutOrStdout(), rateImportsView, item) },
			}
			return job.run(cmd, opts, c, positional[0])
		}),
	}
	flags.register(cmd)
	columns.register(cmd)
	cmd.Flags().StringVar(&deck, "deck", "", "deck that the rates are for")
	cmd.Flags().BoolVar(&replace, "replace", false, "end the rates of the deck that the file does not name")
	_ = cmd.MarkFlagRequired("deck")
	_ = cmd.RegisterFlagCompletionFunc("deck", opts.completeFlag("/rate-decks", "name")) // it fails only for a flag that is not there
	return cmd
}

func newRatesExport(opts *options) *cobra.Command {
	filter := &rateFilter{}
	var path string
	cmd := &cobra.Command{
		Use: "export DECK", Short: "Write the rates of a deck as CSV, as import takes them", Args: args(cobra.ExactArgs(1)),
		ValidArgsFunction: opts.completeItems("/rate-decks", "name"),
		RunE: opts.withClient(func(cmd *cobra.Command, c *client, positional []string) error {
			deck, err := c.deckNamed(cmd.Context(), positional[0])
			if err != nil {
				return err
			}
			return toFile(cmd, path, func(out io.Writer) error {
				return exportRates(cmd, opts, c, "/rate-decks/"+segment(deck)+"/rates", filter.query(), out)
			})
		}),
	}
	filter.register(cmd)
	cmd.Flags().StringVar(&path, "file", "", "file to write, which must not exist (default: standard output)")
	return cmd
}

func exportRates(cmd *cobra.Command, opts *options, c *client, path string, query url.Values, out io.Writer) error {
	w := csv.NewWriter(out)
	_ = w.Write([]string{"direction", "prefix", "destination", "per_minute", "connect", "connect_on", "minimum", "increment", "valid_from", "valid_to"}) // Flush tells
	flush := func() error {
		w.Flush()
		if err := w.Error(); err != nil {
			return fmt.Errorf("write rates: %w", err)
		}
		return nil
	}
	err := exportList(cmd, opts, c, path, query, func(items []json.RawMessage) error {
		rates, err := decodeAll[rateItem](items)
		if err != nil {
			return err
		}
		for i := range rates {
			r := &rates[i]
			_ = w.Write([]string{ // Flush tells
				r.Direction, r.Prefix, r.Destination, r.PerMinute, r.Connect, r.ConnectOn, strconv.Itoa(r.Minimum), strconv.Itoa(r.Increment), r.ValidFrom, text(r.ValidTo),
			})
		}
		return flush()
	})
	if err != nil {
		return err
	}
	return flush()
}

func newRatesAssign(opts *options) *cobra.Command {
	var customer, trunk string
	var none bool
	cmd := &cobra.Command{
		Use: "assign [DECK] --customer CUSTOMER_ID | --trunk TRUNK_ID", Short: "Give a customer or a trunk a deck, or with --none take it away", Args: args(cobra.MaximumNArgs(1)),
		ValidArgsFunction: opts.completeItems("/rate-decks", "name"),
		RunE: opts.withClient(func(cmd *cobra.Command, c *client, positional []string) error {
			if none == (len(positional) == 1) {
				return usage("name a deck, or give --none")
			}
			path := "/customers/" + segment(customer)
			if trunk != "" {
				path = "/trunks/" + segment(trunk)
			}
			var deck *string
			if !none {
				id, err := c.deckNamed(cmd.Context(), positional[0])
				if err != nil {
					return err
				}
				deck = &id
			}
			var item json.RawMessage
			if err := c.patch(cmd.Context(), path+"/rate-deck", map[string]any{"rate_deck_id": deck}, &item); err != nil {
				return err
			}
			return show(opts, cmd.OutOrStdout(), assignedView, item)
		}),
	}
	cmd.Flags().StringVar(&customer, "customer", "", "whose deck it is to be")
	cmd.Flags().StringVar(&trunk, "trunk", "", "trunk whose deck it is to be, before that of its customer")
	cmd.Flags().BoolVar(&none, "none", false, "take the deck away")
	cmd.MarkFlagsOneRequired("customer", "trunk")
	cmd.MarkFlagsMutuallyExclusive("customer", "trunk")
	return cmd
}

// assignedItem says which deck somebody has.
type assignedItem struct {
	ID     string  `json:"id"`
	DeckID *string `json:"rate_deck_id"`
}

var assignedView = view[assignedItem]{
	name: func(i *assignedItem) string { return i.ID },
	columns: []column[assignedItem]{
		{title: "ID", text: func(i *assignedItem) string { return i.ID }},
		{title: "RATE DECK", text: func(i *assignedItem) string { return text(i.DeckID) }},
	},
}

package main

import (
	"encoding/json"
	"net/url"
	"strconv"

	"github.com/spf13/cobra"
)

// deckItem is a rate deck as tables show one.
type deckItem struct {
	ID        string `json:"id"`
	Name      string `json:"name"`
	Currency  string `json:"currency"`
	IsDefault bool   `json:"is_default"`
	Unlisted  string `json:"unlisted"`
	UpdatedAt string `json:"updated_at"`
	Rates     int64  `json:"rates"`
	Customers int64  `json:"customers"`
	Trunks    int64  `json:"trunks"`
}

var deckColumns = []column[deckItem]{
	{title: "ID", text: func(i *deckItem) string { return i.ID }},
	{title: "NAME", text: func(i *deckItem) string { return i.Name }},
	{title: "CURRENCY", text: func(i *deckItem) string { return i.Currency }},
	{title: "DEFAULT", text: func(i *deckItem) string { return strconv.FormatBool(i.IsDefault) }},
	{title: "UNLISTED", text: func(i *deckItem) string { return i.Unlisted }},
	{title: "CHANGED", wide: true, text: func(i *deckItem) string { return i.UpdatedAt }},
}

func deckID(i *deckItem) string { return i.ID }

var (
	decksView = view[deckItem]{name: deckID, columns: deckColumns}
	deckView  = view[deckItem]{name: deckID, columns: append(deckColumns[:5:5],
		column[deckItem]{title: "RATES", text: func(i *deckItem) string { return strconv.FormatInt(i.Rates, 10) }},
		column[deckItem]{title: "CUSTOMERS", text: func(i *deckItem) string { return strconv.FormatInt(i.Customers, 10) }},
		column[deckItem]{title: "TRUNKS", text: func(i *deckItem) string { return strconv.FormatInt(i.Trunks, 10) }},
	)}
)

func newRatesDecks(opts *options) *cobra.Command {
	return group("decks", "Rate decks", newDecksList(opts), newDecksGet(opts), newDecksCreate(opts), newDecksUpdate(opts), newDecksRemove(opts))
}

func newDecksList(opts *options) *cobra.Command {
	flags := &listFlags{}
	var currency string
	cmd := &cobra.Command{
		Use: "ls", Aliases: []string{"list"}, Short: "List the rate decks, newest first", Args: args(cobra.NoArgs),
		RunE: opts.withClient(func(cmd *cobra.Command, c *client, _ []string) error {
			return runList(cmd, opts, c, flags, "/rate-decks", func() url.Values { return parameters("currency", currency) }, decksView)
		}),
	}
	flags.register(cmd, false)
	cmd.Flags().StringVar(&currency, "currency", "", "only those in this currency")
	return cmd
}

func newDecksGet(opts *options) *cobra.Command {
	return &cobra.Command{
		Use: "get DECK", Short: "Show a rate deck, how many rates it has, and how many customers and trunks have it", Args: args(cobra.ExactArgs(1)),
		ValidArgsFunction: opts.completeItems("/rate-decks", "name"),
		RunE: opts.withClient(func(cmd *cobra.Command, c *client, positional []string) error {
			id, err := c.deckNamed(cmd.Context(), positional[0])
			if err != nil {
				return err
			}
			var item json.RawMessage
			if err := c.get(cmd.Context(), "/rate-decks/"+segment(id), nil, &item); err != nil {
				return err
			}
			return show(opts, cmd.OutOrStdout(), deckView, item)
		}),
	}
}

// deckFlags are what a deck can be made and changed to be.
type deckFlags struct {
	isDefault bool
	unlisted  string
}

func (f *deckFlags) register(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&f.isDefault, "default", false, "the deck of customers of its currency who have none of their own")
	cmd.Flags().StringVar(&f.unlisted, "unlisted", "", "with a number that it has no rate for: ask the next deck, or refuse the call (default: next)")
	complete(cmd, "unlisted", "next", "refuse")
}

// fill adds what was given.
func (f *deckFlags) fill(cmd *cobra.Command, body map[string]any) {
	if cmd.Flags().Changed("default") {
		body["is_default"] = f.isDefault
	}
	if f.unlisted != "" {
		body["unlisted"] = f.unlisted
	}
}

func newDecksCreate(opts *options) *cobra.Command {
	flags := &deckFlags{}
	var currency string
	cmd := &cobra.Command{
		Use: "create NAME", Short: "Create a rate deck", Args: args(cobra.ExactArgs(1)),
		RunE: opts.withClient(func(cmd *cobra.Command, c *client, positional []string) error {
			body := map[string]any{"name": positional[0]}
			if currency != "" {
				body["currency"] = currency
			}
			flags.fill(cmd, body)
			var item json.RawMessage
			if err := c.post(cmd.Context(), "/rate-decks", body, &item); err != nil {
				return err
			}
			return show(opts, cmd.OutOrStdout(), decksView, item)
		}),
	}
	flags.register(cmd)
	cmd.Flags().StringVar(&currency, "currency", "", "ISO 4217 code (default: the one that the server is configured with)")
	return cmd
}

func newDecksUpdate(opts *options) *cobra.Command {
	flags := &deckFlags{}
	var name string
	cmd := &cobra.Command{
		Use: "update DECK", Short: "Change the name of a rate deck, and what it is for", Args: args(cobra.ExactArgs(1)),
		ValidArgsFunction: opts.completeItems("/rate-decks", "name"),
		RunE: opts.withClient(func(cmd *cobra.Command, c *client, positional []string) error {
			body := map[string]any{}
			if name != "" {
				body["name"] = name
			}
			if flags.fill(cmd, body); len(body) == 0 {
				return usage("a flag is needed that says what is to change")
			}
			id, err := c.deckNamed(cmd.Context(), positional[0])
			if err != nil {
				return err
			}
			var item json.RawMessage
			if err := c.patch(cmd.Context(), "/rate-decks/"+segment(id), body, &item); err != nil {
				return err
			}
			return show(opts, cmd.OutOrStdout(), decksView, item)
		}),
	}
	flags.register(cmd)
	cmd.Flags().StringVar(&name, "name", "", "its new name")
	return cmd
}

func newDecksRemove(opts *options) *cobra.Command {
	return &cobra.Command{
		Use: "rm DECK", Aliases: []string{"delete"}, Short: "Delete a rate deck with its rates", Args: args(cobra.ExactArgs(1)),
		ValidArgsFunction: opts.completeItems("/rate-decks", "name"),
		RunE: opts.withClient(func(cmd *cobra.Command, c *client, positional []string) error {
			id, err := c.deckNamed(cmd.Context(), positional[0])
			if err != nil {
				return err
			}
			if err := opts.confirm(cmd.Context(), cmd, "Delete rate deck %s with all its rates?", positional[0]); err != nil {
				return err
			}
			return c.delete(cmd.Context(), "/rate-decks/"+segment(id))
		}),
	}
}

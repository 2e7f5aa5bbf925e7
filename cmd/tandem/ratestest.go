package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"

	"github.com/spf13/cobra"
)

// rateAnswer is what a call would cost, and why.
type rateAnswer struct {
	Number     string     `json:"number"`
	Direction  string     `json:"direction"`
	On         string     `json:"on"`
	Currency   string     `json:"currency"`
	Steps      []rateStep `json:"steps"`
	Outcome    string     `json:"outcome"`
	Price      *priceItem `json:"price"`
	Unanswered string     `json:"unanswered"`
	Costs      []struct {
		Seconds int    `json:"seconds"`
		Billed  int64  `json:"billed_seconds"`
		Cost    string `json:"cost"`
	} `json:"costs"`
}

// rateStep is a deck that was asked.
type rateStep struct {
	Deck   string    `json:"deck"`
	Of     string    `json:"of"`
	Answer string    `json:"answer"`
	Rate   *rateItem `json:"rate"`
	Why    string    `json:"why"`
}

func newRatesTest(opts *options) *cobra.Command {
	var customer, trunk, direction, on string
	cmd := &cobra.Command{
		Use: "test NUMBER", Short: "Say what a call would cost, and why", Args: args(cobra.ExactArgs(1)),
		Long: "Say what a call to a number, or a SIP URI, would cost: which decks are asked, what each says, and what calls of some lengths\n" +
			"cost. Inbound, the number is the one that is called. No call is made.",
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: opts.withClient(func(cmd *cobra.Command, c *client, positional []string) error {
			var item json.RawMessage
			query := parameters("number", positional[0], "customer", customer, "trunk", trunk, "direction", direction, "on", on)
			if err := c.get(cmd.Context(), "/rates/test", query, &item); err != nil {
				return err
			}
			if opts.output == outputJSON || opts.output == outputYAML {
				return opts.structured(cmd.OutOrStdout(), item)
			}
			read, err := decodeAll[rateAnswer]([]json.RawMessage{item})
			if err != nil {
				return err
			}
			return read[0].print(opts, cmd.OutOrStdout())
		}),
	}
	cmd.Flags().StringVar(&customer, "customer", "", "whose call it is")
	cmd.Flags().StringVar(&trunk, "trunk", "", "trunk that it goes over")
	cmd.Flags().StringVar(&direction, "direction", "", "outbound or inbound (default: outbound)")
	cmd.Flags().StringVar(&on, "on", "", "day or moment, such as 2026-02-01 (default: now)")
	complete(cmd, "direction", "outbound", "inbound")
	_ = cmd.RegisterFlagCompletionFunc("customer", opts.completeFlag("/customers", "id")) // it fails only for a flag that is not there
	_ = cmd.RegisterFlagCompletionFunc("trunk", opts.completeFlag("/trunks", "id"))
	return cmd
}

// completeFlag offers the named member of a list's items as the value of a flag.
func (o *options) completeFlag(path, member string) cobra.CompletionFunc {
	offer := o.completeItems(path, member)
	return func(cmd *cobra.Command, _ []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
		return offer(cmd, nil, typed)
	}
}

// print shows the decks that were asked, the price, and what calls cost at it.
func (a *rateAnswer) print(opts *options, w io.Writer) error {
	rows := [][]string{}
	for i := range a.Steps {
		rows = append(rows, a.Steps[i].row())
	}
	if a.Outcome == "configuration" {
		rows = append(rows, []string{"the configuration", "everybody", "rate", a.Price.Prefix, "", a.Price.PerMinute, a.Price.Connect, a.Price.billing()})
	}
	if err := opts.print(w, a, []string{"ASKED", "OF", "SAYS", "PREFIX", "DESTINATION", "PER MINUTE", "CONNECT", "BILLING"}, rows); err != nil || opts.output == outputName {
		return err
	}
	why := "no deck has a rate for the number: the configured price counts"
	if last := len(a.Steps) - 1; last >= 0 && a.Outcome != "configuration" {
		why = fmt.Sprintf("the deck %s decides: %s", a.Steps[last].Deck, a.Steps[last].Why)
	}
	if _, err := fmt.Fprintf(w, "\n%s\n", printable(why)); err != nil {
		return fmt.Errorf("print: %w", err)
	}
	if a.Price == nil {
		_, err := fmt.Fprintf(w, "%s %s on %s: refused\n", a.Direction, printable(a.Number), a.On)
		return err
	}
	if _, err := fmt.Fprintf(w, "%s %s on %s, in %s; an attempt that nobody answers: %s\n\n", a.Direction, printable(a.Number), a.On, a.Currency, a.Unanswered); err != nil {
		return fmt.Errorf("print: %w", err)
	}
	table := [][]string{{"SECONDS", "BILLED", "COST"}}
	for _, cost := range a.Costs {
		table = append(table, []string{strconv.Itoa(cost.Seconds), strconv.FormatInt(cost.Billed, 10), cost.Cost})
	}
	return writeTable(w, table)
}

func (s *rateStep) row() []string {
	row := []string{s.Deck, s.Of, s.Answer}
	if s.Rate == nil {
		return append(row, "", "", "", "", "")
	}
	return append(row, s.Rate.Prefix, s.Rate.Destination, s.Rate.PerMinute, s.Rate.Connect, s.Rate.billing())
}

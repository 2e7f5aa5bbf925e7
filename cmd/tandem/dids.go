package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
)

// didItem is a phone number as tables show one.
type didItem struct {
	ID            string  `json:"id"`
	CustomerID    string  `json:"customer_id"`
	ApplicationID *string `json:"application_id"`
	Number        string  `json:"number_e164"`
	Provider      string  `json:"provider"`
	Status        string  `json:"status"`
	RouteMode     string  `json:"route_mode"`
	SIPURI        *string `json:"sip_uri"`
	RejectCode    *int    `json:"reject_code"`
	UpdatedAt     string  `json:"updated_at"`
}

// route is where the number's calls go.
func (i *didItem) route() string {
	switch {
	case i.SIPURI != nil:
		return *i.SIPURI
	case i.RejectCode != nil:
		return strconv.Itoa(*i.RejectCode)
	default:
		return text(i.ApplicationID)
	}
}

var didsView = view[didItem]{
	name: func(i *didItem) string { return i.Number },
	columns: []column[didItem]{
		{title: "NUMBER", text: func(i *didItem) string { return i.Number }},
		{title: "CUSTOMER", text: func(i *didItem) string { return i.CustomerID }},
		{title: "STATUS", text: func(i *didItem) string { return i.Status }},
		{title: "MODE", text: func(i *didItem) string { return i.RouteMode }},
		{title: "ROUTE", text: func(i *didItem) string { return i.route() }},
		{title: "ID", wide: true, text: func(i *didItem) string { return i.ID }},
		{title: "PROVIDER", wide: true, text: func(i *didItem) string { return i.Provider }},
		{title: "CHANGED", wide: true, text: func(i *didItem) string { return i.UpdatedAt }},
	},
}

func newDIDs(opts *options) *cobra.Command {
	return group("dids", "Phone numbers of all customers",
		newDIDsList(opts), newDIDsGet(opts), newDIDsAdd(opts), newDIDsReassign(opts), newDIDsStatus(opts, "suspend", "suspended"),
		newDIDsStatus(opts, "activate", "active"), newDIDsRemove(opts), newDIDsTest(opts), newDIDsImport(opts), newDIDsImports(opts), newDIDsExport(opts))
}

// didFilter are the flags that choose numbers.
type didFilter struct{ customer, application, provider, status, mode, prefix string }

func (f *didFilter) register(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.customer, "customer", "", "only this customer's")
	cmd.Flags().StringVar(&f.application, "application", "", "only this application's")
	cmd.Flags().StringVar(&f.provider, "provider", "", "only this provider's")
	cmd.Flags().StringVar(&f.status, "status", "", "only those that are active or suspended")
	cmd.Flags().StringVar(&f.mode, "route-mode", "", "only those with the mode webhook, sip or reject")
	cmd.Flags().StringVar(&f.prefix, "prefix", "", "only those that begin so, such as +4930")
	complete(cmd, "status", "active", "suspended")
	complete(cmd, "route-mode", "webhook", "sip", "reject")
}

func (f *didFilter) query() url.Values {
	return parameters("customer_id", f.customer, "application_id", f.application, "provider", f.provider, "status", f.status, "route_mode", f.mode, "prefix", f.prefix)
}

// didRouting are the flags that say what numbers are to be.
type didRouting struct {
	customer, application, provider, status, mode, sipURI string
	rejectCode                                            int
}

func (f *didRouting) register(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.customer, "customer", "", "customer that the numbers belong to")
	cmd.Flags().StringVar(&f.application, "application", "", "application that handles their calls")
	cmd.Flags().StringVar(&f.provider, "provider", "", "name of their provider")
	cmd.Flags().StringVar(&f.status, "status", "", "active or suspended")
	cmd.Flags().StringVar(&f.mode, "route-mode", "", "webhook, sip or reject")
	cmd.Flags().StringVar(&f.sipURI, "sip-uri", "", "where calls go with the mode sip")
	cmd.Flags().IntVar(&f.rejectCode, "reject-code", 0, "SIP status with the mode reject")
	complete(cmd, "status", "active", "suspended")
	complete(cmd, "route-mode", "webhook", "sip", "reject")
}

// body is what was given.
func (f *didRouting) body() map[string]any {
	body := map[string]any{}
	for name, value := range map[string]string{
		"customer_id": f.customer, "application_id": f.application, "provider": f.provider, "status": f.status, "route_mode": f.mode, "sip_uri": f.sipURI,
	} {
		if value != "" {
			body[name] = value
		}
	}
	if f.rejectCode != 0 {
		body["reject_code"] = f.rejectCode
	}
	return body
}

func newDIDsList(opts *options) *cobra.Command {
	flags, filter := &listFlags{}, &didFilter{}
	cmd := &cobra.Command{
		Use: "ls", Aliases: []string{"list"}, Short: "List numbers, in their order", Args: args(cobra.NoArgs),
		RunE: opts.withClient(func(cmd *cobra.Command, c *client, _ []string) error {
			return runList(cmd, opts, c, flags, "/dids", filter.query, didsView)
		}),
	}
	flags.register(cmd, false)
	filter.register(cmd)
	return cmd
}

func newDIDsGet(opts *options) *cobra.Command {
	return &cobra.Command{
		Use: "get NUMBER", Short: "Show a number", Args: args(cobra.ExactArgs(1)),
		ValidArgsFunction: opts.completeItems("/dids", "number_e164"),
		RunE: opts.withClient(func(cmd *cobra.Command, c *client, positional []string) error {
			var item json.RawMessage
			if err := c.get(cmd.Context(), "/dids/by-number/"+segment(positional[0]), nil, &item); err != nil {
				return err
			}
			return show(opts, cmd.OutOrStdout(), didsView, item)
		}),
	}
}

// numbersHelp says how numbers are given.
const numbersHelp = "\n\nNUMBER is a number in E.164 form or a range such as +4930123400-+4930123499, in short +4930123400-99; - reads them from\n" +
	"standard input, one in a line."

// maxNumbers is how many numbers and ranges are sent at a time: the API takes 64 KiB.
const maxNumbers = 2000

// numbersOf returns the numbers that the arguments name.
func numbersOf(cmd *cobra.Command, positional []string) ([]string, error) {
	var numbers []string
	for _, argument := range positional {
		if argument != "-" {
			numbers = append(numbers, argument)
			continue
		}
		lines := bufio.NewScanner(cmd.InOrStdin())
		for lines.Scan() {
			if line := strings.TrimSpace(lines.Text()); line != "" {
				numbers = append(numbers, line)
			}
		}
		if err := lines.Err(); err != nil {
			return nil, fmt.Errorf("read numbers from standard input: %w", err)
		}
	}
	if len(numbers) == 0 {
		return nil, usage("standard input holds no number")
	}
	if len(numbers) > maxNumbers {
		return nil, usage("%d numbers and ranges are more than %d: import a file, or give ranges", len(numbers), maxNumbers)
	}
	return numbers, nil
}

// didsChanged is what became of many numbers.
type didsChanged struct {
	Created    int `json:"created"`
	Updated    int `json:"updated"`
	Reassigned int `json:"reassigned"`
	Unchanged  int `json:"unchanged"`
	Deleted    int `json:"deleted"`
}

var changedView = view[didsChanged]{
	name: func(*didsChanged) string { return "" },
	columns: []column[didsChanged]{
		{title: "CREATED", text: func(i *didsChanged) string { return strconv.Itoa(i.Created) }},
		{title: "UPDATED", text: func(i *didsChanged) string { return strconv.Itoa(i.Updated) }},
		{title: "REASSIGNED", text: func(i *didsChanged) string { return strconv.Itoa(i.Reassigned) }},
		{title: "UNCHANGED", text: func(i *didsChanged) string { return strconv.Itoa(i.Unchanged) }},
		{title: "DELETED", text: func(i *didsChanged) string { return strconv.Itoa(i.Deleted) }},
	},
}

// changeDIDs sends a change of many numbers and prints what became of them.
func changeDIDs(cmd *cobra.Command, opts *options, c *client, path string, body map[string]any) error {
	var item json.RawMessage
	if err := c.post(cmd.Context(), path, body, &item); err != nil {
		return err
	}
	return show(opts, cmd.OutOrStdout(), changedView, item)
}

func newDIDsAdd(opts *options) *cobra.Command {
	routing := &didRouting{}
	cmd := &cobra.Command{
		Use: "add NUMBER... --customer CUSTOMER_ID", Short: "Add numbers and ranges to a customer, all or none", Args: args(cobra.MinimumNArgs(1)),
		Long: "Add numbers and ranges to a customer: all or, where one exists, none." + numbersHelp,
		RunE: opts.withClient(func(cmd *cobra.Command, c *client, positional []string) error {
			numbers, err := numbersOf(cmd, positional)
			if err != nil {
				return err
			}
			body := routing.body()
			body["numbers"] = numbers
			return changeDIDs(cmd, opts, c, "/dids", body)
		}),
	}
	routing.register(cmd)
	_ = cmd.MarkFlagRequired("customer")
	return cmd
}

func newDIDsReassign(opts *options) *cobra.Command {
	routing := &didRouting{}
	cmd := &cobra.Command{
		Use: "reassign NUMBER...", Short: "Change the customer, the routing or the status of numbers, all or none", Args: args(cobra.MinimumNArgs(1)),
		Long: "Change the customer, the routing or the status of numbers: of all, or of none. What no flag names stays as it is. A number that\n" +
			"changes hands gets a new id and needs an application of its new customer's. Calls that are live go on." + numbersHelp,
		RunE: opts.withClient(func(cmd *cobra.Command, c *client, positional []string) error {
			numbers, err := numbersOf(cmd, positional)
			if err != nil {
				return err
			}
			body := routing.body()
			if len(body) == 0 {
				return usage("a flag is needed that says what is to change")
			}
			if routing.customer != "" {
				if err := opts.confirm(cmd.Context(), cmd, "Give %s to customer %s?", described(numbers), routing.customer); err != nil {
					return err
				}
			}
			body["numbers"] = numbers
			return changeDIDs(cmd, opts, c, "/dids/reassign", body)
		}),
	}
	routing.register(cmd)
	return cmd
}

// described names one number or range, or counts several.
func described(numbers []string) string {
	if len(numbers) == 1 {
		return numbers[0]
	}
	return fmt.Sprintf("%d numbers and ranges", len(numbers))
}

func newDIDsStatus(opts *options, verb, status string) *cobra.Command {
	short := "Have calls to numbers refused by the switch with SIP status 480"
	if status == "active" {
		short = "Let calls to suspended numbers in again"
	}
	return &cobra.Command{
		Use: verb + " NUMBER...", Short: short, Long: short + "." + numbersHelp, Args: args(cobra.MinimumNArgs(1)),
		RunE: opts.withClient(func(cmd *cobra.Command, c *client, positional []string) error {
			numbers, err := numbersOf(cmd, positional)
			if err != nil {
				return err
			}
			return changeDIDs(cmd, opts, c, "/dids/reassign", map[string]any{"numbers": numbers, "status": status})
		}),
	}
}

func newDIDsRemove(opts *options) *cobra.Command {
	return &cobra.Command{
		Use: "rm NUMBER...", Aliases: []string{"remove"}, Short: "Delete numbers; they are free again", Args: args(cobra.MinimumNArgs(1)),
		Long: "Delete numbers; they are free again. Calls that are live go on." + numbersHelp,
		RunE: opts.withClient(func(cmd *cobra.Command, c *client, positional []string) error {
			numbers, err := numbersOf(cmd, positional)
			if err != nil {
				return err
			}
			if err := opts.confirm(cmd.Context(), cmd, "Delete %s?", described(numbers)); err != nil {
				return err
			}
			return changeDIDs(cmd, opts, c, "/dids/release", map[string]any{"numbers": numbers})
		}),
	}
}

// outcomeItem is what becomes of a call.
type outcomeItem struct {
	Outcome   string  `json:"outcome"`
	SIPStatus *int    `json:"sip_status"`
	Phrase    *string `json:"phrase"`
	Target    *string `json:"target"`
}

// words is the outcome as a table shows it.
func (o *outcomeItem) words() string {
	switch {
	case o.SIPStatus != nil:
		return strings.TrimSpace(fmt.Sprintf("%s %d %s", o.Outcome, *o.SIPStatus, text(o.Phrase)))
	default:
		return strings.TrimSpace(o.Outcome + " " + text(o.Target))
	}
}

// didCase is a call from one address.
type didCase struct {
	FromIP  string      `json:"from_ip"`
	TrunkID *string     `json:"trunk_id"`
	Network *string     `json:"provider"`
	Result  outcomeItem `json:"result"`
	Without outcomeItem `json:"without_controller"`
	Why     []string    `json:"why"`
}

var casesView = view[didCase]{
	name: func(i *didCase) string { return i.Result.Outcome },
	columns: []column[didCase]{
		{title: "FROM", text: func(i *didCase) string { return i.FromIP }},
		{title: "TRUNK OR PROVIDER", text: func(i *didCase) string { return text(i.TrunkID) + text(i.Network) }},
		{title: "WHAT HAPPENS", text: func(i *didCase) string { return i.Result.words() }},
		{title: "WITHOUT A CONTROLLER", text: func(i *didCase) string { return i.Without.words() }},
	},
}

func newDIDsTest(opts *options) *cobra.Command {
	var from string
	cmd := &cobra.Command{
		Use: "test NUMBER", Short: "Say what would happen to a call to a number, and why", Args: args(cobra.ExactArgs(1)),
		Long: "Say what would happen to a call to a number, as dialed, and why: from the address given or, without one, from every provider and\n" +
			"every address of the trunks of the number's customer. No call is made: what the nodes are configured with is followed.",
		ValidArgsFunction: opts.completeItems("/dids", "number_e164"),
		RunE: opts.withClient(func(cmd *cobra.Command, c *client, positional []string) error {
			var answer json.RawMessage
			if err := c.get(cmd.Context(), "/dids/by-number/"+segment(positional[0])+"/test", parameters("from_ip", from), &answer); err != nil {
				return err
			}
			if opts.output == outputJSON || opts.output == outputYAML {
				return opts.structured(cmd.OutOrStdout(), answer)
			}
			var read struct {
				Cases []json.RawMessage `json:"cases"`
			}
			if err := json.Unmarshal(answer, &read); err != nil {
				return fmt.Errorf("read the answer: %w", err)
			}
			if len(read.Cases) == 0 {
				note(cmd, "nobody can call the number: there are no providers, and its customer has no inbound trunk; --from-ip tries an address")
				return nil
			}
			if err := showList(opts, cmd.OutOrStdout(), casesView, read.Cases); err != nil || opts.output == outputName {
				return err
			}
			return printWhy(cmd.OutOrStdout(), read.Cases)
		}),
	}
	cmd.Flags().StringVar(&from, "from-ip", "", "address that the INVITE comes from")
	return cmd
}

// printWhy prints the reasons of each case below the table.
func printWhy(w io.Writer, cases []json.RawMessage) error {
	read, err := decodeAll[didCase](cases)
	if err != nil {
		return err
	}
	for i := range read {
		if _, err := fmt.Fprintf(w, "\nfrom %s:\n", printable(read[i].FromIP)); err != nil {
			return fmt.Errorf("print: %w", err)
		}
		for _, reason := range read[i].Why {
			if _, err := fmt.Fprintf(w, "  %s\n", printable(reason)); err != nil {
				return fmt.Errorf("print: %w", err)
			}
		}
	}
	return nil
}

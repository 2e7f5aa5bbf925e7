package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// What flags of limits take for no limit, for every destination and for none.
const (
	limitNone      = "none"
	destinationAny = "any"
)

// limitFlags are the flags that set limits of a customer. Those that are not given change nothing.
type limitFlags struct {
	maxCalls, maxRate, perDay, spend, longest, requests string
	allow, deny, types                                  []string
}

func (f *limitFlags) register(set *pflag.FlagSet) {
	set.StringVar(&f.maxCalls, "max-calls", "", "calls and dialled parties at a time, or none")
	set.StringVar(&f.maxRate, "max-calls-per-second", "", "outbound calls and dialled parties that begin in a second, or none")
	set.StringVar(&f.perDay, "max-calls-per-day", "", "outbound calls and dialled parties that begin on a day (UTC), or none")
	set.StringVar(&f.spend, "max-spend-per-day", "", "what the calls of a day (UTC) may cost, in units of the currency, or none")
	set.StringVar(&f.longest, "max-call-seconds", "", "seconds that a call may last, or none for what the server is configured with")
	set.StringSliceVar(&f.allow, "allow", nil, "all destinations that may be called: prefixes (+44), countries (US), sip:HOST, sip:*; or any; or none")
	set.StringSliceVar(&f.deny, "deny", nil, "all destinations that may not be called all the same, or none")
	set.StringSliceVar(&f.types, "allow-types", nil, "all types of numbers that may be called of those that cost more: premium, satellite, shared_cost; or none")
	set.StringVar(&f.requests, "requests-per-minute", "", "requests to the API of each key in a minute, or none for what the server is configured with")
}

// fill puts what the flags say into the body of a request.
func (f *limitFlags) fill(set *pflag.FlagSet, body map[string]any) error {
	for _, number := range []struct{ flag, field, value string }{
		{"max-calls", "max_calls", f.maxCalls}, {"max-calls-per-second", "max_calls_per_second", f.maxRate}, {"requests-per-minute", "requests_per_minute", f.requests},
		{"max-calls-per-day", "max_calls_per_day", f.perDay}, {"max-call-seconds", "max_call_seconds", f.longest},
	} {
		if !set.Changed(number.flag) {
			continue
		}
		body[number.field] = nil
		if number.value != limitNone {
			n, err := strconv.Atoi(number.value)
			if err != nil || n < 1 {
				return usageError{fmt.Errorf("--%s must be a number from 1, or none", number.flag)}
			}
			body[number.field] = n
		}
	}
	if set.Changed("max-spend-per-day") {
		body["max_spend_per_day_micros"] = nil
		if f.spend != limitNone {
			micros, err := parseMicros(f.spend)
			if err != nil {
				return usageError{fmt.Errorf("--max-spend-per-day must be an amount from 0.000001, or none: %w", err)}
			}
			body["max_spend_per_day_micros"] = micros
		}
	}
	for _, list := range []struct {
		flag, field string
		value       []string
	}{{"allow", "allowed_destinations", f.allow}, {"deny", "denied_destinations", f.deny}, {"allow-types", "allowed_destination_types", f.types}} {
		if !set.Changed(list.flag) {
			continue
		}
		switch {
		case len(list.value) == 1 && list.value[0] == limitNone:
			body[list.field] = []string{}
		case len(list.value) == 1 && list.value[0] == destinationAny && list.flag == "allow":
			body[list.field] = nil
		default:
			body[list.field] = list.value
		}
	}
	return nil
}

// parseMicros reads an amount of more than nothing, with at most six decimals, in millionths.
func parseMicros(amount string) (int64, error) {
	whole, fraction, _ := strings.Cut(amount, ".")
	if whole == "" || len(fraction) > 6 {
		return 0, errors.New("such as 25.00, with at most six decimals")
	}
	micros, err := strconv.ParseUint(whole+fraction+strings.Repeat("0", 6-len(fraction)), 10, 63)
	if err != nil || micros == 0 {
		return 0, errors.New("such as 25.00, with at most six decimals")
	}
	return int64(micros), nil
}

// formatMicros is what parseMicros reads, without zeros that say nothing.
func formatMicros(micros int64) string {
	return strings.TrimSuffix(strings.TrimRight(fmt.Sprintf("%d.%06d", micros/1_000_000, micros%1_000_000), "0"), ".")
}

// limitsItem is the limits of a customer as tables show them.
type limitsItem struct {
	MaxCalls          *int      `json:"max_calls"`
	MaxCallsPerSecond *int      `json:"max_calls_per_second"`
	Allowed           *[]string `json:"allowed_destinations"`
	Denied            []string  `json:"denied_destinations"`
	RequestsPerMinute *int      `json:"requests_per_minute"`
	MaxCallsPerDay    *int      `json:"max_calls_per_day"`
	MaxSpendPerDay    *int64    `json:"max_spend_per_day_micros"`
	MaxCallSeconds    *int      `json:"max_call_seconds"`
	AllowedTypes      []string  `json:"allowed_destination_types"`
}

func (i *limitsItem) spend() string {
	if i.MaxSpendPerDay == nil {
		return limitNone
	}
	return formatMicros(*i.MaxSpendPerDay)
}

func bound(n *int, without string) string {
	if n == nil {
		return without
	}
	return strconv.Itoa(*n)
}

func (i *limitsItem) allowed() string {
	switch {
	case i.Allowed == nil:
		return destinationAny
	case len(*i.Allowed) == 0:
		return limitNone
	default:
		return strings.Join(*i.Allowed, " ")
	}
}

var limitsView = view[limitsItem]{
	name: (*limitsItem).allowed,
	columns: []column[limitsItem]{
		{title: "MAX CALLS", text: func(i *limitsItem) string { return bound(i.MaxCalls, limitNone) }},
		{title: "PER SECOND", text: func(i *limitsItem) string { return bound(i.MaxCallsPerSecond, limitNone) }},
		{title: "PER DAY", text: func(i *limitsItem) string { return bound(i.MaxCallsPerDay, limitNone) }},
		{title: "SPEND/DAY", text: (*limitsItem).spend},
		{title: "SECONDS", text: func(i *limitsItem) string { return bound(i.MaxCallSeconds, "default") }},
		{title: "REQUESTS/MIN", text: func(i *limitsItem) string { return bound(i.RequestsPerMinute, "default") }},
		{title: "ALLOWED", text: (*limitsItem).allowed},
		{title: "DENIED", text: func(i *limitsItem) string { return strings.Join(i.Denied, " ") }},
		{title: "TYPES", text: func(i *limitsItem) string { return strings.Join(i.AllowedTypes, " ") }},
	},
}

func newCustomersLimits(opts *options) *cobra.Command {
	flags := &limitFlags{}
	cmd := &cobra.Command{
		Use: "limits CUSTOMER_ID", Short: "Show, or change, how many calls a customer may have and where they may go",
		Long: "limits shows the limits of a customer, after changing those that flags name. --allow and --deny replace the whole list. Of all entries that fit a\n" +
			"number the longest counts; of two that are as long, that of --deny. A country means its own numbers: US has no +1 809. Premium,\n" +
			"satellite and shared-cost numbers are called only where --allow-types names them. What lives is not cut.",
		Example: "  tandem customers limits cust_… --allow US,CA,+44 --deny +1900 --max-calls 50 --max-calls-per-second 5 --max-spend-per-day 250\n" +
			"  tandem customers limits cust_… --allow any --max-calls none",
		Args:              args(cobra.ExactArgs(1)),
		ValidArgsFunction: opts.completeItems("/customers", "id"),
		RunE: opts.withClient(func(cmd *cobra.Command, c *client, positional []string) error {
			body := map[string]any{}
			if err := flags.fill(cmd.Flags(), body); err != nil {
				return err
			}
			path := "/customers/" + segment(positional[0]) + "/limits"
			var limits json.RawMessage
			if len(body) == 0 {
				if err := c.get(cmd.Context(), path, nil, &limits); err != nil {
					return err
				}
			} else if err := c.patch(cmd.Context(), path, body, &limits); err != nil {
				return err
			}
			if len(limits) == 0 {
				return errors.New("the server answered nothing")
			}
			return show(opts, cmd.OutOrStdout(), limitsView, limits)
		}),
	}
	flags.register(cmd.Flags())
	return cmd
}

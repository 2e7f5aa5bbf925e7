package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"time"

	"github.com/spf13/cobra"
)

// callItem is a call as tables show one.
type callItem struct {
	ID            string  `json:"id"`
	CustomerID    string  `json:"customer_id"`
	ApplicationID string  `json:"application_id"`
	TrunkID       *string `json:"trunk_id"`
	NodeName      *string `json:"node_name"`
	ChannelID     *string `json:"channel_id"`
	Direction     string  `json:"direction"`
	Status        string  `json:"status"`
	From          string  `json:"from"`
	To            string  `json:"to"`
	Reason        *string `json:"reason"`
	SIPCode       *int    `json:"sip_code"`
	BilledSeconds int     `json:"billed_seconds"`
	CostMicros    int64   `json:"cost_micros"`
	CreatedAt     string  `json:"created_at"`
	AnsweredAt    *string `json:"answered_at"`
	EndedAt       *string `json:"ended_at"`
}

// age is how long the call has been, or was.
func (i *callItem) age() string {
	begun, err := time.Parse(time.RFC3339, i.CreatedAt)
	if err != nil {
		return ""
	}
	end := time.Now()
	if i.EndedAt != nil {
		if end, err = time.Parse(time.RFC3339, *i.EndedAt); err != nil {
			return ""
		}
	}
	return max(0, end.Sub(begun)).Round(time.Second).String()
}

func (i *callItem) outcome() string {
	if i.Reason == nil {
		return ""
	}
	if i.SIPCode != nil {
		return fmt.Sprintf("%s (%d)", *i.Reason, *i.SIPCode)
	}
	return *i.Reason
}

var callView = view[callItem]{
	name: func(i *callItem) string { return i.ID },
	columns: []column[callItem]{
		{title: "ID", text: func(i *callItem) string { return i.ID }},
		{title: "STATUS", text: func(i *callItem) string { return i.Status }},
		{title: "DIRECTION", wide: true, text: func(i *callItem) string { return i.Direction }},
		{title: "FROM", text: func(i *callItem) string { return i.From }},
		{title: "TO", text: func(i *callItem) string { return i.To }},
		{title: "NODE", text: func(i *callItem) string { return text(i.NodeName) }},
		{title: "AGE", text: (*callItem).age},
		{title: "REASON", text: (*callItem).outcome},
		{title: "BILLED S", wide: true, text: func(i *callItem) string { return fmt.Sprint(i.BilledSeconds) }},
		{title: "CUSTOMER", wide: true, text: func(i *callItem) string { return i.CustomerID }},
		{title: "APPLICATION", wide: true, text: func(i *callItem) string { return i.ApplicationID }},
		{title: "TRUNK", wide: true, text: func(i *callItem) string { return text(i.TrunkID) }},
		{title: "CHANNEL", wide: true, text: func(i *callItem) string { return text(i.ChannelID) }},
		{title: "CREATED", wide: true, text: func(i *callItem) string { return i.CreatedAt }},
	},
}

// callFilter are the flags that choose calls.
type callFilter struct {
	customer, application, trunk, node, from, to, status, direction string
	live, ended                                                     bool
}

func (f *callFilter) register(cmd *cobra.Command, o *options) {
	flags := cmd.Flags()
	flags.StringVar(&f.customer, "customer", "", "only this customer's")
	flags.StringVar(&f.application, "application", "", "only this application's")
	flags.StringVar(&f.trunk, "trunk", "", "only over this trunk")
	flags.StringVar(&f.node, "node", "", "only on this node")
	flags.StringVar(&f.from, "from", "", "only from this number")
	flags.StringVar(&f.to, "to", "", "only to this number")
	flags.StringVar(&f.direction, "direction", "", "only inbound, or only outbound")
	complete(cmd, "direction", "inbound", "outbound")
	for flag, list := range map[string][2]string{"customer": {"/customers", "id"}, "node": {"/nodes", "name"}} {
		_ = cmd.RegisterFlagCompletionFunc(flag, func(cmd *cobra.Command, _ []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
			return o.completeItems(list[0], list[1])(cmd, nil, typed)
		})
	}
}

// registerStates adds the flags that choose calls by how they stand.
func (f *callFilter) registerStates(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.status, "status", "", "only of this status, such as in_progress or failed")
	cmd.Flags().BoolVar(&f.live, "live", false, "only calls that have not ended")
	cmd.Flags().BoolVar(&f.ended, "ended", false, "only calls that have ended")
	cmd.MarkFlagsMutuallyExclusive("live", "ended")
	complete(cmd, "status", "queued", "dialing", "ringing", "in_progress", "completed", "busy", "no_answer", "rejected", "canceled", "failed")
}

// filterFlags are the flags that register adds.
var filterFlags = []string{"customer", "application", "trunk", "node", "from", "to", "direction"}

// chooses reports whether the filter leaves anything out.
func (f *callFilter) chooses() bool {
	return f.customer != "" || f.application != "" || f.trunk != "" || f.node != "" || f.from != "" || f.to != "" || f.direction != ""
}

func (f *callFilter) query() url.Values {
	state := ""
	if f.live {
		state = "live"
	}
	if f.ended {
		state = "ended"
	}
	return parameters("customer_id", f.customer, "application_id", f.application, "trunk_id", f.trunk, "node", f.node, "from", f.from, "to", f.to,
		"status", f.status, "direction", f.direction, "state", state)
}

func newCalls(opts *options) *cobra.Command {
	return group("calls", "Calls of all customers",
		newCallsList(opts), newCallsGet(opts), newCallsWatch(opts), newCallsTrace(opts), newCallsHangup(opts), newCallsReap(opts))
}

func newCallsList(opts *options) *cobra.Command {
	filter, flags := &callFilter{}, &listFlags{}
	cmd := &cobra.Command{
		Use: "ls", Aliases: []string{"list"}, Short: "List calls, newest first", Args: args(cobra.NoArgs),
		RunE: opts.withClient(func(cmd *cobra.Command, c *client, _ []string) error {
			return runList(cmd, opts, c, flags, "/calls", filter.query, callView)
		}),
	}
	filter.register(cmd, opts)
	filter.registerStates(cmd)
	flags.register(cmd, true)
	return cmd
}

func newCallsWatch(opts *options) *cobra.Command {
	filter, flags := &callFilter{live: true}, &listFlags{watch: true, limit: pageLimit}
	cmd := &cobra.Command{
		Use: "watch", Short: "Watch the live calls",
		Long: "watch shows the live calls anew every --interval on a terminal. Elsewhere it prints a line for each call that is new\n" +
			"or has changed; with -o json an object in a line. It ends with Ctrl-C.",
		Args: args(cobra.NoArgs),
		RunE: opts.withClient(func(cmd *cobra.Command, c *client, _ []string) error {
			return runList(cmd, opts, c, flags, "/calls", filter.query, callView)
		}),
	}
	filter.register(cmd, opts)
	cmd.Flags().IntVar(&flags.limit, "limit", pageLimit, "how many at most, newest first")
	cmd.Flags().DurationVar(&flags.interval, "interval", time.Second, "how often to look")
	return cmd
}

func newCallsGet(opts *options) *cobra.Command {
	return &cobra.Command{
		Use: "get CALL_ID", Short: "Show a call", Args: args(cobra.ExactArgs(1)),
		ValidArgsFunction: opts.completeItems("/calls", "id"),
		RunE: opts.withClient(func(cmd *cobra.Command, c *client, positional []string) error {
			var found json.RawMessage
			if err := c.get(cmd.Context(), "/calls/"+segment(positional[0]), nil, &found); err != nil {
				return err
			}
			return show(opts, cmd.OutOrStdout(), callView, found)
		}),
	}
}

func newCallsHangup(opts *options) *cobra.Command {
	filter := &callFilter{live: true}
	var all, dry bool
	cmd := &cobra.Command{
		Use:   "hangup [CALL_ID…]",
		Short: "End live calls",
		Long: "hangup ends the calls that are named, or the live ones that --customer, --application, --trunk, --node, --from,\n" +
			"--to and --direction choose; --all means every live call of the installation. It asks before it does, with how\n" +
			"many there are; --dry-run only lists them. Their final events tell when they have ended.",
		Args: args(cobra.ArbitraryArgs), ValidArgsFunction: opts.completeItems("/calls", "id"),
		RunE: opts.withClient(func(cmd *cobra.Command, c *client, ids []string) error {
			for _, flag := range filterFlags {
				if given := cmd.Flags().Lookup(flag); given.Changed && given.Value.String() == "" {
					return usage("--%s is empty: it would choose more calls than are meant", flag)
				}
			}
			if chosen := filter.chooses() || all; chosen == (len(ids) > 0) {
				return usage("name calls, or choose live ones by flags (--all for every one)")
			}
			calls, err := callsToEnd(cmd.Context(), c, filter, ids)
			if err != nil {
				return err
			}
			if len(calls) == 0 {
				note(cmd, "there is no such live call")
				return nil
			}
			if dry {
				return showList(opts, cmd.OutOrStdout(), callView, calls)
			}
			return hangUp(cmd, opts, c, calls)
		}),
	}
	filter.register(cmd, opts)
	cmd.Flags().BoolVar(&all, "all", false, "every live call")
	cmd.Flags().BoolVar(&dry, "dry-run", false, "list the calls and end none")
	return cmd
}

// callsToEnd reads the calls that are named, or the live ones that the filter chooses.
func callsToEnd(ctx context.Context, c *client, filter *callFilter, ids []string) ([]json.RawMessage, error) {
	if len(ids) == 0 {
		calls, _, err := c.list(ctx, "/calls", filter.query(), 0)
		return calls, err
	}
	calls := make([]json.RawMessage, len(ids))
	for i, id := range ids {
		if err := c.get(ctx, "/calls/"+segment(id), nil, &calls[i]); err != nil {
			return nil, fmt.Errorf("%s: %w", id, err)
		}
	}
	return calls, nil
}

// hangUp ends calls, after asking. One that has ended meanwhile is no failure.
func hangUp(cmd *cobra.Command, opts *options, c *client, calls []json.RawMessage) error {
	read, err := decodeAll[callItem](calls)
	if err != nil {
		return err
	}
	question := fmt.Sprintf("End %d live calls?", len(read))
	if len(read) == 1 {
		question = fmt.Sprintf("End call %s, %s -> %s (%s)?", read[0].ID, read[0].From, read[0].To, read[0].Status)
	}
	if err := opts.confirm(cmd.Context(), cmd, "%s", question); err != nil {
		return err
	}
	bar := opts.newProgress(cmd, "ending calls", int64(len(read)))
	var ended []json.RawMessage
	var failures []error
	for i := range read {
		var answer json.RawMessage
		err := c.post(cmd.Context(), "/calls/"+segment(read[i].ID)+"/hangup", nil, &answer)
		switch {
		case err == nil:
			ended = append(ended, answer)
		case !refusedAs(err, "call_not_active"):
			failures = append(failures, fmt.Errorf("%s: %w", read[i].ID, err))
		}
		if cmd.Context().Err() != nil {
			break
		}
		bar.at(int64(i + 1))
	}
	bar.finish()
	if err := showList(opts, cmd.OutOrStdout(), callView, ended); err != nil {
		return err
	}
	if over := len(read) - len(ended) - len(failures); over > 0 {
		note(cmd, "%d had ended already", over)
	}
	if len(failures) > 0 {
		return fmt.Errorf("%d of %d calls were not ended: %w", len(failures), len(read), errors.Join(failures[:min(3, len(failures))]...))
	}
	return nil
}

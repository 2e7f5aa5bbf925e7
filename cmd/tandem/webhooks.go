package main

import (
	"encoding/json"
	"fmt"
	"net/url"
	"time"

	"github.com/spf13/cobra"
)

// deliveryItem is the delivery of an event as tables show one.
type deliveryItem struct {
	ID            string        `json:"id"`
	Type          string        `json:"type"`
	ApplicationID string        `json:"application_id"`
	CustomerID    string        `json:"customer_id"`
	SubjectID     string        `json:"subject_id"`
	State         string        `json:"state"`
	Redelivered   bool          `json:"redelivered"`
	AttemptCount  int           `json:"attempt_count"`
	LastStatus    *int          `json:"last_status"`
	NextAttemptAt *string       `json:"next_attempt_at"`
	CreatedAt     string        `json:"created_at"`
	Attempts      []attemptItem `json:"attempts"`
}

// attemptItem is one request to a webhook_url.
type attemptItem struct {
	Number    int     `json:"number"`
	StartedAt string  `json:"started_at"`
	LatencyMS float64 `json:"latency_ms"`
	Status    *int    `json:"status"`
	Error     *string `json:"error"`
	Response  string  `json:"response"`
}

// number is what a number says that may be null.
func number(value *int) string {
	if value == nil {
		return ""
	}
	return fmt.Sprint(*value)
}

var deliveryView = view[deliveryItem]{
	name: func(i *deliveryItem) string { return i.ID },
	columns: []column[deliveryItem]{
		{title: "EVENT", text: func(i *deliveryItem) string { return i.ID }},
		{title: "TYPE", text: func(i *deliveryItem) string { return i.Type }},
		{title: "ABOUT", text: func(i *deliveryItem) string { return i.SubjectID }},
		{title: "STATE", text: func(i *deliveryItem) string { return i.State }},
		{title: "ATTEMPTS", text: func(i *deliveryItem) string { return fmt.Sprint(i.AttemptCount) }},
		{title: "LAST", text: func(i *deliveryItem) string { return number(i.LastStatus) }},
		{title: "NEXT", text: func(i *deliveryItem) string { return text(i.NextAttemptAt) }},
		{title: "CREATED", wide: true, text: func(i *deliveryItem) string { return i.CreatedAt }},
		{title: "APPLICATION", wide: true, text: func(i *deliveryItem) string { return i.ApplicationID }},
		{title: "CUSTOMER", wide: true, text: func(i *deliveryItem) string { return i.CustomerID }},
	},
}

var attemptView = view[attemptItem]{
	name: func(i *attemptItem) string { return fmt.Sprint(i.Number) },
	columns: []column[attemptItem]{
		{title: "ATTEMPT", text: func(i *attemptItem) string { return fmt.Sprint(i.Number) }},
		{title: "AT", text: func(i *attemptItem) string { return i.StartedAt }},
		{title: "TOOK", text: func(i *attemptItem) string { return fmt.Sprintf("%.0f ms", i.LatencyMS) }},
		{title: "STATUS", text: func(i *attemptItem) string { return number(i.Status) }},
		{title: "ERROR", text: func(i *attemptItem) string { return text(i.Error) }},
		{title: "ANSWER", wide: true, text: func(i *attemptItem) string { return i.Response }},
	},
}

func newWebhooks(opts *options) *cobra.Command {
	return group("webhooks", "Deliveries of events to the applications of all customers",
		newWebhooksList(opts), newWebhooksGet(opts), newWebhooksRedeliver(opts))
}

func newWebhooksList(opts *options) *cobra.Command {
	flags := &listFlags{}
	var customer, application, call, state, kind string
	cmd := &cobra.Command{
		Use: "ls", Aliases: []string{"list"}, Short: "List deliveries, those of the newest events first", Args: args(cobra.NoArgs),
		RunE: opts.withClient(func(cmd *cobra.Command, c *client, _ []string) error {
			return runList(cmd, opts, c, flags, "/webhook-deliveries", func() url.Values {
				return parameters("customer_id", customer, "application_id", application, "call_id", call, "state", state, "type", kind)
			}, deliveryView)
		}),
	}
	flags.register(cmd, true)
	cmd.Flags().StringVar(&customer, "customer", "", "only this customer's")
	cmd.Flags().StringVar(&application, "application", "", "only this application's")
	cmd.Flags().StringVar(&call, "call", "", "only of events of this call")
	cmd.Flags().StringVar(&state, "state", "", "only pending, delivered, dead or skipped ones")
	cmd.Flags().StringVar(&kind, "type", "", "only these kinds of events: names or families, separated by commas")
	complete(cmd, "state", "pending", "delivered", "dead", "skipped")
	return cmd
}

func newWebhooksGet(opts *options) *cobra.Command {
	return &cobra.Command{
		Use: "get EVENT_ID", Short: "Show the delivery of an event with every attempt", Args: args(cobra.ExactArgs(1)),
		RunE: opts.withClient(func(cmd *cobra.Command, c *client, positional []string) error {
			var found json.RawMessage
			if err := c.get(cmd.Context(), "/webhook-deliveries/"+segment(positional[0]), nil, &found); err != nil {
				return err
			}
			if err := show(opts, cmd.OutOrStdout(), deliveryView, found); err != nil || opts.output != outputTable && opts.output != outputWide {
				return err
			}
			read, err := decodeAll[deliveryItem]([]json.RawMessage{found})
			if err != nil || len(read[0].Attempts) == 0 {
				return err
			}
			if _, err := fmt.Fprintln(cmd.OutOrStdout()); err != nil {
				return fmt.Errorf("print: %w", err)
			}
			return attemptView.table(cmd.OutOrStdout(), opts.output == outputWide, true, read[0].Attempts)
		}),
	}
}

func newWebhooksRedeliver(opts *options) *cobra.Command {
	var application, state, kind, call string
	var since time.Duration
	cmd := &cobra.Command{
		Use:   "redeliver [EVENT_ID…]",
		Short: "Deliver events again, under the same ids",
		Long: "redeliver delivers the events that are named again, or all dead ones of --application; --state skipped takes\n" +
			"those that came while there was no webhook_url. Receivers know a repetition by its webhook-id.",
		Args: args(cobra.ArbitraryArgs),
		RunE: opts.withClient(func(cmd *cobra.Command, c *client, ids []string) error {
			if (len(ids) > 0) == (application != "") {
				return usage("name events, or --application")
			}
			if since < 0 {
				return usage("--since must not be negative, was %s", since)
			}
			if len(ids) > 0 {
				return redeliverNamed(cmd, opts, c, ids)
			}
			body := map[string]any{"application_id": application, "state": state}
			for name, value := range map[string]string{"type": kind, "call_id": call} {
				if value != "" {
					body[name] = value
				}
			}
			if since > 0 {
				body["created_after"] = time.Now().Add(-since).UTC().Format(time.RFC3339)
			}
			if err := opts.confirm(cmd.Context(), cmd, "Deliver all %s events of application %s again?", state, application); err != nil {
				return err
			}
			return redeliverAll(cmd, opts, c, body)
		}),
	}
	cmd.Flags().StringVar(&application, "application", "", "the application whose events are delivered again")
	cmd.Flags().StringVar(&state, "state", "dead", "dead or skipped ones")
	cmd.Flags().StringVar(&kind, "type", "", "only these kinds of events: names or families, separated by commas")
	cmd.Flags().StringVar(&call, "call", "", "only events of this call")
	cmd.Flags().DurationVar(&since, "since", 0, "only events of that long ago or less, such as 24h")
	complete(cmd, "state", "dead", "skipped")
	return cmd
}

func redeliverNamed(cmd *cobra.Command, opts *options, c *client, ids []string) error {
	var queued []json.RawMessage
	for _, id := range ids {
		var answer json.RawMessage
		if err := c.post(cmd.Context(), "/webhook-deliveries/"+segment(id)+"/redeliver", nil, &answer); err != nil {
			return fmt.Errorf("%s: %w", id, err)
		}
		queued = append(queued, answer)
	}
	return showList(opts, cmd.OutOrStdout(), deliveryView, queued)
}

// redeliverAll asks again and again until there are none left.
func redeliverAll(cmd *cobra.Command, opts *options, c *client, body map[string]any) error {
	bar := opts.newProgress(cmd, "redelivering", 0)
	total := int64(0)
	for {
		var answer struct {
			Count   int64 `json:"count"`
			HasMore bool  `json:"has_more"`
		}
		if err := c.post(cmd.Context(), "/webhook-deliveries/redeliver", body, &answer); err != nil {
			return fmt.Errorf("after %d events: %w", total, err)
		}
		total += answer.Count
		bar.at(total)
		if !answer.HasMore {
			break
		}
	}
	bar.finish()
	return opts.print(cmd.OutOrStdout(), map[string]int64{"count": total}, []string{"DELIVERED AGAIN"}, [][]string{{fmt.Sprint(total)}})
}

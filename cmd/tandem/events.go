package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"time"

	"github.com/spf13/cobra"
)

// eventItem is an event as it is shown.
type eventItem struct {
	ID        string          `json:"id"`
	Type      string          `json:"type"`
	CreatedAt string          `json:"created_at"`
	Call      *callItem       `json:"call"`
	Data      json.RawMessage `json:"data"`
}

// about is what the event tells of, in a few words.
func (i *eventItem) about() string {
	if i.Call != nil {
		return fmt.Sprintf("%s %s -> %s %s", i.Call.ID, i.Call.From, i.Call.To, i.Call.Status)
	}
	var data struct {
		Trunk struct {
			ID   string `json:"id"`
			Name string `json:"name"`
		} `json:"trunk"`
	}
	if json.Unmarshal(i.Data, &data) == nil && data.Trunk.ID != "" {
		return data.Trunk.ID + " " + data.Trunk.Name
	}
	return ""
}

func newEvents(opts *options) *cobra.Command {
	return group("events", "The journal of all customers", newEventsTail(opts))
}

func newEventsTail(opts *options) *cobra.Command {
	var customer, application, call, kind, from string
	var since, interval time.Duration
	var once bool
	cmd := &cobra.Command{
		Use:   "tail",
		Short: "Print events as they happen",
		Long: "tail follows the journal: the events of all calls, trunks and applications, one in a line, none missed and none\n" +
			"twice, from now on or from --since. With -o json an event in a line, as webhooks carry it. It ends with Ctrl-C, and\n" +
			"with --once when it has printed what there is.",
		Args: args(cobra.NoArgs),
		RunE: opts.withClient(func(cmd *cobra.Command, c *client, _ []string) error {
			switch {
			case since < 0:
				return usage("--since must not be negative, was %s", since)
			case interval < 200*time.Millisecond:
				return usage("--interval must be at least 200ms, was %s", interval)
			case from != "" && since > 0:
				return usage("give --from or --since, not both")
			}
			query := parameters("customer_id", customer, "application_id", application, "call_id", call, "type", kind, "cursor", from)
			switch {
			case since > 0:
				query.Set("created_after", time.Now().Add(-since).UTC().Format(time.RFC3339))
			case from == "" && !once:
				query.Set("cursor", "now")
			}
			return tail(cmd, opts, c, query, interval, once)
		}),
	}
	cmd.Flags().StringVar(&customer, "customer", "", "only this customer's")
	cmd.Flags().StringVar(&application, "application", "", "only this application's")
	cmd.Flags().StringVar(&call, "call", "", "only this call's")
	cmd.Flags().StringVar(&kind, "type", "", "only these kinds: names or families such as call.*, separated by commas")
	cmd.Flags().DurationVar(&since, "since", 0, "begin with what happened that long ago, such as 10m")
	cmd.Flags().StringVar(&from, "from", "", "begin behind a cursor that an earlier run printed")
	cmd.Flags().DurationVar(&interval, "interval", time.Second, "how often to look")
	cmd.Flags().BoolVar(&once, "once", false, "print what there is, the oldest first, and end")
	return cmd
}

// tail follows the journal until it is stopped, and then says where it was.
func tail(cmd *cobra.Command, opts *options, c *client, query url.Values, interval time.Duration, once bool) error {
	ctx := cmd.Context()
	query.Set("limit", fmt.Sprint(pageLimit))
	defer func() {
		if cursor := query.Get("cursor"); cursor != "" && cursor != "now" {
			note(cmd, "go on with --from %s", cursor)
		}
	}()
	gone := false
	for {
		var page listing
		err := c.get(ctx, "/events", query, &page)
		switch {
		case stopped(ctx):
			return nil
		case err != nil && (!away(err) || once):
			return err
		case err != nil && !gone:
			note(cmd, "waiting for the API: %v", err)
		case err == nil && gone:
			note(cmd, "the API is back")
		}
		if gone = err != nil; !gone {
			for _, event := range page.Data {
				if err := printEvent(opts, cmd.OutOrStdout(), event); err != nil {
					return err
				}
			}
			if page.NextCursor != nil {
				query.Set("cursor", *page.NextCursor)
			}
			if page.HasMore {
				continue
			}
			if once {
				return nil
			}
		}
		if !wait(ctx, interval) {
			return nil
		}
	}
}

func printEvent(opts *options, w io.Writer, raw json.RawMessage) error {
	var err error
	switch opts.output {
	case outputJSON:
		_, err = fmt.Fprintf(w, "%s\n", raw)
	case outputYAML:
		if _, err = fmt.Fprintln(w, "---"); err == nil {
			err = opts.structured(w, raw)
		}
	default:
		var event eventItem
		if err := json.Unmarshal(raw, &event); err != nil {
			return fmt.Errorf("the server answered something that this version does not understand: %w", err)
		}
		if opts.output == outputName {
			_, err = fmt.Fprintln(w, printable(event.ID))
			break
		}
		line := fmt.Sprintf("%s  %-24s %s", printable(event.CreatedAt), printable(event.Type), printable(event.about()))
		if opts.output == outputWide {
			line += "  " + event.ID
		}
		_, err = fmt.Fprintln(w, line)
	}
	if err != nil {
		return fmt.Errorf("print an event: %w", err)
	}
	return nil
}

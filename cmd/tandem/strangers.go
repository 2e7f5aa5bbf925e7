package main

import (
	"net/url"
	"strconv"
	"time"

	"github.com/spf13/cobra"
)

// strangerItem is a source of refused calls as tables show one.
type strangerItem struct {
	Source        string     `json:"source"`
	Uninvited     int64      `json:"uninvited"`
	UnknownNumber int64      `json:"unknown_number"`
	KnownAs       *string    `json:"known_as"`
	FirstSeenAt   string     `json:"first_seen_at"`
	LastSeenAt    string     `json:"last_seen_at"`
	Number        string     `json:"number"`
	UserAgent     *string    `json:"user_agent"`
	Block         *blockItem `json:"block"`
}

var strangerView = view[strangerItem]{
	name: func(i *strangerItem) string { return i.Source },
	columns: []column[strangerItem]{
		{title: "SOURCE", text: func(i *strangerItem) string { return i.Source }},
		{title: "UNINVITED", text: func(i *strangerItem) string { return strconv.FormatInt(i.Uninvited, 10) }},
		{title: "UNKNOWN NUMBER", text: func(i *strangerItem) string { return strconv.FormatInt(i.UnknownNumber, 10) }},
		{title: "KNOWN AS", text: func(i *strangerItem) string { return text(i.KnownAs) }},
		{title: "FIRST SEEN", wide: true, text: func(i *strangerItem) string { return i.FirstSeenAt }},
		{title: "LAST SEEN", text: func(i *strangerItem) string { return i.LastSeenAt }},
		{title: "DIALLED", text: func(i *strangerItem) string { return i.Number }},
		{title: "USER AGENT", wide: true, text: func(i *strangerItem) string { return text(i.UserAgent) }},
		{title: "BLOCKED", text: func(i *strangerItem) string {
			if i.Block == nil {
				return ""
			}
			return i.Block.until()
		}},
	},
}

func newStrangers(opts *options) *cobra.Command {
	return group("strangers", "Whose calls were refused, by source", newStrangersList(opts))
}

func newStrangersList(opts *options) *cobra.Command {
	flags := &listFlags{}
	var sort, source, node string
	var known, unknown bool
	var seen time.Duration
	cmd := &cobra.Command{
		Use: "ls", Aliases: []string{"list"}, Short: "List the sources of refused calls, the latest first", Args: args(cobra.NoArgs),
		Long: "A source is an IPv4 address, or the /64 of an IPv6 address. UNINVITED are calls from addresses that belong to nobody;\n" +
			"UNKNOWN NUMBER are calls from known addresses to numbers that are not theirs. Calls of blocked addresses are not in it.",
		RunE: opts.withClient(func(cmd *cobra.Command, c *client, _ []string) error {
			if seen < 0 {
				return usage("--seen must not be negative, was %s", seen)
			}
			return runList(cmd, opts, c, flags, "/strangers", func() url.Values {
				query := url.Values{}
				for name, value := range map[string]string{"sort": sort, "source": source, "node": node} {
					if value != "" {
						query.Set(name, value)
					}
				}
				if known || unknown {
					query.Set("known", strconv.FormatBool(known))
				}
				if seen > 0 {
					query.Set("seen_after", time.Now().Add(-seen).UTC().Format(time.RFC3339))
				}
				return query
			}, strangerView)
		}),
	}
	flags.register(cmd, false)
	cmd.Flags().StringVar(&sort, "sort", "last_seen", "last_seen or count: who called last, or most, first")
	cmd.Flags().StringVar(&source, "source", "", "one IP address")
	cmd.Flags().StringVar(&node, "node", "", "what one node refused, by its name")
	cmd.Flags().BoolVar(&known, "known", false, "only addresses that are somebody's")
	cmd.Flags().BoolVar(&unknown, "unknown", false, "only addresses that are nobody's")
	cmd.Flags().DurationVar(&seen, "seen", 0, "only what called that long ago or less, such as 1h")
	cmd.MarkFlagsMutuallyExclusive("known", "unknown")
	complete(cmd, "sort", "last_seen", "count")
	completion(cmd, "node", func(cmd *cobra.Command) []string {
		found, _ := opts.completeItems("/nodes", "name")(cmd, nil, "")
		return found
	})
	return cmd
}

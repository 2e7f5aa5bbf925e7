package main

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// showing are the commands of FreeSWITCH that only show something; the others are asked about before they are sent.
var showing = []string{
	"status", "show", "version", "uptime", "hostname", "help", "module_exists", "global_getvar", "uuid_dump", "uuid_exists", "uuid_getvar", "sofia status",
	"sofia xmlstatus", "sofia global_getvar", "acl", "fsctl pause_check", "fsctl sps_peak_max", "conference list", "conference json_list",
}

// onlyShows says whether a command is one of those.
func onlyShows(command string) bool {
	words := strings.Join(strings.Fields(command), " ") + " "
	for _, known := range showing {
		if strings.HasPrefix(words, known+" ") {
			return true
		}
	}
	return false
}

func newNodesExec(opts *options) *cobra.Command {
	var patience time.Duration
	cmd := &cobra.Command{
		Use:   "exec NAME COMMAND...",
		Short: "Tell a node's switch a command, as fs_cli does",
		Long: "exec has the controller that holds the node send a command to its FreeSWITCH and prints the reply. The command is yours:\n" +
			"it can end calls, change what Tandem relies on, or stop the switch. Unless it only shows something, exec asks first.\n\n" +
			"Exit code 1: the switch refused it (-ERR), or did not answer.",
		Example: "  tandem nodes exec fs-1 sofia status\n  tandem nodes exec fs-1 'uuid_dump 7f2c…'",
		Args:    args(cobra.MinimumNArgs(2)),
		RunE: opts.withClient(func(cmd *cobra.Command, c *client, words []string) error {
			command := strings.Join(words[1:], " ")
			if !onlyShows(command) {
				if err := opts.confirm(cmd.Context(), cmd, "Tell the switch of node %s: %s?", printable(words[0]), printable(command)); err != nil {
					return err
				}
			}
			orders, raw, err := orderBy(cmd.Context(), c, words[:1], "exec", patience, map[string]any{"command": command})
			if err != nil {
				return err
			}
			told := orders[0]
			switch {
			case told.Error != nil:
				return errors.New(printable(*told.Error))
			case opts.output == outputJSON || opts.output == outputYAML:
				return opts.print(cmd.OutOrStdout(), raw, nil, nil)
			case told.Reply == nil:
				return errors.New("the switch said nothing")
			}
			for line := range strings.Lines(*told.Reply) {
				if _, err := fmt.Fprintln(cmd.OutOrStdout(), printable(strings.TrimRight(line, "\r\n"))); err != nil {
					return err
				}
			}
			if told.Truncated {
				_, err = fmt.Fprintln(cmd.ErrOrStderr(), "the switch said more than is kept")
			}
			return err
		}),
		ValidArgsFunction: opts.completeItems("/nodes", "name"),
	}
	cmd.Flags().DurationVar(&patience, "wait", 30*time.Second, "how long the controller may take")
	return cmd
}

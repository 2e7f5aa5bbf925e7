package main

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"tandem/daemon"
)

func newNodes(opts *options) *cobra.Command {
	cmd := &cobra.Command{Use: "nodes", Short: "FreeSWITCH nodes that the controllers drive"}
	cmd.AddCommand(newNodesAdd(opts), newNodesList(opts), newNodesRemove(opts), newNodesToken(opts))
	return cmd
}

func newNodesAdd(opts *options) *cobra.Command {
	var flags switchFlags
	var tokenFile string
	cmd := &cobra.Command{
		Use:   "add NAME --esl-addr HOST:PORT --esl-password-file FILE --conf-dir DIR",
		Short: "Add a node; running controllers take it within seconds",
		Long: "add registers a node and prints its CDR token, once: the node's TANDEM_CDR_CREDENTIALS are NAME:TOKEN.\n" +
			"With --cdr-token-file the token is yours.",
		Args: args(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, names []string) error {
			if flags.addr == "" {
				return usageError{errors.New("--esl-addr, --esl-password-file and --conf-dir are required")}
			}
			return opts.withOperator(cmd, func(o *daemon.Operator) error {
				node, err := o.AddNode(cmd.Context(), names[0], flags.addr, flags.passwordFile, flags.confDir, tokenFile)
				if err != nil {
					return err
				}
				return opts.print(cmd.OutOrStdout(), node, append(nodeHeader, tokenHeader), [][]string{append(nodeRow(node), shownToken(node))})
			})
		},
	}
	flags.register(cmd)
	cmd.Flags().StringVar(&tokenFile, "cdr-token-file", "", "file that holds the token by which the node reports its CDRs; made where not given")
	return cmd
}

// newNodesToken makes the command that replaces a node's CDR token.
func newNodesToken(opts *options) *cobra.Command {
	var tokenFile string
	cmd := &cobra.Command{
		Use:   "cdr-token NAME",
		Short: "Give a node another CDR token; the one before is worth nothing from then on",
		Args:  args(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, names []string) error {
			return opts.withOperator(cmd, func(o *daemon.Operator) error {
				node, err := o.RenewCDRToken(cmd.Context(), names[0], tokenFile)
				if err != nil {
					return err
				}
				return opts.print(cmd.OutOrStdout(), node, append(nodeHeader, tokenHeader), [][]string{append(nodeRow(node), shownToken(node))})
			})
		},
	}
	cmd.Flags().StringVar(&tokenFile, "cdr-token-file", "", "file that holds the token; made where not given")
	return cmd
}

const tokenHeader = "CDR TOKEN (SHOWN ONCE)"

// shownToken is a token as the table shows it.
func shownToken(n daemon.Node) string { return cmp.Or(n.CDRToken, "of the file") }

var nodeHeader = []string{"ID", "NAME", "ESL", "HELD BY", "CONF-DIR"}

func nodeRow(n daemon.Node) []string {
	return []string{n.ID, n.Name, n.ESLAddr, n.HeldBy, n.ConfDir}
}

func newNodesList(opts *options) *cobra.Command {
	return &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List the nodes", Args: args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return opts.withOperator(cmd, func(o *daemon.Operator) error {
				nodes, err := o.Nodes(cmd.Context())
				if err != nil {
					return err
				}
				rows := make([][]string, 0, len(nodes))
				for _, n := range nodes {
					rows = append(rows, nodeRow(n))
				}
				return opts.print(cmd.OutOrStdout(), nodes, nodeHeader, rows)
			})
		},
	}
}

func newNodesRemove(opts *options) *cobra.Command {
	return &cobra.Command{
		Use: "remove NAME", Aliases: []string{"rm"}, Short: "Remove a node without live calls", Args: args(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, names []string) error {
			return opts.withOperator(cmd, func(o *daemon.Operator) error {
				if err := o.RemoveNode(cmd.Context(), names[0]); err != nil {
					return err
				}
				_, err := fmt.Fprintf(cmd.ErrOrStderr(), "node %s removed\n", names[0])
				return err
			})
		},
	}
}

func newDoctor(opts *options) *cobra.Command {
	return &cobra.Command{
		Use:   "doctor",
		Short: "Check the database and every node; exit 1 when something is wrong",
		Long: "doctor checks that the database is reachable and migrated, that every node answers on its Event Socket,\n" +
			"and that a node has both walls against hostile input: app_disable_expand_variables set and api-expansion off.",
		Args: args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return opts.withOperator(cmd, func(o *daemon.Operator) error {
				checks, err := o.Doctor(cmd.Context())
				if err != nil {
					return err
				}
				failed := 0
				rows := make([][]string, 0, len(checks))
				for _, c := range checks {
					mark := "ok"
					if !c.OK {
						mark = "FAIL"
						failed++
					}
					rows = append(rows, []string{mark, c.Subject, c.Finding, c.Fix})
				}
				if err := opts.print(cmd.OutOrStdout(), checks, []string{"", "WHAT", "FOUND", "FIX"}, rows); err != nil {
					return err
				}
				if failed > 0 {
					return fmt.Errorf("%d of %d checks failed", failed, len(checks))
				}
				return nil
			})
		},
	}
}

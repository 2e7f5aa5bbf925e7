package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
)

// nodeItem is a node as tables show one.
type nodeItem struct {
	ID        string  `json:"id"`
	Name      string  `json:"name"`
	ESLAddr   string  `json:"esl_addr"`
	ConfDir   string  `json:"conf_dir"`
	Delivery  string  `json:"delivery"`
	HeldBy    *string `json:"held_by"`
	Connected bool    `json:"connected"`
	SeenAt    *string `json:"seen_at"`
	CDRToken  *string `json:"cdr_token"`
	nodeStanding
}

func nodeName(i *nodeItem) string { return i.Name }

var (
	nodeView = view[nodeItem]{
		name: nodeName,
		columns: []column[nodeItem]{
			{title: "NAME", text: nodeName},
			{title: "ESL", text: func(i *nodeItem) string { return i.ESLAddr }},
			{title: "STATE", text: func(i *nodeItem) string { return i.State }},
			{title: "CALLS", text: func(i *nodeItem) string { return fmt.Sprint(i.Calls) }},
			{title: "SESSIONS", text: func(i *nodeItem) string { return i.sessions() }},
			{title: "IDLE", text: func(i *nodeItem) string { return i.idle() }},
			{title: "WEIGHT", wide: true, text: func(i *nodeItem) string { return fmt.Sprint(i.Weight) }},
			{title: "CLOCK", wide: true, text: func(i *nodeItem) string { return i.clock() }},
			{title: "HEARTBEAT", wide: true, text: func(i *nodeItem) string { return i.heartbeat() }},
			{title: "VERSION", wide: true, text: func(i *nodeItem) string { return i.version() }},
			{title: "PROBLEMS", text: func(i *nodeItem) string { return i.found() }},
			{title: "HELD BY", wide: true, text: func(i *nodeItem) string { return text(i.HeldBy) }},
			{title: "SEEN", wide: true, text: func(i *nodeItem) string { return text(i.SeenAt) }},
			{title: "DELIVERY", wide: true, text: func(i *nodeItem) string { return i.Delivery }},
			{title: "CONF-DIR", wide: true, text: func(i *nodeItem) string { return i.ConfDir }},
			{title: "ID", wide: true, text: func(i *nodeItem) string { return i.ID }},
		},
	}
	newNodeView = view[nodeItem]{
		name: nodeName,
		columns: append(nodeView.columns[:2:2], column[nodeItem]{
			title: "CDR TOKEN (SHOWN ONCE)", text: func(i *nodeItem) string {
				if i.CDRToken == nil {
					return "of the file"
				}
				return *i.CDRToken
			},
		}),
	}
)

func newNodes(opts *options) *cobra.Command {
	return group("nodes", "FreeSWITCH nodes that the controllers drive",
		newNodesList(opts), newNodesGet(opts), newNodesAdd(opts), newNodesSet(opts), newNodesDrain(opts), newNodesResume(opts), newNodesExec(opts), newNodesRemove(opts),
		newNodesToken(opts))
}

func newNodesList(opts *options) *cobra.Command {
	flags := &listFlags{}
	cmd := &cobra.Command{
		Use: "ls", Aliases: []string{"list"}, Short: "List the nodes, by name", Args: args(cobra.NoArgs),
		RunE: opts.withClient(func(cmd *cobra.Command, c *client, _ []string) error {
			return runWhole(cmd, opts, c, flags, "/nodes", nodeView)
		}),
	}
	flags.registerWatch(cmd)
	return cmd
}

func newNodesGet(opts *options) *cobra.Command {
	return &cobra.Command{
		Use: "get NAME", Short: "Show a node", Args: args(cobra.ExactArgs(1)),
		ValidArgsFunction: opts.completeItems("/nodes", "name"),
		RunE: opts.withClient(func(cmd *cobra.Command, c *client, positional []string) error {
			var found json.RawMessage
			if err := c.get(cmd.Context(), "/nodes/"+segment(positional[0]), nil, &found); err != nil {
				return err
			}
			return showNode(opts, cmd.OutOrStdout(), found)
		}),
	}
}

func newNodesAdd(opts *options) *cobra.Command {
	var flags switchFlags
	var tokenFile, delivery string
	cmd := &cobra.Command{
		Use:   "add NAME --esl-addr HOST:PORT --esl-password-file FILE --conf-dir DIR",
		Short: "Add a node; running controllers take it within seconds",
		Long: "add registers a node and prints its CDR token, once: the node's TANDEM_CDR_CREDENTIALS are NAME:TOKEN.\n" +
			"With --cdr-token-file the token is yours.\n\n" +
			"With --delivery files, Tandem writes the configuration below DIR itself: a folder that the controllers see.\n" +
			"With --delivery xml_curl, the node asks for it over HTTP, and DIR is its own path; see docs/operating.md.",
		Args: args(cobra.ExactArgs(1)),
		RunE: opts.withClient(func(cmd *cobra.Command, c *client, positional []string) error {
			if flags.addr == "" {
				return usageError{errors.New("--esl-addr, --esl-password-file and --conf-dir are required")}
			}
			password, err := readSecret("esl-password-file", flags.passwordFile)
			if err != nil {
				return err
			}
			folder := flags.confDir
			if delivery == "files" {
				if folder, err = filepath.Abs(folder); err != nil {
					return fmt.Errorf("--conf-dir: %w", err)
				}
			}
			body := map[string]any{"name": positional[0], "esl_addr": flags.addr, "esl_password": password, "conf_dir": folder, "delivery": delivery}
			if err := addToken(body, tokenFile); err != nil {
				return err
			}
			var made json.RawMessage
			if err := c.post(cmd.Context(), "/nodes", body, &made); err != nil {
				return err
			}
			return show(opts, cmd.OutOrStdout(), newNodeView, made)
		}),
	}
	flags.register(cmd)
	cmd.Flags().StringVar(&delivery, "delivery", "files", "how the node gets its configuration: files or xml_curl")
	complete(cmd, "delivery", "files", "xml_curl")
	cmd.Flags().StringVar(&tokenFile, "cdr-token-file", "", "file that holds the token by which the node reports its CDRs; made where not given")
	return cmd
}

// addToken adds the CDR token of a file, where one is given, to a request.
func addToken(body map[string]any, file string) error {
	if file == "" {
		return nil
	}
	token, err := readSecret("cdr-token-file", file)
	body["cdr_token"] = token
	return err
}

// readSecret reads a secret of one line from the file that a flag names.
func readSecret(flag, file string) (string, error) {
	raw, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("--%s: %w", flag, err)
	}
	secret := strings.TrimRight(string(raw), "\r\n")
	if secret == "" || strings.ContainsAny(secret, "\r\n") {
		return "", fmt.Errorf("--%s: %s must hold it in one line", flag, file)
	}
	return secret, nil
}

// newNodesToken makes the command that replaces a node's CDR token.
func newNodesToken(opts *options) *cobra.Command {
	var tokenFile string
	cmd := &cobra.Command{
		Use:   "cdr-token NAME",
		Short: "Give a node another CDR token; the one before is worth nothing from then on",
		Args:  args(cobra.ExactArgs(1)), ValidArgsFunction: opts.completeItems("/nodes", "name"),
		RunE: opts.withClient(func(cmd *cobra.Command, c *client, positional []string) error {
			body := map[string]any{}
			if err := addToken(body, tokenFile); err != nil {
				return err
			}
			if err := opts.confirm(cmd.Context(), cmd, "Replace the CDR token of node %s? Its reports are refused until it has the new one.", positional[0]); err != nil {
				return err
			}
			var made json.RawMessage
			if err := c.post(cmd.Context(), "/nodes/"+segment(positional[0])+"/cdr-token", body, &made); err != nil {
				return err
			}
			return show(opts, cmd.OutOrStdout(), newNodeView, made)
		}),
	}
	cmd.Flags().StringVar(&tokenFile, "cdr-token-file", "", "file that holds the token; made where not given")
	return cmd
}

func newNodesRemove(opts *options) *cobra.Command {
	return &cobra.Command{
		Use: "rm NAME", Aliases: []string{"remove"}, Short: "Remove a node without live calls", Args: args(cobra.ExactArgs(1)),
		ValidArgsFunction: opts.completeItems("/nodes", "name"),
		RunE: opts.withClient(func(cmd *cobra.Command, c *client, positional []string) error {
			if err := opts.confirm(cmd.Context(), cmd, "Remove node %s? No controller steers it any more.", positional[0]); err != nil {
				return err
			}
			if err := c.delete(cmd.Context(), "/nodes/"+segment(positional[0])); err != nil {
				return err
			}
			note(cmd, "node %s removed", positional[0])
			return nil
		}),
	}
}

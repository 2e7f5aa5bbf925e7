package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

func newConfig(opts *options) *cobra.Command {
	return group("config", "What nodes should hold, what they hold, and what applying it would do",
		newConfigRender(opts), newConfigDiff(opts), newConfigApply(opts), newConfigDrift(opts))
}

// documentItem is a document by its path.
type documentItem struct {
	Path    string `json:"path"`
	Content string `json:"content"`
}

func newConfigRender(opts *options) *cobra.Command {
	return &cobra.Command{
		Use:   "render [PATH]...",
		Short: "List the documents that every node should hold, or print some, passwords hidden",
		Args:  args(cobra.ArbitraryArgs),
		RunE: opts.withClient(func(cmd *cobra.Command, c *client, paths []string) error {
			if len(paths) == 0 {
				return listDocuments(cmd, opts, c)
			}
			documents := make([]documentItem, 0, len(paths))
			for _, path := range paths {
				var document documentItem
				if err := c.get(cmd.Context(), "/config/document", url.Values{"path": {path}}, &document); err != nil {
					return fmt.Errorf("%s: %w", path, err)
				}
				documents = append(documents, document)
			}
			if opts.output == outputJSON || opts.output == outputYAML {
				return opts.print(cmd.OutOrStdout(), documents, nil, nil)
			}
			for _, document := range documents {
				if _, err := io.WriteString(cmd.OutOrStdout(), document.Content); err != nil {
					return err
				}
			}
			return nil
		}),
	}
}

func listDocuments(cmd *cobra.Command, opts *options, c *client) error {
	var all struct {
		Paths    []string `json:"paths"`
		Problems []struct {
			Kind    string `json:"kind"`
			ID      string `json:"id"`
			Message string `json:"message"`
		} `json:"problems"`
	}
	if err := c.get(cmd.Context(), "/config", nil, &all); err != nil {
		return err
	}
	for _, p := range all.Problems {
		note(cmd, "not rendered as it is: %s %s: %s", p.Kind, p.ID, printable(p.Message))
	}
	rows := make([][]string, 0, len(all.Paths))
	for _, path := range all.Paths {
		rows = append(rows, []string{path})
	}
	return opts.print(cmd.OutOrStdout(), all.Paths, []string{"PATH"}, rows)
}

// orderItem is an order to the controller that holds a node, and what came of it.
type orderItem struct {
	ID       string       `json:"id"`
	Node     string       `json:"node"`
	DoneAt   *string      `json:"done_at"`
	Error    *string      `json:"error"`
	Changes  []changeItem `json:"changes"`
	Note     *string      `json:"note"`
	Written  []string     `json:"written"`
	Removed  []string     `json:"removed"`
	Unloaded []string     `json:"unloaded"`
	// Strays are of `calls reap`, Reply is the switch's, of `nodes exec`.
	Strays    []strayItem `json:"strays"`
	Reply     *string     `json:"reply"`
	Truncated bool        `json:"truncated"`
}

type changeItem struct {
	Op        string   `json:"op"`
	Kind      string   `json:"kind"`
	Name      string   `json:"name"`
	Details   []string `json:"details"`
	Effect    string   `json:"effect"`
	LiveCalls []string `json:"live_calls"`
}

// orderLook is how often it is looked whether an order has been carried out.
const orderLook = 200 * time.Millisecond

// errNobody is why an order was not carried out.
var errNobody = errors.New("no controller has carried it out in time; is one running that reaches the node?")

// order has the controllers that hold the nodes, all where none is named, carry something out, and waits for it. Where nobody has done so in time,
// that is the error of the node's order: what was done to the others is told all the same.
func order(ctx context.Context, c *client, nodes []string, patience time.Duration, body map[string]any) ([]orderItem, []json.RawMessage, error) {
	return orderBy(ctx, c, nodes, "orders", patience, body)
}

// orderBy is order by the path below a node that takes such orders.
func orderBy(ctx context.Context, c *client, nodes []string, path string, patience time.Duration, body map[string]any) ([]orderItem, []json.RawMessage, error) {
	if len(nodes) == 0 {
		var all listing
		if err := c.get(ctx, "/nodes", nil, &all); err != nil {
			return nil, nil, err
		}
		items, err := decodeAll[nodeItem](all.Data)
		if err != nil {
			return nil, nil, err
		}
		for i := range items {
			nodes = append(nodes, items[i].Name)
		}
	}
	orders := make([]orderItem, len(nodes))
	raw := make([]json.RawMessage, len(nodes))
	read := func(i int, err error) error {
		if err == nil {
			orders[i] = orderItem{}
			err = json.Unmarshal(raw[i], &orders[i])
		}
		if err != nil {
			return fmt.Errorf("node %s: %w", nodes[i], err)
		}
		return nil
	}
	for i, node := range nodes {
		if err := read(i, c.post(ctx, "/nodes/"+segment(node)+"/"+path, body, &raw[i])); err != nil {
			return nil, nil, err
		}
	}
	waiting, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for i, node := range nodes {
		for orders[i].DoneAt == nil {
			// Looked at once also when the time is over: it was given to them all.
			late := !wait(waiting, orderLook)
			if err := ctx.Err(); err != nil {
				return nil, nil, err
			}
			if err := read(i, c.get(ctx, "/nodes/"+segment(node)+"/orders/"+segment(orders[i].ID), nil, &raw[i])); err != nil {
				return nil, nil, err
			}
			if late && orders[i].DoneAt == nil {
				nobody := errNobody.Error()
				orders[i].Error = &nobody
				break
			}
		}
	}
	return orders, raw, nil
}

// exitDiffFailed is the exit code of a `config diff` that could not look at every node: more than 1, as of diff(1), and not that of a wrong command.
const exitDiffFailed = 3

// diffError is a failure of `config diff`.
type diffError struct{ error }

// Unwrap returns what failed.
func (e diffError) Unwrap() error { return e.error }

// errDiffers is how `config diff` says that a node is not as it should be; it exits with 1.
var errDiffers = errors.New("nodes are not as they should be")

func newConfigDiff(opts *options) *cobra.Command {
	var patience time.Duration
	cmd := &cobra.Command{
		Use:   "diff [NODE]...",
		Short: "Compare nodes with what they should hold, and name the live calls at risk",
		Long: "diff has each node compared with what it should hold by the controller that holds it: the files, the gateways that are\n" +
			"loaded and the dialplan in memory. Nothing is changed.\n\n" +
			"Exit code 0: all nodes are as they should be. 1: at least one is not. More: a node could not be looked at.",
		Args: args(cobra.ArbitraryArgs),
		RunE: opts.withClient(func(cmd *cobra.Command, c *client, nodes []string) error {
			orders, raw, err := order(cmd.Context(), c, nodes, patience, map[string]any{"kind": "diff"})
			if err != nil {
				return diffError{err}
			}
			if opts.output == outputJSON || opts.output == outputYAML {
				err = opts.print(cmd.OutOrStdout(), raw, nil, nil)
			} else {
				err = printPlans(cmd.OutOrStdout(), orders)
			}
			if err != nil {
				return diffError{err}
			}
			differs := false
			for i := range orders {
				if orders[i].Error != nil {
					return diffError{fmt.Errorf("node %s: %s", orders[i].Node, printable(*orders[i].Error))}
				}
				differs = differs || len(orders[i].Changes) > 0
			}
			if differs {
				return errDiffers
			}
			return nil
		}),
		ValidArgsFunction: opts.completeItems("/nodes", "name"),
	}
	cmd.Flags().DurationVar(&patience, "wait", time.Minute, "how long the controllers may take")
	return cmd
}

// callsNamed is how many live calls of a gateway are named.
const callsNamed = 10

var opSigns = map[string]string{"add": "+", "change": "~", "remove": "-", "unload": "?", "reload": "!"}

// printPlans writes what applying would do, a line for each change.
func printPlans(w io.Writer, orders []orderItem) error {
	for i := range orders {
		plan := &orders[i]
		lines := []string{plan.Node}
		if len(plan.Changes) == 0 && plan.Error == nil {
			lines = append(lines, "  as it should be")
		}
		for _, c := range plan.Changes {
			line := fmt.Sprintf("  %s %s %s", opSigns[c.Op], c.Kind, c.Name)
			if len(c.Details) > 0 {
				line += "  " + strings.Join(c.Details, ", ")
			}
			line += "  → " + c.Effect
			if calls := len(c.LiveCalls); calls > 0 {
				line += fmt.Sprintf(" (%d live calls: %s)", calls, strings.Join(c.LiveCalls[:min(calls, callsNamed)], " "))
			}
			lines = append(lines, line)
		}
		for _, remark := range []*string{plan.Note, plan.Error} {
			if remark != nil {
				lines = append(lines, "  "+*remark)
			}
		}
		for _, line := range lines {
			if _, err := fmt.Fprintln(w, printable(line)); err != nil {
				return err
			}
		}
	}
	return nil
}

func newConfigApply(opts *options) *cobra.Command {
	var patience time.Duration
	var prune bool
	cmd := &cobra.Command{
		Use:   "apply [NODE]...",
		Short: "Make nodes as they should be, taking nothing for granted",
		Long: "apply shows what `config diff` shows, asks, and has the controllers write the files and tell the switches everything.\n" +
			"Controllers do that of their own accord when anything changes; apply is for when somebody else has changed a node.\n\n" +
			"Gateways that nobody knows stay, unless --prune is given.",
		Args: args(cobra.ArbitraryArgs),
		RunE: opts.withClient(func(cmd *cobra.Command, c *client, nodes []string) error {
			if !opts.yes {
				plans, _, err := order(cmd.Context(), c, nodes, patience, map[string]any{"kind": "diff"})
				if err != nil {
					return err
				}
				if err := printPlans(cmd.ErrOrStderr(), plans); err != nil {
					return err
				}
				if err := opts.confirm(cmd.Context(), cmd, "Apply to %d nodes?", len(plans)); err != nil {
					return err
				}
			}
			orders, raw, err := order(cmd.Context(), c, nodes, patience, map[string]any{"kind": "apply", "prune": prune})
			if err != nil {
				return err
			}
			rows := make([][]string, 0, len(orders))
			failed := 0
			for _, o := range orders {
				outcome := "applied"
				if o.Error != nil {
					outcome = printable(*o.Error)
					failed++
				}
				rows = append(rows, []string{o.Node, fmt.Sprint(len(o.Written)), fmt.Sprint(len(o.Removed)), fmt.Sprint(len(o.Unloaded)), outcome})
			}
			if err := opts.print(cmd.OutOrStdout(), raw, []string{"NODE", "WRITTEN", "REMOVED", "UNLOADED", "OUTCOME"}, rows); err != nil {
				return err
			}
			if failed > 0 {
				return fmt.Errorf("not applied to %d of %d nodes", failed, len(orders))
			}
			return nil
		}),
		ValidArgsFunction: opts.completeItems("/nodes", "name"),
	}
	cmd.Flags().DurationVar(&patience, "wait", 2*time.Minute, "how long the controllers may take")
	cmd.Flags().BoolVar(&prune, "prune", false, "unload gateways of our SIP profile that nobody knows")
	return cmd
}

// driftItem is a drift as tables show one.
type driftItem struct {
	ID      string  `json:"id"`
	Kind    string  `json:"kind"`
	Name    string  `json:"name"`
	FoundAt string  `json:"found_at"`
	EndedAt *string `json:"ended_at"`
}

var driftView = view[driftItem]{
	name: func(i *driftItem) string { return i.ID },
	columns: []column[driftItem]{
		{title: "KIND", text: func(i *driftItem) string { return i.Kind }},
		{title: "NAME", text: func(i *driftItem) string { return i.Name }},
		{title: "FOUND", text: func(i *driftItem) string { return i.FoundAt }},
		{title: "ENDED", text: func(i *driftItem) string { return text(i.EndedAt) }},
		{title: "ID", wide: true, text: func(i *driftItem) string { return i.ID }},
	},
}

func newConfigDrift(opts *options) *cobra.Command {
	flags := &listFlags{}
	cmd := &cobra.Command{
		Use: "drift NODE", Short: "List where a node is, or was, not as it should be although nothing of ours changed", Args: args(cobra.ExactArgs(1)),
		RunE: opts.withClient(func(cmd *cobra.Command, c *client, nodes []string) error {
			return runWhole(cmd, opts, c, flags, "/nodes/"+segment(nodes[0])+"/drifts", driftView)
		}),
		ValidArgsFunction: opts.completeItems("/nodes", "name"),
	}
	flags.registerWatch(cmd)
	return cmd
}

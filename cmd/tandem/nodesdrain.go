package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// nodeStanding is the part of a node that says what it does.
type nodeStanding struct {
	State    string `json:"state"`
	Weight   int    `json:"weight"`
	Calls    int    `json:"calls"`
	Draining *struct {
		Since  string  `json:"since"`
		By     string  `json:"by"`
		Reason *string `json:"reason"`
	} `json:"draining"`
	Health *struct {
		MeasuredAt    string  `json:"measured_at"`
		HeartbeatAt   *string `json:"heartbeat_at"`
		Version       string  `json:"version"`
		UptimeSeconds int64   `json:"uptime_seconds"`
		Sessions      int     `json:"sessions"`
		MaxSessions   int     `json:"max_sessions"`
		PerSecond     int     `json:"sessions_per_second"`
		MaxPerSecond  int     `json:"max_sessions_per_second"`
		IdleCPU       float64 `json:"idle_cpu"`
		ClockSkewMS   float64 `json:"clock_skew_ms"`
		AnswerMS      float64 `json:"answer_ms"`
	} `json:"health"`
	Problems []struct {
		Code     string `json:"code"`
		Severity string `json:"severity"`
		Message  string `json:"message"`
		Fix      string `json:"fix"`
	} `json:"problems"`
}

func (n *nodeStanding) sessions() string {
	if n.Health == nil {
		return ""
	}
	return fmt.Sprintf("%d/%d", n.Health.Sessions, n.Health.MaxSessions)
}

func (n *nodeStanding) idle() string {
	if n.Health == nil {
		return ""
	}
	return fmt.Sprintf("%.0f %%", n.Health.IdleCPU)
}

func (n *nodeStanding) clock() string {
	if n.Health == nil {
		return ""
	}
	return fmt.Sprintf("%+.0f ms", n.Health.ClockSkewMS)
}

func (n *nodeStanding) heartbeat() string {
	if n.Health == nil {
		return ""
	}
	return text(n.Health.HeartbeatAt)
}

// version is the number of the node's version.
func (n *nodeStanding) version() string {
	if n.Health == nil {
		return ""
	}
	number, _, _ := strings.Cut(n.Health.Version, "-")
	return number
}

// found says how many problems there are, the worst first.
func (n *nodeStanding) found() string {
	switch len(n.Problems) {
	case 0:
		return ""
	case 1:
		return n.Problems[0].Code
	default:
		return fmt.Sprintf("%s and %d more", n.Problems[0].Code, len(n.Problems)-1)
	}
}

// showNode prints a node: as a table, all that is known of it, a line each.
func showNode(opts *options, w io.Writer, raw json.RawMessage) error {
	if opts.output != outputTable && opts.output != outputWide {
		return show(opts, w, nodeView, raw)
	}
	items, err := decodeAll[nodeItem]([]json.RawMessage{raw})
	if err != nil {
		return err
	}
	return writeTable(w, nodeLines(&items[0]))
}

// nodeLines are what `nodes get` says of a node.
func nodeLines(i *nodeItem) [][]string {
	var rows [][]string
	add := func(name, format string, args ...any) {
		rows = append(rows, []string{name, fmt.Sprintf(format, args...)})
	}
	add("name", "%s (%s)", i.Name, i.ID)
	add("state", "%s, weight %d, %d calls", i.State, i.Weight, i.Calls)
	if d := i.Draining; d != nil {
		add("draining", "since %s, by %s: %s", d.Since, d.By, cmp.Or(text(d.Reason), "no reason given"))
	}
	add("held by", "%s", cmp.Or(text(i.HeldBy), "nobody"))
	add("esl", "%s, last connected %s", i.ESLAddr, cmp.Or(text(i.SeenAt), "never"))
	add("conf-dir", "%s", i.ConfDir)
	if h := i.Health; h != nil {
		add("version", "%s, up for %s", h.Version, time.Duration(h.UptimeSeconds)*time.Second)
		add("sessions", "%d of %d, %d a second of %d", h.Sessions, h.MaxSessions, h.PerSecond, h.MaxPerSecond)
		add("cpu", "%.1f %% idle", h.IdleCPU)
		add("clock", "%+.0f ms; answers in %.1f ms", h.ClockSkewMS, h.AnswerMS)
		add("measured", "%s; last heartbeat %s", h.MeasuredAt, cmp.Or(text(h.HeartbeatAt), "never"))
	}
	for _, p := range i.Problems {
		add(p.Severity, "%s: %s", p.Code, p.Message)
		add("", "fix: %s", p.Fix)
	}
	return rows
}

// newNodesSet makes the command that changes a node.
func newNodesSet(opts *options) *cobra.Command {
	var flags switchFlags
	var weight int
	var active bool
	cmd := &cobra.Command{
		Use:   "set NAME [--weight N] [--esl-addr HOST:PORT] [--esl-password-file FILE] [--conf-dir DIR] [--active]",
		Short: "Change a node: its share of calls, its address, its password",
		Long: "set changes what is given. With another address, password or folder the node's controller connects anew; live calls go on.\n" +
			"Weight is the node's share of new outbound calls: 100 for a new node, 0 for none, at most 10000.\n" +
			"With --active=false no controller steers the node, and its calls end as lost: drain it before.",
		Args: args(cobra.ExactArgs(1)), ValidArgsFunction: opts.completeItems("/nodes", "name"),
		RunE: opts.withClient(func(cmd *cobra.Command, c *client, positional []string) error {
			body := map[string]any{}
			given := cmd.Flags().Changed
			if given("weight") {
				body["weight"] = weight
			}
			if given("active") {
				body["is_active"] = active
			}
			if flags.addr != "" {
				body["esl_addr"] = flags.addr
			}
			if flags.passwordFile != "" {
				password, err := readSecret("esl-password-file", flags.passwordFile)
				if err != nil {
					return err
				}
				body["esl_password"] = password
			}
			if flags.confDir != "" {
				folder, err := filepath.Abs(flags.confDir)
				if err != nil {
					return fmt.Errorf("--conf-dir: %w", err)
				}
				body["conf_dir"] = folder
			}
			if len(body) == 0 {
				return usageError{errors.New("say what to change: --weight, --esl-addr, --esl-password-file, --conf-dir or --active")}
			}
			if given("active") && !active {
				if err := opts.confirm(cmd.Context(), cmd, "Have nobody steer node %s? Calls that it still has end as lost.", positional[0]); err != nil {
					return err
				}
			}
			var changed json.RawMessage
			if err := c.patch(cmd.Context(), "/nodes/"+segment(positional[0]), body, &changed); err != nil {
				return err
			}
			return show(opts, cmd.OutOrStdout(), nodeView, changed)
		}),
	}
	cmd.Flags().IntVar(&weight, "weight", 100, "share of new outbound calls, 0 to 10000")
	cmd.Flags().BoolVar(&active, "active", true, "whether controllers steer the node")
	cmd.Flags().StringVar(&flags.addr, "esl-addr", "", "HOST:PORT of the node's Event Socket")
	cmd.Flags().StringVar(&flags.passwordFile, "esl-password-file", "", "file that holds the Event Socket password")
	cmd.Flags().StringVar(&flags.confDir, "conf-dir", "", "the node's configuration folder, as the controllers see it")
	return cmd
}

// newNodesDrain makes the command that empties a node.
func newNodesDrain(opts *options) *cobra.Command {
	var reason string
	var waits bool
	var patience time.Duration
	cmd := &cobra.Command{
		Use:   "drain NAME [--wait]",
		Short: "Have a node take no new calls; live calls go on",
		Long: "drain has a node take no new calls: outbound ones go to other nodes, and its switch answers callers with 503. Live calls are not\n" +
			"touched. It stays so, whoever is restarted, until `tandem nodes resume`. With --wait the command ends when the node has no\n" +
			"call left; a node that nobody steers meanwhile is waited for. --wait-timeout gives up, with exit code 1; the node drains on.",
		Args: args(cobra.ExactArgs(1)), ValidArgsFunction: opts.completeItems("/nodes", "name"),
		RunE: opts.withClient(func(cmd *cobra.Command, c *client, positional []string) error {
			path := "/nodes/" + segment(positional[0])
			body := map[string]any{}
			if reason != "" {
				body["reason"] = reason
			}
			var node json.RawMessage
			if err := c.post(cmd.Context(), path+"/drain", body, &node); err != nil {
				return err
			}
			if waits {
				var err error
				if node, err = awaitDrained(cmd, opts, c, path, patience); err != nil {
					return err
				}
			}
			return show(opts, cmd.OutOrStdout(), nodeView, node)
		}),
	}
	cmd.Flags().StringVar(&reason, "reason", "", "why, for whoever looks at the node")
	cmd.Flags().BoolVar(&waits, "wait", false, "wait until the node has no call left")
	cmd.Flags().DurationVar(&patience, "wait-timeout", 0, "give up waiting after that long, such as 30m (default: never)")
	return cmd
}

// drainLook is how often it is looked whether a node is empty.
const drainLook = time.Second

// awaitDrained waits until a node is drained and tells how many calls are left.
func awaitDrained(cmd *cobra.Command, opts *options, c *client, path string, patience time.Duration) (json.RawMessage, error) {
	ctx := cmd.Context()
	if patience > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, patience, fmt.Errorf("the node is not empty after %s; it drains on", patience))
		defer cancel()
	}
	var bar *progress
	most, gone := 0, false
	for {
		var raw json.RawMessage
		var node nodeItem
		err := c.get(ctx, path, nil, &raw)
		if err == nil {
			err = json.Unmarshal(raw, &node)
		}
		switch {
		case ctx.Err() != nil:
		case err != nil && !away(err):
			return nil, err
		case err != nil:
			if !gone {
				note(cmd, "waiting for the API: %v", err)
			}
			gone = true
		case node.State == "drained":
			if bar != nil {
				bar.at(int64(most))
				bar.finish()
			}
			return raw, nil
		case node.Draining == nil:
			return nil, errors.New("the node was resumed meanwhile")
		default:
			gone = false
			if left := node.left(); bar == nil || left > most {
				most = left
				if bar == nil && most > 0 {
					bar = opts.newProgress(cmd, "draining", int64(most))
				}
			} else {
				bar.at(int64(most - left))
			}
		}
		if !wait(ctx, drainLook) {
			if bar != nil {
				bar.finish()
			}
			return nil, context.Cause(ctx)
		}
	}
}

// left is how much a node has yet to get rid of: calls, and legs that belong to none.
func (n *nodeStanding) left() int {
	if n.Calls == 0 && n.Health != nil {
		return n.Health.Sessions
	}
	return n.Calls
}

func newNodesResume(opts *options) *cobra.Command {
	return &cobra.Command{
		Use: "resume NAME", Short: "Have a node that drains take calls again", Args: args(cobra.ExactArgs(1)),
		ValidArgsFunction: opts.completeItems("/nodes", "name"),
		RunE: opts.withClient(func(cmd *cobra.Command, c *client, positional []string) error {
			var node json.RawMessage
			if err := c.post(cmd.Context(), "/nodes/"+segment(positional[0])+"/resume", nil, &node); err != nil {
				return err
			}
			return show(opts, cmd.OutOrStdout(), nodeView, node)
		}),
	}
}

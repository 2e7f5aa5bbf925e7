package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"net/url"
	"time"

	"github.com/spf13/cobra"
)

// blockItem is a block as tables show one.
type blockItem struct {
	ID        string  `json:"id"`
	Address   string  `json:"address"`
	Origin    string  `json:"origin"`
	Reason    string  `json:"reason"`
	Note      string  `json:"note"`
	CreatedBy *string `json:"created_by"`
	Relapse   int64   `json:"relapse"`
	Live      bool    `json:"live"`
	CreatedAt string  `json:"created_at"`
	ExpiresAt *string `json:"expires_at"`
	EndedAt   *string `json:"ended_at"`
	EndedBy   *string `json:"ended_by"`
}

// until is how long the block is in force.
func (i *blockItem) until() string {
	switch {
	case !i.Live:
		return "ended " + text(i.EndedAt)
	case i.ExpiresAt == nil:
		return "for good"
	default:
		return "until " + *i.ExpiresAt
	}
}

// by is who made the block.
func (i *blockItem) by() string {
	if i.CreatedBy == nil {
		return i.Origin
	}
	return *i.CreatedBy
}

// exceptionItem is an address that is never blocked, as tables show one.
type exceptionItem struct {
	ID        string `json:"id"`
	Address   string `json:"address"`
	Note      string `json:"note"`
	CreatedBy string `json:"created_by"`
	CreatedAt string `json:"created_at"`
}

var (
	blockView = view[blockItem]{
		name: func(i *blockItem) string { return i.ID },
		columns: []column[blockItem]{
			{title: "ID", text: func(i *blockItem) string { return i.ID }},
			{title: "ADDRESS", text: func(i *blockItem) string { return i.Address }},
			{title: "BY", text: (*blockItem).by},
			{title: "REASON", text: func(i *blockItem) string { return i.Reason }},
			{title: "NOTE", wide: true, text: func(i *blockItem) string { return i.Note }},
			{title: "SINCE", text: func(i *blockItem) string { return i.CreatedAt }},
			{title: "UNTIL", text: (*blockItem).until},
			{title: "ENDED BY", wide: true, text: func(i *blockItem) string { return text(i.EndedBy) }},
		},
	}
	exceptionView = view[exceptionItem]{
		name: func(i *exceptionItem) string { return i.ID },
		columns: []column[exceptionItem]{
			{title: "ID", text: func(i *exceptionItem) string { return i.ID }},
			{title: "ADDRESS", text: func(i *exceptionItem) string { return i.Address }},
			{title: "BY", text: func(i *exceptionItem) string { return i.CreatedBy }},
			{title: "NOTE", text: func(i *exceptionItem) string { return i.Note }},
			{title: "SINCE", text: func(i *exceptionItem) string { return i.CreatedAt }},
		},
	}
)

func newBlocks(opts *options) *cobra.Command {
	return group("blocks", "Addresses whose calls are refused before anything else, and those that are never blocked",
		newBlocksList(opts), newBlocksAdd(opts), newBlocksRemove(opts), newBlocksAllow(opts), newBlocksAllowed(opts), newBlocksDisallow(opts), newBlocksExport(opts))
}

func newBlocksList(opts *options) *cobra.Command {
	flags := &listFlags{}
	var state, origin, address string
	cmd := &cobra.Command{
		Use: "ls", Aliases: []string{"list"}, Short: "List blocked addresses, newest first", Args: args(cobra.NoArgs),
		RunE: opts.withClient(func(cmd *cobra.Command, c *client, _ []string) error {
			return runList(cmd, opts, c, flags, "/blocks", func() url.Values {
				query := url.Values{}
				for name, value := range map[string]string{"state": state, "origin": origin, "address": address} {
					if value != "" {
						query.Set(name, value)
					}
				}
				return query
			}, blockView)
		}),
	}
	flags.register(cmd, false)
	cmd.Flags().StringVar(&state, "state", "live", "live, ended or all")
	cmd.Flags().StringVar(&origin, "origin", "", "automatic or operator")
	cmd.Flags().StringVar(&address, "address", "", "only what has an address in common with this address or network")
	complete(cmd, "state", "live", "ended", "all")
	complete(cmd, "origin", "automatic", "operator")
	return cmd
}

func newBlocksAdd(opts *options) *cobra.Command {
	var reason, note string
	var lasts time.Duration
	cmd := &cobra.Command{
		Use: "add ADDRESS --reason TEXT", Short: "Block an address or a network; every node refuses its calls within seconds", Args: args(cobra.ExactArgs(1)),
		Long: "What belongs to a trunk, a provider, a node or an exception is never blocked: the refusal names it.",
		RunE: opts.withClient(func(cmd *cobra.Command, c *client, positional []string) error {
			if lasts < 0 {
				return usage("--for must be more than 0, was %s", lasts)
			}
			body := map[string]any{"address": positional[0], "reason": reason}
			if note != "" {
				body["note"] = note
			}
			if lasts > 0 {
				body["expires_at"] = time.Now().Add(lasts).UTC().Format(time.RFC3339)
			}
			if prefix, err := netip.ParsePrefix(positional[0]); err == nil && !prefix.IsSingleIP() {
				if err := opts.confirm(cmd.Context(), cmd, "Block all of %s?", prefix.Masked()); err != nil {
					return err
				}
			}
			var made json.RawMessage
			if err := c.post(cmd.Context(), "/blocks", body, &made); err != nil {
				return err
			}
			return show(opts, cmd.OutOrStdout(), blockView, made)
		}),
	}
	cmd.Flags().StringVar(&reason, "reason", "", "why, in at most 100 characters")
	cmd.Flags().StringVar(&note, "note", "", "more of it, in at most 255 characters")
	cmd.Flags().DurationVar(&lasts, "for", 0, "how long, such as 24h (default: until it is lifted)")
	_ = cmd.MarkFlagRequired("reason")
	return cmd
}

// network is a network, or the one of a single address.
func network(text string) (netip.Prefix, bool) {
	if prefix, err := netip.ParsePrefix(text); err == nil {
		return prefix, true
	}
	address, err := netip.ParseAddr(text)
	return netip.PrefixFrom(address, address.BitLen()), err == nil
}

// named finds the item that is meant by its id, or by its address exactly.
func named[T any](ctx context.Context, c *client, path, what, name string, id func(*T) (id, address string)) (string, error) {
	prefix, isAddress := network(name)
	if !isAddress {
		return name, nil // an id
	}
	items, _, err := c.list(ctx, path, url.Values{"address": {name}}, 0)
	if err != nil {
		return "", err
	}
	read, err := decodeAll[T](items)
	if err != nil {
		return "", err
	}
	for i := range read {
		found, address := id(&read[i])
		if address == name || address == prefix.Masked().String() || prefix.IsSingleIP() && address == prefix.Addr().Unmap().String() {
			return found, nil
		}
	}
	return "", fmt.Errorf("there is no %s of %s", what, name)
}

func newBlocksRemove(opts *options) *cobra.Command {
	return &cobra.Command{
		Use: "rm ID|ADDRESS", Aliases: []string{"remove"}, Short: "Lift a block", Args: args(cobra.ExactArgs(1)),
		ValidArgsFunction: opts.completeItems("/blocks", "address"),
		RunE: opts.withClient(func(cmd *cobra.Command, c *client, positional []string) error {
			id, err := named(cmd.Context(), c, "/blocks", "block", positional[0], func(i *blockItem) (string, string) { return i.ID, i.Address })
			if err != nil {
				return err
			}
			if err := opts.confirm(cmd.Context(), cmd, "Lift the block of %s?", positional[0]); err != nil {
				return err
			}
			if err := c.delete(cmd.Context(), "/blocks/"+segment(id)); err != nil {
				return err
			}
			note(cmd, "block of %s lifted", positional[0])
			return nil
		}),
	}
}

func newBlocksAllow(opts *options) *cobra.Command {
	var remark string
	cmd := &cobra.Command{
		Use: "allow ADDRESS", Short: "Never block an address or a network, and lift the blocks in it", Args: args(cobra.ExactArgs(1)),
		Long: "allow lets nobody in: who may call is decided by trunks and providers.",
		RunE: opts.withClient(func(cmd *cobra.Command, c *client, positional []string) error {
			body := map[string]any{"address": positional[0]}
			if remark != "" {
				body["note"] = remark
			}
			var made json.RawMessage
			if err := c.post(cmd.Context(), "/block-exceptions", body, &made); err != nil {
				return err
			}
			var read struct {
				Lifted []blockItem `json:"lifted"`
			}
			if err := json.Unmarshal(made, &read); err != nil {
				return fmt.Errorf("the server answered something that this version does not understand: %w", err)
			}
			for i := range read.Lifted {
				note(cmd, "block of %s lifted", read.Lifted[i].Address)
			}
			return show(opts, cmd.OutOrStdout(), exceptionView, made)
		}),
	}
	cmd.Flags().StringVar(&remark, "note", "", "what it is, in at most 255 characters")
	return cmd
}

func newBlocksAllowed(opts *options) *cobra.Command {
	flags := &listFlags{}
	cmd := &cobra.Command{
		Use: "allowed", Short: "List what is never blocked by an exception, newest first", Args: args(cobra.NoArgs),
		RunE: opts.withClient(func(cmd *cobra.Command, c *client, _ []string) error {
			return runList(cmd, opts, c, flags, "/block-exceptions", func() url.Values { return url.Values{} }, exceptionView)
		}),
	}
	flags.register(cmd, false)
	return cmd
}

func newBlocksDisallow(opts *options) *cobra.Command {
	return &cobra.Command{
		Use: "disallow ID|ADDRESS", Short: "Let an address be blocked again", Args: args(cobra.ExactArgs(1)),
		ValidArgsFunction: opts.completeItems("/block-exceptions", "address"),
		RunE: opts.withClient(func(cmd *cobra.Command, c *client, positional []string) error {
			id, err := named(cmd.Context(), c, "/block-exceptions", "exception", positional[0], func(i *exceptionItem) (string, string) { return i.ID, i.Address })
			if err != nil {
				return err
			}
			if err := opts.confirm(cmd.Context(), cmd, "Let %s be blocked again?", positional[0]); err != nil {
				return err
			}
			if err := c.delete(cmd.Context(), "/block-exceptions/"+segment(id)); err != nil {
				return err
			}
			note(cmd, "%s may be blocked again", positional[0])
			return nil
		}),
	}
}

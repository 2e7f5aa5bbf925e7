package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"os"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"
)

// listFlags are those of commands that print lists.
type listFlags struct {
	limit    int
	all      bool
	since    time.Duration
	watch    bool
	interval time.Duration
}

// register adds the flags; since only where the API takes created_after.
func (f *listFlags) register(cmd *cobra.Command, since bool) {
	cmd.Flags().IntVar(&f.limit, "limit", 50, "how many at most")
	cmd.Flags().BoolVar(&f.all, "all", false, "all of them")
	f.registerWatch(cmd)
	if since {
		cmd.Flags().DurationVar(&f.since, "since", 0, "only what was created that long ago or less, such as 1h")
	}
}

// registerWatch adds the flags of a list that comes in one piece.
func (f *listFlags) registerWatch(cmd *cobra.Command) {
	cmd.Flags().BoolVarP(&f.watch, "watch", "w", false, "go on: show the list anew on a terminal, and otherwise print what is new or has changed")
	cmd.Flags().DurationVar(&f.interval, "interval", 2*time.Second, "how often --watch looks")
}

func (f *listFlags) check() error {
	switch {
	case f.limit < 1:
		return usage("--limit must be at least 1, was %d", f.limit)
	case f.since < 0:
		return usage("--since must not be negative, was %s", f.since)
	case f.watch && f.interval < 200*time.Millisecond:
		return usage("--interval must be at least 200ms, was %s", f.interval)
	}
	return nil
}

// query adds --since to a query.
func (f *listFlags) query(query url.Values) url.Values {
	if f.since > 0 {
		query.Set("created_after", time.Now().Add(-f.since).UTC().Format(time.RFC3339))
	}
	return query
}

func (f *listFlags) most() int {
	if f.all {
		return 0
	}
	return f.limit
}

// runList prints a list of the API, or watches it. The query is made for each look.
func runList[T any](cmd *cobra.Command, o *options, c *client, flags *listFlags, path string, query func() url.Values, v view[T]) error {
	if err := flags.check(); err != nil {
		return err
	}
	look := func(ctx context.Context) ([]json.RawMessage, bool, error) {
		return c.list(ctx, path, flags.query(query()), flags.most())
	}
	if flags.watch {
		return watch(cmd, o, flags.interval, v, look)
	}
	items, more, err := look(cmd.Context())
	if err != nil {
		return err
	}
	if err := showList(o, cmd.OutOrStdout(), v, items); err != nil {
		return err
	}
	if more {
		note(cmd, "there are more than %d: --limit N or --all shows them", flags.limit)
	}
	return nil
}

// runWhole prints a list that the API returns in one piece, or watches it.
func runWhole[T any](cmd *cobra.Command, o *options, c *client, flags *listFlags, path string, v view[T]) error {
	flags.limit = 1 // which it does not have
	if err := flags.check(); err != nil {
		return err
	}
	look := func(ctx context.Context) ([]json.RawMessage, bool, error) {
		var all listing
		err := c.get(ctx, path, nil, &all)
		return all.Data, false, err
	}
	if flags.watch {
		return watch(cmd, o, flags.interval, v, look)
	}
	items, _, err := look(cmd.Context())
	if err != nil {
		return err
	}
	return showList(o, cmd.OutOrStdout(), v, items)
}

// clearScreen moves a terminal's cursor home and clears what is below (ECMA-48: CUP, ED).
const clearScreen = "\x1b[H\x1b[J"

// watch looks again and again until it is stopped, which is no error. While the API is away it says so, once, and goes on.
func watch[T any](cmd *cobra.Command, o *options, interval time.Duration, v view[T], look func(ctx context.Context) ([]json.RawMessage, bool, error)) error {
	ctx := cmd.Context()
	seen := &changes[T]{view: v, known: map[string]string{}}
	screen := interactive(cmd.OutOrStdout()) && (o.output == outputTable || o.output == outputWide)
	gone := false
	for {
		items, _, err := look(ctx)
		switch {
		case stopped(ctx):
			return nil
		case err != nil && !away(err):
			return err
		case err != nil && !gone:
			note(cmd, "waiting for the API: %v", err)
		case err == nil && gone:
			note(cmd, "the API is back")
		}
		if gone = err != nil; !gone {
			if screen {
				err = redraw(cmd.OutOrStdout(), o, interval, v, items, screenHeight(cmd.OutOrStdout()))
			} else {
				err = seen.print(o, cmd.OutOrStdout(), items)
			}
			if err != nil {
				return err
			}
		}
		if !wait(ctx, interval) {
			return nil
		}
	}
}

// redraw shows a list anew from the top of the screen, as much of it as fits.
func redraw[T any](w io.Writer, o *options, interval time.Duration, v view[T], items []json.RawMessage, height int) error {
	const frame = 4 // what stands above the items, and what tells of others
	shown := items[:min(len(items), max(1, height-frame))]
	if _, err := fmt.Fprintf(w, "%severy %s, %s\n\n", clearScreen, interval, time.Now().Format(time.TimeOnly)); err != nil {
		return fmt.Errorf("print: %w", err)
	}
	if err := showList(o, w, v, shown); err != nil {
		return err
	}
	if more := len(items) - len(shown); more > 0 {
		if _, err := fmt.Fprintf(w, "and %d more", more); err != nil {
			return fmt.Errorf("print: %w", err)
		}
	}
	return nil
}

// screenHeight is how many lines a terminal has; 24 where it does not say.
func screenHeight(w io.Writer) int {
	if file, ok := w.(*os.File); ok {
		if _, height, err := term.GetSize(int(file.Fd())); err == nil && height > 0 {
			return height
		}
	}
	return 24
}

// stopped reports whether the command is to end: a request that failed for that is no failure.
func stopped(ctx context.Context) bool { return ctx.Err() != nil }

// wait reports whether the time has passed before ctx ended.
func wait(ctx context.Context, interval time.Duration) bool {
	timer := time.NewTimer(interval)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// changes prints the items of a list that were not there before, or were otherwise. Names tell them apart.
type changes[T any] struct {
	view    view[T]
	known   map[string]string
	printed bool
}

func (c *changes[T]) print(o *options, w io.Writer, items []json.RawMessage) error {
	read, err := decodeAll[T](items)
	if err != nil {
		return err
	}
	now := make(map[string]string, len(items))
	var fresh []int
	for i, item := range items {
		name := c.view.name(&read[i])
		now[name] = string(item)
		if was, known := c.known[name]; !known || was != now[name] {
			fresh = append(fresh, i)
		}
	}
	c.known = now
	// Lists are newest first; what is printed on goes on with the newest.
	for i := len(fresh) - 1; i >= 0; i-- {
		if err := c.one(o, w, items[fresh[i]], &read[fresh[i]]); err != nil {
			return err
		}
	}
	return nil
}

func (c *changes[T]) one(o *options, w io.Writer, item json.RawMessage, read *T) error {
	switch o.output {
	case outputJSON: // an object in a line, as programs read a stream
		_, err := fmt.Fprintf(w, "%s\n", item)
		return err
	case outputYAML:
		if _, err := fmt.Fprintln(w, "---"); err != nil {
			return err
		}
		return o.structured(w, item)
	case outputName:
		return c.view.names(w, []T{*read})
	default:
		header := !c.printed
		c.printed = true
		return c.view.table(w, o.output == outputWide, header, []T{*read})
	}
}

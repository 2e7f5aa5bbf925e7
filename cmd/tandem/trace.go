package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
)

// story is the story of a call as it is shown.
type story struct {
	Call     callItem    `json:"call"`
	Verdict  string      `json:"verdict"`
	Problems []string    `json:"problems"`
	Steps    []storyStep `json:"steps"`
}

// storyStep is one thing that happened.
type storyStep struct {
	ID     string `json:"id"`
	At     string `json:"at"`
	Offset int64  `json:"offset_ms"`
	Lane   string `json:"lane"`
	OK     bool   `json:"ok"`
	Text   string `json:"text"`
}

func newCallsTrace(opts *options) *cobra.Command {
	var follow bool
	var interval time.Duration
	cmd := &cobra.Command{
		Use:   "trace CALL_ID",
		Short: "Tell the story of a call: SIP, switch, answer_url, actions, webhooks and money in order",
		Long: "trace tells what is known of a call, live or ended, in the order in which it happened: its states, SIP as the\n" +
			"switch's record tells it, what the application was asked and what it answered, actions, webhooks, money and what\n" +
			"operators did. Times count from the call's first moment; ! marks what went wrong. With --follow it goes on with\n" +
			"what happens next until the call has ended. With -o name it prints the ids of what it tells.",
		Args: args(cobra.ExactArgs(1)), ValidArgsFunction: opts.completeItems("/calls", "id"),
		RunE: opts.withClient(func(cmd *cobra.Command, c *client, positional []string) error {
			if interval < 200*time.Millisecond {
				return usage("--interval must be at least 200ms, was %s", interval)
			}
			tell := &telling{opts: opts, out: cmd.OutOrStdout(), told: map[string]bool{}}
			path := "/calls/" + segment(positional[0]) + "/trace"
			if !follow {
				raw, err := tell.read(cmd.Context(), c, path)
				if err != nil {
					return err
				}
				return tell.whole(raw)
			}
			return tell.follow(cmd, c, path, interval)
		}),
	}
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "go on until the call has ended")
	cmd.Flags().DurationVar(&interval, "interval", time.Second, "how often --follow looks")
	return cmd
}

// telling prints a story.
type telling struct {
	opts *options
	out  io.Writer
	told map[string]bool
}

func (t *telling) read(ctx context.Context, c *client, path string) (json.RawMessage, error) {
	var raw json.RawMessage
	return raw, c.get(ctx, path, nil, &raw)
}

func (t *telling) whole(raw json.RawMessage) error {
	if t.opts.output == outputJSON || t.opts.output == outputYAML {
		return t.opts.structured(t.out, raw)
	}
	var s story
	if err := json.Unmarshal(raw, &s); err != nil {
		return fmt.Errorf("the server answered something that this version does not understand: %w", err)
	}
	if t.opts.output != outputName {
		if err := t.head(&s); err != nil {
			return err
		}
	}
	if err := t.steps(s.Steps); err != nil {
		return err
	}
	if t.opts.output == outputName {
		return nil
	}
	return t.foot(&s)
}

func (t *telling) head(s *story) error {
	_, err := fmt.Fprintf(t.out, "%s  %s %s -> %s  %s\n\n", s.Call.ID, printable(s.Call.Direction), printable(s.Call.From), printable(s.Call.To), printable(s.Call.CreatedAt))
	return err
}

// steps prints those steps that have not been printed.
func (t *telling) steps(steps []storyStep) error {
	for i := range steps {
		step := &steps[i]
		if key := step.Lane + " " + step.ID; t.told[key] {
			continue
		} else {
			t.told[key] = true
		}
		var err error
		if t.opts.output == outputName {
			_, err = fmt.Fprintln(t.out, printable(step.ID))
		} else {
			mark := " "
			if !step.OK {
				mark = "!"
			}
			_, err = fmt.Fprintf(t.out, "%10.3f s %s %-10s %s\n", float64(step.Offset)/1000, mark, printable(step.Lane), printable(step.Text))
		}
		if err != nil {
			return fmt.Errorf("print: %w", err)
		}
	}
	return nil
}

// foot prints the verdict and what went wrong.
func (t *telling) foot(s *story) error {
	if _, err := fmt.Fprintf(t.out, "\n%s\n", printable(s.Verdict)); err != nil {
		return fmt.Errorf("print: %w", err)
	}
	for _, problem := range s.Problems {
		if _, err := fmt.Fprintf(t.out, "  ! %s\n", printable(problem)); err != nil {
			return fmt.Errorf("print: %w", err)
		}
	}
	return nil
}

// lastLook is how long after a call's end --follow still looks for what follows it, such as webhooks.
const lastLook = 3 * time.Second

// follow prints what happens until the call has ended. JSON is one step in a line.
func (t *telling) follow(cmd *cobra.Command, c *client, path string, interval time.Duration) error {
	begun := false
	var ended time.Time
	for {
		raw, err := t.read(cmd.Context(), c, path)
		switch {
		case stopped(cmd.Context()):
			return nil
		case err != nil && away(err) && begun:
			note(cmd, "waiting for the API: %v", err)
		case err != nil:
			return err
		default:
			var s story
			if err := json.Unmarshal(raw, &s); err != nil {
				return fmt.Errorf("the server answered something that this version does not understand: %w", err)
			}
			if err := t.next(&s, !begun); err != nil {
				return err
			}
			begun = true
			if s.Call.EndedAt != nil && ended.IsZero() {
				ended = time.Now()
			}
			if !ended.IsZero() && time.Since(ended) >= lastLook {
				return t.close(&s)
			}
		}
		if !wait(cmd.Context(), interval) {
			return nil
		}
	}
}

func (t *telling) next(s *story, first bool) error {
	switch t.opts.output {
	case outputJSON:
		for i := range s.Steps {
			if key := s.Steps[i].Lane + " " + s.Steps[i].ID; !t.told[key] {
				t.told[key] = true
				if err := json.NewEncoder(t.out).Encode(s.Steps[i]); err != nil {
					return fmt.Errorf("print: %w", err)
				}
			}
		}
		return nil
	case outputTable, outputWide:
		if first {
			if err := t.head(s); err != nil {
				return err
			}
		}
	}
	return t.steps(s.Steps)
}

func (t *telling) close(s *story) error {
	if t.opts.output != outputTable && t.opts.output != outputWide {
		return nil
	}
	return t.foot(s)
}

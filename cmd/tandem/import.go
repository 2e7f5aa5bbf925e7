package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"
)

// importJob is what imports of every kind have.
type importJob struct {
	ID         string            `json:"id"`
	State      string            `json:"state"`
	FileName   string            `json:"file_name"`
	FileSHA256 string            `json:"file_sha256"`
	Columns    []string          `json:"columns"`
	Defaults   map[string]string `json:"defaults"`
	Total      int64             `json:"total_records"`
	Next       int64             `json:"next_record"`
	Created    int64             `json:"created"`
	Updated    int64             `json:"updated"`
	Rejected   int64             `json:"rejected"`
	CreatedAt  string            `json:"created_at"`
}

// importReject is a record that was refused.
type importReject struct {
	Line    int64  `json:"line"`
	Record  string `json:"record"`
	Field   string `json:"field"`
	Message string `json:"message"`
}

// importColumns are the columns of a table of imports of any kind.
func importColumns[T any](of func(*T) *importJob) []column[T] {
	count := func(number func(*importJob) int64) func(*T) string {
		return func(i *T) string { return strconv.FormatInt(number(of(i)), 10) }
	}
	return []column[T]{
		{title: "ID", text: func(i *T) string { return of(i).ID }},
		{title: "STATE", text: func(i *T) string { return of(i).State }},
		{title: "FILE", text: func(i *T) string { return of(i).FileName }},
		{title: "RECORDS", text: func(i *T) string { return fmt.Sprintf("%d/%d", of(i).Next, of(i).Total) }},
		{title: "CREATED", text: count(func(i *importJob) int64 { return i.Created })},
		{title: "UPDATED", text: count(func(i *importJob) int64 { return i.Updated })},
		{title: "REJECTED", text: count(func(i *importJob) int64 { return i.Rejected })},
		{title: "BEGUN", wide: true, text: func(i *T) string { return of(i).CreatedAt }},
	}
}

var rejectsView = view[importReject]{
	name: func(i *importReject) string { return strconv.FormatInt(i.Line, 10) },
	columns: []column[importReject]{
		{title: "LINE", text: func(i *importReject) string { return strconv.FormatInt(i.Line, 10) }},
		{title: "COLUMN", text: func(i *importReject) string { return i.Field }},
		{title: "WHY", text: func(i *importReject) string { return i.Message }},
		{title: "RECORD", text: func(i *importReject) string { return i.Record }},
	},
}

// importHelp is what the help of every import ends with.
const importHelp = "What is wrong is rejected, written with its reason to FILE.rejects.csv, and the rest is imported; that file can be\n" +
	"corrected and imported again. Where the import is broken off, on either side, the same command goes on where it was.\n\n" +
	"Exit code 0: every record was taken. 1: some were rejected, or it failed."

func completeCSV(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return []cobra.Completion{"csv"}, cobra.ShellCompDirectiveFilterFileExt
}

// importFlags are those of every import.
type importFlags struct {
	rejects   string
	delimiter string
	fresh     bool
	patience  time.Duration
}

func (f *importFlags) register(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.rejects, "rejects", "", "file for what is rejected (default: FILE.rejects.csv)")
	cmd.Flags().StringVar(&f.delimiter, "delimiter", ",", "what stands between values")
	cmd.Flags().BoolVar(&f.fresh, "new", false, "begin anew, though an import of the same file was broken off")
	cmd.Flags().DurationVar(&f.patience, "retry-for", 5*time.Minute, "how long to wait for a server that does not answer")
}

// fileImport is a file on its way to the server.
type fileImport struct {
	// path is where the API has imports of the kind.
	path  string
	flags *importFlags
	// defaults are the values of columns that the flags give, rest is what else begins the import.
	defaults map[string]any
	rest     map[string]string
	// unless is what did not happen because a record was rejected, where that is so.
	unless string
	// shown prints the import at its end.
	shown func(item json.RawMessage) error
}

func (f *fileImport) run(cmd *cobra.Command, opts *options, c *client, path string) error {
	comma, size := utf8.DecodeRuneInString(f.flags.delimiter)
	if size == 0 || size != len(f.flags.delimiter) || comma == utf8.RuneError || comma == '"' || comma == '\n' || comma == '\r' {
		return usage("--delimiter must be one character, was %q", f.flags.delimiter)
	}
	file, err := openCSV(path, comma)
	if err != nil {
		return err
	}
	defer file.close()
	job, err := f.begin(cmd, c, file, filepath.Base(path))
	if err != nil {
		return err
	}
	if job, err = f.send(cmd, opts, c, file, job); err != nil {
		note(cmd, "import %s stands at record %d of %d; the same command goes on there", job.ID, job.Next, job.Total)
		return err
	}
	rejected, err := f.keepRejects(cmd, c, job, path)
	if err != nil {
		return err
	}
	var item json.RawMessage
	if err := c.get(cmd.Context(), f.path+"/"+segment(job.ID), nil, &item); err != nil {
		return err
	}
	if err := f.shown(item); err != nil {
		return err
	}
	if rejected != "" {
		return fmt.Errorf("%d were rejected: %s says why%s", job.Rejected, rejected, f.unless)
	}
	return nil
}

// begin goes on with the import of the same file, with the same flags, that was broken off, or begins one.
func (f *fileImport) begin(cmd *cobra.Command, c *client, file *csvFile, name string) (*importJob, error) {
	ctx := cmd.Context()
	if !f.flags.fresh {
		items, _, err := c.list(ctx, f.path, parameters("state", "open", "file_sha256", file.sha256), 20)
		if err != nil {
			return nil, err
		}
		for _, item := range items {
			open, err := f.isThis(item, file)
			if err != nil {
				return nil, err
			}
			if open != nil {
				note(cmd, "going on with import %s at record %d of %d", open.ID, open.Next, open.Total)
				return open, nil
			}
		}
	}
	wanted := maps.Clone(f.defaults)
	for name, value := range f.rest {
		wanted[name] = value
	}
	wanted["columns"], wanted["total_records"], wanted["file_name"], wanted["file_sha256"] = file.columns, file.records, name, file.sha256
	job := &importJob{}
	return job, c.post(ctx, f.path, wanted, job)
}

// isThis returns an import if it was begun with the same flags and columns.
func (f *fileImport) isThis(item json.RawMessage, file *csvFile) (*importJob, error) {
	found, err := decodeAll[importJob]([]json.RawMessage{item})
	if err != nil {
		return nil, err
	}
	all, err := decodeAll[map[string]any]([]json.RawMessage{item})
	if err != nil {
		return nil, err
	}
	defaults := map[string]string{}
	for name, value := range f.defaults {
		defaults[name] = fmt.Sprint(value)
	}
	if !maps.Equal(found[0].Defaults, defaults) || !slices.Equal(found[0].Columns, file.columns) {
		return nil, nil
	}
	for name, value := range f.rest {
		if all[0][name] != value {
			return nil, nil
		}
	}
	return &found[0], nil
}

// send sends what is left of a file, and returns how far the import has come, also with an error.
func (f *fileImport) send(cmd *cobra.Command, opts *options, c *client, file *csvFile, job *importJob) (*importJob, error) {
	ctx := cmd.Context()
	left, err := file.parts(job.Next)
	if err != nil {
		return job, err
	}
	bar := opts.newProgress(cmd, "importing", job.Total)
	defer bar.finish()
	for job.State == "open" {
		bar.at(job.Next)
		if err := left.goTo(job.Next); err != nil {
			return job, err
		}
		part, err := left.part()
		if err != nil {
			return job, err
		}
		if len(part) == 0 {
			return job, fmt.Errorf("%s ends before the import does: has it changed?", file.file.Name())
		}
		next := &importJob{}
		err = c.patiently(ctx, f.flags.patience, func() error {
			err := c.post(ctx, f.path+"/"+segment(job.ID)+"/records", map[string]any{"record": job.Next, "records": part}, next)
			if refusedAs(err, "import_place") {
				// It was taken, but the answer was lost; or another sends the same file.
				err = c.get(ctx, f.path+"/"+segment(job.ID), nil, next)
				if err == nil && next.State == "open" && next.Next == job.Next {
					return fmt.Errorf("import %s has no room for what follows record %d of %s: has it changed?", job.ID, job.Next, file.file.Name())
				}
			}
			return err
		})
		if err != nil {
			return job, err
		}
		job = next
	}
	bar.at(job.Next)
	if job.State != "finished" {
		return job, fmt.Errorf("import %s is %s", job.ID, job.State)
	}
	return job, nil
}

// patiently tries again while nobody answers or the API says that it cannot, up to a time.
func (c *client) patiently(ctx context.Context, patience time.Duration, try func() error) error {
	begun, pause := time.Now(), 200*time.Millisecond
	for {
		err := try()
		if err == nil || !away(err) || time.Since(begun) > patience {
			return err
		}
		if !wait(ctx, pause) {
			return errors.Join(err, ctx.Err())
		}
		pause = min(2*pause, 5*time.Second)
	}
}

// keepRejects writes what an import has rejected to a file and returns its name, empty where there is nothing.
func (f *fileImport) keepRejects(cmd *cobra.Command, c *client, job *importJob, path string) (string, error) {
	if job.Rejected == 0 {
		return "", nil
	}
	name := f.flags.rejects
	if name == "" {
		name = rejectsPath(path)
	}
	items, _, err := c.list(cmd.Context(), f.path+"/"+segment(job.ID)+"/rejects", nil, 0)
	if err != nil {
		return "", err
	}
	rejects, err := decodeAll[importReject](items)
	if err != nil {
		return "", err
	}
	return name, writeRejects(name, job.Columns, rejects)
}

// newImports is the group of commands on the imports of a kind.
func newImports[T any](opts *options, path, short string, imports view[T]) *cobra.Command {
	flags := &listFlags{}
	list := &cobra.Command{
		Use: "ls", Aliases: []string{"list"}, Short: "List imports, newest first", Args: args(cobra.NoArgs),
		RunE: opts.withClient(func(cmd *cobra.Command, c *client, _ []string) error {
			return runList(cmd, opts, c, flags, path, func() url.Values { return url.Values{} }, imports)
		}),
	}
	flags.register(list, false)
	rejected := &listFlags{}
	rejects := &cobra.Command{
		Use: "rejects ID", Short: "List what an import has rejected, and why", Args: args(cobra.ExactArgs(1)),
		ValidArgsFunction: opts.completeItems(path, "id"),
		RunE: opts.withClient(func(cmd *cobra.Command, c *client, positional []string) error {
			return runList(cmd, opts, c, rejected, path+"/"+segment(positional[0])+"/rejects", func() url.Values { return url.Values{} }, rejectsView)
		}),
	}
	rejected.register(rejects, false)
	cancel := &cobra.Command{
		Use: "cancel ID", Short: "End an import that was broken off; what it has imported stays", Args: args(cobra.ExactArgs(1)),
		ValidArgsFunction: opts.completeItems(path, "id"),
		RunE: opts.withClient(func(cmd *cobra.Command, c *client, positional []string) error {
			var item json.RawMessage
			if err := c.post(cmd.Context(), path+"/"+segment(positional[0])+"/cancel", nil, &item); err != nil {
				return err
			}
			return show(opts, cmd.OutOrStdout(), imports, item)
		}),
	}
	return group("imports", short, list, rejects, cancel)
}

// toFile has something written to a file that must not exist, or to standard output where there is no path.
func toFile(cmd *cobra.Command, path string, write func(out io.Writer) error) error {
	if path == "" {
		return write(cmd.OutOrStdout())
	}
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("open the file to write: %w", err)
	}
	return errors.Join(write(file), file.Close())
}

// exportList hands a list of the API to write, page by page, and shows how far it is.
func exportList(cmd *cobra.Command, opts *options, c *client, path string, query url.Values, write func(items []json.RawMessage) error) error {
	bar := opts.newProgress(cmd, "exporting", 0)
	defer bar.finish()
	query.Set("limit", strconv.Itoa(pageLimit))
	for done := int64(0); ; {
		var page listing
		if err := c.patiently(cmd.Context(), time.Minute, func() error { return c.get(cmd.Context(), path, query, &page) }); err != nil {
			return err
		}
		if err := write(page.Data); err != nil {
			return err
		}
		done += int64(len(page.Data))
		bar.at(done)
		if !page.HasMore || page.NextCursor == nil {
			return nil
		}
		query.Set("cursor", *page.NextCursor)
	}
}

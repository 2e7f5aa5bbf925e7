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

// didImport is an import of numbers.
type didImport struct {
	ID         string            `json:"id"`
	State      string            `json:"state"`
	FileName   string            `json:"file_name"`
	FileSHA256 string            `json:"file_sha256"`
	Columns    []string          `json:"columns"`
	Defaults   map[string]string `json:"defaults"`
	OnConflict string            `json:"on_conflict"`
	Total      int64             `json:"total_records"`
	Next       int64             `json:"next_record"`
	Created    int64             `json:"created"`
	Updated    int64             `json:"updated"`
	Duplicates int64             `json:"duplicates"`
	Rejected   int64             `json:"rejected"`
	CreatedAt  string            `json:"created_at"`
}

// didReject is a record that was refused.
type didReject struct {
	Line    int64  `json:"line"`
	Record  string `json:"record"`
	Field   string `json:"field"`
	Message string `json:"message"`
}

var importsView = view[didImport]{
	name: func(i *didImport) string { return i.ID },
	columns: []column[didImport]{
		{title: "ID", text: func(i *didImport) string { return i.ID }},
		{title: "STATE", text: func(i *didImport) string { return i.State }},
		{title: "FILE", text: func(i *didImport) string { return i.FileName }},
		{title: "RECORDS", text: func(i *didImport) string { return fmt.Sprintf("%d/%d", i.Next, i.Total) }},
		{title: "CREATED", text: func(i *didImport) string { return strconv.FormatInt(i.Created, 10) }},
		{title: "UPDATED", text: func(i *didImport) string { return strconv.FormatInt(i.Updated, 10) }},
		{title: "DUPLICATES", text: func(i *didImport) string { return strconv.FormatInt(i.Duplicates, 10) }},
		{title: "REJECTED", text: func(i *didImport) string { return strconv.FormatInt(i.Rejected, 10) }},
		{title: "ON CONFLICT", wide: true, text: func(i *didImport) string { return i.OnConflict }},
		{title: "BEGUN", wide: true, text: func(i *didImport) string { return i.CreatedAt }},
	},
}

var rejectsView = view[didReject]{
	name: func(i *didReject) string { return strconv.FormatInt(i.Line, 10) },
	columns: []column[didReject]{
		{title: "LINE", text: func(i *didReject) string { return strconv.FormatInt(i.Line, 10) }},
		{title: "COLUMN", text: func(i *didReject) string { return i.Field }},
		{title: "WHY", text: func(i *didReject) string { return i.Message }},
		{title: "RECORD", text: func(i *didReject) string { return i.Record }},
	},
}

// importFlags are those of an import.
type importFlags struct {
	routing    didRouting
	onConflict string
	rejects    string
	delimiter  string
	fresh      bool
	patience   time.Duration
}

func newDIDsImport(opts *options) *cobra.Command {
	flags := &importFlags{}
	cmd := &cobra.Command{
		Use: "import FILE", Short: "Import a CSV file of numbers; broken off, the same command goes on", Args: args(cobra.ExactArgs(1)),
		Long: "Import a CSV file of numbers. Its first line names the columns: number_e164, which may hold ranges such as\n" +
			"+4930123400-99, and any of customer_id, application_id, provider, status, route_mode, sip_uri, reject_code. What a\n" +
			"record leaves empty is what the flags say.\n\n" +
			"What is wrong is rejected, written with its reason to FILE.rejects.csv, and the rest is imported; that file can be\n" +
			"corrected and imported again. Where the import is broken off, on either side, the same command goes on where it was.\n\n" +
			"Exit code 0: every record was taken. 1: some were rejected, or it failed.",
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
			return []cobra.Completion{"csv"}, cobra.ShellCompDirectiveFilterFileExt
		},
		RunE: opts.withClient(func(cmd *cobra.Command, c *client, positional []string) error {
			return runImport(cmd, opts, c, flags, positional[0])
		}),
	}
	flags.routing.register(cmd)
	cmd.Flags().StringVar(&flags.onConflict, "on-conflict", "skip", "with a number that exists: skip it, update one of the same customer's, or reassign any")
	cmd.Flags().StringVar(&flags.rejects, "rejects", "", "file for what is rejected (default: FILE.rejects.csv)")
	cmd.Flags().StringVar(&flags.delimiter, "delimiter", ",", "what stands between values")
	cmd.Flags().BoolVar(&flags.fresh, "new", false, "begin anew, though an import of the same file was broken off")
	cmd.Flags().DurationVar(&flags.patience, "retry-for", 5*time.Minute, "how long to wait for a server that does not answer")
	complete(cmd, "on-conflict", "skip", "update", "reassign")
	return cmd
}

func runImport(cmd *cobra.Command, opts *options, c *client, flags *importFlags, path string) error {
	comma, size := utf8.DecodeRuneInString(flags.delimiter)
	if size == 0 || size != len(flags.delimiter) || comma == utf8.RuneError || comma == '"' || comma == '\n' || comma == '\r' {
		return usage("--delimiter must be one character, was %q", flags.delimiter)
	}
	file, err := openDIDFile(path, comma)
	if err != nil {
		return err
	}
	defer file.close()
	job, err := beginImport(cmd, c, flags, file, filepath.Base(path))
	if err != nil {
		return err
	}
	if job, err = sendRecords(cmd, opts, c, flags, file, job); err != nil {
		note(cmd, "import %s stands at record %d of %d; the same command goes on there", job.ID, job.Next, job.Total)
		return err
	}
	rejected, err := keepRejects(cmd, c, flags, job, path)
	if err != nil {
		return err
	}
	var item json.RawMessage
	if err := c.get(cmd.Context(), "/did-imports/"+segment(job.ID), nil, &item); err != nil {
		return err
	}
	if err := show(opts, cmd.OutOrStdout(), importsView, item); err != nil {
		return err
	}
	if rejected != "" {
		return fmt.Errorf("%d were rejected: %s says why", job.Rejected, rejected)
	}
	return nil
}

// beginImport goes on with the import of the same file, with the same flags, that was broken off, or begins one.
func beginImport(cmd *cobra.Command, c *client, flags *importFlags, file *didFile, name string) (*didImport, error) {
	ctx := cmd.Context()
	wanted := flags.routing.body()
	if !flags.fresh {
		items, _, err := c.list(ctx, "/did-imports", parameters("state", "open", "file_sha256", file.sha256), 20)
		if err != nil {
			return nil, err
		}
		open, err := decodeAll[didImport](items)
		if err != nil {
			return nil, err
		}
		defaults := map[string]string{}
		for name, value := range wanted {
			defaults[name] = fmt.Sprint(value)
		}
		for i := range open {
			if maps.Equal(open[i].Defaults, defaults) && open[i].OnConflict == flags.onConflict && slices.Equal(open[i].Columns, file.columns) {
				note(cmd, "going on with import %s at record %d of %d", open[i].ID, open[i].Next, open[i].Total)
				return &open[i], nil
			}
		}
	}
	wanted["columns"], wanted["total_records"], wanted["file_name"] = file.columns, file.records, name
	wanted["file_sha256"], wanted["on_conflict"] = file.sha256, flags.onConflict
	job := &didImport{}
	return job, c.post(ctx, "/did-imports", wanted, job)
}

// sendRecords sends what is left of a file, and returns how far the import has come, also with an error.
func sendRecords(cmd *cobra.Command, opts *options, c *client, flags *importFlags, file *didFile, job *didImport) (*didImport, error) {
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
		next := &didImport{}
		err = c.patiently(ctx, flags.patience, func() error {
			err := c.post(ctx, "/did-imports/"+segment(job.ID)+"/records", map[string]any{"record": job.Next, "records": part}, next)
			if refusedAs(err, "import_place") {
				// It was taken, but the answer was lost; or another sends the same file.
				err = c.get(ctx, "/did-imports/"+segment(job.ID), nil, next)
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
func keepRejects(cmd *cobra.Command, c *client, flags *importFlags, job *didImport, path string) (string, error) {
	if job.Rejected == 0 {
		return "", nil
	}
	name := flags.rejects
	if name == "" {
		name = rejectsPath(path)
	}
	items, _, err := c.list(cmd.Context(), "/did-imports/"+segment(job.ID)+"/rejects", nil, 0)
	if err != nil {
		return "", err
	}
	rejects, err := decodeAll[didReject](items)
	if err != nil {
		return "", err
	}
	return name, writeRejects(name, job.Columns, rejects)
}

func newDIDsImports(opts *options) *cobra.Command {
	flags := &listFlags{}
	list := &cobra.Command{
		Use: "ls", Aliases: []string{"list"}, Short: "List imports, newest first", Args: args(cobra.NoArgs),
		RunE: opts.withClient(func(cmd *cobra.Command, c *client, _ []string) error {
			return runList(cmd, opts, c, flags, "/did-imports", func() url.Values { return url.Values{} }, importsView)
		}),
	}
	flags.register(list, false)
	rejected := &listFlags{}
	rejects := &cobra.Command{
		Use: "rejects ID", Short: "List what an import has rejected, and why", Args: args(cobra.ExactArgs(1)),
		ValidArgsFunction: opts.completeItems("/did-imports", "id"),
		RunE: opts.withClient(func(cmd *cobra.Command, c *client, positional []string) error {
			return runList(cmd, opts, c, rejected, "/did-imports/"+segment(positional[0])+"/rejects", func() url.Values { return url.Values{} }, rejectsView)
		}),
	}
	rejected.register(rejects, false)
	cancel := &cobra.Command{
		Use: "cancel ID", Short: "End an import that was broken off; what it has imported stays", Args: args(cobra.ExactArgs(1)),
		ValidArgsFunction: opts.completeItems("/did-imports", "id"),
		RunE: opts.withClient(func(cmd *cobra.Command, c *client, positional []string) error {
			var item json.RawMessage
			if err := c.post(cmd.Context(), "/did-imports/"+segment(positional[0])+"/cancel", nil, &item); err != nil {
				return err
			}
			return show(opts, cmd.OutOrStdout(), importsView, item)
		}),
	}
	return group("imports", "Imports of numbers", list, rejects, cancel)
}

func newDIDsExport(opts *options) *cobra.Command {
	filter := &didFilter{}
	var path string
	cmd := &cobra.Command{
		Use: "export", Short: "Write numbers as CSV, as import takes it", Args: args(cobra.NoArgs),
		RunE: opts.withClient(func(cmd *cobra.Command, c *client, _ []string) error {
			if path == "" {
				return exportDIDs(cmd, opts, c, filter, cmd.OutOrStdout())
			}
			file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
			if err != nil {
				return fmt.Errorf("open the file for the numbers: %w", err)
			}
			return errors.Join(exportDIDs(cmd, opts, c, filter, file), file.Close())
		}),
	}
	filter.register(cmd)
	cmd.Flags().StringVar(&path, "file", "", "file to write, which must not exist (default: standard output)")
	return cmd
}

func exportDIDs(cmd *cobra.Command, opts *options, c *client, filter *didFilter, out io.Writer) error {
	w := newDIDWriter(out)
	bar := opts.newProgress(cmd, "exporting", 0)
	defer bar.finish()
	query := filter.query()
	query.Set("limit", strconv.Itoa(pageLimit))
	for done := int64(0); ; {
		var page listing
		if err := c.patiently(cmd.Context(), time.Minute, func() error { return c.get(cmd.Context(), "/dids", query, &page) }); err != nil {
			return err
		}
		dids, err := decodeAll[didItem](page.Data)
		if err != nil {
			return err
		}
		if err := w.write(dids); err != nil {
			return err
		}
		done += int64(len(dids))
		bar.at(done)
		if !page.HasMore || page.NextCursor == nil {
			return nil
		}
		query.Set("cursor", *page.NextCursor)
	}
}

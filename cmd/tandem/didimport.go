package main

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"strconv"

	"github.com/spf13/cobra"
)

// didImport is an import of numbers.
type didImport struct {
	importJob
	OnConflict string `json:"on_conflict"`
	Duplicates int64  `json:"duplicates"`
}

var didImportsView = view[didImport]{
	name: func(i *didImport) string { return i.ID },
	columns: append(importColumns(func(i *didImport) *importJob { return &i.importJob }),
		column[didImport]{title: "DUPLICATES", text: func(i *didImport) string { return strconv.FormatInt(i.Duplicates, 10) }},
		column[didImport]{title: "ON CONFLICT", wide: true, text: func(i *didImport) string { return i.OnConflict }},
	),
}

func newDIDsImport(opts *options) *cobra.Command {
	flags, routing := &importFlags{}, &didRouting{}
	var onConflict string
	cmd := &cobra.Command{
		Use: "import FILE", Short: "Import a CSV file of numbers; broken off, the same command goes on", Args: args(cobra.ExactArgs(1)),
		Long: "Import a CSV file of numbers. Its first line names the columns: number_e164, which may hold ranges such as\n" +
			"+4930123400-99, and any of customer_id, application_id, provider, status, route_mode, sip_uri, reject_code. What a\n" +
			"record leaves empty is what the flags say.\n\n" + importHelp,
		ValidArgsFunction: completeCSV,
		RunE: opts.withClient(func(cmd *cobra.Command, c *client, positional []string) error {
			job := &fileImport{
				path: "/did-imports", flags: flags, defaults: routing.body(), rest: map[string]string{"on_conflict": onConflict},
				shown: func(item json.RawMessage) error { return show(opts, cmd.OutOrStdout(), didImportsView, item) },
			}
			return job.run(cmd, opts, c, positional[0])
		}),
	}
	routing.register(cmd)
	flags.register(cmd)
	cmd.Flags().StringVar(&onConflict, "on-conflict", "skip", "with a number that exists: skip it, update one of the same customer's, or reassign any")
	complete(cmd, "on-conflict", "skip", "update", "reassign")
	return cmd
}

func newDIDsImports(opts *options) *cobra.Command {
	return newImports(opts, "/did-imports", "Imports of numbers", didImportsView)
}

func newDIDsExport(opts *options) *cobra.Command {
	filter := &didFilter{}
	var path string
	cmd := &cobra.Command{
		Use: "export", Short: "Write numbers as CSV, as import takes it", Args: args(cobra.NoArgs),
		RunE: opts.withClient(func(cmd *cobra.Command, c *client, _ []string) error {
			return toFile(cmd, path, func(out io.Writer) error { return exportDIDs(cmd, opts, c, filter, out) })
		}),
	}
	filter.register(cmd)
	cmd.Flags().StringVar(&path, "file", "", "file to write, which must not exist (default: standard output)")
	return cmd
}

func exportDIDs(cmd *cobra.Command, opts *options, c *client, filter *didFilter, out io.Writer) error {
	w := newDIDWriter(out)
	return exportList(cmd, opts, c, "/dids", filter.query(), func(items []json.RawMessage) error {
		dids, err := decodeAll[didItem](items)
		if err != nil {
			return err
		}
		return w.write(dids)
	})
}

// didWriter writes numbers as CSV that an import takes.
type didWriter struct{ csv *csv.Writer }

func newDIDWriter(out io.Writer) *didWriter {
	w := &didWriter{csv: csv.NewWriter(out)}
	_ = w.csv.Write([]string{"number_e164", "customer_id", "application_id", "provider", "status", "route_mode", "sip_uri", "reject_code"}) // Flush tells
	return w
}

func (w *didWriter) write(dids []didItem) error {
	for i := range dids {
		d := &dids[i]
		code := ""
		if d.RejectCode != nil {
			code = fmt.Sprint(*d.RejectCode)
		}
		_ = w.csv.Write([]string{d.Number, d.CustomerID, text(d.ApplicationID), d.Provider, d.Status, d.RouteMode, text(d.SIPURI), code}) // Flush tells
	}
	w.csv.Flush()
	if err := w.csv.Error(); err != nil {
		return fmt.Errorf("write numbers: %w", err)
	}
	return nil
}

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"tandem/daemon"
)

// usageError marks a mistake in how a command was called; it exits with 2 where a failure exits with 1.
type usageError struct{ error }

func exitCode(err error) int {
	if _, ok := errors.AsType[usageError](err); ok {
		return 2
	}
	return 1
}

// options are the flags that every command has.
type options struct {
	configFile string
	output     string
}

func newRoot() *cobra.Command {
	opts := &options{}
	root := &cobra.Command{
		Use:   "tandem",
		Short: "Self-hosted programmable voice on FreeSWITCH",
		Long: "Tandem is a control plane for FreeSWITCH: customers place and receive calls through a REST API,\n" +
			"their answer_url says what each call does, and signed webhooks tell what happened.\n\n" +
			"Every setting is a key of the configuration file and an environment variable beginning with TANDEM_.",
		Version:       version(),
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.PersistentFlags().StringVar(&opts.configFile, "config", "", "configuration file (YAML, TOML or JSON)")
	root.PersistentFlags().StringVarP(&opts.output, "output", "o", "table", "output of lists and objects: table or json")
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	root.AddCommand(
		newServe(opts), newDev(opts), newSimSwitch(opts), newMigrate(opts), newDoctor(opts),
		newNodes(opts), newCustomers(opts), newKeys(opts), newLedger(opts), newSimulate(opts), newListen(opts),
	)
	return root
}

// version names the build: the module version, or the commit it was built from.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		return v
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			return s.Value
		}
	}
	return "devel"
}

// args wraps cobra's check of positional arguments so that a wrong count is a usage error.
func args(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, positional []string) error {
		if err := check(cmd, positional); err != nil {
			return usageError{fmt.Errorf("%w (usage: %s)", err, cmd.UseLine())}
		}
		return nil
	}
}

// load reads the configuration.
func (o *options) load(overrides map[string]string) (daemon.Config, error) {
	if o.output != "table" && o.output != "json" {
		return daemon.Config{}, usageError{fmt.Errorf("--output must be table or json, was %q", o.output)}
	}
	return daemon.LoadConfig(o.configFile, overrides)
}

// withOperator opens the database for one command and closes it afterwards.
func (o *options) withOperator(cmd *cobra.Command, run func(*daemon.Operator) error) error {
	cfg, err := o.load(nil)
	if err != nil {
		return err
	}
	operator, err := daemon.OpenOperator(cmd.Context(), cfg)
	if err != nil {
		return err
	}
	return errors.Join(run(operator), operator.Close())
}

// print writes value as JSON, or the rows as a table under the header.
func (o *options) print(w io.Writer, value any, header []string, rows [][]string) error {
	if o.output == "json" {
		encoder := json.NewEncoder(w)
		encoder.SetIndent("", "  ")
		return encoder.Encode(value)
	}
	table := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	for _, row := range append([][]string{header}, rows...) {
		if _, err := fmt.Fprintln(table, strings.Join(row, "\t")); err != nil {
			return err
		}
	}
	return table.Flush()
}

package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"tandem/daemon"
)

// usageError marks a mistake in how a command was called; it exits with 2 where a failure exits with 1.
type usageError struct{ error }

// Unwrap returns the mistake.
func (e usageError) Unwrap() error { return e.error }

func usage(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

func exitCode(err error) int {
	if _, ok := errors.AsType[usageError](err); ok {
		return 2
	}
	if _, ok := errors.AsType[diffError](err); ok {
		return exitDiffFailed
	}
	return 1
}

// options are the flags that every command has.
type options struct {
	configFile string
	output     string
	// context names the installation that the command is for; empty: the current one.
	context string
	yes     bool
	// timeout bounds one request to the operator API.
	timeout  time.Duration
	progress string
}

func newRoot() *cobra.Command {
	opts := &options{}
	root := group("tandem", "Self-hosted programmable voice on FreeSWITCH",
		newServe(opts), newDev(opts), newSimSwitch(opts), newMigrate(opts), newDoctor(opts),
		newContext(opts), newOperators(opts), newAudit(opts), newNodes(opts), newTrunks(opts), newCalls(opts), newEvents(opts),
		newWebhooks(opts), newDIDs(opts), newStrangers(opts), newBlocks(opts), newCustomers(opts), newKeys(opts), newRates(opts), newLedger(opts), newUsage(opts), newStatements(opts),
		newConfig(opts),
		newSimulate(opts), newListen(opts), newVersion(opts),
	)
	root.Long = "Tandem is a control plane for FreeSWITCH: customers place and receive calls through a REST API,\n" +
		"their answer_url says what each call does, and signed webhooks tell what happened.\n\n" +
		"serve, dev, migrate, doctor and simswitch read the configuration: every setting is a key of the configuration\n" +
		"file and an environment variable beginning with TANDEM_. The other commands speak to the operator API of the\n" +
		"installation that `tandem context use` has chosen, or of TANDEM_API_URL with TANDEM_OPERATOR_TOKEN.\n\n" +
		"Data goes to standard output and all else to standard error. Exit code 0: done. 1: it failed. 2: the command is wrong."
	root.Version = version()
	root.SilenceUsage, root.SilenceErrors = true, true
	flags := root.PersistentFlags()
	flags.StringVar(&opts.configFile, "config", "", "configuration file (YAML, TOML or JSON)")
	flags.StringVarP(&opts.output, "output", "o", "table", "how to print lists and objects: "+strings.Join(outputs, ", "))
	flags.StringVar(&opts.context, "context", "", "installation to speak to, one that tandem context ls lists (default: the current one)")
	flags.BoolVarP(&opts.yes, "yes", "y", false, "do what needs a confirmation without asking")
	flags.DurationVar(&opts.timeout, "timeout", 30*time.Second, "longest that one request to the operator API may take")
	flags.StringVar(&opts.progress, "progress", progressAuto, "progress of long work, on standard error: "+strings.Join(progresses, ", "))
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error {
		// cobra checks these, too, but as if they had failed.
		if err := errors.Join(cmd.ValidateRequiredFlags(), cmd.ValidateFlagGroups()); err != nil {
			return usageError{err}
		}
		return opts.check()
	}
	complete(root, "output", outputs...)
	complete(root, "progress", progresses...)
	completion(root, "context", func(*cobra.Command) []string { return contextNames() })
	return root
}

// check refuses values that the flags do not take.
func (o *options) check() error {
	if !slices.Contains(outputs, o.output) {
		return usage("--output must be one of %s, was %q", strings.Join(outputs, ", "), o.output)
	}
	if !slices.Contains(progresses, o.progress) {
		return usage("--progress must be one of %s, was %q", strings.Join(progresses, ", "), o.progress)
	}
	if o.timeout <= 0 {
		return usage("--timeout must be more than 0, was %s", o.timeout)
	}
	return nil
}

// group makes a command that has only commands below it: by itself it prints its help, and what it does not know is a usage
// error.
func group(use, short string, below ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{
		Use: use, Short: short, Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, positional []string) error {
			if len(positional) == 0 {
				return cmd.Help()
			}
			hint := ""
			cmd.SuggestionsMinimumDistance = 2
			if known := cmd.SuggestionsFor(positional[0]); len(known) > 0 {
				hint = "; did you mean " + strings.Join(known, " or ") + "?"
			}
			return usage("%q is no command of %s%s", positional[0], cmd.CommandPath(), hint)
		},
	}
	cmd.AddCommand(below...)
	return cmd
}

// args wraps cobra's check of positional arguments so that a wrong count is a usage error.
func args(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, positional []string) error {
		if err := check(cmd, positional); err != nil {
			return usage("%w (usage: %s)", err, cmd.UseLine())
		}
		return nil
	}
}

// load reads the configuration.
func (o *options) load(overrides map[string]string) (daemon.Config, error) {
	return daemon.LoadConfig(o.configFile, overrides)
}

// withDatabase opens the database for one command and closes it afterwards: for what must work without a server.
func (o *options) withDatabase(cmd *cobra.Command, run func(*daemon.Operator) error) error {
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

// complete offers the values of a flag to the shell.
func complete(cmd *cobra.Command, flag string, values ...string) {
	completion(cmd, flag, func(*cobra.Command) []string { return values })
}

// completion offers to the shell what a function finds for a flag.
func completion(cmd *cobra.Command, flag string, find func(cmd *cobra.Command) []string) {
	// It fails only for a flag that is not there, which TestCommands finds.
	_ = cmd.RegisterFlagCompletionFunc(flag, func(cmd *cobra.Command, _ []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		return find(cmd), cobra.ShellCompDirectiveNoFileComp
	})
}

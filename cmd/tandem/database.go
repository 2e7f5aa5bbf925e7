package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"tandem/daemon"
)

func newMigrate(opts *options) *cobra.Command {
	up := func(cmd *cobra.Command, _ []string) error {
		return opts.withDatabase(cmd, func(o *daemon.Operator) error {
			migrations, err := o.Migrations(cmd.Context())
			if err != nil {
				return err
			}
			return opts.showMigrations(cmd, migrations)
		})
	}
	cmd := &cobra.Command{
		Use: "migrate", Short: "Bring the database to this version's schema", Args: args(cobra.NoArgs), RunE: up,
		Long: "migrate applies what is missing and lists all steps. `tandem serve` does the same when it starts. `tandem migrate down` goes\n" +
			"back, step by step; what a newer version has written is lost with its steps, so have a backup.",
	}
	cmd.AddCommand(
		&cobra.Command{Use: "up", Short: "The same", Args: args(cobra.NoArgs), RunE: up},
		&cobra.Command{
			Use: "status", Short: "List the steps of the schema and apply none; exit 1 when one is pending", Args: args(cobra.NoArgs),
			RunE: func(cmd *cobra.Command, _ []string) error {
				cfg, err := opts.load(nil)
				if err != nil {
					return err
				}
				migrations, err := daemon.MigrationStatus(cmd.Context(), cfg)
				if err != nil {
					return err
				}
				if err := opts.showMigrations(cmd, migrations); err != nil {
					return err
				}
				pending := 0
				for _, m := range migrations {
					if m.State == daemon.MigrationPending {
						pending++
					}
				}
				if pending > 0 {
					return fmt.Errorf("%d of %d steps are pending", pending, len(migrations))
				}
				return nil
			},
		},
		newMigrateDown(opts),
	)
	return cmd
}

func newMigrateDown(opts *options) *cobra.Command {
	return &cobra.Command{
		Use: "down", Short: "Take the newest step of the schema back, with the data that only it can hold", Args: args(cobra.NoArgs),
		Long: "down is for going back to an older version: stop every controller, take back the steps that the older version does not\n" +
			"know, one at a time, and start that version; this one would apply them again. What the tables and columns of a step\n" +
			"hold is lost for good, so make a backup first. It is refused while a controller holds the lease of a node or delivers\n" +
			"webhooks.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := opts.load(nil)
			if err != nil {
				return err
			}
			migrations, err := daemon.MigrateDown(cmd.Context(), cfg, func(last daemon.Migration) error {
				return opts.confirm(cmd.Context(), cmd, "Take back step %d of the schema, %s (%s)? What its tables and columns hold is lost for good.",
					last.Version, last.Name, last.About)
			})
			if err != nil {
				return err
			}
			return opts.showMigrations(cmd, migrations)
		},
	}
}

func (o *options) showMigrations(cmd *cobra.Command, migrations []daemon.Migration) error {
	rows := make([][]string, 0, len(migrations))
	for _, m := range migrations {
		rows = append(rows, []string{fmt.Sprint(m.Version), m.Name, m.State})
	}
	return o.print(cmd.OutOrStdout(), migrations, []string{"VERSION", "NAME", "STATE"}, rows)
}

func newDoctor(opts *options) *cobra.Command {
	return &cobra.Command{
		Use:   "doctor",
		Short: "Check the database, every node and the trunks; exit 1 when something is wrong",
		Long: "doctor checks that the database is reachable and migrated, that the ledger adds up, and that every node is steered and\n" +
			"answers on its Event Socket: with both walls against hostile input (app_disable_expand_variables set and api-expansion\n" +
			"off), passwords that are nobody's default, the modules that calls need, room for more calls, and a clock that is right.\n" +
			"Outbound trunks that no node can use are warned of. Each problem comes with its fix. What fails makes it exit with 1; a warning does not.",
		Args: args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return opts.withDatabase(cmd, func(o *daemon.Operator) error {
				checks, err := o.Doctor(cmd.Context())
				if err != nil {
					return err
				}
				failed := 0
				rows := make([][]string, 0, len(checks))
				for _, c := range checks {
					mark := "ok"
					switch {
					case !c.OK:
						mark = "FAIL"
						failed++
					case c.Warning:
						mark = "warn"
					}
					rows = append(rows, []string{mark, c.Subject, c.Finding, c.Fix})
				}
				if err := opts.print(cmd.OutOrStdout(), checks, []string{"CHECK", "WHAT", "FOUND", "FIX"}, rows); err != nil {
					return err
				}
				if failed > 0 {
					return fmt.Errorf("%d of %d checks failed", failed, len(checks))
				}
				return nil
			})
		},
	}
}

package main

import (
	"cmp"

	"github.com/spf13/cobra"

	"tandem/daemon"
)

// version names the build: the module's version, or the commit that it was built from.
func version() string {
	build := daemon.ThisBuild()
	if build.Version == "devel" {
		return cmp.Or(build.Commit, build.Version)
	}
	return build.Version
}

// builds are the build of the command line and that of the server that it speaks to.
type builds struct {
	Client daemon.Build  `json:"client"`
	Server *daemon.Build `json:"server"`
}

func newVersion(opts *options) *cobra.Command {
	var clientOnly bool
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Show which build this is, and which the server is",
		Long: "The server is asked where an installation is chosen. A command line and a server of different builds understand each\n" +
			"other as far as their versions do; while an installation is updated its controllers differ, and any of them answers.",
		Args: args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			found := builds{Client: daemon.ThisBuild()}
			rows := [][]string{buildRow("client", &found.Client)}
			_, err := opts.installation()
			if clientOnly || err != nil && opts.context == "" {
				return opts.print(cmd.OutOrStdout(), found, buildHeader, rows)
			}
			asked := opts.withClient(func(cmd *cobra.Command, c *client, _ []string) error {
				found.Server = &daemon.Build{}
				return c.get(cmd.Context(), "/version", nil, found.Server)
			})(cmd, nil)
			if asked != nil {
				found.Server = nil
			} else {
				rows = append(rows, buildRow("server", found.Server))
			}
			if err := opts.print(cmd.OutOrStdout(), found, buildHeader, rows); err != nil {
				return err
			}
			if asked == nil && *found.Server != found.Client {
				note(cmd, "the client and the server are different builds")
			}
			return asked
		},
	}
	cmd.Flags().BoolVar(&clientOnly, "client", false, "ask no server")
	return cmd
}

var buildHeader = []string{"BUILD", "VERSION", "COMMIT", "GO"}

func buildRow(which string, b *daemon.Build) []string {
	commit := b.Commit
	if b.Modified {
		commit += " and changes"
	}
	return []string{which, b.Version, commit, b.Go}
}

package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"tandem/daemon"
)

func newServe(opts *options) *cobra.Command {
	return &cobra.Command{
		Use:   "serve",
		Short: "Run a controller: the API, the nodes it holds, the calls and the webhooks",
		Long: "serve runs one controller. It migrates the database, listens on TANDEM_HTTP_ADDR, takes the nodes that\n" +
			"were added with `tandem nodes add`, and runs until SIGINT or SIGTERM.",
		Args: args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := opts.load(nil)
			if err != nil {
				return err
			}
			return daemon.Serve(cmd.Context(), cfg, cmd.ErrOrStderr())
		},
	}
}

// switchFlags name a switch by its Event Socket and its configuration folder.
type switchFlags struct {
	addr, passwordFile, confDir string
}

func (f *switchFlags) register(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.addr, "esl-addr", "", "HOST:PORT of the switch's Event Socket")
	cmd.Flags().StringVar(&f.passwordFile, "esl-password-file", "", "file that holds the Event Socket password")
	cmd.Flags().StringVar(&f.confDir, "conf-dir", "", "the switch's configuration folder; Tandem writes below its tandem/ folder")
	cmd.MarkFlagsRequiredTogether("esl-addr", "esl-password-file", "conf-dir")
}

func newDev(opts *options) *cobra.Command {
	var external switchFlags
	var dataDir string
	cmd := &cobra.Command{
		Use:   "dev",
		Short: "Run everything in one process, with a simulated switch, to build call flows",
		Long: "dev needs no other software: an embedded database in ./.tandem, a simulated FreeSWITCH node, an example\n" +
			"answer_url and webhook receiver. With --esl-addr it drives a switch that is already running instead:\n" +
			"a real FreeSWITCH, or `tandem simswitch` in another process.",
		Args: args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return daemon.Dev(cmd.Context(), daemon.DevOptions{
				ConfigFile: opts.configFile, DataDir: dataDir, ESLAddr: external.addr,
				ESLPasswordFile: external.passwordFile, ConfDir: external.confDir,
				Out: cmd.OutOrStdout(), Log: cmd.ErrOrStderr(),
			})
		},
	}
	external.register(cmd)
	cmd.Flags().StringVar(&dataDir, "data-dir", ".tandem", "folder of the database, the keys and the simulated switch's configuration")
	return cmd
}

func newSimSwitch(opts *options) *cobra.Command {
	var flags switchFlags
	cmd := &cobra.Command{
		Use:   "simswitch",
		Short: "Run the simulated FreeSWITCH alone, speaking the Event Socket on a TCP port",
		Long: "simswitch imitates a FreeSWITCH node: it reads the gateways and the dialplan that Tandem writes below\n" +
			"the configuration folder, and calls to numbers that end in 486, 404, 603, 503, 180, 183, 700 or 701 end\n" +
			"in the way docs/simulated-switch.md lists. No phone rings.\n\n" +
			"Like freeswitch-conf, it posts a CDR of each channel to TANDEM_CDR_URL (TANDEM_CDR_URL_2, TANDEM_CDR_URL_3) as\n" +
			"TANDEM_CDR_CREDENTIALS (NAME:TOKEN), and writes what nobody takes below tandem/cdr of the configuration folder.",
		Args: args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if flags.addr == "" {
				return usageError{fmt.Errorf("--esl-addr, --esl-password-file and --conf-dir are required")}
			}
			if _, err := opts.load(nil); err != nil {
				return err
			}
			return daemon.SimSwitch(cmd.Context(), daemon.SimSwitchOptions{
				ESLAddr: flags.addr, ESLPasswordFile: flags.passwordFile, ConfDir: flags.confDir,
				Out: cmd.OutOrStdout(), Log: cmd.ErrOrStderr(),
			})
		},
	}
	flags.register(cmd)
	return cmd
}

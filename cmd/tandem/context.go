package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"
	"golang.org/x/term"
)

// Environment variables of the command line. TANDEM_API_URL is that of `tandem listen` and `tandem simulate`, too.
const (
	envAPIURL        = "TANDEM_API_URL"
	envOperatorToken = "TANDEM_OPERATOR_TOKEN"
	envContexts      = "TANDEM_CONTEXTS"

	defaultAPIURL = "http://127.0.0.1:8080"
)

// installation is where an operator API is, and the token for it.
type installation struct {
	URL   string `yaml:"url" json:"url"`
	Token string `yaml:"token" json:"-"`
}

// contexts are the installations that an operator works with, as their file keeps them.
type contexts struct {
	Current       string                  `yaml:"current,omitempty"`
	Installations map[string]installation `yaml:"contexts"`
}

// errNoContext says how a command is told which installation it is for.
var errNoContext = errors.New("no installation is chosen: `tandem context add NAME --url URL` keeps one, or set " + envOperatorToken + " (and " + envAPIURL + ")")

// installation returns what the command speaks to: what --context names, else the environment, else the current context. A token
// never goes to another URL than the one that it was kept with.
func (o *options) installation() (installation, error) {
	if token := os.Getenv(envOperatorToken); token != "" && o.context == "" {
		return installation{URL: envOr(envAPIURL, defaultAPIURL), Token: token}, nil
	}
	known, err := readContexts()
	if err != nil {
		return installation{}, err
	}
	name := o.context
	if name == "" {
		name = known.Current
	}
	if name == "" {
		return installation{}, usageError{errNoContext}
	}
	chosen, ok := known.Installations[name]
	if !ok {
		return installation{}, usage("there is no context %q; `tandem context ls` lists those that there are", name)
	}
	return chosen, nil
}

// contextsFile is where the contexts are kept.
func contextsFile() (string, error) {
	if file := os.Getenv(envContexts); file != "" {
		return file, nil
	}
	folder, err := os.UserConfigDir()
	if err != nil {
		return "", fmt.Errorf("find the folder for contexts (%s names the file): %w", envContexts, err)
	}
	return filepath.Join(folder, "tandem", "contexts.yaml"), nil
}

func readContexts() (*contexts, error) {
	known := &contexts{Installations: map[string]installation{}}
	file, err := contextsFile()
	if err != nil {
		return nil, err
	}
	raw, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return known, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the contexts: %w", err)
	}
	decoder := yaml.NewDecoder(strings.NewReader(string(raw)))
	decoder.KnownFields(true)
	if err := decoder.Decode(known); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("read the contexts in %s: %w", file, err)
	}
	if known.Installations == nil {
		known.Installations = map[string]installation{}
	}
	return known, nil
}

// write keeps the contexts in a file for their owner alone.
func (c *contexts) write() error {
	file, err := contextsFile()
	if err != nil {
		return err
	}
	encoded, err := yaml.Marshal(c)
	if err != nil {
		return fmt.Errorf("write the contexts: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return fmt.Errorf("write the contexts: %w", err)
	}
	temporary, err := os.CreateTemp(filepath.Dir(file), ".contexts-*") // of mode 0600
	if err != nil {
		return fmt.Errorf("write the contexts: %w", err)
	}
	_, err = temporary.Write(encoded)
	if err = errors.Join(err, temporary.Sync(), temporary.Close()); err == nil {
		err = os.Rename(temporary.Name(), file)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("write the contexts: %w", err), os.Remove(temporary.Name()))
	}
	return nil
}

// contextNames are the names of the contexts, for the shell.
func contextNames() []string {
	known, err := readContexts()
	if err != nil {
		return nil
	}
	return slices.Sorted(maps.Keys(known.Installations))
}

func newContext(opts *options) *cobra.Command {
	return group("context", "Installations that commands speak to", newContextAdd(opts), newContextUse(), newContextList(opts), newContextRemove(opts))
}

var contextName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`)

func newContextAdd(opts *options) *cobra.Command {
	var url, tokenFile string
	var use, unchecked bool
	cmd := &cobra.Command{
		Use:   "add NAME --url URL",
		Short: "Keep an installation and an operator's token for it",
		Long: "add asks for the token, or reads it from standard input or --token-file, tries it, and keeps both in a file\n" +
			"that only you can read: " + envContexts + ", or tandem/contexts.yaml in your configuration folder. The first\n" +
			"context becomes the current one. A context of the same name is replaced.",
		Args: args(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, positional []string) error {
			name := positional[0]
			if !contextName.MatchString(name) {
				return usage("a context's name has 1 to 63 letters, digits, dots, dashes or underscores, was %q", name)
			}
			base, err := parseAPIURL(url)
			if err != nil {
				return err
			}
			if base.Scheme == "http" && !isLoopback(base.Hostname()) {
				note(cmd, "warning: to %s the token travels unencrypted", base.Host)
			}
			token, err := readToken(cmd, tokenFile)
			if err != nil {
				return err
			}
			added := installation{URL: base.String(), Token: token}
			if !unchecked {
				if err := greet(cmd, opts, added); err != nil {
					return err
				}
			}
			return keepContext(cmd, name, added, use)
		},
	}
	cmd.Flags().StringVar(&url, "url", envOr(envAPIURL, defaultAPIURL), "address of the server ("+envAPIURL+")")
	cmd.Flags().StringVar(&tokenFile, "token-file", "", "file that holds the operator's token; - is standard input")
	cmd.Flags().BoolVar(&use, "use", false, "make it the current context")
	cmd.Flags().BoolVar(&unchecked, "no-check", false, "keep it without trying the token")
	return cmd
}

// greet tries a token and says whose it is.
func greet(cmd *cobra.Command, opts *options, to installation) error {
	c, err := newClient(to, opts.timeout)
	if err != nil {
		return err
	}
	defer c.close()
	var me operatorItem
	if err := c.get(cmd.Context(), "/me", nil, &me); err != nil {
		return err
	}
	note(cmd, "%s is %s, with the role %s", to.URL, printable(me.Name), me.Role)
	return nil
}

// keepContext adds an installation to the contexts.
func keepContext(cmd *cobra.Command, name string, added installation, use bool) error {
	known, err := readContexts()
	if err != nil {
		return err
	}
	known.Installations[name] = added
	if use || known.Current == "" {
		known.Current = name
	}
	if err := known.write(); err != nil {
		return err
	}
	if known.Current == name {
		note(cmd, "context %s is kept and the current one", name)
	} else {
		note(cmd, "context %s is kept; the current one is %s", name, known.Current)
	}
	return nil
}

func isLoopback(host string) bool {
	addr, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && addr.IsLoopback()
}

// readToken reads a token from a file, from whoever sits there, or from standard input.
func readToken(cmd *cobra.Command, file string) (string, error) {
	var raw []byte
	var err error
	switch {
	case file != "" && file != "-":
		raw, err = os.ReadFile(file)
	case file == "" && interactive(cmd.InOrStdin()):
		note(cmd, "operator's token (not shown):")
		raw, err = term.ReadPassword(int(cmd.InOrStdin().(*os.File).Fd()))
	default:
		raw, err = bufio.NewReader(io.LimitReader(cmd.InOrStdin(), 4096)).ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			err = nil
		}
	}
	if err != nil {
		return "", fmt.Errorf("read the token: %w", err)
	}
	token := strings.TrimSpace(string(raw))
	if token == "" || strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return "", usage("the token must be one line of printable characters")
	}
	return token, nil
}

// interactive reports whether a stream is a terminal.
func interactive(stream any) bool {
	file, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}

// note says something that is no data, on standard error. That it cannot be written stops nothing.
func note(cmd *cobra.Command, format string, args ...any) {
	_, _ = fmt.Fprintf(cmd.ErrOrStderr(), format+"\n", args...)
}

func newContextUse() *cobra.Command {
	return &cobra.Command{
		Use: "use NAME", Short: "Make a context the current one", Args: args(cobra.ExactArgs(1)),
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
			return contextNames(), cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, positional []string) error {
			known, err := readContexts()
			if err != nil {
				return err
			}
			chosen, ok := known.Installations[positional[0]]
			if !ok {
				return usage("there is no context %q", positional[0])
			}
			known.Current = positional[0]
			if err := known.write(); err != nil {
				return err
			}
			note(cmd, "the current context is %s, %s", known.Current, chosen.URL)
			if os.Getenv(envOperatorToken) != "" {
				note(cmd, "warning: %s is set and wins over it", envOperatorToken)
			}
			return nil
		},
	}
}

// contextItem is a context as it is shown: without its token, of which the first characters tell which one it is.
type contextItem struct {
	Name    string `json:"name"`
	URL     string `json:"url"`
	Token   string `json:"token_prefix"`
	Current bool   `json:"current"`
}

func newContextList(opts *options) *cobra.Command {
	return &cobra.Command{
		Use: "ls", Aliases: []string{"list"}, Short: "List the contexts", Args: args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			known, err := readContexts()
			if err != nil {
				return err
			}
			items, rows := []contextItem{}, [][]string{}
			for _, name := range slices.Sorted(maps.Keys(known.Installations)) {
				one := known.Installations[name]
				item := contextItem{Name: name, URL: one.URL, Token: one.Token[:min(8, len(one.Token)/3)], Current: name == known.Current}
				mark := ""
				if item.Current {
					mark = "current"
				}
				items = append(items, item)
				rows = append(rows, []string{name, one.URL, item.Token + "…", mark})
			}
			return opts.print(cmd.OutOrStdout(), items, []string{"NAME", "URL", "TOKEN", "STATE"}, rows)
		},
	}
}

func newContextRemove(opts *options) *cobra.Command {
	return &cobra.Command{
		Use: "rm NAME", Aliases: []string{"remove"}, Short: "Forget a context; its token goes on working", Args: args(cobra.ExactArgs(1)),
		ValidArgsFunction: newContextUse().ValidArgsFunction,
		RunE: func(cmd *cobra.Command, positional []string) error {
			known, err := readContexts()
			if err != nil {
				return err
			}
			if _, ok := known.Installations[positional[0]]; !ok {
				return usage("there is no context %q", positional[0])
			}
			if err := opts.confirm(cmd.Context(), cmd, "Forget context %s?", positional[0]); err != nil {
				return err
			}
			delete(known.Installations, positional[0])
			if known.Current == positional[0] {
				known.Current = ""
			}
			return known.write()
		},
	}
}

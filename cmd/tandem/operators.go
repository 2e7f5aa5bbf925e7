package main

import (
	"encoding/json"
	"errors"
	"net/url"
	"os"
	"time"

	"github.com/spf13/cobra"

	"tandem/daemon"
)

// operatorItem is an operator as tables show one.
type operatorItem struct {
	ID         string  `json:"id"`
	Name       string  `json:"name"`
	Role       string  `json:"role"`
	Prefix     string  `json:"prefix"`
	CreatedAt  string  `json:"created_at"`
	ExpiresAt  *string `json:"expires_at"`
	LastUsedAt *string `json:"last_used_at"`
	RevokedAt  *string `json:"revoked_at"`
	Token      string  `json:"token"`
	rotated
}

func (i *operatorItem) state() string { return keyState(i.RevokedAt, i.ExpiresAt) }

// keyState is how a key or a token stands.
func keyState(revokedAt, expiresAt *string) string {
	if revokedAt != nil {
		return "revoked"
	}
	if expiresAt != nil {
		if at, err := time.Parse(time.RFC3339, *expiresAt); err == nil && !at.After(time.Now()) {
			return "expired"
		}
	}
	return "active"
}

var operatorColumns = []column[operatorItem]{
	{title: "ID", text: func(i *operatorItem) string { return i.ID }},
	{title: "NAME", text: func(i *operatorItem) string { return i.Name }},
	{title: "ROLE", text: func(i *operatorItem) string { return i.Role }},
	{title: "STATE", text: (*operatorItem).state},
	{title: "PREFIX", wide: true, text: func(i *operatorItem) string { return i.Prefix }},
	{title: "CREATED", wide: true, text: func(i *operatorItem) string { return i.CreatedAt }},
	{title: "EXPIRES", text: func(i *operatorItem) string { return text(i.ExpiresAt) }},
	{title: "LAST USED", text: func(i *operatorItem) string { return text(i.LastUsedAt) }},
}

func operatorName(i *operatorItem) string { return i.ID }

var (
	operatorView   = view[operatorItem]{name: operatorName, columns: operatorColumns}
	newOperatorRow = view[operatorItem]{name: operatorName, columns: append(operatorColumns[:4:4],
		column[operatorItem]{title: "TOKEN (SHOWN ONCE)", text: func(i *operatorItem) string { return i.Token }})}
)

// text is what a member says that may be null.
func text(value *string) string {
	if value == nil {
		return ""
	}
	return *value
}

// place is where a command on operators works: through the API where a token is there, and otherwise on the database, so that the
// first token can be made.
type place struct {
	opts     *options
	database bool
}

func (p *place) register(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&p.database, "database", false, "work on the database of the configuration, although an installation is chosen")
}

// local reports whether the database is meant, and says so where nobody has. An installation that is chosen and cannot be found is no reason:
// whoever asks for it is told.
func (p *place) local(cmd *cobra.Command) bool {
	if p.database {
		return true
	}
	if _, err := p.opts.installation(); errors.Is(err, errNoContext) {
		note(cmd, "no installation is chosen: working on the database of the configuration")
		return true
	}
	return false
}

func newOperators(opts *options) *cobra.Command {
	return group("operators", "Tokens of operators, with their roles", newOperatorsCreate(opts), newOperatorsList(opts), newOperatorsRotate(opts), newOperatorsRevoke(opts))
}

func newOperatorsCreate(opts *options) *cobra.Command {
	where := &place{opts: opts}
	var role, save, url string
	var expires time.Duration
	cmd := &cobra.Command{
		Use:   "create NAME --role ROLE",
		Short: "Create an operator with a token and print it, once",
		Long: "Roles: viewer reads. operator does what the day asks for: drain nodes, test trunks, import numbers, hang up calls,\n" +
			"redeliver webhooks. admin changes money, tokens, customers, keys and nodes.\n\n" +
			"The first token is made on the database: where no installation is chosen, and with --database, create works on\n" +
			"that of the configuration, as `tandem migrate` does. With --save the token is kept as a context and not printed.",
		Args: args(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, positional []string) error {
			if save != "" && !contextName.MatchString(save) {
				return usage("a context's name has 1 to 63 letters, digits, dots, dashes or underscores, was %q", save)
			}
			made, to, err := createOperator(cmd, where, positional[0], role, expires, url)
			if err != nil {
				return err
			}
			if save == "" {
				return show(opts, cmd.OutOrStdout(), newOperatorRow, made)
			}
			read, err := decodeAll[operatorItem]([]json.RawMessage{made})
			if err != nil {
				return err
			}
			return keepContext(cmd, save, installation{URL: to, Token: read[0].Token}, false)
		},
	}
	where.register(cmd)
	cmd.Flags().StringVar(&role, "role", "", "viewer, operator or admin")
	cmd.Flags().DurationVar(&expires, "expires-in", 0, "how long the token works, such as 720h (default: until it is revoked)")
	cmd.Flags().StringVar(&save, "save", "", "keep the token as the context of this name instead of printing it")
	cmd.Flags().StringVar(&url, "url", envOr(envAPIURL, defaultAPIURL), "address of the server that --save keeps, where the token is made on the database")
	_ = cmd.MarkFlagRequired("role")
	complete(cmd, "role", "viewer", "operator", "admin")
	return cmd
}

// createOperator makes an operator and returns it, and where its token is for.
func createOperator(cmd *cobra.Command, where *place, name, role string, expires time.Duration, address string) (made json.RawMessage, to string, err error) {
	if expires < 0 {
		return nil, "", usage("--expires-in must be more than 0, was %s", expires)
	}
	if where.local(cmd) {
		base, err := parseAPIURL(address)
		if err != nil {
			return nil, "", err
		}
		err = where.opts.withDatabase(cmd, func(o *daemon.Operator) error {
			operator, err := o.CreateOperator(cmd.Context(), name, role, expires)
			if err != nil {
				return err
			}
			made, err = json.Marshal(operator)
			return err
		})
		return made, base.String(), err
	}
	c, err := where.opts.client()
	if err != nil {
		return nil, "", err
	}
	defer c.close()
	body := map[string]any{"name": name, "role": role}
	if expires > 0 {
		body["expires_at"] = time.Now().Add(expires).UTC().Format(time.RFC3339)
	}
	err = c.post(cmd.Context(), "/operators", body, &made)
	return made, c.base.String(), err
}

func newOperatorsList(opts *options) *cobra.Command {
	where := &place{opts: opts}
	flags := &listFlags{}
	cmd := &cobra.Command{
		Use: "ls", Aliases: []string{"list"}, Short: "List operators, newest first", Args: args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if where.local(cmd) {
				return opts.withDatabase(cmd, func(o *daemon.Operator) error {
					operators, err := o.Operators(cmd.Context())
					if err != nil {
						return err
					}
					items := make([]json.RawMessage, len(operators))
					for i := range operators {
						if items[i], err = json.Marshal(operators[i]); err != nil {
							return err
						}
					}
					return showList(opts, cmd.OutOrStdout(), operatorView, items)
				})
			}
			return opts.withClient(func(cmd *cobra.Command, c *client, _ []string) error {
				return runList(cmd, opts, c, flags, "/operators", func() url.Values { return url.Values{} }, operatorView)
			})(cmd, nil)
		},
	}
	where.register(cmd)
	flags.register(cmd, false)
	return cmd
}

func newOperatorsRevoke(opts *options) *cobra.Command {
	where := &place{opts: opts}
	cmd := &cobra.Command{
		Use: "revoke ID", Short: "Make an operator's token worthless at once", Args: args(cobra.ExactArgs(1)),
		ValidArgsFunction: opts.completeItems("/operators", "id"),
		RunE: func(cmd *cobra.Command, positional []string) error {
			local := where.local(cmd)
			if err := opts.confirm(cmd.Context(), cmd, "Revoke the token of operator %s?", positional[0]); err != nil {
				return err
			}
			if local {
				return opts.withDatabase(cmd, func(o *daemon.Operator) error { return o.RevokeOperator(cmd.Context(), positional[0]) })
			}
			return opts.withClient(func(cmd *cobra.Command, c *client, _ []string) error {
				return c.delete(cmd.Context(), "/operators/"+segment(positional[0]))
			})(cmd, nil)
		},
	}
	where.register(cmd)
	return cmd
}

// envOr is an environment variable, or a fallback where it is empty.
func envOr(name, fallback string) string {
	if value := os.Getenv(name); value != "" {
		return value
	}
	return fallback
}

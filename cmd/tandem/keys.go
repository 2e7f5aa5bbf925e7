package main

import (
	"encoding/json"

	"github.com/spf13/cobra"
)

// keyItem is an API key as tables show one.
type keyItem struct {
	ID            string  `json:"id"`
	Name          string  `json:"name"`
	Prefix        string  `json:"prefix"`
	ApplicationID *string `json:"application_id"`
	CreatedAt     string  `json:"created_at"`
	LastUsedAt    *string `json:"last_used_at"`
	ExpiresAt     *string `json:"expires_at"`
	RevokedAt     *string `json:"revoked_at"`
	APIKey        string  `json:"api_key"`
	rotated
}

func keyName(i *keyItem) string { return i.ID }

var (
	keyView = view[keyItem]{
		name: keyName,
		columns: []column[keyItem]{
			{title: "ID", text: func(i *keyItem) string { return i.ID }},
			{title: "NAME", text: func(i *keyItem) string { return i.Name }},
			{title: "PREFIX", text: func(i *keyItem) string { return i.Prefix + "…" }},
			{title: "APPLICATION", text: func(i *keyItem) string { return text(i.ApplicationID) }},
			{title: "STATE", text: func(i *keyItem) string { return keyState(i.RevokedAt, i.ExpiresAt) }},
			{title: "EXPIRES", text: func(i *keyItem) string { return text(i.ExpiresAt) }},
			{title: "CREATED", wide: true, text: func(i *keyItem) string { return i.CreatedAt }},
			{title: "LAST USED", text: func(i *keyItem) string { return text(i.LastUsedAt) }},
		},
	}
	newKeyView = view[keyItem]{
		name: keyName,
		columns: append(keyView.columns[:2:2], column[keyItem]{
			title: "API KEY (SHOWN ONCE)", text: func(i *keyItem) string { return i.APIKey },
		}),
	}
)

func newKeys(opts *options) *cobra.Command {
	return group("keys", "API keys of customers", newKeysList(opts), newKeysCreate(opts), newKeysRotate(opts), newKeysRevoke(opts))
}

func keysPath(customer string) string { return "/customers/" + segment(customer) + "/api-keys" }

func newKeysList(opts *options) *cobra.Command {
	return &cobra.Command{
		Use: "ls CUSTOMER_ID", Aliases: []string{"list"}, Short: "List a customer's keys, revoked ones too", Args: args(cobra.ExactArgs(1)),
		ValidArgsFunction: opts.completeItems("/customers", "id"),
		RunE: opts.withClient(func(cmd *cobra.Command, c *client, positional []string) error {
			var all listing
			if err := c.get(cmd.Context(), keysPath(positional[0]), nil, &all); err != nil {
				return err
			}
			return showList(opts, cmd.OutOrStdout(), keyView, all.Data)
		}),
	}
}

func newKeysCreate(opts *options) *cobra.Command {
	var name, application string
	cmd := &cobra.Command{
		Use: "create CUSTOMER_ID", Short: "Create an API key and print it, once", Args: args(cobra.ExactArgs(1)),
		ValidArgsFunction: opts.completeItems("/customers", "id"),
		RunE: opts.withClient(func(cmd *cobra.Command, c *client, positional []string) error {
			body := map[string]any{"name": name}
			if application != "" {
				body["application_id"] = application
			}
			var made json.RawMessage
			if err := c.post(cmd.Context(), keysPath(positional[0]), body, &made); err != nil {
				return err
			}
			return show(opts, cmd.OutOrStdout(), newKeyView, made)
		}),
	}
	cmd.Flags().StringVar(&name, "name", "cli", "what the key is for")
	cmd.Flags().StringVar(&application, "application", "", "application that the key belongs to (default: none)")
	return cmd
}

func newKeysRevoke(opts *options) *cobra.Command {
	return &cobra.Command{
		Use: "revoke CUSTOMER_ID KEY_ID", Short: "Revoke a key at once", Args: args(cobra.ExactArgs(2)),
		ValidArgsFunction: opts.completeItems("/customers", "id"),
		RunE: opts.withClient(func(cmd *cobra.Command, c *client, positional []string) error {
			if err := opts.confirm(cmd.Context(), cmd, "Revoke key %s of %s? What uses it stops working at once.", positional[1], positional[0]); err != nil {
				return err
			}
			return c.delete(cmd.Context(), keysPath(positional[0])+"/"+segment(positional[1]))
		}),
	}
}

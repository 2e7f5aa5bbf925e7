package main

import (
	"encoding/json"
	"net/url"

	"github.com/spf13/cobra"
)

// auditItem is an entry of the audit trail as tables show one.
type auditItem struct {
	ID         string          `json:"id"`
	CreatedAt  string          `json:"created_at"`
	ActorKind  string          `json:"actor_kind"`
	ActorID    string          `json:"actor_id"`
	ActorName  string          `json:"actor_name"`
	Action     string          `json:"action"`
	CustomerID *string         `json:"customer_id"`
	ObjectID   *string         `json:"object_id"`
	Detail     json.RawMessage `json:"detail"`
	RequestID  *string         `json:"request_id"`
	Remote     *string         `json:"remote"`
}

// who is the actor: operators and keys by their name and id, commands by who ran them.
func (i *auditItem) who() string {
	if i.ActorName == "" || i.ActorName == i.ActorID {
		return i.ActorKind + " " + i.ActorID
	}
	return i.ActorKind + " " + i.ActorName
}

var auditView = view[auditItem]{
	name: func(i *auditItem) string { return i.ID },
	columns: []column[auditItem]{
		{title: "ID", wide: true, text: func(i *auditItem) string { return i.ID }},
		{title: "WHEN", text: func(i *auditItem) string { return i.CreatedAt }},
		{title: "WHO", text: (*auditItem).who},
		{title: "ACTOR", wide: true, text: func(i *auditItem) string { return i.ActorID }},
		{title: "ACTION", text: func(i *auditItem) string { return i.Action }},
		{title: "OBJECT", text: func(i *auditItem) string { return text(i.ObjectID) }},
		{title: "CUSTOMER", wide: true, text: func(i *auditItem) string { return text(i.CustomerID) }},
		{title: "DETAIL", text: func(i *auditItem) string {
			if string(i.Detail) == "{}" {
				return ""
			}
			return string(i.Detail)
		}},
		{title: "REMOTE", wide: true, text: func(i *auditItem) string { return text(i.Remote) }},
		{title: "REQUEST", wide: true, text: func(i *auditItem) string { return text(i.RequestID) }},
	},
}

func newAudit(opts *options) *cobra.Command {
	flags := &listFlags{}
	var actor, kind, action, customer, object string
	list := &cobra.Command{
		Use: "ls", Aliases: []string{"list"}, Short: "Who changed what, newest first",
		Long: "The audit trail holds every request of operators, and of customers but for commands to their calls, that changed\n" +
			"something, and the commands that changed the database themselves. Secrets are hidden.",
		Args: args(cobra.NoArgs),
		RunE: opts.withClient(func(cmd *cobra.Command, c *client, _ []string) error {
			return runList(cmd, opts, c, flags, "/audit", func() url.Values {
				return parameters("actor_id", actor, "actor_kind", kind, "action", action, "customer_id", customer, "object_id", object)
			}, auditView)
		}),
	}
	flags.register(list, true)
	list.Flags().StringVar(&actor, "actor", "", "only of this operator, API key or user@host")
	list.Flags().StringVar(&kind, "kind", "", "only of operator, api_key or command")
	list.Flags().StringVar(&action, "action", "", "only this action, such as updateTrunk")
	list.Flags().StringVar(&customer, "customer", "", "only what is this customer's")
	list.Flags().StringVar(&object, "object", "", "only what was done to this object")
	complete(list, "kind", "operator", "api_key", "command")
	return group("audit", "The audit trail", list)
}

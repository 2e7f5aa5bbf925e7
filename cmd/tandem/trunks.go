package main

import (
	"encoding/json"
	"fmt"
	"net/url"
	"strings"

	"github.com/spf13/cobra"
)

// trunkItem is a trunk as tables show one.
type trunkItem struct {
	ID                 string        `json:"id"`
	CustomerID         string        `json:"customer_id"`
	Name               string        `json:"name"`
	Direction          string        `json:"direction"`
	GatewayName        string        `json:"gateway_name"`
	Proxy              string        `json:"proxy"`
	IsActive           bool          `json:"is_active"`
	InboundIPs         []string      `json:"inbound_ips"`
	RegistrationStatus string        `json:"registration_status"`
	Gateways           []gatewayItem `json:"gateways"`
	RateDeckID         *string       `json:"rate_deck_id"`
	CreatedAt          string        `json:"created_at"`
}

// gatewayItem is what one node says of a trunk's gateway.
type gatewayItem struct {
	Node      string  `json:"node"`
	State     string  `json:"state"`
	Status    string  `json:"status"`
	PingMS    float64 `json:"ping_ms"`
	UpdatedAt string  `json:"updated_at"`
}

// state is the registration, or that the trunk is off.
func (i *trunkItem) state() string {
	if !i.IsActive {
		return "inactive"
	}
	return i.RegistrationStatus
}

// end is where calls go, or come from.
func (i *trunkItem) end() string {
	if i.Direction == "inbound" {
		return strings.Join(i.InboundIPs, ",")
	}
	return i.Proxy
}

var trunkView = view[trunkItem]{
	name: func(i *trunkItem) string { return i.ID },
	columns: []column[trunkItem]{
		{title: "ID", text: func(i *trunkItem) string { return i.ID }},
		{title: "NAME", text: func(i *trunkItem) string { return i.Name }},
		{title: "DIRECTION", text: func(i *trunkItem) string { return i.Direction }},
		{title: "STATE", text: (*trunkItem).state},
		{title: "PROXY OR ADDRESSES", text: (*trunkItem).end},
		{title: "GATEWAY", wide: true, text: func(i *trunkItem) string { return i.GatewayName }},
		{title: "CUSTOMER", wide: true, text: func(i *trunkItem) string { return i.CustomerID }},
		{title: "RATE DECK", wide: true, text: func(i *trunkItem) string { return text(i.RateDeckID) }},
		{title: "CREATED", wide: true, text: func(i *trunkItem) string { return i.CreatedAt }},
	},
}

var gatewayView = view[gatewayItem]{
	name: func(i *gatewayItem) string { return i.Node },
	columns: []column[gatewayItem]{
		{title: "NODE", text: func(i *gatewayItem) string { return i.Node }},
		{title: "STATE", text: func(i *gatewayItem) string { return i.State }},
		{title: "STATUS", text: func(i *gatewayItem) string { return i.Status }},
		{title: "PING", text: func(i *gatewayItem) string { return fmt.Sprintf("%.1f ms", i.PingMS) }},
		{title: "SINCE", text: func(i *gatewayItem) string { return i.UpdatedAt }},
	},
}

func newTrunks(opts *options) *cobra.Command {
	return group("trunks", "Trunks of all customers", newTrunksList(opts), newTrunksGet(opts), newTrunksCreate(opts), newTrunksDisable(opts),
		newTrunksEnable(opts), newTrunksTest(opts))
}

func newTrunksList(opts *options) *cobra.Command {
	flags := &listFlags{}
	var customer, direction, gateway string
	var active, inactive bool
	cmd := &cobra.Command{
		Use: "ls", Aliases: []string{"list"}, Short: "List trunks with their registration, newest first", Args: args(cobra.NoArgs),
		RunE: opts.withClient(func(cmd *cobra.Command, c *client, _ []string) error {
			return runList(cmd, opts, c, flags, "/trunks", func() url.Values {
				is := ""
				if active || inactive {
					is = fmt.Sprint(active)
				}
				return parameters("customer_id", customer, "direction", direction, "gateway_name", gateway, "active", is)
			}, trunkView)
		}),
	}
	flags.register(cmd, false)
	cmd.Flags().StringVar(&customer, "customer", "", "only this customer's")
	cmd.Flags().StringVar(&direction, "direction", "", "only outbound, or only inbound")
	cmd.Flags().StringVar(&gateway, "gateway", "", "only the one with this gateway_name")
	cmd.Flags().BoolVar(&active, "active", false, "only active ones")
	cmd.Flags().BoolVar(&inactive, "inactive", false, "only inactive ones")
	cmd.MarkFlagsMutuallyExclusive("active", "inactive")
	complete(cmd, "direction", "outbound", "inbound")
	return cmd
}

func newTrunksGet(opts *options) *cobra.Command {
	return &cobra.Command{
		Use: "get TRUNK_ID", Short: "Show a trunk and what each node says of it", Args: args(cobra.ExactArgs(1)),
		ValidArgsFunction: opts.completeItems("/trunks", "id"),
		RunE: opts.withClient(func(cmd *cobra.Command, c *client, positional []string) error {
			var found json.RawMessage
			if err := c.get(cmd.Context(), "/trunks/"+segment(positional[0]), nil, &found); err != nil {
				return err
			}
			if err := show(opts, cmd.OutOrStdout(), trunkView, found); err != nil || opts.output != outputTable && opts.output != outputWide {
				return err
			}
			read, err := decodeAll[trunkItem]([]json.RawMessage{found})
			if err != nil || len(read[0].Gateways) == 0 {
				return err
			}
			if _, err := fmt.Fprintln(cmd.OutOrStdout()); err != nil {
				return fmt.Errorf("print: %w", err)
			}
			return gatewayView.table(cmd.OutOrStdout(), opts.output == outputWide, true, read[0].Gateways)
		}),
	}
}

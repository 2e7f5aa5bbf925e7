package main

import (
	"bytes"
	"fmt"
	"io"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// Forms of blocks export.
const (
	exportPlain = "plain" // a network in a line
	exportNFT   = "nft"   // for nft -f
	exportIPSet = "ipset" // for ipset restore
)

var exportForms = []string{exportPlain, exportNFT, exportIPSet}

// setName is what nft and ipset take for a name, with room for the suffix of the family and, in ipset, of the new set: its names have at most 31 bytes.
var setName = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_]{0,19}$`)

// networks are the blocked networks as the API tells them.
type networks struct {
	IPv4 []string `json:"ipv4"`
	IPv6 []string `json:"ipv6"`
}

func newBlocksExport(opts *options) *cobra.Command {
	var form, name string
	cmd := &cobra.Command{
		Use: "export", Short: "Print what the blocks come to, for a firewall", Args: args(cobra.NoArgs),
		Long: "The fewest networks that hold all blocked addresses, and none that belongs to a trunk, a provider, a node or an exception.\n\n" +
			"  tandem blocks export --format nft | nft -f -            fills the sets NAME4 and NAME6 of the table inet NAME, which it makes\n" +
			"  tandem blocks export --format ipset | ipset restore     fills the sets NAME4 and NAME6, which it makes\n\n" +
			"Both replace what the sets held, at once. docs/abuse.md has the rules that use them.",
		RunE: opts.withClient(func(cmd *cobra.Command, c *client, _ []string) error {
			if !slices.Contains(exportForms, form) {
				return usage("--format must be one of %s, was %q", strings.Join(exportForms, ", "), form)
			}
			if !setName.MatchString(name) {
				return usage("--name must begin with a letter and hold at most 20 letters, digits and underscores, was %q", name)
			}
			var found networks
			if err := c.get(cmd.Context(), "/blocked-networks", nil, &found); err != nil {
				return err
			}
			return found.export(cmd.OutOrStdout(), form, name)
		}),
	}
	cmd.Flags().StringVar(&form, "format", exportPlain, strings.Join(exportForms, ", "))
	cmd.Flags().StringVar(&name, "name", "tandem", "what table and sets are called")
	complete(cmd, "format", exportForms...)
	return cmd
}

// check refuses what is no network of its family: the lines go to a firewall, with a superuser's rights.
func (n *networks) check() error {
	for i, list := range [][]string{n.IPv4, n.IPv6} {
		for _, text := range list {
			prefix, err := netip.ParsePrefix(text)
			if err != nil || prefix.Addr().Is4() != (i == 0) || prefix.Addr().Zone() != "" || prefix.Masked().String() != text || prefix.Bits() == 0 {
				return fmt.Errorf("the server answered %q, which is no network to block", text)
			}
		}
	}
	return nil
}

func (n *networks) export(w io.Writer, form, name string) error {
	if err := n.check(); err != nil {
		return err
	}
	var out bytes.Buffer
	switch form {
	case exportNFT:
		n.nft(&out, name)
	case exportIPSet:
		ipset(&out, name+"4", "inet", n.IPv4)
		ipset(&out, name+"6", "inet6", n.IPv6)
	default:
		for _, network := range slices.Concat(n.IPv4, n.IPv6) {
			out.WriteString(network + "\n")
		}
	}
	if _, err := w.Write(out.Bytes()); err != nil {
		return fmt.Errorf("print: %w", err)
	}
	return nil
}

// nft writes one transaction of nft -f (nft(8)): what is there already is not made twice, sets are emptied and filled.
func (n *networks) nft(out *bytes.Buffer, name string) {
	fmt.Fprintf(out, "add table inet %s\n", name)
	for _, set := range []struct {
		name, kind string
		networks   []string
	}{{name + "4", "ipv4_addr", n.IPv4}, {name + "6", "ipv6_addr", n.IPv6}} {
		fmt.Fprintf(out, "add set inet %s %s { type %s; flags interval; }\n", name, set.name, set.kind)
		fmt.Fprintf(out, "flush set inet %s %s\n", name, set.name)
		if len(set.networks) > 0 {
			fmt.Fprintf(out, "add element inet %s %s { %s }\n", name, set.name, strings.Join(set.networks, ", "))
		}
	}
}

// ipset writes the commands of ipset restore (ipset(8)) that fill a new set and put it into the place of the old one.
func ipset(out *bytes.Buffer, name, family string, networks []string) {
	const room = 1 << 18 // its default, 65536, is less than what many blocks with many exceptions come to
	fmt.Fprintf(out, "create %s hash:net family %s maxelem %d -exist\n", name, family, room)
	fmt.Fprintf(out, "create %s_new hash:net family %s maxelem %d -exist\n", name, family, room)
	fmt.Fprintf(out, "flush %s_new\n", name)
	for _, network := range networks {
		fmt.Fprintf(out, "add %s_new %s\n", name, network)
	}
	fmt.Fprintf(out, "swap %s %s_new\ndestroy %s_new\n", name, name, name)
}

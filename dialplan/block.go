package dialplan

import (
	"fmt"
	"hash/crc32"
	"net/netip"

	"tandem/models"
)

const (
	// blockDomain is the directory domain whose users are the blocked networks; freeswitch-conf's access list "tandem_open" denies them.
	blockDomain = "tandem_blocked"

	blockPath = directoryFolder + "/blocks.xml"
)

// refuseBlocked is what the SIP profile answers a blocked address (sofia.c, sofia_handle_sip_i_invite), before any dialplan.
var refuseBlocked = Outcome{Kind: OutcomeRefuse, SIPStatus: 403, Phrase: "Forbidden"}

// renderBlocks writes the blocked networks, which do not overlap and are sorted.
func renderBlocks(blocked []netip.Prefix) []byte {
	groups := make([][]netip.Prefix, sourceGroups)
	for _, prefix := range blocked {
		n := crc32.ChecksumIEEE([]byte(prefix.String())) % sourceGroups
		groups[n] = append(groups[n], prefix)
	}
	var d document
	d.line("<include>")
	d.line(`  <domain name="%s">`, blockDomain)
	d.line("    <groups>")
	for n, group := range groups {
		if len(group) == 0 {
			continue
		}
		d.line(`      <group name="%02d">`, n)
		d.line("        <users>")
		for _, prefix := range group {
			d.line(`          <user id="%s" cidr="%s"/>`, prefix, prefix)
		}
		d.line("        </users>")
		d.line("      </group>")
	}
	d.line("    </groups>")
	d.line("  </domain>")
	d.line("</include>")
	return d.bytes()
}

// blocks adds the blocked networks to a rendering; without any there is no document.
func (r *renderer) blocks(blocked []netip.Prefix) error {
	for _, prefix := range blocked {
		if !prefix.IsValid() || prefix != unmapped(prefix) {
			return fmt.Errorf("render: blocked network %q is none", prefix)
		}
	}
	if len(blocked) > 0 {
		r.out.Files[blockPath] = renderBlocks(blocked)
	}
	return nil
}

// reasonBlocked says why a call is refused before the dialplan.
func (x *Explanation) reasonBlocked(block *models.Block) {
	by := "automatically: " + block.Reason
	if block.Origin == models.BlockOperator {
		by = "by operator " + block.CreatedBy + ": " + block.Reason
	}
	until := "until somebody lifts it"
	if block.ExpiresAt != nil {
		until = "until " + block.ExpiresAt.Format("2006-01-02 15:04:05Z")
	}
	x.because("%s is blocked (%s of %s, %s), %s", x.From, block.ID, block.Address, by, until)
	x.because("%s", x.Outcome.words("the call is ")+", before the dialplan is asked")
	x.because("the switch decides that by itself, also while no controller takes calls")
}

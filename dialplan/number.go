package dialplan

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"tandem/esl"
	"tandem/models"
)

const (
	// entryContext is where every call comes in: the SIP profile's context and that of every gateway.
	entryContext = "public"
	// trunkContext takes the numbers that are no DIDs, from trunks with an application of their own.
	trunkContext = "trunk"
	// shardPrefix and the last three digits name the context of a number.
	shardPrefix = "did_"
	shardDigits = models.ShardDigits

	entryPath = dialplanFolder + "/public.xml"
)

// Refusals: the SIP answer and what we call it where we count. The phrases are ours, so that a refusal can be told from a
// number's own reject route.
const (
	refuseUninvited = "403 Source Not Invited"
	refuseUnknown   = "404 Number Not Served"
	refuseSuspended = "480 Number Suspended"
	refuseUnsteered = "503 Not Taking Calls"
)

// dialedNumber is how a number may be dialed: in E.164 form, or without the plus, or with 00 in its place.
const dialedNumber = "^(?:[+]|00)?([1-9][0-9]{6,14})$"

// Conditions on the token. No parentheses: they would make FreeSWITCH keep the match as a channel variable. No backslashes
// either, since expressions pass the expansion of channel variables.
const (
	invitedToken = "@" + domain + "$"
	anyToken     = "[.]any@" + domain + "$"
)

// Calls are parked only while a controller takes them: it keeps the switch's global variable esl.AcceptVariable at true, and the
// switch itself takes that back when the controller has not said so for a while. A channel that has no such variable of its own,
// and none has, shows the global one (switch_channel.c, switch_channel_get_variable_dup).
const (
	taken      = "${" + esl.AcceptVariable + "}"
	takenToken = taken + ".${acl_token}"
	ifTaken    = "^true[.]"
	notTaken   = "^$|^false$"
)

// parkApplication leaves a call to the controller.
const parkApplication = "park"

// defaultRejectCode is the answer of a reject route without a code of its own.
const defaultRejectCode = 603

// route returns the one application of a DID.
func route(did *models.DID, profile string) (application, data string, err error) {
	if did.Status != models.DIDActive {
		return "respond", refuseSuspended, nil
	}
	switch did.RouteMode {
	case models.RouteWebhook:
		return parkApplication, "", nil
	case models.RouteSIP:
		uri, err := NormalizeSIPURI(did.SIPURI)
		if err != nil {
			return "", "", err
		}
		return "bridge", "sofia/" + profile + "/" + uri, nil
	case models.RouteReject:
		code := did.RejectCode
		if code == 0 {
			code = defaultRejectCode
		}
		if code < 400 || code > 699 {
			return "", "", fmt.Errorf("reject code %d is not between 400 and 699", code)
		}
		return "respond", fmt.Sprint(code), nil
	default:
		return "", "", fmt.Errorf("route mode %q is not known", did.RouteMode)
	}
}

// extension is a DID in its shard.
type extension struct{ name, number, customer, application, data string }

// newExtension turns a DID into its extension. A DID that is wrong in itself is refused like a suspended one: the number
// stays its customer's, and nobody else's calls suffer.
func newExtension(did *models.DID, profile string) (extension, error) {
	if !idPattern.MatchString(did.ID) || !idPattern.MatchString(did.CustomerID) || did.CustomerID == providerName {
		return extension{}, errors.New("id of DID or customer holds characters other than letters, digits and underscores")
	}
	if !numberPattern.MatchString(did.NumberE164) {
		return extension{}, fmt.Errorf("number %q is not in E.164 form", did.NumberE164)
	}
	application, data, err := route(did, profile)
	if err != nil {
		application, data = "respond", refuseSuspended
	}
	return extension{did.ID, did.NumberE164, did.CustomerID, application, data}, err
}

func shardOf(number string) string { return models.ShardOf(number) }

func shardPath(shard string) string { return dialplanFolder + "/" + shardPrefix + shard + ".xml" }

// shardAt is the shard of shardPath.
func shardAt(path string) string {
	return strings.TrimSuffix(strings.TrimPrefix(path, dialplanFolder+"/"+shardPrefix), ".xml")
}

func (d *document) action(indent, application, data string) {
	if data == "" {
		d.line(`%s<action application="%s"/>`, indent, application)
		return
	}
	d.line(`%s<action application="%s" data="%s"/>`, indent, application, references.Replace(data))
}

// renderShard writes the context of the numbers that end alike.
func renderShard(shard string, extensions []extension) []byte {
	slices.SortFunc(extensions, func(a, b extension) int { return strings.Compare(a.number, b.number) })
	var d document
	d.Grow(400 * (len(extensions) + 2))
	d.line("<include>")
	d.line(`<context name="%s">`, shardPrefix+shard)
	for i := range extensions {
		d.extension(&extensions[i])
	}
	d.rest()
	d.line("</context>")
	d.line("</include>")
	return d.bytes()
}

// extension writes one DID. It spares the formatting, since there may be a million.
func (d *document) extension(e *extension) {
	field, begins := "${acl_token}", "^"
	if e.application == parkApplication {
		field, begins = takenToken, ifTaken
	}
	for _, part := range [...]string{
		`  <extension name="`, e.name, "\">\n",
		`    <condition field="destination_number" expression="^[+]`, e.number[1:], "$\"/>\n",
		`    <condition field="`, field, `" expression="`, begins, e.customer, "[.]|", begins, providerName + "[.]\">\n",
		`      <action application="`, e.application,
	} {
		d.WriteString(part)
	}
	if e.data != "" {
		d.WriteString(`" data="`)
		_, _ = references.WriteString(d, e.data)
	}
	d.WriteString("\"/>\n    </condition>\n  </extension>\n")
}

// rest ends a context that a source has been transferred to: a trunk's own application, or nobody. What is not parked because nobody
// takes it gets there, too.
func (d *document) rest() {
	d.line(`  <extension name="trunk">`)
	d.line(`    <condition field="%s" expression="%s.*%s">`, takenToken, ifTaken, anyToken)
	d.action("      ", parkApplication, "")
	d.line("    </condition>")
	d.line("  </extension>")
	d.line(`  <extension name="not_taking_calls">`)
	d.line(`    <condition field="%s" expression="%s">`, taken, notTaken)
	d.action("      ", "respond", refuseUnsteered)
	d.line("    </condition>")
	d.line("  </extension>")
	d.refuse("unknown_number", refuseUnknown)
}

func (d *document) refuse(name, answer string) {
	d.line(`  <extension name="%s">`, name)
	d.line("    <condition>")
	d.action("      ", "respond", answer)
	d.line("    </condition>")
	d.line("  </extension>")
}

// renderEntry writes the context of all calls. It names the shards that exist, since a transfer to a context that does
// not would refuse the call of a trunk with an application of its own.
func renderEntry(shards []string) []byte {
	var d document
	d.line("<include>")
	d.line(`<context name="%s">`, entryContext)
	if len(shards) > 0 {
		d.line(`  <extension name="number">`)
		d.line(`    <condition field="${acl_token}" expression="%s"/>`, invitedToken)
		d.line(`    <condition field="destination_number" expression="^(?:[+]|00)?([1-9][0-9]{3,11}(%s))$">`, endings(shards))
		d.line(`      <action application="transfer" data="+$1 XML %s$2"/>`, shardPrefix)
		d.line("    </condition>")
		d.line("  </extension>")
	}
	for _, form := range []struct{ name, expression, number string }{
		{"trunk", dialedNumber, "+$1"},
		{"trunk_as_dialed", "^([0-9]{1,15})$", "$1"}, // an extension, or a national number: only the customer knows
	} {
		d.line(`  <extension name="%s">`, form.name)
		d.line(`    <condition field="${acl_token}" expression="%s"/>`, anyToken)
		d.line(`    <condition field="destination_number" expression="%s">`, form.expression)
		d.line(`      <action application="transfer" data="%s XML %s"/>`, form.number, trunkContext)
		d.line("    </condition>")
		d.line("  </extension>")
	}
	d.line(`  <extension name="unknown_number">`)
	d.line(`    <condition field="${acl_token}" expression="%s">`, invitedToken)
	d.action("      ", "respond", refuseUnknown)
	d.line("    </condition>")
	d.line("  </extension>")
	d.refuse("uninvited", refuseUninvited)
	d.line("</context>")
	d.line(`<context name="%s">`, trunkContext)
	d.rest()
	d.line("</context>")
	d.line("</include>")
	return d.bytes()
}

// endings is the regular expression of the given three-digit endings, which are sorted: "12[05]|999".
func endings(shards []string) string {
	if len(shards) == 1000 {
		return "[0-9]{3}"
	}
	var b strings.Builder
	for i := 0; i < len(shards); {
		lead := shards[i][:shardDigits-1]
		j := i
		for j < len(shards) && shards[j][:shardDigits-1] == lead {
			j++
		}
		if i > 0 {
			b.WriteByte('|')
		}
		b.WriteString(lead)
		if j-i == 1 {
			b.WriteByte(shards[i][shardDigits-1])
		} else {
			b.WriteByte('[')
			for _, shard := range shards[i:j] {
				b.WriteByte(shard[shardDigits-1])
			}
			b.WriteByte(']')
		}
		i = j
	}
	return b.String()
}

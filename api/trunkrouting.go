package api

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"tandem/models"
)

// Limits of how a trunk is chosen and told; docs/api.md lists them.
const (
	maxTrunkPriority   = 100
	maxTrunkWeight     = 100
	maxAllowedPrefixes = 1000
)

// trunkRouting are the fields of a request that say which calls an outbound trunk takes, and how its carrier is told of them.
type trunkRouting struct {
	Priority        *int     `json:"priority" minimum:"0" maximum:"100" doc:"Outbound only. Trunks with the lowest number are tried first. Default 10."`
	Weight          *int     `json:"weight" minimum:"1" maximum:"100" doc:"Outbound only. Trunks of one priority share the calls by their weights. Default 1."`
	AllowedPrefixes []string `json:"allowed_prefixes" nullable:"true" doc:"Outbound only. What the numbers begin with that may be called, such as +49; null allows all."`
	StripPrefix     *string  `json:"strip_prefix" pattern:"^([+][0-9]{0,14})?$" doc:"Outbound only. Taken off the beginning of a number where it is there: + alone takes the plus." example:"+"`
	AddPrefix       *string  `json:"add_prefix" pattern:"^[+]?[0-9]{0,16}$" doc:"Outbound only. Put before the number then." example:"00"`
	CallerIDPolicy  *string  `json:"caller_id_policy" enum:"any,own_dids,fixed" doc:"Outbound only. any shows the number that the call names; own_dids does so where it is one of the customer's active DIDs, and shows caller_id otherwise or, without one, does not take the call; fixed shows caller_id. Default any."`
	CallerID        *string  `json:"caller_id" nullable:"true" doc:"Outbound only. An E.164 number."`
	Codecs          []string `json:"codecs" nullable:"true" doc:"Outbound only. What is offered to the carrier, the first one first: PCMU, PCMA, G722, G729, OPUS, GSM, iLBC, AMR, AMR-WB, as far as the nodes have them. null offers what the nodes are set to."`
}

// routingFields are its names.
var routingFields = []string{"priority", "weight", "allowed_prefixes", "strip_prefix", "add_prefix", "caller_id_policy", "caller_id", "codecs"}

// trunkRoutes are the same of a response.
type trunkRoutes struct {
	Priority        *int     `json:"priority,omitempty" doc:"Outbound trunks only, like weight and caller_id_policy."`
	Weight          *int     `json:"weight,omitempty"`
	AllowedPrefixes []string `json:"allowed_prefixes,omitempty" doc:"Outbound trunks that may not call every number."`
	StripPrefix     string   `json:"strip_prefix,omitempty"`
	AddPrefix       string   `json:"add_prefix,omitempty"`
	CallerIDPolicy  string   `json:"caller_id_policy,omitempty" enum:"any,own_dids,fixed"`
	CallerID        string   `json:"caller_id,omitempty"`
	Codecs          []string `json:"codecs,omitempty" doc:"Outbound trunks that offer others than the nodes."`
}

func toRoutes(t *models.Trunk) trunkRoutes {
	if t.Direction != models.Outbound {
		return trunkRoutes{}
	}
	r := t.Routing
	return trunkRoutes{
		Priority: &r.Priority, Weight: &r.Weight, AllowedPrefixes: r.AllowedPrefixes, StripPrefix: r.StripPrefix, AddPrefix: r.AddPrefix,
		CallerIDPolicy: r.CallerIDPolicy, CallerID: r.CallerID, Codecs: r.Codecs,
	}
}

// routing changes what the request names, and checks what comes of it.
func (c *checks) routing(in *trunkRouting, given fieldSet, to *models.TrunkRouting) {
	if given.has("priority") {
		to.Priority = c.between("priority", in.Priority, 0, maxTrunkPriority)
	}
	if given.has("weight") {
		to.Weight = c.between("weight", in.Weight, 1, maxTrunkWeight)
	}
	if given.has("allowed_prefixes") {
		to.AllowedPrefixes = c.prefixes("allowed_prefixes", in.AllowedPrefixes, given["allowed_prefixes"])
	}
	if given.has("strip_prefix") {
		to.StripPrefix = c.pattern("strip_prefix", in.StripPrefix, stripPattern, "a plus and at most 14 digits")
	}
	if given.has("add_prefix") {
		to.AddPrefix = c.pattern("add_prefix", in.AddPrefix, addPattern, "at most 16 digits, with a plus before them or none")
	}
	if given.has("caller_id_policy") {
		to.CallerIDPolicy = c.oneOf("caller_id_policy", in.CallerIDPolicy, models.CallerIDAny, models.CallerIDOwn, models.CallerIDFixed)
	}
	if given.has("caller_id") {
		to.CallerID = ""
		if in.CallerID != nil {
			to.CallerID = c.number("caller_id", in.CallerID)
		}
	}
	if given.has("codecs") {
		to.Codecs = c.codecs("codecs", in.Codecs, given["codecs"])
	}
	if to.CallerIDPolicy == models.CallerIDFixed && to.CallerID == "" {
		c.refuse("caller_id", "caller_id is required with caller_id_policy fixed")
	}
}

var (
	stripPattern  = regexp.MustCompile(`^([+][0-9]{0,14})?$`)
	addPattern    = regexp.MustCompile(`^[+]?[0-9]{0,16}$`)
	prefixPattern = regexp.MustCompile(`^[+][1-9][0-9]{0,14}$`)
)

func (c *checks) pattern(field string, value *string, pattern *regexp.Regexp, want string) string {
	if value == nil || !pattern.MatchString(*value) {
		c.refuse(field, "%s must be %s", field, want)
		return ""
	}
	return *value
}

// prefixes accepts a list of beginnings of E.164 numbers, nil for null.
func (c *checks) prefixes(field string, list []string, valued bool) []string {
	if !valued {
		return nil
	}
	if len(list) == 0 || len(list) > maxAllowedPrefixes {
		c.refuse(field, "%s must hold 1 to %d prefixes, or be null", field, maxAllowedPrefixes)
		return nil
	}
	for i := range list {
		if !prefixPattern.MatchString(list[i]) {
			place := fmt.Sprintf("%s[%d]", field, i)
			c.refuse(place, "%s must be the beginning of an E.164 number such as +49", place)
			return nil
		}
	}
	return list
}

// codecs accepts a list of the names of codecs, in any case of letters, nil for null.
func (c *checks) codecs(field string, list []string, valued bool) []string {
	if !valued {
		return nil
	}
	if len(list) == 0 {
		c.refuse(field, "%s must hold at least one codec, or be null", field)
		return nil
	}
	var names []string
	for i, name := range list {
		place := fmt.Sprintf("%s[%d]", field, i)
		known := slices.IndexFunc(models.Codecs, func(codec string) bool { return strings.EqualFold(codec, name) })
		if known < 0 {
			c.refuse(place, "%s must be one of %s", place, strings.Join(models.Codecs, ", "))
			return nil
		}
		if slices.Contains(names, models.Codecs[known]) {
			c.refuse(place, "%s is in the list already", place)
			return nil
		}
		names = append(names, models.Codecs[known])
	}
	return names
}

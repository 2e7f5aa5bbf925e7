package models

import (
	"cmp"
	"slices"
	"strings"
)

// Which number a trunk's calls show as their caller's.
const (
	// CallerIDAny is the one that the call names.
	CallerIDAny = "any"
	// CallerIDOwn is the one that the call names, which must be an active DID of the customer.
	CallerIDOwn = "own_dids"
	// CallerIDFixed is the trunk's CallerID, whatever the call names.
	CallerIDFixed = "fixed"
)

// What a trunk has that names nothing else.
const (
	DefaultTrunkPriority = 10
	DefaultTrunkWeight   = 1
)

// TrunkRouting says which calls an outbound trunk takes, and how it is told of them.
type TrunkRouting struct {
	// Priority orders the trunks of a customer, the lowest first. Those of one priority share the calls by their weights; a weight of 0 is
	// DefaultTrunkWeight.
	Priority int
	Weight   int
	// AllowedPrefixes are what the E.164 numbers begin with that may be called; nil allows all.
	AllowedPrefixes []string `gorm:"serializer:optional"`
	// StripPrefix is taken off the beginning of a number, and AddPrefix put there. Numbers begin with a plus.
	StripPrefix string
	AddPrefix   string
	// CallerIDPolicy is CallerIDAny, CallerIDOwn or CallerIDFixed; empty is CallerIDAny. CallerID is what CallerIDFixed shows.
	CallerIDPolicy string `gorm:"column:caller_id_policy"`
	CallerID       string `gorm:"column:caller_id"`
	// Codecs are those that are offered to the carrier, by their names in Codecs, the first one first; nil offers what the nodes are set to.
	Codecs []string `gorm:"serializer:optional"`
}

// Codecs are the names of codecs that a trunk may be told to offer, as FreeSWITCH spells them.
var Codecs = []string{"PCMU", "PCMA", "G722", "G729", "OPUS", "GSM", "iLBC", "AMR", "AMR-WB"}

// Transports are those that a trunk may be told to use.
var Transports = []string{"udp", "tcp", "tls"}

func (r TrunkRouting) withDefaults() TrunkRouting {
	r.Weight = max(r.Weight, DefaultTrunkWeight)
	r.CallerIDPolicy = cmp.Or(r.CallerIDPolicy, CallerIDAny)
	if len(r.AllowedPrefixes) == 0 {
		r.AllowedPrefixes = nil
	}
	if len(r.Codecs) == 0 {
		r.Codecs = nil
	}
	return r
}

// Allows says whether the trunk may call an E.164 number.
func (r *TrunkRouting) Allows(number string) bool {
	return r.AllowedPrefixes == nil || slices.ContainsFunc(r.AllowedPrefixes, func(prefix string) bool { return strings.HasPrefix(number, prefix) })
}

// Dialled is an E.164 number as the carrier is to be told of it: digits, with a plus before them or none. One that does not begin with StripPrefix, or is
// nothing else, stays as it is.
func (r *TrunkRouting) Dialled(number string) string {
	rest, there := strings.CutPrefix(number, r.StripPrefix)
	if !there || rest == "" {
		return number
	}
	if r.AddPrefix != "" {
		rest = strings.TrimPrefix(rest, "+") // a plus stands at the beginning, or nowhere
	}
	return r.AddPrefix + rest
}

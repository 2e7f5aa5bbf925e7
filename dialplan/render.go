package dialplan

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"tandem/models"
)

// DefaultProfile is the SIP profile that freeswitch-conf defines.
const DefaultProfile = "external"

// Files are the documents of a node by their path below its configuration directory, with forward slashes.
type Files map[string][]byte

// Input is everything the documents are made of.
type Input struct {
	Trunks    []models.Trunk
	DIDs      []models.DID
	Providers []netip.Prefix // the operator's providers, whose addresses may call any DID
	Profile   string         // the SIP profile that numbers with a SIP route are called through; "external" when empty
}

// Problem is a trunk or a DID that could not be rendered as it is. Such a trunk is left out and such a number refuses its
// calls; all others are not affected.
type Problem struct {
	Kind    string // "trunk" or "did"
	ID      string
	Message string // never holds a secret
}

// Rendering is a node's complete configuration as far as it is ours.
type Rendering struct {
	Files    Files
	Gateways map[string]string // gateway name to trunk ID
	Problems []Problem
}

// Render makes a node's documents. It is pure: the same input gives the same bytes, in whatever order the rows come. An
// error means that nothing can be said of any of it.
func Render(in Input) (*Rendering, error) {
	r := newRenderer(in)
	if err := r.trunks(in.Trunks, in.Providers); err != nil {
		return nil, err
	}
	r.dids(in.DIDs)
	return r.finish(), nil
}

// renderer collects a rendering; numbers may be added in batches.
type renderer struct {
	profile string
	out     Rendering
	shards  map[string][]extension
}

func newRenderer(in Input) *renderer {
	return &renderer{
		profile: cmp.Or(in.Profile, DefaultProfile),
		out:     Rendering{Files: Files{}, Gateways: map[string]string{}},
		shards:  map[string][]extension{},
	}
}

func (r *renderer) problem(kind, id string, err error) {
	r.out.Problems = append(r.out.Problems, Problem{Kind: kind, ID: id, Message: err.Error()})
}

func (r *renderer) trunks(trunks []models.Trunk, providers []netip.Prefix) error {
	if !profilePattern.MatchString(r.profile) {
		return fmt.Errorf("render: profile %q is no name of a SIP profile", r.profile)
	}
	invited, err := providerSources(providers)
	if err != nil {
		return fmt.Errorf("render: %w", err)
	}
	sources := slices.Clone(invited)
	trunks = slices.Clone(trunks)
	slices.SortFunc(trunks, func(a, b models.Trunk) int { return strings.Compare(a.ID, b.ID) })
	taken := map[netip.Prefix]bool{}
	for i := range trunks {
		trunk := &trunks[i]
		if !trunk.IsActive || trunk.DeletedAt != nil {
			continue
		}
		if trunk.Direction == models.Outbound {
			r.gateway(trunk)
			continue
		}
		s, err := trunkSource(trunk)
		switch {
		case err != nil:
		case covered(s.prefix, invited):
			// Otherwise a customer could claim a provider's address and take the calls to everyone's numbers.
			err = fmt.Errorf("inbound_ip %s belongs to a provider", s.prefix)
		case taken[s.prefix]:
			err = fmt.Errorf("inbound_ip %s is another trunk's", s.prefix)
		}
		if err != nil {
			r.problem("trunk", trunk.ID, err)
			continue
		}
		taken[s.prefix] = true
		sources = append(sources, s)
	}
	document, err := renderSources(sources)
	if err != nil {
		return fmt.Errorf("render sources: %w", err)
	}
	r.out.Files[sourcePath] = document
	return nil
}

func (r *renderer) gateway(trunk *models.Trunk) {
	document, err := renderGateway(trunk)
	if err == nil && r.out.Gateways[trunk.GatewayName] != "" {
		err = fmt.Errorf("gateway name %q is another trunk's", trunk.GatewayName)
	}
	if err != nil {
		r.problem("trunk", trunk.ID, err)
		return
	}
	r.out.Gateways[trunk.GatewayName] = trunk.ID
	r.out.Files[gatewayPath(trunk.GatewayName)] = document
}

func (r *renderer) dids(dids []models.DID) {
	for i := range dids {
		did := &dids[i]
		if did.DeletedAt != nil {
			continue
		}
		e, err := newExtension(did, r.profile)
		if err != nil {
			r.problem("did", did.ID, err)
		}
		if e.number != "" {
			shard := shardOf(e.number)
			r.shards[shard] = append(r.shards[shard], e)
		}
	}
}

func (r *renderer) finish() *Rendering {
	for shard, extensions := range r.shards {
		r.out.Files[shardPath(shard)] = renderShard(shard, extensions)
	}
	r.out.Files[entryPath] = renderEntry(slices.Sorted(maps.Keys(r.shards)))
	slices.SortFunc(r.out.Problems, func(a, b Problem) int {
		return cmp.Or(strings.Compare(a.Kind, b.Kind), strings.Compare(a.ID, b.ID))
	})
	return &r.out
}

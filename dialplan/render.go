package dialplan

import (
	"cmp"
	"context"
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
	Blocked   []netip.Prefix // networks whose calls are refused, unless they are somebody's; not overlapping and sorted
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
	// Files are the documents; those of a Syncer's own rendering hold of the numbers what is new only.
	Files    Files
	Gateways map[string]string // gateway name to trunk ID
	Problems []Problem

	// digests tell of each document what it holds, also of those that Files lacks; load renders these, by shard.
	digests map[string]digest
	load    func(ctx context.Context, shards []string, put func(path string, content []byte) error) error
	// generation is the catalogue's, 0 of a rendering without one.
	generation uint64
}

// contents hands the documents of the paths to put.
func (r *Rendering) contents(ctx context.Context, paths []string, put func(path string, content []byte) error) error {
	var absent []string
	for _, path := range paths {
		content, there := r.Files[path]
		if !there {
			absent = append(absent, shardAt(path))
			continue
		}
		if err := put(path, content); err != nil {
			return err
		}
	}
	if len(absent) == 0 {
		return nil
	}
	return r.load(ctx, absent, put)
}

// Render makes a node's documents. It is pure: the same input gives the same bytes, in whatever order the rows come. An
// error means that nothing can be said of any of it.
func Render(in Input) (*Rendering, error) {
	r := newRenderer(in)
	if err := r.trunks(in.Trunks, in.Providers); err != nil {
		return nil, err
	}
	if err := r.blocks(in.Blocked); err != nil {
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
		own, err := trunkSources(trunk)
		if err != nil {
			r.problem("trunk", trunk.ID, err)
			continue
		}
		for _, s := range own {
			switch {
			case covered(s.prefix, invited):
				// Otherwise a customer could claim a provider's address and take the calls to everyone's numbers.
				r.problem("trunk", trunk.ID, fmt.Errorf("inbound_ip %s belongs to a provider", s.prefix))
			case taken[s.prefix]:
				r.problem("trunk", trunk.ID, fmt.Errorf("inbound_ip %s is another trunk's", s.prefix))
			default:
				taken[s.prefix] = true
				sources = append(sources, s)
			}
		}
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
	sortProblems(r.out.Problems)
	r.digest()
	return &r.out
}

func (r *renderer) digest() {
	r.out.digests = make(map[string]digest, len(r.out.Files))
	for path, content := range r.out.Files {
		r.out.digests[path] = digestOf(content)
	}
}

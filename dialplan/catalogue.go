package dialplan

import (
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"

	"tandem/models"
)

// freshLimit bounds the documents of numbers that one rendering keeps in memory, in bytes. What is beyond is read and rendered once more where
// a node lacks it: of a million numbers all documents together are a third of a gigabyte.
const freshLimit = 64 << 20

// digest tells one content of a file from another.
type digest [sha256.Size]byte

func digestOf(content []byte) digest { return sha256.Sum256(content) }

// catalogue is what the nodes' files should hold, as far as the database has been read. Of numbers it keeps what each shard's document
// amounts to, so that one changed number costs the reading of one shard.
type catalogue struct {
	store     Store
	providers []netip.Prefix
	profile   string
	limit     int // bytes of documents that a rendering keeps
	edition   edition

	mu       sync.Mutex
	revision string     // of the trunks when they were read
	trunks   *Rendering // without numbers; nil before the first reading
	// blockRevision is of the blocks when they were read, and blocked their document, nil where there is none.
	blockRevision string
	blocked       []byte
	shards        map[string]shardState
}

// shardState is a shard as it was read last.
type shardState struct {
	revision int64
	sum      models.DIDSum
	numbers  int // that have an extension; a shard without any has no document
	digest   digest
	problems []Problem
}

// edition counts the renderings that differ, so that a node which lacks the last one is told from the others, whoever has had it made.
type edition struct {
	generation uint64
	digests    map[string]digest
}

// of returns the generation of a rendering with these digests.
func (e *edition) of(digests map[string]digest) uint64 {
	if e.generation == 0 || !maps.Equal(e.digests, digests) {
		e.generation, e.digests = e.generation+1, digests
	}
	return e.generation
}

func newCatalogue(store Store, providers []netip.Prefix, profile string) *catalogue {
	return &catalogue{store: store, providers: providers, profile: profile, limit: freshLimit, shards: map[string]shardState{}}
}

// current is the generation of the last rendering.
func (c *catalogue) current() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.edition.generation
}

// changed tells whether the database is ahead of the catalogue. Where it cannot be asked the answer is yes: reading will tell what is wrong.
func (c *catalogue) changed(ctx context.Context) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	revision, err := c.store.TrunkRevision(ctx)
	if err != nil || c.trunks == nil || revision != c.revision {
		return true
	}
	if revision, err := c.store.BlockRevision(ctx); err != nil || revision != c.blockRevision {
		return true
	}
	stale, _, err := c.stale(ctx, false)
	return err != nil || len(stale) > 0
}

// blocksAt is the revision of the blocks that were read last.
func (c *catalogue) blocksAt() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.blockRevision
}

// render brings the catalogue up to date and returns it as the rendering of a node. A whole one also finds what changed without any trace
// but the rows themselves, for the price of reading all trunks and passing over all numbers.
func (c *catalogue) render(ctx context.Context, whole bool) (*Rendering, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	whole = whole || c.trunks == nil
	if err := c.readTrunks(ctx, whole); err != nil {
		return nil, fmt.Errorf("render: %w", err)
	}
	if err := c.readBlocks(ctx, whole); err != nil {
		return nil, fmt.Errorf("render: %w", err)
	}
	fresh, err := c.readNumbers(ctx, whole)
	if err != nil {
		return nil, fmt.Errorf("render: %w", err)
	}
	return c.rendering(fresh), nil
}

func (c *catalogue) readTrunks(ctx context.Context, whole bool) error {
	revision, err := c.store.TrunkRevision(ctx) // before the rows: what changes while they are read is seen the next time
	if err != nil || revision == c.revision && !whole {
		return err
	}
	trunks, err := c.store.AllTrunks(ctx)
	if err != nil {
		return err
	}
	r := newRenderer(Input{Profile: c.profile})
	if err := r.trunks(trunks, c.providers); err != nil {
		return err
	}
	r.digest()
	c.trunks, c.revision = &r.out, revision
	return nil
}

func (c *catalogue) readBlocks(ctx context.Context, whole bool) error {
	revision, err := c.store.BlockRevision(ctx) // before the rows
	if err != nil || revision == c.blockRevision && !whole {
		return err
	}
	blocked, err := c.store.BlockedNetworks(ctx)
	if err != nil {
		return err
	}
	r := newRenderer(Input{Profile: c.profile})
	if err := r.blocks(blocked); err != nil {
		return err
	}
	c.blocked, c.blockRevision = r.out.Files[blockPath], revision
	return nil
}

// readNumbers reads the shards that changed, and returns their documents by path, up to the limit.
func (c *catalogue) readNumbers(ctx context.Context, whole bool) (Files, error) {
	stale, revisions, err := c.stale(ctx, whole)
	if err != nil {
		return nil, err
	}
	fresh, size := Files{}, 0
	err = c.store.DIDsOfShards(ctx, stale, func(shard string, dids []models.DID) error {
		state := shardState{revision: revisions[shard]}
		for i := range dids {
			state.sum.Add(dids[i].UpdatedAt)
		}
		var content []byte
		content, state.numbers, state.problems = renderDIDs(shard, dids, c.profile)
		state.digest = digestOf(content)
		c.shards[shard] = state
		if size += len(content); state.numbers > 0 && size <= c.limit {
			fresh[shardPath(shard)] = content
		}
		return ctx.Err()
	})
	return fresh, err
}

// stale returns the shards that have to be read, sorted, and the revisions of all.
func (c *catalogue) stale(ctx context.Context, whole bool) ([]string, map[string]int64, error) {
	revisions, err := c.store.DIDShards(ctx) // before the rows
	if err != nil {
		return nil, nil, err
	}
	var sums map[string]models.DIDSum
	if whole {
		if sums, err = c.store.DIDSums(ctx); err != nil {
			return nil, nil, err
		}
	}
	found := map[string]bool{}
	look := func(shard string) {
		known, read := c.shards[shard]
		if !read || known.revision != revisions[shard] || whole && known.sum != sums[shard] {
			found[shard] = true
		}
	}
	for shard := range revisions {
		look(shard)
	}
	for shard := range sums {
		look(shard)
	}
	for shard := range c.shards {
		look(shard)
	}
	return slices.Sorted(maps.Keys(found)), revisions, nil
}

// rendering is the catalogue as it is now.
func (c *catalogue) rendering(fresh Files) *Rendering {
	out := &Rendering{
		Files: maps.Clone(c.trunks.Files), Gateways: c.trunks.Gateways, Problems: slices.Clone(c.trunks.Problems),
		digests: maps.Clone(c.trunks.digests), load: c.load,
	}
	maps.Copy(out.Files, fresh)
	if c.blocked != nil {
		out.Files[blockPath], out.digests[blockPath] = c.blocked, digestOf(c.blocked)
	}
	var shards []string
	for shard, state := range c.shards {
		out.Problems = append(out.Problems, state.problems...)
		if state.numbers > 0 {
			shards = append(shards, shard)
			out.digests[shardPath(shard)] = state.digest
		}
	}
	slices.Sort(shards)
	entry := renderEntry(shards)
	out.Files[entryPath], out.digests[entryPath] = entry, digestOf(entry)
	sortProblems(out.Problems)
	out.generation = c.edition.of(out.digests)
	return out
}

// load renders the documents of shards from the database as it is now, which may be newer than the catalogue: the next rendering knows.
func (c *catalogue) load(ctx context.Context, shards []string, put func(path string, content []byte) error) error {
	return c.store.DIDsOfShards(ctx, shards, func(shard string, dids []models.DID) error {
		content, _, _ := renderDIDs(shard, dids, c.profile)
		return put(shardPath(shard), content)
	})
}

// renderDIDs writes the document of a shard from its numbers.
func renderDIDs(shard string, dids []models.DID, profile string) (content []byte, numbers int, problems []Problem) {
	r := newRenderer(Input{Profile: profile})
	r.dids(dids)
	return renderShard(shard, r.shards[shard]), len(r.shards[shard]), r.out.Problems
}

func sortProblems(problems []Problem) {
	slices.SortFunc(problems, func(a, b Problem) int {
		return cmp.Or(strings.Compare(a.Kind, b.Kind), strings.Compare(a.ID, b.ID))
	})
}

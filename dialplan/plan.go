package dialplan

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"

	"tandem/esl"
	"tandem/models"
)

// The operations of a Change.
const (
	OpAdd    = "add"
	OpChange = "change"
	OpRemove = "remove"
	// OpUnload is for a gateway that the switch has loaded and that we do not know: it goes when that is asked for.
	OpUnload = "unload"
	// OpReload is for a context that the switch has loaded otherwise than its file says.
	OpReload = "reload"
)

// Change is one thing that applying a node's configuration would do. Nothing of it is secret.
type Change struct {
	Op   string `json:"op"`
	Kind string `json:"kind"` // gateway, sources, numbers, entry, file or context
	Name string `json:"name"`
	Path string `json:"path"`
	// Details say what differs, for a document that changes: the first of it, and how much more there is.
	Details []string `json:"details"`
	// Effect is what the switch is told.
	Effect string `json:"effect"`
	// LiveCalls are the calls that go through a gateway that would be unloaded, on the node, now.
	LiveCalls []string `json:"live_calls"`
}

// Plan is what applying a node's configuration would do.
type Plan struct {
	NodeID  string   `json:"node_id"`
	Changes []Change `json:"changes"`
	// Unseen counts the contexts of the switch that were not looked at; SwitchAway says that none of it was.
	Unseen     int       `json:"unseen"`
	SwitchAway bool      `json:"switch_away"`
	Problems   []Problem `json:"problems"`
}

// Note says what was not looked at, nothing when all of it was.
func (p *Plan) Note() string {
	switch {
	case p.SwitchAway:
		return "the switch does not answer: only files were looked at"
	case p.Unseen > 0:
		return fmt.Sprintf("%d contexts of the switch were not looked at", p.Unseen)
	}
	return ""
}

// Empty tells whether the node is as it should be.
func (p *Plan) Empty() bool { return len(p.Changes) == 0 }

// detailsNamed is how many details a change names. A document has up to a thousand numbers or thousands of sources, and every one may differ.
const detailsNamed = 20

// brief are the first of some details, and how many others there are.
func brief(details []string) []string {
	if len(details) <= detailsNamed {
		return details
	}
	return append(details[:detailsNamed:detailsNamed], fmt.Sprintf("and %d more", len(details)-detailsNamed))
}

// planContexts is how many contexts of a switch are compared with their files.
const planContexts = 200

// Loaded is what a switch tells of the configuration that it has in memory; *esl.Node can. A switch that cannot is not asked.
type Loaded interface {
	LoadedXML(ctx context.Context, section, tag, name string) (string, error)
}

// Documents returns the paths of all documents that every node should hold, and of the named ones the contents with what nobody is shown hidden.
func (s *Syncer) Documents(ctx context.Context, named []string) (paths []string, contents map[string][]byte, problems []Problem, err error) {
	rendering, err := s.render(ctx, false)
	if err != nil {
		return nil, nil, nil, err
	}
	named = slices.DeleteFunc(slices.Clone(named), func(path string) bool {
		_, known := rendering.digests[path]
		return !known
	})
	contents = map[string][]byte{}
	err = rendering.contents(ctx, named, func(path string, content []byte) error {
		contents[path] = HideSecrets(content)
		return nil
	})
	return slices.Sorted(maps.Keys(rendering.digests)), contents, rendering.Problems, err
}

// Plan compares a node with what the database says that it should hold, and changes nothing. liveCalls are the calls that go through
// each gateway on it, by its name.
func (s *Syncer) Plan(ctx context.Context, node models.Node, control Switch, liveCalls map[string][]string) (*Plan, error) {
	rendering, err := s.render(ctx, true)
	if err != nil {
		return nil, fmt.Errorf("plan the configuration of node %s: %w", node.Name, err)
	}
	p := planner{exchange: s.exchange, rendering: rendering, profile: s.profile}
	return p.plan(ctx, node, control, liveCalls)
}

// planner compares nodes with what they should hold.
type planner struct {
	exchange  *Exchange
	rendering *Rendering
	profile   string
}

// plan compares one node.
func (p *planner) plan(ctx context.Context, node models.Node, control Switch, liveCalls map[string][]string) (*Plan, error) {
	plan := &Plan{NodeID: node.ID, Problems: p.rendering.Problems, SwitchAway: !control.Up()}
	present, err := p.present(ctx, node, control)
	if err != nil {
		return nil, fmt.Errorf("look at the configuration of node %s: %w", node.Name, err)
	}
	held := make(map[string]digest, len(present))
	for name, content := range present {
		held[name] = digestOf(content)
	}
	d := differ(held, p.rendering.digests)
	err = p.rendering.contents(ctx, d.written, func(name string, content []byte) error {
		change := changeOf(name)
		change.Op, change.Details = OpChange, brief(describe(present[name], content))
		if _, there := present[name]; !there {
			change.Op = OpAdd
		}
		plan.Changes = append(plan.Changes, change)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("render the configuration of node %s: %w", node.Name, err)
	}
	slices.SortFunc(plan.Changes, func(a, b Change) int { return strings.Compare(a.Path, b.Path) })
	for _, name := range d.removed {
		change := changeOf(name)
		change.Op = OpRemove
		plan.Changes = append(plan.Changes, change)
	}
	if !plan.SwitchAway {
		if err := p.lookAtSwitch(ctx, control, plan); err != nil {
			return nil, fmt.Errorf("look at the switch of node %s: %w", node.Name, err)
		}
	}
	for i := range plan.Changes {
		c := &plan.Changes[i]
		if c.Kind == "gateway" {
			// Also of one that is added: its trunk may have had another name a moment ago, or its file was lost.
			c.LiveCalls = liveCalls[c.Name]
		}
		c.Effect = effectOf(c)
	}
	return plan, nil
}

// present reads what a node's folders hold.
func (p *planner) present(ctx context.Context, node models.Node, control Switch) (Files, error) {
	if !node.Remote() {
		return folder{node.ConfDir}.contents()
	}
	courier, ok := control.(Courier)
	if !ok || p.exchange == nil {
		return nil, errNoExchange
	}
	if !control.Up() {
		return nil, esl.ErrDown
	}
	r := remotePlace{&remote{node: node.ID, root: node.ConfDir, courier: courier, exchange: p.exchange}, ctx}
	return r.contents(p.rendering.digests)
}

// contents reads every document in the folder.
func (f folder) contents() (Files, error) {
	if err := f.check(); err != nil {
		return nil, err
	}
	files := Files{}
	for _, name := range managedFolders {
		entries, err := os.ReadDir(f.path(name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read the folder: %w", err)
		}
		for _, entry := range entries {
			path := name + "/" + entry.Name()
			if !strings.HasSuffix(path, ".xml") {
				continue
			}
			content, err := os.ReadFile(f.path(path))
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return nil, fmt.Errorf("read the folder: %w", err)
			}
			files[path] = content
		}
	}
	return files, nil
}

// contents reads the documents that a remote node says it has, and those that it should have. What else lies in its folders nobody can see from here:
// FreeSWITCH lists no folders.
func (r remotePlace) contents(wanted map[string]digest) (Files, error) {
	if err := r.load(); err != nil {
		return nil, err
	}
	names := slices.Collect(maps.Keys(r.state.Files))
	for name := range wanted {
		if _, known := r.state.Files[name]; !known {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return r.bringAll(names)
}

// changeOf names what a path is in people's words.
func changeOf(name string) Change {
	c := Change{Kind: "file", Name: name, Path: name}
	switch {
	case gatewayOf(name) != "":
		c.Kind, c.Name = "gateway", gatewayOf(name)
	case name == sourcePath:
		c.Kind, c.Name = "sources", "inbound addresses"
	case name == blockPath:
		c.Kind, c.Name = "blocks", "blocked addresses"
	case name == entryPath:
		c.Kind, c.Name = "entry", entryContext
	case strings.HasPrefix(name, dialplanFolder+"/"+shardPrefix):
		c.Kind, c.Name = "numbers", strings.TrimSuffix(strings.TrimPrefix(name, dialplanFolder+"/"), ".xml")
	}
	return c
}

// effectOf says what the switch is told of a change.
func effectOf(c *Change) string {
	switch {
	case c.Kind == "gateway" && (c.Op == OpAdd || c.Op == OpChange):
		return "killgw + rescan"
	case c.Kind == "gateway":
		return "killgw"
	case c.Kind == "sources" || c.Kind == "blocks":
		return "reloadacl"
	}
	return "reloadxml"
}

// lookAtSwitch finds what the switch has in memory and should not.
func (p *planner) lookAtSwitch(ctx context.Context, control Switch, plan *Plan) error {
	loaded, err := control.Gateways(ctx)
	if err != nil {
		return err
	}
	planned := map[string]bool{}
	for _, c := range plan.Changes {
		if c.Kind == "gateway" {
			planned[c.Name] = true
		}
	}
	absent := maps.Clone(p.rendering.Gateways)
	for _, g := range loaded {
		delete(absent, g.Name)
		if g.Profile == p.profile && p.rendering.Gateways[g.Name] == "" && !planned[g.Name] {
			plan.Changes = append(plan.Changes, Change{Op: OpUnload, Kind: "gateway", Name: g.Name})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(absent)) {
		if !planned[name] {
			plan.Changes = append(plan.Changes, Change{Op: OpAdd, Kind: "gateway", Name: name, Details: []string{"its file is there, and the switch has not loaded it"}})
		}
	}
	memory, ok := control.(Loaded)
	if !ok {
		return nil
	}
	names := contextNames(p.rendering)
	plan.Unseen = max(0, len(names)-planContexts)
	stale, err := staleContexts(ctx, memory, p.rendering, names[:min(planContexts, len(names))])
	if err != nil {
		return err
	}
	for _, name := range stale {
		if path := contextPath(name); !slices.ContainsFunc(plan.Changes, func(c Change) bool { return c.Path == path }) {
			plan.Changes = append(plan.Changes, Change{Op: OpReload, Kind: "context", Name: name})
		}
	}
	return nil
}

// contextNames are the contexts of a rendering: the entry first, then the shards.
func contextNames(rendering *Rendering) []string {
	names := []string{entryContext, trunkContext}
	for _, path := range slices.Sorted(maps.Keys(rendering.digests)) {
		if c := changeOf(path); c.Kind == "numbers" {
			names = append(names, c.Name)
		}
	}
	return names
}

// contextPath is the file that a context is in.
func contextPath(name string) string {
	if strings.HasPrefix(name, shardPrefix) {
		return dialplanFolder + "/" + name + ".xml"
	}
	return entryPath
}

// staleContexts returns which of the contexts the switch has in memory otherwise than they should be.
func staleContexts(ctx context.Context, memory Loaded, rendering *Rendering, names []string) ([]string, error) {
	byPath := map[string][]string{}
	for _, name := range names {
		byPath[contextPath(name)] = append(byPath[contextPath(name)], name)
	}
	var stale []string
	err := rendering.contents(ctx, slices.Sorted(maps.Keys(byPath)), func(path string, content []byte) error {
		for _, name := range byPath[path] {
			text, err := memory.LoadedXML(ctx, "dialplan", "context", name)
			if err != nil {
				return err
			}
			if !sameXML(contextOf(content, name), []byte(text)) {
				stale = append(stale, name)
			}
		}
		return nil
	})
	if refused := new(esl.CommandError); errors.As(err, &refused) {
		return nil, nil // the switch does not know the command
	}
	slices.Sort(stale)
	return stale, err
}

package dialplan

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"tandem/esl"
	"tandem/models"
)

// Switch is what the package needs of a node's FreeSWITCH; *esl.Node is one.
type Switch interface {
	Up() bool
	ReloadXML(ctx context.Context) error
	ReloadACL(ctx context.Context) error
	RescanProfile(ctx context.Context, profile string) error
	KillGateway(ctx context.Context, profile, gateway string) error
	Gateways(ctx context.Context) ([]esl.Gateway, error)
	// Gateway, Originate and Kill are for the test of a trunk.
	Gateway(ctx context.Context, name string) (*esl.Gateway, error)
	Originate(ctx context.Context, o esl.Originate) (*esl.Job, error)
	Kill(ctx context.Context, channel, cause string) error
}

// place is where a node's documents are: a folder of this machine, or the copy on a remote node.
type place interface {
	check() error
	read() (map[string]digest, error)
	stage(ctx context.Context, rendering *Rendering, paths []string) (staged, error)
	commit(s staged, removed []string) error
	readPending() (pending, bool, error)
	writePending(p pending) error
	clearPending() error
}

// Report tells what a synchronisation did to a node.
type Report struct {
	NodeID   string
	Written  []string // files that are new or changed, below the configuration directory
	Removed  []string // files of trunks and numbers that are gone
	Killed   []string // gateways that were unloaded, because they changed or are gone
	Reloaded bool     // the switch read its configuration again
	Pending  bool     // the files are right, but the switch could not be told yet; it will be when it is up
	Problems []Problem
	Drifted  []models.Drift // files that somebody else had changed; they are as they should be again
	Took     time.Duration
}

// Changed tells whether the node's files differed from what they should be.
func (r Report) Changed() bool { return len(r.Written) > 0 || len(r.Removed) > 0 }

// node is a switch and its folder.
type node struct {
	id      string
	folder  place
	copy    *remote // the place of a node whose disk is not ours, nil for the others
	control Switch
	profile string

	renewed atomic.Bool   // connected again
	settled atomic.Bool   // files and switch were as they should be after the last synchronisation
	applied atomic.Uint64 // the generation of the rendering that it was last synchronised with
	failing atomic.Bool   // the last synchronisation failed
	busy    atomic.Bool   // it is being tried again, and nobody waits for it

	mu      sync.Mutex // one synchronisation at a time
	gone    bool       // removed: the files are no longer ours to write
	fresh   bool       // connected since the last complete synchronisation: tell it everything
	missing []string   // gateways it did not load although told to
	lacking []string   // those of them that one more scan has not helped
	unknown []string   // gateways of our profile that it has and nobody knows
	drift   drift
	// held is what the folder's files hold, as far as they are only ours to change; nil when they have to be read.
	held map[string]digest
}

// doubt has the files read at the next synchronisation: somebody else may have changed them.
func (n *node) doubt() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.held = nil
}

// sync makes the folder hold the rendering and the switch know it.
func (n *node) sync(ctx context.Context, rendering *Rendering) (Report, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	began := time.Now()
	if n.gone {
		return Report{NodeID: n.id}, fmt.Errorf("synchronise node %q: %w", n.id, ErrUnknownNode)
	}
	if n.renewed.Swap(false) {
		n.fresh, n.held = true, nil
		if n.copy != nil {
			n.copy.state = nil // it may have another disk than before: it is asked what is on it
		}
	}
	report := Report{NodeID: n.id, Problems: rendering.Problems}
	if n.copy != nil {
		if !n.control.Up() {
			// Nobody else can write there; it has what it had.
			report.Pending = true
			n.settled.Store(false)
			return report, nil
		}
		n.folder = n.copy.during(ctx)
	}
	todo, due, err := n.write(ctx, rendering, &report)
	if err == nil && (due || n.fresh) {
		err = n.tell(ctx, todo, &report)
	}
	report.Took = time.Since(began)
	n.settled.Store(err == nil && !report.Pending)
	n.applied.Store(rendering.generation)
	if err != nil {
		return report, fmt.Errorf("synchronise node %q: %w", n.id, err)
	}
	return report, nil
}

// write changes the files, and returns what the switch has to be told and whether there is anything.
func (n *node) write(ctx context.Context, rendering *Rendering, report *Report) (pending, bool, error) {
	if err := n.folder.check(); err != nil {
		return pending{}, false, err
	}
	todo, due, err := n.folder.readPending()
	if err != nil {
		return pending{}, false, err
	}
	if n.held == nil {
		if n.held, err = n.folder.read(); err != nil {
			return pending{}, false, err
		}
	}
	d := differ(n.held, rendering.digests)
	report.Drifted = n.strayed(d, rendering.digests)
	if d.empty() {
		n.drift.applied = rendering.digests
		return todo, due, nil
	}
	files, err := n.folder.stage(ctx, rendering, d.written)
	if err != nil {
		return pending{}, false, err
	}
	now := pending{ACL: d.touches(directoryFolder)}
	for _, path := range d.written {
		if name := gatewayOf(path); name != "" {
			// One whose file is new may be loaded all the same: its file was lost, or its trunk deleted and made again.
			now.Kill, now.Scan = append(now.Kill, name), true
		}
	}
	for _, path := range d.removed {
		if name := gatewayOf(path); name != "" {
			now.Kill = append(now.Kill, name)
		}
	}
	todo = todo.merge(now)
	if err := n.folder.writePending(todo); err != nil {
		files.discard()
		return pending{}, false, err
	}
	if err := n.folder.commit(files, d.removed); err != nil {
		n.held = nil
		return pending{}, false, err
	}
	maps.Copy(n.held, files.held)
	for _, path := range d.removed {
		delete(n.held, path)
	}
	n.drift.applied = rendering.digests
	report.Written, report.Removed = d.written, d.removed
	return todo, true, nil
}

// tell makes the switch take the files. It reads the whole configuration first: were that broken, by whoever, no gateway
// would come back after it was unloaded. A loaded gateway is never replaced (sofia.c, parse_gateways), so a changed one is
// unloaded and found anew by the scan; the switch keeps an unloaded one of the same name apart (sofia_reg.c,
// sofia_reg_add_gateway), so nothing needs to be waited for.
func (n *node) tell(ctx context.Context, todo pending, report *Report) error {
	report.Pending = true
	if !n.control.Up() {
		return nil
	}
	if todo.ACL || n.fresh {
		if err := n.control.ReloadACL(ctx); err != nil { // reads the XML too
			return fmt.Errorf("reload access lists: %w", err)
		}
	} else if err := n.control.ReloadXML(ctx); err != nil {
		return fmt.Errorf("reload configuration: %w", err)
	}
	report.Reloaded = true
	for _, name := range todo.Kill {
		err := n.control.KillGateway(ctx, n.profile, name)
		if refused := new(esl.CommandError); errors.As(err, &refused) && strings.Contains(refused.Reply, "no such gateway") {
			continue
		}
		if err != nil {
			return fmt.Errorf("unload gateway %q: %w", name, err)
		}
		report.Killed = append(report.Killed, name)
	}
	if todo.Scan || n.fresh {
		if err := n.control.RescanProfile(ctx, n.profile); err != nil {
			return fmt.Errorf("scan profile %q for gateways: %w", n.profile, err)
		}
		n.missing = nil
	}
	if err := n.folder.clearPending(); err != nil {
		return err
	}
	n.fresh, report.Pending = false, false
	return nil
}

// poll asks the switch for its gateways. One that it should have and has not is looked for once more, then reported only.
func (n *node) poll(ctx context.Context, gateways map[string]string, at time.Time) ([]models.GatewayStatus, []string, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.gone || !n.control.Up() {
		return nil, nil, nil
	}
	loaded, err := n.control.Gateways(ctx)
	if err != nil {
		return nil, nil, fmt.Errorf("poll gateways of node %q: %w", n.id, err)
	}
	absent := maps.Clone(gateways)
	var statuses []models.GatewayStatus
	n.unknown = nil
	for _, gateway := range loaded {
		trunk, ours := gateways[gateway.Name]
		if !ours && gateway.Profile == n.profile {
			n.unknown = append(n.unknown, gateway.Name)
		}
		if !ours {
			continue
		}
		delete(absent, gateway.Name)
		statuses = append(statuses, models.GatewayStatus{
			NodeID: n.id, TrunkID: trunk, State: gateway.State, Status: gateway.Status, PingMS: gateway.PingMS, UpdatedAt: at,
		})
	}
	missing := slices.Sorted(maps.Keys(absent))
	n.lacking = nil
	if len(missing) == 0 || slices.Equal(missing, n.missing) {
		n.missing, n.lacking = missing, missing
		return statuses, nil, nil
	}
	n.missing = missing
	if err := n.control.RescanProfile(ctx, n.profile); err != nil {
		return statuses, missing, fmt.Errorf("scan profile %q for gateways: %w", n.profile, err)
	}
	return statuses, missing, nil
}

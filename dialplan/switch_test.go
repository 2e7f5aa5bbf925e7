package dialplan

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"net/netip"
	"slices"
	"sync"
	"time"

	"tandem/esl"
	"tandem/models"
)

// fakeSwitch notes what it is told and keeps gateways as FreeSWITCH does: a loaded one is never replaced.
type fakeSwitch struct {
	mu       sync.Mutex
	down     bool
	fail     map[string]error // by command
	told     []string
	gateways []esl.Gateway
	onTold   func(command string)
}

func (f *fakeSwitch) tell(command, argument string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.down {
		return esl.ErrDown
	}
	if err := f.fail[command]; err != nil {
		return err
	}
	if argument != "" {
		command += " " + argument
	}
	f.told = append(f.told, command)
	if f.onTold != nil {
		f.onTold(command)
	}
	return nil
}

func (f *fakeSwitch) Up() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return !f.down
}

func (f *fakeSwitch) ReloadXML(context.Context) error             { return f.tell("reloadxml", "") }
func (f *fakeSwitch) ReloadACL(context.Context) error             { return f.tell("reloadacl", "") }
func (f *fakeSwitch) RescanProfile(context.Context, string) error { return f.tell("rescan", "") }
func (f *fakeSwitch) KillGateway(_ context.Context, _, name string) error {
	return f.tell("killgw", name)
}

func (f *fakeSwitch) Gateways(context.Context) ([]esl.Gateway, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.down {
		return nil, esl.ErrDown
	}
	return slices.Clone(f.gateways), f.fail["gateways"]
}

func (f *fakeSwitch) Gateway(_ context.Context, name string) (*esl.Gateway, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.down {
		return nil, esl.ErrDown
	}
	for i := range f.gateways {
		if f.gateways[i].Name == name {
			found := f.gateways[i]
			return &found, f.fail["gateway"]
		}
	}
	return nil, f.fail["gateway"]
}

func (f *fakeSwitch) Originate(context.Context, esl.Originate) (*esl.Job, error) {
	return nil, cmp.Or(f.tell("originate", ""), errStore)
}

func (f *fakeSwitch) Kill(_ context.Context, channel, _ string) error { return f.tell("kill", channel) }

// heard returns what the switch was told since it was last asked.
func (f *fakeSwitch) heard() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	told := f.told
	f.told = nil
	return told
}

func (f *fakeSwitch) set(change func(*fakeSwitch)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(f)
}

// fakeStore is a database that can fail.
type fakeStore struct {
	mu     sync.Mutex
	trunks []models.Trunk
	dids   []models.DID
	err    error
	saved  []models.GatewayStatus
	// reported is what was saved, with what it says of registrations; ended are the nodes whose inactive trunks were looked for.
	reported []models.GatewayReport
	ended    []string
	// asked are the nodes whose registrations were to be told if they have lasted.
	asked []string
	// elsewhere is what the nodes of other controllers have reported.
	elsewhere []models.GatewayStatus
	// dropped are the nodes whose statuses were dropped.
	dropped []string
	onSave  func()
	reads   int
	// shardReads are the shards that were read, and rows the numbers with them.
	shardReads []string
	rows       int
	// silent is set while numbers change without a new revision of their shard.
	silent   bool
	revision map[string]int64
	// blocks are in force; strangers are the refused calls that were written, with the rules given.
	blocks     []models.Block
	blockReads int
	strangers  []nodeReport
	rules      models.BlockRules
}

type nodeReport struct {
	node string
	models.StrangerReport
}

var errStore = errors.New("database is away")

func (f *fakeStore) set(change func(*fakeStore)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(f)
}

func (f *fakeStore) AllTrunks(context.Context) ([]models.Trunk, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.reads++
	return slices.Clone(f.trunks), f.err
}

func (f *fakeStore) TrunkRevision(context.Context) (string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return fmt.Sprint(f.trunks), f.err
}

func (f *fakeStore) ofShard(shard string) (dids []models.DID) {
	for _, did := range f.dids {
		if models.ShardOf(did.NumberE164) == shard {
			dids = append(dids, did)
		}
	}
	return dids
}

// DIDShards makes revisions of what the numbers are, so that tests can change them as they like.
func (f *fakeStore) DIDShards(context.Context) (map[string]int64, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.silent {
		return f.revision, f.err
	}
	text := map[string][]string{}
	for _, did := range f.dids {
		shard := models.ShardOf(did.NumberE164)
		text[shard] = append(text[shard], fmt.Sprint(did))
	}
	f.revision = map[string]int64{}
	for shard, dids := range text {
		sum := fnv.New64a()
		_, _ = fmt.Fprint(sum, dids)
		f.revision[shard] = int64(sum.Sum64() >> 1)
	}
	return f.revision, f.err
}

func (f *fakeStore) DIDSums(context.Context) (map[string]models.DIDSum, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	sums := map[string]models.DIDSum{}
	for _, did := range f.dids {
		sum := sums[models.ShardOf(did.NumberE164)]
		sum.Add(did.UpdatedAt)
		sums[models.ShardOf(did.NumberE164)] = sum
	}
	return sums, f.err
}

func (f *fakeStore) DIDsOfShards(_ context.Context, shards []string, fn func(string, []models.DID) error) error {
	f.mu.Lock()
	f.shardReads = append(f.shardReads, shards...)
	found := map[string][]models.DID{}
	for _, shard := range shards {
		found[shard] = f.ofShard(shard)
		f.rows += len(found[shard])
	}
	err := f.err
	f.mu.Unlock()
	if err != nil {
		return err
	}
	for _, shard := range shards {
		if err := fn(shard, found[shard]); err != nil {
			return err
		}
	}
	return nil
}

func (f *fakeStore) TrunkByAddress(_ context.Context, ip netip.Addr) (*models.Trunk, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, trunk := range f.trunks {
		for _, address := range trunk.InboundIPs {
			if prefix, _, err := models.ParseInboundIP(address); err == nil && prefix.Contains(ip) {
				return &trunk, f.err
			}
		}
	}
	return nil, cmp.Or(f.err, models.ErrNotFound)
}

func (f *fakeStore) RecordGateways(_ context.Context, reports []models.GatewayReport, _ models.OnRegistration) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err != nil {
		return f.err
	}
	if f.onSave != nil {
		f.onSave()
	}
	for _, report := range reports {
		f.saved = append(f.saved, report.GatewayStatus)
		f.reported = append(f.reported, report)
	}
	return nil
}

func (f *fakeStore) EndRegistrations(_ context.Context, nodeID string, _ time.Time, _ models.OnRegistration) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ended = append(f.ended, nodeID)
	return f.err
}

func (f *fakeStore) TellRegistrations(_ context.Context, nodeIDs []string, _ time.Time, _ models.OnRegistration) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked = append(f.asked, nodeIDs...)
	return nil
}

func (f *fakeStore) GatewayStatusesOf(_ context.Context, trunkID string) ([]models.GatewayStatus, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(f.elsewhere), func(s models.GatewayStatus) bool { return s.TrunkID != trunkID }), f.err
}

func (f *fakeStore) DropGatewayStatuses(_ context.Context, nodeID string, until time.Time) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err != nil {
		return f.err
	}
	f.dropped = append(f.dropped, nodeID)
	f.saved = slices.DeleteFunc(f.saved, func(s models.GatewayStatus) bool { return s.NodeID == nodeID && !s.UpdatedAt.After(until) })
	return nil
}

func (f *fakeStore) Now() time.Time { return time.Now().UTC() }

// fakeEvent is an event by its headers.
type fakeEvent map[string]string

func (e fakeEvent) Name() string             { return e["Event-Name"] }
func (e fakeEvent) Subclass() string         { return e["Event-Subclass"] }
func (e fakeEvent) Get(header string) string { return e[header] }

func (f *fakeStore) RecordStrangers(_ context.Context, nodeID string, reports []models.StrangerReport, rules models.BlockRules) ([]models.Block, []models.StrangerReport, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err != nil {
		return nil, reports, f.err
	}
	f.rules = rules
	for _, r := range reports {
		f.strangers = append(f.strangers, nodeReport{nodeID, r})
	}
	return nil, nil, nil
}

func (f *fakeStore) BlockRevision(context.Context) (string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return fmt.Sprint(f.blocks), f.err
}

func (f *fakeStore) BlockedNetworks(context.Context) ([]netip.Prefix, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.blockReads++
	var blocked []netip.Prefix
	for _, b := range f.blocks {
		prefix, _, err := models.ParseInboundIP(b.Address)
		if err != nil {
			return nil, err
		}
		blocked = append(blocked, prefix)
	}
	return blocked, f.err
}

func (f *fakeStore) BlockOf(_ context.Context, ip netip.Addr) (*models.Block, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, b := range f.blocks {
		if prefix, _, err := models.ParseInboundIP(b.Address); err == nil && prefix.Contains(ip) {
			return &b, f.err
		}
	}
	return nil, cmp.Or(f.err, models.ErrNotFound)
}

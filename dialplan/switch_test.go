package dialplan

import (
	"context"
	"errors"
	"fmt"
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
	// dropped are the nodes whose statuses were dropped.
	dropped []string
	onSave  func()
	reads   int
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

func (f *fakeStore) AllDIDs(_ context.Context, fn func([]models.DID) error) error {
	f.mu.Lock()
	dids := slices.Clone(f.dids)
	f.mu.Unlock()
	for batch := range slices.Chunk(dids, 2) {
		if err := fn(batch); err != nil {
			return err
		}
	}
	return nil
}

func (f *fakeStore) RoutingRevision(context.Context) (string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return fmt.Sprint(f.trunks, f.dids), f.err
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

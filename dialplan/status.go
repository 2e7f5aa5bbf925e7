package dialplan

import (
	"slices"
	"sync"
	"time"

	"tandem/models"
)

// statusRefresh is how long an unchanged status may stand before it is written again, so that readers can tell an old report
// from a current one.
const statusRefresh = 5 * time.Minute

type gatewayKey struct{ node, trunk string }

// registration tells what the state of a gateway (mod_sofia.c, sofia_state_names) means: nil where that is open. To renew a
// registration the switch goes from REGED through UNREGED, TRYING and REGISTER back to REGED (sofia_reg.c,
// sofia_reg_check_gateway), and a gateway that is changed through UNREGISTER and DOWN before that, so none of these is an end
// by itself. What cannot register reaches FAILED, from TRYING by way of TIMEOUT.
func registration(state string) *bool {
	registered := state == "REGED"
	switch state {
	case "REGED", "FAILED", "FAIL_WAIT", "EXPIRED", "TIMEOUT", "NOREG":
		return &registered
	default:
		return nil
	}
}

// statusBook gathers what switches say of gateways until it is written, and drops what is known already.
type statusBook struct {
	mu      sync.Mutex
	gateway map[string]string // gateway name to trunk ID, of the last rendering
	known   map[gatewayKey]models.GatewayStatus
	waiting map[gatewayKey]models.GatewayReport
	// lapse is how long polls must find a gateway between two states until its registration counts as ended; open is since when
	// they did, and the zero time once that was reported.
	lapse time.Duration
	open  map[gatewayKey]time.Time
	// synced are the nodes that have what the database says since it was last written.
	synced map[string]time.Time
	// away is when each node was last lost: what was said up to then holds no more. lost are those of which the database has
	// not been told yet.
	away map[string]time.Time
	lost map[string]time.Time
}

func newStatusBook(lapse time.Duration) *statusBook {
	return &statusBook{
		known: map[gatewayKey]models.GatewayStatus{}, waiting: map[gatewayKey]models.GatewayReport{},
		lapse: lapse, open: map[gatewayKey]time.Time{}, synced: map[string]time.Time{}, away: map[string]time.Time{}, lost: map[string]time.Time{},
	}
}

func (b *statusBook) setGateways(gateways map[string]string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.gateway = gateways
	current := map[string]bool{}
	for _, trunk := range gateways {
		current[trunk] = true
	}
	for key := range b.known {
		if !current[key.trunk] {
			delete(b.known, key)
			delete(b.open, key)
		}
	}
}

func (b *statusBook) gateways() map[string]string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.gateway
}

// report takes one status by the gateway's name and tells whether it is worth writing.
func (b *statusBook) report(node, gateway, state, status string, at time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	trunk := b.gateway[gateway]
	if trunk == "" || state == "" {
		return false
	}
	said := models.GatewayStatus{
		NodeID: node, TrunkID: trunk, State: state, Status: status, PingMS: b.known[gatewayKey{node, trunk}].PingMS, UpdatedAt: at,
	}
	return b.add(models.GatewayReport{GatewayStatus: said, Registered: registration(state)})
}

// polled takes what a poll found.
func (b *statusBook) polled(statuses []models.GatewayStatus) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, status := range statuses {
		report := models.GatewayReport{GatewayStatus: status, Registered: registration(status.State)}
		if report.Registered == nil && b.lapsed(status) {
			report.Registered = new(bool)
		}
		b.add(report)
	}
}

// lapsed tells, once, that polls found a gateway between two states for too long to be a renewal.
func (b *statusBook) lapsed(status models.GatewayStatus) bool {
	if b.outdated(status) {
		return false
	}
	key := gatewayKey{status.NodeID, status.TrunkID}
	since, found := b.open[key]
	switch {
	case !found:
		b.open[key] = status.UpdatedAt
		return false
	case since.IsZero() || status.UpdatedAt.Sub(since) < b.lapse:
		return false
	default:
		b.open[key] = time.Time{}
		return true
	}
}

func (b *statusBook) add(report models.GatewayReport) bool {
	key := gatewayKey{report.NodeID, report.TrunkID}
	if b.outdated(report.GatewayStatus) {
		return false
	}
	waiting, unwritten := b.waiting[key]
	if unwritten && waiting.UpdatedAt.After(report.UpdatedAt) {
		return false
	}
	if registration(report.State) != nil {
		delete(b.open, key)
	}
	if unwritten && report.Registered == nil {
		report.Registered = waiting.Registered // what it says of the registration still holds
	}
	known, found := b.known[key]
	if found && unchanged(known, report) {
		delete(b.waiting, key)
		return false
	}
	b.waiting[key] = report
	return true
}

// unchanged tells whether the database has the report already. One that says what its state does not is always news.
func unchanged(known models.GatewayStatus, report models.GatewayReport) bool {
	return known.State == report.State && known.Status == report.Status && report.UpdatedAt.Sub(known.UpdatedAt) < statusRefresh &&
		(report.Registered == nil || registration(report.State) != nil)
}

// outdated tells whether the node was lost after it said so: it said it to a poll that was going on, or it is being written.
func (b *statusBook) outdated(status models.GatewayStatus) bool {
	away, found := b.away[status.NodeID]
	return found && !status.UpdatedAt.After(away)
}

// take empties the book for writing: nodes that were lost, and when, and what was said since.
func (b *statusBook) take() (map[string]time.Time, []models.GatewayReport) {
	b.mu.Lock()
	defer b.mu.Unlock()
	reports := make([]models.GatewayReport, 0, len(b.waiting))
	for _, report := range b.waiting {
		reports = append(reports, report)
	}
	clear(b.waiting)
	slices.SortFunc(reports, func(a, b models.GatewayReport) int { return a.UpdatedAt.Compare(b.UpdatedAt) })
	lost := b.lost
	b.lost = map[string]time.Time{}
	return lost, reports
}

// written notes what the database holds now.
func (b *statusBook) written(reports []models.GatewayReport) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, report := range reports {
		if b.outdated(report.GatewayStatus) {
			continue
		}
		b.known[gatewayKey{report.NodeID, report.TrunkID}] = report.GatewayStatus
	}
}

// failed puts back what could not be written, unless something newer has come. What it says of the registration is news that
// a newer report may leave open.
func (b *statusBook) failed(reports []models.GatewayReport) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, report := range reports {
		key := gatewayKey{report.NodeID, report.TrunkID}
		newer, found := b.waiting[key]
		switch {
		case b.outdated(report.GatewayStatus):
		case !found:
			b.waiting[key] = report
		case newer.Registered == nil:
			newer.Registered = report.Registered
			b.waiting[key] = newer
		}
	}
}

// sync notes that a node has what the database says.
func (b *statusBook) sync(node string, at time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.synced[node] = at
}

// takeSynced returns the nodes of which sync was noted, and when, and forgets it.
func (b *statusBook) takeSynced() map[string]time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	synced := b.synced
	b.synced = map[string]time.Time{}
	return synced
}

// lose takes back all that a node has said: its switch is away.
func (b *statusBook) lose(node string, at time.Time) {
	b.forget(node)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.away[node], b.lost[node] = at, at
}

// notDropped puts a lost node back of which the database could not be told, unless it was lost again.
func (b *statusBook) notDropped(node string, at time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, again := b.lost[node]; !again {
		b.lost[node] = at
	}
}

// forget drops a node.
func (b *statusBook) forget(node string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for key := range b.known {
		if key.node == node {
			delete(b.known, key)
		}
	}
	for key := range b.waiting {
		if key.node == node {
			delete(b.waiting, key)
		}
	}
	for key := range b.open {
		if key.node == node {
			delete(b.open, key)
		}
	}
	delete(b.synced, node)
}

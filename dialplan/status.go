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

// statusBook gathers what switches say of gateways until it is written, and drops what is known already.
type statusBook struct {
	mu      sync.Mutex
	gateway map[string]string // gateway name to trunk ID, of the last rendering
	known   map[gatewayKey]models.GatewayStatus
	waiting map[gatewayKey]models.GatewayStatus
	// away is when each node was last lost: what was said up to then holds no more. lost are those of which the database has
	// not been told yet.
	away map[string]time.Time
	lost map[string]time.Time
}

func newStatusBook() *statusBook {
	return &statusBook{
		known: map[gatewayKey]models.GatewayStatus{}, waiting: map[gatewayKey]models.GatewayStatus{},
		away: map[string]time.Time{}, lost: map[string]time.Time{},
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
	return b.add(models.GatewayStatus{
		NodeID: node, TrunkID: trunk, State: state, Status: status, PingMS: b.known[gatewayKey{node, trunk}].PingMS, UpdatedAt: at,
	})
}

// polled takes what a poll found.
func (b *statusBook) polled(statuses []models.GatewayStatus) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, status := range statuses {
		b.add(status)
	}
}

func (b *statusBook) add(status models.GatewayStatus) bool {
	key := gatewayKey{status.NodeID, status.TrunkID}
	if b.outdated(status) {
		return false
	}
	if waiting, found := b.waiting[key]; found && waiting.UpdatedAt.After(status.UpdatedAt) {
		return false
	}
	known, found := b.known[key]
	if found && known.State == status.State && known.Status == status.Status && status.UpdatedAt.Sub(known.UpdatedAt) < statusRefresh {
		delete(b.waiting, key)
		return false
	}
	b.waiting[key] = status
	return true
}

// outdated tells whether the node was lost after it said so: it said it to a poll that was going on, or it is being written.
func (b *statusBook) outdated(status models.GatewayStatus) bool {
	away, found := b.away[status.NodeID]
	return found && !status.UpdatedAt.After(away)
}

// take empties the book for writing: nodes that were lost, and when, and what was said since.
func (b *statusBook) take() (map[string]time.Time, []models.GatewayStatus) {
	b.mu.Lock()
	defer b.mu.Unlock()
	statuses := make([]models.GatewayStatus, 0, len(b.waiting))
	for _, status := range b.waiting {
		statuses = append(statuses, status)
	}
	clear(b.waiting)
	slices.SortFunc(statuses, func(a, b models.GatewayStatus) int { return a.UpdatedAt.Compare(b.UpdatedAt) })
	lost := b.lost
	b.lost = map[string]time.Time{}
	return lost, statuses
}

// written notes what the database holds now.
func (b *statusBook) written(statuses []models.GatewayStatus) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, status := range statuses {
		if b.outdated(status) {
			continue
		}
		b.known[gatewayKey{status.NodeID, status.TrunkID}] = status
	}
}

// failed puts back what could not be written, unless something newer has come.
func (b *statusBook) failed(statuses []models.GatewayStatus) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, status := range statuses {
		key := gatewayKey{status.NodeID, status.TrunkID}
		if _, newer := b.waiting[key]; !newer && !b.outdated(status) {
			b.waiting[key] = status
		}
	}
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
}

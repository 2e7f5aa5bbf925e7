package metrics

import "sync"

// gatewayBook remembers which gateways are up.
type gatewayBook struct {
	mu sync.Mutex
	up map[[2]string]bool // by node and gateway
}

func newGatewayBook() *gatewayBook { return &gatewayBook{up: map[[2]string]bool{}} }

// fell notes a state and reports whether the gateway was up before and is down now. The states that a gateway passes while it renews its
// registration (sofia_reg.c, sofia_reg_check_gateway) say neither.
func (b *gatewayBook) fell(node, gateway, state, ping string) bool {
	var up bool
	switch {
	case ping == "DOWN", state == "FAILED", state == "FAIL_WAIT", state == "TIMEOUT", state == "EXPIRED":
	case state == "REGED", state == "NOREG":
		up = true
	default:
		return false
	}
	key := [2]string{node, gateway}
	b.mu.Lock()
	defer b.mu.Unlock()
	was := b.up[key]
	b.up[key] = up
	return was && !up
}

func (b *gatewayBook) forget(node string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for key := range b.up {
		if key[0] == node {
			delete(b.up, key)
		}
	}
}

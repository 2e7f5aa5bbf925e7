package daemon

import (
	"context"
	"sync"
	"sync/atomic"

	"tandem/esl"
)

// inlet is the part of a node's connection that refuses new calls before the dialplan is asked.
type inlet interface {
	Drain(ctx context.Context) error
	Undrain(ctx context.Context) error
}

var _ inlet = (*esl.Node)(nil)

// drainage keeps a node's switch refusing new calls for as long as the node drains. The switch goes on so whoever dies, until it is restarted:
// then it is told again, before it may take a call.
type drainage struct {
	conn inlet
	// wanted is what the database says.
	wanted atomic.Bool

	mu    sync.Mutex
	known bool // the switch has been told since it was connected
	told  bool // what it was told
}

// reset forgets what the switch was told: it was not connected, or somebody has undone it.
func (d *drainage) reset() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.known = false
}

// keep tells the switch what is wanted, unless it knows. It reports whether that is a change that is known to be one.
func (d *drainage) keep(ctx context.Context) (changed bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, gateTimeout)
	defer cancel()
	d.mu.Lock()
	defer d.mu.Unlock()
	wanted := d.wanted.Load()
	if d.known && d.told == wanted {
		return false, nil
	}
	tell := d.conn.Undrain
	if wanted {
		tell = d.conn.Drain
	}
	if err := tell(ctx); err != nil {
		d.known = false
		return false, err
	}
	changed = d.told != wanted
	d.known, d.told = true, wanted
	return changed, nil
}

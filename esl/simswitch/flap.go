package simswitch

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// The shortest and the longest time for which a carrier can be told to refuse a gateway's registration.
const (
	minLoss = time.Second
	maxLoss = time.Hour
)

// Why a gateway cannot lose its registration.
var (
	errNoGateway     = errors.New("there is no such gateway")
	errNoRegistering = errors.New("the gateway does not register")
	errNotRegistered = errors.New("the gateway is not registered now")
)

// lose has the carrier end a gateway's registration now, refuse it with 503 for a while, and take it again: the gateway renews its
// registration at once and fails, waits, and tries again when the while is over. It is registered again about half a second later.
func (f *sofia) lose(name string, while time.Duration) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	g := f.findLocked(name)
	switch {
	case g == nil:
		return errNoGateway
	case !g.registers():
		return errNoRegistering
	case !g.up:
		return fmt.Errorf("%w: its state is %s", errNotRegistered, g.state)
	}
	f.sw.tasks.cancel(g.pending)
	g.refusedUntil = f.sw.clock.now().Add(while)
	f.tryLocked(g)
	return nil
}

// simUnregister is the API command `sim_unregister GATEWAY SECONDS`, which a real switch does not have: see lose.
func (s *Switch) simUnregister(arg string) string {
	name, length, _ := strings.Cut(strings.TrimSpace(arg), " ")
	seconds, err := strconv.ParseFloat(strings.TrimSpace(length), 64)
	if within := seconds >= minLoss.Seconds() && seconds <= maxLoss.Seconds(); err != nil || !within {
		return fmt.Sprintf("-ERR sim_unregister: the seconds must be from %g to %g, were %q\n", minLoss.Seconds(), maxLoss.Seconds(), length)
	}
	if err := s.sofia.lose(name, time.Duration(seconds*float64(time.Second))); err != nil {
		return "-ERR sim_unregister " + name + ": " + err.Error() + "\n"
	}
	return "+OK\n"
}

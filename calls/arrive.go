package calls

import (
	"context"
	"errors"

	"tandem/esl"
	"tandem/models"
)

// arrivalsLimit is how many channels may park while the calls of a node are looked for. What parks beyond stays parked until the node is connected
// again, or the caller gives up.
const arrivalsLimit = 4096

// arrive starts the session of an inbound leg that has just parked. While the calls that an earlier controller has left on the switch are
// looked for it waits: it may be one of them that has come back to park, which must be neither refused nor taken for a new one.
func (n *node) arrive(ev *esl.Event) {
	n.mu.Lock()
	if n.looking {
		defer n.mu.Unlock()
		if len(n.arrivals) < arrivalsLimit {
			n.arrivals = append(n.arrivals, ev)
		}
		return
	}
	n.mu.Unlock()
	n.arriveFrom(ev.ChannelID(), ev)
}

// admitArrivals lets in what parked while the calls of the node were looked for since it was connected for the nth time. It returns an error
// that is storeAway when it is to be called again.
func (n *node) admitArrivals(ctx context.Context, up int) error {
	for {
		n.mu.Lock()
		waiting := n.arrivals
		if n.ups != up || len(waiting) == 0 {
			if n.ups == up {
				n.looking = false
			}
			n.mu.Unlock()
			return nil
		}
		n.mu.Unlock()
		channels := make([]string, len(waiting))
		for i, ev := range waiting {
			channels[i] = ev.ChannelID()
		}
		calls, err := n.m.cfg.Store.CallsByChannels(ctx, channels)
		if err != nil {
			return err
		}
		n.mu.Lock()
		if n.ups == up {
			n.arrivals = n.arrivals[len(waiting):]
		}
		n.mu.Unlock()
		for _, ev := range waiting {
			n.admitArrival(ctx, ev, calls[ev.ChannelID()])
		}
	}
}

// stopLooking gives up looking for the calls of the node: what parks from now on is let in at once.
func (n *node) stopLooking(up int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.ups == up {
		n.looking, n.arrivals = false, nil
	}
}

// admitArrival lets one channel in; call is the one that it is of, nil for none.
func (n *node) admitArrival(ctx context.Context, ev *esl.Event, call *models.Call) {
	channel := ev.ChannelID()
	known := n.m.channelSession(channel)
	switch {
	case known != nil:
		known.box.put(message{event: ev})
	case call == nil:
		n.arriveFrom(channel, ev)
	case call.Live():
		n.log.Warn("a live call parked and has no session", "call_id", call.ID, "fs_uuid", channel) // the watchdog takes it over
	default:
		n.sortOut(ctx, esl.Channel{UUID: channel, Direction: DirectionInbound}, call)
	}
}

// arriveFrom starts the session of an inbound leg; ev describes it.
func (n *node) arriveFrom(channel string, ev *esl.Event) {
	n.pace.count(1)
	s := newSession(n, channel)
	s.park = ev
	err := n.m.Accepting()
	if err == nil || n.m.channelSession(channel) != nil {
		err = n.m.register(s)
	}
	switch {
	case err == nil:
		s.setUp = n.m.load.begin()
		go s.run()
	case errors.Is(err, errKnownChannel): // a second CHANNEL_PARK, racing with the first
		if known := n.m.channelSession(channel); known != nil {
			known.box.put(message{event: ev})
		}
	case errors.Is(err, ErrStopping) && !n.m.cfg.HangUpAtStop: // it stays parked for the next controller
	default:
		n.m.shed(err)
		s.refuseAside(causeTempFailure)
	}
}

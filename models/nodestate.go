package models

import "time"

// States of a node, see Node.State.
const (
	NodeInactive = "inactive" // nobody is to steer it
	NodeUnheld   = "unheld"   // no controller steers it
	NodeAway     = "away"     // its controller is not connected to it, or does not steer it for its own safety
	NodeDraining = "draining" // it takes no new calls, and has some left
	NodeDrained  = "drained"  // it takes no new calls and has none: it may be stopped
	NodeUp       = "up"       // it takes calls
)

// NodeStates are the states, for filters and documents.
var NodeStates = []string{NodeUp, NodeDraining, NodeDrained, NodeAway, NodeUnheld, NodeInactive}

// State is what a node does, by its row, its health (nil where none is known), how many calls it has that have not ended, and the time. It is drained
// once its switch has said, since the drain began, that it refuses callers and has no leg left.
func (n *Node) State(health *NodeHealth, live int, now time.Time) string {
	switch {
	case !n.IsActive:
		return NodeInactive
	case n.LeaseUntil == nil || !n.LeaseUntil.After(now):
		return NodeUnheld
	case n.ConnectedUntil == nil || !n.ConnectedUntil.After(now):
		return NodeAway
	case !n.Draining():
		return NodeUp
	case live == 0 && health != nil && health.Drained && health.Sessions == 0 && health.MeasuredAt.After(*n.DrainingAt):
		return NodeDrained
	default:
		return NodeDraining
	}
}

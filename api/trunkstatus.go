package api

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"tandem/models"
)

// trunkStatus is how a trunk stands with each node.
type trunkStatus struct {
	TrunkID            string            `json:"trunk_id"`
	RegistrationStatus string            `json:"registration_status" doc:"The best that a node reports, as in the trunk." example:"REGED"`
	PingStatus         string            `json:"ping_status" enum:"UP,DOWN,UNKNOWN" doc:"UP while a node has answers to its OPTIONS pings: three in a row change it."`
	Flaps              trunkFlaps        `json:"flaps" doc:"How often what was registered or answered pings did so no more, at all nodes together."`
	Nodes              []trunkNodeStatus `json:"nodes"`
}

type trunkFlaps struct {
	LastHour int `json:"last_hour"`
	LastDay  int `json:"last_day"`
}

// trunkNodeStatus is how a trunk stands with one node.
type trunkNodeStatus struct {
	NodeID             string  `json:"node_id"`
	RegistrationStatus string  `json:"registration_status" doc:"UNKNOWN while the node is away."`
	PingStatus         string  `json:"ping_status" enum:"UP,DOWN,UNKNOWN"`
	PingMS             float64 `json:"ping_ms" doc:"How long the last answer to a ping took."`
	ReportedAt         *string `json:"reported_at" format:"date-time" nullable:"true" doc:"When the node last said so; null while it is away."`
	Registered         *bool   `json:"registered" nullable:"true" doc:"Whether it is registered by the node's last word, also of one that is away; null before the first."`
	RegisteredSince    *string `json:"registered_since" format:"date-time" nullable:"true" doc:"Since when registered is what it is."`
	PingSince          *string `json:"ping_since" format:"date-time" nullable:"true" doc:"Since when the pings say what they say."`
}

// trunkChange is one line of a trunk's history.
type trunkChange struct {
	ID        string `json:"id" example:"tch_01jd3v5q8n6w4x2y0z9a8b7c6d"`
	NodeID    string `json:"node_id"`
	Kind      string `json:"kind" enum:"registration,ping"`
	Up        bool   `json:"up" doc:"Whether the trunk has been registered, or has answered pings, since then."`
	Flap      bool   `json:"flap" doc:"Whether it was up before, and did not go down by a change of the trunk."`
	State     string `json:"state" doc:"The gateway's state or, for ping, its status." example:"FAIL_WAIT"`
	CreatedAt string `json:"created_at" format:"date-time"`
}

func toChange(c *models.TrunkChange) trunkChange {
	return trunkChange{ID: c.ID, NodeID: c.NodeID, Kind: c.Kind, Up: c.Up, Flap: c.Flap, State: c.State, CreatedAt: stamp(c.CreatedAt)}
}

// pingStatus is UP, DOWN or, where nothing is known, UNKNOWN.
func pingStatus(status string) string {
	switch status {
	case models.PingUp, models.PingDown:
		return status
	default:
		return statusUnknown
	}
}

func (s *Server) getTrunkStatus(r *request) (any, error) {
	trunk, err := s.store.Trunk(r.ctx, r.customer, r.params["id"])
	if err != nil {
		return nil, orNotFound(err, "trunk")
	}
	reported, err := s.store.GatewayStatusesOf(r.ctx, trunk.ID)
	if err != nil {
		return nil, err
	}
	known, err := s.store.TrunkHealths(r.ctx, trunk.ID)
	if err != nil {
		return nil, err
	}
	answer := trunkStatus{TrunkID: trunk.ID, RegistrationStatus: statusUnknown, PingStatus: statusUnknown, Nodes: []trunkNodeStatus{}}
	nodes := map[string]*trunkNodeStatus{}
	node := func(id string) *trunkNodeStatus {
		if nodes[id] == nil {
			nodes[id] = &trunkNodeStatus{NodeID: id, RegistrationStatus: statusUnknown, PingStatus: statusUnknown}
		}
		return nodes[id]
	}
	for i := range known {
		at := node(known[i].NodeID)
		at.Registered, at.RegisteredSince, at.PingSince = known[i].Registered, stampOrNil(known[i].RegisteredAt), stampOrNil(known[i].PingAt)
	}
	for i := range reported {
		at := node(reported[i].NodeID)
		at.RegistrationStatus, at.PingStatus, at.PingMS = cmp.Or(reported[i].State, statusUnknown), pingStatus(reported[i].Status), reported[i].PingMS
		at.ReportedAt = stampOrNil(&reported[i].UpdatedAt)
	}
	if best := models.BestStatus(reported); best != nil {
		answer.RegistrationStatus = cmp.Or(best.State, statusUnknown)
	}
	for _, at := range nodes {
		answer.Nodes = append(answer.Nodes, *at)
		if at.PingStatus == models.PingUp || answer.PingStatus == statusUnknown {
			answer.PingStatus = at.PingStatus
		}
	}
	slices.SortFunc(answer.Nodes, func(a, b trunkNodeStatus) int { return strings.Compare(a.NodeID, b.NodeID) })
	for _, count := range []struct {
		into *int
		back time.Duration
	}{{&answer.Flaps.LastHour, time.Hour}, {&answer.Flaps.LastDay, 24 * time.Hour}} {
		flaps, err := s.store.TrunkFlaps(r.ctx, []string{trunk.ID}, s.store.Now().Add(-count.back))
		if err != nil {
			return nil, err
		}
		*count.into = flaps[trunk.ID]
	}
	return answer, nil
}

func (s *Server) listTrunkChanges(r *request) (any, error) {
	trunk, err := s.store.Trunk(r.ctx, r.customer, r.params["id"])
	if err != nil {
		return nil, orNotFound(err, "trunk")
	}
	page, err := r.page()
	if err != nil {
		return nil, err
	}
	rows, next, err := s.store.TrunkChanges(r.ctx, trunk.ID, page)
	if err != nil {
		return nil, err
	}
	return listOf(rows, next, toChange), nil
}

package api

import (
	"net/http"
	"net/netip"

	"tandem/models"
)

// strangerObject is a source whose calls were refused.
type strangerObject struct {
	Source        string               `json:"source" doc:"An IPv4 address, or the /64 that an IPv6 address is in." example:"198.51.100.7"`
	Uninvited     int64                `json:"uninvited" doc:"Calls that were refused because the address is nobody's, at all nodes."`
	UnknownNumber int64                `json:"unknown_number" doc:"Calls from a known address to numbers that are not its own to call."`
	KnownAs       *string              `json:"known_as" doc:"The trunk's id, or provider; null for an address that is nobody's."`
	FirstSeenAt   string               `json:"first_seen_at" format:"date-time"`
	LastSeenAt    string               `json:"last_seen_at" format:"date-time" doc:"The last call that reached the dialplan: those of a blocked address do not."`
	Number        string               `json:"number" doc:"What the last call dialled, but for its last four digits masked." example:"*******3456"`
	UserAgent     *string              `json:"user_agent" doc:"What the last call said it was; at most 64 bytes."`
	Nodes         []strangerNodeObject `json:"nodes" doc:"What each node refused, the last one last."`
	Block         *blockObject         `json:"block" doc:"The block in force that holds the source; null where there is none."`
}

type strangerNodeObject struct {
	Node          string `json:"node" doc:"The name of the node; its id where it was removed."`
	Uninvited     int64  `json:"uninvited"`
	UnknownNumber int64  `json:"unknown_number"`
	FirstSeenAt   string `json:"first_seen_at" format:"date-time"`
	LastSeenAt    string `json:"last_seen_at" format:"date-time"`
}

var strangerFilters = append([]param{
	{name: "sort", kind: "string", enum: []string{models.StrangersByLastSeen, models.StrangersByCount}, doc: "The latest first, or who called most. Default last_seen."},
	{name: "source", kind: "string", doc: "An IP address."},
	{name: "node", kind: "string", doc: "What one node refused, by its name."},
	{name: "known", kind: "string", enum: []string{"true", "false"}, doc: "Only addresses that are somebody's, or nobody's."},
	{name: "seen_after", kind: "time", doc: "Only sources that called at or after this time."},
}, paging...)

func (s *Server) operatorStrangerRoutes() []route {
	return []route{
		{method: http.MethodGet, path: "/operator/v1/strangers", id: "listStrangers", tag: "abuse", summary: "List the sources of refused calls",
			role: models.RoleViewer, query: strangerFilters, status: ok, response: list[strangerObject]{}, handle: s.listStrangers},
	}
}

// anIP accepts an IP address without a zone; the zero Addr where it is absent.
func (c *checks) anIP(field string, value *string) netip.Addr {
	if value == nil {
		return netip.Addr{}
	}
	address, err := netip.ParseAddr(*value)
	if err != nil || address.Zone() != "" {
		c.refuse(field, "%s must be an IP address", field)
	}
	return address
}

func (s *Server) listStrangers(r *request) (any, error) {
	page, err := r.page()
	if err != nil {
		return nil, err
	}
	c := &checks{}
	filter := models.StrangerFilter{
		Order: c.oneOf("sort", r.param("sort"), models.StrangersByLastSeen, models.StrangersByCount), Source: c.anIP("source", r.param("source")),
	}
	if known := c.oneOf("known", r.param("known"), "true", "false"); known != "" {
		is := known == "true"
		filter.Known = &is
	}
	if err := c.failed(); err != nil {
		return nil, err
	}
	if filter.SeenAfter, err = r.time("seen_after"); err != nil {
		return nil, err
	}
	nodes, err := s.store.Nodes(r.ctx)
	if err != nil {
		return nil, err
	}
	names := make(map[string]string, len(nodes))
	for i := range nodes {
		names[nodes[i].ID] = nodes[i].Name
		if wanted := r.param("node"); wanted != nil && *wanted == nodes[i].Name {
			filter.NodeID = nodes[i].ID
		}
	}
	if r.param("node") != nil && filter.NodeID == "" {
		return nil, invalid("node", "node must be the name of a node")
	}
	rows, next, err := s.store.ListStrangers(r.ctx, filter, page)
	if err != nil {
		return nil, err
	}
	now := s.store.Now()
	return listOf(rows, next, func(sum *models.StrangerSum) strangerObject { return toStranger(sum, names, now) }), nil
}

package api

import (
	"cmp"
	"errors"
	"net/http"
	"net/netip"
	"time"

	"tandem/models"
)

// blockObject is an address or network whose calls are refused before anything else.
type blockObject struct {
	ID        string  `json:"id" example:"block_01jd3v5q8n6w4x2y0z9a8b7c6d"`
	Address   string  `json:"address" doc:"An IP address or a network." example:"198.51.100.7"`
	Origin    string  `json:"origin" enum:"automatic,operator"`
	Reason    string  `json:"reason"`
	Note      string  `json:"note"`
	CreatedBy *string `json:"created_by" doc:"The name of the operator's token; null for an automatic block."`
	Relapse   int64   `json:"relapse" doc:"How many automatic blocks the address had in the 30 days before."`
	Live      bool    `json:"live" doc:"Whether it is in force."`
	CreatedAt string  `json:"created_at" format:"date-time"`
	ExpiresAt *string `json:"expires_at" format:"date-time" doc:"Null: it does not."`
	EndedAt   *string `json:"ended_at" format:"date-time" doc:"When it was lifted or has expired; null while it is in force."`
	EndedBy   *string `json:"ended_by" doc:"The name of the token that lifted it; null where it expired."`
}

type blockCreate struct {
	Address   *string `json:"address" required:"true" doc:"An IP address or a network, not wider than /8 (IPv4) or /19 (IPv6)." example:"198.51.100.0/24"`
	Reason    *string `json:"reason" required:"true" max:"100" example:"toll fraud"`
	Note      *string `json:"note" max:"255"`
	ExpiresAt *string `json:"expires_at" format:"date-time" nullable:"true" doc:"When it ends by itself. Default never."`
}

// blockExceptionObject is an address or network that is never blocked.
type blockExceptionObject struct {
	ID        string `json:"id" example:"never_01jd3v5q8n6w4x2y0z9a8b7c6d"`
	Address   string `json:"address" example:"203.0.113.0/28"`
	Note      string `json:"note"`
	CreatedBy string `json:"created_by" doc:"The name of the operator's token."`
	CreatedAt string `json:"created_at" format:"date-time"`
}

type blockExceptionCreate struct {
	Address *string `json:"address" required:"true" doc:"An IP address or a network." example:"203.0.113.0/28"`
	Note    *string `json:"note" max:"255"`
}

type blockExceptionCreated struct {
	blockExceptionObject
	Lifted []blockObject `json:"lifted" doc:"The blocks within the address, which it has ended."`
}

// blockedNetworks is what the blocks come to.
type blockedNetworks struct {
	IPv4 []string `json:"ipv4" doc:"Networks that do not overlap, sorted." example:"198.51.100.7/32"`
	IPv6 []string `json:"ipv6"`
}

var (
	blockFilters = append([]param{
		{name: "state", kind: "string", enum: []string{"live", "ended", "all"}, doc: "Default live: those in force."},
		{name: "origin", kind: "string", enum: []string{models.BlockAutomatic, models.BlockOperator}},
		{name: "address", kind: "string", doc: "Blocks that have an address in common with this address or network."},
	}, paging...)
	blockExceptionFilters = append([]param{
		{name: "address", kind: "string", doc: "Exceptions that have an address in common with this address or network."},
	}, paging...)
)

func (s *Server) operatorBlockRoutes() []route {
	return []route{
		{method: http.MethodGet, path: "/operator/v1/blocks", id: "listBlocks", tag: "abuse", summary: "List blocked addresses, newest first",
			role: models.RoleViewer, query: blockFilters, status: ok, response: list[blockObject]{}, handle: s.listBlocks},
		{method: http.MethodPost, path: "/operator/v1/blocks", id: "createBlock", tag: "abuse", summary: "Block an address or a network",
			details: "Every node refuses its calls within seconds. What belongs to a trunk, a provider, a node or an exception is never blocked: 409 address_protected names it.",
			role:    models.RoleOperator, request: blockCreate{}, status: created, response: blockObject{}, handle: s.createBlock,
			codes: []string{codeAddressProtected, codeBlockExists, codeBlockLimit}},
		{method: http.MethodDelete, path: "/operator/v1/blocks/:id", id: "liftBlock", tag: "abuse", summary: "Lift a block",
			role: models.RoleOperator, status: noContent, handle: s.liftBlock},
		{method: http.MethodGet, path: "/operator/v1/block-exceptions", id: "listBlockExceptions", tag: "abuse", summary: "List what is never blocked, newest first",
			role: models.RoleViewer, query: blockExceptionFilters, status: ok, response: list[blockExceptionObject]{}, handle: s.listBlockExceptions},
		{method: http.MethodPost, path: "/operator/v1/block-exceptions", id: "createBlockException", tag: "abuse", summary: "Never block an address or a network",
			details: "Blocks within it end; of a wider block it is left out.",
			role:    models.RoleOperator, request: blockExceptionCreate{}, status: created, response: blockExceptionCreated{}, handle: s.createBlockException,
			codes: []string{codeBlockExists, codeBlockLimit}},
		{method: http.MethodDelete, path: "/operator/v1/block-exceptions/:id", id: "deleteBlockException", tag: "abuse", summary: "Let an address be blocked again",
			role: models.RoleOperator, status: noContent, handle: s.deleteBlockException},
		{method: http.MethodGet, path: "/operator/v1/blocked-networks", id: "blockedNetworks", tag: "abuse", summary: "What the blocks come to, for a firewall",
			details: "Without anything that belongs to a trunk, a provider, a node or an exception, in the fewest networks.",
			role:    models.RoleViewer, status: ok, response: blockedNetworks{}, handle: s.blockedNetworks},
	}
}

func toBlock(b *models.Block, now time.Time) blockObject {
	object := blockObject{
		ID: b.ID, Address: b.Address, Origin: b.Origin, Reason: b.Reason, Note: b.Note, CreatedBy: orNil(b.CreatedBy), Relapse: b.Relapse, Live: b.Live(now),
		CreatedAt: stamp(b.CreatedAt), ExpiresAt: stampOrNil(b.ExpiresAt), EndedAt: stampOrNil(b.EndedAt), EndedBy: orNil(b.EndedBy),
	}
	if !object.Live && object.EndedAt == nil {
		object.EndedAt = object.ExpiresAt
	}
	return object
}

func toBlockException(e *models.BlockException) blockExceptionObject {
	return blockExceptionObject{ID: e.ID, Address: e.Address, Note: e.Note, CreatedBy: e.CreatedBy, CreatedAt: stamp(e.CreatedAt)}
}

func toStranger(sum *models.StrangerSum, names map[string]string, now time.Time) strangerObject {
	object := strangerObject{
		Source: sum.Source, Uninvited: sum.Uninvited, UnknownNumber: sum.UnknownNumber, KnownAs: orNil(sum.KnownAs), FirstSeenAt: stamp(sum.FirstSeenAt),
		LastSeenAt: stamp(sum.LastSeenAt), Number: sum.Number, UserAgent: orNil(sum.UserAgent), Nodes: make([]strangerNodeObject, len(sum.Nodes)),
	}
	for i, node := range sum.Nodes {
		object.Nodes[i] = strangerNodeObject{
			Node: cmp.Or(names[node.NodeID], node.NodeID), Uninvited: node.Uninvited, UnknownNumber: node.UnknownNumber,
			FirstSeenAt: stamp(node.FirstSeenAt), LastSeenAt: stamp(node.LastSeenAt),
		}
	}
	if sum.Block != nil {
		block := toBlock(sum.Block, now)
		object.Block = &block
	}
	return object
}

// anyNetwork accepts an IP address or a network, of whatever width; the zero Prefix where it is absent.
func (c *checks) anyNetwork(field string, value *string) netip.Prefix {
	if value == nil {
		return netip.Prefix{}
	}
	prefix, _, err := models.ParseInboundIP(*value)
	if err != nil {
		c.refuse(field, "%s must be an IP address or a network such as 198.51.100.0/24", field)
	}
	return prefix
}

// blockable accepts what may be blocked or kept from it, and returns it in its normal form.
func (c *checks) blockable(field string, value *string) string {
	c.required(field, value)
	prefix := c.anyNetwork(field, value)
	if !prefix.IsValid() {
		return ""
	}
	widest := models.MinBlockBits4
	if prefix.Addr().Is6() {
		widest = models.MinBlockBits6
	}
	if prefix.Bits() < widest {
		c.refuse(field, "%s must not be wider than /%d", field, widest)
	}
	return prefix.String()
}

func (s *Server) listBlocks(r *request) (any, error) {
	page, err := r.page()
	if err != nil {
		return nil, err
	}
	c := &checks{}
	state := c.oneOf("state", r.param("state"), "live", "ended", "all")
	filter := models.BlockFilter{
		Over: state == "ended", All: state == "all", Overlap: c.anyNetwork("address", r.param("address")),
		Origin: c.oneOf("origin", r.param("origin"), models.BlockAutomatic, models.BlockOperator),
	}
	if err := c.failed(); err != nil {
		return nil, err
	}
	rows, next, err := s.store.ListBlocks(r.ctx, filter, page)
	if err != nil {
		return nil, err
	}
	now := s.store.Now()
	return listOf(rows, next, func(b *models.Block) blockObject { return toBlock(b, now) }), nil
}

// providers are the networks of the operator's providers, none on a server without a dialplan.
func (s *Server) providers() []netip.Prefix {
	if s.numbers == nil {
		return nil
	}
	return s.numbers.Providers()
}

func (s *Server) createBlock(r *request) (any, error) {
	in := body[blockCreate](r)
	c := &checks{}
	block := models.Block{
		Address: c.blockable("address", in.Address), Reason: c.name("reason", in.Reason), Note: c.text("note", in.Note, maxSecretLength),
		ExpiresAt: c.future("expires_at", in.ExpiresAt, s.store.Now()), CreatedBy: r.operator.Name,
	}
	if err := c.failed(); err != nil {
		return nil, err
	}
	var answer blockObject
	err := s.store.InTx(r.ctx, func(tx *models.Store) error {
		row := block
		if err := tx.CreateBlock(r.ctx, &row, s.providers()); err != nil {
			return err
		}
		answer = toBlock(&row, tx.Now())
		r.concerns("", row.ID)
		return nil
	})
	if protected := (*models.ProtectedError)(nil); errors.As(err, &protected) {
		return nil, &Error{Code: codeAddressProtected, Field: "address", Message: protected.Error(), cause: err}
	}
	if err != nil {
		return nil, err
	}
	s.dialplanChanged()
	return answer, nil
}

func (s *Server) liftBlock(r *request) (any, error) {
	if _, err := s.store.LiftBlock(r.ctx, r.params["id"], r.operator.Name); err != nil {
		return nil, orNotFound(err, "block")
	}
	s.dialplanChanged()
	return nil, nil
}

func (s *Server) listBlockExceptions(r *request) (any, error) {
	page, err := r.page()
	if err != nil {
		return nil, err
	}
	c := &checks{}
	overlap := c.anyNetwork("address", r.param("address"))
	if err := c.failed(); err != nil {
		return nil, err
	}
	rows, next, err := s.store.ListBlockExceptions(r.ctx, overlap, page)
	if err != nil {
		return nil, err
	}
	return listOf(rows, next, toBlockException), nil
}

func (s *Server) createBlockException(r *request) (any, error) {
	in := body[blockExceptionCreate](r)
	c := &checks{}
	exception := models.BlockException{Address: c.blockable("address", in.Address), Note: c.text("note", in.Note, maxSecretLength), CreatedBy: r.operator.Name}
	if err := c.failed(); err != nil {
		return nil, err
	}
	var answer blockExceptionCreated
	err := s.store.InTx(r.ctx, func(tx *models.Store) error {
		row := exception
		lifted, err := tx.CreateBlockException(r.ctx, &row)
		if err != nil {
			return err
		}
		answer = blockExceptionCreated{blockExceptionObject: toBlockException(&row), Lifted: make([]blockObject, len(lifted))}
		for i := range lifted {
			answer.Lifted[i] = toBlock(&lifted[i], tx.Now())
		}
		r.concerns("", row.ID)
		return nil
	})
	if err != nil {
		return nil, err
	}
	s.dialplanChanged()
	return answer, nil
}

func (s *Server) deleteBlockException(r *request) (any, error) {
	if _, err := s.store.DeleteBlockException(r.ctx, r.params["id"]); err != nil {
		return nil, orNotFound(err, "exception")
	}
	s.dialplanChanged()
	return nil, nil
}

func (s *Server) blockedNetworks(r *request) (any, error) {
	networks, err := s.store.DroppableNetworks(r.ctx, s.providers())
	if err != nil {
		return nil, err
	}
	answer := blockedNetworks{IPv4: []string{}, IPv6: []string{}}
	for _, network := range networks {
		if network.Addr().Is4() {
			answer.IPv4 = append(answer.IPv4, network.String())
		} else {
			answer.IPv6 = append(answer.IPv6, network.String())
		}
	}
	return answer, nil
}

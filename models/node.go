package models

import (
	"cmp"
	"context"
	"fmt"
	"time"
)

// Node is a FreeSWITCH. One controller at a time holds its lease (LeaseOwner until LeaseUntil); LeaseToken grows with each
// new holder, and fences what an earlier one writes: see Call.Fence. CoreUUID is the FreeSWITCH process last seen.
type Node struct {
	ID       string
	Name     string
	ESLAddr  string `gorm:"column:esl_addr"`
	Password Secret `gorm:"-"`
	ConfDir  string
	// Delivery is how the node gets its configuration and gives its recordings: DeliveryFiles or DeliveryXMLCurl. ConfDir is a path of
	// this machine with the one, a path of the node's with the other. Empty is stored as DeliveryFiles.
	Delivery   string
	IsActive   bool
	LeaseOwner string
	LeaseToken int64
	LeaseUntil *time.Time `gorm:"serializer:moment"`
	// ConnectedUntil is until when the holder will have said again that the node is connected; nil while it is not.
	ConnectedUntil *time.Time `gorm:"serializer:moment"`
	// SeenAt is when a holder last said that the node was connected. Only RenewNode changes it.
	SeenAt *time.Time `gorm:"serializer:moment"`
	// Weight is the node's share of new outbound calls in relation to other nodes' of as much free capacity; with 0 it gets none.
	Weight int
	// DrainingAt is since when the node takes no new calls, nil while it does; DrainedBy and DrainReason say who wanted that, and why.
	DrainingAt  *time.Time `gorm:"serializer:moment"`
	DrainedBy   string
	DrainReason string
	CoreUUID    string    `gorm:"column:core_uuid"`
	CreatedAt   time.Time `gorm:"serializer:moment;autoCreateTime:false"`
	UpdatedAt   time.Time `gorm:"serializer:moment;autoUpdateTime:false"`
}

// Draining says whether the node takes no new calls because an operator wants it empty.
func (n *Node) Draining() bool { return n.DrainingAt != nil }

// The ways in which a node gets its configuration.
const (
	// DeliveryFiles: its directory is one that we write into, a local one or a shared one.
	DeliveryFiles = "files"
	// DeliveryXMLCurl: it asks us over HTTP and keeps a copy; no disk is shared.
	DeliveryXMLCurl = "xml_curl"
)

// Remote says that the node's disk is not ours to read or write.
func (n *Node) Remote() bool { return n.Delivery == DeliveryXMLCurl }

// nodeRow is a node as stored: its password sealed.
type nodeRow struct {
	Node           `gorm:"embedded"`
	SealedPassword string `gorm:"column:password"`
}

const nodeTable = "nodes"

// TableName implements gorm's schema.Tabler.
func (nodeRow) TableName() string { return nodeTable }

func (s *Store) openNode(row *nodeRow) (*Node, error) {
	node := row.Node
	var err error
	node.Password, err = s.sealer.open(nodeTable, "password", node.ID, row.SealedPassword)
	if err != nil {
		return nil, err
	}
	return &node, nil
}

// CreateNode inserts a node, held by nobody and not draining, and fills ID, times and, where it is 0, the weight. ErrNameExists where a node has the
// name.
func (s *Store) CreateNode(ctx context.Context, node *Node) error {
	return s.InTx(ctx, func(tx *Store) error {
		row := *node
		if row.ID == "" {
			row.ID = NewID(PrefixNode)
		}
		row.Delivery = cmp.Or(row.Delivery, DeliveryFiles)
		row.CreatedAt = tx.Now()
		row.UpdatedAt = row.CreatedAt
		row.Weight = cmp.Or(row.Weight, DefaultNodeWeight)
		row.DrainingAt, row.DrainedBy, row.DrainReason = nil, "", ""
		row.LeaseOwner, row.LeaseToken, row.LeaseUntil, row.ConnectedUntil, row.SeenAt = "", 0, nil, nil, nil
		sealed := &nodeRow{Node: row, SealedPassword: tx.sealer.seal(nodeTable, "password", row.ID, row.Password)}
		if err := tx.write(ctx).Create(sealed).Error; err != nil {
			return explain(err, "create node %q", row.Name)
		}
		*node = row
		return nil
	})
}

// UpdateNode writes address, password, conf-dir, delivery and whether the node is active; not its lease, its weight or whether it drains.
func (s *Store) UpdateNode(ctx context.Context, node *Node) error {
	return s.InTx(ctx, func(tx *Store) error {
		row := *node
		row.Delivery = cmp.Or(row.Delivery, DeliveryFiles)
		row.UpdatedAt = tx.Now()
		result := tx.write(ctx).Model(&nodeRow{}).Where("id = ?", row.ID).
			Select("esl_addr", "password", "conf_dir", "delivery", "is_active", "updated_at").
			Updates(&nodeRow{Node: row, SealedPassword: tx.sealer.seal(nodeTable, "password", row.ID, row.Password)})
		if err := changedOne(result, "update node %q", row.Name); err != nil {
			return err
		}
		*node = row
		return nil
	})
}

// Nodes returns every node, by name.
func (s *Store) Nodes(ctx context.Context) ([]Node, error) {
	var rows []nodeRow
	if err := s.read(ctx).Order("name").Find(&rows).Error; err != nil {
		return nil, explain(err, "read nodes")
	}
	nodes := make([]Node, 0, len(rows))
	for i := range rows {
		node, err := s.openNode(&rows[i])
		if err != nil {
			return nil, err
		}
		nodes = append(nodes, *node)
	}
	return nodes, nil
}

// NodeByName returns a node, or ErrNotFound.
func (s *Store) NodeByName(ctx context.Context, name string) (*Node, error) {
	var row nodeRow
	if err := s.read(ctx).Where("name = ?", name).Take(&row).Error; err != nil {
		return nil, explain(err, "node %q", name)
	}
	return s.openNode(&row)
}

// DeleteNode forgets a node, its health and its gateway reports; ErrInUse while it has live calls. Calls that ended keep their row and
// lose the name of the node.
func (s *Store) DeleteNode(ctx context.Context, id string) error {
	return s.InTx(ctx, func(tx *Store) error {
		var used bool
		err := tx.write(ctx).Raw("SELECT EXISTS (SELECT 1 FROM calls WHERE node_id = ? AND status IN "+liveStatuses+")", id).Row().Scan(&used)
		if err != nil {
			return explain(err, "look for calls on node %q", id)
		}
		if used {
			return fmt.Errorf("delete node %q: %w", id, ErrInUse)
		}
		return changedOne(tx.write(ctx).Exec("DELETE FROM nodes WHERE id = ?", id), "delete node %q", id)
	})
}

// SetNodeCore notes which FreeSWITCH process runs on a node.
func (s *Store) SetNodeCore(ctx context.Context, nodeID, coreUUID string) error {
	return s.InTx(ctx, func(tx *Store) error {
		result := tx.write(ctx).Exec("UPDATE nodes SET core_uuid = ?, updated_at = ? WHERE id = ?", coreUUID, micros(tx.Now()), nodeID)
		return changedOne(result, "set core of node %q", nodeID)
	})
}

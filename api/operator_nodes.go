package api

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"tandem/models"
)

// nodeObject is a node as operators see one: without its password and tokens.
type nodeObject struct {
	ID        string  `json:"id" example:"node_01jd3v5q8n6w4x2y0z9a8b7c6d"`
	Name      string  `json:"name" example:"fs-1"`
	ESLAddr   string  `json:"esl_addr" doc:"HOST:PORT of its Event Socket." example:"127.0.0.1:8021"`
	ConfDir   string  `json:"conf_dir" doc:"Its configuration folder, as controllers see it."`
	Delivery  string  `json:"delivery" enum:"files,xml_curl" doc:"How it gets its configuration: files in conf_dir, or over HTTP, where conf_dir is a path of its own."`
	HeldBy    *string `json:"held_by" doc:"The controller that steers it; null while none does."`
	Connected bool    `json:"connected" doc:"Whether that controller is connected to its Event Socket."`
	SeenAt    *string `json:"seen_at" format:"date-time" doc:"When it was last known to be connected."`
	CoreUUID  string  `json:"core_uuid" doc:"The FreeSWITCH process last seen."`
	nodeStanding
	CreatedAt string `json:"created_at" format:"date-time"`
	UpdatedAt string `json:"updated_at" format:"date-time"`
}

// nodeCreated is a node with the token by which it reports its CDRs.
type nodeCreated struct {
	nodeObject
	CDRToken *string `json:"cdr_token" doc:"Shown this once; null where the request gave it. The node's TANDEM_CDR_CREDENTIALS are NAME:TOKEN."`
}

type nodeCreate struct {
	Name        *string `json:"name" required:"true" pattern:"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$" example:"fs-1"`
	ESLAddr     *string `json:"esl_addr" required:"true" max:"255" doc:"HOST:PORT of its Event Socket, as controllers reach it." example:"127.0.0.1:8021"`
	ESLPassword *string `json:"esl_password" required:"true" max:"255" doc:"Password of its Event Socket. Never returned."`
	ConfDir     *string `json:"conf_dir" required:"true" max:"1024" doc:"Absolute path of its configuration folder, as controllers see it. Tandem writes below its tandem/ folder." example:"/etc/freeswitch"`
	Delivery    *string `json:"delivery" enum:"files,xml_curl" doc:"How it gets its configuration. Default: files. With xml_curl it asks over HTTP, and conf_dir is a path of its own."`
	CDRToken    *string `json:"cdr_token" pattern:"^[A-Za-z0-9._~-]{16,128}$" doc:"The token by which it reports its CDRs. Default: one is made."`
}

type cdrTokenRotate struct {
	CDRToken *string `json:"cdr_token" pattern:"^[A-Za-z0-9._~-]{16,128}$" doc:"The new token. Default: one is made."`
}

// toNode makes the object of a node; health is nil where none is known, calls is how many it has.
func toNode(n *models.Node, health *models.NodeHealth, calls int, now time.Time) nodeObject {
	object := nodeObject{
		ID: n.ID, Name: n.Name, ESLAddr: n.ESLAddr, ConfDir: n.ConfDir, Delivery: n.Delivery, SeenAt: stampOrNil(n.SeenAt), CoreUUID: n.CoreUUID,
		nodeStanding: toStanding(n, health, calls, now), CreatedAt: stamp(n.CreatedAt), UpdatedAt: stamp(n.UpdatedAt),
	}
	if n.LeaseUntil != nil && n.LeaseUntil.After(now) {
		object.HeldBy = &n.LeaseOwner
		object.Connected = n.ConnectedUntil != nil && n.ConnectedUntil.After(now)
	}
	return object
}

func (s *Server) operatorNodeRoutes() []route {
	return []route{
		{method: http.MethodPost, path: "/operator/v1/nodes", id: "createNode", tag: "nodes", summary: "Add a node",
			details: "Running controllers take it within seconds.",
			role:    models.RoleAdmin, request: nodeCreate{}, status: created, response: nodeCreated{}, handle: s.createNode, codes: []string{codeNameExists}},
		{method: http.MethodGet, path: "/operator/v1/nodes", id: "listNodes", tag: "nodes", summary: "List the nodes, by name",
			role: models.RoleViewer, status: ok, response: list[nodeObject]{}, handle: s.listNodes},
		{method: http.MethodGet, path: "/operator/v1/nodes/:name", id: "getNode", tag: "nodes", summary: "Get a node",
			role: models.RoleViewer, status: ok, response: nodeObject{}, handle: s.getNode},
		{method: http.MethodDelete, path: "/operator/v1/nodes/:name", id: "deleteNode", tag: "nodes", summary: "Remove a node that carries no live call",
			role: models.RoleAdmin, status: noContent, codes: []string{codeResourceInUse}, handle: s.deleteNode},
		{method: http.MethodPost, path: "/operator/v1/nodes/:name/cdr-token", id: "rotateCDRToken", tag: "nodes", summary: "Give a node another CDR token",
			details: "The one before is worth nothing from then on.",
			role:    models.RoleAdmin, request: cdrTokenRotate{}, bodyOptional: true, status: ok, response: nodeCreated{}, handle: s.rotateCDRToken},
	}
}

var (
	// remoteFolderPattern is what the folder of a node whose disk is not shared may be called: it stands in commands to the switch.
	remoteFolderPattern = regexp.MustCompile(`^(/[A-Za-z0-9._~+-]+)+$`)

	nodeNamePattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`)
	// cdrTokenPattern is what a CDR token is made of: freeswitch-conf pastes it into XML, and a colon ends the name before it.
	cdrTokenPattern = regexp.MustCompile(`^[A-Za-z0-9._~-]{16,128}$`)
)

// node reads what describes a new node.
func (c *checks) node(in *nodeCreate) models.Node {
	c.required("name", in.Name)
	c.required("esl_addr", in.ESLAddr)
	c.required("esl_password", in.ESLPassword)
	c.required("conf_dir", in.ConfDir)
	node := models.Node{
		Name: c.text("name", in.Name, maxNameLength), ESLAddr: c.text("esl_addr", in.ESLAddr, maxSIPURILength),
		Password: models.Secret(c.text("esl_password", in.ESLPassword, maxSecretLength)), ConfDir: c.text("conf_dir", in.ConfDir, 1024), IsActive: true,
	}
	if !nodeNamePattern.MatchString(node.Name) {
		c.refuse("name", "name must be 1 to 63 letters, digits, dots, dashes or underscores")
	}
	if host, port, err := net.SplitHostPort(node.ESLAddr); err != nil || host == "" || !isPort(port) {
		c.refuse("esl_addr", "esl_addr must be HOST:PORT")
	}
	node.Delivery = models.DeliveryFiles
	if in.Delivery != nil {
		node.Delivery = *in.Delivery
	}
	switch {
	case node.Delivery != models.DeliveryFiles && node.Delivery != models.DeliveryXMLCurl:
		c.refuse("delivery", "delivery must be files or xml_curl")
	case c.first != nil:
	default:
		node.ConfDir = c.confDir(node.Remote(), node.ConfDir)
	}
	return node
}

// confDir accepts the configuration folder of a node: one that this process sees or, of a remote node, a path there.
func (c *checks) confDir(remote bool, path string) string {
	if !remote {
		return c.folder("conf_dir", path)
	}
	if path = strings.TrimRight(path, "/"); !remoteFolderPattern.MatchString(path) {
		c.refuse("conf_dir", "conf_dir must be an absolute path on the node, of letters, digits and . _ ~ + - between slashes")
	}
	return path
}

// folder accepts the absolute path of a folder that this process sees.
func (c *checks) folder(field, path string) string {
	if !filepath.IsAbs(path) {
		c.refuse(field, "%s must be an absolute path", field)
		return ""
	}
	info, err := os.Stat(path)
	if err != nil || !info.IsDir() {
		c.refuse(field, "%s must be a folder that the controllers see", field)
		return ""
	}
	return filepath.Clean(path)
}

// cdrToken accepts a token, or makes one; made is nil where it was given.
func (c *checks) cdrToken(value *string) (token string, made *string) {
	if value == nil {
		token = models.NewCDRToken()
		return token, &token
	}
	if !cdrTokenPattern.MatchString(*value) {
		c.refuse("cdr_token", "cdr_token must hold 16 to 128 letters, digits, dots, dashes, underscores or tildes")
	}
	return *value, nil
}

func (s *Server) createNode(r *request) (any, error) {
	in := body[nodeCreate](r)
	c := &checks{}
	node := c.node(in)
	token, made := c.cdrToken(in.CDRToken)
	if err := c.failed(); err != nil {
		return nil, err
	}
	var answer nodeCreated
	err := s.store.InTx(r.ctx, func(tx *models.Store) error {
		row := node
		if err := tx.CreateNode(r.ctx, &row); err != nil {
			return err
		}
		if err := tx.SetCDRToken(r.ctx, row.ID, token); err != nil {
			return err
		}
		answer = nodeCreated{nodeObject: toNode(&row, nil, 0, tx.Now()), CDRToken: made}
		r.concerns("", row.Name)
		return nil
	})
	return answer, err
}

func (s *Server) listNodes(r *request) (any, error) {
	nodes, err := s.store.Nodes(r.ctx)
	if err != nil {
		return nil, err
	}
	healths, err := s.store.NodeHealths(r.ctx)
	if err != nil {
		return nil, err
	}
	live, err := s.store.LiveCallsByNode(r.ctx)
	if err != nil {
		return nil, err
	}
	now := s.store.Now()
	return listOf(nodes, "", func(n *models.Node) nodeObject { return toNode(n, healthOf(healths, n.ID), live[n.ID], now) }), nil
}

// namedNode finds the node of the path.
func (s *Server) namedNode(r *request) (*models.Node, error) {
	node, err := s.store.NodeByName(r.ctx, r.params["name"])
	return node, orNotFound(err, "node")
}

func (s *Server) getNode(r *request) (any, error) {
	node, err := s.namedNode(r)
	if err != nil {
		return nil, err
	}
	return s.nodeNow(r, s.store, node)
}

func (s *Server) deleteNode(r *request) (any, error) {
	node, err := s.namedNode(r)
	if err != nil {
		return nil, err
	}
	err = s.store.InTx(r.ctx, func(tx *models.Store) error {
		if err := s.calls.RemovingNode(r.ctx, tx, node.ID); err != nil {
			return err
		}
		return tx.DeleteNode(r.ctx, node.ID)
	})
	if errors.Is(err, models.ErrInUse) {
		live, countErr := s.store.LiveCalls(r.ctx, node.ID)
		if countErr != nil {
			return nil, countErr
		}
		return nil, inUse(err, fmt.Sprintf("%d calls are live on the node: %s", len(live), someCalls(live)))
	}
	return nil, orNotFound(err, "node")
}

// someCalls names the first of some calls.
func someCalls(live []models.Call) string {
	var names []string
	for i := range live[:min(5, len(live))] {
		names = append(names, live[i].ID)
	}
	if len(live) > len(names) {
		names = append(names, "…")
	}
	return strings.Join(names, ", ")
}

func (s *Server) rotateCDRToken(r *request) (any, error) {
	c := &checks{}
	token, made := c.cdrToken(body[cdrTokenRotate](r).CDRToken)
	if err := c.failed(); err != nil {
		return nil, err
	}
	node, err := s.namedNode(r)
	if err != nil {
		return nil, err
	}
	if err := s.store.SetCDRToken(r.ctx, node.ID, token); err != nil {
		return nil, orNotFound(err, "node")
	}
	now, err := s.nodeNow(r, s.store, node)
	return nodeCreated{nodeObject: now, CDRToken: made}, err
}

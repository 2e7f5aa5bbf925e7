package api

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"unicode"

	"tandem/calls"
	"tandem/dialplan"
	"tandem/models"
)

// Documents makes the documents that every node should hold; *dialplan.Syncer does.
type Documents interface {
	// Documents returns the paths of all documents, and of the named ones the contents with what nobody is shown hidden. A name that is
	// none is not among them.
	Documents(ctx context.Context, named []string) (paths []string, contents map[string][]byte, problems []dialplan.Problem, err error)
}

var _ Documents = (*dialplan.Syncer)(nil)

// configObject is what every node should hold.
type configObject struct {
	Paths    []string        `json:"paths" doc:"Below a node's configuration folder."`
	Problems []configProblem `json:"problems" doc:"Trunks and DIDs that could not be rendered as they are."`
}

type configProblem struct {
	Kind    string `json:"kind" enum:"trunk,did"`
	ID      string `json:"id"`
	Message string `json:"message"`
}

type documentObject struct {
	Path    string `json:"path" example:"tandem/gateways/acme.xml"`
	Content string `json:"content" doc:"The document, passwords hidden."`
}

// orderCreate is what the controller that holds a node is asked to do.
type orderCreate struct {
	Kind  *string `json:"kind" required:"true" enum:"diff,apply,strays,reap" doc:"diff compares the node with what it should hold and changes nothing; apply makes it so. strays looks for calls that nobody steers and channels that nobody has, and changes nothing; reap does what must be done about them."`
	Prune *bool   `json:"prune" doc:"With apply: also unload gateways of our SIP profile that nobody knows."`
}

// execCreate is a line for the switch.
type execCreate struct {
	Command *string `json:"command" required:"true" max:"4096" doc:"One line, as fs_cli takes it, without the slash." example:"sofia status"`
}

// orderObject is an order to the controller that holds a node, and what came of it.
type orderObject struct {
	ID      string  `json:"id"`
	Node    string  `json:"node"`
	Kind    string  `json:"kind" enum:"diff,apply,exec,strays,reap"`
	Prune   bool    `json:"prune"`
	AskedAt string  `json:"asked_at" format:"date-time"`
	DoneAt  *string `json:"done_at" format:"date-time" doc:"null while nobody has carried it out."`
	Error   *string `json:"error" doc:"Why it could not be carried out."`
	// Changes are of diff, Strays of strays and reap, Reply and Truncated of exec, the others of apply.
	Changes  []configChange `json:"changes" doc:"Of diff: what apply would do."`
	Note     *string        `json:"note" doc:"Of diff: what was not looked at."`
	Written  []string       `json:"written" doc:"Of apply: files that were written."`
	Removed  []string       `json:"removed" doc:"Of apply: files that were removed."`
	Unloaded []string       `json:"unloaded" doc:"Of apply: gateways that were unloaded."`
	Strays   []strayObject  `json:"strays" doc:"Of strays and reap: what was found, and of reap done about."`
	Reply    *string        `json:"reply" doc:"Of exec: what the switch said, at most 256 KiB."`
	// Truncated says that the switch said more.
	Truncated bool `json:"truncated" doc:"Of exec: whether the switch said more."`
}

// strayObject is something that fell between the parts of a node.
type strayObject struct {
	Kind      string  `json:"kind" enum:"unsteered,gone,unlisted,stuck,stale" doc:"unsteered: a live call that no controller steers, taken over. gone: such a call without a channel, ended as its CDR says. unlisted: a channel that the switch does not list, asked for. stuck: one that it lists and does not have; a call that has it ends. stale: one whose call has ended, hung up."`
	CallID    *string `json:"call_id" doc:"null for a channel that is no call's own."`
	ChannelID string  `json:"channel_id"`
}

// configChange is one thing that applying a configuration would do.
type configChange struct {
	Op        string   `json:"op" enum:"add,change,remove,unload,reload"`
	Kind      string   `json:"kind" enum:"gateway,sources,numbers,entry,file,context"`
	Name      string   `json:"name"`
	Path      string   `json:"path"`
	Details   []string `json:"details" doc:"What differs, never a secret."`
	Effect    string   `json:"effect" doc:"What the switch is told."`
	LiveCalls []string `json:"live_calls" doc:"Calls that go through a gateway that would be unloaded."`
}

// driftObject is a way in which a node is, or was, not as it should be although nothing of ours changed.
type driftObject struct {
	ID      string  `json:"id"`
	Kind    string  `json:"kind" enum:"file_edited,file_unknown,gateway_unknown,gateway_missing,context_stale"`
	Name    string  `json:"name"`
	FoundAt string  `json:"found_at" format:"date-time"`
	EndedAt *string `json:"ended_at" format:"date-time"`
}

func (s *Server) operatorConfigRoutes() []route {
	return []route{
		{method: http.MethodGet, path: "/operator/v1/config", id: "getConfig", tag: "config", summary: "The documents that every node should hold",
			role: models.RoleViewer, status: ok, response: configObject{}, handle: s.getConfig},
		{method: http.MethodGet, path: "/operator/v1/config/document", id: "getDocument", tag: "config", summary: "One of these documents, passwords hidden",
			query: []param{{name: "path", kind: "string", doc: "One of the paths of the configuration."}},
			role:  models.RoleViewer, status: ok, response: documentObject{}, codes: []string{codeNotFound}, handle: s.getDocument},
		{method: http.MethodPost, path: "/operator/v1/nodes/:name/orders", id: "orderNode", tag: "config", summary: "Have a node compared with what it should hold, or made so, or its lost calls looked for",
			details: "The controller that holds the node carries it out; read the order until done_at is set. What nobody has begun within 10 minutes is not done any more.",
			role:    models.RoleOperator, request: orderCreate{}, status: accepted, response: orderObject{}, handle: s.orderNode},
		{method: http.MethodPost, path: "/operator/v1/nodes/:name/exec", id: "execOnNode", tag: "config", summary: "Tell a node's switch a command, as fs_cli does",
			details: "The command is the operator's own: it can end calls, change what Tandem relies on, or stop the switch. The controller that holds the node sends it; read the order, as the admin that you are, until done_at is set.",
			role:    models.RoleAdmin, request: execCreate{}, status: accepted, response: orderObject{}, handle: s.execOnNode},
		{method: http.MethodGet, path: "/operator/v1/nodes/:name/orders/:order", id: "getOrder", tag: "config", summary: "What came of an order",
			role: models.RoleViewer, status: ok, response: orderObject{}, handle: s.getOrder},
		{method: http.MethodGet, path: "/operator/v1/nodes/:name/drifts", id: "listDrifts", tag: "config", summary: "Where a node is or was not as it should be, newest first",
			role: models.RoleViewer, status: ok, response: list[driftObject]{}, handle: s.listDrifts},
	}
}

// documents refuses where this process has no configuration of nodes, as in a simulation.
func (s *Server) documents() (Documents, error) {
	documents, ok := s.dialplan.(Documents)
	if !ok {
		return nil, &Error{Code: codeUnavailable, Message: "this process configures no nodes"}
	}
	return documents, nil
}

func (s *Server) getConfig(r *request) (any, error) {
	documents, err := s.documents()
	if err != nil {
		return nil, err
	}
	paths, _, problems, err := documents.Documents(r.ctx, nil)
	if err != nil {
		return nil, err
	}
	answer := configObject{Paths: paths, Problems: make([]configProblem, 0, len(problems))}
	for _, p := range problems {
		answer.Problems = append(answer.Problems, configProblem(p))
	}
	return answer, nil
}

func (s *Server) getDocument(r *request) (any, error) {
	documents, err := s.documents()
	if err != nil {
		return nil, err
	}
	path := r.query["path"]
	if path == "" {
		return nil, invalid("path", "path is required")
	}
	_, contents, _, err := documents.Documents(r.ctx, []string{path})
	if err != nil {
		return nil, err
	}
	content, ok := contents[path]
	if !ok {
		return nil, &Error{Code: codeNotFound, Message: "there is no such document", Field: "path"}
	}
	return documentObject{Path: path, Content: string(content)}, nil
}

func (s *Server) orderNode(r *request) (any, error) {
	in := body[orderCreate](r)
	c := &checks{}
	c.required("kind", in.Kind)
	kind := ""
	if in.Kind != nil {
		kind = *in.Kind
		if !slices.Contains([]string{models.OrderDiff, models.OrderApply, models.OrderStrays, models.OrderReap}, kind) {
			c.refuse("kind", "kind must be diff, apply, strays or reap")
		}
	}
	prune := in.Prune != nil && *in.Prune
	if prune && kind != models.OrderApply {
		c.refuse("prune", "prune goes with apply")
	}
	if err := c.failed(); err != nil {
		return nil, err
	}
	node, err := s.namedNode(r)
	if err != nil {
		return nil, err
	}
	order := &models.NodeOrder{NodeID: node.ID, Kind: kind, Prune: prune}
	if err := s.store.AskNode(r.ctx, order); err != nil {
		return nil, err
	}
	r.concerns("", node.Name)
	return toOrder(order, node)
}

// maxSwitchCommand is the longest command for a switch, in bytes.
const maxSwitchCommand = 4096

func (s *Server) execOnNode(r *request) (any, error) {
	c := &checks{}
	command := strings.TrimSpace(c.text("command", body[execCreate](r).Command, maxSwitchCommand))
	if command == "" {
		c.refuse("command", "command is required")
	}
	if strings.ContainsFunc(command, unicode.IsControl) {
		c.refuse("command", "command must be one line, without control characters")
	}
	if err := c.failed(); err != nil {
		return nil, err
	}
	node, err := s.namedNode(r)
	if err != nil {
		return nil, err
	}
	order := &models.NodeOrder{NodeID: node.ID, Kind: models.OrderExec, Command: command}
	if err := s.store.AskNode(r.ctx, order); err != nil {
		return nil, err
	}
	r.concerns("", node.Name)
	return toOrder(order, node)
}

func (s *Server) getOrder(r *request) (any, error) {
	node, err := s.namedNode(r)
	if err != nil {
		return nil, err
	}
	order, err := s.store.NodeOrder(r.ctx, r.params["order"])
	if err != nil {
		return nil, orNotFound(err, "order")
	}
	if order.NodeID != node.ID || order.Kind == models.OrderExec && !models.RoleCovers(r.operator.Role, models.RoleAdmin) {
		return nil, orNotFound(models.ErrNotFound, "order")
	}
	return toOrder(order, node)
}

func toOrder(order *models.NodeOrder, node *models.Node) (orderObject, error) {
	object := orderObject{
		ID: order.ID, Node: node.Name, Kind: order.Kind, Prune: order.Prune, AskedAt: stamp(order.AskedAt), DoneAt: stampOrNil(order.DoneAt),
		Changes: []configChange{}, Written: []string{}, Removed: []string{}, Unloaded: []string{},
		Strays: []strayObject{},
	}
	if order.Error != "" {
		object.Error = &order.Error
	}
	if len(order.Result) == 0 {
		return object, nil
	}
	switch order.Kind {
	case models.OrderDiff:
		var plan dialplan.Plan
		if err := json.Unmarshal(order.Result, &plan); err != nil {
			return object, fmt.Errorf("read the result of order %q: %w", order.ID, err)
		}
		for _, change := range plan.Changes {
			c := configChange(change)
			c.Details, c.LiveCalls = append([]string{}, c.Details...), append([]string{}, c.LiveCalls...)
			object.Changes = append(object.Changes, c)
		}
		if note := plan.Note(); note != "" {
			object.Note = &note
		}
	case models.OrderStrays, models.OrderReap:
		var strays []calls.Stray
		if err := json.Unmarshal(order.Result, &strays); err != nil {
			return object, fmt.Errorf("read the result of order %q: %w", order.ID, err)
		}
		for _, stray := range strays {
			object.Strays = append(object.Strays, strayObject{Kind: stray.Kind, CallID: orNil(stray.CallID), ChannelID: stray.ChannelID})
		}
	case models.OrderExec:
		var reply models.SwitchReply
		if err := json.Unmarshal(order.Result, &reply); err != nil {
			return object, fmt.Errorf("read the result of order %q: %w", order.ID, err)
		}
		object.Reply, object.Truncated = &reply.Text, reply.Truncated
	case models.OrderApply:
		var report dialplan.Report
		if err := json.Unmarshal(order.Result, &report); err != nil {
			return object, fmt.Errorf("read the result of order %q: %w", order.ID, err)
		}
		object.Written, object.Removed, object.Unloaded = append([]string{}, report.Written...), append([]string{}, report.Removed...), append([]string{}, report.Killed...)
	}
	return object, nil
}

func (s *Server) listDrifts(r *request) (any, error) {
	node, err := s.namedNode(r)
	if err != nil {
		return nil, err
	}
	drifts, err := s.store.Drifts(r.ctx, node.ID)
	if err != nil {
		return nil, err
	}
	return listOf(drifts, "", func(d *models.Drift) driftObject {
		return driftObject{ID: d.ID, Kind: d.Kind, Name: d.Name, FoundAt: stamp(d.FoundAt), EndedAt: stampOrNil(d.EndedAt)}
	}), nil
}

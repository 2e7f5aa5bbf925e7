package api

import (
	"net"
	"net/http"
	"time"

	"tandem/models"
)

// nodeStanding is what a node does now.
type nodeStanding struct {
	State    string        `json:"state" enum:"up,draining,drained,away,unheld,inactive" doc:"up: takes calls. draining: takes no new calls and has some left. drained: has none left, and may be stopped. away: its controller is not connected to it, or does not steer it for its own safety. unheld: no controller steers it."`
	Weight   int           `json:"weight" doc:"Its share of new outbound calls, in relation to other nodes with as much room; with 0 it gets none."`
	Calls    int           `json:"calls" doc:"Its calls that have not ended."`
	Draining *nodeDraining `json:"draining" doc:"Why it takes no new calls; null while it does."`
	Health   *nodeHealth   `json:"health" doc:"What it last said of itself; null where it never has."`
	Problems []nodeProblem `json:"problems" doc:"What somebody should mend, the worst first."`
}

// nodeDraining says who wants a node empty.
type nodeDraining struct {
	Since  string  `json:"since" format:"date-time"`
	By     string  `json:"by" doc:"The operator who asked for it."`
	Reason *string `json:"reason"`
}

// nodeHealth is what a node last said of itself.
type nodeHealth struct {
	MeasuredAt         string   `json:"measured_at" format:"date-time"`
	HeartbeatAt        *string  `json:"heartbeat_at" format:"date-time" doc:"When its last HEARTBEAT came to the controller that holds it."`
	Version            string   `json:"version"`
	UptimeSeconds      int64    `json:"uptime_seconds"`
	Ready              bool     `json:"ready" doc:"false while the switch takes no sessions at all."`
	InboundPaused      bool     `json:"inbound_paused" doc:"Whether it refuses callers, because it drains or because somebody has paused it."`
	OutboundPaused     bool     `json:"outbound_paused"`
	Sessions           int      `json:"sessions" doc:"Legs that live on it."`
	MaxSessions        int      `json:"max_sessions"`
	PeakSessions       int      `json:"peak_sessions" doc:"Since it was started."`
	SessionsSinceStart int64    `json:"sessions_since_start"`
	SessionsPerSecond  int      `json:"sessions_per_second" doc:"Legs that began in the last second."`
	MaxPerSecond       int      `json:"max_sessions_per_second"`
	IdleCPU            float64  `json:"idle_cpu" doc:"Percent."`
	MinIdleCPU         float64  `json:"min_idle_cpu" doc:"It takes no sessions below that; 0 for no such limit."`
	ClockSkewMS        float64  `json:"clock_skew_ms" doc:"How far its clock is ahead of its controller's."`
	AnswerMS           float64  `json:"answer_ms" doc:"How long it took to answer."`
	MissingModules     []string `json:"missing_modules"`
}

// nodeProblem is something that somebody should mend.
type nodeProblem struct {
	Code     string `json:"code" example:"missing_module"`
	Severity string `json:"severity" enum:"error,warning" doc:"error: calls fail, or strangers get in."`
	Message  string `json:"message"`
	Fix      string `json:"fix"`
}

type nodeUpdate struct {
	ESLAddr     *string `json:"esl_addr" max:"255" doc:"HOST:PORT of its Event Socket, as controllers reach it."`
	ESLPassword *string `json:"esl_password" max:"255" doc:"Password of its Event Socket. Never returned."`
	ConfDir     *string `json:"conf_dir" max:"1024" doc:"Absolute path of its configuration folder, as controllers see it; with delivery xml_curl a path of its own."`
	Weight      *int    `json:"weight" minimum:"0" maximum:"10000" doc:"Its share of new outbound calls; 100 for a new node, 0 for none."`
	IsActive    *bool   `json:"is_active" doc:"Whether controllers steer it. Calls of a node that nobody steers any more end as lost: drain it before."`
}

type nodeDrainCreate struct {
	Reason *string `json:"reason" max:"255" doc:"Why, for whoever looks at the node." example:"new kernel"`
}

// maxReason bounds why a node is drained, in characters.
const maxReason = 255

func (s *Server) operatorNodeStandingRoutes() []route {
	return []route{
		{method: http.MethodPatch, path: "/operator/v1/nodes/:name", id: "updateNode", tag: "nodes", summary: "Change a node",
			details: "Its controller connects anew where address, password or folder changed; live calls go on.",
			role:    models.RoleAdmin, request: nodeUpdate{}, status: ok, response: nodeObject{}, handle: s.updateNode},
		{method: http.MethodPost, path: "/operator/v1/nodes/:name/drain", id: "drainNode", tag: "nodes", summary: "Have a node take no new calls",
			details: "Live calls are not touched. No outbound call is placed on it from the moment of the answer on; callers get 503 from its switch within half a second. It stays so until it is resumed, whoever is restarted.",
			role:    models.RoleOperator, request: nodeDrainCreate{}, bodyOptional: true, status: ok, response: nodeObject{}, handle: s.drainNode},
		{method: http.MethodPost, path: "/operator/v1/nodes/:name/resume", id: "resumeNode", tag: "nodes", summary: "Have a node take calls again",
			role: models.RoleOperator, status: ok, response: nodeObject{}, handle: s.resumeNode},
	}
}

func toStanding(n *models.Node, health *models.NodeHealth, calls int, now time.Time) nodeStanding {
	standing := nodeStanding{State: n.State(health, calls, now), Weight: n.Weight, Calls: calls, Problems: []nodeProblem{}}
	if n.Draining() {
		standing.Draining = &nodeDraining{Since: stamp(*n.DrainingAt), By: n.DrainedBy, Reason: orNil(n.DrainReason)}
	}
	if health == nil {
		return standing
	}
	standing.Health = &nodeHealth{
		MeasuredAt: stamp(health.MeasuredAt), HeartbeatAt: stampOrNil(health.HeartbeatAt), Version: health.Version, UptimeSeconds: health.UptimeSeconds,
		Ready: health.Ready, InboundPaused: health.InboundPaused, OutboundPaused: health.OutboundPaused, Sessions: health.Sessions,
		MaxSessions: health.MaxSessions, PeakSessions: health.PeakSessions, SessionsSinceStart: health.SessionsSinceStart, SessionsPerSecond: health.Rate,
		MaxPerSecond: health.MaxRate, IdleCPU: health.IdleCPU, MinIdleCPU: health.MinIdleCPU, ClockSkewMS: float64(health.ClockSkew) / 1000,
		AnswerMS: float64(health.Answer) / 1000, MissingModules: append([]string{}, health.MissingModules...),
	}
	for _, p := range health.Problems {
		standing.Problems = append(standing.Problems, nodeProblem(p))
	}
	return standing
}

// nodeNow is a node with what is known of it at this moment.
func (s *Server) nodeNow(r *request, store *models.Store, node *models.Node) (nodeObject, error) {
	healths, err := store.NodeHealths(r.ctx)
	if err != nil {
		return nodeObject{}, err
	}
	live, err := store.LiveCallsByNode(r.ctx)
	if err != nil {
		return nodeObject{}, err
	}
	return toNode(node, healthOf(healths, node.ID), live[node.ID], store.Now()), nil
}

// healthOf is what is known of a node, nil where nothing is.
func healthOf(healths map[string]models.NodeHealth, id string) *models.NodeHealth {
	if health, known := healths[id]; known {
		return &health
	}
	return nil
}

// changeNode changes the node of the path and answers with what it is then.
func (s *Server) changeNode(r *request, change func(tx *models.Store, node *models.Node) error) (any, error) {
	var answer nodeObject
	err := s.store.InTx(r.ctx, func(tx *models.Store) error {
		node, err := tx.NodeByName(r.ctx, r.params["name"])
		if err != nil {
			return orNotFound(err, "node")
		}
		if err := change(tx, node); err != nil {
			return orNotFound(err, "node")
		}
		if node, err = tx.NodeByName(r.ctx, node.Name); err != nil {
			return err
		}
		answer, err = s.nodeNow(r, tx, node)
		return err
	})
	return answer, err
}

func (s *Server) updateNode(r *request) (any, error) {
	in := body[nodeUpdate](r)
	c := &checks{}
	if in.ESLAddr != nil {
		c.text("esl_addr", in.ESLAddr, maxSIPURILength)
		if host, port, err := net.SplitHostPort(*in.ESLAddr); err != nil || host == "" || !isPort(port) {
			c.refuse("esl_addr", "esl_addr must be HOST:PORT")
		}
	}
	if in.ESLPassword != nil {
		c.required("esl_password", in.ESLPassword)
		c.text("esl_password", in.ESLPassword, maxSecretLength)
	}
	if in.Weight != nil && (*in.Weight < 0 || *in.Weight > models.MaxNodeWeight) {
		c.refuse("weight", "weight must be from 0 to %d", models.MaxNodeWeight)
	}
	folder := c.text("conf_dir", in.ConfDir, 1024)
	if err := c.failed(); err != nil {
		return nil, err
	}
	return s.changeNode(r, func(tx *models.Store, node *models.Node) error {
		if in.Weight != nil {
			if err := tx.SetNodeWeight(r.ctx, node.ID, *in.Weight); err != nil {
				return err
			}
		}
		if in.ESLAddr == nil && in.ESLPassword == nil && in.ConfDir == nil && in.IsActive == nil {
			return nil
		}
		if in.ESLAddr != nil {
			node.ESLAddr = *in.ESLAddr
		}
		if in.ESLPassword != nil {
			node.Password = models.Secret(*in.ESLPassword)
		}
		if in.ConfDir != nil {
			c := &checks{}
			node.ConfDir = c.confDir(node.Remote(), folder)
			if err := c.failed(); err != nil {
				return err
			}
		}
		if in.IsActive != nil {
			node.IsActive = *in.IsActive
		}
		return tx.UpdateNode(r.ctx, node)
	})
}

func (s *Server) drainNode(r *request) (any, error) {
	c := &checks{}
	reason := c.text("reason", body[nodeDrainCreate](r).Reason, maxReason)
	if err := c.failed(); err != nil {
		return nil, err
	}
	return s.changeNode(r, func(tx *models.Store, node *models.Node) error {
		return tx.DrainNode(r.ctx, node.ID, r.operator.Name, reason)
	})
}

func (s *Server) resumeNode(r *request) (any, error) {
	return s.changeNode(r, func(tx *models.Store, node *models.Node) error { return tx.ResumeNode(r.ctx, node.ID) })
}

// Package nodeport is the HTTP port that nodes talk to, apart from the customers' API: files that a node is to have, files of its own that it
// brings, and the answers that its dialplan asks for. Every request proves by the node's own token whose it is.
//
// It is a server of net/http, not part of the API's: recordings are large and slow, and are written to disk as they come.
package nodeport

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"time"

	"tandem/models"
)

// Header names a node and its token, NAME:TOKEN; freeswitch-conf/delivery/xml_curl makes the switch send it. HTTP basic authentication
// does as well, which is what FreeSWITCH's modules with credentials of their own use.
const Header = "Tandem-Node"

// Nodes knows the tokens of nodes; *models.Store is one.
type Nodes interface {
	AuthenticateNode(ctx context.Context, name, token string) (nodeID string, err error)
}

// Files is where nodes fetch and leave files of their configuration; *dialplan.Exchange is one. Its errors are answered as Status says.
type Files interface {
	Fetch(nodeID, id string) ([]byte, error)
	Leave(nodeID, id string, body io.Reader, length int64) error
}

// Recordings takes recordings that nodes bring; *calls.Recordings is one.
type Recordings interface {
	// Receive stores what body holds under a token, durably, before it returns. length is what the node says, -1 when it does not.
	Receive(ctx context.Context, nodeID, token string, body io.Reader, length int64) error
}

// Routes answers what a node's dialplan asks for; *dialplan.Syncer is one.
type Routes interface {
	// Hunt returns the document for a hunt of a number in a context, or found false where there is none.
	Hunt(ctx context.Context, dialplanContext, number string) (document []byte, found bool, err error)
}

// Config is what a Server needs. Nodes is required; what is nil is not served.
type Config struct {
	Nodes      Nodes
	Files      Files
	Recordings Recordings
	Routes     Routes
	Logger     *slog.Logger
	// Status says which HTTP status an error of Files and Recordings is answered with; 0 for an error that nobody foresaw.
	Status func(error) int
	// UploadTimeout bounds one recording. Default 15 min.
	UploadTimeout time.Duration
	// RequestTimeout bounds everything else. Default 30 s.
	RequestTimeout time.Duration
}

const (
	// headerTimeout bounds the arrival of a request's head.
	headerTimeout = 10 * time.Second
	// idleTimeout closes a connection that nobody uses.
	idleTimeout = 2 * time.Minute
	// questionLimit bounds what the dialplan of a node sends with a question, in bytes: every variable of the channel.
	questionLimit = 1 << 20
)

// Server answers nodes.
type Server struct {
	cfg  Config
	http *http.Server
}

// New makes a server; Serve starts it.
func New(cfg Config) (*Server, error) {
	if cfg.Nodes == nil || cfg.Status == nil {
		return nil, errors.New("nodeport: Nodes and Status are required")
	}
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	cfg.UploadTimeout = cmp.Or(cfg.UploadTimeout, 15*time.Minute)
	cfg.RequestTimeout = cmp.Or(cfg.RequestTimeout, 30*time.Second)
	s := &Server{cfg: cfg}
	mux := http.NewServeMux()
	if cfg.Files != nil {
		mux.HandleFunc("GET /internal/files/{id}/{name}", s.as(cfg.RequestTimeout, s.fetch))
		mux.HandleFunc("PUT /internal/files/{id}/{name}", s.as(cfg.RequestTimeout, s.leave))
	}
	if cfg.Recordings != nil {
		mux.HandleFunc("PUT /internal/recordings/{token}/{name}", s.as(cfg.UploadTimeout, s.receive))
	}
	if cfg.Routes != nil {
		mux.HandleFunc("POST /internal/xml", s.as(cfg.RequestTimeout, s.hunt))
	}
	s.http = &http.Server{
		Handler: mux, ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: 16 << 10,
		ErrorLog: slog.NewLogLogger(cfg.Logger.Handler(), slog.LevelWarn),
	}
	return s, nil
}

// Serve answers requests from the listener until Shutdown, and then returns nil.
func (s *Server) Serve(listener net.Listener) error {
	if err := s.http.Serve(listener); err != nil && !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve the nodes: %w", err)
	}
	return nil
}

// Shutdown stops listening and waits for the requests under way until ctx ends; then it cuts them off. It may be called again.
func (s *Server) Shutdown(ctx context.Context) error {
	if err := s.http.Shutdown(ctx); err != nil {
		return errors.Join(fmt.Errorf("stop serving the nodes: %w", err), s.http.Close())
	}
	return nil
}

// answer handles the request of a node that has proved who it is, and returns the status that it answered with.
type answer func(w http.ResponseWriter, r *http.Request, node string) (status int, err error)

// as asks who a request comes from, bounds it and tells what went wrong.
func (s *Server) as(limit time.Duration, handle answer) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), limit)
		defer cancel()
		control := http.NewResponseController(w)
		deadline := time.Now().Add(limit)
		if err := errors.Join(control.SetReadDeadline(deadline), control.SetWriteDeadline(deadline)); err != nil {
			s.cfg.Logger.Error("deadline of a request not set", "error", err)
		}
		name, token := credentials(r)
		node, err := s.cfg.Nodes.AuthenticateNode(ctx, name, token)
		if err != nil {
			status := http.StatusServiceUnavailable
			if errors.Is(err, models.ErrNotFound) {
				status = http.StatusUnauthorized
				w.Header().Set("WWW-Authenticate", `Basic realm="tandem"`)
			}
			s.cfg.Logger.Warn("node refused", "route", r.Pattern, "remote_addr", r.RemoteAddr, "status", status)
			refuse(w, status)
			return
		}
		status, err := handle(w, r.WithContext(ctx), node)
		if err == nil {
			return
		}
		if status == 0 {
			if status = s.cfg.Status(err); status == 0 {
				status = http.StatusInternalServerError
			}
		}
		s.cfg.Logger.Warn("request of a node failed", "node_id", node, "route", r.Pattern, "status", status, "error", err)
		refuse(w, status)
	}
}

// refuse answers a status. Whatever of the body has not been read is not waited for.
func refuse(w http.ResponseWriter, status int) {
	w.Header().Set("Connection", "close")
	http.Error(w, http.StatusText(status), status)
}

// credentials reads the name and the token of a node.
func credentials(r *http.Request) (name, token string) {
	if name, token, ok := strings.Cut(r.Header.Get(Header), ":"); ok {
		return name, token
	}
	name, token, _ = r.BasicAuth()
	return name, token
}

func (s *Server) fetch(w http.ResponseWriter, r *http.Request, node string) (int, error) {
	content, err := s.cfg.Files.Fetch(node, r.PathValue("id"))
	if err != nil {
		return 0, err
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Cache-Control", "no-store")
	if _, err := w.Write(content); err != nil {
		s.cfg.Logger.Warn("file not fetched to its end", "node_id", node, "error", err)
	}
	return http.StatusOK, nil
}

func (s *Server) leave(w http.ResponseWriter, r *http.Request, node string) (int, error) {
	if err := s.cfg.Files.Leave(node, r.PathValue("id"), r.Body, r.ContentLength); err != nil {
		return 0, err
	}
	w.WriteHeader(http.StatusNoContent)
	return http.StatusNoContent, nil
}

func (s *Server) receive(w http.ResponseWriter, r *http.Request, node string) (int, error) {
	if err := s.cfg.Recordings.Receive(r.Context(), node, r.PathValue("token"), r.Body, r.ContentLength); err != nil {
		return 0, err
	}
	w.WriteHeader(http.StatusCreated)
	return http.StatusCreated, nil
}

// notFound is the answer of mod_xml_curl's protocol that sends the switch to its own files (switch_xml.c, switch_xml_locate).
const notFound = `<document type="freeswitch/xml"><section name="result"><result status="not found"/></section></document>`

// hunt answers mod_xml_curl (mod_xml_curl.c, xml_url_fetch): a form with the section and, for the dialplan, context and number of the hunt
// (mod_dialplan_xml.c, dialplan_xml_locate).
func (s *Server) hunt(w http.ResponseWriter, r *http.Request, _ string) (int, error) {
	r.Body = http.MaxBytesReader(w, r.Body, questionLimit)
	if err := r.ParseForm(); err != nil {
		return http.StatusBadRequest, fmt.Errorf("read the question: %w", err)
	}
	document, found := []byte(notFound), true
	if r.PostForm.Get("section") == "dialplan" {
		var err error
		document, found, err = s.cfg.Routes.Hunt(r.Context(), r.PostForm.Get("Hunt-Context"), r.PostForm.Get("Hunt-Destination-Number"))
		if err != nil {
			return http.StatusServiceUnavailable, err
		}
	}
	if !found {
		document = []byte(notFound)
	}
	w.Header().Set("Content-Type", "text/xml")
	if _, err := w.Write(document); err != nil {
		s.cfg.Logger.Warn("answer not sent", "error", err)
	}
	return http.StatusOK, nil
}

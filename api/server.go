// Package api serves the customer API below /v1: fiber, one table of routes, one table of errors.
//
// The table (routes.go) says for each route its method, path, body, answer and error codes; both fiber's routes and the
// OpenAPI document at /v1/openapi.json are made from it, so the two cannot differ.
package api

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"runtime/debug"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/gofiber/fiber/v2/middleware/adaptor"
	"github.com/valyala/fasthttp"

	"tandem/calls"
	"tandem/dialplan"
	"tandem/models"
	"tandem/simulator"
)

// Calls is what the API asks of the call manager.
type Calls interface {
	// Create stores a call with its hold and first event and dials after the commit. The request's InTx runs inside the
	// transaction; its error undoes everything.
	Create(ctx context.Context, request calls.CreateRequest) (*models.Call, error)
	// Foresee says what Create would come to, and creates nothing.
	Foresee(ctx context.Context, request calls.CreateRequest) (*calls.Prospect, error)
	// Cancel ends a live call, or returns calls.ErrCallNotActive. inTx runs inside the transaction that records it.
	Cancel(ctx context.Context, customerID, callID string, inTx func(tx *models.Store, call *models.Call) error) (*models.Call, error)
	// Direct gives a live call new actions, StartCall dials a queued call, Retry places an ended one again.
	Direct(ctx context.Context, customerID, callID string, request calls.DirectRequest) (*models.Call, error)
	StartCall(ctx context.Context, customerID, callID string, inTx func(tx *models.Store, call *models.Call) error) (*models.Call, error)
	Retry(ctx context.Context, customerID, callID string, inTx func(tx *models.Store, call *models.Call) error) (*models.Call, error)
	// MuteMember, KickMember and EndConference command a conference, LeaveQueue a queue.
	MuteMember(ctx context.Context, customerID, conferenceID, callID string, muted bool, inTx func(tx *models.Store, call *models.Call) error) error
	KickMember(ctx context.Context, customerID, conferenceID, callID string, inTx func(tx *models.Store, call *models.Call) error) error
	EndConference(ctx context.Context, customerID, conferenceID string, inTx func(tx *models.Store) error) error
	LeaveQueue(ctx context.Context, customerID, queue, callID string, inTx func(tx *models.Store, call *models.Call) error) error
	// RemovingNode ends, in the transaction that removes a node, what will never come from it.
	RemovingNode(ctx context.Context, tx *models.Store, nodeID string) error
}

// Simulator runs applications against scripted callers.
type Simulator interface {
	Run(ctx context.Context, app models.Application, script *simulator.Script) (*simulator.Report, error)
}

// Dialplan is told that trunks or DIDs have changed, and tests trunks. Changed must return at once.
type Dialplan interface {
	Changed()
	TestTrunk(ctx context.Context, trunk *models.Trunk, test dialplan.TrunkTest) (*dialplan.TrunkReport, error)
}

var (
	_ Calls     = (*calls.Manager)(nil)
	_ Dialplan  = (*dialplan.Syncer)(nil)
	_ Simulator = (*simulator.Simulator)(nil)
)

// Config holds what a Server needs; Store, Calls and Simulator are required.
type Config struct {
	Store     *models.Store
	Calls     Calls
	Simulator Simulator
	// Dialplan is told of changed trunks and DIDs, and tests trunks; nil tells nobody, and tests none.
	Dialplan Dialplan
	// Numbers explains what the nodes do with calls; without it nobody can ask.
	Numbers Numbers
	// Currency is the ISO 4217 code of new customers' accounts. Default USD.
	Currency string
	// FlatRate is the price of calls in a direction to a number, or models.PrefixSIP, for which no deck has a rate. Default: they cost nothing.
	FlatRate func(direction, number string) models.Rate
	// NewCustomer are the limits of new customers, as far as whoever makes one does not say others. Default: none.
	NewCustomer models.CustomerLimits
	// Rates bound the requests to the API. Default: nothing does.
	Rates Rates
	// TrustedProxies are the networks of reverse proxies whose X-Forwarded-For is believed. Default: none.
	TrustedProxies []netip.Prefix
	// OnRefused is told of each request that is refused for its rate: one of the Refused kinds. Default: nobody is.
	OnRefused func(kind string)
	// Now is the clock of the rates. Default time.Now.
	Now func() time.Time
	// Build is told to operators who ask which build answers.
	Build Build
	// Logger gets a line for each request and each failure of ours. Default: discard.
	Logger *slog.Logger
	// BodyLimit is the largest accepted body in bytes. Default 64 KiB.
	BodyLimit int
	// RequestTimeout bounds the work on one request. Default 15 s.
	RequestTimeout time.Duration
	// ReadTimeout bounds the arrival of one request, headers and body. Default 30 s.
	ReadTimeout time.Duration
	// MaxRequests is how many requests are worked on at a time; further ones are refused as overloaded. Default 1024.
	MaxRequests int
	// IdleTimeout closes a kept-alive connection that nobody uses. Default 120 s.
	IdleTimeout time.Duration
	// Mount adds handlers outside the API, each below its path prefix, such as health checks or the examples of `tandem
	// dev`. They see requests that carry no valid key.
	Mount map[string]http.Handler
}

// writeTimeout is how long a client may take to accept an answer.
const writeTimeout = 30 * time.Second

// Server is the HTTP server of the API.
type Server struct {
	store     *models.Store
	calls     Calls
	simulator Simulator
	dialplan  Dialplan
	numbers   Numbers
	currency  string
	flatRate  func(direction, number string) models.Rate
	// newCustomer are the limits of new customers.
	newCustomer models.CustomerLimits
	build       Build
	logger      *slog.Logger
	timeout     time.Duration
	throttle    *throttle
	proxies     []netip.Prefix
	// slots has a place for each request that is worked on.
	slots chan struct{}

	app      *fiber.App
	listener atomic.Pointer[lingerListener]
	// document describes the routes of customers, operatorDocument those of operators.
	document, operatorDocument []byte
	base                       context.Context
	stop                       context.CancelFunc
}

// New makes a server; Serve starts it. It fails when the configuration is incomplete or the OpenAPI document cannot be made.
func New(cfg Config) (*Server, error) {
	if cfg.Store == nil || cfg.Calls == nil || cfg.Simulator == nil {
		return nil, errors.New("api: Store, Calls and Simulator are required")
	}
	s := &Server{
		store:       cfg.Store,
		calls:       cfg.Calls,
		simulator:   cfg.Simulator,
		dialplan:    cfg.Dialplan,
		numbers:     cfg.Numbers,
		currency:    cmp.Or(cfg.Currency, "USD"),
		build:       cfg.Build,
		newCustomer: cfg.NewCustomer,
		logger:      cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler)),
		timeout:     cmp.Or(cfg.RequestTimeout, 15*time.Second),
		proxies:     cfg.TrustedProxies,
		slots:       make(chan struct{}, cmp.Or(cfg.MaxRequests, 1024)),
	}
	if s.flatRate = cfg.FlatRate; s.flatRate == nil {
		s.flatRate = func(string, string) models.Rate { return models.Rate{IncrementSeconds: defaultIncrement} }
	}
	refused, now := cfg.OnRefused, cfg.Now
	if refused == nil {
		refused = func(string) {}
	}
	if now == nil {
		now = time.Now
	}
	s.throttle = newThrottle(cfg.Rates, now, refused)
	var err error
	if s.document, err = customersDocument(); err != nil {
		return nil, fmt.Errorf("make the OpenAPI document: %w", err)
	}
	if s.operatorDocument, err = operatorsDocument(); err != nil {
		return nil, fmt.Errorf("make the OpenAPI document of the operator API: %w", err)
	}
	s.base, s.stop = context.WithCancel(context.Background())
	s.app = fiber.New(fiber.Config{
		AppName:               "tandem",
		BodyLimit:             cmp.Or(cfg.BodyLimit, 64<<10),
		CaseSensitive:         true,
		DisableStartupMessage: true,
		// Without it, strings taken from the context change under whoever keeps them once the handler has returned.
		Immutable: true,
		// Nothing here takes forms, and parsing them first would read them before the key is checked.
		DisablePreParseMultipartForm: true,
		ReadTimeout:                  cmp.Or(cfg.ReadTimeout, 30*time.Second),
		WriteTimeout:                 writeTimeout,
		IdleTimeout:                  cmp.Or(cfg.IdleTimeout, 120*time.Second),
		ReadBufferSize:               16 << 10,
		ErrorHandler:                 s.fail,
	})
	s.refuseUnknownMethods()
	s.app.Use(s.around)
	for prefix, handler := range cfg.Mount {
		s.app.Use(prefix, adaptor.HTTPHandler(s.detached(handler)))
	}
	s.app.Server().HeaderReceived = admitCDR
	s.app.Post(CDRPath, s.takeCDR)
	for _, route := range slices.Concat(s.routes(), s.operatorRoutes()) {
		handler := s.handler(route)
		s.app.Add(route.method, route.path, handler)
		if route.method == http.MethodGet {
			s.app.Add(http.MethodHead, route.path, handler)
		}
	}
	return s, nil
}

// detached gives a mounted handler a context of ours: fasthttp's own is changed by its shutdown while it is being read.
func (s *Server) detached(handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(s.base, s.timeout)
		defer cancel()
		handler.ServeHTTP(w, r.WithContext(ctx))
	})
}

// App returns the fiber application, for tests.
func (s *Server) App() *fiber.App { return s.app }

// Serve answers requests from the listener until Shutdown, and then returns nil.
func (s *Server) Serve(ln net.Listener) error {
	listener := newLingerListener(ln)
	s.listener.Store(listener)
	if err := s.app.Listener(listener); err != nil && !errors.Is(err, net.ErrClosed) {
		return fmt.Errorf("serve the API: %w", err)
	}
	return nil
}

// Shutdown stops listening and waits for the requests under way until ctx ends; then it cancels them. It may be called again.
func (s *Server) Shutdown(ctx context.Context) error {
	defer s.stop()
	if listener := s.listener.Load(); listener != nil {
		listener.closeSilent()
	}
	if err := s.app.ShutdownWithContext(ctx); err != nil && !errors.Is(err, net.ErrClosed) {
		return fmt.Errorf("stop the API: %w", err)
	}
	return nil
}

// refuseUnknownMethods answers methods that fiber does not know in the contract's error shape: fiber itself answers them with
// plain text before any handler runs.
func (s *Server) refuseUnknownMethods() {
	server := s.app.Server()
	next := server.Handler
	known := map[string]bool{}
	for _, method := range s.app.Config().RequestMethods {
		known[method] = true
	}
	server.Handler = func(fctx *fasthttp.RequestCtx) {
		if known[string(fctx.Method())] {
			next(fctx)
			return
		}
		c := s.app.AcquireCtx(fctx)
		defer s.app.ReleaseCtx(c)
		c.Set(fiber.HeaderAllow, "GET, HEAD, POST, PATCH, DELETE")
		if err := s.fail(c, fiber.ErrMethodNotAllowed); err != nil {
			fctx.SetStatusCode(http.StatusMethodNotAllowed)
		}
	}
}

// around surrounds every request: it gives it an id and a deadline, turns a panic into internal_error and writes its log line.
// The line holds no body, no query and no header.
func (s *Server) around(c *fiber.Ctx) error {
	start := time.Now()
	setRequestID(c)
	ctx, cancel := context.WithTimeout(s.base, s.timeout)
	defer cancel()
	c.SetUserContext(ctx)
	if err := s.throttled(c); err != nil {
		if err := s.fail(c, err); err != nil {
			return err
		}
	}
	attrs := []slog.Attr{
		slog.String("request_id", requestID(c)),
		slog.String("method", c.Method()),
		slog.String("route", c.Route().Path),
		slog.Int("status", c.Response().StatusCode()),
		slog.Float64("duration_ms", float64(time.Since(start).Microseconds())/1000),
	}
	if key, ok := c.Locals(localKey).(*models.APIKey); ok {
		attrs = append(attrs, slog.String("customer_id", key.CustomerID), slog.String("key_id", key.ID))
	}
	if operator, ok := c.Locals(localOperator).(*models.Operator); ok {
		attrs = append(attrs, slog.String("operator_id", operator.ID))
	}
	if code, ok := c.Locals(localCode).(string); ok {
		attrs = append(attrs, slog.String("error_code", code))
	}
	s.logger.LogAttrs(ctx, slog.LevelInfo, "request served", attrs...)
	return nil
}

// admitted runs the rest of the chain where there is a place for one more request.
func (s *Server) admitted(c *fiber.Ctx) error {
	select {
	case s.slots <- struct{}{}:
		defer func() { <-s.slots }()
		return s.next(c)
	default:
		return fmt.Errorf("%d requests are being worked on: %w", cap(s.slots), calls.ErrOverloaded)
	}
}

// next runs the rest of the chain and returns a panic as an error.
func (s *Server) next(c *fiber.Ctx) (err error) {
	defer func() {
		if value := recover(); value != nil {
			s.logger.Error("request panicked", "request_id", requestID(c), "panic", fmt.Sprint(value), "stack", string(debug.Stack()))
			err = &Error{Code: codeInternalError, Message: "something went wrong on our side; the request id finds it in our log"}
		}
	}()
	return c.Next()
}

// fail writes err in the contract's shape. It is also fiber's own error handler, for what goes wrong before any handler runs.
func (s *Server) fail(c *fiber.Ctx, err error) error {
	if requestID(c) == "" {
		// No handler has run: the request may not have been read to its end.
		setRequestID(c)
		if conn, ok := c.Context().Conn().(*lingerConn); ok {
			conn.refused.Store(true)
		}
	}
	reply := asError(err)
	status := reply.Status()
	c.Locals(localCode, reply.Code)
	if status >= http.StatusInternalServerError && reply.RetryAfter == 0 {
		// An outage, or too much load, is told once by whoever finds it, and by the code in each request's line.
		s.logger.Error("request failed", "request_id", requestID(c), "error_code", reply.Code, "error", err)
	}
	switch status {
	case http.StatusUnauthorized:
		if c.GetRespHeader(fiber.HeaderWWWAuthenticate) == "" {
			c.Set(fiber.HeaderWWWAuthenticate, "Bearer")
		}
	case http.StatusServiceUnavailable:
		c.Set(fiber.HeaderRetryAfter, strconv.Itoa(retryDefault))
	}
	if reply.RetryAfter > 0 {
		c.Set(fiber.HeaderRetryAfter, strconv.Itoa(reply.RetryAfter))
	}
	return c.Status(status).JSON(errorBody{Error: errorDetail{
		Code: reply.Code, Message: reply.Message, Field: reply.Field, Path: reply.Path, RequestID: requestID(c),
	}})
}

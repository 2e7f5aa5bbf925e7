package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/url"
	"reflect"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/gofiber/fiber/v2"

	"tandem/models"
)

// Keys of what a request carries in fiber's Locals.
const (
	localRequestID = "request_id"
	localKey       = "key"
	localOperator  = "operator"
	localCode      = "code"
	localBucket    = "bucket"
)

const (
	headerRequestID      = "X-Request-Id"
	headerIdempotencyKey = "Idempotency-Key"
	headerReplayed       = "Idempotent-Replayed"
)

// request is one authenticated and decoded request, as the handlers of the table see it.
type request struct {
	// ctx ends with the request's deadline or the server's shutdown.
	ctx context.Context
	// key is nil on public routes and on those of operators.
	key *models.APIKey
	// customer is the id of the customer that the key speaks for. Every query is scoped by it. Empty where there is no key.
	customer string
	// operator is nil but on the routes of operators.
	operator *models.Operator
	// audit is what the audit trail will say of the request; nil where that says nothing.
	audit  *models.PendingAudit
	params map[string]string
	query  map[string]string
	// body points to a value of the route's request type; given says which of its fields the client named.
	body  any
	given fieldSet
	// raw is the body of a route whose body another package reads.
	raw []byte
	// once is nil without an Idempotency-Key.
	once *once
}

// body returns the decoded body of a route whose request type is T.
func body[T any](r *request) *T { return r.body.(*T) }

// handler makes fiber's handler of a route: authenticate, decode, run, answer.
func (s *Server) handler(route route) fiber.Handler {
	return func(c *fiber.Ctx) error {
		r := &request{ctx: c.UserContext()}
		if err := s.admit(c, route, r); err != nil {
			return err
		}
		if err := r.read(c, route); err != nil {
			return err
		}
		if r.once != nil {
			stored, err := replay(r, s.store)
			if err != nil {
				return err
			}
			if stored != nil {
				return writeReplay(c, stored)
			}
		}
		answer, err := s.run(c, route, r)
		if err != nil {
			if r.once != nil {
				return s.orReplay(c, r, err)
			}
			return err
		}
		if route.dry != nil && reflect.TypeOf(answer) == reflect.TypeOf(route.dry) {
			return write(c, ok, answer)
		}
		if rows, ok := answer.(*table); ok {
			c.Set(fiber.HeaderCacheControl, "no-store")
			return s.writeTable(c, route.status, rows)
		}
		return write(c, route.status, answer)
	}
}

// admit finds who asks, and whether they may.
func (s *Server) admit(c *fiber.Ctx, route route, r *request) error {
	switch {
	case route.public:
		return nil
	case route.role != "":
		operator, err := s.authenticateOperator(c)
		if err != nil {
			return err
		}
		c.Locals(localOperator, operator)
		if err := s.spend(c, operator.ID, 0); err != nil {
			return err
		}
		if r.operator = operator; !models.RoleCovers(operator.Role, route.role) {
			return &Error{Code: codeForbidden, Message: fmt.Sprintf("this needs the role %s; the token's role is %s", route.role, operator.Role)}
		}
		return nil
	default:
		key, err := s.authenticate(c)
		if err != nil {
			return err
		}
		c.Locals(localKey, key)
		if err := s.spend(c, key.ID, key.RequestsPerMinute); err != nil {
			return err
		}
		r.key, r.customer = key, key.CustomerID
		return nil
	}
}

// run runs the handler and lets the audit trail say so.
func (s *Server) run(c *fiber.Ctx, route route, r *request) (any, error) {
	if !route.audited() {
		return route.handle(r)
	}
	r.audit = s.newAudit(c, route, r)
	plain := r.ctx
	r.ctx = models.WithAudit(plain, r.audit)
	answer, err := route.handle(r)
	if err == nil {
		// What was done may have taken longer than a request may.
		err = s.store.Audit(context.WithoutCancel(r.ctx))
	}
	r.ctx = plain
	return answer, err
}

// read fills in path parameters, query and body.
func (r *request) read(c *fiber.Ctx, route route) error {
	r.params = map[string]string{}
	for _, name := range c.Route().Params {
		value, err := url.PathUnescape(c.Params(name))
		if err != nil {
			return invalid(name, "%s in the path is not valid percent-encoding", name)
		}
		if name != "number" && !isID(value) && !isGroupName(value) {
			value = "/" // no identifier and no name, so nothing is found under it; what is wrong with it is not the database's business
		}
		r.params[name] = value
	}
	if err := r.readQuery(c, route); err != nil {
		return err
	}
	if route.request == nil {
		return nil
	}
	raw, err := readBody(c, route.bodyOptional)
	if err != nil {
		return err
	}
	if route.raw {
		r.raw = raw
		return checkRaw(raw)
	}
	r.body = reflect.New(reflect.TypeOf(route.request)).Interface()
	if r.given, err = decode(raw, r.body); err != nil {
		return err
	}
	if !route.idempotent() {
		return nil
	}
	return r.readIdempotencyKey(c, raw)
}

func (r *request) readQuery(c *fiber.Ctx, route route) error {
	r.query = map[string]string{}
	for key, value := range c.Context().QueryArgs().All() {
		name := string(key)
		_, twice := r.query[name]
		switch {
		case !route.takes(name):
			return invalid(clip(name), "%s is not a query parameter of this endpoint", clip(name))
		case twice:
			return invalid(name, "%s is given twice", name)
		case !utf8.Valid(value):
			return invalid(name, "%s is not valid UTF-8", name)
		}
		r.query[name] = string(value)
	}
	return nil
}

// checkRaw refuses what is not text.
func checkRaw(raw []byte) error {
	if !utf8.Valid(raw) {
		return &Error{Code: codeInvalidJSON, Message: "the body is not valid JSON: it is not UTF-8"}
	}
	return nil
}

// readBody returns the raw body once its kind is known to be right. fiber's Body is avoided: it unpacks compressed bodies
// without a limit.
func readBody(c *fiber.Ctx, optional bool) ([]byte, error) {
	raw := append([]byte(nil), c.Request().Body()...)
	if len(raw) == 0 && optional {
		return []byte("{}"), nil
	}
	if c.Get(fiber.HeaderContentEncoding) != "" {
		return nil, &Error{Code: codeUnsupportedMedia, Field: fiber.HeaderContentEncoding, Message: "Content-Encoding is not supported; send the body uncompressed"}
	}
	kind, params, err := mime.ParseMediaType(c.Get(fiber.HeaderContentType))
	charset := strings.ToLower(params["charset"])
	if err != nil || kind != fiber.MIMEApplicationJSON || (charset != "" && charset != "utf-8") {
		return nil, &Error{Code: codeUnsupportedMedia, Field: fiber.HeaderContentType, Message: "Content-Type must be application/json"}
	}
	return raw, nil
}

// write sends the answer; a nil answer sends no body.
func write(c *fiber.Ctx, status int, answer any) error {
	// Answers hold secrets now and then, and change all the time: no cache may keep one.
	c.Set(fiber.HeaderCacheControl, "no-store")
	if answer == nil {
		return c.SendStatus(status)
	}
	encoded, ok := answer.(json.RawMessage)
	if !ok {
		var err error
		if encoded, err = json.Marshal(answer); err != nil {
			return fmt.Errorf("encode answer: %w", err)
		}
	}
	c.Set(fiber.HeaderContentType, fiber.MIMEApplicationJSON)
	return c.Status(status).Send(encoded)
}

var requestIDPattern = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)

// setRequestID takes the client's X-Request-Id where it is fit for a log line and makes one otherwise, and returns it in the
// answer.
func setRequestID(c *fiber.Ctx) {
	id := c.Get(headerRequestID)
	if !requestIDPattern.MatchString(id) {
		id = models.NewID("req_")
	}
	c.Locals(localRequestID, id)
	c.Set(headerRequestID, id)
}

func requestID(c *fiber.Ctx) string {
	id, _ := c.Locals(localRequestID).(string)
	return id
}

// bearer returns what the Authorization header holds after the word Bearer, empty where it does not.
func bearer(c *fiber.Ctx) string {
	scheme, secret, _ := strings.Cut(c.Get(fiber.HeaderAuthorization), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(secret)
}

// authenticate finds the key of the bearer header. The comparison in constant time is AuthenticateKey's.
func (s *Server) authenticate(c *fiber.Ctx) (*models.APIKey, error) {
	secret := bearer(c)
	if secret == "" {
		return nil, &Error{Code: codeUnauthorized, Message: "an API key is required: send it in the header Authorization, after the word Bearer"}
	}
	key, err := s.store.AuthenticateKey(c.UserContext(), secret)
	if errors.Is(err, models.ErrNotFound) {
		return nil, &Error{Code: codeUnauthorized, Message: "the API key is not valid"}
	}
	if err != nil {
		return nil, fmt.Errorf("authenticate key: %w", err)
	}
	return key, nil
}

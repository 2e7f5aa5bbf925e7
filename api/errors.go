package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/gofiber/fiber/v2"

	"tandem/billing"
	"tandem/calls"
	"tandem/models"
)

// The codes of the contract (section 7) and those it leaves open. Clients branch on them, so a code is never renamed.
const (
	codeInvalidRequest      = "invalid_request"
	codeInvalidJSON         = "invalid_json"
	codeUnauthorized        = "unauthorized"
	codeForbidden           = "forbidden"
	codeInsufficientBalance = "insufficient_balance"
	codeAccountSuspended    = "account_suspended"
	codeNotFound            = "not_found"
	codeMethodNotAllowed    = "method_not_allowed"
	codeRequestTimeout      = "request_timeout"
	codeGatewayNameExists   = "gateway_name_exists"
	codeInboundIPExists     = "inbound_ip_exists"
	codeNumberExists        = "number_exists"
	codeNameExists          = "name_exists"
	codeImportPlace         = "import_place"
	codeAddressProtected    = "address_protected"
	codeBlockExists         = "block_exists"
	codeBlockLimit          = "block_limit"
	codeKeyNotActive        = "key_not_active"
	codeNoActiveTrunk       = "no_active_trunk"
	codeDestination         = "destination_not_allowed"
	codeConcurrency         = "concurrency_limit_exceeded"
	codeDailyLimit          = "daily_limit_exceeded"
	codeSpendLimit          = "spend_limit_exceeded"
	codeCallNotActive       = "call_not_active"
	codeCallActive          = "call_active"
	codeCallNotQueued       = "call_not_queued"
	codeNoWebhookURL        = "no_webhook_url"
	codeDeliveryPending     = "delivery_pending"
	codeEndpointDisabled    = "endpoint_disabled"
	codeRateLimited         = "rate_limited"
	codeResourceInUse       = "resource_in_use"
	codeIdempotencyConflict = "idempotency_conflict"
	codePayloadTooLarge     = "payload_too_large"
	codeUnsupportedMedia    = "unsupported_media_type"
	codeHeadersTooLarge     = "headers_too_large"
	codeInternalError       = "internal_error"
	codeNoNodeAvailable     = "no_node_available"
	codeUnavailable         = "unavailable"
	codeStorageFull         = "storage_full"
	codeOverloaded          = "overloaded"
)

// errorStatus is the one place where a code gets its HTTP status.
var errorStatus = map[string]int{
	codeInvalidRequest:      http.StatusBadRequest,
	codeInvalidJSON:         http.StatusBadRequest,
	codeUnauthorized:        http.StatusUnauthorized,
	codeForbidden:           http.StatusForbidden,
	codeInsufficientBalance: http.StatusPaymentRequired,
	codeAccountSuspended:    http.StatusForbidden,
	codeNotFound:            http.StatusNotFound,
	codeMethodNotAllowed:    http.StatusMethodNotAllowed,
	codeRequestTimeout:      http.StatusRequestTimeout,
	codeGatewayNameExists:   http.StatusConflict,
	codeInboundIPExists:     http.StatusConflict,
	codeNumberExists:        http.StatusConflict,
	codeNameExists:          http.StatusConflict,
	codeImportPlace:         http.StatusConflict,
	codeAddressProtected:    http.StatusConflict,
	codeBlockExists:         http.StatusConflict,
	codeBlockLimit:          http.StatusConflict,
	codeKeyNotActive:        http.StatusConflict,
	codeNoActiveTrunk:       http.StatusConflict,
	codeDestination:         http.StatusForbidden,
	codeConcurrency:         http.StatusTooManyRequests,
	codeDailyLimit:          http.StatusTooManyRequests,
	codeSpendLimit:          http.StatusForbidden,
	codeCallNotActive:       http.StatusConflict,
	codeCallActive:          http.StatusConflict,
	codeCallNotQueued:       http.StatusConflict,
	codeNoWebhookURL:        http.StatusConflict,
	codeDeliveryPending:     http.StatusConflict,
	codeEndpointDisabled:    http.StatusConflict,
	codeRateLimited:         http.StatusTooManyRequests,
	codeResourceInUse:       http.StatusConflict,
	codeIdempotencyConflict: http.StatusConflict,
	codePayloadTooLarge:     http.StatusRequestEntityTooLarge,
	codeUnsupportedMedia:    http.StatusUnsupportedMediaType,
	codeHeadersTooLarge:     http.StatusRequestHeaderFieldsTooLarge,
	codeInternalError:       http.StatusInternalServerError,
	codeNoNodeAvailable:     http.StatusServiceUnavailable,
	codeUnavailable:         http.StatusServiceUnavailable,
	codeStorageFull:         http.StatusServiceUnavailable,
	codeOverloaded:          http.StatusServiceUnavailable,
}

// How many seconds a client is told to wait before it tries again.
const (
	retryOutage   = 5 // the database is away or full
	retryOverload = 2
	retryDefault  = 1
)

// Error is a failure as the client sees it: one of the contract's codes, a message for people and, where one input is to
// blame, its name. The cause, if any, goes to the log and never to the client.
type Error struct {
	Code    string
	Message string
	Field   string
	// Path is the place below Field, for a field that holds a list of actions.
	Path string
	// RetryAfter is how many seconds to wait before another try, where that is known.
	RetryAfter int
	cause      error
}

// Error implements error with the code and the message, and the cause where there is one.
func (e *Error) Error() string {
	if e.cause != nil {
		return e.Code + ": " + e.Message + ": " + e.cause.Error()
	}
	return e.Code + ": " + e.Message
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.cause }

// Status returns the HTTP status of the error's code.
func (e *Error) Status() int {
	if status, ok := errorStatus[e.Code]; ok {
		return status
	}
	return http.StatusInternalServerError
}

// invalid reports input that breaks a rule of the field it names.
func invalid(field, format string, args ...any) *Error {
	return &Error{Code: codeInvalidRequest, Field: field, Message: fmt.Sprintf(format, args...)}
}

// notFound reports that what the request asked for does not exist, or belongs to somebody else: the two look the same.
func notFound(what string) *Error {
	return &Error{Code: codeNotFound, Message: what + " not found"}
}

// noApplication reports that application_id names no application of the customer's.
func noApplication() *Error {
	return &Error{Code: codeNotFound, Field: "application_id", Message: "application_id names no application of yours"}
}

// orNotFound turns the model's ErrNotFound into a 404 that says what was not found and leaves every other error alone.
func orNotFound(err error, what string) error {
	if errors.Is(err, models.ErrNotFound) {
		return notFound(what)
	}
	return err
}

// inUse says what keeps a resource from being deleted.
func inUse(err error, message string) error {
	if errors.Is(err, models.ErrInUse) {
		return &Error{Code: codeResourceInUse, Message: message, cause: err}
	}
	return err
}

// domainErrors gives the sentinels of the packages below their code. An error that is not here is internal_error.
var domainErrors = []struct {
	err   error
	reply Error
}{
	{models.ErrNotFound, Error{Code: codeNotFound, Message: "not found"}},
	{models.ErrInsufficientBalance, Error{Code: codeInsufficientBalance, Message: "the account balance is too low to create a call"}},
	{models.ErrBalanceRange, Error{Code: codeInvalidRequest, Field: "amount", Message: fmt.Sprintf("amount would make the balance more than %s", billing.FormatAmount(models.MaxBalanceMicros))}},
	{billing.ErrSuspended, Error{Code: codeAccountSuspended, Message: "the account is suspended and begins no calls"}},
	{billing.ErrUnlisted, Error{Code: codeDestination, Field: "to", Message: "there is no rate for this number: calls to it are not possible"}},
	{models.ErrGatewayNameExists, Error{Code: codeGatewayNameExists, Field: "gateway_name", Message: "gateway_name is already in use by another trunk"}},
	{models.ErrInboundIPExists, Error{Code: codeInboundIPExists, Field: "inbound_ip", Message: "inbound_ip is already in use by, or overlaps with, another trunk"}},
	{models.ErrNumberExists, Error{Code: codeNumberExists, Field: "number_e164", Message: "number_e164 is already in use by another DID"}},
	{models.ErrNameExists, Error{Code: codeNameExists, Field: "name", Message: "name is already in use"}},
	{models.ErrImportPlace, Error{Code: codeImportPlace, Field: "record", Message: "record is not where the import stands, or it is not open: its next_record tells"}},
	{models.ErrBlockExists, Error{Code: codeBlockExists, Field: "address", Message: "address is on the list already"}},
	{models.ErrTooManyBlocks, Error{Code: codeBlockLimit, Message: fmt.Sprintf("there are %d blocks in force, or %d exceptions: no more are taken", models.MaxBlocks, models.MaxBlockExceptions)}},
	{models.ErrKeyEnded, Error{Code: codeKeyNotActive, Message: "it is revoked or has expired: make a new one"}},
	{models.ErrInUse, Error{Code: codeResourceInUse, Message: "still in use"}},
	{models.ErrBadCursor, Error{Code: codeInvalidRequest, Field: "cursor", Message: "cursor must be a next_cursor that this list returned"}},
	{models.ErrIdempotencyKeyExists, Error{Code: codeIdempotencyConflict, Field: headerIdempotencyKey, Message: "Idempotency-Key was already used for another request"}},
	{models.ErrDeliveryPending, Error{Code: codeDeliveryPending, Message: "the event is still to be delivered"}},
	{models.ErrEndpointDisabled, Error{Code: codeEndpointDisabled, Message: "the endpoint is disabled; a PATCH of the application that names webhook_url enables it"}},
	{models.ErrNoWebhookURL, Error{Code: codeNoWebhookURL, Message: "the application has no webhook_url, or is deleted"}},
	{models.ErrStorageFull, Error{Code: codeStorageFull, Message: "there is no room left to store anything; try again later", RetryAfter: retryOutage}},
	{models.ErrUnreachable, Error{Code: codeUnavailable, Message: "the database cannot be reached; try again", RetryAfter: retryOutage}},
	{calls.ErrOverloaded, Error{Code: codeOverloaded, Message: "the service has all the work that it can do and takes no more now; try again", RetryAfter: retryOverload}},
	{models.ErrClosed, Error{Code: codeUnavailable, Message: "the service is stopping; try again"}},
	{calls.ErrNoActiveTrunk, Error{Code: codeNoActiveTrunk, Message: "no active outbound trunk is available for the call"}},
	{calls.ErrDestinationNotAllowed, Error{Code: codeDestination, Field: "to", Message: "none of your active outbound trunks may call this number: see their allowed_prefixes, allowed_destinations, denied_destinations and allowed_destination_types"}},
	{calls.ErrNoNode, Error{Code: codeNoNodeAvailable, Message: "no media node is available for the call; try again"}},
	{calls.ErrStopping, Error{Code: codeUnavailable, Message: "the service is stopping; try again"}},
	{calls.ErrCallActive, Error{Code: codeCallActive, Message: "the call has not ended yet"}},
	{calls.ErrCallNotQueued, Error{Code: codeCallNotQueued, Message: "the call has been started already"}},
	{calls.ErrCallNotStarted, Error{Code: codeCallNotActive, Message: "the call has not been started yet"}},
	{calls.ErrCallNotActive, Error{Code: codeCallNotActive, Message: "the call has already ended"}},
	{context.DeadlineExceeded, Error{Code: codeUnavailable, Message: "the request took too long; try again"}},
	{context.Canceled, Error{Code: codeUnavailable, Message: "the service is stopping; try again"}},
}

// fiberErrors gives the failures that fiber and fasthttp report by status, before or instead of a handler, their code.
var fiberErrors = map[int]Error{
	http.StatusNotFound:                    {Code: codeNotFound, Message: "there is no such endpoint"},
	http.StatusMethodNotAllowed:            {Code: codeMethodNotAllowed, Message: "this endpoint does not have that method; the Allow header lists those it has"},
	http.StatusRequestTimeout:              {Code: codeRequestTimeout, Message: "the request did not arrive in time"},
	http.StatusRequestEntityTooLarge:       {Code: codePayloadTooLarge, Message: "the body is too large"},
	http.StatusRequestHeaderFieldsTooLarge: {Code: codeHeadersTooLarge, Message: "the request's headers are too large"},
}

// asError finds what the client is told about err.
func asError(err error) *Error {
	if known := (*Error)(nil); errors.As(err, &known) {
		return known
	}
	if refused := (*calls.RequestError)(nil); errors.As(err, &refused) {
		return &Error{Code: codeInvalidRequest, Field: refused.Field, Message: refused.Error(), cause: err}
	}
	if denied := (*calls.DestinationError)(nil); errors.As(err, &denied) {
		reply := notAllowed("to", denied.Why)
		if denied.Subject == models.SubjectApplication {
			reply.Message = "the application may not call there (" + denied.Why + "): see its allowed_destinations, denied_destinations and allowed_destination_types"
		}
		reply.cause = err
		return reply
	}
	if full := (*models.LimitError)(nil); errors.As(err, &full) {
		reply := limitReached(full)
		reply.cause = err
		return reply
	}
	for _, known := range domainErrors {
		if errors.Is(err, known.err) {
			reply := known.reply
			reply.cause = err
			return &reply
		}
	}
	if status := (*fiber.Error)(nil); errors.As(err, &status) {
		if reply, ok := fiberErrors[status.Code]; ok {
			return &reply
		}
		if status.Code >= 400 && status.Code < 500 {
			return &Error{Code: codeInvalidRequest, Message: "the request is not valid HTTP", cause: err}
		}
	}
	return &Error{Code: codeInternalError, Message: "something went wrong on our side; the request id finds it in our log", cause: err}
}

// errorBody is the contract's error shape (section 7).
type errorBody struct {
	Error errorDetail `json:"error"`
}

type errorDetail struct {
	Code      string `json:"code" doc:"What went wrong, for programs to branch on."`
	Message   string `json:"message" doc:"What went wrong, for people."`
	Field     string `json:"field,omitempty" doc:"The field, query parameter or header to blame, where there is one."`
	Path      string `json:"path,omitempty" doc:"The place below field, where field holds a list of actions: fallback_actions[1].say.text."`
	RequestID string `json:"request_id,omitempty" doc:"The value of X-Request-Id, for support."`
}

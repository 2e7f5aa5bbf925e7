package api

import (
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strconv"

	"github.com/gofiber/fiber/v2"

	"tandem/models"
)

// Limits of what the audit trail keeps of a request.
const (
	// maxAuditValue is the longest value of a field, in bytes of its JSON.
	maxAuditValue = 256
	auditHidden   = "(hidden)"
)

// ownJournal are the groups of customers' routes that the audit trail leaves out: what happens to calls is in their journal, with
// who ended them, and there are many.
var ownJournal = []string{"calls", "conferences", "queues"}

// audited reports whether the audit trail tells of the route: of everything that changes something, but for customers' own
// commands to their calls.
func (r route) audited() bool {
	return r.method != http.MethodGet && (!r.pure || r.traced) && !r.public && (r.role != "" || !slices.Contains(ownJournal, r.tag))
}

// newAudit begins the entry of a request. What it is about is the last of the path's parameters until keep or concerns say
// otherwise.
func (s *Server) newAudit(c *fiber.Ctx, route route, r *request) *models.PendingAudit {
	entry := models.AuditEntry{
		Action: route.id, CustomerID: r.customer, RequestID: requestID(c), Remote: s.clientAddress(c).String(), Detail: auditDetail(route, r),
		CreatedAt: s.store.Now(),
	}
	if names := route.params(); len(names) > 0 {
		entry.ObjectID = r.params[names[len(names)-1]]
	}
	if r.operator != nil {
		entry.ActorKind, entry.ActorID, entry.ActorName = models.ActorOperator, r.operator.ID, r.operator.Name
	} else {
		entry.ActorKind, entry.ActorID, entry.ActorName = models.ActorKey, r.key.ID, r.key.Name
	}
	return &models.PendingAudit{Entry: entry}
}

// concerns has the audit trail name whose what is changed is, and what it is.
func (r *request) concerns(customerID, objectID string) {
	if r.audit != nil {
		r.audit.Entry.CustomerID, r.audit.Entry.ObjectID = customerID, objectID
	}
}

// concernsNumbers has the audit trail name the first of the phone numbers that are changed, and how many there are.
func (r *request) concernsNumbers(customerID string, numbers []string) {
	r.concerns(customerID, numbers[0])
	r.auditNote("count", strconv.Itoa(len(numbers)))
}

// auditNote has the audit trail tell one more thing, of no secret.
func (r *request) auditNote(name, value string) {
	if r.audit == nil {
		return
	}
	detail := map[string]json.RawMessage{}
	if r.audit.Entry.Detail != nil && json.Unmarshal(r.audit.Entry.Detail, &detail) != nil {
		return // what auditDetail has written can be read; the entry is worth having without the note
	}
	detail[name] = json.RawMessage(strconv.Quote(value))
	if encoded, err := json.Marshal(detail); err == nil {
		r.audit.Entry.Detail = encoded
	}
}

// auditAnswer has the audit trail name what a request has made: the id of the answer.
func (r *request) auditAnswer(encoded []byte) {
	var made struct {
		ID string `json:"id"`
	}
	if r.audit != nil && json.Unmarshal(encoded, &made) == nil && made.ID != "" {
		r.audit.Entry.ObjectID = made.ID
	}
}

// secretField matches the names of fields whose values nobody is shown.
var secretField = regexp.MustCompile(`(?i)password|secret|token|credential|api_key|passphrase`)

// auditDetail is what a request asked for: the path's parameters where there are several, and the fields that its body named. Secrets
// are hidden and long values are cut to their length.
func auditDetail(route route, r *request) json.RawMessage {
	detail := map[string]any{}
	if names := route.params(); len(names) > 1 {
		for _, name := range names {
			detail[name] = r.params[name]
		}
	}
	if r.raw != nil {
		detail["bytes"] = len(r.raw)
	}
	if route.request != nil && !route.raw {
		shown, err := json.Marshal(r.body)
		values := map[string]json.RawMessage{}
		if err == nil {
			err = json.Unmarshal(shown, &values)
		}
		if err == nil {
			for name := range r.given {
				detail[name] = auditValue(name, values[name])
			}
		}
	}
	if len(detail) == 0 {
		return nil
	}
	encoded, err := json.Marshal(detail)
	if err != nil {
		return nil // nothing in it can fail to be encoded; the entry is worth having without it
	}
	return encoded
}

func auditValue(name string, value json.RawMessage) any {
	switch {
	case secretField.MatchString(name):
		return auditHidden
	case len(value) == 0:
		return nil
	case len(value) > maxAuditValue:
		return fmt.Sprintf("(%d bytes)", len(value))
	default:
		return value
	}
}

package api

import (
	"encoding/json"
	"path"
	"strings"
	"time"

	"tandem/models"
	"tandem/webhooks"
)

// eventFilters are the query parameters of the journal.
var eventFilters = append([]param{
	{name: "type", kind: "string", doc: "Kinds of events, separated by commas: names such as call.completed, or families such as call.*."},
	{name: "application_id", kind: "string"},
	{name: "call_id", kind: "string"},
	{name: "created_after", kind: "time", doc: "Only events created at or after this time."},
	{name: "created_before", kind: "time", doc: "Only events created at or before this time."},
	paging[0],
}, param{name: "cursor", kind: "string", doc: "next_cursor of the page before; now for the end of the journal: an empty page, whose next_cursor begins with what happens next."})

// listJournal answers with the customer's events, oldest first. Unlike in other lists there is a cursor behind the last page, too:
// what happens next comes behind it.
func (s *Server) listJournal(r *request) (any, error) { return s.journal(r, r.customer) }

// journal answers with the events of a customer, or models.AnyCustomer.
func (s *Server) journal(r *request, customer string) (any, error) {
	page, err := r.page()
	if err != nil {
		return nil, err
	}
	filter, err := r.eventFilter()
	if err != nil {
		return nil, err
	}
	found, err := s.store.Journal(r.ctx, customer, filter, page)
	if err != nil {
		return nil, err
	}
	answer := listOf(found.Events, "", toEvent)
	answer.HasMore, answer.NextCursor = found.More, &found.Next
	return answer, nil
}

// toEvent shows an event as its webhook carries it.
func toEvent(event *models.Event) eventObject { return eventObject{json.RawMessage(event.Body)} }

// eventFilter reads the parameters that narrow events and their deliveries.
func (r *request) eventFilter() (models.EventFilter, error) {
	c := &checks{}
	filter := models.EventFilter{
		ApplicationID: c.id("application_id", r.param("application_id")),
		CallID:        c.id("call_id", r.param("call_id")),
	}
	if err := c.failed(); err != nil {
		return filter, err
	}
	var err error
	if filter.Types, err = eventTypes(r.param("type")); err != nil {
		return filter, err
	}
	filter.CreatedAfter, filter.CreatedBefore, err = r.created()
	return filter, err
}

// created reads the range of times of creation.
func (r *request) created() (after, before *time.Time, err error) {
	if after, err = r.time("created_after"); err != nil {
		return nil, nil, err
	}
	before, err = r.time("created_before")
	return after, before, err
}

// eventTypes reads a list of kinds and families as the kinds of the catalogue that they stand for; nil for all of them.
func eventTypes(value *string) ([]string, error) {
	if value == nil {
		return nil, nil
	}
	chosen, err := webhooks.ParseKinds(strings.Split(*value, ","))
	if err != nil {
		return nil, &Error{Code: codeInvalidRequest, Field: "type", Message: "type " + err.Error()}
	}
	var kinds []string
	for _, kind := range webhooks.Kinds {
		for _, pattern := range chosen {
			if matched, err := path.Match(pattern, kind.Name); err == nil && matched {
				kinds = append(kinds, kind.Name)
				break
			}
		}
	}
	return kinds, nil
}

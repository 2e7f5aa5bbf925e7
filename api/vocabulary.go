package api

import (
	"encoding/json"
	"errors"

	"tandem/actions"
	"tandem/models"
	"tandem/simulator"
	"tandem/webhooks"
)

// verdictObject says whether an answer_url might answer with a body.
type verdictObject struct {
	Valid     bool            `json:"valid"`
	Actions   json.RawMessage `json:"actions,omitempty" raw:"list" doc:"When valid: the actions in their canonical form: the names of this version, defaults filled in, false left out."`
	Variables json.RawMessage `json:"variables,omitempty" raw:"object" doc:"When valid: the variables that come with them."`
	Error     *verdictError   `json:"error,omitempty" doc:"When not valid: what is wrong, and where."`
}

// verdictError is what is wrong with a list of actions.
type verdictError struct {
	Index   int    `json:"index" doc:"Position of the action in the list, from 0; -1 when the fault is in none."`
	Action  string `json:"action,omitempty"`
	Field   string `json:"field,omitempty"`
	Path    string `json:"path,omitempty" doc:"The place in full, such as actions[2].gather.prompt[0].say.text."`
	Message string `json:"message" doc:"What is allowed, and what was there."`
	Allowed string `json:"allowed,omitempty"`
	Got     string `json:"got,omitempty"`
}

func (s *Server) actionSchema(*request) (any, error) { return actions.Schema(), nil }

// validateActions reads a body as an answer_url's reply. That it is wrong is an answer like any other.
func (s *Server) validateActions(r *request) (any, error) {
	reply, err := actions.Parse(r.raw)
	var refused *actions.Error
	if errors.As(err, &refused) {
		return verdictObject{Error: &verdictError{
			Index: refused.Index, Action: refused.Action, Field: refused.Field, Path: refused.Path, Message: refused.Message,
			Allowed: refused.Allowed, Got: refused.Got,
		}}, nil
	}
	if err != nil {
		return nil, err
	}
	list, err := actions.Encode(reply.Actions)
	if err != nil {
		return nil, err
	}
	variables, err := json.Marshal(orEmpty(reply.Variables))
	if err != nil {
		return nil, err
	}
	return verdictObject{Valid: true, Actions: list, Variables: variables}, nil
}

func (s *Server) simulate(r *request) (any, error) {
	app, err := s.store.Application(r.ctx, r.customer, r.params["id"])
	if err != nil {
		return nil, orNotFound(err, "application")
	}
	script, err := simulator.ParseScript(r.raw)
	var refused *simulator.FieldError
	if errors.As(err, &refused) {
		return nil, &Error{Code: codeInvalidRequest, Field: refused.Field, Message: refused.Error()}
	}
	if err != nil {
		return nil, err
	}
	// The simulator bounds its run itself: an answer_url that is slow to the last takes longer than a request of ours may.
	report, err := s.simulator.Run(s.base, *app, script)
	if errors.Is(err, simulator.ErrBusy) {
		return nil, &Error{Code: codeRateLimited, Message: "too many simulations run at this moment; try again", RetryAfter: 1}
	}
	return report, err
}

// eventSent names an event that is on its way.
type eventSent struct {
	EventID string `json:"event_id" doc:"The id of the event, as the webhook carries it."`
}

func (s *Server) testWebhook(r *request) (any, error) {
	var answer eventSent
	err := s.store.InTx(r.ctx, func(tx *models.Store) error {
		app, err := tx.Application(r.ctx, r.customer, r.params["id"])
		if err != nil {
			return orNotFound(err, "application")
		}
		if app.WebhookURL == "" {
			return &Error{Code: codeNoWebhookURL, Field: "webhook_url", Message: "the application has no webhook_url to send to"}
		}
		event, err := webhooks.EmitTest(r.ctx, tx, app)
		if err != nil {
			return err
		}
		answer = eventSent{EventID: event.ID}
		return r.keep(tx, accepted, answer)
	})
	return answer, err
}

package api

import (
	"encoding/json"
	"time"

	"tandem/actions"
	"tandem/models"
	"tandem/webhooks"
)

// secretOverlap is how long the old webhook secret signs along after a rotation (DESIGN §7).
const secretOverlap = 24 * time.Hour

type applicationCreate struct {
	Name          *string `json:"name" required:"true" max:"100" doc:"A name for people." example:"Front desk"`
	AnswerURL     *string `json:"answer_url" required:"true" max:"2048" format:"uri" doc:"Asked for call actions; must answer quickly with valid JSON." example:"https://example.com/answer"`
	WebhookURL    *string `json:"webhook_url" max:"2048" format:"uri" doc:"Receives signed events. Without it no events are sent." example:"https://example.com/events"`
	FallbackURL   *string `json:"fallback_url" max:"2048" format:"uri" doc:"Asked for call actions when answer_url fails."`
	NoticeURL     *string `json:"balance_notice_url" max:"2048" format:"uri" doc:"A sound (WAV) that both sides hear some 20 s before a call ends because the balance does not pay for it any longer."`
	WebhookSecret *string `json:"webhook_secret" min:"1" max:"255" doc:"Signs the events; never returned. Without it one is made, and rotate-secret hands out a new one."`
	applicationLists
	callLimits
}

// applicationLists are the fields of an application that hold lists.
type applicationLists struct {
	FallbackActions json.RawMessage `json:"fallback_actions" raw:"list" nullable:"true" doc:"Performed when neither answer_url nor fallback_url gives actions: callers reach somebody while your server is away. null removes them."`
	WaitActions     json.RawMessage `json:"wait_actions" raw:"list" nullable:"true" doc:"Heard by an answered caller after two seconds of waiting for your server: say, play and pause, 1 to 20. null removes them."`
	Events          []string        `json:"events" nullable:"true" doc:"The kinds of events that are sent, such as call.completed, call.* or *. null is the default: all but call.dtmf and call.action_completed."`
}

type applicationUpdate struct {
	Name        *string `json:"name" max:"100"`
	AnswerURL   *string `json:"answer_url" max:"2048" format:"uri"`
	WebhookURL  *string `json:"webhook_url" max:"2048" format:"uri" nullable:"true" doc:"null stops the events."`
	FallbackURL *string `json:"fallback_url" max:"2048" format:"uri" nullable:"true" doc:"null removes it."`
	NoticeURL   *string `json:"balance_notice_url" max:"2048" format:"uri" nullable:"true" doc:"null removes it."`
	applicationLists
	callLimits
}

// applicationObject is the contract's Application (section 2.3). It has no webhook_secret: that is never returned.
type applicationObject struct {
	ID              string          `json:"id" example:"app_01jd3v5q8n6w4x2y0z9a8b7c6d"`
	CustomerID      string          `json:"customer_id"`
	Name            string          `json:"name"`
	AnswerURL       string          `json:"answer_url"`
	WebhookURL      string          `json:"webhook_url"`
	FallbackURL     *string         `json:"fallback_url"`
	NoticeURL       *string         `json:"balance_notice_url"`
	FallbackActions json.RawMessage `json:"fallback_actions" raw:"list" nullable:"true"`
	WaitActions     json.RawMessage `json:"wait_actions" raw:"list" nullable:"true"`
	Events          *[]string       `json:"events" doc:"null is the default set."`
	CreatedAt       string          `json:"created_at" format:"date-time"`
	UpdatedAt       string          `json:"updated_at" format:"date-time"`
	callBounds
}

// applicationCreated is the answer to the creation alone: it holds the key, once.
type applicationCreated struct {
	applicationObject
	APIKey string `json:"api_key" doc:"The application's bearer secret. Shown this once; save it."`
}

type secretRotate struct {
	WebhookSecret *string `json:"webhook_secret" min:"1" max:"255" doc:"The new secret. Without it one is made and returned."`
}

type secretRotated struct {
	WebhookSecret      string `json:"webhook_secret,omitempty" doc:"The secret that was made. Shown this once, and not at all when the request brought its own."`
	PreviousValidUntil string `json:"previous_valid_until" format:"date-time" doc:"Until then events carry a second signature, made with the old secret."`
}

func toApplication(a *models.Application) applicationObject {
	return applicationObject{
		ID: a.ID, CustomerID: a.CustomerID, Name: a.Name, AnswerURL: a.AnswerURL, WebhookURL: a.WebhookURL,
		FallbackURL: orNil(a.FallbackURL), NoticeURL: orNil(a.BalanceNoticeURL), FallbackActions: orNull(a.FallbackActions), WaitActions: orNull(a.WaitActions), Events: eventKinds(a),
		CreatedAt: stamp(a.CreatedAt), UpdatedAt: stamp(a.UpdatedAt), callBounds: toCallBounds(&a.Limits),
	}
}

// orNull shows a list that is not there as null.
func orNull(raw json.RawMessage) json.RawMessage {
	if len(raw) == 0 {
		return json.RawMessage("null")
	}
	return raw
}

// eventKinds are the kinds that an application chose, nil for the default set.
func eventKinds(a *models.Application) *[]string {
	if a.EventKinds == nil {
		return nil
	}
	return &a.EventKinds
}

// apply checks the lists that a body named and sets them.
func (l *applicationLists) apply(r *request, app *models.Application) error {
	fallback, err := actionList("fallback_actions", l.FallbackActions, func(raw json.RawMessage) ([]actions.Action, error) {
		return actions.ParseList(raw, "fallback_actions")
	})
	if err != nil {
		return err
	}
	wait, err := actionList("wait_actions", l.WaitActions, actions.ParseWait)
	if err != nil {
		return err
	}
	var kinds []string
	if l.Events != nil {
		if kinds, err = webhooks.ParseKinds(l.Events); err != nil {
			return &Error{Code: codeInvalidRequest, Field: "events", Message: "events " + err.Error()}
		}
	}
	change(r, "fallback_actions", &app.FallbackActions, fallback)
	change(r, "wait_actions", &app.WaitActions, wait)
	change(r, "events", &app.EventKinds, kinds)
	return nil
}

// orNil shows an empty value as null.
func orNil(value string) *string {
	if value == "" {
		return nil
	}
	return &value
}

func (s *Server) createApplication(r *request) (any, error) {
	in := body[applicationCreate](r)
	c := &checks{}
	app := &models.Application{CustomerID: r.customer, Name: c.name("name", in.Name)}
	c.required("answer_url", in.AnswerURL)
	app.AnswerURL = c.webURL("answer_url", in.AnswerURL)
	app.WebhookURL = c.webURL("webhook_url", in.WebhookURL)
	app.FallbackURL = c.webURL("fallback_url", in.FallbackURL)
	app.BalanceNoticeURL = c.webURL("balance_notice_url", in.NoticeURL)
	app.WebhookSecret = models.Secret(c.webhookSecret(in.WebhookSecret))
	c.callLimits(&in.callLimits, r.given, &app.Limits)
	if err := c.failed(); err != nil {
		return nil, err
	}
	if err := in.apply(r, app); err != nil {
		return nil, err
	}
	if app.WebhookSecret == "" {
		app.WebhookSecret = models.Secret(webhooks.NewSecret())
	}
	var answer applicationCreated
	err := s.store.InTx(r.ctx, func(tx *models.Store) error {
		app := *app // this function may run again, from the start
		if err := tx.CreateApplication(r.ctx, &app); err != nil {
			return err
		}
		secret, err := tx.CreateAPIKey(r.ctx, &models.APIKey{CustomerID: r.customer, ApplicationID: &app.ID, Name: app.Name}, "")
		if err != nil {
			return err
		}
		answer = applicationCreated{applicationObject: toApplication(&app), APIKey: secret}
		return r.keep(tx, created, answer)
	})
	return answer, err
}

// webhookSecret accepts a secret of the customer's choice; a header or a log must be able to hold it.
func (c *checks) webhookSecret(value *string) string {
	if value != nil && *value == "" {
		c.refuse("webhook_secret", "webhook_secret must not be empty")
		return ""
	}
	return c.text("webhook_secret", value, maxSecretLength)
}

func (s *Server) listApplications(r *request) (any, error) {
	page, err := r.page()
	if err != nil {
		return nil, err
	}
	rows, next, err := s.store.ListApplications(r.ctx, r.customer, page)
	if err != nil {
		return nil, err
	}
	return listOf(rows, next, toApplication), nil
}

func (s *Server) getApplication(r *request) (any, error) {
	app, err := s.store.Application(r.ctx, r.customer, r.params["id"])
	if err != nil {
		return nil, orNotFound(err, "application")
	}
	return toApplication(app), nil
}

func (s *Server) updateApplication(r *request) (any, error) {
	in := body[applicationUpdate](r)
	c := &checks{}
	var name string
	if r.given.has("name") {
		name = c.name("name", in.Name)
	}
	answerURL := c.webURL("answer_url", in.AnswerURL)
	webhookURL := c.webURL("webhook_url", in.WebhookURL)
	fallbackURL := c.webURL("fallback_url", in.FallbackURL)
	noticeURL := c.webURL("balance_notice_url", in.NoticeURL)
	if err := c.failed(); err != nil {
		return nil, err
	}
	var answer applicationObject
	err := s.store.InTx(r.ctx, func(tx *models.Store) error {
		app, err := tx.EditApplication(r.ctx, r.customer, r.params["id"])
		if err != nil {
			return orNotFound(err, "application")
		}
		change(r, "name", &app.Name, name)
		change(r, "answer_url", &app.AnswerURL, answerURL)
		change(r, "webhook_url", &app.WebhookURL, webhookURL)
		change(r, "fallback_url", &app.FallbackURL, fallbackURL)
		change(r, "balance_notice_url", &app.BalanceNoticeURL, noticeURL)
		if err := in.apply(r, app); err != nil {
			return err
		}
		c := &checks{}
		c.callLimits(&in.callLimits, r.given, &app.Limits)
		if err := c.failed(); err != nil {
			return err
		}
		if err := tx.UpdateApplication(r.ctx, app); err != nil {
			return err
		}
		if r.given.has("webhook_url") {
			// Whoever says where to send has mended the endpoint: what waits for it is due again, under the same ids.
			if err := tx.EnableEndpoint(r.ctx, app.ID); err != nil {
				return err
			}
		}
		answer = toApplication(app)
		return nil
	})
	return answer, err
}

// change sets target to value where the body named the field.
func change[T any](r *request, field string, target *T, value T) {
	if r.given.has(field) {
		*target = value
	}
}

func (s *Server) deleteApplication(r *request) (any, error) {
	err := s.store.DeleteApplication(r.ctx, r.customer, r.params["id"])
	return nil, inUse(orNotFound(err, "application"), "the application still has live calls, DIDs or trunks")
}

func (s *Server) rotateSecret(r *request) (any, error) {
	in := body[secretRotate](r)
	c := &checks{}
	secret := c.webhookSecret(in.WebhookSecret)
	if err := c.failed(); err != nil {
		return nil, err
	}
	answer := secretRotated{}
	if secret == "" {
		secret = webhooks.NewSecret()
		answer.WebhookSecret = secret
	}
	err := s.store.InTx(r.ctx, func(tx *models.Store) error {
		if err := tx.RotateWebhookSecret(r.ctx, r.customer, r.params["id"], models.Secret(secret), secretOverlap); err != nil {
			return orNotFound(err, "application")
		}
		answer.PreviousValidUntil = stamp(tx.Now().Add(secretOverlap))
		return r.keep(tx, ok, answer)
	})
	return answer, err
}

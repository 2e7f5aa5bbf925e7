package api

import (
	"errors"
	"net/http"
	"strings"
	"time"

	"tandem/models"
)

// deckObject is a list of rates.
type deckObject struct {
	ID        string `json:"id" example:"deck_01jd3v5q8n6w4x2y0z9a8b7c6d"`
	Name      string `json:"name"`
	Currency  string `json:"currency" example:"EUR"`
	IsDefault bool   `json:"is_default" doc:"Whether it is that of customers of its currency who have none of their own."`
	Unlisted  string `json:"unlisted" enum:"next,refuse" doc:"What becomes of a number that it has no rate for: the next deck is asked, or the call is refused."`
	CreatedAt string `json:"created_at" format:"date-time"`
	UpdatedAt string `json:"updated_at" format:"date-time"`
}

// deckDetail is a deck with what it has, and who has it.
type deckDetail struct {
	deckObject
	Rates     int64 `json:"rates" doc:"How many rates it has, those that are over too."`
	Customers int64 `json:"customers" doc:"How many customers have it for their own."`
	Trunks    int64 `json:"trunks" doc:"How many trunks have it for their own."`
}

type deckCreate struct {
	Name      *string `json:"name" required:"true" max:"100" doc:"No other deck has it."`
	Currency  *string `json:"currency" pattern:"^[A-Z]{3}$" doc:"ISO 4217 code. Default: the configured currency." example:"EUR"`
	IsDefault *bool   `json:"is_default" doc:"True takes it from the deck of its currency that was the default one."`
	Unlisted  *string `json:"unlisted" enum:"next,refuse" doc:"Default next."`
}

type deckUpdate struct {
	Name      *string `json:"name" max:"100"`
	IsDefault *bool   `json:"is_default" doc:"True takes it from the deck of its currency that was the default one."`
	Unlisted  *string `json:"unlisted" enum:"next,refuse"`
}

type rateUpdate struct {
	ValidTo *string `json:"valid_to" required:"true" nullable:"true" doc:"When it ends, at the latest where the next rate of the prefix begins; null: only there." example:"2026-03-01"`
}

type deckOfUpdate struct {
	RateDeckID *string `json:"rate_deck_id" required:"true" nullable:"true" doc:"A deck in the currency of the customer; null takes it away."`
}

// deckOfObject says which deck somebody has.
type deckOfObject struct {
	ID         string  `json:"id" doc:"The customer, or the trunk."`
	RateDeckID *string `json:"rate_deck_id"`
}

var rateFilters = append([]param{
	{name: "direction", kind: "string", enum: []string{models.Outbound, models.Inbound}},
	{name: "prefix", kind: "string", doc: "Only rates whose prefix begins so."},
	{name: "number", kind: "string", doc: "Only rates that the number could get."},
	{name: "on", kind: "string", doc: "Only rates that are valid on a day or at a moment."},
}, paging...)

func (s *Server) operatorRateRoutes() []route {
	return []route{
		{method: http.MethodPost, path: "/operator/v1/rate-decks", id: "createRateDeck", tag: "rates", summary: "Create a rate deck",
			role: models.RoleAdmin, request: deckCreate{}, status: created, response: deckObject{}, handle: s.createRateDeck, codes: []string{codeNameExists}},
		{method: http.MethodGet, path: "/operator/v1/rate-decks", id: "listRateDecks", tag: "rates", summary: "List rate decks, newest first",
			role: models.RoleViewer, query: append([]param{{name: "name", kind: "string"}, {name: "currency", kind: "string"}}, paging...), status: ok,
			response: list[deckObject]{}, handle: s.listRateDecks},
		{method: http.MethodGet, path: "/operator/v1/rate-decks/:id", id: "getRateDeck", tag: "rates", summary: "Get a rate deck",
			role: models.RoleViewer, status: ok, response: deckDetail{}, handle: s.getRateDeck},
		{method: http.MethodPatch, path: "/operator/v1/rate-decks/:id", id: "updateRateDeck", tag: "rates", summary: "Change a rate deck",
			details: "It counts for calls that begin from then on: the others keep what they were promised.",
			role:    models.RoleAdmin, request: deckUpdate{}, status: ok, response: deckObject{}, handle: s.updateRateDeck, codes: []string{codeNameExists}},
		{method: http.MethodDelete, path: "/operator/v1/rate-decks/:id", id: "deleteRateDeck", tag: "rates", summary: "Delete a rate deck with its rates",
			details: "Calls keep what they were promised.",
			role:    models.RoleAdmin, status: noContent, handle: s.deleteRateDeck, codes: []string{codeResourceInUse}},
		{method: http.MethodGet, path: "/operator/v1/rate-decks/:id/rates", id: "listRates", tag: "rates", summary: "List the rates of a deck, by direction, prefix and time",
			role: models.RoleViewer, query: rateFilters, status: ok, response: list[deckRateObject]{}, handle: s.listRates},
		{method: http.MethodPost, path: "/operator/v1/rate-decks/:id/rates", id: "setRate", tag: "rates", summary: "Set the rate of a prefix",
			details: "It ends the one that is valid when it begins, and takes the place of one that begins at the same moment.",
			role:    models.RoleAdmin, request: rateCreate{}, status: created, response: deckRateObject{}, handle: s.setRate},
		{method: http.MethodGet, path: "/operator/v1/rates/test", id: "testRate", tag: "rates", summary: "Say what a call would cost, and why",
			details: "Which decks are asked, what each says, and what calls of some lengths cost. No call is made.",
			role:    models.RoleViewer, query: rateTestQuery, status: ok, response: rateTestObject{}, handle: s.testRate, codes: []string{codeNotFound}},
		{method: http.MethodPatch, path: "/operator/v1/rates/:id", id: "endRate", tag: "rates", summary: "Say when a rate ends",
			role: models.RoleAdmin, request: rateUpdate{}, status: ok, response: deckRateObject{}, handle: s.endRate},
		{method: http.MethodDelete, path: "/operator/v1/rates/:id", id: "deleteRate", tag: "rates", summary: "Delete a rate",
			details: "One that it had ended stays ended.",
			role:    models.RoleAdmin, status: noContent, handle: s.deleteRate},
		{method: http.MethodPatch, path: "/operator/v1/customers/:id/rate-deck", id: "setCustomerDeck", tag: "rates", summary: "Give a customer a rate deck",
			role: models.RoleAdmin, request: deckOfUpdate{}, status: ok, response: deckOfObject{}, handle: s.setCustomerDeck},
		{method: http.MethodPatch, path: "/operator/v1/trunks/:id/rate-deck", id: "setTrunkDeck", tag: "rates", summary: "Give a trunk a rate deck",
			details: "It is asked before that of the customer, for what goes over the trunk.",
			role:    models.RoleAdmin, request: deckOfUpdate{}, status: ok, response: deckOfObject{}, handle: s.setTrunkDeck},
	}
}

func toDeck(d *models.RateDeck) deckObject {
	return deckObject{
		ID: d.ID, Name: d.Name, Currency: d.Currency, IsDefault: d.IsDefault, Unlisted: d.Unlisted, CreatedAt: stamp(d.CreatedAt), UpdatedAt: stamp(d.UpdatedAt),
	}
}

// currencyCode accepts an ISO 4217 code.
func (c *checks) currencyCode(field string, value *string) string {
	if value == nil {
		return ""
	}
	if !currencyPattern.MatchString(*value) {
		c.refuse(field, "%s must be an ISO 4217 code such as EUR", field)
	}
	return *value
}

func (s *Server) createRateDeck(r *request) (any, error) {
	in := body[deckCreate](r)
	c := &checks{}
	deck := models.RateDeck{
		Name: c.name("name", in.Name), Currency: s.currency, IsDefault: in.IsDefault != nil && *in.IsDefault,
		Unlisted: c.oneOf("unlisted", in.Unlisted, models.UnlistedNext, models.UnlistedRefuse),
	}
	change(r, "currency", &deck.Currency, c.currencyCode("currency", in.Currency))
	if err := c.failed(); err != nil {
		return nil, err
	}
	var answer deckObject
	err := s.store.InTx(r.ctx, func(tx *models.Store) error {
		row := deck
		if err := tx.CreateRateDeck(r.ctx, &row); err != nil {
			return err
		}
		answer = toDeck(&row)
		r.concerns("", row.ID)
		return nil
	})
	return answer, err
}

func (s *Server) listRateDecks(r *request) (any, error) {
	page, err := r.page()
	if err != nil {
		return nil, err
	}
	c := &checks{}
	name, currency := c.text("name", r.param("name"), maxNameLength), c.currencyCode("currency", r.param("currency"))
	if err := c.failed(); err != nil {
		return nil, err
	}
	rows, next, err := s.store.RateDecks(r.ctx, name, currency, page)
	if err != nil {
		return nil, err
	}
	return listOf(rows, next, toDeck), nil
}

func (s *Server) getRateDeck(r *request) (any, error) {
	deck, err := s.store.RateDeck(r.ctx, r.params["id"])
	if err != nil {
		return nil, orNotFound(err, "rate deck")
	}
	use, err := s.store.DeckUse(r.ctx, deck.ID)
	if err != nil {
		return nil, err
	}
	return deckDetail{deckObject: toDeck(deck), Rates: use.Rates, Customers: use.Customers, Trunks: use.Trunks}, nil
}

func (s *Server) updateRateDeck(r *request) (any, error) {
	in := body[deckUpdate](r)
	c := &checks{}
	unlisted := c.oneOf("unlisted", in.Unlisted, models.UnlistedNext, models.UnlistedRefuse)
	name := ""
	if r.given.has("name") {
		name = c.name("name", in.Name)
	}
	if err := c.failed(); err != nil {
		return nil, err
	}
	var answer deckObject
	err := s.store.InTx(r.ctx, func(tx *models.Store) error {
		deck, err := tx.EditRateDeck(r.ctx, r.params["id"])
		if err != nil {
			return orNotFound(err, "rate deck")
		}
		change(r, "name", &deck.Name, name)
		change(r, "unlisted", &deck.Unlisted, unlisted)
		if in.IsDefault != nil {
			deck.IsDefault = *in.IsDefault
		}
		if err := tx.UpdateRateDeck(r.ctx, deck); err != nil {
			return err
		}
		answer = toDeck(deck)
		return nil
	})
	return answer, err
}

func (s *Server) deleteRateDeck(r *request) (any, error) {
	err := s.store.DeleteRateDeck(r.ctx, r.params["id"])
	return nil, inUse(orNotFound(err, "rate deck"), "the deck is a customer's or a trunk's, or the default one: give them another one first")
}

func (s *Server) listRates(r *request) (any, error) {
	page, err := r.page()
	if err != nil {
		return nil, err
	}
	c := &checks{}
	filter := models.RateFilter{Direction: c.oneOf("direction", r.param("direction"), models.Outbound, models.Inbound), On: c.moment("on", r.param("on"))}
	if prefix := r.param("prefix"); prefix != nil {
		text := strings.TrimSpace(*prefix) // a plus that was not escaped
		filter.Prefix = c.prefix("prefix", &text)
	}
	if r.param("number") != nil {
		filter.Number = c.dialled("number", r.param("number"))
	}
	if err := c.failed(); err != nil {
		return nil, err
	}
	if _, err := s.store.RateDeck(r.ctx, r.params["id"]); err != nil {
		return nil, orNotFound(err, "rate deck")
	}
	rows, next, err := s.store.ListRates(r.ctx, r.params["id"], filter, page)
	if err != nil {
		return nil, err
	}
	return listOf(rows, next, toDeckRate), nil
}

func (s *Server) setRate(r *request) (any, error) {
	c := &checks{}
	rate := c.rate(body[rateCreate](r), s.store.Now().Truncate(time.Second))
	if err := c.failed(); err != nil {
		return nil, err
	}
	var answer deckRateObject
	err := s.store.InTx(r.ctx, func(tx *models.Store) error {
		rows := []models.DeckRate{rate}
		if _, err := tx.PutRates(r.ctx, r.params["id"], rows); err != nil {
			return orNotFound(err, "rate deck")
		}
		answer = toDeckRate(&rows[0])
		r.concerns("", rows[0].ID)
		return nil
	})
	return answer, err
}

func (s *Server) endRate(r *request) (any, error) {
	c := &checks{}
	if !r.given.has("valid_to") {
		c.refuse("valid_to", "valid_to is required")
	}
	at := c.moment("valid_to", body[rateUpdate](r).ValidTo)
	if err := c.failed(); err != nil {
		return nil, err
	}
	rate, err := s.store.EndRate(r.ctx, r.params["id"], at)
	if errors.Is(err, models.ErrRateEnd) {
		return nil, invalid("valid_to", "valid_to must be after the rate begins; a rate that is never to be valid can be deleted")
	}
	if err != nil {
		return nil, orNotFound(err, "rate")
	}
	return toDeckRate(rate), nil
}

func (s *Server) deleteRate(r *request) (any, error) {
	err := s.store.InTx(r.ctx, func(tx *models.Store) error {
		rate, err := tx.DeckRateByID(r.ctx, r.params["id"])
		if err != nil {
			return err
		}
		// Nothing else will say what it was.
		price := toDeckRate(rate)
		for name, value := range map[string]string{"deck_id": price.DeckID, "direction": price.Direction, "prefix": price.Prefix, "per_minute": price.PerMinute} {
			r.auditNote(name, value)
		}
		return tx.DeleteRate(r.ctx, rate.ID)
	})
	return nil, orNotFound(err, "rate")
}

// deckOf accepts the deck that a request assigns, empty for none.
func deckOf(r *request) (string, error) {
	in := body[deckOfUpdate](r)
	c := &checks{}
	if !r.given.has("rate_deck_id") {
		c.refuse("rate_deck_id", "rate_deck_id is required")
	}
	id := c.id("rate_deck_id", in.RateDeckID)
	return id, c.failed()
}

// deckAssigned answers with the deck that somebody has now, or says why not; what names who it is for.
func deckAssigned(id, deck, what string, err error) (any, error) {
	switch {
	case errors.Is(err, models.ErrDeckCurrency):
		return nil, &Error{Code: codeInvalidRequest, Field: "rate_deck_id", Message: "rate_deck_id is a deck in another currency than the customer's", cause: err}
	case err != nil:
		return nil, orNotFound(err, what)
	case deck == "":
		return deckOfObject{ID: id}, nil
	}
	return deckOfObject{ID: id, RateDeckID: &deck}, nil
}

// deckThere refuses a deck that is not there.
func (s *Server) deckThere(r *request, id string) error {
	if id == "" {
		return nil
	}
	_, err := s.store.RateDeck(r.ctx, id)
	if errors.Is(err, models.ErrNotFound) {
		return &Error{Code: codeNotFound, Field: "rate_deck_id", Message: "rate_deck_id names no rate deck"}
	}
	return err
}

func (s *Server) setCustomerDeck(r *request) (any, error) {
	deck, err := deckOf(r)
	if err != nil {
		return nil, err
	}
	if err := s.deckThere(r, deck); err != nil {
		return nil, err
	}
	id := r.params["id"]
	r.concerns(id, id)
	return deckAssigned(id, deck, "customer", s.store.SetCustomerDeck(r.ctx, id, deck))
}

func (s *Server) setTrunkDeck(r *request) (any, error) {
	deck, err := deckOf(r)
	if err != nil {
		return nil, err
	}
	if err := s.deckThere(r, deck); err != nil {
		return nil, err
	}
	trunk, err := s.store.TrunkByID(r.ctx, r.params["id"])
	if err != nil {
		return nil, orNotFound(err, "trunk")
	}
	r.concerns(trunk.CustomerID, trunk.ID)
	return deckAssigned(trunk.ID, deck, "trunk", s.store.SetTrunkDeck(r.ctx, trunk.CustomerID, trunk.ID, deck))
}

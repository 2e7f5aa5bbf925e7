package api

import (
	"context"
	"time"

	"tandem/models"
)

// entryObject is one change of a balance, as its customer sees it.
type entryObject struct {
	ID            string  `json:"id" example:"led_01jd3v5q8n6w4x2y0z9a8b7c6d"`
	Kind          string  `json:"kind" enum:"topup,call,adjust" doc:"topup: a payment; call: what a call cost; adjust: a correction by the operator."`
	Amount        string  `json:"amount" doc:"In units of the currency, exact to six decimals; negative where money leaves." example:"-0.010000"`
	AmountMicros  int64   `json:"amount_micros"`
	Balance       string  `json:"balance" doc:"The balance after it: that of the entry before it and its own amount." example:"9.990000"`
	BalanceMicros int64   `json:"balance_micros"`
	CallID        *string `json:"call_id" doc:"The call that it is for."`
	Note          string  `json:"note"`
	CreatedAt     string  `json:"created_at" format:"date-time" doc:"For what a call cost the time of its settlement."`
}

func toEntry(e *models.LedgerEntry) entryObject {
	return entryObject{
		ID: e.ID, Kind: e.Kind, Amount: amount(e.AmountMicros), AmountMicros: e.AmountMicros, Balance: amount(e.BalanceMicros), BalanceMicros: e.BalanceMicros,
		CallID: e.CallID, Note: e.Note, CreatedAt: stamp(e.CreatedAt),
	}
}

var ledgerFilters = append(append([]param{
	{name: "kind", kind: "string", enum: ledgerKinds},
	{name: "call_id", kind: "string"},
	{name: "created_after", kind: "time", doc: "Only entries of this time or later."},
	{name: "created_before", kind: "time", doc: "Only entries of this time or earlier."},
}, paging...), formats...)

var ledgerKinds = []string{models.LedgerTopup, models.LedgerCall, models.LedgerAdjust}

const ledgerDetails = "In the order in which the balance changed. With format=csv all entries that the filters let pass, not a page of them: limit and cursor do not go with it."

func (s *Server) getLedger(r *request) (any, error) {
	customer, err := s.store.Customer(r.ctx, r.customer)
	if err != nil {
		return nil, orNotFound(err, "customer")
	}
	return s.ledgerOf(r, customer, ledgerHead, func(e *models.LedgerEntry) []string { return ledgerCells(customer, e) },
		func(rows []models.LedgerEntry, next string) any { return listOf(rows, next, toEntry) })
}

// ledgerHead are the columns of a ledger.
var ledgerHead = []string{"id", "created_at", "kind", "amount", "balance", "currency", "call_id", "note"}

func ledgerCells(customer *models.Customer, e *models.LedgerEntry) []string {
	return []string{e.ID, stamp(e.CreatedAt), e.Kind, amount(e.AmountMicros), amount(e.BalanceMicros), customer.Currency, cellOrNone(e.CallID), cell(e.Note)}
}

func (r *request) ledgerFilter() (models.LedgerFilter, error) {
	c := &checks{}
	filter := models.LedgerFilter{Kind: c.oneOf("kind", r.param("kind"), ledgerKinds...), CallID: c.id("call_id", r.param("call_id"))}
	if err := c.failed(); err != nil {
		return filter, err
	}
	after, before, err := r.created()
	if err != nil {
		return filter, err
	}
	filter.From = after
	if before != nil {
		// The moment itself is meant, and the clock of the database counts microseconds.
		end := before.Add(time.Microsecond)
		filter.Before = &end
	}
	return filter, nil
}

// ledgerOf answers with a page of a customer's ledger, or with all of it as a table.
func (s *Server) ledgerOf(r *request, customer *models.Customer, head []string, cells func(*models.LedgerEntry) []string,
	page func(rows []models.LedgerEntry, next string) any,
) (any, error) {
	filter, err := r.ledgerFilter()
	if err != nil {
		return nil, err
	}
	format, err := r.format()
	if err != nil {
		return nil, err
	}
	if format == formatCSV {
		return s.ledgerTable(r, customer, filter, head, cells)
	}
	asked, err := r.page()
	if err != nil {
		return nil, err
	}
	rows, next, err := s.store.ListLedger(r.ctx, customer.ID, filter, asked)
	if err != nil {
		return nil, err
	}
	return page(rows, next), nil
}

func (s *Server) ledgerTable(r *request, customer *models.Customer, filter models.LedgerFilter, head []string, cells func(*models.LedgerEntry) []string) (any, error) {
	for _, name := range []string{"limit", "cursor"} {
		if r.param(name) != nil {
			return nil, invalid(name, "%s does not go with format=csv, which has all entries", name)
		}
	}
	page, done := models.Page{Limit: models.MaxPageLimit}, false
	more := func(ctx context.Context) ([][]string, error) {
		if done {
			return nil, nil
		}
		entries, next, err := s.store.ListLedger(ctx, customer.ID, filter, page)
		if err != nil {
			return nil, err
		}
		page.Cursor, done = next, next == ""
		rows := make([][]string, len(entries))
		for i := range entries {
			rows[i] = cells(&entries[i])
		}
		return rows, nil
	}
	// The first page now: what fails with it can still be told.
	first, err := more(r.ctx)
	if err != nil {
		return nil, err
	}
	return &table{name: "ledger-" + customer.ID, rows: append([][]string{head}, first...), more: more}, nil
}

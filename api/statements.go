package api

import (
	"strconv"
	"time"

	"tandem/models"
)

// statementObject is what a balance went through in a month.
type statementObject struct {
	Month         string `json:"month" doc:"YYYY-MM, in UTC." example:"2026-01"`
	Final         bool   `json:"final" doc:"Whether the month is over."`
	Currency      string `json:"currency" doc:"ISO 4217 code of the amounts." example:"EUR"`
	Opening       string `json:"opening" doc:"The balance when the month began, in units of the currency, exact to six decimals." example:"10.000000"`
	OpeningMicros int64  `json:"opening_micros"`
	Topups        string `json:"topups" doc:"What was paid in." example:"25.000000"`
	TopupsMicros  int64  `json:"topups_micros"`
	Adjusted      string `json:"adjustments" doc:"What was corrected; negative where it was taken." example:"0.000000"`
	AdjustMicros  int64  `json:"adjustments_micros"`
	Calls         string `json:"calls" doc:"What calls cost, as a negative amount." example:"-12.340000"`
	CallsMicros   int64  `json:"calls_micros"`
	Closing       string `json:"closing" doc:"Opening and the three sums, exactly: the opening of the next month; of this month the balance now." example:"22.660000"`
	ClosingMicros int64  `json:"closing_micros"`
	Entries       int64  `json:"entries" doc:"How many entries of the ledger it sums up."`
}

const (
	statementDetails = "Months are in UTC, from that in which the account was made until this one, which is not over. Its entries are those of the ledger with created_at in the month."
	monthForm        = "2006-01"
)

func (s *Server) toStatement(m *models.Statement, currency string) statementObject {
	return statementObject{
		Month: m.Month.Format(monthForm), Final: m.Month.Before(models.MonthOf(s.store.Now())), Currency: currency,
		Opening: amount(m.OpeningMicros), OpeningMicros: m.OpeningMicros, Topups: amount(m.TopupMicros), TopupsMicros: m.TopupMicros,
		Adjusted: amount(m.AdjustMicros), AdjustMicros: m.AdjustMicros, Calls: amount(m.CallMicros), CallsMicros: m.CallMicros,
		Closing: amount(m.ClosingMicros), ClosingMicros: m.ClosingMicros, Entries: m.Entries,
	}
}

func (s *Server) getStatements(r *request) (any, error) { return s.statementsOf(r, r.customer) }

func (s *Server) getStatement(r *request) (any, error) { return s.statementOf(r, r.customer) }

// statementsOf answers with all statements of a customer.
func (s *Server) statementsOf(r *request, customerID string) (any, error) {
	format, err := r.format()
	if err != nil {
		return nil, err
	}
	customer, err := s.store.Customer(r.ctx, customerID)
	if err != nil {
		return nil, orNotFound(err, "customer")
	}
	months, err := s.store.Statements(r.ctx, customerID)
	if err != nil {
		return nil, err
	}
	answer := listOf(months, "", func(m *models.Statement) statementObject { return s.toStatement(m, customer.Currency) })
	if format == formatCSV {
		return statementTable("statements", answer.Data), nil
	}
	return answer, nil
}

// statementOf answers with a customer's statement of the month that the path names.
func (s *Server) statementOf(r *request, customerID string) (any, error) {
	month, err := time.Parse(monthForm, r.params["month"])
	if err != nil {
		return nil, notFound("statement") // so is a month that has not come
	}
	format, err := r.format()
	if err != nil {
		return nil, err
	}
	customer, err := s.store.Customer(r.ctx, customerID)
	if err != nil {
		return nil, orNotFound(err, "customer")
	}
	statement, err := s.store.StatementOf(r.ctx, customerID, month)
	if err != nil {
		return nil, orNotFound(err, "statement")
	}
	answer := s.toStatement(statement, customer.Currency)
	if format == formatCSV {
		return statementTable("statement-"+answer.Month, []statementObject{answer}), nil
	}
	return answer, nil
}

// statementTable is statements in CSV.
func statementTable(name string, statements []statementObject) *table {
	rows := [][]string{{"month", "currency", "opening", "topups", "adjustments", "calls", "closing", "entries", "final"}}
	for i := range statements {
		m := &statements[i]
		rows = append(rows, []string{
			m.Month, m.Currency, m.Opening, m.Topups, m.Adjusted, m.Calls, m.Closing, strconv.FormatInt(m.Entries, 10), strconv.FormatBool(m.Final),
		})
	}
	return &table{name: name, rows: rows}
}

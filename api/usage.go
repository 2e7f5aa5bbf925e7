package api

import (
	"math"
	"strconv"
	"time"

	"tandem/models"
)

// usageCounts is what a group of calls came to.
type usageCounts struct {
	Calls         int64    `json:"calls" doc:"How many: calls, or by trunk and destination legs."`
	Answered      int64    `json:"answered" doc:"How many of them somebody answered."`
	Seconds       int64    `json:"seconds" doc:"For how long they were answered, in whole seconds as the switches counted."`
	BilledSeconds int64    `json:"billed_seconds" doc:"For how long they were charged: whole increments, at least the rate's minimum."`
	Cost          string   `json:"cost" doc:"What they cost in units of the currency, exact to six decimals: all legs, also where calls are counted." example:"12.340000"`
	CostMicros    int64    `json:"cost_micros"`
	ASR           *float64 `json:"asr" doc:"Answer-seizure ratio: answered / calls, from 0 to 1; null where there are no calls." example:"0.6125"`
	ACD           *float64 `json:"acd" doc:"Average call duration: the mean of the seconds of those answered; null where none was." example:"94.5"`
}

// usageGroup is a group of calls.
type usageGroup struct {
	Key  *string `json:"key" doc:"The day (YYYY-MM-DD, UTC), the id of the application or trunk, the direction, or what the rate calls the destination, its prefix where it has no name; null for legs without a trunk, or whose rate is for every number and has no name." example:"2026-01-31"`
	Name *string `json:"name" doc:"What the application or trunk is called; null for other groups."`
	usageCounts
}

// usageObject sums up the calls of a time.
type usageObject struct {
	From     string       `json:"from" format:"date-time" doc:"The first moment that is meant."`
	To       string       `json:"to" format:"date-time" doc:"The first moment that is not meant any more."`
	GroupBy  string       `json:"group_by" enum:"day,application,trunk,direction,destination"`
	Currency string       `json:"currency" doc:"ISO 4217 code of the cost." example:"EUR"`
	Groups   []usageGroup `json:"data" doc:"In the order of their keys."`
	Total    usageCounts  `json:"total"`
}

// maxUsage is the longest time that usage is summed up for.
const maxUsage = 366 * 24 * time.Hour

var usageGroupings = []string{models.UsageByDay, models.UsageByApplication, models.UsageByTrunk, models.UsageByDirection, models.UsageByDestination}

var usageFilters = append([]param{
	{name: "from", kind: "time", doc: "The first moment that is meant. Default: the beginning of to's month, in UTC."},
	{name: "to", kind: "time", doc: "The first moment that is not meant any more, at most 366 days after from. Default: now."},
	{name: "group_by", kind: "string", enum: usageGroupings, doc: "Default day."},
}, formats...)

const usageDetails = "A call belongs to the time in which it was settled, as the entry of its cost in the ledger does. Day, application and direction count calls; their " +
	"seconds are those of the call's own leg, their cost that of all its legs. Trunk and destination count legs, each under its own. The sum of cost is the same in all of them, " +
	"and that of the ledger's entries of the kind call in that time."

// usageRange reads the time that is meant.
func (s *Server) usageRange(r *request) (from, to time.Time, err error) {
	given, err := r.time("to")
	if err != nil {
		return from, to, err
	}
	if given != nil {
		to = *given
	} else {
		to = s.store.Now().Truncate(time.Second).Add(time.Second)
	}
	if given, err = r.time("from"); err != nil {
		return from, to, err
	}
	if given != nil {
		from = *given
	} else {
		from = models.MonthOf(to.Add(-time.Microsecond))
	}
	switch {
	case !from.Before(to):
		return from, to, invalid("from", "from must be before to")
	case to.Sub(from) > maxUsage:
		return from, to, invalid("from", "from must be at most 366 days before to")
	case from.Year() < 1 || to.Year() > 9999:
		return from, to, invalid("from", "from and to must be of the years 1 to 9999")
	}
	return from, to, nil
}

func (s *Server) getUsage(r *request) (any, error) {
	customer, err := s.store.Customer(r.ctx, r.customer)
	if err != nil {
		return nil, orNotFound(err, "customer")
	}
	return s.usageOf(r, customer)
}

// usageOf sums up the calls of a customer.
func (s *Server) usageOf(r *request, customer *models.Customer) (any, error) {
	from, to, err := s.usageRange(r)
	if err != nil {
		return nil, err
	}
	format, err := r.format()
	if err != nil {
		return nil, err
	}
	c := &checks{}
	groupBy := c.oneOf("group_by", r.param("group_by"), usageGroupings...)
	if err := c.failed(); err != nil {
		return nil, err
	}
	if groupBy == "" {
		groupBy = models.UsageByDay
	}
	rows, err := s.store.Usage(r.ctx, customer.ID, groupBy, from, to)
	if err != nil {
		return nil, err
	}
	answer := toUsage(rows, groupBy, customer.Currency, from, to)
	if format == formatCSV {
		return answer.table(), nil
	}
	return answer, nil
}

func toUsage(rows []models.UsageRow, groupBy, currency string, from, to time.Time) *usageObject {
	answer := &usageObject{From: stamp(from), To: stamp(to), GroupBy: groupBy, Currency: currency, Groups: make([]usageGroup, len(rows))}
	var total models.UsageRow
	for i := range rows {
		row := &rows[i]
		answer.Groups[i] = usageGroup{Key: orNil(row.Key), Name: orNil(row.Name), usageCounts: toUsageCounts(row)}
		total.Calls += row.Calls
		total.Answered += row.Answered
		total.Seconds += row.Seconds
		total.ChargedSeconds += row.ChargedSeconds
		total.CostMicros += row.CostMicros
	}
	answer.Total = toUsageCounts(&total)
	return answer
}

func toUsageCounts(row *models.UsageRow) usageCounts {
	return usageCounts{
		Calls: row.Calls, Answered: row.Answered, Seconds: row.Seconds, BilledSeconds: row.ChargedSeconds, Cost: amount(row.CostMicros), CostMicros: row.CostMicros,
		ASR: ratio(row.Answered, row.Calls), ACD: ratio(row.Seconds, row.Answered),
	}
}

// ratio is a / b to four decimals, nil where there is none.
func ratio(a, b int64) *float64 {
	if b == 0 {
		return nil
	}
	value := math.Round(float64(a)/float64(b)*1e4) / 1e4
	return &value
}

// table is the usage in CSV: a row for each group.
func (u *usageObject) table() *table {
	rows := [][]string{{u.GroupBy, "name", "calls", "answered", "seconds", "billed_seconds", "cost", "currency", "asr", "acd"}}
	decimal := func(value *float64) string {
		if value == nil {
			return ""
		}
		return strconv.FormatFloat(*value, 'f', -1, 64)
	}
	whole := func(n int64) string { return strconv.FormatInt(n, 10) }
	for i := range u.Groups {
		g := &u.Groups[i]
		rows = append(rows, []string{
			cellOrNone(g.Key), cellOrNone(g.Name), whole(g.Calls), whole(g.Answered), whole(g.Seconds), whole(g.BilledSeconds), g.Cost, u.Currency, decimal(g.ASR), decimal(g.ACD),
		})
	}
	return &table{name: "usage-" + u.GroupBy, rows: rows}
}

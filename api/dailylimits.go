package api

import (
	"math"
	"time"

	"tandem/models"
)

// Bounds of what a day, and the length of a call, may be limited to; docs/limits.md lists them.
const (
	maxCallsPerDay       = 100_000_000
	maxSpendPerDayMicros = 1_000_000_000_000_000
	maxCallSeconds       = 86_400
)

// dailyLimits are the fields of a request that bound a day and the length of a call, of a customer, an application or a trunk.
type dailyLimits struct {
	MaxCallsPerDay       *int   `json:"max_calls_per_day" nullable:"true" minimum:"1" maximum:"100000000" doc:"How many of the calls that max_calls_per_second counts may begin on a day (UTC). null: any number."`
	MaxSpendPerDayMicros *int64 `json:"max_spend_per_day_micros" nullable:"true" minimum:"1" maximum:"1000000000000000" doc:"What the calls of a day (UTC) may cost, with what live ones hold, in millionths of the currency's unit. null: any amount."`
	MaxCallSeconds       *int   `json:"max_call_seconds" nullable:"true" minimum:"1" maximum:"86400" doc:"How long a call may last from its answer, in seconds; the least of customer, application and trunk counts. null: as the configuration says."`
}

// dailyBounds are the same of a response.
type dailyBounds struct {
	MaxCallsPerDay       *int   `json:"max_calls_per_day" doc:"How many calls may begin on a day (UTC); null: any number."`
	MaxSpendPerDayMicros *int64 `json:"max_spend_per_day_micros" doc:"What the calls of a day (UTC) may cost, with what live ones hold, in millionths of the currency's unit; null: any amount."`
	MaxCallSeconds       *int   `json:"max_call_seconds" doc:"How long a call may last from its answer, in seconds; null: as the configuration says."`
}

// bound shows 0, which is no limit, as null.
func bound[T int | int64](n T) *T {
	if n == 0 {
		return nil
	}
	return &n
}

func toDaily(l *models.DailyLimits) dailyBounds {
	return dailyBounds{bound(l.MaxCallsPerDay), bound(l.MaxSpendPerDayMicros), bound(l.MaxCallSeconds)}
}

// daily changes what the request names.
func (c *checks) daily(in *dailyLimits, given fieldSet, to *models.DailyLimits) {
	if given.has("max_calls_per_day") {
		to.MaxCallsPerDay = c.between("max_calls_per_day", in.MaxCallsPerDay, 1, maxCallsPerDay)
	}
	if given.has("max_spend_per_day_micros") {
		to.MaxSpendPerDayMicros = 0
		if in.MaxSpendPerDayMicros != nil {
			if to.MaxSpendPerDayMicros = *in.MaxSpendPerDayMicros; to.MaxSpendPerDayMicros < 1 || to.MaxSpendPerDayMicros > maxSpendPerDayMicros {
				c.refuse("max_spend_per_day_micros", "max_spend_per_day_micros must be between 1 and %d", int64(maxSpendPerDayMicros))
			}
		}
	}
	if given.has("max_call_seconds") {
		to.MaxCallSeconds = c.between("max_call_seconds", in.MaxCallSeconds, 1, maxCallSeconds)
	}
}

// limitCodes are the codes of the limits of models.LimitError.
var limitCodes = map[string]string{
	models.LimitCalls: codeConcurrency, models.LimitRate: codeRateLimited, models.LimitCallsPerDay: codeDailyLimit, models.LimitSpendPerDay: codeSpendLimit,
}

// limitReached says whose limit refuses a call, and which, and when another try may be worth while.
func limitReached(full *models.LimitError) *Error {
	whose := map[string]string{
		models.SubjectCustomer:    "your account is",
		models.SubjectApplication: "the application is",
		models.SubjectTrunk:       "every active outbound trunk that may call this number is at a limit, and the trunk " + full.ID + " is",
	}[full.Subject]
	where := map[string]string{
		models.SubjectCustomer: "GET /v1/me", models.SubjectApplication: "GET /v1/applications/" + full.ID, models.SubjectTrunk: "GET /v1/trunks/" + full.ID,
	}[full.Subject]
	reply := &Error{Code: limitCodes[full.Limit], Field: full.Limit, Message: whose + " at its " + full.Limit + ": see " + where, cause: full}
	switch {
	case full.RetryAfter > 0:
		reply.RetryAfter = int(math.Ceil(full.RetryAfter.Seconds()))
	case full.Passing():
		reply.RetryAfter = retryDefault
	}
	if full.Limit == models.LimitSpendPerDay || full.Limit == models.LimitCallsPerDay {
		reply.Message += "; the day ends at midnight UTC"
	} else {
		reply.Message += "; try again"
	}
	return reply
}

// queueTimeout accepts how long a call may wait for room under the limits.
func (c *checks) queueTimeout(value *int) int {
	return c.between("queue_timeout", value, 1, int(24*time.Hour/time.Second))
}

package api

import (
	"math"

	"tandem/models"
)

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

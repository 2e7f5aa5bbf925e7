package models

import (
	"errors"
	"fmt"
	"time"
)

// Whose limit it is, in a LimitError.
const (
	SubjectCustomer    = "customer"
	SubjectApplication = "application"
	SubjectTrunk       = "trunk"
)

// The limits that a LimitError names, as the API does.
const (
	LimitCalls         = "max_calls"
	LimitRate          = "max_calls_per_second"
	LimitCallsPerDay   = "max_calls_per_day"
	LimitSpendPerDay   = "max_spend_per_day_micros"
	microsecondsPerDay = int64(24 * time.Hour / time.Microsecond)
)

// What errors.Is finds in a *LimitError: ErrLimit in every one, one of the next three by whose limit it is, and ErrSpendLimit where it is on what a day
// may cost.
var (
	ErrLimit           = errors.New("a limit is reached")
	ErrCustomerFull    = errors.New("the customer has all the calls that it may have now")
	ErrApplicationFull = errors.New("the application has all the calls that it may have now")
	ErrTrunkFull       = errors.New("the trunk takes no more calls now")
	ErrSpendLimit      = errors.New("the day may not cost more")
)

// LimitError refuses calls or legs that would be more than a customer, an application or a trunk may have. It undoes the transaction.
type LimitError struct {
	// Subject is one of the Subject constants, ID the id of the customer, application or trunk.
	Subject, ID string
	// Limit is one of the Limit constants.
	Limit string
	// Room is how many of those that the transaction begins there could be.
	Room int
	// RetryAfter is how long the limit is reached at least, 0 where that is not known.
	RetryAfter time.Duration
}

// Error says whose limit it is, and which.
func (e *LimitError) Error() string {
	return fmt.Sprintf("%s %q is at its %s", e.Subject, e.ID, e.Limit)
}

// Is reports ErrLimit, the error of the subject, and ErrSpendLimit where that is the limit.
func (e *LimitError) Is(target error) bool {
	switch target {
	case ErrLimit:
		return true
	case ErrCustomerFull:
		return e.Subject == SubjectCustomer
	case ErrApplicationFull:
		return e.Subject == SubjectApplication
	case ErrTrunkFull:
		return e.Subject == SubjectTrunk
	case ErrSpendLimit:
		return e.Limit == LimitSpendPerDay
	default:
		return false
	}
}

// Passing says whether room comes by itself within seconds or with the end of a call, and not only with another day.
func (e *LimitError) Passing() bool { return e.Limit == LimitCalls || e.Limit == LimitRate }

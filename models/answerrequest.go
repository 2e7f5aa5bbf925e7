package models

import (
	"context"
	"strings"
	"time"

	"gorm.io/gorm/clause"
)

// RequestGivenUp is the Error of a request whose answer was not waited for any longer: nothing was wrong with the application.
const RequestGivenUp = "given up: the call ended or went another way"

// AnswerRequest is one request that a call made to its application: to the answer_url, a result_url or the fallback_url. What the
// request and its answer said is not kept, but for the names of the actions.
type AnswerRequest struct {
	ID         string
	CallID     string
	CustomerID string
	// RequestID is what the application got as request_id: all attempts of one question have the same.
	RequestID string
	// Kind is answer or result, as the application got it.
	Kind string
	URL  string `gorm:"column:url"`
	// Attempt counts from 1 for each URL.
	Attempt   int
	StartedAt time.Time `gorm:"serializer:moment"`
	LatencyMS float64   `gorm:"column:latency_ms"`
	// Status is that of the answer, 0 where none came; Error says what was wrong, empty where nothing was.
	Status int
	Error  string // RequestGivenUp, or a text
	// Actions are the names of the actions of the answer, in their order.
	Actions []string `gorm:"-"`
}

// Failed says whether the application is to blame that there were no actions.
func (r *AnswerRequest) Failed() bool { return r.Error != "" && r.Error != RequestGivenUp }

// answerRequestRow is a request as stored: its actions in one text.
type answerRequestRow struct {
	AnswerRequest `gorm:"embedded"`
	ActionNames   string `gorm:"column:actions"`
}

// TableName implements gorm's schema.Tabler.
func (answerRequestRow) TableName() string { return "answer_requests" }

// SaveAnswerRequests stores requests of a call and fills their IDs. It can be deferred.
func (s *Store) SaveAnswerRequests(ctx context.Context, requests []AnswerRequest) error {
	if len(requests) == 0 {
		return nil
	}
	rows := make([]answerRequestRow, len(requests))
	for i := range requests {
		if requests[i].ID == "" {
			requests[i].ID = NewID(PrefixRequest)
		}
		rows[i] = answerRequestRow{AnswerRequest: requests[i], ActionNames: strings.Join(requests[i].Actions, " ")}
		rows[i].StartedAt = rows[i].StartedAt.UTC().Truncate(time.Microsecond)
	}
	return s.InTx(ctx, func(tx *Store) error {
		save := func(ctx context.Context, tx *Store) error {
			// A deferred transaction that appended no event is written again when nobody knows whether it was.
			once := clause.OnConflict{Columns: []clause.Column{{Name: "id"}}, DoNothing: true}
			return explain(tx.write(ctx).Clauses(once).Create(&rows).Error, "save requests of call %q", rows[0].CallID)
		}
		if tx.later(save) {
			return nil
		}
		return save(ctx, tx)
	})
}

// AnswerRequestsOfCall returns the requests of a customer's call, oldest first.
func (s *Store) AnswerRequestsOfCall(ctx context.Context, customerID, callID string) ([]AnswerRequest, error) {
	var rows []answerRequestRow
	err := s.read(ctx).Where("call_id = ? AND customer_id = ?", callID, customerID).Order("started_at, id").Find(&rows).Error
	if err != nil {
		return nil, explain(err, "read requests of call %q", callID)
	}
	requests := make([]AnswerRequest, len(rows))
	for i := range rows {
		requests[i] = rows[i].AnswerRequest
		requests[i].Actions = strings.Fields(rows[i].ActionNames)
	}
	return requests, nil
}

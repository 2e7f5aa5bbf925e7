package models

import (
	"context"
	"time"

	"gorm.io/gorm/clause"
)

// Kinds of legs: for what a call has another one.
const (
	LegDial     = "dial"
	LegTransfer = "transfer"
	LegQueue    = "queue"
	// LegAttempt is an attempt to dial the call's own number over a trunk that failed. It has ended when it is stored.
	LegAttempt = "attempt"
)

// Statuses of a leg; the last is final.
const (
	LegDialing  = "dialing"
	LegRinging  = "ringing"
	LegAnswered = "answered"
	LegEnded    = "ended"
)

// Leg is another channel that a call was given: a number or URI that it dialled, the waiting call that it was joined with, or the channel that it had on
// a trunk that failed.
type Leg struct {
	ID         string
	CallID     string
	CustomerID string
	// ChannelID is the leg's UUID on the switch.
	ChannelID string
	Kind      string
	// To is the E.164 number, the SIP URI or, for LegQueue, the call that was joined.
	To      string `gorm:"column:target"`
	TrunkID *string
	Status  string
	// DialStatus and Reason say how the leg ended, Cause is FreeSWITCH's name of the cause, Q850 its number and SIPCode the final
	// status of the SIP dialogue.
	DialStatus string
	Reason     string
	Cause      string
	Q850       int `gorm:"column:q850"`
	SIPCode    int `gorm:"column:sip_code"`
	// AnsweredBy is what machine detection heard.
	AnsweredBy string
	CreatedAt  time.Time  `gorm:"serializer:moment;autoCreateTime:false"`
	RingingAt  *time.Time `gorm:"serializer:moment"`
	AnsweredAt *time.Time `gorm:"serializer:moment"`
	// JoinedAt is when it and the call began to hear each other.
	JoinedAt *time.Time `gorm:"serializer:moment"`
	EndedAt  *time.Time `gorm:"serializer:moment"`
	// Seconds is how long it was joined, once it has ended, and BilledSeconds for how long it was answered, as its switch counted.
	Seconds       float64
	BilledSeconds int
	// Rate is what it was promised to cost; nil is nothing.
	Rate *Rate `gorm:"serializer:optional"`
}

// SaveLeg inserts a leg and fills ID and CreatedAt, or updates what may change of the one with its ID: all but whose it is, its
// kind, target and creation.
func (s *Store) SaveLeg(ctx context.Context, leg *Leg) error {
	return s.InTx(ctx, func(tx *Store) error {
		row := *leg
		if row.ID == "" {
			row.ID = NewID(PrefixLeg)
		}
		if row.CreatedAt.IsZero() {
			row.CreatedAt = tx.Now()
		}
		row.RingingAt, row.AnsweredAt, row.JoinedAt, row.EndedAt = cut(row.RingingAt), cut(row.AnsweredAt), cut(row.JoinedAt), cut(row.EndedAt)
		if tx.later(func(ctx context.Context, tx *Store) error { return tx.SaveLeg(ctx, &row) }) {
			*leg = row
			return nil
		}
		err := tx.write(ctx).Clauses(clause.OnConflict{
			Columns: []clause.Column{{Name: "id"}},
			DoUpdates: clause.AssignmentColumns([]string{
				"channel_id", "trunk_id", "status", "dial_status", "reason", "cause", "q850", "sip_code", "answered_by", "ringing_at", "answered_at", "joined_at",
				"ended_at", "seconds", "billed_seconds",
			}),
		}).Create(&row).Error
		if err != nil {
			return explain(err, "save leg of call %q", row.CallID)
		}
		*leg = row
		return nil
	})
}

// LiveLegs returns the legs that have not ended of all live calls of a node, oldest first.
func (s *Store) LiveLegs(ctx context.Context, nodeID string) ([]Leg, error) {
	var rows []Leg
	err := s.read(ctx).Where("status <> ? AND call_id IN "+liveCallsOfNode, LegEnded, nodeID).Order("created_at, id").Find(&rows).Error
	return rows, explain(err, "read live legs of node %q", nodeID)
}

// LegsOfCall returns the legs of a customer's call, oldest first.
func (s *Store) LegsOfCall(ctx context.Context, customerID, callID string) ([]Leg, error) {
	var rows []Leg
	err := s.read(ctx).Where("call_id = ? AND customer_id = ?", callID, customerID).Order("created_at, id").Find(&rows).Error
	return rows, explain(err, "read legs of call %q", callID)
}

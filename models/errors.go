package models

import (
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"github.com/glebarez/go-sqlite"
	"github.com/jackc/pgx/v5/pgconn"
	"gorm.io/gorm"
)

// Sentinels of this package; test with errors.Is.
var (
	// ErrNotFound: no such row, or it belongs to another customer, or what a new row refers to does not exist.
	ErrNotFound = errors.New("not found")
	// ErrInsufficientBalance: the customer's free balance (balance less held) does not cover the amount.
	ErrInsufficientBalance = errors.New("insufficient balance")
	// ErrGatewayNameExists: another undeleted trunk has the gateway name.
	ErrGatewayNameExists = errors.New("gateway name exists")
	// ErrInboundIPExists: the inbound address overlaps that of another undeleted trunk.
	ErrInboundIPExists = errors.New("inbound address exists")
	// ErrNumberExists: another undeleted DID has the number.
	ErrNumberExists = errors.New("number exists")
	// ErrNameExists: another node, or another rate deck, has the name.
	ErrNameExists = errors.New("name exists")
	// ErrInUse: other rows or live calls depend on the row.
	ErrInUse = errors.New("in use")
	// ErrStale: the row is no longer in the state that the change starts from.
	ErrStale = errors.New("stale")
	// ErrChannelExists: another call has the channel.
	ErrChannelExists = errors.New("channel exists")
	// ErrBadCursor: a page cursor that this package did not make.
	ErrBadCursor = errors.New("bad cursor")
	// ErrIdempotencyKeyExists: an answer is stored under the idempotency key already.
	ErrIdempotencyKeyExists = errors.New("idempotency key exists")
	// ErrNodeDraining: the node is being emptied and takes no new call.
	ErrNodeDraining = errors.New("node is draining")
	// ErrClosed: the store has been closed.
	ErrClosed = errors.New("store closed")
	// ErrUnsealed: a stored secret was not sealed for its place with the store's key.
	ErrUnsealed = errors.New("secret cannot be unsealed")
)

// violated maps a broken constraint to its sentinel: by its name in PostgreSQL, by what SQLite's message ends with.
var violated = []struct {
	constraint string
	columns    string
	sentinel   error
}{
	{"trunks_gateway_name_key", "trunks.gateway_name", ErrGatewayNameExists},
	{"trunk_addresses_first_key", "trunk_addresses.first_address", ErrInboundIPExists},
	{"dids_number_key", "dids.number_e164", ErrNumberExists},
	{"nodes_name_key", "nodes.name", ErrNameExists},
	{"rate_decks_name_key", "rate_decks.name", ErrNameExists},
	{"idempotent_responses_pkey", "idempotent_responses.customer_id, idempotent_responses.key", ErrIdempotencyKeyExists},
	{"blocks_address_key", "blocks.address", ErrBlockExists},
	{"block_exceptions_address_key", "block_exceptions.address", ErrBlockExists},
	{"calls_channel_id_key", "calls.channel_id", ErrChannelExists},
	{"events_terminal_key", "events.call_id", ErrStale},
	{"queue_entries_call_key", "queue_entries.call_id", ErrInUse},
	{"conference_members_call_key", "conference_members.call_id", ErrInUse},
	{"customers_covered", "customers_covered", ErrInsufficientBalance},
}

// PostgreSQL's codes, SQLSTATE appendix A.
const (
	pgForeignKey    = "23503"
	pgSerialization = "40001"
	pgDeadlock      = "40P01"
	pgInternal      = "XX000"
)

// sqliteForeignKey is SQLITE_CONSTRAINT_FOREIGNKEY; SQLite does not say which one.
const sqliteForeignKey = 787

// sqliteBusy is SQLITE_BUSY, the low byte of its extended codes too.
const sqliteBusy = 5

// explain turns a database error into a sentinel where there is one and says what was attempted.
func explain(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf(format+": %w", append(args, classify(translate(err)))...)
}

func translate(err error) error {
	if errors.Is(err, gorm.ErrRecordNotFound) || errors.Is(err, sql.ErrNoRows) {
		return ErrNotFound
	}
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		for _, v := range violated {
			if pg.ConstraintName == v.constraint {
				return v.sentinel
			}
		}
		if pg.Code == pgForeignKey {
			return fmt.Errorf("%w (%s)", ErrNotFound, pg.ConstraintName)
		}
		return err
	}
	var lite *sqlite.Error
	if errors.As(err, &lite) {
		message := lite.Error()
		if cut := strings.LastIndex(message, " ("); cut > 0 {
			message = message[:cut]
		}
		for _, v := range violated {
			if strings.HasSuffix(message, ": "+v.columns) {
				return v.sentinel
			}
		}
		if lite.Code() == sqliteForeignKey {
			return fmt.Errorf("%w (foreign key)", ErrNotFound)
		}
	}
	return err
}

// retryable reports whether the database asks for the transaction to be run again.
func retryable(err error) bool {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		// A row that many lock while some who changed it are undone: PostgreSQL 15 now and then says that it has two who change it.
		crowded := pg.Code == pgInternal && strings.Contains(pg.Message, "multixact")
		return pg.Code == pgSerialization || pg.Code == pgDeadlock || crowded
	}
	// Another process had the database for longer than busyTimeout: SQLite does not wait in line.
	var lite *sqlite.Error
	return errors.As(err, &lite) && lite.Code()&0xff == sqliteBusy
}

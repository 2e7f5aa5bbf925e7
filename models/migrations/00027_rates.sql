-- Rate decks, what a call and each of its legs were promised, and the lines of which a call's cost is the sum. Calls that exist have no rate:
-- theirs is the price of a minute that they were created with.

-- +goose Up
CREATE TABLE rate_decks (
    id TEXT PRIMARY KEY,
    name TEXT NOT NULL,
    currency TEXT NOT NULL,
    -- The deck of customers of its currency that have none of their own.
    is_default BOOLEAN NOT NULL,
    -- What becomes of a number that no rate of the deck is for: the next deck is asked, or the call is refused.
    unlisted TEXT NOT NULL CHECK (unlisted IN ('next', 'refuse')),
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    CONSTRAINT rate_decks_name_key UNIQUE (name)
);
CREATE UNIQUE INDEX rate_decks_default ON rate_decks (currency) WHERE is_default;
CREATE INDEX rate_decks_page ON rate_decks (created_at, id);

CREATE TABLE rates (
    id TEXT PRIMARY KEY,
    deck_id TEXT NOT NULL REFERENCES rate_decks (id) ON DELETE CASCADE,
    direction TEXT NOT NULL CHECK (direction IN ('outbound', 'inbound')),
    -- The digits that a number begins with, without the plus; empty is every number, 'sip' a SIP URI.
    prefix TEXT NOT NULL,
    destination TEXT NOT NULL,
    per_minute_micros BIGINT NOT NULL CHECK (per_minute_micros >= 0),
    connect_micros BIGINT NOT NULL CHECK (connect_micros >= 0),
    connect_on TEXT NOT NULL CHECK (connect_on IN ('answer', 'attempt')),
    minimum_seconds INTEGER NOT NULL CHECK (minimum_seconds >= 0),
    increment_seconds INTEGER NOT NULL CHECK (increment_seconds >= 1),
    valid_from BIGINT NOT NULL,
    valid_to BIGINT CHECK (valid_to > valid_from),
    created_at BIGINT NOT NULL,
    CONSTRAINT rates_prefix_key UNIQUE (deck_id, direction, prefix, valid_from)
);

ALTER TABLE customers ADD COLUMN status TEXT NOT NULL DEFAULT 'active' CHECK (status IN ('active', 'suspended'));
ALTER TABLE customers ADD COLUMN credit_limit_micros BIGINT NOT NULL DEFAULT 0 CHECK (credit_limit_micros >= 0);
ALTER TABLE customers ADD COLUMN rate_deck_id TEXT;
-- The deck of what goes over a trunk: the customer's own carrier may cost a platform fee only.
ALTER TABLE trunks ADD COLUMN rate_deck_id TEXT;
-- What is played before a call ends for want of money.
ALTER TABLE applications ADD COLUMN balance_notice_url TEXT NOT NULL DEFAULT '';

ALTER TABLE calls ADD COLUMN rate TEXT;
-- The longest that the call may last, in seconds from its answer; 0 leaves it to the configuration.
ALTER TABLE calls ADD COLUMN max_seconds INTEGER NOT NULL DEFAULT 0;
-- How many caps the switch was given, and when one could not be moved for want of money.
ALTER TABLE calls ADD COLUMN caps INTEGER NOT NULL DEFAULT 0;
ALTER TABLE calls ADD COLUMN short_at BIGINT;
ALTER TABLE legs ADD COLUMN rate TEXT;
ALTER TABLE legs ADD COLUMN billed_seconds INTEGER NOT NULL DEFAULT 0;

CREATE TABLE charges (
    call_id TEXT NOT NULL,
    -- The leg that the line is for; the call's own id for the call itself.
    leg_id TEXT NOT NULL,
    customer_id TEXT NOT NULL,
    kind TEXT NOT NULL,
    target TEXT NOT NULL,
    trunk_id TEXT,
    rate TEXT NOT NULL,
    answered BOOLEAN NOT NULL,
    billed_seconds INTEGER NOT NULL,
    amount_micros BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    PRIMARY KEY (call_id, leg_id),
    FOREIGN KEY (call_id, customer_id) REFERENCES calls (id, customer_id)
);
CREATE INDEX charges_page ON charges (customer_id, created_at);

-- +goose Down
DROP TABLE charges;
ALTER TABLE legs DROP COLUMN billed_seconds;
ALTER TABLE legs DROP COLUMN rate;
ALTER TABLE calls DROP COLUMN short_at;
ALTER TABLE calls DROP COLUMN caps;
ALTER TABLE calls DROP COLUMN max_seconds;
ALTER TABLE calls DROP COLUMN rate;
ALTER TABLE applications DROP COLUMN balance_notice_url;
ALTER TABLE trunks DROP COLUMN rate_deck_id;
ALTER TABLE customers DROP COLUMN rate_deck_id;
ALTER TABLE customers DROP COLUMN credit_limit_micros;
ALTER TABLE customers DROP COLUMN status;
DROP TABLE rates;
DROP TABLE rate_decks;

-- What the switches wrote down of each channel that ended, where it differs from what was billed, and who may report it.

-- +goose Up
CREATE TABLE cdrs (
    node_id TEXT NOT NULL,
    channel_id TEXT NOT NULL,
    direction TEXT NOT NULL CHECK (direction IN ('inbound', 'outbound')),
    cause TEXT NOT NULL,
    q850 INTEGER NOT NULL,
    sip_code INTEGER NOT NULL,
    disposition TEXT NOT NULL,
    billed_seconds INTEGER NOT NULL CHECK (billed_seconds >= 0),
    recorded_ms BIGINT NOT NULL,
    started_at BIGINT NOT NULL,
    answered_at BIGINT,
    ended_at BIGINT NOT NULL,
    received_at BIGINT NOT NULL,
    checked_at BIGINT,
    PRIMARY KEY (node_id, channel_id)
);
CREATE INDEX cdrs_unchecked ON cdrs (received_at) WHERE checked_at IS NULL;
CREATE INDEX cdrs_received ON cdrs (received_at);

CREATE TABLE billing_differences (
    call_id TEXT PRIMARY KEY REFERENCES calls (id) ON DELETE CASCADE,
    node_id TEXT NOT NULL,
    channel_id TEXT NOT NULL,
    billed_seconds INTEGER NOT NULL,
    cdr_seconds INTEGER NOT NULL,
    found_at BIGINT NOT NULL
);

CREATE INDEX legs_channel ON legs (channel_id);

ALTER TABLE nodes ADD COLUMN cdr_token_hash BYTEA;
ALTER TABLE nodes ADD COLUMN seen_at BIGINT;

-- +goose Down
ALTER TABLE nodes DROP COLUMN seen_at;
ALTER TABLE nodes DROP COLUMN cdr_token_hash;
DROP INDEX legs_channel;
DROP TABLE billing_differences;
DROP TABLE cdrs;

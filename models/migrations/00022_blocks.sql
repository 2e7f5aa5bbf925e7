-- Addresses whose calls the nodes refuse before anything else, and those that are never blocked.

-- +goose Up
CREATE TABLE blocks (
    id TEXT PRIMARY KEY,
    -- An address or a CIDR in its normal form, and the range that it is.
    address TEXT NOT NULL,
    first_address TEXT NOT NULL,
    last_address TEXT NOT NULL,
    origin TEXT NOT NULL CHECK (origin IN ('automatic', 'operator')),
    reason TEXT NOT NULL,
    note TEXT NOT NULL,
    created_by TEXT NOT NULL,
    relapse BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    expires_at BIGINT,
    ended_at BIGINT,
    ended_by TEXT NOT NULL,
    CONSTRAINT blocks_range CHECK (first_address <= last_address)
);
CREATE UNIQUE INDEX blocks_address_key ON blocks (address) WHERE ended_at IS NULL;
CREATE INDEX blocks_page ON blocks (created_at, id);
CREATE INDEX blocks_history ON blocks (address, created_at);
CREATE TABLE block_exceptions (
    id TEXT PRIMARY KEY,
    address TEXT NOT NULL,
    first_address TEXT NOT NULL,
    last_address TEXT NOT NULL,
    note TEXT NOT NULL,
    created_by TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    CONSTRAINT block_exceptions_range CHECK (first_address <= last_address)
);
CREATE UNIQUE INDEX block_exceptions_address_key ON block_exceptions (address);
CREATE INDEX block_exceptions_page ON block_exceptions (created_at, id);
INSERT INTO locks (name, taken) VALUES ('blocks', 0);

-- +goose Down
DELETE FROM locks WHERE name = 'blocks';
DROP TABLE block_exceptions;
DROP TABLE blocks;

-- How an outbound trunk is chosen, what it is told to dial, and how many calls a trunk may have.

-- +goose Up
ALTER TABLE trunks ADD COLUMN transport TEXT NOT NULL DEFAULT '';
ALTER TABLE trunks ADD COLUMN port INTEGER NOT NULL DEFAULT 0;
ALTER TABLE trunks ADD COLUMN priority INTEGER NOT NULL DEFAULT 10;
ALTER TABLE trunks ADD COLUMN weight INTEGER NOT NULL DEFAULT 1;
ALTER TABLE trunks ADD COLUMN allowed_prefixes TEXT;
ALTER TABLE trunks ADD COLUMN strip_prefix TEXT NOT NULL DEFAULT '';
ALTER TABLE trunks ADD COLUMN add_prefix TEXT NOT NULL DEFAULT '';
ALTER TABLE trunks ADD COLUMN caller_id_policy TEXT NOT NULL DEFAULT 'any';
ALTER TABLE trunks ADD COLUMN caller_id TEXT NOT NULL DEFAULT '';
ALTER TABLE trunks ADD COLUMN codecs TEXT;
ALTER TABLE trunks ADD COLUMN max_calls INTEGER NOT NULL DEFAULT 0;
ALTER TABLE trunks ADD COLUMN max_calls_per_second INTEGER NOT NULL DEFAULT 0;
-- A row that whoever begins a call on a trunk with limits holds until its commit. No reference: it would lock the trunk as well.
CREATE TABLE trunk_usage (
    trunk_id TEXT PRIMARY KEY,
    taken BIGINT NOT NULL
);
-- The calls that trunks with a limit on calls per second began in the last second.
CREATE TABLE trunk_starts (
    trunk_id TEXT NOT NULL,
    started_at BIGINT NOT NULL,
    PRIMARY KEY (trunk_id, started_at)
);
CREATE INDEX legs_live_trunk ON legs (trunk_id) WHERE status <> 'ended';

-- +goose Down
DROP INDEX legs_live_trunk;
DROP TABLE trunk_starts;
DROP TABLE trunk_usage;
ALTER TABLE trunks DROP COLUMN max_calls_per_second;
ALTER TABLE trunks DROP COLUMN max_calls;
ALTER TABLE trunks DROP COLUMN codecs;
ALTER TABLE trunks DROP COLUMN caller_id;
ALTER TABLE trunks DROP COLUMN caller_id_policy;
ALTER TABLE trunks DROP COLUMN add_prefix;
ALTER TABLE trunks DROP COLUMN strip_prefix;
ALTER TABLE trunks DROP COLUMN allowed_prefixes;
ALTER TABLE trunks DROP COLUMN weight;
ALTER TABLE trunks DROP COLUMN priority;
ALTER TABLE trunks DROP COLUMN port;
ALTER TABLE trunks DROP COLUMN transport;

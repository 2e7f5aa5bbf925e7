-- How many calls a customer may have, where they may go, and how many requests its keys may make. Customers that exist have no limits.

-- +goose Up
ALTER TABLE customers ADD COLUMN max_calls INTEGER NOT NULL DEFAULT 0;
ALTER TABLE customers ADD COLUMN max_calls_per_second INTEGER NOT NULL DEFAULT 0;
ALTER TABLE customers ADD COLUMN allowed_destinations TEXT;
ALTER TABLE customers ADD COLUMN denied_destinations TEXT;
ALTER TABLE customers ADD COLUMN requests_per_minute INTEGER NOT NULL DEFAULT 0;
-- A row that whoever begins a call of a customer with limits holds until its commit. No reference: it would lock the customer as well.
CREATE TABLE customer_usage (
    customer_id TEXT PRIMARY KEY,
    taken BIGINT NOT NULL
);
-- The calls that customers with a limit on calls per second began in the last second.
CREATE TABLE customer_starts (
    customer_id TEXT NOT NULL,
    started_at BIGINT NOT NULL,
    PRIMARY KEY (customer_id, started_at)
);
CREATE INDEX legs_live_customer ON legs (customer_id) WHERE status <> 'ended';

-- +goose Down
DROP INDEX legs_live_customer;
DROP TABLE customer_starts;
DROP TABLE customer_usage;
ALTER TABLE customers DROP COLUMN requests_per_minute;
ALTER TABLE customers DROP COLUMN denied_destinations;
ALTER TABLE customers DROP COLUMN allowed_destinations;
ALTER TABLE customers DROP COLUMN max_calls_per_second;
ALTER TABLE customers DROP COLUMN max_calls;

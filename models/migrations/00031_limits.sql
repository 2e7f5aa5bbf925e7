-- Limits of customers, applications and trunks: calls and spend of a day, the longest call, where calls may go; and calls that wait for room under
-- them. What exists has no new limit, but that premium, satellite and shared-cost numbers have to be allowed.

-- +goose Up
ALTER TABLE customers ADD COLUMN max_calls_per_day INTEGER NOT NULL DEFAULT 0;
ALTER TABLE customers ADD COLUMN max_spend_per_day_micros BIGINT NOT NULL DEFAULT 0;
ALTER TABLE customers ADD COLUMN max_call_seconds INTEGER NOT NULL DEFAULT 0;
ALTER TABLE customers ADD COLUMN allowed_destination_types TEXT;

ALTER TABLE applications ADD COLUMN max_calls INTEGER NOT NULL DEFAULT 0;
ALTER TABLE applications ADD COLUMN max_calls_per_second INTEGER NOT NULL DEFAULT 0;
ALTER TABLE applications ADD COLUMN max_calls_per_day INTEGER NOT NULL DEFAULT 0;
ALTER TABLE applications ADD COLUMN max_spend_per_day_micros BIGINT NOT NULL DEFAULT 0;
ALTER TABLE applications ADD COLUMN max_call_seconds INTEGER NOT NULL DEFAULT 0;
ALTER TABLE applications ADD COLUMN allowed_destinations TEXT;
ALTER TABLE applications ADD COLUMN denied_destinations TEXT;
ALTER TABLE applications ADD COLUMN allowed_destination_types TEXT;

ALTER TABLE trunks ADD COLUMN max_calls_per_day INTEGER NOT NULL DEFAULT 0;
ALTER TABLE trunks ADD COLUMN max_spend_per_day_micros BIGINT NOT NULL DEFAULT 0;
ALTER TABLE trunks ADD COLUMN max_call_seconds INTEGER NOT NULL DEFAULT 0;
ALTER TABLE trunks ADD COLUMN allowed_destinations TEXT;
ALTER TABLE trunks ADD COLUMN denied_destinations TEXT;
ALTER TABLE trunks ADD COLUMN allowed_destination_types TEXT;

-- As customer_usage and customer_starts are for customers.
CREATE TABLE application_usage (
    application_id TEXT PRIMARY KEY,
    taken BIGINT NOT NULL
);
CREATE TABLE application_starts (
    application_id TEXT NOT NULL,
    started_at BIGINT NOT NULL,
    PRIMARY KEY (application_id, started_at)
);

-- What a customer, an application or a trunk has done on a day (UTC, in days since 1970): calls begun, where there is a limit on them, and what was
-- charged for its calls that ended.
CREATE TABLE daily_usage (
    subject_id TEXT NOT NULL,
    day INTEGER NOT NULL,
    calls BIGINT NOT NULL,
    spent_micros BIGINT NOT NULL,
    PRIMARY KEY (subject_id, day)
);
CREATE INDEX daily_usage_day ON daily_usage (day);

-- Until when a call waits for room under the limits; null for one that waits to be started.
ALTER TABLE calls ADD COLUMN queue_until BIGINT;
CREATE INDEX calls_overflow ON calls (application_id, created_at, id) WHERE status = 'queued' AND queue_until IS NOT NULL;
CREATE INDEX calls_overflow_until ON calls (queue_until) WHERE status = 'queued' AND queue_until IS NOT NULL;

-- +goose Down
DROP INDEX calls_overflow_until;
DROP INDEX calls_overflow;
ALTER TABLE calls DROP COLUMN queue_until;
DROP TABLE daily_usage;
DROP TABLE application_starts;
DROP TABLE application_usage;
ALTER TABLE trunks DROP COLUMN allowed_destination_types;
ALTER TABLE trunks DROP COLUMN denied_destinations;
ALTER TABLE trunks DROP COLUMN allowed_destinations;
ALTER TABLE trunks DROP COLUMN max_call_seconds;
ALTER TABLE trunks DROP COLUMN max_spend_per_day_micros;
ALTER TABLE trunks DROP COLUMN max_calls_per_day;
ALTER TABLE applications DROP COLUMN allowed_destination_types;
ALTER TABLE applications DROP COLUMN denied_destinations;
ALTER TABLE applications DROP COLUMN allowed_destinations;
ALTER TABLE applications DROP COLUMN max_call_seconds;
ALTER TABLE applications DROP COLUMN max_spend_per_day_micros;
ALTER TABLE applications DROP COLUMN max_calls_per_day;
ALTER TABLE applications DROP COLUMN max_calls_per_second;
ALTER TABLE applications DROP COLUMN max_calls;
ALTER TABLE customers DROP COLUMN allowed_destination_types;
ALTER TABLE customers DROP COLUMN max_call_seconds;
ALTER TABLE customers DROP COLUMN max_spend_per_day_micros;
ALTER TABLE customers DROP COLUMN max_calls_per_day;

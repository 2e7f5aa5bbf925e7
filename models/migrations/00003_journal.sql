-- The journal of all events by position, redelivery, and what retention needs to find what is old.

-- +goose Up
-- The place of an event in the journal of all: readers that page by it miss nothing (journal.go says why). PostgreSQL numbers by
-- a sequence, which Store.Migrate makes; SQLite, which has none and one writer, by the highest position.
ALTER TABLE events ADD COLUMN position BIGINT NOT NULL DEFAULT 0;
WITH numbered AS (SELECT id, ROW_NUMBER() OVER (ORDER BY created_at, id) AS n FROM events)
    UPDATE events SET position = numbered.n FROM numbered WHERE numbered.id = events.id;
CREATE UNIQUE INDEX events_position_key ON events (position);
CREATE INDEX events_journal ON events (customer_id, position, created_at, type);

-- When a delivery was given up or passed over. A column of its own, so that an index finds these few without being written by the
-- many that are delivered.
ALTER TABLE webhook_deliveries ADD COLUMN given_up_at BIGINT;
UPDATE webhook_deliveries SET given_up_at = (SELECT e.created_at FROM events e WHERE e.id = webhook_deliveries.event_id)
    WHERE state IN ('dead', 'skipped');
-- A delivery that is sent again goes by a stream of its own, "redelivery/" and the subject: subject_id and seq name its place there, and told
-- keeps its number in the subject's stream.
ALTER TABLE webhook_deliveries ADD COLUMN told BIGINT;
CREATE INDEX webhook_deliveries_given_up ON webhook_deliveries (endpoint_id, given_up_at) WHERE given_up_at IS NOT NULL;

-- When a stream that was pulled forward, because its endpoint answers again, would have been due, and when an endpoint's streams were
-- pulled forward last.
ALTER TABLE webhook_streams ADD COLUMN pulled_from BIGINT;
ALTER TABLE webhook_endpoints ADD COLUMN pulled_at BIGINT;

-- Retention: attempts by age; ended calls whose legs, stays in queues and conferences and cursor are still kept; ended conferences.
CREATE INDEX webhook_attempts_age ON webhook_attempts (started_at);
ALTER TABLE calls ADD COLUMN pruned_at BIGINT;
CREATE INDEX calls_unpruned ON calls (ended_at) WHERE pruned_at IS NULL;
CREATE INDEX queue_entries_call ON queue_entries (call_id);
CREATE INDEX conference_members_call ON conference_members (call_id);
CREATE INDEX conference_members_conference ON conference_members (conference_id);
CREATE INDEX conferences_ended ON conferences (ended_at) WHERE ended_at IS NOT NULL;
INSERT INTO locks (name, taken) VALUES ('retention', 0);

-- +goose Down
DELETE FROM locks WHERE name = 'retention';
DROP INDEX conferences_ended;
DROP INDEX conference_members_conference;
DROP INDEX conference_members_call;
DROP INDEX queue_entries_call;
DROP INDEX calls_unpruned;
ALTER TABLE calls DROP COLUMN pruned_at;
DROP INDEX webhook_attempts_age;
ALTER TABLE webhook_endpoints DROP COLUMN pulled_at;
ALTER TABLE webhook_streams DROP COLUMN pulled_from;
DROP INDEX webhook_deliveries_given_up;
DELETE FROM webhook_streams WHERE subject_id LIKE 'redelivery/%';
UPDATE webhook_deliveries SET subject_id = SUBSTR(subject_id, 12), seq = told, state = CASE state WHEN 'pending' THEN 'dead' ELSE state END
    WHERE told IS NOT NULL;
ALTER TABLE webhook_deliveries DROP COLUMN told;
ALTER TABLE webhook_deliveries DROP COLUMN given_up_at;
DROP INDEX events_journal;
DROP INDEX events_position_key;
ALTER TABLE events DROP COLUMN position;

-- What nodes last said of trunks, what became of that over time, and what customers are yet to be told of it.

-- +goose Up
CREATE TABLE trunk_health (
    node_id TEXT NOT NULL REFERENCES nodes (id) ON DELETE CASCADE,
    trunk_id TEXT NOT NULL REFERENCES trunks (id) ON DELETE CASCADE,
    state TEXT NOT NULL,
    registered BOOLEAN,
    registered_at BIGINT,
    ping TEXT NOT NULL,
    ping_at BIGINT,
    -- When the customer is told of the registration, unless that changes back.
    due_at BIGINT,
    PRIMARY KEY (node_id, trunk_id)
);
CREATE INDEX trunk_health_trunk ON trunk_health (trunk_id);
CREATE INDEX trunk_health_due ON trunk_health (node_id, due_at) WHERE due_at IS NOT NULL;
INSERT INTO trunk_health (node_id, trunk_id, state, registered, registered_at, ping)
    SELECT node_id, trunk_id, '', registered, changed_at, '' FROM trunk_registrations;
CREATE TABLE trunk_changes (
    id TEXT PRIMARY KEY,
    trunk_id TEXT NOT NULL REFERENCES trunks (id) ON DELETE CASCADE,
    node_id TEXT NOT NULL,
    kind TEXT NOT NULL CHECK (kind IN ('registration', 'ping')),
    up BOOLEAN NOT NULL,
    flap BOOLEAN NOT NULL,
    state TEXT NOT NULL,
    created_at BIGINT NOT NULL
);
CREATE INDEX trunk_changes_page ON trunk_changes (trunk_id, created_at, id);
CREATE INDEX trunk_changes_age ON trunk_changes (created_at);

-- +goose Down
DROP TABLE trunk_changes;
DROP TABLE trunk_health;

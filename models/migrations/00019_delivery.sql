-- How a node gets its configuration, what its controller is asked to do with it, and where a node is not as it should be.

-- +goose Up
ALTER TABLE nodes ADD COLUMN delivery TEXT NOT NULL DEFAULT 'files' CHECK (delivery IN ('files', 'xml_curl'));

CREATE TABLE node_orders (
    id TEXT PRIMARY KEY,
    node_id TEXT NOT NULL REFERENCES nodes (id) ON DELETE CASCADE,
    kind TEXT NOT NULL CHECK (kind IN ('diff', 'apply')),
    prune BOOLEAN NOT NULL,
    asked_at BIGINT NOT NULL,
    done_at BIGINT,
    result BYTEA,
    error TEXT NOT NULL
);
CREATE INDEX node_orders_open ON node_orders (asked_at) WHERE done_at IS NULL;

CREATE TABLE node_drifts (
    id TEXT PRIMARY KEY,
    node_id TEXT NOT NULL REFERENCES nodes (id) ON DELETE CASCADE,
    kind TEXT NOT NULL,
    name TEXT NOT NULL,
    found_at BIGINT NOT NULL,
    ended_at BIGINT
);
CREATE UNIQUE INDEX node_drifts_open_key ON node_drifts (node_id, kind, name) WHERE ended_at IS NULL;
CREATE INDEX node_drifts_found ON node_drifts (node_id, found_at);

-- +goose Down
DROP TABLE node_drifts;
DROP TABLE node_orders;
ALTER TABLE nodes DROP COLUMN delivery;

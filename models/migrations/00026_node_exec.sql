-- A command for a node's switch, and the calls that nobody steers, are orders like the others. Orders live for an hour: those that are there now are forgotten.

-- +goose Up
DROP TABLE node_orders;
CREATE TABLE node_orders (
    id TEXT PRIMARY KEY,
    node_id TEXT NOT NULL REFERENCES nodes (id) ON DELETE CASCADE,
    kind TEXT NOT NULL CHECK (kind IN ('diff', 'apply', 'exec', 'strays', 'reap')),
    prune BOOLEAN NOT NULL,
    command TEXT NOT NULL,
    asked_at BIGINT NOT NULL,
    begun_at BIGINT,
    done_at BIGINT,
    result BYTEA,
    error TEXT NOT NULL
);
CREATE INDEX node_orders_open ON node_orders (asked_at) WHERE done_at IS NULL;

-- +goose Down
DROP TABLE node_orders;
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

-- Who calls in and is refused, by source and node.

-- +goose Up
CREATE TABLE strangers (
    -- An IPv4 address, or the /64 that an IPv6 address is in.
    source TEXT NOT NULL,
    node_id TEXT NOT NULL,
    uninvited BIGINT NOT NULL,
    unknown_number BIGINT NOT NULL,
    first_seen_at BIGINT NOT NULL,
    last_seen_at BIGINT NOT NULL,
    -- Of the last call.
    number TEXT NOT NULL,
    user_agent TEXT NOT NULL,
    known_as TEXT NOT NULL,
    -- Uninvited calls since window_at, which automatic blocking looks at.
    window_at BIGINT NOT NULL,
    window_count BIGINT NOT NULL,
    PRIMARY KEY (source, node_id)
);
CREATE INDEX strangers_age ON strangers (last_seen_at);

-- +goose Down
DROP TABLE strangers;

-- How much each node is to carry, whether it is being emptied, and what it last said of itself.

-- +goose Up
ALTER TABLE nodes ADD COLUMN weight INTEGER NOT NULL DEFAULT 100;
ALTER TABLE nodes ADD COLUMN draining_at BIGINT;
ALTER TABLE nodes ADD COLUMN drained_by TEXT NOT NULL DEFAULT '';
ALTER TABLE nodes ADD COLUMN drain_reason TEXT NOT NULL DEFAULT '';
CREATE TABLE node_health (
    node_id TEXT PRIMARY KEY REFERENCES nodes (id) ON DELETE CASCADE,
    measured_at BIGINT NOT NULL,
    heartbeat_at BIGINT,
    version TEXT NOT NULL,
    uptime_seconds BIGINT NOT NULL,
    ready BOOLEAN NOT NULL,
    inbound_paused BOOLEAN NOT NULL,
    outbound_paused BOOLEAN NOT NULL,
    drained BOOLEAN NOT NULL,
    sessions INTEGER NOT NULL,
    peak_sessions INTEGER NOT NULL,
    peak_sessions_five_minutes INTEGER NOT NULL,
    max_sessions INTEGER NOT NULL,
    sessions_since_start BIGINT NOT NULL,
    rate INTEGER NOT NULL,
    peak_rate INTEGER NOT NULL,
    peak_rate_five_minutes INTEGER NOT NULL,
    max_rate INTEGER NOT NULL,
    idle_cpu DOUBLE PRECISION NOT NULL,
    min_idle_cpu DOUBLE PRECISION NOT NULL,
    clock_skew_us BIGINT NOT NULL,
    answer_us BIGINT NOT NULL,
    missing_modules TEXT,
    problems TEXT
);

-- +goose Down
DROP TABLE node_health;
ALTER TABLE nodes DROP COLUMN drain_reason;
ALTER TABLE nodes DROP COLUMN drained_by;
ALTER TABLE nodes DROP COLUMN draining_at;
ALTER TABLE nodes DROP COLUMN weight;

-- Fences on calls, commands for calls that any controller accepts and the holder of their node carries out, and which nodes can
-- take a call.

-- +goose Up
ALTER TABLE calls ADD COLUMN fence BIGINT NOT NULL DEFAULT 0;
ALTER TABLE calls ADD COLUMN last_command BIGINT NOT NULL DEFAULT 0;

ALTER TABLE nodes ADD COLUMN connected_until BIGINT;

CREATE TABLE call_commands (
    id TEXT PRIMARY KEY,
    call_id TEXT NOT NULL REFERENCES calls (id) ON DELETE CASCADE,
    node_id TEXT NOT NULL REFERENCES nodes (id) ON DELETE CASCADE,
    position BIGINT NOT NULL,
    kind TEXT NOT NULL CHECK (kind IN ('dial', 'direct', 'cancel', 'group')),
    payload TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    CONSTRAINT call_commands_position_key UNIQUE (call_id, position)
);
CREATE INDEX call_commands_node ON call_commands (node_id, call_id, position);

-- +goose Down
DROP TABLE call_commands;
ALTER TABLE nodes DROP COLUMN connected_until;
ALTER TABLE calls DROP COLUMN last_command;
ALTER TABLE calls DROP COLUMN fence;

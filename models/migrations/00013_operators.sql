-- Who runs the installation, by tokens with a role, and what they and the customers' keys changed.

-- +goose Up
CREATE TABLE operators (
    id TEXT PRIMARY KEY,
    name TEXT NOT NULL,
    role TEXT NOT NULL CHECK (role IN ('viewer', 'operator', 'admin')),
    prefix TEXT NOT NULL,
    lookup TEXT NOT NULL,
    hash BYTEA NOT NULL,
    created_at BIGINT NOT NULL,
    expires_at BIGINT,
    last_used_at BIGINT,
    revoked_at BIGINT
);
CREATE INDEX operators_lookup ON operators (lookup) WHERE revoked_at IS NULL;
CREATE INDEX operators_page ON operators (created_at, id);

-- Nothing refers to the rows that an entry names: it outlives them.
CREATE TABLE audit_entries (
    id TEXT PRIMARY KEY,
    actor_kind TEXT NOT NULL CHECK (actor_kind IN ('operator', 'api_key', 'command')),
    actor_id TEXT NOT NULL,
    actor_name TEXT NOT NULL,
    action TEXT NOT NULL,
    customer_id TEXT,
    object_id TEXT NOT NULL,
    detail TEXT,
    request_id TEXT NOT NULL,
    remote TEXT NOT NULL,
    created_at BIGINT NOT NULL
);
CREATE INDEX audit_entries_page ON audit_entries (created_at, id);
CREATE INDEX audit_entries_customer ON audit_entries (customer_id, created_at, id) WHERE customer_id IS NOT NULL;
CREATE INDEX audit_entries_actor ON audit_entries (actor_id, created_at, id);
CREATE INDEX audit_entries_object ON audit_entries (object_id, created_at, id) WHERE object_id <> '';

-- +goose Down
DROP TABLE audit_entries;
DROP TABLE operators;

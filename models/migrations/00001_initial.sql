-- One schema for PostgreSQL and SQLite. BIGINT moments are microseconds since 1970 UTC; amounts are millionths of the
-- currency unit; JSON is TEXT. BYTEA is PostgreSQL's name, under which SQLite stores a blob as it is.
-- A reference to an application, trunk or DID carries the customer with it: rows of two customers cannot be tied together.

-- +goose Up
CREATE TABLE locks (
    name TEXT PRIMARY KEY,
    taken BIGINT NOT NULL DEFAULT 0
);
INSERT INTO locks (name) VALUES ('trunks.inbound_ip');

CREATE TABLE customers (
    id TEXT PRIMARY KEY,
    name TEXT NOT NULL,
    currency TEXT NOT NULL,
    balance_micros BIGINT NOT NULL DEFAULT 0,
    held_micros BIGINT NOT NULL DEFAULT 0,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    CONSTRAINT customers_covered CHECK (held_micros >= 0 AND balance_micros >= held_micros)
);
CREATE INDEX customers_page ON customers (created_at, id);

CREATE TABLE applications (
    id TEXT PRIMARY KEY,
    customer_id TEXT NOT NULL REFERENCES customers (id),
    name TEXT NOT NULL,
    answer_url TEXT NOT NULL,
    webhook_url TEXT NOT NULL,
    fallback_url TEXT NOT NULL,
    webhook_secret TEXT NOT NULL,
    previous_secret TEXT NOT NULL,
    previous_secret_until BIGINT,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    deleted_at BIGINT,
    UNIQUE (id, customer_id)
);
CREATE INDEX applications_page ON applications (customer_id, created_at, id) WHERE deleted_at IS NULL;

CREATE TABLE api_keys (
    id TEXT PRIMARY KEY,
    customer_id TEXT NOT NULL REFERENCES customers (id),
    application_id TEXT,
    name TEXT NOT NULL,
    prefix TEXT NOT NULL,
    lookup TEXT NOT NULL,
    hash BYTEA NOT NULL,
    created_at BIGINT NOT NULL,
    last_used_at BIGINT,
    revoked_at BIGINT,
    FOREIGN KEY (application_id, customer_id) REFERENCES applications (id, customer_id)
);
CREATE INDEX api_keys_lookup ON api_keys (lookup) WHERE revoked_at IS NULL;
CREATE INDEX api_keys_page ON api_keys (customer_id, created_at, id);
CREATE INDEX api_keys_application ON api_keys (application_id);

CREATE TABLE trunks (
    id TEXT PRIMARY KEY,
    customer_id TEXT NOT NULL REFERENCES customers (id),
    name TEXT NOT NULL,
    direction TEXT NOT NULL CHECK (direction IN ('outbound', 'inbound')),
    gateway_name TEXT NOT NULL,
    proxy TEXT NOT NULL,
    username TEXT NOT NULL,
    password TEXT NOT NULL,
    realm TEXT NOT NULL,
    from_domain TEXT NOT NULL,
    register BOOLEAN NOT NULL,
    is_active BOOLEAN NOT NULL,
    inbound_ip TEXT NOT NULL,
    inbound_first TEXT NOT NULL,
    inbound_last TEXT NOT NULL,
    application_id TEXT,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    deleted_at BIGINT,
    UNIQUE (id, customer_id),
    FOREIGN KEY (application_id, customer_id) REFERENCES applications (id, customer_id)
);
CREATE INDEX trunks_page ON trunks (customer_id, created_at, id) WHERE deleted_at IS NULL;
CREATE UNIQUE INDEX trunks_gateway_name_key ON trunks (gateway_name) WHERE deleted_at IS NULL AND gateway_name <> '';
CREATE UNIQUE INDEX trunks_inbound_ip_key ON trunks (inbound_ip) WHERE deleted_at IS NULL AND inbound_ip <> '';
CREATE INDEX trunks_inbound_range ON trunks (inbound_first) WHERE deleted_at IS NULL AND inbound_first <> '';
CREATE INDEX trunks_application ON trunks (application_id) WHERE deleted_at IS NULL;

CREATE TABLE dids (
    id TEXT PRIMARY KEY,
    customer_id TEXT NOT NULL REFERENCES customers (id),
    application_id TEXT,
    number_e164 TEXT NOT NULL,
    provider TEXT NOT NULL,
    status TEXT NOT NULL CHECK (status IN ('active', 'suspended')),
    route_mode TEXT NOT NULL CHECK (route_mode IN ('webhook', 'sip', 'reject')),
    sip_uri TEXT NOT NULL,
    reject_code INTEGER NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    deleted_at BIGINT,
    UNIQUE (id, customer_id),
    FOREIGN KEY (application_id, customer_id) REFERENCES applications (id, customer_id)
);
CREATE INDEX dids_page ON dids (customer_id, created_at, id) WHERE deleted_at IS NULL;
CREATE UNIQUE INDEX dids_number_key ON dids (number_e164) WHERE deleted_at IS NULL;
CREATE INDEX dids_application ON dids (application_id) WHERE deleted_at IS NULL;

CREATE TABLE nodes (
    id TEXT PRIMARY KEY,
    name TEXT NOT NULL,
    esl_addr TEXT NOT NULL,
    password TEXT NOT NULL,
    conf_dir TEXT NOT NULL,
    is_active BOOLEAN NOT NULL,
    lease_owner TEXT NOT NULL,
    lease_token BIGINT NOT NULL,
    lease_until BIGINT,
    core_uuid TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    CONSTRAINT nodes_name_key UNIQUE (name)
);

CREATE TABLE gateway_statuses (
    node_id TEXT NOT NULL REFERENCES nodes (id) ON DELETE CASCADE,
    trunk_id TEXT NOT NULL REFERENCES trunks (id) ON DELETE CASCADE,
    state TEXT NOT NULL,
    status TEXT NOT NULL,
    ping_ms DOUBLE PRECISION NOT NULL,
    updated_at BIGINT NOT NULL,
    PRIMARY KEY (node_id, trunk_id)
);
CREATE INDEX gateway_statuses_trunk ON gateway_statuses (trunk_id);

CREATE TABLE calls (
    id TEXT PRIMARY KEY,
    customer_id TEXT NOT NULL REFERENCES customers (id),
    application_id TEXT NOT NULL,
    trunk_id TEXT,
    did_id TEXT,
    node_id TEXT REFERENCES nodes (id) ON DELETE SET NULL,
    direction TEXT NOT NULL CHECK (direction IN ('outbound', 'inbound')),
    status TEXT NOT NULL CHECK (status IN ('queued', 'dialing', 'ringing', 'in_progress', 'completed', 'busy', 'no_answer', 'rejected', 'canceled', 'failed')),
    from_number TEXT NOT NULL,
    to_number TEXT NOT NULL,
    record BOOLEAN NOT NULL,
    metadata TEXT NOT NULL,
    variables TEXT NOT NULL,
    channel_id TEXT NOT NULL,
    reason TEXT NOT NULL,
    hangup_source TEXT NOT NULL,
    cause TEXT NOT NULL,
    q850 INTEGER NOT NULL,
    sip_code INTEGER NOT NULL,
    price_per_minute_micros BIGINT NOT NULL CHECK (price_per_minute_micros >= 0),
    hold_micros BIGINT NOT NULL CHECK (hold_micros >= 0),
    granted_seconds INTEGER NOT NULL,
    timeout_seconds INTEGER NOT NULL,
    billed_seconds INTEGER NOT NULL CHECK (billed_seconds >= 0),
    cost_micros BIGINT NOT NULL CHECK (cost_micros >= 0),
    last_sequence BIGINT NOT NULL,
    cursor TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    ringing_at BIGINT,
    answered_at BIGINT,
    ended_at BIGINT,
    settled_at BIGINT,
    FOREIGN KEY (application_id, customer_id) REFERENCES applications (id, customer_id),
    FOREIGN KEY (trunk_id, customer_id) REFERENCES trunks (id, customer_id),
    FOREIGN KEY (did_id, customer_id) REFERENCES dids (id, customer_id),
    UNIQUE (id, customer_id)
);
CREATE INDEX calls_page ON calls (customer_id, created_at, id);
CREATE UNIQUE INDEX calls_channel_id_key ON calls (channel_id) WHERE channel_id <> '';
CREATE INDEX calls_live_node ON calls (node_id) WHERE status IN ('queued', 'dialing', 'ringing', 'in_progress');
CREATE INDEX calls_live_customer ON calls (customer_id) WHERE status IN ('queued', 'dialing', 'ringing', 'in_progress');
CREATE INDEX calls_live_application ON calls (application_id) WHERE status IN ('queued', 'dialing', 'ringing', 'in_progress');
CREATE INDEX calls_live_trunk ON calls (trunk_id) WHERE status IN ('queued', 'dialing', 'ringing', 'in_progress');
CREATE INDEX calls_unsettled ON calls (customer_id) WHERE settled_at IS NULL;

CREATE TABLE recordings (
    id TEXT PRIMARY KEY,
    call_id TEXT NOT NULL,
    customer_id TEXT NOT NULL,
    path TEXT NOT NULL,
    format TEXT NOT NULL,
    status TEXT NOT NULL CHECK (status IN ('recording', 'available', 'failed')),
    seconds DOUBLE PRECISION NOT NULL,
    created_at BIGINT NOT NULL,
    ended_at BIGINT,
    FOREIGN KEY (call_id, customer_id) REFERENCES calls (id, customer_id)
);
CREATE INDEX recordings_call ON recordings (call_id, created_at, id);

CREATE TABLE call_events (
    id TEXT PRIMARY KEY,
    call_id TEXT NOT NULL,
    customer_id TEXT NOT NULL,
    application_id TEXT NOT NULL,
    sequence BIGINT NOT NULL,
    type TEXT NOT NULL,
    body BYTEA NOT NULL,
    created_at BIGINT NOT NULL,
    FOREIGN KEY (call_id, customer_id) REFERENCES calls (id, customer_id),
    UNIQUE (call_id, sequence)
);
-- A call ends once.
CREATE UNIQUE INDEX call_events_terminal_key ON call_events (call_id) WHERE type IN ('call.completed', 'call.failed');

CREATE TABLE webhook_endpoints (
    application_id TEXT PRIMARY KEY REFERENCES applications (id),
    consecutive_failures INTEGER NOT NULL,
    failing_since BIGINT,
    disabled_at BIGINT,
    disabled_reason TEXT NOT NULL
);

CREATE TABLE webhook_streams (
    call_id TEXT NOT NULL REFERENCES calls (id),
    endpoint_id TEXT NOT NULL REFERENCES webhook_endpoints (application_id),
    last_seq BIGINT NOT NULL,
    acked_seq BIGINT NOT NULL,
    due_at BIGINT,
    lease_token BIGINT NOT NULL,
    lease_owner TEXT NOT NULL,
    lease_until BIGINT,
    attempts INTEGER NOT NULL,
    PRIMARY KEY (call_id, endpoint_id),
    CHECK (acked_seq <= last_seq)
);
-- Claims go by endpoint, the next wake-up by time alone, caps by what is leased.
CREATE INDEX webhook_streams_claim ON webhook_streams (endpoint_id, due_at) WHERE due_at IS NOT NULL;
CREATE INDEX webhook_streams_due ON webhook_streams (due_at) WHERE due_at IS NOT NULL;
CREATE INDEX webhook_streams_leased ON webhook_streams (endpoint_id, lease_until) WHERE lease_until IS NOT NULL;

CREATE TABLE webhook_deliveries (
    event_id TEXT PRIMARY KEY REFERENCES call_events (id),
    call_id TEXT NOT NULL,
    endpoint_id TEXT NOT NULL REFERENCES webhook_endpoints (application_id),
    seq BIGINT NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('pending', 'delivered', 'dead', 'skipped')),
    attempts INTEGER NOT NULL,
    last_status INTEGER NOT NULL,
    delivered_at BIGINT,
    UNIQUE (call_id, endpoint_id, seq)
);

CREATE TABLE webhook_attempts (
    id TEXT PRIMARY KEY,
    event_id TEXT NOT NULL REFERENCES call_events (id),
    number INTEGER NOT NULL,
    started_at BIGINT NOT NULL,
    latency_ms DOUBLE PRECISION NOT NULL,
    status INTEGER NOT NULL,
    error TEXT NOT NULL,
    response TEXT NOT NULL
);
CREATE INDEX webhook_attempts_event ON webhook_attempts (event_id, started_at, id);

CREATE TABLE ledger_entries (
    id TEXT PRIMARY KEY,
    customer_id TEXT NOT NULL REFERENCES customers (id),
    key TEXT NOT NULL,
    kind TEXT NOT NULL CHECK (kind IN ('topup', 'call', 'adjust')),
    amount_micros BIGINT NOT NULL,
    balance_micros BIGINT NOT NULL,
    call_id TEXT,
    note TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    FOREIGN KEY (call_id, customer_id) REFERENCES calls (id, customer_id),
    UNIQUE (customer_id, key)
);
CREATE INDEX ledger_entries_page ON ledger_entries (customer_id, created_at, id);
-- At most one debit per call.
CREATE UNIQUE INDEX ledger_entries_call_key ON ledger_entries (call_id) WHERE kind = 'call';

CREATE TABLE idempotent_responses (
    customer_id TEXT NOT NULL REFERENCES customers (id),
    key TEXT NOT NULL,
    method TEXT NOT NULL,
    path TEXT NOT NULL,
    request_hash TEXT NOT NULL,
    status INTEGER NOT NULL,
    body BYTEA NOT NULL,
    created_at BIGINT NOT NULL,
    PRIMARY KEY (customer_id, key)
);
CREATE INDEX idempotent_responses_age ON idempotent_responses (created_at);

-- +goose Down
DROP TABLE idempotent_responses;
DROP TABLE ledger_entries;
DROP TABLE webhook_attempts;
DROP TABLE webhook_deliveries;
DROP TABLE webhook_streams;
DROP TABLE webhook_endpoints;
DROP TABLE call_events;
DROP TABLE recordings;
DROP TABLE calls;
DROP TABLE gateway_statuses;
DROP TABLE nodes;
DROP TABLE dids;
DROP TABLE trunks;
DROP TABLE api_keys;
DROP TABLE applications;
DROP TABLE customers;
DROP TABLE locks;

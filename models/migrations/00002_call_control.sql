-- Legs, queues, conferences, kinds of events that an application wants, events without a call. Tables whose constraints change
-- are copied, dropped, made anew and filled: SQLite changes no constraint in place. Children go first and come back last.

-- +goose Up
ALTER TABLE applications ADD COLUMN fallback_actions TEXT;
ALTER TABLE applications ADD COLUMN wait_actions TEXT;
ALTER TABLE applications ADD COLUMN event_kinds TEXT;

ALTER TABLE calls ADD COLUMN retry_of TEXT;
ALTER TABLE calls ADD COLUMN answered_by TEXT NOT NULL DEFAULT '';
ALTER TABLE calls ADD COLUMN machine_detection TEXT;

CREATE TABLE recordings_copy AS SELECT * FROM recordings;
DROP TABLE recordings;
CREATE TABLE recordings (
    id TEXT PRIMARY KEY,
    call_id TEXT NOT NULL,
    customer_id TEXT NOT NULL,
    path TEXT NOT NULL,
    format TEXT NOT NULL,
    channels INTEGER NOT NULL CHECK (channels IN (1, 2)),
    status TEXT NOT NULL CHECK (status IN ('recording', 'paused', 'available', 'failed')),
    seconds DOUBLE PRECISION NOT NULL,
    created_at BIGINT NOT NULL,
    ended_at BIGINT,
    FOREIGN KEY (call_id, customer_id) REFERENCES calls (id, customer_id)
);
CREATE INDEX recordings_call ON recordings (call_id, created_at, id);
INSERT INTO recordings (id, call_id, customer_id, path, format, channels, status, seconds, created_at, ended_at)
    SELECT id, call_id, customer_id, path, format, 1, status, seconds, created_at, ended_at FROM recordings_copy;
DROP TABLE recordings_copy;

CREATE TABLE legs (
    id TEXT PRIMARY KEY,
    call_id TEXT NOT NULL,
    customer_id TEXT NOT NULL,
    channel_id TEXT NOT NULL,
    kind TEXT NOT NULL CHECK (kind IN ('dial', 'transfer', 'queue')),
    target TEXT NOT NULL,
    trunk_id TEXT,
    status TEXT NOT NULL CHECK (status IN ('dialing', 'ringing', 'answered', 'ended')),
    dial_status TEXT NOT NULL,
    reason TEXT NOT NULL,
    cause TEXT NOT NULL,
    q850 INTEGER NOT NULL,
    sip_code INTEGER NOT NULL,
    answered_by TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    ringing_at BIGINT,
    answered_at BIGINT,
    ended_at BIGINT,
    seconds DOUBLE PRECISION NOT NULL,
    FOREIGN KEY (call_id, customer_id) REFERENCES calls (id, customer_id),
    FOREIGN KEY (trunk_id, customer_id) REFERENCES trunks (id, customer_id)
);
CREATE INDEX legs_call ON legs (call_id, created_at, id);

CREATE TABLE queue_entries (
    id TEXT PRIMARY KEY,
    customer_id TEXT NOT NULL,
    queue TEXT NOT NULL,
    call_id TEXT NOT NULL,
    node_id TEXT REFERENCES nodes (id) ON DELETE SET NULL,
    priority INTEGER NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('waiting', 'taken', 'bridged', 'left')),
    taken_by TEXT NOT NULL,
    outcome TEXT NOT NULL,
    joined_at BIGINT NOT NULL,
    taken_at BIGINT,
    left_at BIGINT,
    FOREIGN KEY (call_id, customer_id) REFERENCES calls (id, customer_id)
);
CREATE INDEX queue_entries_waiting ON queue_entries (customer_id, queue, priority DESC, joined_at, id) WHERE state = 'waiting';
CREATE INDEX queue_entries_present ON queue_entries (customer_id, queue, priority DESC, joined_at, id) WHERE state <> 'left';
-- A call waits in one place at a time.
CREATE UNIQUE INDEX queue_entries_call_key ON queue_entries (call_id) WHERE state <> 'left';

CREATE TABLE conferences (
    id TEXT PRIMARY KEY,
    customer_id TEXT NOT NULL REFERENCES customers (id),
    name TEXT NOT NULL,
    node_id TEXT REFERENCES nodes (id) ON DELETE SET NULL,
    room TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    ended_at BIGINT,
    UNIQUE (id, customer_id)
);
CREATE UNIQUE INDEX conferences_name_key ON conferences (customer_id, name) WHERE ended_at IS NULL;
CREATE INDEX conferences_page ON conferences (customer_id, created_at, id) WHERE ended_at IS NULL;
CREATE INDEX conferences_node ON conferences (node_id) WHERE ended_at IS NULL;

CREATE TABLE conference_members (
    id TEXT PRIMARY KEY,
    conference_id TEXT NOT NULL,
    customer_id TEXT NOT NULL,
    call_id TEXT NOT NULL,
    member_id TEXT NOT NULL,
    muted BOOLEAN NOT NULL,
    joined_at BIGINT NOT NULL,
    left_at BIGINT,
    outcome TEXT NOT NULL,
    FOREIGN KEY (conference_id, customer_id) REFERENCES conferences (id, customer_id),
    FOREIGN KEY (call_id, customer_id) REFERENCES calls (id, customer_id)
);
CREATE INDEX conference_members_present ON conference_members (conference_id, joined_at, id) WHERE left_at IS NULL;
CREATE UNIQUE INDEX conference_members_call_key ON conference_members (call_id) WHERE left_at IS NULL;

CREATE TABLE webhook_attempts_copy AS SELECT * FROM webhook_attempts;
CREATE TABLE webhook_deliveries_copy AS SELECT * FROM webhook_deliveries;
CREATE TABLE webhook_streams_copy AS SELECT * FROM webhook_streams;
DROP TABLE webhook_attempts;
DROP TABLE webhook_deliveries;
DROP TABLE webhook_streams;

-- What an event tells of is its subject: a call, or a trunk or application, which have no call_id.
CREATE TABLE events (
    id TEXT PRIMARY KEY,
    subject_id TEXT NOT NULL,
    call_id TEXT,
    customer_id TEXT NOT NULL,
    application_id TEXT NOT NULL,
    sequence BIGINT NOT NULL,
    type TEXT NOT NULL,
    body BYTEA NOT NULL,
    created_at BIGINT NOT NULL,
    FOREIGN KEY (call_id, customer_id) REFERENCES calls (id, customer_id),
    FOREIGN KEY (application_id, customer_id) REFERENCES applications (id, customer_id),
    CHECK (call_id = subject_id),
    UNIQUE (subject_id, sequence, application_id)
);
-- A call ends once.
CREATE UNIQUE INDEX events_terminal_key ON events (call_id) WHERE type IN ('call.completed', 'call.failed');
INSERT INTO events (id, subject_id, call_id, customer_id, application_id, sequence, type, body, created_at)
    SELECT id, call_id, call_id, customer_id, application_id, sequence, type, body, created_at FROM call_events;
DROP TABLE call_events;

-- The last sequence of each subject that is no call, for each application that is told; a call has its own in its row.
CREATE TABLE event_counters (
    subject_id TEXT NOT NULL,
    application_id TEXT NOT NULL REFERENCES applications (id),
    last_sequence BIGINT NOT NULL,
    PRIMARY KEY (subject_id, application_id)
);

-- last_seq, acked_seq and seq count what is delivered, without gaps; an event's sequence counts what happened.
CREATE TABLE webhook_streams (
    subject_id TEXT NOT NULL,
    endpoint_id TEXT NOT NULL REFERENCES webhook_endpoints (application_id),
    last_seq BIGINT NOT NULL,
    acked_seq BIGINT NOT NULL,
    due_at BIGINT,
    lease_token BIGINT NOT NULL,
    lease_owner TEXT NOT NULL,
    lease_until BIGINT,
    attempts INTEGER NOT NULL,
    PRIMARY KEY (subject_id, endpoint_id),
    CHECK (acked_seq <= last_seq)
);
CREATE INDEX webhook_streams_claim ON webhook_streams (endpoint_id, due_at) WHERE due_at IS NOT NULL;
CREATE INDEX webhook_streams_due ON webhook_streams (due_at) WHERE due_at IS NOT NULL;
CREATE INDEX webhook_streams_leased ON webhook_streams (endpoint_id, lease_until) WHERE lease_until IS NOT NULL;
INSERT INTO webhook_streams (subject_id, endpoint_id, last_seq, acked_seq, due_at, lease_token, lease_owner, lease_until, attempts)
    SELECT call_id, endpoint_id, last_seq, acked_seq, due_at, lease_token, lease_owner, lease_until, attempts FROM webhook_streams_copy;
DROP TABLE webhook_streams_copy;

CREATE TABLE webhook_deliveries (
    event_id TEXT PRIMARY KEY REFERENCES events (id),
    subject_id TEXT NOT NULL,
    endpoint_id TEXT NOT NULL REFERENCES webhook_endpoints (application_id),
    seq BIGINT NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('pending', 'delivered', 'dead', 'skipped')),
    attempts INTEGER NOT NULL,
    last_status INTEGER NOT NULL,
    delivered_at BIGINT,
    UNIQUE (subject_id, endpoint_id, seq)
);
INSERT INTO webhook_deliveries (event_id, subject_id, endpoint_id, seq, state, attempts, last_status, delivered_at)
    SELECT event_id, call_id, endpoint_id, seq, state, attempts, last_status, delivered_at FROM webhook_deliveries_copy;
DROP TABLE webhook_deliveries_copy;

CREATE TABLE webhook_attempts (
    id TEXT PRIMARY KEY,
    event_id TEXT NOT NULL REFERENCES events (id),
    number INTEGER NOT NULL,
    started_at BIGINT NOT NULL,
    latency_ms DOUBLE PRECISION NOT NULL,
    status INTEGER NOT NULL,
    error TEXT NOT NULL,
    response TEXT NOT NULL
);
CREATE INDEX webhook_attempts_event ON webhook_attempts (event_id, started_at, id);
INSERT INTO webhook_attempts SELECT * FROM webhook_attempts_copy;
DROP TABLE webhook_attempts_copy;

-- What customers were last told of a trunk's registration at a node. Unlike a status it outlives the node's absence.
CREATE TABLE trunk_registrations (
    node_id TEXT NOT NULL REFERENCES nodes (id) ON DELETE CASCADE,
    trunk_id TEXT NOT NULL REFERENCES trunks (id) ON DELETE CASCADE,
    registered BOOLEAN NOT NULL,
    changed_at BIGINT NOT NULL,
    PRIMARY KEY (node_id, trunk_id)
);
CREATE INDEX trunk_registrations_trunk ON trunk_registrations (trunk_id);

-- +goose Down
DROP TABLE trunk_registrations;

-- The older schema has no events without a call, and its streams deliver every event of a call under its sequence. So streams
-- count by that again, and what an application did not want is skipped where the stream is past it and pending where it is not.
CREATE TABLE webhook_streams_copy AS
    SELECT s.*, (SELECT MAX(e.sequence) FROM events e WHERE e.call_id = s.subject_id) AS last_sequence,
        (SELECT MIN(e.sequence) FROM webhook_deliveries d JOIN events e ON e.id = d.event_id
            WHERE d.subject_id = s.subject_id AND d.endpoint_id = s.endpoint_id AND d.seq > s.acked_seq) AS head
    FROM webhook_streams s JOIN calls c ON c.id = s.subject_id;
CREATE TABLE webhook_deliveries_copy AS
    SELECT e.id AS event_id, e.call_id, s.endpoint_id, e.sequence AS seq,
        COALESCE(d.state, CASE WHEN e.sequence > s.head THEN 'pending' ELSE 'skipped' END) AS state,
        COALESCE(d.attempts, 0) AS attempts, COALESCE(d.last_status, 0) AS last_status, d.delivered_at
    FROM webhook_streams_copy s JOIN events e ON e.call_id = s.subject_id AND e.application_id = s.endpoint_id
    LEFT JOIN webhook_deliveries d ON d.event_id = e.id;
CREATE TABLE webhook_attempts_copy AS
    SELECT a.* FROM webhook_attempts a JOIN events e ON e.id = a.event_id WHERE e.call_id IS NOT NULL;
DROP TABLE webhook_attempts;
DROP TABLE webhook_deliveries;
DROP TABLE webhook_streams;

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
CREATE UNIQUE INDEX call_events_terminal_key ON call_events (call_id) WHERE type IN ('call.completed', 'call.failed');
INSERT INTO call_events (id, call_id, customer_id, application_id, sequence, type, body, created_at)
    SELECT id, call_id, customer_id, application_id, sequence, type, body, created_at FROM events WHERE call_id IS NOT NULL;
DROP TABLE event_counters;
DROP TABLE events;

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
CREATE INDEX webhook_streams_claim ON webhook_streams (endpoint_id, due_at) WHERE due_at IS NOT NULL;
CREATE INDEX webhook_streams_due ON webhook_streams (due_at) WHERE due_at IS NOT NULL;
CREATE INDEX webhook_streams_leased ON webhook_streams (endpoint_id, lease_until) WHERE lease_until IS NOT NULL;
INSERT INTO webhook_streams (call_id, endpoint_id, last_seq, acked_seq, due_at, lease_token, lease_owner, lease_until, attempts)
    SELECT subject_id, endpoint_id, last_sequence, COALESCE(head - 1, last_sequence), due_at, lease_token, lease_owner, lease_until, attempts
    FROM webhook_streams_copy;
DROP TABLE webhook_streams_copy;

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
INSERT INTO webhook_deliveries (event_id, call_id, endpoint_id, seq, state, attempts, last_status, delivered_at)
    SELECT event_id, call_id, endpoint_id, seq, state, attempts, last_status, delivered_at FROM webhook_deliveries_copy;
DROP TABLE webhook_deliveries_copy;

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
INSERT INTO webhook_attempts SELECT * FROM webhook_attempts_copy;
DROP TABLE webhook_attempts_copy;

DROP TABLE conference_members;
DROP TABLE conferences;
DROP TABLE queue_entries;
DROP TABLE legs;

-- A paused recording was running, as far as the older schema knows.
CREATE TABLE recordings_copy AS SELECT * FROM recordings;
DROP TABLE recordings;
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
INSERT INTO recordings (id, call_id, customer_id, path, format, status, seconds, created_at, ended_at)
    SELECT id, call_id, customer_id, path, format, CASE status WHEN 'paused' THEN 'recording' ELSE status END, seconds, created_at, ended_at
    FROM recordings_copy;
DROP TABLE recordings_copy;

ALTER TABLE calls DROP COLUMN machine_detection;
ALTER TABLE calls DROP COLUMN answered_by;
ALTER TABLE calls DROP COLUMN retry_of;
ALTER TABLE applications DROP COLUMN event_kinds;
ALTER TABLE applications DROP COLUMN wait_actions;
ALTER TABLE applications DROP COLUMN fallback_actions;

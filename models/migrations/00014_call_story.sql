-- What an operator looks at: the calls of all customers, newest first, and what each call asked its application, and what its switch
-- says of its SIP and media.

-- +goose Up
CREATE INDEX calls_newest ON calls (created_at, id);

CREATE TABLE answer_requests (
    id TEXT PRIMARY KEY,
    call_id TEXT NOT NULL,
    customer_id TEXT NOT NULL,
    request_id TEXT NOT NULL,
    kind TEXT NOT NULL CHECK (kind IN ('answer', 'result')),
    url TEXT NOT NULL,
    attempt INTEGER NOT NULL,
    started_at BIGINT NOT NULL,
    latency_ms DOUBLE PRECISION NOT NULL,
    status INTEGER NOT NULL,
    error TEXT NOT NULL,
    actions TEXT NOT NULL,
    FOREIGN KEY (call_id, customer_id) REFERENCES calls (id, customer_id)
);
CREATE INDEX answer_requests_call ON answer_requests (call_id, started_at, id);

ALTER TABLE cdrs ADD COLUMN sip_call_id TEXT NOT NULL DEFAULT '';
ALTER TABLE cdrs ADD COLUMN peer TEXT NOT NULL DEFAULT '';
ALTER TABLE cdrs ADD COLUMN codec TEXT NOT NULL DEFAULT '';
ALTER TABLE cdrs ADD COLUMN packets_in BIGINT;
ALTER TABLE cdrs ADD COLUMN packets_out BIGINT;

-- +goose Down
ALTER TABLE cdrs DROP COLUMN packets_out;
ALTER TABLE cdrs DROP COLUMN packets_in;
ALTER TABLE cdrs DROP COLUMN codec;
ALTER TABLE cdrs DROP COLUMN peer;
ALTER TABLE cdrs DROP COLUMN sip_call_id;
DROP TABLE answer_requests;
DROP INDEX calls_newest;

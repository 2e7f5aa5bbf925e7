-- Accounts: when a customer is told that money runs out, who moved it and in which order, and what usage is counted by.

-- +goose Up
-- The threshold of balance.low, NULL for none; what the customer was told and has not been armed for again; the place of its last ledger entry.
ALTER TABLE customers ADD COLUMN low_balance_micros BIGINT;
ALTER TABLE customers ADD COLUMN low_told BOOLEAN NOT NULL DEFAULT FALSE;
ALTER TABLE customers ADD COLUMN exhausted_told BOOLEAN NOT NULL DEFAULT FALSE;
ALTER TABLE customers ADD COLUMN ledger_seq BIGINT NOT NULL DEFAULT 0;

-- The place of an entry among those of its customer, and who made it.
ALTER TABLE ledger_entries ADD COLUMN seq BIGINT NOT NULL DEFAULT 0;
ALTER TABLE ledger_entries ADD COLUMN actor TEXT NOT NULL DEFAULT '';
UPDATE ledger_entries SET seq = numbered.seq
    FROM (SELECT id, ROW_NUMBER() OVER (PARTITION BY customer_id ORDER BY created_at, id) AS seq FROM ledger_entries) AS numbered
    WHERE numbered.id = ledger_entries.id;
UPDATE customers SET ledger_seq = (SELECT COALESCE(MAX(l.seq), 0) FROM ledger_entries l WHERE l.customer_id = customers.id);
-- A debit has the time of its call's settlement.
UPDATE ledger_entries SET created_at = (SELECT c.settled_at FROM calls c WHERE c.id = ledger_entries.call_id)
    WHERE kind = 'call' AND EXISTS (SELECT 1 FROM calls c WHERE c.id = ledger_entries.call_id AND c.settled_at IS NOT NULL);
DROP INDEX ledger_entries_page;
CREATE INDEX ledger_entries_page ON ledger_entries (customer_id, seq);
-- Statements are made from the index alone.
CREATE INDEX ledger_entries_sums ON ledger_entries (customer_id, created_at, kind, amount_micros);
-- Top-ups and adjustments are few among the debits.
CREATE INDEX ledger_entries_payments ON ledger_entries (customer_id, seq) WHERE kind <> 'call';

-- What usage is counted by: the call's application and direction, what the rate calls the destination, and for how many seconds the leg was charged:
-- its increments, at least its minimum. Copied, so that the lines of a customer can be summed up without looking for a call for each.
ALTER TABLE charges ADD COLUMN application_id TEXT NOT NULL DEFAULT '';
ALTER TABLE charges ADD COLUMN direction TEXT NOT NULL DEFAULT '';
ALTER TABLE charges ADD COLUMN destination TEXT NOT NULL DEFAULT '';
ALTER TABLE charges ADD COLUMN charged_seconds BIGINT NOT NULL DEFAULT 0;
UPDATE charges SET application_id = c.application_id, direction = c.direction, charged_seconds = charges.billed_seconds FROM calls c WHERE c.id = charges.call_id;
-- Calls that were settled before there were lines have one, but for those that were never to be dialled. In which increments they were charged is not known.
INSERT INTO charges (call_id, leg_id, customer_id, kind, target, trunk_id, rate, answered, billed_seconds, amount_micros, created_at, application_id, direction, charged_seconds)
    SELECT c.id, c.id, c.customer_id, 'call', c.to_number, c.trunk_id,
        COALESCE(c.rate, '{"per_minute_micros":' || c.price_per_minute_micros || ',"increment_seconds":0}'),
        c.answered_at IS NOT NULL, c.billed_seconds, c.cost_micros, c.settled_at, c.application_id, c.direction, c.billed_seconds
    FROM calls c WHERE c.settled_at IS NOT NULL AND c.granted_seconds > 0 AND NOT EXISTS (SELECT 1 FROM charges h WHERE h.call_id = c.id);

-- +goose Down
ALTER TABLE charges DROP COLUMN charged_seconds;
ALTER TABLE charges DROP COLUMN destination;
ALTER TABLE charges DROP COLUMN direction;
ALTER TABLE charges DROP COLUMN application_id;
DROP INDEX ledger_entries_payments;
DROP INDEX ledger_entries_sums;
DROP INDEX ledger_entries_page;
CREATE INDEX ledger_entries_page ON ledger_entries (customer_id, created_at, id);
ALTER TABLE ledger_entries DROP COLUMN actor;
ALTER TABLE ledger_entries DROP COLUMN seq;
ALTER TABLE customers DROP COLUMN ledger_seq;
ALTER TABLE customers DROP COLUMN exhausted_told;
ALTER TABLE customers DROP COLUMN low_told;
ALTER TABLE customers DROP COLUMN low_balance_micros;

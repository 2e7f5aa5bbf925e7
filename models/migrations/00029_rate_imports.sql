-- Imports of rates, and who uses a deck.

-- +goose Up
CREATE TABLE rate_imports (
    id TEXT PRIMARY KEY,
    deck_id TEXT NOT NULL REFERENCES rate_decks (id) ON DELETE CASCADE,
    state TEXT NOT NULL CHECK (state IN ('open', 'finished', 'canceled')),
    file_name TEXT NOT NULL,
    file_sha256 TEXT NOT NULL,
    columns TEXT NOT NULL,
    defaults TEXT NOT NULL,
    mode TEXT NOT NULL CHECK (mode IN ('merge', 'replace')),
    -- From when on rates are valid that do not say so, and when those end that a file which replaces does not name.
    starts_at BIGINT NOT NULL,
    total_records BIGINT NOT NULL,
    next_record BIGINT NOT NULL,
    created_count BIGINT NOT NULL,
    updated_count BIGINT NOT NULL,
    unchanged_count BIGINT NOT NULL,
    ended_count BIGINT NOT NULL,
    rejected_count BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    CONSTRAINT rate_imports_place CHECK (next_record >= 0 AND next_record <= total_records)
);
CREATE INDEX rate_imports_page ON rate_imports (created_at, id);
CREATE TABLE rate_import_rejects (
    import_id TEXT NOT NULL REFERENCES rate_imports (id) ON DELETE CASCADE,
    place BIGINT NOT NULL,
    line BIGINT NOT NULL,
    record TEXT NOT NULL,
    field TEXT NOT NULL,
    message TEXT NOT NULL,
    PRIMARY KEY (import_id, place)
);
-- What an open import that replaces has named so far.
CREATE TABLE rate_import_prefixes (
    import_id TEXT NOT NULL REFERENCES rate_imports (id) ON DELETE CASCADE,
    direction TEXT NOT NULL,
    prefix TEXT NOT NULL,
    PRIMARY KEY (import_id, direction, prefix)
);
CREATE INDEX customers_rate_deck ON customers (rate_deck_id) WHERE rate_deck_id IS NOT NULL;
CREATE INDEX trunks_rate_deck ON trunks (rate_deck_id) WHERE rate_deck_id IS NOT NULL AND deleted_at IS NULL;
INSERT INTO locks (name, taken) VALUES ('rate_decks', 0);

-- +goose Down
DELETE FROM locks WHERE name = 'rate_decks';
DROP INDEX trunks_rate_deck;
DROP INDEX customers_rate_deck;
DROP TABLE rate_import_prefixes;
DROP TABLE rate_import_rejects;
DROP TABLE rate_imports;

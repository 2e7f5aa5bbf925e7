-- Imports of numbers: how far each has come, so that either side may go away in the middle of it.

-- +goose Up
CREATE TABLE did_imports (
    id TEXT PRIMARY KEY,
    state TEXT NOT NULL CHECK (state IN ('open', 'finished', 'canceled')),
    file_name TEXT NOT NULL,
    file_sha256 TEXT NOT NULL,
    columns TEXT NOT NULL,
    defaults TEXT NOT NULL,
    on_conflict TEXT NOT NULL CHECK (on_conflict IN ('skip', 'update', 'reassign')),
    total_records BIGINT NOT NULL,
    next_record BIGINT NOT NULL,
    created_count BIGINT NOT NULL,
    updated_count BIGINT NOT NULL,
    duplicate_count BIGINT NOT NULL,
    rejected_count BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    CONSTRAINT did_imports_place CHECK (next_record >= 0 AND next_record <= total_records)
);
CREATE INDEX did_imports_page ON did_imports (created_at, id);
CREATE TABLE did_import_rejects (
    import_id TEXT NOT NULL REFERENCES did_imports (id) ON DELETE CASCADE,
    place BIGINT NOT NULL,
    line BIGINT NOT NULL,
    record TEXT NOT NULL,
    field TEXT NOT NULL,
    message TEXT NOT NULL,
    PRIMARY KEY (import_id, place)
);

-- +goose Down
DROP TABLE did_import_rejects;
DROP TABLE did_imports;

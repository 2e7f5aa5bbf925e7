-- What another controller needs to go on with a call.

-- +goose Up
ALTER TABLE recordings ADD COLUMN masked BOOLEAN NOT NULL DEFAULT FALSE;
ALTER TABLE legs ADD COLUMN joined_at BIGINT;

-- +goose Down
ALTER TABLE recordings DROP COLUMN masked;
ALTER TABLE legs DROP COLUMN joined_at;

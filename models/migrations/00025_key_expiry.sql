-- An API key that was replaced goes on working for a while: until expires_at, as operators' tokens do.

-- +goose Up
ALTER TABLE api_keys ADD COLUMN expires_at BIGINT;

-- +goose Down
ALTER TABLE api_keys DROP COLUMN expires_at;

-- Numbers by their last three digits, as the nodes' dialplan has them: what of it changed is found without reading them all.

-- +goose Up
CREATE TABLE did_shards (
    shard TEXT PRIMARY KEY,
    revision BIGINT NOT NULL
);
CREATE INDEX dids_shard ON dids (substr(number_e164, length(number_e164) - 2), number_e164) WHERE deleted_at IS NULL;
INSERT INTO did_shards (shard, revision)
    SELECT DISTINCT substr(number_e164, length(number_e164) - 2), 1 FROM dids WHERE deleted_at IS NULL;

-- +goose Down
DROP INDEX dids_shard;
DROP TABLE did_shards;

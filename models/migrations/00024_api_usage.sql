-- What keys and addresses have lately spent of their requests at each controller, so that the others can take it into account.

-- +goose Up
CREATE TABLE api_usage (
    bucket TEXT NOT NULL,
    controller TEXT NOT NULL,
    -- The controller's count of its reports; used is what was spent up to this one, used_before up to the one before.
    round BIGINT NOT NULL,
    used BIGINT NOT NULL,
    used_before BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    PRIMARY KEY (bucket, controller)
);
CREATE INDEX api_usage_age ON api_usage (updated_at);

-- +goose Down
DROP TABLE api_usage;

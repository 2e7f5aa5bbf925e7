-- Several addresses for an inbound trunk.

-- +goose Up
CREATE TABLE trunk_addresses (
    trunk_id TEXT NOT NULL REFERENCES trunks (id) ON DELETE CASCADE,
    place INTEGER NOT NULL,
    address TEXT NOT NULL,
    first_address TEXT NOT NULL,
    last_address TEXT NOT NULL,
    PRIMARY KEY (trunk_id, place)
);
-- Undeleted trunks only have rows here, and their networks never overlap.
CREATE UNIQUE INDEX trunk_addresses_first_key ON trunk_addresses (first_address);
INSERT INTO trunk_addresses (trunk_id, place, address, first_address, last_address)
    SELECT id, 0, inbound_ip, inbound_first, inbound_last FROM trunks WHERE deleted_at IS NULL AND inbound_ip <> '';
DROP INDEX trunks_inbound_ip_key;
DROP INDEX trunks_inbound_range;
ALTER TABLE trunks DROP COLUMN inbound_ip;
ALTER TABLE trunks DROP COLUMN inbound_first;
ALTER TABLE trunks DROP COLUMN inbound_last;

-- +goose Down
ALTER TABLE trunks ADD COLUMN inbound_ip TEXT NOT NULL DEFAULT '';
ALTER TABLE trunks ADD COLUMN inbound_first TEXT NOT NULL DEFAULT '';
ALTER TABLE trunks ADD COLUMN inbound_last TEXT NOT NULL DEFAULT '';
UPDATE trunks SET inbound_ip = a.address, inbound_first = a.first_address, inbound_last = a.last_address
    FROM trunk_addresses a WHERE a.trunk_id = trunks.id AND a.place = 0;
CREATE UNIQUE INDEX trunks_inbound_ip_key ON trunks (inbound_ip) WHERE deleted_at IS NULL AND inbound_ip <> '';
CREATE INDEX trunks_inbound_range ON trunks (inbound_first) WHERE deleted_at IS NULL AND inbound_first <> '';
DROP TABLE trunk_addresses;

-- The file that was settled last on a volume. A clone of the volume and one restored from an older snapshot
-- have the same marker and the same inode numbers, but not this file. NULL until the next file is settled,
-- and after a volume without it was adopted.
ALTER TABLE tallystick.volume
    ADD COLUMN last_directory text,
    ADD COLUMN last_file text,
    ADD COLUMN last_bytes bigint,
    ADD COLUMN last_sha256 text CHECK (last_sha256 ~ '^[0-9a-f]{64}$'),
    ADD CHECK (num_nulls(last_directory, last_file, last_bytes, last_sha256) IN (0, 4));

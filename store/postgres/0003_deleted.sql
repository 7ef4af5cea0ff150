-- A deleted snapshot stays as a row, so that one that was fetched before does not come back.
ALTER TABLE snapshots ADD COLUMN deleted integer NOT NULL DEFAULT 0;

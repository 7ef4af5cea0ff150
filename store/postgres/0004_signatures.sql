-- Who signed a request (Web Bot Auth), with which key, when and with which nonce. signed counts in microseconds since the time
-- of the id. The hash of an asker of before has no part for the new columns, so it gets a second row.
ALTER TABLE askers ADD COLUMN signature_agent text COLLATE "C" NOT NULL DEFAULT '';
ALTER TABLE askers ADD COLUMN keyid text COLLATE "C" NOT NULL DEFAULT '';
ALTER TABLE records ADD COLUMN signed bigint;
ALTER TABLE records ADD COLUMN nonce text COLLATE "C";

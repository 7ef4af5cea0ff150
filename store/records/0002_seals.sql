-- The tree of the hashes of records: see audit/seal.

CREATE TABLE seal_state (
	single INTEGER PRIMARY KEY CHECK (single = 1),
	size   INTEGER NOT NULL, -- leaves
	next   INTEGER NOT NULL, -- the next seal begins with the record with this id
	pruned INTEGER NOT NULL  -- all records with lesser ids are pruned
) STRICT;

-- 256 leaves each.
CREATE TABLE seal_tiles (
	n    INTEGER PRIMARY KEY,
	low  INTEGER NOT NULL, -- the least id of its records
	high INTEGER NOT NULL, -- and the greatest
	keep INTEGER NOT NULL, -- 1: it has the hash of an erasure
	root BLOB,             -- null: it is not full
	data BLOB              -- null: its records were pruned
) STRICT;

CREATE INDEX seal_tiles_by_id ON seal_tiles (high, low);

CREATE TABLE seal_checkpoints (
	size INTEGER PRIMARY KEY, -- leaves that it covers
	note TEXT    NOT NULL
) STRICT;

CREATE TABLE seal_erasures (
	n     INTEGER PRIMARY KEY,
	entry TEXT    NOT NULL,
	ids   BLOB    NOT NULL
) STRICT;

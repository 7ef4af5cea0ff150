-- The exemptions that an operator has added while the proxy ran. An id is never used again.
CREATE TABLE exemptions (
	id       INTEGER PRIMARY KEY AUTOINCREMENT,
	host     TEXT    NOT NULL CHECK (host <> ''),
	path     TEXT    NOT NULL, -- empty: every path
	client   TEXT    NOT NULL, -- empty: every client
	effect   INTEGER NOT NULL, -- 0 denies, 1 allows
	reason   TEXT    NOT NULL,
	owner    TEXT    NOT NULL,
	added    INTEGER NOT NULL,
	until    INTEGER,          -- NULL: no end
	reported INTEGER NOT NULL DEFAULT 0 -- 1: the log has said that it has expired
) STRICT;

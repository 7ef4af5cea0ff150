-- The operator's interventions that are in force: one row for each kind and pattern of hosts.
CREATE TABLE interventions (
	kind   TEXT    NOT NULL, -- stop, slow or bypass
	host   TEXT    NOT NULL CHECK (host <> ''),
	delay  INTEGER NOT NULL, -- of slow, in nanoseconds
	reason TEXT    NOT NULL,
	by     TEXT    NOT NULL,
	since  INTEGER NOT NULL,
	until  INTEGER,          -- NULL: no end
	PRIMARY KEY (kind, host)
) STRICT, WITHOUT ROWID;

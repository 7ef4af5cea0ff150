-- Until when a host wants to be left alone. A row is kept for a while past its end, since the next pause grows from it.
CREATE TABLE pauses (
	key    TEXT    NOT NULL PRIMARY KEY CHECK (key <> ''),
	until  INTEGER NOT NULL,
	source TEXT    NOT NULL,
	streak INTEGER NOT NULL
) STRICT;

CREATE INDEX pauses_by_end ON pauses (until);

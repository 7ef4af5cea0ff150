-- Times are microseconds since 1970 in UTC, and 0 is no time. Text that comes from a site holds whatever octets it sent.

-- A body is there for as long as a snapshot or a version has it, which the triggers below see to. Nothing edits it, but one
-- that is not what its hash says is replaced by the next Save of that text.
CREATE TABLE bodies (
	sha256 TEXT NOT NULL PRIMARY KEY, -- of body, in hexadecimal
	body   BLOB NOT NULL
) STRICT;

-- What is in force: one row for an origin.
CREATE TABLE snapshots (
	origin        TEXT    NOT NULL PRIMARY KEY CHECK (origin <> ''),
	host          TEXT    NOT NULL,
	availability  INTEGER NOT NULL CHECK (availability BETWEEN 0 AND 2), -- unreachable, unavailable, found
	status        INTEGER NOT NULL,
	redirects     TEXT    NOT NULL, -- a JSON array of URLs
	fetched       INTEGER NOT NULL,
	expires       INTEGER NOT NULL,
	sha256        TEXT    REFERENCES bodies, -- null: there was no answer
	truncated     INTEGER NOT NULL CHECK (truncated IN (0, 1)),
	content_type  TEXT    NOT NULL,
	etag          TEXT    NOT NULL,
	last_modified TEXT    NOT NULL,
	header        TEXT    NOT NULL, -- a JSON object of arrays; each octet is the code point of its number
	marks         TEXT    NOT NULL,
	cause         TEXT    NOT NULL,
	err           TEXT,
	stale         INTEGER NOT NULL CHECK (stale IN (0, 1)),
	since         INTEGER NOT NULL,
	failures      INTEGER NOT NULL
) STRICT;

CREATE INDEX snapshots_by_host ON snapshots (host, origin);
CREATE INDEX snapshots_by_body ON snapshots (sha256);
CREATE INDEX snapshots_by_time ON snapshots (fetched);

-- What was in force: one row for each time that a text came and stayed.
CREATE TABLE versions (
	id         INTEGER PRIMARY KEY,
	origin     TEXT    NOT NULL,
	sha256     TEXT    NOT NULL REFERENCES bodies,
	status     INTEGER NOT NULL,
	redirects  TEXT    NOT NULL, -- these two as they first came, written as above
	header     TEXT    NOT NULL,
	first_seen INTEGER NOT NULL,
	last_seen  INTEGER NOT NULL
) STRICT;

CREATE INDEX versions_by_origin ON versions (origin);
CREATE INDEX versions_by_body ON versions (sha256);
CREATE INDEX versions_by_time ON versions (last_seen);

-- A change outlives the bodies that it names.
CREATE TABLE changes (
	id         INTEGER PRIMARY KEY,
	origin     TEXT    NOT NULL,
	host       TEXT    NOT NULL,
	time       INTEGER NOT NULL,
	old_sha256 TEXT    NOT NULL, -- empty: there was none
	new_sha256 TEXT    NOT NULL,
	old_state  TEXT    NOT NULL,
	new_state  TEXT    NOT NULL
) STRICT;

CREATE INDEX changes_by_host ON changes (host, time);
CREATE INDEX changes_by_time ON changes (time);

CREATE VIEW body_uses AS
	SELECT sha256 FROM snapshots UNION ALL SELECT sha256 FROM versions;

CREATE TRIGGER snapshot_gone AFTER DELETE ON snapshots
BEGIN
	DELETE FROM bodies WHERE sha256 = OLD.sha256 AND NOT EXISTS (SELECT 1 FROM body_uses WHERE sha256 = OLD.sha256);
END;

CREATE TRIGGER snapshot_changed AFTER UPDATE OF sha256 ON snapshots WHEN OLD.sha256 IS NOT NEW.sha256
BEGIN
	DELETE FROM bodies WHERE sha256 = OLD.sha256 AND NOT EXISTS (SELECT 1 FROM body_uses WHERE sha256 = OLD.sha256);
END;

CREATE TRIGGER version_gone AFTER DELETE ON versions
BEGIN
	DELETE FROM bodies WHERE sha256 = OLD.sha256 AND NOT EXISTS (SELECT 1 FROM body_uses WHERE sha256 = OLD.sha256);
END;

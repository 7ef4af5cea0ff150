-- Origins and texts have numbers, which the other tables refer to. A hash is 32 octets, and an empty list of redirects is ''.

PRAGMA cache_size = -65536; -- KiB, for the conversion

DROP VIEW body_uses;

DROP TRIGGER snapshot_gone;
DROP TRIGGER snapshot_changed;
DROP TRIGGER version_gone;
DROP TRIGGER origin_came;
DROP TRIGGER origin_sized;
DROP TRIGGER origin_moved;
DROP TRIGGER origin_gone;
DROP TRIGGER share_gone;
DROP TRIGGER snapshot_came;
DROP TRIGGER snapshot_sized;
DROP TRIGGER snapshot_uncharged;
DROP TRIGGER text_came;
DROP TRIGGER version_charged;
DROP TRIGGER version_uncharged;
DROP TRIGGER change_charged;
DROP TRIGGER change_uncharged;
DROP TRIGGER charge_came;
DROP TRIGGER charge_moved;
DROP TRIGGER charge_gone;
DROP TRIGGER body_uncharged;
DROP TRIGGER snapshot_passes_charge;
DROP TRIGGER snapshot_change_passes_charge;
DROP TRIGGER version_passes_charge;

ALTER TABLE bodies RENAME TO old_bodies;
ALTER TABLE snapshots RENAME TO old_snapshots;
ALTER TABLE versions RENAME TO old_versions;
ALTER TABLE changes RENAME TO old_changes;
ALTER TABLE origins RENAME TO old_origins;
DROP TABLE charges;
DELETE FROM shares;

CREATE TABLE bodies (
	id     INTEGER PRIMARY KEY,
	sha256 BLOB NOT NULL UNIQUE, -- of body
	body   BLOB NOT NULL
) STRICT;

-- An origin is there for as long as it has a row in one of the tables below.
CREATE TABLE origins (
	id     INTEGER PRIMARY KEY,
	host   TEXT    NOT NULL CHECK (host <> ''),
	site   TEXT    NOT NULL, -- the scheme; another port than its own follows after a colon
	client TEXT    NOT NULL, -- that is charged: the one that had it fetched first, or that added a text last
	used   INTEGER NOT NULL, -- no later than the last use; the Save of the snapshot may be later
	size   INTEGER NOT NULL  -- bytes of all rows and texts
) STRICT;

CREATE UNIQUE INDEX origins_by_name ON origins (host, site);

-- What is in force.
CREATE TABLE snapshots (
	origin        INTEGER PRIMARY KEY,
	availability  INTEGER NOT NULL CHECK (availability BETWEEN 0 AND 2), -- unreachable, unavailable, found
	status        INTEGER NOT NULL,
	redirects     TEXT    NOT NULL, -- a JSON array of URLs; empty: none
	fetched       INTEGER NOT NULL,
	lasts         INTEGER NOT NULL, -- from fetched to the expiry
	body          INTEGER REFERENCES bodies, -- null: there was no answer
	truncated     INTEGER NOT NULL CHECK (truncated IN (0, 1)),
	content_type  TEXT, -- null: text/plain; charset=utf-8
	etag          TEXT    NOT NULL,
	last_modified TEXT    NOT NULL,
	header        TEXT    NOT NULL, -- lines of HTTP/1.1
	marks         TEXT    NOT NULL,
	cause         TEXT    NOT NULL,
	err           TEXT,
	stale         INTEGER NOT NULL CHECK (stale IN (0, 1)),
	since         INTEGER NOT NULL,
	failures      INTEGER NOT NULL,
	client        TEXT    NOT NULL, -- that had it fetched last; empty: not known, or the proxy itself
	waited        INTEGER NOT NULL, -- from fetched to the Save
	bytes         INTEGER AS (
		256 + (octet_length(redirects) + octet_length(header) + coalesce(octet_length(content_type), 0) + octet_length(etag) +
			octet_length(last_modified) + coalesce(octet_length(err), 0)) / 128 * 128 -- so that it seldom changes
	)
) STRICT;

-- What was in force: one row for each time that a text came and stayed. Those of an origin are numbered from 1.
CREATE TABLE versions (
	origin     INTEGER NOT NULL,
	id         INTEGER NOT NULL,
	body       INTEGER NOT NULL REFERENCES bodies,
	status     INTEGER NOT NULL,
	redirects  TEXT    NOT NULL, -- as they first came
	first_seen INTEGER NOT NULL,
	last_seen  INTEGER NOT NULL,
	bytes      INTEGER AS (96 + octet_length(redirects)),
	PRIMARY KEY (origin, id)
) STRICT, WITHOUT ROWID;

-- A change outlives the bodies that it names.
CREATE TABLE changes (
	id         INTEGER PRIMARY KEY,
	origin     INTEGER NOT NULL,
	time       INTEGER NOT NULL,
	old_sha256 TEXT    NOT NULL, -- empty: there was none
	new_sha256 TEXT    NOT NULL,
	old_state  TEXT    NOT NULL,
	new_state  TEXT    NOT NULL
) STRICT;

CREATE TABLE charges (
	body   INTEGER PRIMARY KEY,
	origin INTEGER NOT NULL, -- that is charged for it
	size   INTEGER NOT NULL
) STRICT;

INSERT INTO bodies (sha256, body)
SELECT coalesce(unhex(sha256), CAST(sha256 AS BLOB)), body FROM old_bodies ORDER BY rowid;

-- The text of an origin is scheme://host or scheme://host:port, with an IPv6 address in brackets.
WITH rests (origin, client, used, scheme, rest) AS (
	SELECT origin, client, used, substr(origin, 1, instr(origin, '://') - 1), substr(origin, instr(origin, '://') + 3) FROM old_origins
), hosts (origin, client, used, scheme, rest, written) AS (
	SELECT origin, client, used, scheme, rest, CASE
		WHEN rest LIKE '[%' THEN substr(rest, 1, instr(rest, ']'))
		WHEN instr(rest, ':') > 0 THEN substr(rest, 1, instr(rest, ':') - 1)
		ELSE rest END
	FROM rests
)
INSERT INTO origins (host, site, client, used, size)
SELECT trim(written, '[]'), scheme || substr(rest, length(written) + 1), client, used, 0 FROM hosts WHERE trim(written, '[]') <> '';

CREATE TEMP TABLE names (name TEXT NOT NULL PRIMARY KEY, id INTEGER NOT NULL) WITHOUT ROWID;
INSERT INTO names
SELECT iif(instr(site, ':'), substr(site, 1, instr(site, ':') - 1), site) || '://' || iif(instr(host, ':'), '[' || host || ']', host) ||
	iif(instr(site, ':'), substr(site, instr(site, ':')), ''), id
FROM origins;

-- A snapshot whose text was lost is dropped: without a text it would count as an empty file, which allows every path.
INSERT INTO snapshots (origin, availability, status, redirects, fetched, lasts, body, truncated, content_type, etag, last_modified, header,
	marks, cause, err, stale, since, failures, client, waited)
SELECT n.id, availability, status, iif(redirects = '[]', '', redirects), fetched, expires - fetched, b.id, truncated,
	nullif(content_type, 'text/plain; charset=utf-8'), etag, last_modified, header, marks, cause, err, stale, since, failures, client,
	saved - fetched
FROM names n CROSS JOIN old_snapshots s ON s.origin = n.name LEFT JOIN bodies b ON b.sha256 = coalesce(unhex(s.sha256), CAST(s.sha256 AS BLOB))
WHERE s.sha256 IS NULL OR b.id IS NOT NULL
ORDER BY n.id;

INSERT INTO versions (origin, id, body, status, redirects, first_seen, last_seen)
SELECT n.id, row_number() OVER (PARTITION BY n.id ORDER BY v.id), b.id, status, iif(redirects = '[]', '', redirects), first_seen, last_seen
FROM old_versions v JOIN names n ON n.name = v.origin JOIN bodies b ON b.sha256 = coalesce(unhex(v.sha256), CAST(v.sha256 AS BLOB));

INSERT INTO changes
SELECT c.id, n.id, time, old_sha256, new_sha256, old_state, new_state FROM old_changes c JOIN names n ON n.name = c.origin;

DROP TABLE names;
DROP TABLE old_snapshots;
DROP TABLE old_versions;
DROP TABLE old_changes;
DROP TABLE old_origins;
DROP TABLE old_bodies;

CREATE INDEX snapshots_by_body ON snapshots (body);
CREATE INDEX snapshots_by_time ON snapshots (fetched);
CREATE INDEX versions_by_body ON versions (body);
CREATE INDEX versions_by_time ON versions (last_seen);
CREATE INDEX changes_by_origin ON changes (origin, time);
CREATE INDEX changes_by_time ON changes (time);
CREATE INDEX origins_by_use ON origins (client, used);

CREATE VIEW body_uses AS
	SELECT body FROM snapshots WHERE body IS NOT NULL UNION ALL SELECT body FROM versions;

DELETE FROM bodies WHERE NOT EXISTS (SELECT 1 FROM body_uses WHERE body = bodies.id);

INSERT INTO charges
SELECT id, coalesce(
		(SELECT origin FROM snapshots WHERE snapshots.body = bodies.id LIMIT 1),
		(SELECT origin FROM versions WHERE versions.body = bodies.id LIMIT 1)
	), octet_length(body)
FROM bodies;

WITH parts (origin, size) AS (
	SELECT origin, bytes FROM snapshots
	UNION ALL SELECT origin, bytes FROM versions
	UNION ALL SELECT origin, 256 FROM changes
	UNION ALL SELECT origin, size FROM charges
), sums (origin, size) AS (SELECT origin, sum(size) FROM parts GROUP BY origin)
UPDATE origins SET size = sums.size FROM sums WHERE sums.origin = origins.id;

DELETE FROM origins WHERE size = 0;

INSERT INTO shares SELECT client, sum(size) FROM origins GROUP BY client;

-- Triggers keep the sums, whatever changes a row. Sizes are about what a row takes with its entries in indexes.

CREATE TRIGGER origin_sized AFTER UPDATE OF size ON origins WHEN OLD.size <> NEW.size
BEGIN
	INSERT INTO shares VALUES (NEW.client, NEW.size - OLD.size) ON CONFLICT (client) DO UPDATE SET size = size + excluded.size;
	DELETE FROM origins WHERE id = NEW.id AND size <= 0;
END;

CREATE TRIGGER origin_moved AFTER UPDATE OF client ON origins WHEN OLD.client <> NEW.client
BEGIN
	UPDATE shares SET size = size - OLD.size WHERE client = OLD.client;
	INSERT INTO shares VALUES (NEW.client, NEW.size) ON CONFLICT (client) DO UPDATE SET size = size + excluded.size;
END;

CREATE TRIGGER origin_gone AFTER DELETE ON origins
BEGIN
	UPDATE shares SET size = size - OLD.size WHERE client = OLD.client;
END;

CREATE TRIGGER share_gone AFTER UPDATE OF size ON shares WHEN NEW.size <= 0
BEGIN
	DELETE FROM shares WHERE client = NEW.client;
END;

CREATE TRIGGER snapshot_came AFTER INSERT ON snapshots
BEGIN
	UPDATE origins SET size = size + NEW.bytes WHERE id = NEW.origin;
	INSERT INTO charges SELECT id, NEW.origin, octet_length(body) FROM bodies
	WHERE id = NEW.body AND NOT EXISTS (SELECT 1 FROM charges WHERE body = NEW.body);
END;

CREATE TRIGGER snapshot_sized AFTER UPDATE ON snapshots WHEN OLD.bytes <> NEW.bytes
BEGIN
	UPDATE origins SET size = size + NEW.bytes - OLD.bytes WHERE id = NEW.origin;
END;

CREATE TRIGGER snapshot_uncharged AFTER DELETE ON snapshots
BEGIN
	UPDATE origins SET size = size - OLD.bytes WHERE id = OLD.origin;
END;

-- A client that adds a text is charged for the origin.
CREATE TRIGGER text_came AFTER UPDATE OF body ON snapshots
WHEN OLD.body IS NOT NEW.body AND NEW.body IS NOT NULL AND NOT EXISTS (SELECT 1 FROM charges WHERE body = NEW.body)
BEGIN
	INSERT INTO charges SELECT id, NEW.origin, octet_length(body) FROM bodies WHERE id = NEW.body;
	UPDATE origins SET client = NEW.client WHERE id = NEW.origin;
END;

CREATE TRIGGER version_charged AFTER INSERT ON versions
BEGIN
	UPDATE origins SET size = size + NEW.bytes WHERE id = NEW.origin;
END;

CREATE TRIGGER version_uncharged AFTER DELETE ON versions
BEGIN
	UPDATE origins SET size = size - OLD.bytes WHERE id = OLD.origin;
END;

CREATE TRIGGER change_charged AFTER INSERT ON changes
BEGIN
	UPDATE origins SET size = size + 256 WHERE id = NEW.origin;
END;

CREATE TRIGGER change_uncharged AFTER DELETE ON changes
BEGIN
	UPDATE origins SET size = size - 256 WHERE id = OLD.origin;
END;

CREATE TRIGGER charge_came AFTER INSERT ON charges
BEGIN
	UPDATE origins SET size = size + NEW.size WHERE id = NEW.origin;
END;

CREATE TRIGGER charge_moved AFTER UPDATE OF origin ON charges
BEGIN
	UPDATE origins SET size = size + NEW.size WHERE id = NEW.origin;
	UPDATE origins SET size = size - OLD.size WHERE id = OLD.origin;
END;

CREATE TRIGGER charge_gone AFTER DELETE ON charges
BEGIN
	UPDATE origins SET size = size - OLD.size WHERE id = OLD.origin;
END;

CREATE TRIGGER body_uncharged AFTER DELETE ON bodies
BEGIN
	DELETE FROM charges WHERE body = OLD.id;
END;

-- A body goes with the last row that has it.

CREATE TRIGGER snapshot_gone AFTER DELETE ON snapshots WHEN OLD.body IS NOT NULL
BEGIN
	DELETE FROM bodies WHERE id = OLD.body AND NOT EXISTS (SELECT 1 FROM body_uses WHERE body = OLD.body);
END;

CREATE TRIGGER snapshot_changed AFTER UPDATE OF body ON snapshots WHEN OLD.body IS NOT NEW.body AND OLD.body IS NOT NULL
BEGIN
	DELETE FROM bodies WHERE id = OLD.body AND NOT EXISTS (SELECT 1 FROM body_uses WHERE body = OLD.body);
END;

CREATE TRIGGER version_gone AFTER DELETE ON versions
BEGIN
	DELETE FROM bodies WHERE id = OLD.body AND NOT EXISTS (SELECT 1 FROM body_uses WHERE body = OLD.body);
END;

-- An origin that had a text, and has it no more, passes its charge on. The plus keeps SQLite from looking through all that
-- have the text.

CREATE TRIGGER snapshot_passes_charge AFTER DELETE ON snapshots
BEGIN
	UPDATE charges SET origin = coalesce(
			(SELECT origin FROM snapshots WHERE body = OLD.body LIMIT 1),
			(SELECT origin FROM versions WHERE body = OLD.body LIMIT 1)
		)
	WHERE body = OLD.body AND origin = OLD.origin
		AND NOT EXISTS (SELECT 1 FROM versions WHERE origin = OLD.origin AND +body = OLD.body)
		AND EXISTS (SELECT 1 FROM body_uses WHERE body = OLD.body);
END;

CREATE TRIGGER snapshot_change_passes_charge AFTER UPDATE OF body ON snapshots WHEN OLD.body IS NOT NEW.body
BEGIN
	UPDATE charges SET origin = coalesce(
			(SELECT origin FROM snapshots WHERE body = OLD.body LIMIT 1),
			(SELECT origin FROM versions WHERE body = OLD.body LIMIT 1)
		)
	WHERE body = OLD.body AND origin = OLD.origin
		AND NOT EXISTS (SELECT 1 FROM versions WHERE origin = OLD.origin AND +body = OLD.body)
		AND EXISTS (SELECT 1 FROM body_uses WHERE body = OLD.body);
END;

CREATE TRIGGER version_passes_charge AFTER DELETE ON versions
BEGIN
	UPDATE charges SET origin = coalesce(
			(SELECT origin FROM snapshots WHERE body = OLD.body LIMIT 1),
			(SELECT origin FROM versions WHERE body = OLD.body LIMIT 1)
		)
	WHERE body = OLD.body AND origin = OLD.origin
		AND NOT EXISTS (SELECT 1 FROM snapshots WHERE origin = OLD.origin AND +body = OLD.body)
		AND NOT EXISTS (SELECT 1 FROM versions WHERE origin = OLD.origin AND +body = OLD.body)
		AND EXISTS (SELECT 1 FROM body_uses WHERE body = OLD.body);
END;

PRAGMA cache_size = -2000; -- the default

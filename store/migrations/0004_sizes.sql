-- What an origin takes of the file, and for which client it was fetched. The client that takes the most loses origins first,
-- those first that it has not used for the longest time. A text is charged to one of the origins that have it. All else is
-- charged by the row, with about what it takes in the indexes too.

ALTER TABLE snapshots ADD COLUMN client TEXT NOT NULL DEFAULT ''; -- that had it fetched last; empty: not known, or the proxy itself
ALTER TABLE snapshots ADD COLUMN saved INTEGER NOT NULL DEFAULT 0;
ALTER TABLE snapshots ADD COLUMN bytes INTEGER AS (
	1024 + (octet_length(redirects) + octet_length(header) + octet_length(content_type) + octet_length(etag) +
		octet_length(last_modified) + coalesce(octet_length(err), 0)) / 256 * 256 -- so that it seldom changes
);
ALTER TABLE versions ADD COLUMN bytes INTEGER AS (512 + octet_length(redirects) + octet_length(header));

CREATE TABLE origins (
	origin TEXT    NOT NULL PRIMARY KEY,
	client TEXT    NOT NULL, -- that is charged: the one that had it fetched first, or that added a text last
	used   INTEGER NOT NULL, -- no later than the last use; snapshots.saved may be later
	size   INTEGER NOT NULL  -- bytes of all rows and texts
) STRICT, WITHOUT ROWID;

CREATE INDEX origins_by_use ON origins (client, used);

CREATE TABLE shares (
	client TEXT    NOT NULL PRIMARY KEY,
	size   INTEGER NOT NULL -- of its origins
) STRICT, WITHOUT ROWID;

CREATE INDEX shares_by_size ON shares (size);

CREATE TABLE charges (
	sha256 TEXT    NOT NULL PRIMARY KEY, -- of a text
	origin TEXT    NOT NULL,             -- that is charged for it
	size   INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

UPDATE snapshots SET saved = fetched;

INSERT INTO charges
SELECT sha256, coalesce(
		(SELECT origin FROM snapshots WHERE snapshots.sha256 = bodies.sha256 LIMIT 1),
		(SELECT origin FROM versions WHERE versions.sha256 = bodies.sha256 LIMIT 1)
	), octet_length(body)
FROM bodies;

WITH parts (origin, used, size) AS (
	SELECT origin, saved, bytes FROM snapshots
	UNION ALL SELECT origin, last_seen, bytes FROM versions
	UNION ALL SELECT origin, time, 512 FROM changes
	UNION ALL SELECT origin, 0, size FROM charges
)
INSERT INTO origins SELECT origin, '', max(used), sum(size) FROM parts GROUP BY origin;

INSERT INTO shares SELECT client, sum(size) FROM origins GROUP BY client;

-- Triggers keep the sums, whatever changes a row.

CREATE TRIGGER origin_came AFTER INSERT ON origins
BEGIN
	INSERT INTO shares VALUES (NEW.client, NEW.size) ON CONFLICT (client) DO UPDATE SET size = size + excluded.size;
END;

CREATE TRIGGER origin_sized AFTER UPDATE OF size ON origins WHEN OLD.size <> NEW.size
BEGIN
	UPDATE shares SET size = size + NEW.size - OLD.size WHERE client = NEW.client;
	DELETE FROM origins WHERE origin = NEW.origin AND size <= 0;
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
	INSERT INTO origins VALUES (NEW.origin, NEW.client, NEW.saved, NEW.bytes) ON CONFLICT (origin) DO UPDATE SET size = size + excluded.size;
	INSERT INTO charges SELECT sha256, NEW.origin, octet_length(body) FROM bodies WHERE sha256 = NEW.sha256
	ON CONFLICT (sha256) DO NOTHING;
END;

CREATE TRIGGER snapshot_sized AFTER UPDATE ON snapshots WHEN OLD.bytes <> NEW.bytes
BEGIN
	UPDATE origins SET size = size + NEW.bytes - OLD.bytes WHERE origin = NEW.origin;
END;

CREATE TRIGGER snapshot_uncharged AFTER DELETE ON snapshots
BEGIN
	UPDATE origins SET size = size - OLD.bytes WHERE origin = OLD.origin;
END;

-- A client that adds a text is charged for the origin.
CREATE TRIGGER text_came AFTER UPDATE OF sha256 ON snapshots
WHEN OLD.sha256 IS NOT NEW.sha256 AND NEW.sha256 IS NOT NULL AND NOT EXISTS (SELECT 1 FROM charges WHERE sha256 = NEW.sha256)
BEGIN
	INSERT INTO charges SELECT sha256, NEW.origin, octet_length(body) FROM bodies WHERE sha256 = NEW.sha256;
	UPDATE origins SET client = NEW.client WHERE origin = NEW.origin;
END;

CREATE TRIGGER version_charged AFTER INSERT ON versions
BEGIN
	UPDATE origins SET size = size + NEW.bytes WHERE origin = NEW.origin;
END;

CREATE TRIGGER version_uncharged AFTER DELETE ON versions
BEGIN
	UPDATE origins SET size = size - OLD.bytes WHERE origin = OLD.origin;
END;

CREATE TRIGGER change_charged AFTER INSERT ON changes
BEGIN
	UPDATE origins SET size = size + 512 WHERE origin = NEW.origin;
END;

CREATE TRIGGER change_uncharged AFTER DELETE ON changes
BEGIN
	UPDATE origins SET size = size - 512 WHERE origin = OLD.origin;
END;

CREATE TRIGGER charge_came AFTER INSERT ON charges
BEGIN
	UPDATE origins SET size = size + NEW.size WHERE origin = NEW.origin;
END;

CREATE TRIGGER charge_moved AFTER UPDATE OF origin ON charges
BEGIN
	UPDATE origins SET size = size + NEW.size WHERE origin = NEW.origin;
	UPDATE origins SET size = size - OLD.size WHERE origin = OLD.origin;
END;

CREATE TRIGGER charge_gone AFTER DELETE ON charges
BEGIN
	UPDATE origins SET size = size - OLD.size WHERE origin = OLD.origin;
END;

CREATE TRIGGER body_uncharged AFTER DELETE ON bodies
BEGIN
	DELETE FROM charges WHERE sha256 = OLD.sha256;
END;

-- An origin that had a text, and has it no more, passes its charge on. The plus keeps SQLite from looking through all that
-- have the text.

CREATE TRIGGER snapshot_passes_charge AFTER DELETE ON snapshots
BEGIN
	UPDATE charges SET origin = coalesce(
			(SELECT origin FROM snapshots WHERE sha256 = OLD.sha256 LIMIT 1),
			(SELECT origin FROM versions WHERE sha256 = OLD.sha256 LIMIT 1)
		)
	WHERE sha256 = OLD.sha256 AND origin = OLD.origin
		AND NOT EXISTS (SELECT 1 FROM versions WHERE origin = OLD.origin AND +sha256 = OLD.sha256)
		AND EXISTS (SELECT 1 FROM body_uses WHERE sha256 = OLD.sha256);
END;

CREATE TRIGGER snapshot_change_passes_charge AFTER UPDATE OF sha256 ON snapshots WHEN OLD.sha256 IS NOT NEW.sha256
BEGIN
	UPDATE charges SET origin = coalesce(
			(SELECT origin FROM snapshots WHERE sha256 = OLD.sha256 LIMIT 1),
			(SELECT origin FROM versions WHERE sha256 = OLD.sha256 LIMIT 1)
		)
	WHERE sha256 = OLD.sha256 AND origin = OLD.origin
		AND NOT EXISTS (SELECT 1 FROM versions WHERE origin = OLD.origin AND +sha256 = OLD.sha256)
		AND EXISTS (SELECT 1 FROM body_uses WHERE sha256 = OLD.sha256);
END;

CREATE TRIGGER version_passes_charge AFTER DELETE ON versions
BEGIN
	UPDATE charges SET origin = coalesce(
			(SELECT origin FROM snapshots WHERE sha256 = OLD.sha256 LIMIT 1),
			(SELECT origin FROM versions WHERE sha256 = OLD.sha256 LIMIT 1)
		)
	WHERE sha256 = OLD.sha256 AND origin = OLD.origin
		AND NOT EXISTS (SELECT 1 FROM snapshots WHERE origin = OLD.origin AND sha256 = OLD.sha256)
		AND NOT EXISTS (SELECT 1 FROM versions WHERE origin = OLD.origin AND +sha256 = OLD.sha256)
		AND EXISTS (SELECT 1 FROM body_uses WHERE sha256 = OLD.sha256);
END;

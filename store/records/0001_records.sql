-- A record is small, because what repeats is stored once, in dictionaries. Their ids are not used again, so that
-- processes may keep them in memory. used is the last day, since 1970, on which a record referred to the row.
-- generation changes if rows are removed that may be in use.
CREATE TABLE meta (name TEXT PRIMARY KEY, value INTEGER NOT NULL) STRICT, WITHOUT ROWID;
INSERT INTO meta VALUES ('generation', 0), ('bodies_dropped', 0);

-- names: hosts, clients, labels of agents, rules, decisions and reasons, by which records are counted.
CREATE TABLE names (id INTEGER PRIMARY KEY AUTOINCREMENT, hash BLOB NOT NULL UNIQUE, used INTEGER NOT NULL, name TEXT NOT NULL) STRICT;

-- hash is that of all other columns: see entryHash.
CREATE TABLE askers (
	id INTEGER PRIMARY KEY AUTOINCREMENT, hash BLOB NOT NULL UNIQUE, used INTEGER NOT NULL,
	client TEXT NOT NULL, address TEXT NOT NULL, tag TEXT NOT NULL, purpose TEXT NOT NULL, user_agent TEXT NOT NULL,
	sent_user_agent TEXT NOT NULL, agent TEXT NOT NULL, product_token TEXT NOT NULL
) STRICT;

CREATE TABLE targets (
	id INTEGER PRIMARY KEY AUTOINCREMENT, hash BLOB NOT NULL UNIQUE, used INTEGER NOT NULL,
	scheme TEXT NOT NULL, host TEXT NOT NULL, port INTEGER NOT NULL, lane TEXT NOT NULL
) STRICT;
CREATE INDEX targets_by_host ON targets (host);

CREATE TABLE verdicts (
	id INTEGER PRIMARY KEY AUTOINCREMENT, hash BLOB NOT NULL UNIQUE, used INTEGER NOT NULL,
	method TEXT NOT NULL, via TEXT NOT NULL, mode TEXT NOT NULL, decision TEXT NOT NULL, reason TEXT NOT NULL,
	rule_line INTEGER NOT NULL, rule TEXT NOT NULL, group_line INTEGER NOT NULL, group_agents TEXT NOT NULL,
	exemption TEXT NOT NULL, intervention TEXT NOT NULL, deviation TEXT NOT NULL,
	robots_sha256 TEXT NOT NULL, robots_status INTEGER NOT NULL, robots_state TEXT NOT NULL, robots_fetched_at INTEGER NOT NULL,
	dialect TEXT NOT NULL, policy_sha256 TEXT NOT NULL, rules_version INTEGER NOT NULL, usage TEXT NOT NULL,
	crawler_price TEXT NOT NULL
) STRICT;

CREATE TABLE paces (
	id INTEGER PRIMARY KEY AUTOINCREMENT, hash BLOB NOT NULL UNIQUE, used INTEGER NOT NULL,
	delay_required INTEGER NOT NULL, delay_source TEXT NOT NULL, pacing_mode TEXT NOT NULL, spacing TEXT NOT NULL
) STRICT;

CREATE TABLE outcomes (
	id INTEGER PRIMARY KEY AUTOINCREMENT, hash BLOB NOT NULL UNIQUE, used INTEGER NOT NULL,
	status INTEGER NOT NULL, retry_after INTEGER NOT NULL, upstream_addr TEXT NOT NULL, error TEXT NOT NULL
) STRICT;

-- Times are microseconds since that of the id, durations microseconds; NULL is unknown. open is 1 while a request has not
-- ended; kind has bits: 1 unless it was allowed, 2 if the proxy made it.
CREATE TABLE records (
	id INTEGER PRIMARY KEY,
	asker INTEGER NOT NULL, target INTEGER NOT NULL, verdict INTEGER NOT NULL, pace INTEGER NOT NULL, outcome INTEGER NOT NULL,
	path TEXT, query TEXT, client_port TEXT, time INTEGER, waited INTEGER, gap INTEGER, sent INTEGER, first_byte INTEGER,
	released INTEGER, ended INTEGER, bytes INTEGER, open INTEGER, kind INTEGER
) STRICT;
CREATE INDEX records_by_target ON records (target, id);
CREATE INDEX records_refused ON records (id) WHERE kind = 1;

-- Requests of clients, counted by their time of arrival. An open record counts, and counts anew at its end.
CREATE TABLE minutes (
	minute INTEGER, decision INTEGER, reason INTEGER, n INTEGER NOT NULL,
	PRIMARY KEY (minute, decision, reason)
) STRICT, WITHOUT ROWID;

-- hour counts from 1970; a negative number is that of a day, whose row has the sum of its hours.
CREATE TABLE hours (
	hour INTEGER, decision INTEGER, host INTEGER, client INTEGER, agent INTEGER, reason INTEGER, rule INTEGER,
	n INTEGER NOT NULL, waited INTEGER NOT NULL, bytes INTEGER NOT NULL, failed INTEGER NOT NULL, deviating INTEGER NOT NULL,
	PRIMARY KEY (hour, decision, host, client, agent, reason, rule)
) STRICT, WITHOUT ROWID;


-- A version of the robots.txt of an origin. It begins with a fetch whose text, status, state or redirects differ from the
-- version before. fetched is the time of its first fetch, first_seen and last_seen are the arrival of records that refer to
-- it, in microseconds since 1970; last_seen is exact to a minute.
CREATE TABLE files (
	id INTEGER PRIMARY KEY AUTOINCREMENT, used INTEGER NOT NULL,
	origin TEXT NOT NULL, host TEXT NOT NULL, sha256 TEXT NOT NULL, status INTEGER NOT NULL, state TEXT NOT NULL,
	availability INTEGER NOT NULL, flags TEXT NOT NULL, truncated INTEGER NOT NULL, content_type TEXT NOT NULL,
	redirects TEXT NOT NULL, header TEXT NOT NULL, cause TEXT NOT NULL, fetched INTEGER NOT NULL, size INTEGER NOT NULL,
	first_seen INTEGER NOT NULL, last_seen INTEGER NOT NULL
) STRICT;
CREATE INDEX files_by_host ON files (host);
CREATE INDEX files_by_fetch ON files (origin, fetched);

-- client is charged for the bytes of the body; shares sums them up.
CREATE TABLE bodies (
	sha256 TEXT PRIMARY KEY, used INTEGER NOT NULL, client TEXT NOT NULL, deflated INTEGER NOT NULL, body BLOB NOT NULL
) STRICT;
CREATE INDEX bodies_by_client ON bodies (client, used);
CREATE TABLE shares (client TEXT PRIMARY KEY, size INTEGER NOT NULL) STRICT, WITHOUT ROWID;
CREATE TRIGGER body_added AFTER INSERT ON bodies BEGIN
	INSERT INTO shares VALUES (new.client, length(new.body)) ON CONFLICT DO UPDATE SET size = size + excluded.size;
END;
CREATE TRIGGER body_dropped AFTER DELETE ON bodies BEGIN
	UPDATE shares SET size = size - length(old.body) WHERE client = old.client;
	DELETE FROM shares WHERE client = old.client AND size <= 0;
END;

CREATE TABLE policies (sha256 TEXT PRIMARY KEY, used INTEGER NOT NULL, body BLOB NOT NULL) STRICT;

-- Records that were not written, and records that were removed. Times are microseconds since 1970.
CREATE TABLE losses (id INTEGER PRIMARY KEY, began INTEGER NOT NULL, ended INTEGER NOT NULL, records INTEGER NOT NULL) STRICT;
CREATE TABLE prunes (
	id INTEGER PRIMARY KEY, time INTEGER NOT NULL, before INTEGER NOT NULL, records INTEGER NOT NULL, why TEXT NOT NULL
) STRICT;

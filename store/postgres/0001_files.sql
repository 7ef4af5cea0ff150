-- Times are microseconds since 1970 in UTC, and 0 is no time. Text from a site may contain any octets, so it is bytea.

CREATE TABLE snapshot_bodies (
	sha256 text  COLLATE "C" PRIMARY KEY, -- of body, in hexadecimal
	body   bytea NOT NULL
);

-- What is in force: one row for an origin.
CREATE TABLE snapshots (
	origin        text    COLLATE "C" PRIMARY KEY,
	host          text    COLLATE "C" NOT NULL,
	availability  integer NOT NULL, -- unreachable, unavailable, found
	status        integer NOT NULL,
	redirects     text    NOT NULL, -- a JSON array of URLs; each octet is the code point of its number
	fetched       bigint  NOT NULL,
	expires       bigint  NOT NULL,
	sha256        text    COLLATE "C" REFERENCES snapshot_bodies, -- null: there was no answer
	truncated     integer NOT NULL,
	content_type  bytea   NOT NULL,
	etag          bytea   NOT NULL,
	last_modified bytea   NOT NULL,
	header        bytea   NOT NULL,
	marks         text    NOT NULL,
	cause         text    NOT NULL,
	err           bytea,
	stale         integer NOT NULL,
	since         bigint  NOT NULL,
	failures      integer NOT NULL
);

CREATE INDEX snapshots_by_host ON snapshots (host, origin);
CREATE INDEX snapshots_by_body ON snapshots (sha256);
CREATE INDEX snapshots_by_time ON snapshots (fetched);

-- What was in force: one row for each time that a text came and stayed.
CREATE TABLE snapshot_versions (
	id         bigint  GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	origin     text    COLLATE "C" NOT NULL,
	sha256     text    COLLATE "C" NOT NULL REFERENCES snapshot_bodies,
	status     integer NOT NULL,
	redirects  text    NOT NULL, -- as it first came
	first_seen bigint  NOT NULL,
	last_seen  bigint  NOT NULL
);

CREATE INDEX snapshot_versions_by_origin ON snapshot_versions (origin, id);
CREATE INDEX snapshot_versions_by_body ON snapshot_versions (sha256);
CREATE INDEX snapshot_versions_by_time ON snapshot_versions (last_seen);

-- A change outlives the bodies that it names.
CREATE TABLE snapshot_changes (
	id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	origin     text   COLLATE "C" NOT NULL,
	time       bigint NOT NULL,
	old_sha256 text   NOT NULL, -- empty: there was none
	new_sha256 text   NOT NULL,
	old_state  text   NOT NULL,
	new_state  text   NOT NULL
);

CREATE INDEX snapshot_changes_by_origin ON snapshot_changes (origin, time);
CREATE INDEX snapshot_changes_by_time ON snapshot_changes (time);

-- The fetches under way. A claim ends if its instance does not renew it.
CREATE UNLOGGED TABLE snapshot_claims (
	origin text        COLLATE "C" PRIMARY KEY,
	holder text        NOT NULL,
	until  timestamptz NOT NULL
);

-- The numbers of the instances, from 0 to 1023. A number is free if its instance has not renewed it.
CREATE TABLE instances (
	number integer     PRIMARY KEY,
	holder text        NOT NULL,
	until  timestamptz NOT NULL
);

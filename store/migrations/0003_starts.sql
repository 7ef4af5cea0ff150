-- How many proxies were started with this database. One row.
CREATE TABLE starts (
	n INTEGER NOT NULL
) STRICT;

INSERT INTO starts VALUES (0);

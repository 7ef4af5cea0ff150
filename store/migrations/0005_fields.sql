-- snapshots.header was a JSON object of all fields of the answer. It is now the fields that say for how long the answer may
-- be used, as lines of HTTP/1.1. versions.header, which nothing reads, is '' in new rows.

DELETE FROM snapshots WHERE NOT json_valid(header); -- damaged: the next request fetches the file again

UPDATE snapshots SET header = (
	SELECT coalesce(group_concat(field.key || ': ' || line.value || char(13, 10), ''), '')
	FROM json_each(snapshots.header) AS field,
		json_each(CASE field.type WHEN 'array' THEN field.value ELSE '[]' END) AS line
	WHERE field.key IN ('Age', 'Cache-Control', 'Date', 'Expires')
);

package store

import (
	"context"
	"fmt"
	"iter"

	"github.com/robotsproxy/robotsproxy/audit"
)

// usesSQL counts records by the ids of their dictionaries first, since texts are long. The database sorts in temporary
// files, so the memory does not depend on the number of records. Its second number is as policy.CarriesContent has it,
// without robots.txt, about which no preference decides.
const usesSQL = `SELECT t.host, a.purpose, v.usage, sum(c.n),
	sum(CASE WHEN v.decision IN ('allow', 'exempt', 'would_deny', 'would_throttle') AND v.method <> 'HEAD'
		AND o.status BETWEEN 200 AND 299 AND o.status NOT IN (204, 205) THEN c.content ELSE 0 END),
	sum(CASE WHEN v.decision = 'deny' THEN c.n ELSE 0 END),
	sum(CASE WHEN v.decision = 'deny' AND v.reason = 'usage-preference' THEN c.n ELSE 0 END)
FROM (SELECT r.target, r.asker, r.verdict, r.outcome, count(*) AS n,
		sum(CASE WHEN r.path = '/robots.txt' AND coalesce(r.query, '') = '' THEN 0 ELSE 1 END) AS content FROM records r%s
	GROUP BY r.target, r.asker, r.verdict, r.outcome) AS c
JOIN targets t ON t.id = c.target JOIN askers a ON a.id = c.asker JOIN verdicts v ON v.id = c.verdict
JOIN outcomes o ON o.id = c.outcome
GROUP BY t.host, a.purpose, v.usage ORDER BY t.host, a.purpose, v.usage`

// Uses counts the records that f selects for each host, purpose and text of preferences, in the order of the three.
// f.Limit bounds the number of results.
func (r *Records) Uses(ctx context.Context, f audit.Filter) iter.Seq2[audit.Use, error] {
	return func(yield func(audit.Use, error) bool) {
		if err := r.eachUse(ctx, f, func(u audit.Use) bool { return yield(u, nil) }); err != nil {
			yield(audit.Use{}, r.fail("counting records", err))
		}
	}
}

func (r *Records) eachUse(ctx context.Context, f audit.Filter, do func(audit.Use) bool) error {
	q := newQuery(f)
	text := fmt.Sprintf(usesSQL, q.where())
	if f.Limit > 0 {
		text += fmt.Sprintf(" LIMIT %d", f.Limit)
	}
	rows, err := r.read.QueryContext(ctx, text, q.args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var u audit.Use
		if err := rows.Scan(&u.Host, &u.Purpose, &u.Usage, &u.Requests, &u.Fetched, &u.Refused, &u.ByPreference); err != nil {
			return err
		}
		if !do(u) {
			return nil
		}
	}
	return rows.Err()
}

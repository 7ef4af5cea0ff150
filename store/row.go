package store

import (
	"database/sql"
	"net"
	"time"

	"github.com/robotsproxy/robotsproxy/audit"
	"github.com/robotsproxy/robotsproxy/policy"
)

// row is a record as the table has it. Times are microseconds since that of the id, durations microseconds.
type row struct {
	id                                    audit.ID
	asker, target, verdict, pace, outcome int64
	path, query, port, nonce              sql.NullString
	time, waited, gap, signed             sql.NullInt64
	sent, first, released, ended          sql.NullInt64
	bytes, open, kind                     sql.NullInt64
}

const rowColumns = "id asker target verdict pace outcome path query client_port time waited gap sent first_byte released ended bytes open kind signed nonce"

// appendTo appends the values of r as those of a statement. database/sql is slower with its Null types.
func (r *row) appendTo(args []any) []any {
	args = append(args, int64(r.id), r.asker, r.target, r.verdict, r.pace, r.outcome)
	for _, s := range [...]*sql.NullString{&r.path, &r.query, &r.port} {
		args = append(args, textOrNil(s))
	}
	for _, n := range [...]*sql.NullInt64{
		&r.time, &r.waited, &r.gap, &r.sent, &r.first, &r.released, &r.ended, &r.bytes, &r.open, &r.kind, &r.signed,
	} {
		args = append(args, numberOrNil(n))
	}
	return append(args, textOrNil(&r.nonce))
}

func textOrNil(s *sql.NullString) any {
	if !s.Valid {
		return nil
	}
	return s.String
}

func numberOrNil(n *sql.NullInt64) any {
	if !n.Valid {
		return nil
	}
	return n.Int64
}

func (r *row) scan(rows interface{ Scan(...any) error }) error {
	return rows.Scan((*int64)(&r.id), &r.asker, &r.target, &r.verdict, &r.pace, &r.outcome, &r.path, &r.query, &r.port, &r.time,
		&r.waited, &r.gap, &r.sent, &r.first, &r.released, &r.ended, &r.bytes, &r.open, &r.kind, &r.signed, &r.nonce)
}

// split returns the parts of r, a record in its normal form, and a row without their ids.
func split(e *audit.Entry) (w row, a asker, t target, v verdict, p pace, o outcome) {
	r := &e.Record
	address, port := splitAddr(r.ClientAddr)
	a = asker{
		r.Client, address, r.Tag, r.Purpose, r.UserAgent, r.SentUserAgent, r.Agent, r.ProductToken, r.SignatureAgent, r.KeyID,
	}
	t = target{r.Scheme, r.Host, int64(r.Port), r.Lane}
	v = verdict{
		r.Method, string(r.Via), r.Mode, string(r.Decision), string(r.Reason), int64(r.RuleLine), r.Rule, int64(r.GroupLine),
		r.GroupAgents, r.Exemption, r.Intervention, r.Deviation, r.RobotsSHA256, int64(r.RobotsStatus), r.RobotsState,
		micros(r.RobotsFetchedAt), r.Dialect, r.PolicySHA256, int64(r.RulesVersion), r.Usage, r.CrawlerPrice,
	}
	p = pace{int64(r.DelayRequired), r.DelaySource, r.PacingMode, r.Spacing}
	o = outcome{int64(r.Status), int64(r.RetryAfter), r.UpstreamAddr, r.Error}
	w = row{
		id: r.ID, path: nullText(r.Path), query: nullText(r.Query), port: nullText(port),
		waited: duration(r.Waited), gap: duration(r.Gap), first: duration(r.FirstByte),
		sent: since(r.ID, r.SentAt), released: since(r.ID, r.ReleasedAt), ended: since(r.ID, r.EndedAt), bytes: number(r.Bytes),
		signed: since(r.ID, r.SignedAt), nonce: nullText(r.SignatureNonce),
	}
	if w.time = since(r.ID, r.Time); w.time.Int64 == 0 && w.time.Valid {
		w.time = sql.NullInt64{} // that of the id
	}
	if r.Time.IsZero() {
		w.time = sql.NullInt64{Int64: noTime, Valid: true}
	}
	if e.Open {
		w.open = number(1)
	}
	w.kind = number(kindOf(r))
	return w, a, t, v, p, o
}

// Values of row.kind, which bits make up.
const (
	kindRefused = 1 // the decision is not allow
	kindOwn     = 2 // a request of the proxy
)

func kindOf(r *audit.Record) (kind int64) {
	if r.Decision != policy.Allow {
		kind |= kindRefused
	}
	if r.Via == audit.Robots {
		kind |= kindOwn
	}
	return kind
}

// noTime is row.time of a record without one.
const noTime = -1 << 62

// splitAddr splits the address of a client, so that many records share its host.
func splitAddr(addr string) (host, port string) {
	h, p, err := net.SplitHostPort(addr)
	if err != nil || p == "" || net.JoinHostPort(h, p) != addr {
		return addr, ""
	}
	return h, p
}

// record puts the parts of a record together.
func (w *row) record(a *asker, t *target, v *verdict, p *pace, o *outcome) audit.Record {
	addr := a.address
	if w.port.Valid {
		addr = net.JoinHostPort(a.address, w.port.String)
	}
	r := audit.Record{
		ID: w.id, Time: timeOf(w.id.Time().UnixMicro() + w.time.Int64),
		Client: a.client, ClientAddr: addr, Tag: a.tag, Purpose: a.purpose, UserAgent: a.userAgent,
		SentUserAgent: a.sentUserAgent, Agent: a.agent, ProductToken: a.productToken, SignatureAgent: a.signatureAgent, KeyID: a.keyID,
		Method: v.method, Scheme: t.scheme, Host: t.host, Port: uint16(t.port), Path: w.path.String, Query: w.query.String,
		Via: audit.Via(v.via), Mode: v.mode, Decision: policy.Outcome(v.decision), Reason: policy.Reason(v.reason),
		RuleLine: int(v.ruleLine), Rule: v.rule, GroupLine: int(v.groupLine), GroupAgents: v.groupAgents,
		Exemption: v.exemption, Intervention: v.intervention, Deviation: v.deviation,
		RobotsSHA256: v.sha256, RobotsStatus: int(v.status), RobotsState: v.state, RobotsFetchedAt: timeOf(v.fetched),
		Dialect: v.dialect, PolicySHA256: v.policy, RulesVersion: int(v.rulesVersion), Usage: v.usage, CrawlerPrice: v.price,
		DelayRequired: audit.Millis(p.delay), DelaySource: p.source, PacingMode: p.mode, Spacing: p.spacing, Lane: t.lane,
		Waited: millis(w.waited), Gap: millis(w.gap), FirstByte: millis(w.first),
		SignedAt: w.moment(w.signed), SignatureNonce: w.nonce.String,
		SentAt: w.moment(w.sent), ReleasedAt: w.moment(w.released), EndedAt: w.moment(w.ended),
		Status: int(o.status), RetryAfter: int(o.retryAfter), UpstreamAddr: o.upstream, Error: o.err, Bytes: w.bytes.Int64,
	}
	if w.time.Int64 == noTime {
		r.Time = time.Time{}
	}
	return r
}

func (w *row) moment(micros sql.NullInt64) time.Time {
	if !micros.Valid {
		return time.Time{}
	}
	return time.UnixMicro(w.id.Time().UnixMicro() + micros.Int64).UTC()
}

func nullText(s string) sql.NullString { return sql.NullString{String: s, Valid: s != ""} }

func number(n int64) sql.NullInt64 { return sql.NullInt64{Int64: n, Valid: n != 0} }

// duration returns microseconds. A duration below one microsecond is 0, and an unknown one is NULL.
func duration(d audit.Millis) sql.NullInt64 {
	return sql.NullInt64{Int64: time.Duration(d).Microseconds(), Valid: d != 0}
}

func millis(micros sql.NullInt64) audit.Millis {
	if micros.Valid && micros.Int64 == 0 {
		return 1
	}
	return audit.Millis(micros.Int64) * audit.Millis(time.Microsecond)
}

// since returns the microseconds from the time of id to t.
func since(id audit.ID, t time.Time) sql.NullInt64 {
	if t.IsZero() {
		return sql.NullInt64{}
	}
	return sql.NullInt64{Int64: t.UnixMicro() - id.Time().UnixMicro(), Valid: true}
}

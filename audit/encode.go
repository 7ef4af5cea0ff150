package audit

import (
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/robotsproxy/robotsproxy/internal/safetext"
)

// appendRecord appends r in the encoding that encoding/json gives its tags, with times in UTC and strings as
// safetext.AppendJSON writes them. It does not use encoding/json, since it runs for every request and reflection would
// cost a tenth of the time of a request. A test compares the two.
func appendRecord(b []byte, r *Record) []byte {
	e := encoder{append(b, `{"id":"`...)}
	e.b = append(r.ID.append(e.b), '"')
	e.key(`,"time":`)
	e.time(r.Time)
	e.asker(r)
	e.target(r)
	e.decision(r)
	e.pace(r)
	e.outcome(r)
	return append(e.b, '}')
}

// AppendCanonical appends the JSON of the normal form of r. A record has the same canonical JSON before it is stored and
// after it is read back, so it is what audit/seal hashes.
func AppendCanonical(b []byte, r *Record) []byte {
	c := *r
	c.Normal()
	return appendRecord(b, &c)
}

func (e *encoder) asker(r *Record) {
	e.text(`,"client":`, r.Client)
	e.text(`,"client_addr":`, r.ClientAddr)
	e.text(`,"tag":`, r.Tag)
	e.text(`,"purpose":`, r.Purpose)
	e.long(`,"user_agent":`, r.UserAgent, maxLine)
	e.text(`,"sent_user_agent":`, r.SentUserAgent)
	e.text(`,"agent":`, r.Agent)
	e.text(`,"product_token":`, r.ProductToken)
	e.text(`,"signature_agent":`, r.SignatureAgent)
	e.text(`,"keyid":`, r.KeyID)
}

func (e *encoder) target(r *Record) {
	e.text(`,"method":`, r.Method)
	e.text(`,"scheme":`, r.Scheme)
	e.text(`,"host":`, r.Host)
	e.number(`,"port":`, int64(r.Port))
	e.long(`,"path":`, r.Path, maxTarget)
	e.long(`,"query":`, r.Query, maxTarget)
	e.text(`,"via":`, string(r.Via))
	e.text(`,"mode":`, r.Mode)
}

func (e *encoder) decision(r *Record) {
	e.key(`,"decision":`)
	e.string(string(r.Decision), maxText)
	e.text(`,"reason":`, string(r.Reason))
	e.number(`,"rule_line":`, int64(r.RuleLine))
	e.long(`,"rule":`, r.Rule, maxLine)
	e.number(`,"group_line":`, int64(r.GroupLine))
	e.long(`,"group_agents":`, r.GroupAgents, maxLine)
	e.text(`,"exemption":`, r.Exemption)
	e.text(`,"intervention":`, r.Intervention)
	e.text(`,"deviation":`, r.Deviation)
	e.text(`,"robots_sha256":`, r.RobotsSHA256)
	e.number(`,"robots_status":`, int64(r.RobotsStatus))
	e.text(`,"robots_state":`, r.RobotsState)
	e.moment(`,"robots_fetched_at":`, r.RobotsFetchedAt)
	e.text(`,"dialect":`, r.Dialect)
	e.text(`,"policy_sha256":`, r.PolicySHA256)
	e.number(`,"rules_version":`, int64(r.RulesVersion))
	e.text(`,"usage":`, r.Usage)
	e.text(`,"crawler_price":`, r.CrawlerPrice)
}

func (e *encoder) pace(r *Record) {
	e.millis(`,"delay_required_ms":`, r.DelayRequired)
	e.text(`,"delay_source":`, r.DelaySource)
	e.millis(`,"waited_ms":`, r.Waited)
	e.millis(`,"gap_ms":`, r.Gap)
	e.text(`,"pacing_mode":`, r.PacingMode)
	e.text(`,"lane":`, r.Lane)
	e.text(`,"spacing":`, r.Spacing)
}

func (e *encoder) outcome(r *Record) {
	e.moment(`,"signed_at":`, r.SignedAt)
	e.text(`,"signature_nonce":`, r.SignatureNonce)
	e.moment(`,"sent_at":`, r.SentAt)
	e.millis(`,"first_byte_ms":`, r.FirstByte)
	e.moment(`,"released_at":`, r.ReleasedAt)
	e.moment(`,"ended_at":`, r.EndedAt)
	e.number(`,"status":`, int64(r.Status))
	e.key(`,"bytes":`)
	e.b = strconv.AppendInt(e.b, r.Bytes, 10)
	e.number(`,"retry_after":`, int64(r.RetryAfter))
	e.text(`,"upstream_addr":`, r.UpstreamAddr)
	e.long(`,"error":`, r.Error, maxLine)
}

// The maximum sizes of encoded texts, in bytes. Longer texts are cut, so that a record has at most maxRecord bytes,
// whatever clients and sites send.
const (
	maxText   = 1 << 10
	maxLine   = 2 << 10 // a User-Agent, a rule, the names of a group, an error
	maxTarget = 8 << 10 // a path, and a query
	maxRecord = 60 << 10
)

// encoder appends the members of an object after the first. Keys are passed as `,"name":`, so that no string is built
// for each record. Methods with a key and a value omit empty values.
type encoder struct{ b []byte }

func (e *encoder) key(key string) { e.b = append(e.b, key...) }

func (e *encoder) text(key, value string) { e.long(key, value, maxText) }

// long is like text, with another maximum size of the encoded value, in bytes.
func (e *encoder) long(key, value string, most int) {
	if value != "" {
		e.key(key)
		e.string(value, most)
	}
}

func (e *encoder) number(key string, value int64) {
	if value != 0 {
		e.key(key)
		e.b = strconv.AppendInt(e.b, value, 10)
	}
}

func (e *encoder) millis(key string, value Millis) {
	if value != 0 {
		e.key(key)
		e.b = value.append(e.b)
	}
}

func (e *encoder) moment(key string, value time.Time) {
	if !value.IsZero() {
		e.key(key)
		e.time(value)
	}
}

func (e *encoder) time(t time.Time) {
	e.b = append(e.b, '"')
	e.b = t.UTC().AppendFormat(e.b, time.RFC3339Nano)
	e.b = append(e.b, '"')
}

// string appends s, cut to at most the given bytes without its quotes. safetext writes the strings that need
// escapes; most do not.
func (e *encoder) string(s string, most int) {
	s = s[:runeStart(s, most)]
	if !isPlain(s) {
		e.escaped(s, most)
		return
	}
	e.b = append(append(append(e.b, '"'), s...), '"')
}

// runeStart returns the greatest length of at most n bytes at which s can be cut between two runes.
func runeStart(s string, n int) int {
	if len(s) <= n {
		return len(s)
	}
	for back := range utf8.UTFMax {
		if i := n - back; i >= 0 && utf8.RuneStart(s[i]) {
			return i
		}
	}
	return n // s is not UTF-8
}

// escaped appends s as safetext does, cut to at most the given bytes after escaping.
func (e *encoder) escaped(s string, most int) {
	begin := len(e.b) + len(`"`)
	e.b = safetext.AppendJSON(e.b, s)
	if len(e.b)-len(`"`)-begin <= most {
		return
	}
	end := begin
	for n := unitLength(e.b[end:]); end+n <= begin+most; n = unitLength(e.b[end:]) {
		end += n
	}
	e.b = append(e.b[:end], '"')
}

// unitLength returns the length of the first unit of the JSON text b, which must not be split: a rune, an escape, a
// pair of escapes for one rune (RFC 8259 section 7), or a byte that safetext wrote as %XX.
func unitLength(b []byte) int {
	switch {
	case b[0] == '\\' && b[1] != 'u':
		return len(`\n`)
	case b[0] == '\\' && b[2] == 'd' && b[3] >= '8' && b[3] < 'c': // a high surrogate
		return len(`\ud800\udc00`)
	case b[0] == '\\':
		return len(`\u0000`)
	case b[0] == '%' && len(b) > 3 && isHex(string(b[1:3]), 0):
		return len("%00")
	}
	_, n := utf8.DecodeRune(b)
	return n
}

package audit

import (
	"strconv"
	"time"

	"github.com/robotsproxy/robotsproxy/internal/safetext"
)

// appendRecord appends r as encoding/json writes it by its tags, times in UTC and strings as safetext.AppendJSON writes them. It is written
// out because a record is made for every request, and reflection costs a tenth of what a request does in all. A test
// holds the two against each other.
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

func (e *encoder) asker(r *Record) {
	e.text(`,"client":`, r.Client)
	e.text(`,"client_addr":`, r.ClientAddr)
	e.text(`,"tag":`, r.Tag)
	e.text(`,"purpose":`, r.Purpose)
	e.text(`,"user_agent":`, r.UserAgent)
	e.text(`,"product_token":`, r.ProductToken)
}

func (e *encoder) target(r *Record) {
	e.text(`,"method":`, r.Method)
	e.text(`,"scheme":`, r.Scheme)
	e.text(`,"host":`, r.Host)
	e.number(`,"port":`, int64(r.Port))
	e.text(`,"path":`, r.Path)
	e.text(`,"query":`, r.Query)
	e.text(`,"via":`, string(r.Via))
	e.text(`,"mode":`, r.Mode)
}

func (e *encoder) decision(r *Record) {
	e.key(`,"decision":`)
	e.string(string(r.Decision))
	e.text(`,"reason":`, string(r.Reason))
	e.number(`,"rule_line":`, int64(r.RuleLine))
	e.text(`,"rule":`, r.Rule)
	e.number(`,"group_line":`, int64(r.GroupLine))
	e.text(`,"group_agents":`, r.GroupAgents)
	e.text(`,"exemption":`, r.Exemption)
	e.text(`,"deviation":`, r.Deviation)
	e.text(`,"robots_sha256":`, r.RobotsSHA256)
	e.number(`,"robots_status":`, int64(r.RobotsStatus))
	e.text(`,"robots_state":`, r.RobotsState)
	e.moment(`,"robots_fetched_at":`, r.RobotsFetchedAt)
	e.text(`,"dialect":`, r.Dialect)
}

func (e *encoder) pace(r *Record) {
	e.millis(`,"delay_required_ms":`, r.DelayRequired)
	e.text(`,"delay_source":`, r.DelaySource)
	e.millis(`,"waited_ms":`, r.Waited)
	e.millis(`,"gap_ms":`, r.Gap)
	e.text(`,"pacing_mode":`, r.PacingMode)
}

func (e *encoder) outcome(r *Record) {
	e.moment(`,"sent_at":`, r.SentAt)
	e.millis(`,"first_byte_ms":`, r.FirstByte)
	e.moment(`,"ended_at":`, r.EndedAt)
	e.number(`,"status":`, int64(r.Status))
	e.key(`,"bytes":`)
	e.b = strconv.AppendInt(e.b, r.Bytes, 10)
	e.number(`,"retry_after":`, int64(r.RetryAfter))
	e.text(`,"upstream_addr":`, r.UpstreamAddr)
	e.text(`,"error":`, r.Error)
}

// encoder appends members of one object, behind the first. A key is given as it stands there, `,"name":`, so that it need
// not be put together for each record. Methods that take a key and a value leave out what is empty.
type encoder struct{ b []byte }

func (e *encoder) key(key string) { e.b = append(e.b, key...) }

func (e *encoder) text(key, value string) {
	if value != "" {
		e.key(key)
		e.string(value)
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

// string appends s as it is where it needs no escape, as most do, and leaves the others to safetext.
func (e *encoder) string(s string) {
	for i := range len(s) {
		if c := s[i]; c < 0x20 || c >= 0x7f || c == '"' || c == '\\' {
			e.b = safetext.AppendJSON(e.b, s)
			return
		}
	}
	e.b = append(append(append(e.b, '"'), s...), '"')
}

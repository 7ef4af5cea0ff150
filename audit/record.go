// Package audit keeps one Record for every request, so that what was blocked, what waited and why can be shown later.
//
//	w, err := audit.OpenJSONL(audit.JSONLOptions{Path: "audit.jsonl"})
//	err = w.Begin(ctx, record) // the decision is made; nothing was sent or answered yet
//	w.End(record)              // the request has ended; the record is complete
//	err = w.Close()            // all that was acknowledged is in the file
//
// A Record is begun once, before anything is sent or answered, and ended once. Begin is where a recorder that cannot
// write any more refuses, so that nothing happens unrecorded. Secrets never reach a Record: userinfo is never there, no header but
// User-Agent is kept, and QueryMask cuts values that are named like credentials from query, path and User-Agent. The
// package decides nothing and judges nothing.
package audit

import (
	"bytes"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/robotsproxy/robotsproxy/policy"
)

// Record is one request, flat. The names in its tags are the same wherever a record is shown; durations are in
// milliseconds. A field that is not known stays empty and is left out.
type Record struct {
	ID   ID        `json:"id"`
	Time time.Time `json:"time"` // when the request came

	Client       string `json:"client,omitempty"`
	ClientAddr   string `json:"client_addr,omitempty"`
	Tag          string `json:"tag,omitempty"`     // the client's own Robotsproxy-Tag
	Purpose      string `json:"purpose,omitempty"` // as configured for the client
	UserAgent    string `json:"user_agent,omitempty"`
	ProductToken string `json:"product_token,omitempty"` // what was matched against the groups

	Method string `json:"method,omitempty"`
	Scheme string `json:"scheme,omitempty"`
	Host   string `json:"host,omitempty"`
	Port   uint16 `json:"port,omitempty"`
	Path   string `json:"path,omitempty"`
	Query  string `json:"query,omitempty"`
	Via    Via    `json:"via,omitempty"`
	Mode   string `json:"mode,omitempty"` // enforce, report or off

	Decision    policy.Outcome `json:"decision"`
	Reason      policy.Reason  `json:"reason,omitempty"`
	RuleLine    int            `json:"rule_line,omitempty"`
	Rule        string         `json:"rule,omitempty"`
	GroupLine   int            `json:"group_line,omitempty"`
	GroupAgents string         `json:"group_agents,omitempty"`
	Exemption   string         `json:"exemption,omitempty"`
	Deviation   string         `json:"deviation,omitempty"` // where we were less careful than the site asked: max_crawl_delay, redirect, subresource, reported, overlap; several with commas

	RobotsSHA256    string    `json:"robots_sha256,omitempty"`
	RobotsStatus    int       `json:"robots_status,omitempty"`
	RobotsState     string    `json:"robots_state,omitempty"` // found, empty, unavailable, unreachable, html, oversize
	RobotsFetchedAt time.Time `json:"robots_fetched_at,omitzero"`
	Dialect         string    `json:"dialect,omitempty"` // whose reading of it counted

	DelayRequired Millis `json:"delay_required_ms,omitempty"`
	DelaySource   string `json:"delay_source,omitempty"` // floor, crawl-delay, request-rate, backoff, retry-after, default-delay or ip
	Waited        Millis `json:"waited_ms,omitempty"`
	Gap           Millis `json:"gap_ms,omitempty"`      // since the request before it on this host; left out where none is known
	PacingMode    string `json:"pacing_mode,omitempty"` // redis, spread or local

	SentAt       time.Time `json:"sent_at,omitzero"`
	FirstByte    Millis    `json:"first_byte_ms,omitempty"` // from SentAt to the answer's header
	EndedAt      time.Time `json:"ended_at,omitzero"`
	Status       int       `json:"status,omitempty"` // as the client saw it
	Bytes        int64     `json:"bytes"`            // of the body that the client was sent
	RetryAfter   int       `json:"retry_after,omitempty"`
	UpstreamAddr string    `json:"upstream_addr,omitempty"`
	Error        string    `json:"error,omitempty"`
}

// Via is the way a request came.
type Via string

const (
	Plain       Via = "plain"       // absolute-form, in clear
	Intercepted Via = "intercepted" // inside a CONNECT that was opened here
	Tunnel      Via = "tunnel"      // the CONNECT itself: passed on unread, refused, or ended before a request came out of it
	Robots      Via = "robots"      // a request of our own for a robots.txt, or for where it redirects
)

// Millis is a duration that is shown in milliseconds, to the microsecond.
type Millis time.Duration

// MarshalJSON writes a number of milliseconds with up to three decimals.
func (m Millis) MarshalJSON() ([]byte, error) {
	return m.append(nil), nil
}

func (m Millis) append(b []byte) []byte {
	micros := time.Duration(m).Microseconds()
	if micros < 0 {
		b, micros = append(b, '-'), -micros
	}
	b = strconv.AppendInt(b, micros/1000, 10)
	if rest := micros % 1000; rest > 0 {
		b = append(b, '.', byte('0'+rest/100), byte('0'+rest/10%10), byte('0'+rest%10))
		b = bytes.TrimRight(b, "0")
	}
	return b
}

// UnmarshalJSON reads what MarshalJSON writes.
func (m *Millis) UnmarshalJSON(b []byte) error {
	ms, err := strconv.ParseFloat(string(b), 64)
	if err != nil {
		return fmt.Errorf("audit: %q is not a number of milliseconds", b)
	}
	*m = Millis(math.Round(ms*1000) * float64(time.Microsecond))
	return nil
}

// Package audit keeps a Record of every request, to show later which requests were refused or delayed, and why.
//
//	w := audit.NewRecorder(audit.RecorderOptions{Store: s})
//	err = w.Begin(ctx, record) // after the decision, before anything is sent or answered
//	w.End(record)              // the request has ended; the record is complete
//	err = w.Close()            // all records are in the Store
//
// Each Record is begun once, before anything is sent or answered, and ended once. If records cannot be written, Begin
// returns an error, so that the caller refuses the request instead of sending it unrecorded.
//
// Records contain no secrets: no userinfo, no header except User-Agent and Robotsproxy-Tag, and with QueryMask no values
// with names like credentials in query, path and texts. The package makes no decisions.
package audit

import (
	"bytes"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/robotsproxy/robotsproxy/policy"
)

// Record describes one request. The names in its tags are the same in all outputs; durations are in milliseconds.
// Fields with unknown values are omitted.
type Record struct {
	ID   ID        `json:"id"`
	Time time.Time `json:"time"` // of arrival

	Client     string `json:"client,omitempty"`
	ClientAddr string `json:"client_addr,omitempty"`
	Tag        string `json:"tag,omitempty"`     // the client's Robotsproxy-Tag
	Purpose    string `json:"purpose,omitempty"` // as configured for the client
	UserAgent  string `json:"user_agent,omitempty"`
	// SentUserAgent replaces UserAgent, the client's own, in what is judged and sent; empty if the client's own counts.
	SentUserAgent string `json:"sent_user_agent,omitempty"`
	Agent         string `json:"agent,omitempty"`         // a label of the User-Agent: its product token, browser or other
	ProductToken  string `json:"product_token,omitempty"` // matched against the groups
	// SignatureAgent and KeyID say who signed the request (Web Bot Auth): the value of Signature-Agent, and the
	// thumbprint of the key.
	SignatureAgent string `json:"signature_agent,omitempty"`
	KeyID          string `json:"keyid,omitempty"`

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
	Rule        string         `json:"rule,omitempty"` // without RuleLine: an entry of the lists of hosts, or a field of the response, as in "header X-Robots-Tag: noai"
	GroupLine   int            `json:"group_line,omitempty"`
	GroupAgents string         `json:"group_agents,omitempty"`
	Exemption   string         `json:"exemption,omitempty"`
	// Intervention is the operator's intervention that stopped the request, ended it, set its Delay or bypassed its
	// refusal; several with semicolons.
	Intervention string `json:"intervention,omitempty"`
	// Deviation says how the proxy was less strict than the site asks: max_crawl_delay, subresource, reported, overlap;
	// several with commas.
	Deviation string `json:"deviation,omitempty"`

	RobotsSHA256    string    `json:"robots_sha256,omitempty"`
	RobotsStatus    int       `json:"robots_status,omitempty"`
	RobotsState     string    `json:"robots_state,omitempty"` // found, empty, unavailable, unreachable, html, oversize
	RobotsFetchedAt time.Time `json:"robots_fetched_at,omitzero"`
	Dialect         string    `json:"dialect,omitempty"` // with which it was read
	PolicySHA256    string    `json:"policy_sha256,omitempty"`
	RulesVersion    int       `json:"rules_version,omitempty"` // of the rules engine: rules.Version

	// Usage lists the preferences of the origin about the use of its content, by source and in canonical order:
	// "robots.txt: search=yes train-ai=n; header: x-robots-tag=noai".
	Usage        string `json:"usage,omitempty"`
	CrawlerPrice string `json:"crawler_price,omitempty"` // as in Crawler-Price: "USD 0.01", or that of Crawler-Charged: "charged USD 0.01"

	DelayRequired Millis `json:"delay_required_ms,omitempty"`
	// DelaySource is floor, crawl-delay, request-rate, backoff, retry-after or default-delay.
	DelaySource string `json:"delay_source,omitempty"`
	Waited      Millis `json:"waited_ms,omitempty"`   // for a place in the lane; mode report takes no place
	Gap         Millis `json:"gap_ms,omitempty"`      // since the previous request to this host; omitted if unknown
	PacingMode  string `json:"pacing_mode,omitempty"` // redis, spread or local
	Lane        string `json:"lane,omitempty"`        // the name shared by all hosts of one pace; omitted if it is Host
	Spacing     string `json:"spacing,omitempty"`     // start if the Delay counts from starts; omitted if from ends

	SignedAt       time.Time `json:"signed_at,omitzero"` // to the second
	SignatureNonce string    `json:"signature_nonce,omitempty"`
	SentAt         time.Time `json:"sent_at,omitzero"`
	FirstByte      Millis    `json:"first_byte_ms,omitempty"` // from SentAt to the response header
	ReleasedAt     time.Time `json:"released_at,omitzero"`    // the place in the lane was given back before EndedAt
	EndedAt        time.Time `json:"ended_at,omitzero"`
	Status         int       `json:"status,omitempty"` // as the client received it
	Bytes          int64     `json:"bytes"`            // of the body, sent to the client
	RetryAfter     int       `json:"retry_after,omitempty"`
	UpstreamAddr   string    `json:"upstream_addr,omitempty"`
	Error          string    `json:"error,omitempty"`

	Evidence Evidence `json:"-"`
}

// SetSignature says that the request is signed: see SignatureAgent and KeyID.
func (r *Record) SetSignature(agent, keyID, nonce string, at time.Time) {
	r.SignatureAgent, r.KeyID, r.SignatureNonce, r.SignedAt = agent, keyID, nonce, at
}

// Via says how a request arrived.
type Via string

const (
	Plain       Via = "plain"       // in absolute-form, over plain HTTP
	Intercepted Via = "intercepted" // inside an intercepted CONNECT
	Tunnel      Via = "tunnel"      // the CONNECT itself: tunneled, refused, or ended without a request
	Robots      Via = "robots"      // the proxy's own request for a robots.txt, or for its redirect
)

// Millis is a duration that JSON shows in milliseconds, to the microsecond.
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

// UnmarshalJSON parses the result of MarshalJSON. Zero becomes a nanosecond, since a Record omits an unknown duration.
func (m *Millis) UnmarshalJSON(b []byte) error {
	ms, err := strconv.ParseFloat(string(b), 64)
	if err != nil {
		return fmt.Errorf("audit: %q is not a number of milliseconds", b)
	}
	if *m = Millis(math.Round(ms*1000) * float64(time.Microsecond)); *m == 0 {
		*m = 1
	}
	return nil
}

package requestlog

import (
	"cmp"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/robotsproxy/robotsproxy/audit"
	"github.com/robotsproxy/robotsproxy/policy"
)

// The kinds of lines.
const (
	access      = "request"
	blocked     = "blocked"
	wouldBlock  = "would block" // in mode report
	throttled   = "throttled"
	refused     = "refused"
	unreachable = "unreachable"
	paused      = "paused"
	others      = "others"  // refusals beyond maxKeys
	dropped     = "dropped" // lines beyond maxEvents
)

// event has the content of a line.
type event struct {
	kind          string
	time          time.Time
	client, agent string
	method        string
	scheme        string
	host          string
	port          uint16
	target        string // path and query
	decision      policy.Outcome
	reason        policy.Reason
	rule          string
	line          int
	status        int
	robotsStatus  int
	retryAfter    int // seconds
	waited        time.Duration
	took          time.Duration
	bytes         int64
	err           string
	pause         Pause
	more          int64 // repetitions
}

// The bounds of texts that clients and sites choose, in bytes.
const (
	maxTarget = 2 << 10
	maxText   = 512
)

func newEvent(r *audit.Record, kind string) event {
	target := r.Path
	if r.Query != "" {
		target += "?" + r.Query
	}
	return event{
		kind: kind, time: r.EndedAt, client: r.Client, agent: r.Agent,
		method: r.Method, scheme: r.Scheme, host: r.Host, port: r.Port, target: cut(target, maxTarget),
		decision: r.Decision, reason: r.Reason, rule: cut(r.Rule, maxText), line: r.RuleLine,
		status: r.Status, robotsStatus: r.RobotsStatus, retryAfter: r.RetryAfter,
		waited: time.Duration(r.Waited), took: r.EndedAt.Sub(r.Time), bytes: r.Bytes, err: cut(r.Error, maxText),
	}
}

// cut returns at most n bytes of s. It parts no rune.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return strings.Clone(s[:n]) + "…"
}

// kindOf returns the kind of line that r has in the mode Refused, and "" if it has none.
func kindOf(r *audit.Record) string {
	switch {
	case r.Reason == policy.ReasonClientLeft:
		return ""
	case r.Reason == policy.ReasonRobotsUnreachable:
		return unreachable
	}
	switch r.Decision {
	case policy.Deny:
		return blocked
	case policy.WouldDeny:
		return wouldBlock
	case policy.Throttle:
		return throttled
	case policy.Error:
		return refused
	}
	return ""
}

// key is the same for all lines that count as repetitions. A host is paused or unreachable for all.
func (e event) key() key {
	k := key{kind: e.kind, host: e.host}
	if e.kind != paused && e.kind != unreachable {
		k.asker, k.reason, k.line, k.rule = e.asker(), string(e.reason), e.line, e.rule
	}
	return k
}

// local is the client of all requests if no clients are listed. They differ by agent.
const local = "local"

// asker returns the name of the client, or the agent if the client is not listed.
func (e event) asker() string {
	if e.client != "" && e.client != local {
		return e.client
	}
	return cmp.Or(e.agent, e.client, "-")
}

// authority returns the host, with its port if that is not the default one.
func (e event) authority() string {
	switch {
	case e.host == "":
		return "-" // nothing was read
	case e.port == 0, e.port == 80 && e.scheme == "http", e.port == 443 && e.scheme == "https":
		return e.host
	}
	return e.host + ":" + strconv.Itoa(int(e.port))
}

// place returns the target of the request, or the host if the line is about that.
func (e event) place() string {
	switch {
	case e.kind == paused, e.kind == unreachable:
		return e.authority()
	case e.kind == access:
		return cmp.Or(e.url(), "-")
	}
	return e.authority() + e.target
}

// url returns the URL of the request, host and port of a CONNECT, and "" if nothing was read.
func (e event) url() string {
	switch {
	case e.host == "":
		return ""
	case e.target == "":
		return e.authority()
	}
	return e.scheme + "://" + e.authority() + e.target
}

// cause returns why the request was refused.
func (e event) cause() string {
	text := string(e.reason)
	switch {
	case e.line > 0:
		return "line " + strconv.Itoa(e.line) + ": " + e.rule
	case e.rule != "":
		return e.rule // of the lists of hosts, or a field of the response
	case strings.HasPrefix(e.err, text+": "):
		text = e.err
	case e.err != "":
		text += ": " + e.err
	}
	return text
}

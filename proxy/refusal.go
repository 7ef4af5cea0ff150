package proxy

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/robotsproxy/robotsproxy/internal/fields"
	"github.com/robotsproxy/robotsproxy/internal/safetext"
	"github.com/robotsproxy/robotsproxy/internal/style"
	"github.com/robotsproxy/robotsproxy/policy"
)

// refusal is an answer of the proxy in place of the origin's. The zero values of its fields stand for those in classes.
type refusal struct {
	Reason     policy.Reason
	Outcome    policy.Outcome // if empty, that of the Reason
	Status     int            // if zero, that of the Reason
	ProxyError string         // error type of RFC 9209 section 2.3; if empty, that of the Reason
	Detail     string         // one sentence for the client, without internal addresses or secrets
	Phrase     string         // for the status line; if empty, the title of the Reason
	Rule       string         // that decided, as in "line 12: Disallow: /x"; empty if another reason did
	RetryAfter time.Duration  // if zero, the field is not sent
	Delay      time.Duration  // between two requests, if the Delay is why the request must wait
	Err        error          // for the record
	Facts      func() *facts  // for a body in HTML or JSON; nil if no request was read
}

// class is common to all refusals of one reason.
type class struct {
	status     int
	proxyError string // RFC 9209 section 2.3
	outcome    policy.Outcome
	title      string
}

// classes is the only place that ties a reason to its status, its Proxy-Status error and its recorded decision. The
// status of a client that left, 499 as in nginx, appears only in records.
var classes = map[policy.Reason]class{
	policy.ReasonRobots:            {403, "http_request_denied", policy.Deny, "Disallowed by robots.txt"},
	policy.ReasonRobotsUnreachable: {503, "destination_unavailable", policy.Error, "The robots.txt of this origin could not be known"},
	policy.ReasonEgress:            {403, "destination_ip_prohibited", policy.Deny, "This address may not be reached through the proxy"},
	policy.ReasonExemption:         {403, "http_request_denied", policy.Deny, "Denied by the operator of the proxy"},
	policy.ReasonUsage:             {403, "http_request_denied", policy.Deny, "This site does not permit this use of its content"},
	policy.ReasonHost:              {403, "http_request_denied", policy.Deny, "This client may not visit this host"},
	policy.ReasonIntercept:         {403, "http_request_denied", policy.Deny, "No tunnel to this host is passed on"},
	policy.ReasonIdentity:          {403, "http_request_denied", policy.Deny, "This client may not use the proxy"},
	policy.ReasonStopped:           {503, "http_request_denied", policy.Deny, "The operator of the proxy stopped all requests to this host"},
	policy.ReasonBackoff:           {429, "http_request_denied", policy.Throttle, "This host asked to be left alone for a while"},
	policy.ReasonAuth:              {407, "http_request_denied", policy.Deny, "The proxy wants to know who asks"},
	policy.ReasonPace:              {429, "http_request_denied", policy.Throttle, "Too soon for this host"},
	policy.ReasonOverload:          {503, "connection_limit_reached", policy.Error, "The proxy is at its limit"},
	policy.ReasonPacingUnavailable: {503, "proxy_internal_error", policy.Error, "The pace of this host cannot be known"},
	policy.ReasonAuditUnavailable:  {503, "proxy_internal_error", policy.Error, "The decision could not be recorded"},
	policy.ReasonTooComplex:        {403, "http_request_denied", policy.Deny, "The rules for this request are too complex"},
	policy.ReasonConnectionAuth:    {403, "http_request_denied", policy.Deny, "Authentication of a connection does not pass this proxy"},
	policy.ReasonClientLeft:        {499, "http_request_error", policy.Error, "The client left"},
	policy.ReasonBadRequest:        {400, "http_request_error", policy.Error, "This request cannot be judged"},
	policy.ReasonMisdirected:       {421, "http_request_error", policy.Error, "Two names for one request"},
	policy.ReasonLoop:              {508, "proxy_loop_detected", policy.Error, "The request came back to the proxy"},
	policy.ReasonUpstream:          {502, "destination_unavailable", policy.Allow, "The origin did not answer"},
	policy.ReasonInternal:          {500, "proxy_internal_error", policy.Error, "A fault of the proxy"},
}

// complete fills in the zero fields of r from classes. robotsStatus is the status of refusals by robots.txt; if zero,
// 403.
func (r *refusal) complete(robotsStatus int) {
	c, ok := classes[r.Reason]
	if !ok { // a reason without a row still refuses
		r.Reason = policy.ReasonInternal
		c = classes[r.Reason]
	}
	if r.Reason == policy.ReasonRobots && robotsStatus != 0 {
		c.status = robotsStatus
	}
	if r.Status == 0 {
		r.Status = c.status
	}
	if r.ProxyError == "" {
		r.ProxyError = c.proxyError
	}
	if r.Outcome == "" {
		r.Outcome = c.outcome
	}
	if r.Detail == "" {
		r.Detail = c.title + "."
	}
}

// endsConnection reports whether no further request is read from a connection of HTTP/1.x after r: a request that could
// not be judged may not end where it seems to end, and after a time limit the deadlines of the connection have passed.
func (r *refusal) endsConnection() bool {
	switch r.Reason {
	case policy.ReasonBadRequest, policy.ReasonMisdirected, policy.ReasonLoop, policy.ReasonInternal:
		return true
	}
	return errors.Is(r.Err, errTooLong)
}

// retryAfter returns whole seconds, at least one (RFC 9110 section 10.2.3), and 0 if the field is not sent.
func (r *refusal) retryAfter() int {
	if r.RetryAfter <= 0 {
		return 0
	}
	return max(1, int(math.Ceil(r.RetryAfter.Seconds())))
}

// retryOverload is the Retry-After of a refusal by a limit or a failure of the proxy.
const retryOverload = 5 * time.Second

// maxWords is how many bytes of a rule or a detail go into a header field. Some clients reject a header of more than 8
// or 16 KiB. The body contains the whole text.
const maxWords = 1 << 10

// nothingRead stands for the request of a client that is answered before its request is read.
var nothingRead = &http.Request{Header: http.Header{}}

// maxPhrase and maxDetailPhrase bound the reason phrase of a status line, in bytes. Clients show it in one line.
const (
	maxPhrase       = 100
	maxDetailPhrase = 200
)

// phrase returns the reason phrase of the status line of HTTP/1.1, which many programs print and log. It has the Detail
// if the client shows nothing else: of an answer to a CONNECT, or to bytes without a method, which are not a request.
func (r *refusal) phrase(method string) string {
	phrase := r.Phrase
	switch {
	case method == http.MethodConnect, method == "":
		return cut(safetext.Field(string(r.Reason)+": "+r.Detail), maxDetailPhrase)
	case phrase != "":
	case r.Status == http.StatusProxyAuthRequired:
		phrase = http.StatusText(r.Status)
	default:
		phrase = classes[r.Reason].title
	}
	return cut(safetext.Field(phrase), maxPhrase)
}

// response returns r as an answer to req. id is that of the record; without a record it is empty.
func (r *refusal) response(req *http.Request, id string) *http.Response {
	contentType, body := r.body(req.Header["Accept"], id)
	h := http.Header{
		"Content-Type":           {contentType},
		"Content-Length":         {strconv.Itoa(len(body))},
		"X-Content-Type-Options": {"nosniff"},
		"Cache-Control":          {"no-store"},
		"Vary":                   {"Accept"},
		"Proxy-Status":           {proxyStatus(r.ProxyError, r.Detail)},
		"Robotsproxy-Decision":   {string(r.Outcome)},
		"Robotsproxy-Reason":     {string(r.Reason)},
	}
	if strings.HasPrefix(contentType, "text/html") {
		h.Set("Content-Security-Policy", "default-src 'none'; style-src "+style.Source)
	}
	if id != "" {
		h.Set("Robotsproxy-Request-Id", id)
	}
	if r.Rule != "" {
		h.Set("Robotsproxy-Rule", safetext.Field(cut(r.Rule, maxWords)))
	}
	if r.Status == http.StatusProxyAuthRequired {
		h.Set("Proxy-Authenticate", `Basic realm="robotsproxy"`) // RFC 9110 section 15.5.8 wants it
	}
	if seconds := r.retryAfter(); seconds > 0 {
		h.Set("Retry-After", strconv.Itoa(seconds))
		r.rateLimit(h, seconds)
	}
	resp := &http.Response{
		Status: strconv.Itoa(r.Status) + " " + r.phrase(req.Method), StatusCode: r.Status, Header: h,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Body: http.NoBody, ContentLength: int64(len(body)), Request: req,
	}
	if req.Method != http.MethodHead {
		resp.Body = io.NopCloser(bytes.NewReader(body))
	}
	return resp
}

// rateLimit adds the fields of draft-ietf-httpapi-ratelimit-headers to a refusal by the pace: of a quota of one request
// per Delay, nothing remains for so many seconds. The window is in whole seconds: a Delay of half a second is two
// requests per second.
func (r *refusal) rateLimit(h http.Header, seconds int) {
	if r.Outcome != policy.Throttle {
		return
	}
	h["Ratelimit"] = []string{`"default";r=0;t=` + strconv.Itoa(seconds)}
	if r.Delay > 0 {
		requests, window := max(1, int(time.Second/r.Delay)), max(1, int(math.Ceil(r.Delay.Seconds())))
		h["Ratelimit-Policy"] = []string{fmt.Sprintf(`"default";q=%d;w=%d`, requests, window)}
	}
}

// proxyStatus returns the field of RFC 9209 for an answer of the proxy.
func proxyStatus(proxyError, details string) string {
	escaped := strings.NewReplacer(`\`, `\\`, `"`, `\"`) // as a String of RFC 9651 section 3.3.3
	quoted := escaped.Replace(safetext.Field(cut(details, maxWords)))
	return fields.OwnName + "; error=" + proxyError + `; details="` + quoted + `"`
}

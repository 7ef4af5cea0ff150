package proxy

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/robotsproxy/robotsproxy/audit"
	"github.com/robotsproxy/robotsproxy/auth"
	"github.com/robotsproxy/robotsproxy/egress"
	"github.com/robotsproxy/robotsproxy/policy"
	"github.com/robotsproxy/robotsproxy/ratelimit"
	"github.com/robotsproxy/robotsproxy/robots"
	"github.com/robotsproxy/robotsproxy/robots/fetch"
)

// This file turns the error of each stage of a request into a refusal, with a Detail that has no internal address.

// unreachablePhrase is the Phrase of each refusal for ReasonRobotsUnreachable.
const unreachablePhrase = "robots.txt unreachable"

// lookUpRefusal returns the refusal for a look-up of robots.txt that returned no Snapshot: the guard refused the
// address, the client left, too many fetches wait, or the upstream proxy failed.
func lookUpRefusal(ex *exchange, err error) *refusal {
	var (
		busy  *robots.BusyError
		later *fetch.LaterError
	)
	ref := &refusal{
		Reason: policy.ReasonRobotsUnreachable, Phrase: unreachablePhrase, RetryAfter: time.Second, Err: err,
	}
	switch {
	case egress.Prohibited(err):
		return egressRefusal(ex, err)
	case ex.ctx.Err() != nil:
		return ex.gone(errGoneWaiting)
	case errors.Is(err, robots.ErrBusy):
		ref = overload("Too many robots.txt files are being fetched.", err)
		if errors.As(err, &busy) {
			ref.RetryAfter = max(ref.RetryAfter, busy.RetryAfter)
		}
	case egress.Exhausted(err):
		return overload(exhaustedDetail, err)
	case errors.Is(err, audit.ErrUnavailable):
		return unrecordedRefusal(err)
	case errors.As(err, &later): // its fetch would have waited too long
		ref.ProxyError, ref.RetryAfter = "http_request_denied", max(time.Second, time.Until(later.At))
		ref.Detail = ex.origin.String() + "/robots.txt could not be fetched yet: " + later.Error()
	default:
		ref.ProxyError = fetch.ErrorType(err)
		ref.Detail = ex.origin.String() + "/robots.txt could not be fetched: " + fetch.ErrorText(ref.ProxyError, err)
	}
	return ref
}

// overload returns the refusal for a request beyond a limit of the proxy.
func overload(detail string, err error) *refusal {
	return &refusal{Reason: policy.ReasonOverload, Detail: detail, RetryAfter: retryOverload, Err: err}
}

const exhaustedDetail = "The proxy's machine has no descriptor, memory or port for another connection."

// unrecordedRefusal returns the refusal for a request that could not be recorded.
func unrecordedRefusal(err error) *refusal {
	return &refusal{Reason: policy.ReasonAuditUnavailable, RetryAfter: retryOverload, Err: err}
}

// authRefusal returns the refusal for missing or rejected credentials. It does not say whether the user exists, and
// does not repeat the user name, which may be a password in the wrong place.
func authRefusal(err error) *refusal {
	const wanted = "This proxy wants a user and a password, as Basic credentials in Proxy-Authorization."
	ref := &refusal{Reason: policy.ReasonAuth, Detail: wanted, Err: err}
	var rejected *auth.RejectedError
	switch {
	case errors.As(err, &rejected) && rejected.RetryAfter > 0:
		ref.Detail = "Too many wrong credentials came from your address; try again later."
		ref.RetryAfter = rejected.RetryAfter
	case errors.As(err, &rejected):
		ref.Detail = "The user or the password is wrong."
	case errors.Is(err, auth.ErrBusy), errors.Is(err, errStopping):
		ref = overload("The credentials could not be checked: "+err.Error()+".", err)
		ref.RetryAfter = time.Second
	case errors.Is(err, context.Canceled):
		ref = &refusal{Reason: policy.ReasonClientLeft, Err: errClientLeft}
	}
	return ref
}

func egressRefusal(ex *exchange, err error) *refusal {
	ref := &refusal{Reason: policy.ReasonEgress, Err: err}
	var p *egress.ProhibitedError
	if errors.As(err, &p) {
		ref.Detail = ex.origin.HostPort() + " may not be reached through this proxy: " + p.Why() + "."
	}
	return ref
}

// decisionRefusal returns the refusal for ex.judged, a decision against the request.
func decisionRefusal(ex *exchange) *refusal {
	d, snap := ex.judged.Decision, ex.judged.snap
	ref := &refusal{Reason: d.Reason, Outcome: d.Outcome}
	switch d.Reason {
	case policy.ReasonRobots, policy.ReasonIntercept:
		ref.Detail = "robots.txt disallows every path for this agent"
		if d.Reason == policy.ReasonRobots && d.Verdict.Line > 0 {
			ref.Phrase = "Disallowed by robots.txt line " + strconv.Itoa(d.Verdict.Line)
		}
		if d.Verdict.Line > 0 {
			ref.Rule = fmt.Sprintf("line %d: %s", d.Verdict.Line, d.Verdict.Rule)
			ref.Detail = "robots.txt " + ref.Rule
		}
	case policy.ReasonUsage:
		if rule, byHeader := strings.CutPrefix(d.Verdict.Rule, policy.HeaderRule); byHeader {
			field, _, _ := strings.Cut(rule, ":")
			ref.Phrase = fmt.Sprintf("Not for %s by %s", ex.client.Purpose, field)
			ref.Rule = d.Verdict.Rule
			const detail = "The response has %s, which does not permit the purpose of this client, %s. Its body is withheld."
			ref.Detail = fmt.Sprintf(detail, rule, ex.client.Purpose)
			break
		}
		ref.Phrase = fmt.Sprintf("Not for %s by robots.txt line %d", ex.client.Purpose, d.Verdict.Line)
		ref.Rule = fmt.Sprintf("line %d: %s", d.Verdict.Line, d.Verdict.Rule)
		ref.Detail = fmt.Sprintf("robots.txt %s does not permit the purpose of this client, %s.", ref.Rule, ex.client.Purpose)
	case policy.ReasonTooComplex:
		ref.Detail = "It takes too long to find the rule of robots.txt that holds for this URL and User-Agent."
	case policy.ReasonRobotsUnreachable:
		ref.Phrase, ref.ProxyError, ref.Err = unreachablePhrase, snap.Cause, snap.Err
		ref.RetryAfter = max(time.Second, time.Until(snap.Expires)) // the next fetch
		ref.Detail = ex.origin.String() + "/robots.txt could not be fetched: " + snap.UnreachableText()
	case policy.ReasonPace:
		ref.Status = http.StatusForbidden // not 429: a later request would be refused too
		ref.Phrase = "The " + delayName(d.DelaySource) + " of " + ex.origin.Host() + " is too long"
		const detail = "%s asks for %v between requests, which is more than max_crawl_delay allows."
		ref.Detail = fmt.Sprintf(detail, ex.origin.Host(), d.Delay)
	case policy.ReasonExemption:
		ref.Detail = d.Exemption
	case policy.ReasonIdentity:
		ref.Phrase = "Your User-Agent names no contact"
		ref.Detail = "The operator of the proxy requires a contact in User-Agent: a URL, as in " +
			"NewsBot/1.0 (+https://example.org/bot), or a mail address."
	case policy.ReasonHost:
		ref.Detail = fmt.Sprintf("The operator of the proxy does not let this client visit %s: %s.", ex.origin.Host(), d.HostRule)
	case policy.ReasonStopped:
		return ex.stoppedRefusal(d)
	}
	return ref
}

// stoppedRefusal returns the refusal for the decision of a stop, which it records.
func (ex *exchange) stoppedRefusal(d policy.Decision) *refusal {
	ex.rec.SetDecision(d, nil)
	ref := &refusal{
		Reason: d.Reason, Phrase: "The operator has stopped " + ex.origin.Host(),
		Detail: "The operator of the proxy has stopped " + ex.origin.Host() + ".",
	}
	if !d.Until.IsZero() {
		ref.RetryAfter = max(time.Second, time.Until(d.Until))
	}
	return ref
}

// paceRefusal returns the refusal for ex.asked, which the Limiter refused with err.
func paceRefusal(ex *exchange, err error) *refusal {
	var (
		wait        *ratelimit.WaitError
		stopped     *ratelimit.StoppedError
		unavailable *ratelimit.UnavailableError
	)
	switch {
	case errors.As(err, &stopped):
		return ex.stoppedRefusal(policy.Decision{Outcome: policy.Deny, Reason: policy.ReasonStopped, Until: stopped.Until})
	case errors.As(err, &wait):
		return waitRefusal(ex, wait)
	case errors.As(err, &unavailable):
		return &refusal{
			Reason: policy.ReasonPacingUnavailable, RetryAfter: unavailable.RetryAfter, Err: err,
			Detail: "The pace that is shared with other instances of the proxy cannot be known at the moment.",
		}
	case errors.Is(err, ratelimit.ErrTooManyLanes):
		ref := overload("Too many hosts are paced at once.", err)
		ref.RetryAfter = time.Minute
		return ref
	default:
		return ex.gone(errGoneWaiting)
	}
}

func waitRefusal(ex *exchange, wait *ratelimit.WaitError) *refusal {
	r := &ex.asked
	ref := &refusal{Reason: policy.ReasonPace, RetryAfter: max(wait.Wait, time.Second), Delay: r.Delay}
	if wait.OneClient || wait.Source != "" {
		ref.Reason, ref.Delay = policy.ReasonBackoff, 0
	}
	host, in := ex.origin.Host(), wait.Wait.Round(time.Millisecond)
	detail := "The next free place for %s is in %v, and this request may be held for " + r.MaxWait.String() + " at most."
	switch {
	case wait.OneClient:
		detail, in = "%s has pushed back to this client, and gets no request of it for another %v.", wait.Wait.Round(time.Second)
	case wait.Source != "":
		detail, in = "%s has pushed back, and is left alone for another %v.", wait.Wait.Round(time.Second)
	case wait.Full:
		detail = "As many requests wait for %s as may, and the last of them for %v more."
	case wait.Wait <= r.MaxWait:
		detail = "The next free place for %s is in %v. Requests of this client have timed out sooner than that."
	}
	ref.Detail = fmt.Sprintf(detail, host, in)
	ref.Phrase = fmt.Sprintf("Wait %d s", ref.retryAfter()) + waitPhrase(ref.Reason, wait.Full, ex.judged.DelaySource) + host
	return ref
}

// waitPhrase returns what a request waits for, as the words between the time and the host in its Phrase.
func waitPhrase(reason policy.Reason, full bool, source string) string {
	switch {
	case reason == policy.ReasonBackoff:
		return " after the answers of "
	case full:
		return " for the queue of "
	case source == "":
		return " for the next place at "
	}
	return " for the " + delayName(source) + " of "
}

// delayName returns the name of a Delay as robots.txt has it.
func delayName(source string) string {
	switch source {
	case "crawl-delay":
		return "Crawl-delay"
	case "request-rate":
		return "Request-rate"
	}
	return "delay"
}

// upstreamRefusal returns the refusal for a request that was allowed and has no answer from the origin.
func upstreamRefusal(ex *exchange, err error) *refusal {
	if m := ex.conn.BadBody(); m != nil {
		return malformedRefusal(m)
	}
	if egress.Prohibited(err) {
		ex.grant.Cancel() // nothing was sent
		return egressRefusal(ex, err)
	}
	if ex.unrepeated != nil {
		return ex.unrepeated
	}
	if ex.ctx.Err() != nil {
		return ex.gone(errClientLeft)
	}
	if errors.Is(err, errConnectionAuth) {
		return &refusal{Reason: policy.ReasonConnectionAuth, Err: err, Detail: connectionAuthDetail}
	}
	if egress.Exhausted(err) {
		ex.grant.Cancel() // nothing was sent
		return overload(exhaustedDetail, err)
	}
	ref := &refusal{Reason: policy.ReasonUpstream, ProxyError: fetch.ErrorType(err), Err: err}
	ref.Status = timeoutStatus(ref.ProxyError)
	text := fetch.ErrorText(ref.ProxyError, err)
	ref.Detail = ex.origin.String() + " did not answer: " + text
	var failure *egress.UpstreamError
	if errors.As(err, &failure) {
		ref.Err, ref.Detail = failure, "T"+text[1:]+"."
		if ref.ProxyError == "proxy_loop_detected" {
			ref.Reason = policy.ReasonLoop
		}
	}
	return ref
}

// timeoutStatus returns 504 for a time-out, and zero otherwise.
func timeoutStatus(proxyError string) int {
	switch proxyError {
	case "connection_timeout", "dns_timeout", "http_response_timeout":
		return http.StatusGatewayTimeout
	}
	return 0
}

// gone returns the refusal for a request whose context has ended: the client left, an operator stopped the host, the
// proxy is stopping, or the request took too long. cause is the error to record if the client left.
func (ex *exchange) gone(cause error) *refusal {
	switch ended := context.Cause(ex.ctx); {
	case stopOf(ended) != nil:
		stop := stopOf(ended)
		ex.rec.SetPolicy(stop.policy)
		return ex.stoppedRefusal(stop.decision)
	case errors.Is(ended, errStopping):
		return overload("The proxy is stopping.", errStopping)
	case errors.Is(ended, errTooLong):
		return &refusal{
			Reason: policy.ReasonUpstream, Status: http.StatusGatewayTimeout, ProxyError: "http_response_timeout",
			Detail: "The request took longer than this proxy lets one take.", Err: errTooLong,
		}
	}
	return &refusal{Reason: policy.ReasonClientLeft, Err: cause}
}

// errConnectionAuth replaces a 401 with no challenge but for authentication of the connection.
var errConnectionAuth = errors.New("the origin offers nothing but authentication of the connection (NTLM, Negotiate)")

const connectionAuthDetail = "NTLM and Negotiate authenticate a connection, and all clients of this proxy share its connections. " +
	"Use a scheme such as Basic, Digest or Bearer."

// connectionAuthRefusal refuses a request with credentials that would authenticate the connection to the origin.
func connectionAuthRefusal(scheme string) *refusal {
	return &refusal{
		Reason: policy.ReasonConnectionAuth, Detail: connectionAuthDetail,
		Err: errors.New("the request has credentials of the scheme " + scheme),
	}
}

// handshakeRefusal refuses a request for a WebSocket with a broken handshake.
func handshakeRefusal(err error) *refusal {
	err = fmt.Errorf("this is no handshake of a WebSocket (RFC 6455 section 4.1): %w", err)
	return &refusal{Reason: policy.ReasonBadRequest, Detail: err.Error() + ".", Err: err}
}

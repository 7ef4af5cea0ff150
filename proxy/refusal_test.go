package proxy

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/dunglas/httpsfv"

	"github.com/robotsproxy/robotsproxy/policy"
)

// Every reason that refuses has its row in the table, and each row is whole.
func TestEveryReasonHasItsClass(t *testing.T) {
	for _, r := range []policy.Reason{
		policy.ReasonRobots, policy.ReasonRobotsUnreachable, policy.ReasonEgress, policy.ReasonExemption, policy.ReasonIdentity, policy.ReasonAuth, policy.ReasonIntercept, policy.ReasonPace, policy.ReasonBackoff, policy.ReasonStopped,
		policy.ReasonOverload, policy.ReasonAuditUnavailable, policy.ReasonPacingUnavailable, policy.ReasonBadRequest, policy.ReasonMisdirected, policy.ReasonLoop, policy.ReasonUpstream, policy.ReasonInternal,
		policy.ReasonTooComplex, policy.ReasonConnectionAuth, policy.ReasonClientLeft, policy.ReasonHost, policy.ReasonUsage,
	} {
		c, ok := classes[r]
		if !ok || c.status < 400 || c.proxyError == "" || c.outcome == "" || c.title == "" {
			t.Errorf("the row of %q is %+v, %t", r, c, ok)
		}
	}
	for _, r := range []*refusal{{}, {Reason: "no such reason"}} {
		if r.complete(0); r.Status != 500 {
			t.Errorf("a refusal for the reason %q has status %d", r.Reason, r.Status)
		}
	}
}

func TestRefusalContract(t *testing.T) {
	ref := &refusal{
		Reason: policy.ReasonRobots, Rule: "line 12: Disallow: /<script>\"é\r\nX: y", Detail: "robots.txt line 12: Disallow: /<script>\"é\r\nX: y",
		RetryAfter: 1200 * time.Millisecond, Err: errors.New("secret address 10.0.0.7"),
	}
	ref.complete(0)
	for accept, contentType := range map[string]string{
		"":                                "text/plain; charset=utf-8",
		"*/*":                             "text/plain; charset=utf-8",
		"application/json":                "application/problem+json",
		"application/problem+json":        "application/problem+json",
		"text/html,application/xhtml+xml": "text/html; charset=utf-8",
		"application/problem+json, text/html;q=0.5":          "application/problem+json",
		"text/html; level=1 ;q=0.5, Application/JSON; q=0.4": "text/html; charset=utf-8",
		"application/json, text/plain, */*":                  "application/problem+json",
		"text/html;q=0.1, text/plain":                        "text/plain; charset=utf-8",
		"text/html;q=0, application/json;q=0":                "text/plain; charset=utf-8",
		"text/html;q=none":                                   "text/plain; charset=utf-8",
	} {
		t.Run(accept, func(t *testing.T) {
			req := &http.Request{Method: "GET", Header: http.Header{"Accept": {accept}}}
			resp := ref.response(req, "id1")
			body, _ := io.ReadAll(resp.Body)
			if resp.StatusCode != 403 || resp.Header.Get("Content-Type") != contentType || int64(len(body)) != resp.ContentLength {
				t.Errorf("status %d, %q, %d of %d octets; want 403, %q", resp.StatusCode, resp.Header.Get("Content-Type"), len(body), resp.ContentLength, contentType)
			}
			checkFields(t, resp.Header)
			if strings.Contains(string(body), "10.0.0.7") {
				t.Error("the body tells an internal address")
			}
			if strings.Contains(contentType, "html") && strings.Contains(string(body), "<script>") {
				t.Error("the body holds what was not escaped")
			}
			if strings.Contains(contentType, "json") && !json.Valid(body) {
				t.Errorf("no JSON: %s", body)
			}
			if strings.Contains(contentType, "plain") && strings.Contains(string(body), "\r") {
				t.Error("the plain text holds a control character of the rule")
			}
		})
	}
}

func checkFields(t *testing.T, h http.Header) {
	t.Helper()
	for name, want := range map[string]string{
		"Robotsproxy-Decision": "deny", "Robotsproxy-Reason": "robots", "Robotsproxy-Request-Id": "id1",
		"Robotsproxy-Rule": `line 12: Disallow: /<script>"%C3%A9%0D%0AX: y`, "Cache-Control": "no-store", "Retry-After": "2",
	} {
		if got := h.Get(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	list, err := httpsfv.UnmarshalList(h["Proxy-Status"])
	if err != nil || len(list) != 1 {
		t.Fatalf("Proxy-Status %q: %v", h["Proxy-Status"], err)
	}
	item := list[0].(httpsfv.Item)
	if e, _ := item.Params.Get("error"); item.Value != httpsfv.Token("robotsproxy") || e != httpsfv.Token("http_request_denied") {
		t.Errorf("Proxy-Status = %v, error %v", item.Value, e)
	}
}

func TestRefusalToHEADHasNoBody(t *testing.T) {
	ref := &refusal{Reason: policy.ReasonPace}
	ref.complete(0)
	resp := ref.response(&http.Request{Method: "HEAD", Header: http.Header{}}, "id")
	if body, _ := io.ReadAll(resp.Body); len(body) != 0 || resp.ContentLength == 0 {
		t.Errorf("%d octets of body, Content-Length %d; want none, and what GET would have", len(body), resp.ContentLength)
	}
}

func TestRefusalStatusIsConfigurable(t *testing.T) {
	robots, egress := &refusal{Reason: policy.ReasonRobots}, &refusal{Reason: policy.ReasonEgress}
	robots.complete(451)
	egress.complete(451)
	if robots.Status != 451 || egress.Status != 403 {
		t.Errorf("statuses %d and %d, want 451 and 403", robots.Status, egress.Status)
	}
}

func TestRateLimitFields(t *testing.T) {
	for _, row := range []struct {
		ref           refusal
		limit, policy string
	}{
		{refusal{Reason: policy.ReasonPace, RetryAfter: 12500 * time.Millisecond, Delay: 10 * time.Second}, `"default";r=0;t=13`, `"default";q=1;w=10`},
		{refusal{Reason: policy.ReasonPace, RetryAfter: time.Millisecond, Delay: 400 * time.Millisecond}, `"default";r=0;t=1`, `"default";q=2;w=1`},
		{refusal{Reason: policy.ReasonPace, RetryAfter: time.Second, Delay: 1500 * time.Millisecond}, `"default";r=0;t=1`, `"default";q=1;w=2`},
		{refusal{Reason: policy.ReasonBackoff, RetryAfter: time.Minute}, `"default";r=0;t=60`, ""},
		{refusal{Reason: policy.ReasonOverload, RetryAfter: time.Minute}, "", ""},
	} {
		row.ref.complete(0)
		h := row.ref.response(&http.Request{Method: "GET", Header: http.Header{}}, "id").Header
		if limit, policy := h.Get("RateLimit"), h.Get("RateLimit-Policy"); limit != row.limit || policy != row.policy {
			t.Errorf("%+v: RateLimit %s, RateLimit-Policy %s; want %s and %s", row.ref, limit, policy, row.limit, row.policy)
		}
		for _, name := range []string{"RateLimit", "RateLimit-Policy"} {
			if _, err := httpsfv.UnmarshalList(h.Values(name)); err != nil {
				t.Errorf("%s: %q: %v", name, h.Get(name), err)
			}
		}
	}
}

// A site cannot make its refusals unreadable with a long rule: Node, for one, takes 16 KiB of header.
func TestLongRuleFitsTheHeader(t *testing.T) {
	rule := "line 1: Disallow: /" + strings.Repeat("\u00e9", 8<<10)
	ref := &refusal{Reason: policy.ReasonRobots, Detail: "robots.txt " + rule, Rule: rule}
	ref.complete(0)
	resp := ref.response(&http.Request{Method: "GET", Header: http.Header{}}, "id1")
	var head strings.Builder
	resp.Header.Write(&head)
	if head.Len() > 8<<10 || !strings.HasPrefix(resp.Header.Get("Robotsproxy-Rule"), "line 1: Disallow: /%C3%A9") {
		t.Errorf("a header of %d octets: %.300s", head.Len(), head.String())
	}
	if body, _ := io.ReadAll(resp.Body); !strings.Contains(string(body), rule) {
		t.Errorf("the body lacks the rule: %.300s", body)
	}
}

// A refusal that has no reason, or one without a row, is recorded as an internal fault.
func TestRefusalWithoutReason(t *testing.T) {
	for _, reason := range []policy.Reason{"", "new"} {
		ref := &refusal{Reason: reason}
		ref.complete(0)
		if ref.Reason != policy.ReasonInternal || ref.Outcome != policy.Error || ref.Status != 500 {
			t.Errorf("the reason %q is completed to %+v", reason, ref)
		}
	}
}

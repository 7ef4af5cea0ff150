package admin

import (
	"context"
	"fmt"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/robotsproxy/robotsproxy/policy"
)

// orders keeps interventions in memory.
type orders struct {
	all []policy.Intervention
	who string
}

func (o *orders) Interventions() []policy.Intervention { return slices.Clone(o.all) }

func (o *orders) Intervene(_ context.Context, i policy.Intervention) (InterventionEffect, error) {
	o.all = append(o.all, i)
	return InterventionEffect{Instances: InstanceCount{Total: 1, Acknowledged: 1}}, nil
}

func (o *orders) Lift(_ context.Context, hosts []string, who string) (InterventionEffect, error) {
	o.who = who
	o.all = slices.DeleteFunc(o.all, func(i policy.Intervention) bool { return slices.Contains(hosts, i.Host) })
	return InterventionEffect{Instances: InstanceCount{Total: 1, Acknowledged: 1}}, nil
}

// tell sends a request with a body to the API of h.
func tell(h *Handler, method, path, body string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, apiPrefix+path, strings.NewReader(body))
	r.Host = "localhost:3129"
	r.Header.Set("Authorization", "Bearer "+testToken)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// A body that no intervention can be made of changes nothing.
func TestBadInterventions(t *testing.T) {
	o := &orders{}
	h := newHandler(t, Options{Interventions: o})
	for _, row := range []struct{ fields, want string }{
		{`"kind": "stop"`, "lacks a reason"},
		{`"kind": "halt", "reason": "r", "by": "b"`, "neither stop, slow nor bypass"},
		{`"kind": "slow", "reason": "r", "by": "b"`, "delay"},
		{`"kind": "slow", "reason": "r", "by": "b", "delay_seconds": 1e300`, "292 years"},
		{`"kind": "slow", "reason": "r", "by": "b", "delay_seconds": 1e8`, "at most a year"},
		{`"kind": "bypass", "reason": "r", "by": "b"`, "no end"},
		{`"kind": "stop", "reason": "r", "by": "b", "for_seconds": -1`, "above 0"},
		{`"kind": "stop", "reason": "r", "by": "b", "for_seconds": -1e300`, "292 years"},
		{`"kind": "stop", "reason": "r", "by": "b", "for_seconds": 1, "until": "2100-01-01T00:00:00Z"`, "exclude"},
		{`"kind": "stop", "reason": "r", "by": "b", "until": "2001-01-01T00:00:00Z"`, "past"},
		{`"kind": "stop", "reason": "a\nb", "by": "b"`, "one line"},
		{`"kind": "stop", "reason": "r", "by": "b", "until": "tomorrow"`, "JSON"},
		{`"kind": "stop", "reason": "r", "by": "b", "client": "x"`, "unknown field"},
	} {
		w := tell(h, "POST", "/interventions", `{"host": "a.example", `+row.fields+`}`)
		if w.Code != 400 || !strings.Contains(w.Body.String(), row.want) {
			t.Errorf("%s: %d %s, want 400 and %q", row.fields, w.Code, w.Body, row.want)
		}
	}
	for _, host := range []string{"", "A.example", "a.example:80", "http://a.example", "a.*", "*example"} {
		if w := tell(h, "POST", "/interventions", fmt.Sprintf(`{"host": %q, "kind": "stop", "reason": "r", "by": "b"}`, host)); w.Code != 400 {
			t.Errorf("host %q: %d %s", host, w.Code, w.Body)
		}
	}
	if len(o.all) != 0 {
		t.Errorf("%v is in force", o.all)
	}
}

// What is lifted is named, or all, or the only one.
func TestToLift(t *testing.T) {
	in := func(hosts ...string) (all []policy.Intervention) {
		for _, host := range hosts {
			all = append(all, policy.Intervention{Kind: policy.Stop, Host: host, Reason: "r", By: "b"})
		}
		return all
	}
	for _, row := range []struct {
		all   []policy.Intervention
		query string
		code  int
		left  int
		says  string
	}{
		{in("a.example", "b.example"), "host=a.example", 200, 1, ""},
		{in("a.example", "b.example", "a.example"), "host=a.example", 200, 1, ""},
		{in("a.example", "b.example"), "all=true", 200, 0, ""},
		{in("a.example", "a.example"), "", 200, 0, ""},
		{in("a.example", "b.example"), "", 400, 2, "2 hosts have interventions (a.example, b.example)"},
		{in("a", "b", "c", "d", "e", "f"), "", 400, 6, "and others"},
		{in("a.example"), "host=a.example&all=true", 400, 1, "exclude"},
		{in("*.example"), "host=a.example", 404, 1, "that of *.example matches it"},
		{in("a.example"), "host=b.example", 404, 1, "b.example has no intervention"},
		{nil, "all=true", 404, 0, "no intervention is in force"},
		{nil, "", 404, 0, "no intervention is in force"},
	} {
		o := &orders{all: row.all}
		w := tell(newHandler(t, Options{Interventions: o}), "DELETE", "/interventions?by=me&reason=done&"+row.query, "")
		if w.Code != row.code || len(o.all) != row.left || !strings.Contains(w.Body.String(), row.says) {
			t.Errorf("%q of %v: %d %s, %d left; want %d %q, %d left", row.query, row.all, w.Code, w.Body, len(o.all), row.code, row.says, row.left)
		}
		if w.Code == 200 && o.who != "me: done" {
			t.Errorf("lifted by %q", o.who)
		}
	}
}

// The number of interventions is bounded, since each request is compared with all.
func TestTooManyInterventions(t *testing.T) {
	h := newHandler(t, Options{Interventions: &orders{all: make([]policy.Intervention, maxInterventions)}})
	if w := tell(h, "POST", "/interventions", `{"host": "*", "kind": "stop", "reason": "r", "by": "b"}`); w.Code != 409 {
		t.Errorf("%d %s, want 409", w.Code, w.Body)
	}
}

// The list is that of the API, with times and seconds.
func TestListInterventions(t *testing.T) {
	at := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	h := newHandler(t, Options{Interventions: &orders{all: []policy.Intervention{
		{Kind: policy.Slow, Host: "b.example", Delay: 1500 * time.Millisecond, Reason: "r", By: "b", Since: at},
		{Kind: policy.Stop, Host: "a.example", Reason: "<r>", By: "b", Since: at, Until: at.Add(time.Hour)},
	}}})
	const want = `{"interventions":[` +
		`{"kind":"stop","host":"a.example","reason":"\u003cr\u003e","by":"b","since":"2026-11-21T12:00:00Z","until":"2026-11-21T13:00:00Z"},` +
		`{"kind":"slow","host":"b.example","delay_seconds":1.5,"reason":"r","by":"b","since":"2026-11-21T12:00:00Z"}]}` + "\n"
	if w := tell(h, "GET", "/interventions", ""); w.Body.String() != want {
		t.Errorf("got  %swant %s", w.Body, want)
	}
}

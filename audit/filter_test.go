package audit_test

import (
	"testing"
	"time"

	"github.com/robotsproxy/robotsproxy/audit"
	"github.com/robotsproxy/robotsproxy/policy"
)

func TestSelects(t *testing.T) {
	at := time.Date(2026, 11, 22, 23, 0, 0, 0, time.UTC)
	rec := audit.Record{
		Time: at, Client: "news", Agent: "NewsBot", Tag: "run-1", Host: "www.a.example", Path: "/private/x", Via: audit.Plain,
		Decision: policy.Deny, Reason: policy.ReasonRobots, RuleLine: 3, Rule: "Disallow: /private/",
	}
	for name, tt := range map[string]struct {
		filter audit.Filter
		want   bool
	}{
		"all":               {audit.Filter{}, true},
		"since":             {audit.Filter{Since: at}, true},
		"since later":       {audit.Filter{Since: at.Add(1)}, false},
		"until":             {audit.Filter{Until: at}, false},
		"until later":       {audit.Filter{Until: at.Add(1)}, true},
		"host":              {audit.Filter{Host: "www.a.example"}, true},
		"pattern":           {audit.Filter{Host: "*.a.example"}, true},
		"another host":      {audit.Filter{Host: "a.example"}, false},
		"client":            {audit.Filter{Client: "news"}, true},
		"another client":    {audit.Filter{Client: "new"}, false},
		"agent":             {audit.Filter{Agent: "newsbot"}, true},
		"another agent":     {audit.Filter{Agent: "OtherBot"}, false},
		"tag":               {audit.Filter{Tag: "run-2"}, false},
		"path":              {audit.Filter{Path: "/private/"}, true},
		"another path":      {audit.Filter{Path: "/private/y"}, false},
		"rule":              {audit.Filter{Rule: "disallow: /PRIVATE/"}, true},
		"a part of a rule":  {audit.Filter{Rule: "Disallow: /"}, false},
		"decision":          {audit.Filter{Decisions: []policy.Outcome{policy.Allow, policy.Deny}}, true},
		"another decision":  {audit.Filter{Decisions: []policy.Outcome{policy.Allow}}, false},
		"reason":            {audit.Filter{Reasons: []policy.Reason{policy.ReasonPace}}, false},
		"via":               {audit.Filter{Vias: []audit.Via{audit.Robots}}, false},
		"one of two do not": {audit.Filter{Client: "news", Tag: "run-2"}, false},
	} {
		if got := tt.filter.Selects(&rec); got != tt.want {
			t.Errorf("%s: %+v selects the record: %t, want %t", name, tt.filter, got, tt.want)
		}
	}
	rec.Via = audit.Robots
	if (&audit.Filter{}).Selects(&rec) {
		t.Error("an empty filter selects a request of the proxy")
	}
}

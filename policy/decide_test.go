package policy

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/robotsproxy/robotsproxy/origin"
	"github.com/robotsproxy/robotsproxy/robots"
	"github.com/robotsproxy/robotsproxy/rules"
)

var now = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

func mustOrigin(tb testing.TB, s string) origin.Origin {
	tb.Helper()
	o, err := origin.Parse(s)
	if err != nil {
		tb.Fatal(err)
	}
	return o
}

func found(body string) *robots.Snapshot {
	return &robots.Snapshot{Answer: robots.Answer{Availability: robots.Found, Status: 200}, Rules: rules.Parse([]byte(body), rules.Options{})}
}

func empty(a robots.Availability, status int) *robots.Snapshot {
	return &robots.Snapshot{Answer: robots.Answer{Availability: a, Status: status}, Rules: rules.Parse(nil, rules.Options{})}
}

func ptr[T any](v T) *T { return &v }

const example = "User-agent: *\nDisallow: /private/\nCrawl-delay: 2\n\nUser-agent: NewsBot\nDisallow: /\nAllow: /news/\n"

func TestDecide(t *testing.T) {
	for _, row := range []struct {
		name    string
		options Options
		request Request
		snap    *robots.Snapshot
		want    string // action outcome reason line delay source
	}{
		{"2.2.2/allowed", Options{}, Request{Target: "/x"}, found(example), "forward allow - 0 2s crawl-delay"},
		{"2.2.2/disallowed", Options{}, Request{Target: "/private/x"}, found(example), "refuse deny robots 2 2s crawl-delay"},
		{"2.2.1/named group", Options{}, Request{Target: "/x", UserAgent: "NewsBot/1.0"}, found(example), "refuse deny robots 6 0s -"},
		{"2.2.1/configured token goes before the header", Options{}, Request{Target: "/x", UserAgent: "Mozilla/5.0", Client: Client{ProductToken: "NewsBot"}}, found(example), "refuse deny robots 6 0s -"},
		{"2.3.1.3/unavailable allows", Options{}, Request{Target: "/private/x"}, empty(robots.Unavailable, 404), "forward allow - 0 0s -"},
		{"2.3.1.4/5xx refuses", Options{}, Request{Target: "/"}, empty(robots.Unreachable, 503), "refuse deny robots-unreachable 0 0s -"},
		{"2.3.1.4/a dead origin is nobody's refusal", Options{}, Request{Target: "/"}, empty(robots.Unreachable, 0), "refuse error robots-unreachable 0 0s -"},

		{"dots/resolved path is judged too", Options{}, Request{Target: "/a/../private/x"}, found(example), "refuse deny robots 2 2s crawl-delay"},
		{"dots/encoded", Options{}, Request{Target: "/a/%2e%2E/private/x"}, found(example), "refuse deny robots 2 2s crawl-delay"},
		{"dots/single", Options{}, Request{Target: "/./private/x"}, found(example), "refuse deny robots 2 2s crawl-delay"},
		{"dots/above the root", Options{}, Request{Target: "/../../private/x"}, found(example), "refuse deny robots 2 2s crawl-delay"},
		{"dots/as written is judged too", Options{}, Request{Target: "/private/../x"}, found(example), "refuse deny robots 2 2s crawl-delay"},
		{"slashes/merged form is judged too", Options{}, Request{Target: "//private///x"}, found(example), "refuse deny robots 2 2s crawl-delay"},
		{"slashes/merged before dots are resolved", Options{}, Request{Target: "/a//../private/x"}, found(example), "refuse deny robots 2 2s crawl-delay"},
		{"slashes/in the query they mean nothing", Options{}, Request{Target: "/x?y=//private/"}, found(example), "forward allow - 0 2s crawl-delay"},
		{"dots/in the query they mean nothing", Options{}, Request{Target: "/x?y=/../private/"}, found(example), "forward allow - 0 2s crawl-delay"},

		{"2.2.2/an encoded slash is no slash", Options{}, Request{Target: "/private%2Fx"}, found(example), "forward allow - 0 2s crawl-delay"},
		{"2.2.2/an encoded slash beside a slash", Options{}, Request{Target: "/%2Fprivate/x"}, found(example), "forward allow - 0 2s crawl-delay"},
		{"2.2.2/a backslash is no slash", Options{}, Request{Target: `/private\x`}, found(example), "forward allow - 0 2s crawl-delay"},
		{"2.2.2/an encoded backslash is no slash", Options{}, Request{Target: "/private%5cx"}, found(example), "forward allow - 0 2s crawl-delay"},
		{"2.2.2/an encoded slash elsewhere than the dots", Options{}, Request{Target: "/a/../private%2Fx"}, found(example), "forward allow - 0 2s crawl-delay"},
		{"dots/beside encoded slashes", Options{}, Request{Target: "/a%2f..%2Fprivate/x"}, found(example), "refuse deny robots 2 2s crawl-delay"},
		{"dots/before an encoded slash", Options{}, Request{Target: "/a/..%2Fprivate/x"}, found(example), "refuse deny robots 2 2s crawl-delay"},
		{"dots/after an encoded slash", Options{}, Request{Target: "/private%2F."}, found(example), "refuse deny robots 2 2s crawl-delay"},
		{"dots/encoded, before an encoded slash", Options{}, Request{Target: "/a/%2e%2e%2fprivate/x"}, found(example), "refuse deny robots 2 2s crawl-delay"},
		{"dots/beside backslashes", Options{}, Request{Target: `/a\..\private/x`}, found(example), "refuse deny robots 2 2s crawl-delay"},
		{"dots/beside encoded backslashes", Options{}, Request{Target: "/a%5C..%5cprivate/x"}, found(example), "refuse deny robots 2 2s crawl-delay"},
		{"dots/with a path parameter", Options{}, Request{Target: "/a/..;/private/x"}, found(example), "refuse deny robots 2 2s crawl-delay"},
		{"dots/with a path parameter and its value", Options{}, Request{Target: "/a/..;x=y/private/x"}, found(example), "refuse deny robots 2 2s crawl-delay"},
		{"slashes/encoded in the query they mean nothing", Options{}, Request{Target: "/x?y=%2F..%2Fprivate/"}, found(example), "forward allow - 0 2s crawl-delay"},
		{"slashes/a rule with an encoded one", Options{}, Request{Target: "/a%2Fb"}, found("User-agent: *\nDisallow: /a%2fb\n"), "refuse deny robots 2 0s -"},
		{"slashes/and not for another path", Options{}, Request{Target: "/a/b"}, found("User-agent: *\nDisallow: /a%2fb\n"), "forward allow - 0 0s -"},

		{"mode/report forwards", Options{Mode: Report}, Request{Target: "/private/x"}, found(example), "forward would_deny report 2 2s crawl-delay"},
		{"mode/report and a dead origin", Options{Mode: Report}, Request{Target: "/"}, empty(robots.Unreachable, 0), "forward allow report 0 0s -"},
		{"mode/off needs no snapshot", Options{Mode: Off}, Request{Target: "/private/x"}, nil, "forward allow off 0 0s -"},
		{"mode/client before global", Options{Mode: Off}, Request{Target: "/private/x", Client: Client{Mode: ptr(Enforce)}}, found(example), "refuse deny robots 2 2s crawl-delay"},
		{"mode/host before client", Options{Hosts: []Host{{Pattern: "*.example", Mode: ptr(Report)}}}, Request{Target: "/private/x", Client: Client{Mode: ptr(Enforce)}}, found(example), "forward would_deny report 2 2s crawl-delay"},
		{"mode/host without a mode leaves it", Options{Hosts: []Host{{Pattern: "a.example"}}}, Request{Target: "/private/x", Client: Client{Mode: ptr(Report)}}, found(example), "forward would_deny report 2 2s crawl-delay"},

		{"delay/floor is larger", Options{Hosts: []Host{{Pattern: "a.example", Delay: 5 * time.Second}}}, Request{Target: "/x"}, found(example), "forward allow - 0 5s floor"},
		{"delay/floor is smaller", Options{Hosts: []Host{{Pattern: "a.example", Delay: time.Second}}}, Request{Target: "/x"}, found(example), "forward allow - 0 2s crawl-delay"},
		{"delay/clamped", Options{MaxCrawlDelay: time.Second}, Request{Target: "/x"}, found(example), "forward allow - 0 1s crawl-delay clamped"},
		{"delay/refused over the maximum", Options{MaxCrawlDelay: time.Second, RefuseOverMax: true}, Request{Target: "/x"}, found(example), "refuse deny pace 0 2s crawl-delay"},
		{"delay/the client's maximum", Options{MaxCrawlDelay: time.Second, RefuseOverMax: true}, Request{Target: "/x", Client: Client{MaxCrawlDelay: time.Minute}}, found(example), "forward allow - 0 2s crawl-delay"},
	} {
		t.Run(row.name, func(t *testing.T) {
			p, err := New(row.options)
			if err != nil {
				t.Fatal(err)
			}
			row.request.Origin = mustOrigin(t, "http://a.example")
			if got := show(p.Decide(row.request, row.snap, now)); got != row.want {
				t.Errorf("Decide(%+v) by %+v:\n got %s\nwant %s", row.request, row.options, got, row.want)
			}
		})
	}
}

func show(d Decision) string {
	action := map[Action]string{Refuse: "refuse", Forward: "forward"}[d.Action]
	s := fmt.Sprintf("%s %s %s %d %v %s", action, d.Outcome, dash(string(d.Reason)), d.Verdict.Line, d.Delay, dash(d.DelaySource))
	if d.Clamped {
		s += " clamped"
	}
	return s
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// TestDialect holds that the most specific setting says whose reading counts.
func TestDialect(t *testing.T) {
	snap := found("User-agent: *\nDisallow: /x\nAllow: /xy\n")
	snap.Body = []byte("User-agent: *\nDisallow: /x\nAllow: /xy\n")
	for _, row := range []struct {
		name         string
		global       rules.Dialect
		client, host *rules.Dialect
		want         rules.Dialect
		action       Action
	}{
		{"none is the RFC's", rules.DialectRFC9309, nil, nil, rules.DialectRFC9309, Forward},
		{"global", rules.DialectMK1996, nil, nil, rules.DialectMK1996, Refuse},
		{"the client's before it", rules.DialectMK1996, ptr(rules.DialectGoogle), nil, rules.DialectGoogle, Forward},
		{"the host's before both", rules.DialectRFC9309, ptr(rules.DialectGoogle), ptr(rules.DialectRobotsCR), rules.DialectRobotsCR, Refuse},
	} {
		t.Run(row.name, func(t *testing.T) {
			p, err := New(Options{Dialect: row.global, Hosts: []Host{{Pattern: "a.example", Dialect: row.host}}})
			if err != nil {
				t.Fatal(err)
			}
			r := Request{Client: Client{Dialect: row.client}, Origin: mustOrigin(t, "http://a.example"), Target: "/xy"}
			if got := p.Dialect("a.example", r.Client); got != row.want {
				t.Errorf("Dialect() = %v, want %v", got, row.want)
			}
			if got := p.Decide(r, snap, now); got.Action != row.action {
				t.Errorf("Decide(%q) = %+v, want action %v", r.Target, got, row.action)
			}
		})
	}
}

func TestZeroDecisionRefuses(t *testing.T) {
	if (Decision{}).Action != Refuse {
		t.Error("the zero Decision forwards")
	}
}

func TestExemptions(t *testing.T) {
	entry := Exemption{Host: "a.example", Path: "/private/api/*", Effect: EffectAllow, Reason: "contract 12", Owner: "ops@example.org", Until: now.Add(time.Hour)}
	expired, others, deny := entry, entry, entry
	expired.Until = now
	others.Client = "news"
	deny.Effect, deny.Path, deny.Until = EffectDeny, "/news/", time.Time{}
	for _, row := range []struct {
		name, target string
		client       string
		entries      []Exemption
		want         Outcome
	}{
		{"allows what robots.txt disallows", "/private/api/x", "", []Exemption{entry}, Exempt},
		{"only below its path", "/private/x", "", []Exemption{entry}, Deny},
		{"an expired one does nothing", "/private/api/x", "", []Exemption{expired}, Deny},
		{"another client's does nothing", "/private/api/x", "lab", []Exemption{others}, Deny},
		{"its client's does", "/private/api/x", "news", []Exemption{others}, Exempt},
		{"deny refuses what robots.txt allows", "/news/x", "", []Exemption{deny}, Deny},
		{"deny holds for the resolved path", "/x/../news/y", "", []Exemption{deny}, Deny},
		{"deny holds for the path as written", "/news/../x", "", []Exemption{deny}, Deny},
		{"deny holds for encoded slashes beside dots", "/x%2F..%2Fnews/y", "", []Exemption{deny}, Deny},
		{"deny holds for no encoded slash elsewhere", "/news%2Fy", "", []Exemption{deny}, Allow},
		{"deny holds for path parameters of dots", "/x/..;a=b/news/y", "", []Exemption{deny}, Deny},
		{"allow must hold for path parameters of dots", "/private/api/..;/x", "", []Exemption{entry}, Deny},
		{"allow must hold for encoded slashes", "/private/api/..%2Fx", "", []Exemption{entry}, Deny},
		{"allow must hold for both", "/private/api/../x", "", []Exemption{entry}, Deny},
		{"what robots.txt allows is not exempt", "/open", "", []Exemption{entry}, Allow},
	} {
		t.Run(row.name, func(t *testing.T) {
			p, err := New(Options{Exemptions: row.entries})
			if err != nil {
				t.Fatal(err)
			}
			r := Request{Origin: mustOrigin(t, "http://a.example"), Target: row.target, Client: Client{Name: row.client}}
			if d := p.Decide(r, found(example), now); d.Outcome != row.want || (d.Exemption != "") != (d.Reason == ReasonExemption) {
				t.Errorf("Decide(%q) = %s %q by %q, want %s", row.target, d.Outcome, d.Reason, d.Exemption, row.want)
			}
		})
	}
}

func TestNewRefuses(t *testing.T) {
	for _, row := range []struct {
		name    string
		options Options
		want    string
	}{
		{"exemption without owner", Options{Exemptions: []Exemption{{Host: "a.example", Reason: "x"}}}, "owner"},
		{"exemption for no host", Options{Exemptions: []Exemption{{Host: "", Reason: "x", Owner: "y"}}}, "empty"},
		{"host pattern in the wrong form", Options{Hosts: []Host{{Pattern: "A.example"}}}, `"a.example"`},
		{"NAT64 pattern", Options{Hosts: []Host{{Pattern: "64:ff9b::c000:201"}}}, `"192.0.2.1"`},
		{"IPv4-mapped pattern", Options{Hosts: []Host{{Pattern: "::ffff:192.0.2.1"}}}, `"192.0.2.1"`},
		{"allowed host that is none", Options{Access: Access{Allow: []string{"a b"}}}, "allowed hosts"},
		{"denied host that is none", Options{ClientAccess: map[string]Access{"news": {Deny: []string{"a b"}}}}, "denied hosts"},
		{"star in the middle", Options{Hosts: []Host{{Pattern: "a.*.example"}}}, "does not belong"},
	} {
		t.Run(row.name, func(t *testing.T) {
			if _, err := New(row.options); err == nil || !strings.Contains(err.Error(), row.want) {
				t.Errorf("New(%+v) = %v, want an error with %q", row.options, err, row.want)
			}
		})
	}
}

func TestMatchHost(t *testing.T) {
	for _, row := range []struct {
		pattern, host string
		want          bool
	}{
		{"a.example", "a.example", true},
		{"a.example", "b.a.example", false},
		{"*.example", "a.example", true},
		{"*.example", "b.a.example", true},
		{"*.example", "example", false},
		{"*.example", ".example", false},
		{"*.example", "badexample", false},
		{"*", "a.example", true},
		{"192.0.2.1", "64:ff9b::c000:201", true},
		{"192.0.2.1", "64:ff9b::c000:202", false},
	} {
		if got := MatchHost(row.pattern, row.host); got != row.want {
			t.Errorf("MatchHost(%q, %q) = %t, want %t", row.pattern, row.host, got, row.want)
		}
	}
}

func ExamplePolicy_Decide() {
	p, _ := New(Options{})
	o, _ := origin.Parse("https://a.example")
	d := p.Decide(Request{Origin: o, Target: "/private/x", UserAgent: "ShopBot/2.1"}, found(example), now)
	fmt.Println(d.Outcome, d.Reason, d.Verdict.Line, d.Verdict.Rule, d.Delay)
	// Output: deny robots 2 Disallow: /private/ 2s
}

// TestJudge holds requests of our own to the rules and to the operator's entries in every mode.
func TestJudge(t *testing.T) {
	entries := []Exemption{
		{Host: "a.example", Path: "/open/", Effect: EffectDeny, Reason: "r", Owner: "o"},
		{Host: "a.example", Path: "/private/ok", Effect: EffectAllow, Reason: "r", Owner: "o"},
		{Host: "a.example", Path: "/private/client", Client: "news", Effect: EffectAllow, Reason: "r", Owner: "o"},
	}
	for _, mode := range []Mode{Enforce, Report, Off} {
		p, err := New(Options{Mode: Enforce, Hosts: []Host{{Pattern: "a.example", Mode: &mode}}, Exemptions: entries})
		if err != nil {
			t.Fatal(err)
		}
		for target, want := range map[string]Outcome{
			"/page": Allow, "/private/x": Deny, "/open/x": Deny, "/private/ok": Exempt, "/private/client": Deny,
		} {
			r := Request{Client: Client{ProductToken: "robotsproxy"}, Origin: mustOrigin(t, "http://a.example"), Target: target}
			d := p.Judge(r, found(example), now)
			if d.Outcome != want || (d.Action == Forward) != (want != Deny) {
				t.Errorf("mode %v: Judge(%s) = %+v, want %s", mode, target, d, want)
			}
		}
	}
}

package plan_test

import (
	"math"
	"testing"
	"time"

	"github.com/robotsproxy/robotsproxy/internal/plan"
	"github.com/robotsproxy/robotsproxy/origin"
	"github.com/robotsproxy/robotsproxy/policy"
)

func parse(t *testing.T, s string) origin.Origin {
	t.Helper()
	o, err := origin.Parse(s)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// host returns a host of which some URLs are allowed.
func host(t *testing.T, name string, allowed int64, delay time.Duration) plan.Host {
	t.Helper()
	o := parse(t, name)
	return plan.Host{Origin: o, Lane: o.Host(), URLs: allowed, Allowed: allowed, Delay: delay, DelaySource: "crawl-delay"}
}

func TestTimeOfAHost(t *testing.T) {
	for _, test := range []struct {
		name    string
		allowed int64
		delay   time.Duration
		pace    plan.Pace
		want    time.Duration
	}{
		{"a Delay counts from the end", 100, 5 * time.Second, plan.Pace{Connections: 4, Response: time.Second}, 600 * time.Second},
		{"a Delay counts from the start", 100, 5 * time.Second, plan.Pace{Connections: 4, Response: time.Second, SpacingStart: true}, 500 * time.Second},
		{"a response takes longer than that Delay", 100, time.Second, plan.Pace{Connections: 4, Response: 3 * time.Second, SpacingStart: true}, 300 * time.Second},
		{"no Delay", 100, 0, plan.Pace{Connections: 4, MaxConcurrent: 8, Response: time.Second}, 25 * time.Second},
		{"more connections than the host may have", 100, 0, plan.Pace{Connections: 40, MaxConcurrent: 8, Response: time.Second}, 12500 * time.Millisecond},
		{"no limit", 100, 0, plan.Pace{Connections: 40, Response: time.Second}, 2500 * time.Millisecond},
		{"default_delay", 100, 0, plan.Pace{Connections: 4, MaxConcurrent: 8, DefaultDelay: time.Second, Response: time.Second}, 100 * time.Second},
		{"default_delay beside a Delay", 100, 2 * time.Second, plan.Pace{Connections: 4, DefaultDelay: 9 * time.Second}, 200 * time.Second},
		{"fewer URLs than connections", 1, 0, plan.Pace{Connections: 4, MaxConcurrent: 8, Response: time.Second}, time.Second},
		{"no URL", 0, 5 * time.Second, plan.Pace{Connections: 4, Response: time.Second}, 0},
		{"longer than any Duration", math.MaxInt64, 5 * time.Second, plan.Pace{Connections: 4}, math.MaxInt64},
	} {
		p := plan.New([]plan.Host{host(t, "https://a.example", test.allowed, test.delay)}, test.pace)
		if got := p.Hosts[0].Time; got != test.want {
			t.Errorf("%s: %v, want %v", test.name, got, test.want)
		}
		if p.Time != test.want {
			t.Errorf("%s: the crawl takes %v, want %v", test.name, p.Time, test.want)
		}
	}
}

func TestLongPole(t *testing.T) {
	hosts := []plan.Host{
		host(t, "https://short.example", 10, 0),
		host(t, "https://long.example", 100, 5*time.Second),
		host(t, "https://middle.example", 100, time.Second),
	}
	p := plan.New(hosts, plan.Pace{Connections: 2, Response: time.Second})
	if p.Longest.Name != "long.example" || p.Longest.Time != 600*time.Second || p.Time != p.Longest.Time {
		t.Errorf("the longest is %+v of %v", p.Longest, p.Time)
	}
	if p.Rest != 200*time.Second {
		t.Errorf("the rest takes %v, want that of middle.example", p.Rest)
	}
	if p.Hosts[0].Origin.Host() != "long.example" || p.Hosts[2].Origin.Host() != "short.example" {
		t.Errorf("the order is %v, %v, %v", p.Hosts[0].Origin, p.Hosts[1].Origin, p.Hosts[2].Origin)
	}
}

// Many fast hosts take longer than the slowest one if the crawler has few connections.
func TestConnectionsAreTheLimit(t *testing.T) {
	var hosts []plan.Host
	for _, name := range []string{"https://a.example", "https://b.example", "https://c.example", "https://d.example"} {
		hosts = append(hosts, host(t, name, 100, 0))
	}
	p := plan.New(hosts, plan.Pace{Connections: 2, MaxConcurrent: 8, Response: time.Second})
	if p.Time != 200*time.Second || p.Busy != p.Time || p.Longest.Time != 50*time.Second {
		t.Errorf("the crawl takes %v, its connections %v, its slowest host %v; want 200 s, 200 s, 50 s", p.Time, p.Busy, p.Longest.Time)
	}
}

// Two origins of one host share its pace.
func TestOriginsShareALane(t *testing.T) {
	p := plan.New([]plan.Host{
		host(t, "https://a.example", 10, 2*time.Second), host(t, "http://a.example", 10, 3*time.Second),
		host(t, "http://b.example", 10, 4*time.Second),
	}, plan.Pace{Connections: 4})
	if p.Longest.Name != "a.example" || p.Longest.Allowed != 20 || p.Longest.Time != 50*time.Second || p.Longest.Delay != 3*time.Second {
		t.Errorf("the longest is %+v", p.Longest)
	}
	if p.Rest != 40*time.Second {
		t.Errorf("the rest takes %v", p.Rest)
	}
}

func TestNothingAllowed(t *testing.T) {
	p := plan.New([]plan.Host{{Origin: parse(t, "http://a.example"), Lane: "a.example", URLs: 1, Unknown: 1}}, plan.Pace{Connections: 1})
	if p.Time != 0 || p.Longest.Name != "" || p.UnknownHosts != 1 {
		t.Errorf("%+v", p)
	}
}

// refused returns the refusal by a line.
func refused(line int, rule string) (d policy.Decision) {
	d.Reason, d.Verdict.Line, d.Verdict.Rule = policy.ReasonRobots, line, rule
	return d
}

func TestCount(t *testing.T) {
	var h plan.Host
	h.Count(policy.Decision{Action: policy.Forward, Delay: time.Second, DelaySource: "crawl-delay"})
	h.Count(policy.Decision{Reason: policy.ReasonRobotsUnreachable})
	for range 2 {
		h.Count(refused(3, "Disallow: /a"))
	}
	h.Count(policy.Decision{Reason: policy.ReasonHost, HostRule: "deny_hosts: *.example"})
	h.Refuse(plan.Refusal{Reason: policy.ReasonEgress, URLs: 4})
	if h.URLs != 9 || h.Allowed != 1 || h.Unknown != 1 || h.Refused != 7 || h.Delay != time.Second {
		t.Errorf("%+v", h)
	}
	h.Close()
	p := plan.New([]plan.Host{h}, plan.Pace{})
	if got := p.Hosts[0].Refusals[0]; got.Reason != policy.ReasonEgress {
		t.Errorf("the first refusal is %+v", got)
	}
	if got := p.Hosts[0].Refusals[1]; got != (plan.Refusal{Reason: policy.ReasonRobots, Line: 3, Rule: "Disallow: /a", URLs: 2}) {
		t.Errorf("the second refusal is %+v", got)
	}
	if got := p.Hosts[0].Refusals[2].Rule; got != "deny_hosts: *.example" {
		t.Errorf("the third refusal is by %q", got)
	}
	if p.URLs != 9 || p.Refused != 7 {
		t.Errorf("%+v", p)
	}
}

// A file with many lines that refuse does not take more memory, and no URL is lost. The line that refuses most is the
// first, whenever its URLs come.
func TestManyRefusals(t *testing.T) {
	for _, lines := range []int{1000, 100_000} {
		var h plan.Host
		for line := range lines {
			h.Count(refused(line, "Disallow: /"))
		}
		h.Count(refused(999, "Disallow: /"))
		h.Close()
		total := h.OtherRefusals
		for _, r := range h.Refusals {
			total += r.URLs
		}
		if len(h.Refusals) != 20 || total != int64(lines)+1 || h.Refused != total || h.Refusals[0].Line != 999 {
			t.Errorf("%d lines: %d refusals, %d URLs of %d, the first is of line %d", lines, len(h.Refusals), total, h.Refused, h.Refusals[0].Line)
		}
	}
}

func TestAddSitemaps(t *testing.T) {
	var h plan.Host
	h.AddSitemaps([]string{"/a", "/b", "/a"})
	if len(h.Sitemaps) != 2 || h.SitemapCount != 2 || h.Sitemaps[1] != "/b" {
		t.Errorf("%q", h.Sitemaps)
	}
}

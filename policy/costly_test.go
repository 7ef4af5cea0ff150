package policy

import (
	"strings"
	"testing"
	"time"

	"github.com/robotsproxy/robotsproxy/internal/robotstest"
	"github.com/robotsproxy/robotsproxy/robots"
	"github.com/robotsproxy/robotsproxy/rules"
)

// costly is a file in which the verdict on a long path is given up, in each form of it.
var costly = "User-agent: *\nDisallow: /private\n" + strings.Repeat("Allow: /*!\n", 31_936)

// foundIn is found in a dialect.
func foundIn(body string, d rules.Dialect) *robots.Snapshot {
	return &robots.Snapshot{Answer: robots.Answer{Availability: robots.Found, Status: 200, Body: []byte(body)}, Rules: rules.Parse([]byte(body), rules.Options{Dialect: d})}
}

// TestTooComplex checks that a verdict which was given up refuses, unless the operator allows every path.
func TestTooComplex(t *testing.T) {
	o := mustOrigin(t, "http://a.example")
	exemption := func(effect Effect, path string) []Exemption {
		return []Exemption{{Host: "a.example", Path: path, Effect: effect, Reason: "r", Owner: "o", Until: time.Now().Add(time.Hour)}}
	}
	long := strings.Repeat("a", 60<<10)
	for _, row := range []struct {
		name, robots, target string
		options              Options
		action               Action
		outcome              Outcome
		reason               Reason
	}{
		{"a short path", costly, "/a", Options{}, Forward, Allow, ReasonNone},
		{"a long path", costly, "/" + long, Options{}, Refuse, Deny, ReasonTooComplex},
		{"a long query", costly, "/?" + long, Options{}, Refuse, Deny, ReasonTooComplex},
		{"a long path of a simple file", "User-agent: *\nDisallow: /private\n", "/" + long, Options{}, Forward, Allow, ReasonNone},
		{"a long path in two forms", costly, "/x/../" + long, Options{}, Refuse, Deny, ReasonTooComplex},
		{"the longest rule decides", costly, "/private/" + long, Options{}, Refuse, Deny, ReasonRobots},
		{"many dot segments", "", strings.Repeat("/.", maxDots+1), Options{}, Refuse, Deny, ReasonTooComplex},
		{"many encoded dot segments", "", strings.Repeat("%2F%2e.;x", maxDots+1), Options{}, Refuse, Deny, ReasonTooComplex},
		{"some dot segments", "", strings.Repeat("/.", maxDots), Options{}, Forward, Allow, ReasonNone},
		{"many dot segments in the query", "", "/?" + strings.Repeat("/.", maxDots+1), Options{}, Forward, Allow, ReasonNone},
		{"report", costly, "/" + long, Options{Mode: Report}, Forward, WouldDeny, ReasonReport},
		{"off", costly, "/" + long, Options{Mode: Off}, Forward, Allow, ReasonOff},
		{"allowed by the operator", costly, "/" + long, Options{Exemptions: exemption(EffectAllow, "/")}, Forward, Exempt, ReasonExemption},
		{"another path is allowed", costly, "/" + long, Options{Exemptions: exemption(EffectAllow, "/b")}, Refuse, Deny, ReasonTooComplex},
		{"denied by the operator", costly, "/" + long, Options{Exemptions: exemption(EffectDeny, "/a")}, Refuse, Deny, ReasonExemption},
	} {
		t.Run(row.name, func(t *testing.T) {
			p, err := New(row.options)
			if err != nil {
				t.Fatal(err)
			}
			d := p.Decide(Request{Origin: o, Target: row.target, UserAgent: "NewsBot/1.0"}, found(row.robots), time.Now())
			if d.Action != row.action || d.Outcome != row.outcome || d.Reason != row.reason {
				t.Errorf("Decide = %v %s %s, want %v %s %s", d.Action, d.Outcome, d.Reason, row.action, row.outcome, row.reason)
			}
			if wrong := d.Reason == ReasonTooComplex && d.Verdict != (rules.Verdict{TooComplex: true}); wrong {
				t.Errorf("Verdict = %+v", d.Verdict)
			}
		})
	}
}

// A tunnel is refused if the groups of its agent cannot be found.
func TestTooComplexTunnel(t *testing.T) {
	p, err := New(Options{Dialect: rules.DialectMK1996})
	if err != nil {
		t.Fatal(err)
	}
	snap := foundIn(strings.Repeat("User-agent: aaab\nDisallow: /x\n", 15_000)+"User-agent: *\nAllow: /\n", rules.DialectMK1996)
	for agent, want := range map[string]Reason{"NewsBot/1.0": ReasonNone, strings.Repeat("a", 60<<10): ReasonTooComplex} {
		if d := p.Decide(Request{UserAgent: agent, Tunnel: true}, snap, time.Now()); d.Reason != want || (d.Action == Forward) != (want == ReasonNone) {
			t.Errorf("Decide for an agent of %d bytes = %v %s, want the reason %q", len(agent), d.Action, d.Reason, want)
		}
	}
}

// BenchmarkCostly measures the slowest decision on the files, targets and User-Agents that are made to be slow, in any
// dialect.
func BenchmarkCostly(b *testing.B) {
	var slowest func()
	var longest time.Duration
	var name string
	for _, d := range rules.Dialects() {
		p, err := New(Options{Dialect: d})
		if err != nil {
			b.Fatal(err)
		}
		for _, file := range robotstest.CostlyFiles() {
			snap := foundIn(file.Text, d)
			for _, target := range robotstest.CostlyTargets() {
				for _, agent := range []string{"*", robotstest.CostlyAgent()} {
					r := Request{Target: target.Text, UserAgent: agent}
					decide := func() { p.Decide(r, snap, time.Now()) }
					if took := fastest(decide); took > longest {
						slowest, longest, name = decide, took, file.Name+", "+target.Name+", "+d.String()
					}
				}
			}
		}
	}
	b.Log(name)
	b.ReportAllocs()
	for b.Loop() {
		slowest()
	}
}

// fastest returns the least time of three that f takes, in which the machine's other work has the least part.
func fastest(f func()) time.Duration {
	least := time.Hour
	for range 3 {
		start := time.Now()
		f()
		least = min(least, time.Since(start))
	}
	return least
}

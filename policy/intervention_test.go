package policy

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// combination is one of those that TestEveryCombination tries.
type combination struct {
	global       Mode
	client, host *Mode
	exemption    string // none, allow, deny, or a deny that does not apply
	disallowed   bool   // by robots.txt, whose Crawl-delay is 2 s
	floor        time.Duration
	orders       [3]string // a stop, a slow of 5 s and a bypass: each is absent, or for a pattern, or does not apply
}

// want states the precedence once more: action, outcome, reason, delay and its source, mode, and the interventions in
// the record.
func (c combination) want() string {
	applies := func(order string) bool { return order == "a.example" || order == "*.example" || order == "*" }
	stop, slow, bypass := applies(c.orders[0]), applies(c.orders[1]), applies(c.orders[2])
	mode := c.global
	if c.client != nil {
		mode = *c.client
	}
	if c.host != nil {
		mode = *c.host
	}
	if stop {
		return fmt.Sprintf("refuse deny stopped 0s - %s stop", mode)
	}
	if mode == Off {
		return "forward allow off 0s - off"
	}
	names := ""
	delay, source := 2*time.Second, "crawl-delay"
	if c.floor > delay {
		delay, source = c.floor, "floor"
	}
	if slow && delay < 5*time.Second {
		delay, source, names = 5*time.Second, "floor", names+" slow"
	}
	verdict := "forward allow -"
	if c.disallowed {
		verdict = "refuse deny robots"
	}
	if c.disallowed && c.exemption == "allow" {
		verdict = "forward exempt exemption"
	}
	if c.exemption == "deny" {
		verdict, delay, source, names = "refuse deny exemption", 0, "-", ""
	}
	if mode == Enforce && bypass {
		mode, names = Report, names+" bypass"
	}
	if mode == Report && strings.HasPrefix(verdict, "refuse") {
		verdict = "forward would_deny report"
	}
	return fmt.Sprintf("%s %v %s %s%s", verdict, delay, source, mode, names)
}

// policy compiles c.
func (c combination) policy(t *testing.T) *Policy {
	o := Options{Mode: c.global, Hosts: []Host{{Pattern: "a.example", Mode: c.host, Delay: c.floor}}}
	e := Exemption{Host: "a.example", Reason: "r", Owner: "o", Until: now.Add(time.Hour)}
	switch c.exemption {
	case "allow":
		e.Effect = EffectAllow
	case "another client's":
		e.Client = "lab"
	case "expired":
		e.Until = now
	}
	if c.exemption != "none" {
		o.Exemptions = []Exemption{e}
	}
	for n, order := range c.orders {
		if order == "none" {
			continue
		}
		i := Intervention{Kind: []InterventionKind{Stop, Slow, Bypass}[n], Host: order, Reason: "r", By: "b", Until: now.Add(time.Minute)}
		if i.Kind == Slow {
			i.Delay = 5 * time.Second
		}
		if order == "expired" {
			i.Host, i.Until = "a.example", now
		}
		o.Interventions = append(o.Interventions, i)
	}
	p, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// got describes d as want does.
func (c combination) got(d Decision) string {
	action := map[Action]string{Refuse: "refuse", Forward: "forward"}[d.Action]
	s := fmt.Sprintf("%s %s %s %v %s %s", action, d.Outcome, dash(string(d.Reason)), d.Delay, dash(d.DelaySource), d.Mode)
	for name := range strings.SplitSeq(d.Intervention, "; ") {
		kind, _, _ := strings.Cut(name, " ")
		s += strings.TrimRight(" "+kind, " ")
	}
	return s
}

// TestEveryCombination tries every combination of mode, client, host, exemption and intervention.
func TestEveryCombination(t *testing.T) {
	orders := []string{"none", "a.example", "*.example", "*", "b.example", "expired"}
	own := []*Mode{nil, ptr(Enforce), ptr(Report), ptr(Off)}
	snap, tried := found("User-agent: *\nDisallow: /private\nCrawl-delay: 2\n"), 0
	try := func(c combination) {
		r := Request{Client: Client{Name: "news", Mode: c.client}, Origin: mustOrigin(t, "https://a.example"), Target: "/x"}
		if c.disallowed {
			r.Target = "/private"
		}
		p := c.policy(t)
		if got, want := c.got(p.Decide(r, snap, now)), c.want(); got != want {
			t.Errorf("%+v:\n got %s\nwant %s", c, got, want)
		}
		_, stopped := p.Stopped("a.example", now)
		if want := strings.Contains(c.want(), "stopped"); stopped != want {
			t.Errorf("%+v: Stopped = %t, want %t", c, stopped, want)
		}
		tried++
	}
	for _, global := range []Mode{Enforce, Report, Off} {
		for _, client := range own {
			for _, host := range own {
				for _, exemption := range []string{"none", "allow", "deny", "another client's", "expired"} {
					for _, disallowed := range []bool{false, true} {
						for n := range 2 * len(orders) * len(orders) * len(orders) {
							floor, n := time.Duration(n%2)*7*time.Second, n/2
							try(combination{global, client, host, exemption, disallowed, floor, [3]string{
								orders[n%len(orders)], orders[n/len(orders)%len(orders)], orders[n/len(orders)/len(orders)],
							}})
							if t.Failed() {
								return
							}
						}
					}
				}
			}
		}
	}
	if want := 3 * 4 * 4 * 5 * 2 * 2 * 216; tried != want {
		t.Errorf("%d combinations were tried, want %d", tried, want)
	}
}

// Several interventions of one kind may hold for a host.
func TestSeveralInterventions(t *testing.T) {
	at := func(d time.Duration) time.Time { return now.Add(d) }
	p, err := New(Options{Interventions: []Intervention{
		{Kind: Stop, Host: "a.example", Reason: "r", By: "b", Until: at(time.Hour)},
		{Kind: Stop, Host: "*.example", Reason: "last", By: "b", Until: at(2 * time.Hour)},
		{Kind: Stop, Host: "open.example", Reason: "no end", By: "b"},
		{Kind: Slow, Host: "*", Delay: time.Second, Reason: "r", By: "b"},
		{Kind: Slow, Host: "a.example", Delay: time.Minute, Reason: "r", By: "b", Until: at(time.Hour)},
	}})
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		host  string
		after time.Duration
		until time.Time // zero with names: no end
		names string
		floor time.Duration
	}{
		{"a.example", 0, at(2 * time.Hour), "stop *.example: last (b)", time.Minute},
		{"a.example", time.Hour, at(2 * time.Hour), "stop *.example: last (b)", time.Second},
		{"a.example", 2 * time.Hour, time.Time{}, "", time.Second},
		{"open.example", 0, time.Time{}, "stop open.example: no end (b)", time.Second},
		{"example", 0, time.Time{}, "", time.Second},
	} {
		d, _ := p.Stopped(row.host, at(row.after))
		if !d.Until.Equal(row.until) || d.Intervention != row.names {
			t.Errorf("%s after %v: stopped until %v by %q, want %v by %q", row.host, row.after, d.Until, d.Intervention, row.until, row.names)
		}
		if got := p.Floor(row.host, at(row.after)); got != row.floor {
			t.Errorf("%s after %v: floor %v, want %v", row.host, row.after, got, row.floor)
		}
	}
}

func TestInterventionCheck(t *testing.T) {
	valid := Intervention{Kind: Stop, Host: "a.example", Reason: "r", By: "b"}
	for name, change := range map[string]func(*Intervention){
		"no reason":            func(i *Intervention) { i.Reason = "" },
		"two lines":            func(i *Intervention) { i.Reason = "a\nb" },
		"an escape":            func(i *Intervention) { i.By = "\x1b[31m" },
		"not UTF-8":            func(i *Intervention) { i.By = "\xff" },
		"a long reason":        func(i *Intervention) { i.Reason = strings.Repeat("a", 501) },
		"no operator":          func(i *Intervention) { i.By = "" },
		"no kind":              func(i *Intervention) { i.Kind = "" },
		"another kind":         func(i *Intervention) { i.Kind = "halt" },
		"a stop with a delay":  func(i *Intervention) { i.Delay = time.Second },
		"a slow without one":   func(i *Intervention) { i.Kind = Slow },
		"a negative delay":     func(i *Intervention) { i.Kind, i.Delay = Slow, -1 },
		"too long a delay":     func(i *Intervention) { i.Kind, i.Delay = Slow, MaxSlow+1 },
		"a bypass without end": func(i *Intervention) { i.Kind = Bypass },
		"a bad pattern":        func(i *Intervention) { i.Host = "a.*" },
		"not canonical":        func(i *Intervention) { i.Host = "A.example" },
	} {
		i := valid
		change(&i)
		if _, err := New(Options{Interventions: []Intervention{i}}); err == nil {
			t.Errorf("%s: New takes %+v", name, i)
		}
	}
	if err := valid.Check(); err != nil {
		t.Error(err)
	}
}

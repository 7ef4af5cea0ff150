package policy

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

const stated = `License: https://a.example/license.xml
User-agent: *
Content-Signal: search=yes, ai-train=no
Content-Usage: ai-use=n, train-ai=y
Content-Usage: /open/ ai-use=y
Disallow: /private

User-agent: NewsBot
Content-Usage: search=n
`

func TestUsage(t *testing.T) {
	const all = "robots.txt: ai-train=no ai-use=n license=https://a.example/license.xml search=yes train-ai=y"
	report := Report
	for _, row := range []struct {
		name   string
		file   string
		client Client
		agent  string
		target string
		usage  Usage
		want   string // action outcome reason line usage
	}{
		{"a file without preferences", example, Client{Purpose: PurposeTrainAI}, "", "/x", UsageEnforce, "forward allow - 0 "},
		{"recorded only", stated, Client{Purpose: PurposeTrainAI}, "", "/x", UsageRecord, "forward allow - 0 " + all},
		{"no purpose", stated, Client{}, "", "/x", UsageEnforce, "forward allow - 0 " + all},
		{"training", stated, Client{Purpose: PurposeTrainAI}, "", "/x", UsageEnforce, "refuse deny usage-preference 3 " + all},
		{"input", stated, Client{Purpose: PurposeAIInput}, "", "/x", UsageEnforce, "refuse deny usage-preference 4 " + all},
		{
			"input, by the longer pattern", stated,
			Client{Purpose: PurposeAIInput},
			"", "/open/x", UsageEnforce,
			"forward allow - 0 robots.txt: ai-train=no ai-use=y license=https://a.example/license.xml search=yes",
		},
		{
			"another form of the path counts", stated,
			Client{Purpose: PurposeAIInput},
			"", "/open/../x", UsageEnforce,
			"refuse deny usage-preference 4 robots.txt: ai-train=no ai-use=y license=https://a.example/license.xml search=yes",
		},
		{"search is permitted", stated, Client{Purpose: PurposeSearch}, "", "/x", UsageEnforce, "forward allow - 0 " + all},
		{"a group of its own", stated, Client{Purpose: PurposeSearch}, "NewsBot/1.0", "/x", UsageEnforce, "refuse deny usage-preference 9 robots.txt: license=https://a.example/license.xml search=n"},
		{"no category", stated, Client{Purpose: PurposeArchive}, "", "/x", UsageEnforce, "forward allow - 0 " + all},
		{"a rule comes first", stated, Client{Purpose: PurposeTrainAI}, "", "/private", UsageEnforce, "refuse deny robots 6 " + all},
		{"robots.txt itself", stated, Client{Purpose: PurposeTrainAI}, "", "/robots.txt", UsageEnforce, "forward allow - 0 " + all},
		{"mode report", stated, Client{Purpose: PurposeTrainAI, Mode: &report}, "", "/x", UsageEnforce, "forward would_deny report 3 " + all},
		{
			"the most restrictive of equal lines", "User-agent: *\nContent-Usage: search=y\nContent-Usage: search=n\n",
			Client{Purpose: PurposeSearch},
			"", "/",
			UsageEnforce, "refuse deny usage-preference 3 robots.txt: search=n search=y",
		},
		{"a word of the other vocabulary", "User-agent: *\nContent-Usage: ai-train=no\nContent-Signal: train-ai=n\n", Client{Purpose: PurposeTrainAI}, "", "/", UsageEnforce, "forward allow - 0 "},
	} {
		t.Run(row.name, func(t *testing.T) {
			p, err := New(Options{Usage: row.usage})
			if err != nil {
				t.Fatal(err)
			}
			r := Request{Origin: mustOrigin(t, "http://a.example"), Target: row.target, Client: row.client, UserAgent: row.agent}
			d := p.Decide(r, found(row.file), now)
			action, reason := "refuse", string(d.Reason)
			if d.Action == Forward {
				action = "forward"
			}
			if reason == "" {
				reason = "-"
			}
			if got := fmt.Sprint(action, " ", d.Outcome, " ", reason, " ", d.Verdict.Line, " ", d.Usage); got != row.want {
				t.Errorf("got  %s\nwant %s", got, row.want)
			}
		})
	}
}

func TestUsageExemption(t *testing.T) {
	entry := Exemption{Host: "a.example", Effect: EffectAllow, Reason: "licensed", Owner: "legal", Until: now.Add(time.Hour)}
	p, err := New(Options{Usage: UsageEnforce, Exemptions: []Exemption{entry}})
	if err != nil {
		t.Fatal(err)
	}
	r := Request{Origin: mustOrigin(t, "http://a.example"), Target: "/x", Client: Client{Purpose: PurposeTrainAI}}
	if d := p.Decide(r, found(stated), now); d.Outcome != Exempt || d.Verdict.Line != 3 {
		t.Errorf("%s %s by line %d, want exempt by line 3", d.Outcome, d.Reason, d.Verdict.Line)
	}
}

func TestUsageOfTunnel(t *testing.T) {
	p, err := New(Options{Usage: UsageEnforce})
	if err != nil {
		t.Fatal(err)
	}
	r := Request{Origin: mustOrigin(t, "https://a.example"), Tunnel: true, Client: Client{Purpose: PurposeTrainAI}}
	if d := p.Decide(r, found(stated), now); d.Reason != ReasonUsage {
		t.Errorf("%s %s, want the preference for all paths to count", d.Outcome, d.Reason)
	}
}

// A file that was made to be slow cannot occupy the program, and is not taken for a permission.
func TestCostlyUsage(t *testing.T) {
	file := "User-agent: *\n" + strings.Repeat("Content-Usage: /"+strings.Repeat("*a", 100)+"*b search=y\n", 2000)
	r := Request{Origin: mustOrigin(t, "http://a.example"), Target: "/" + strings.Repeat("a", 60<<10), Client: Client{Purpose: PurposeSearch}}
	for usage, want := range map[Usage]Reason{UsageRecord: ReasonNone, UsageEnforce: ReasonTooComplex} {
		p, err := New(Options{Usage: usage})
		if err != nil {
			t.Fatal(err)
		}
		if d := p.Decide(r, found(file), now); d.Reason != want || d.Usage != "robots.txt: too-complex" {
			t.Errorf("%s: %s %s, %q; want %q", usage, d.Outcome, d.Reason, d.Usage, want)
		}
	}
}

func TestNoUsageAllocatesNothing(t *testing.T) {
	p, err := New(Options{Usage: UsageEnforce})
	if err != nil {
		t.Fatal(err)
	}
	r := Request{Origin: mustOrigin(t, "http://a.example"), Target: "/x", Client: Client{Purpose: PurposeTrainAI}}
	set := found(example).Rules
	agent := set.Agent("")
	if n := testing.AllocsPerRun(100, func() { p.judgeUsage(agent, r, set) }); n != 0 {
		t.Errorf("%v allocations for a file without preferences", n)
	}
}

// What a purpose is forbidden by in a response, of all vocabularies.
func TestForbiddenBy(t *testing.T) {
	for _, row := range []struct {
		purpose    Purpose
		preference string
		want       string
	}{
		{PurposeSearch, "x-robots-tag=noai,noindex", "X-Robots-Tag: noindex"},
		{PurposeSearch, "x-robots-tag=none", "X-Robots-Tag: none"},
		{PurposeSearch, "tdm-reservation=1", ""},
		{PurposeTrainAI, "x-robots-tag=noimageai", "X-Robots-Tag: noimageai"},
		{PurposeTrainAI, "tdm-reservation=0", ""},
		{PurposeTrainAI, "ai-train=yes", ""},
		{PurposeTrainAI, "x-robots-tag=newsbot:noindex,otherbot:noai", ""},
		{PurposeTrainAI, "x-robots-tag=unavailable_after:2026-01-01T00:00:00Z", ""},
		{PurposeAIInput, "x-robots-tag=nosnippet", "X-Robots-Tag: nosnippet"},
		{PurposeAIInput, "ai-use=n", "Content-Usage: ai-use=n"},
		{PurposeAIInput, "tdm-reservation=1", "TDM-Reservation: 1"},
		{PurposeArchive, "x-robots-tag=noarchive", "X-Robots-Tag: noarchive"},
		{PurposeArchive, "x-robots-tag=newsbot:noarchive", "X-Robots-Tag: newsbot:noarchive"},
		{PurposeResearch, "tdm-reservation=1", ""},
		{PurposeMonitor, "x-robots-tag=noai,noarchive,noindex,none,nosnippet", ""},
		{"", "x-robots-tag=noai,noindex", ""},
	} {
		if got := forbiddenBy(row.purpose, "NewsBot", []string{"search=y", row.preference}); got != row.want {
			t.Errorf("%s by %s: %q, want %q", row.purpose, row.preference, got, row.want)
		}
	}
}

func TestForbiddenByRecord(t *testing.T) {
	for usage, want := range map[string]bool{
		"": false, "robots.txt: search=yes": false, "robots.txt: ai-train=no search=yes": true, "robots.txt: search=yes; header: x-robots-tag=noai": true,
		"html: robots=noai": true, "html: robots=newsbot:noai": false, "robots.txt: too-complex": false,
	} {
		if got := PurposeTrainAI.ForbiddenBy(usage); got != want {
			t.Errorf("%q: %v, want %v", usage, got, want)
		}
	}
}

func TestNoPreferenceInResponseAllocatesNothing(t *testing.T) {
	p, err := New(Options{Usage: UsageEnforce})
	if err != nil {
		t.Fatal(err)
	}
	r := Request{Target: "/x", Client: Client{Purpose: PurposeTrainAI}, UserAgent: "NewsBot/1.0"}
	d, preferences := Decision{Action: Forward, Outcome: Allow}, []string{"search=y", "x-robots-tag=noindex"}
	if n := testing.AllocsPerRun(100, func() { p.DecideResponse(d, r, preferences, now) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

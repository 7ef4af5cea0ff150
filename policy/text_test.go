package policy

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/robotsproxy/robotsproxy/internal/hostset"
	"github.com/robotsproxy/robotsproxy/robots"
	"github.com/robotsproxy/robotsproxy/rules"
)

var (
	someHosts    = rapid.SampledFrom([]string{"a.example", "b.example", "www.a.example", "c.test"})
	somePatterns = rapid.SampledFrom([]string{"*", "*.example", "a.example", "*.a.example", "c.test"})
	someTargets  = rapid.SampledFrom([]string{"/", "/private/x", "/a/../private/", "/news/?q=1", "/robots.txt"})
	someModes    = rapid.SampledFrom([]Mode{Enforce, Report, Off})
	someDialects = rapid.SampledFrom(rules.Dialects())
	someDelays   = rapid.SampledFrom([]time.Duration{0, time.Second, 1500 * time.Millisecond, time.Minute})
	someNames    = rapid.SampledFrom([]string{"", "news", "archive", "ä \"<b>\"\n"})
	someTimes    = rapid.Custom(func(t *rapid.T) time.Time {
		return now.Add(time.Duration(rapid.Int64Range(-3, 3).Draw(t, "minutes")) * time.Minute).In(time.FixedZone("", 3600))
	})
)

func option[T any](t *rapid.T, from *rapid.Generator[T]) *T {
	if rapid.Bool().Draw(t, "set") {
		return ptr(from.Draw(t, "value"))
	}
	return nil
}

func drawClient(t *rapid.T, name string) Client {
	return Client{
		Name: name, ProductToken: rapid.SampledFrom([]string{"", "NewsBot"}).Draw(t, "token"), Mode: option(t, someModes),
		Dialect: option(t, someDialects), MaxCrawlDelay: someDelays.Draw(t, "max"),
		Purpose: rapid.SampledFrom(append([]Purpose{""}, Purposes...)).Draw(t, "purpose"),
	}
}

func drawOptions(t *rapid.T) Options {
	patterns := rapid.SliceOfN(somePatterns, 0, 2)
	o := Options{
		Queries: rapid.SampledFrom([]string{"", "drop"}).Draw(t, "queries"),
		Mode:    someModes.Draw(t, "mode"), Dialect: someDialects.Draw(t, "dialect"), MaxCrawlDelay: someDelays.Draw(t, "max"),
		Interception:  rapid.SampledFrom([]Interception{Intercept, Tunnel, NoTunnel}).Draw(t, "interception"),
		TunnelHosts:   patterns.Draw(t, "tunnels"),
		RefuseOverMax: rapid.Bool().Draw(t, "over"), RequireContact: rapid.Bool().Draw(t, "contact"),
		Usage:  rapid.SampledFrom([]Usage{UsageRecord, UsageEnforce}).Draw(t, "usage"),
		Access: Access{Allow: patterns.Draw(t, "allow"), Deny: rapid.SliceOfN(someHosts, 0, 1).Draw(t, "deny")},
	}
	for range rapid.IntRange(0, 2).Draw(t, "hosts") {
		o.Hosts = append(o.Hosts, Host{
			Pattern: somePatterns.Draw(t, "host"), Mode: option(t, someModes), Dialect: option(t, someDialects),
			Delay: someDelays.Draw(t, "delay"), Interception: ptr(Tunnel),
		})
	}
	for range rapid.IntRange(0, 2).Draw(t, "exemptions") {
		o.Exemptions = append(o.Exemptions, Exemption{
			Host: somePatterns.Draw(t, "host"), Path: rapid.SampledFrom([]string{"", "/private/"}).Draw(t, "path"),
			Client: someNames.Draw(t, "client"), Effect: rapid.SampledFrom([]Effect{EffectDeny, EffectAllow}).Draw(t, "effect"),
			Reason: "r & <s>", Owner: "o", Until: someTimes.Draw(t, "until"),
		})
	}
	for range rapid.IntRange(0, 2).Draw(t, "interventions") {
		i := Intervention{
			Kind: rapid.SampledFrom([]InterventionKind{Stop, Slow, Bypass}).Draw(t, "kind"), Host: somePatterns.Draw(t, "host"),
			Reason: "r", By: "o", Since: now, Until: someTimes.Draw(t, "until"),
		}
		if i.Kind == Slow {
			i.Delay = 3 * time.Second
		}
		o.Interventions = append(o.Interventions, i)
	}
	for _, name := range []string{"", "news", "archive"} {
		o.Clients = append(o.Clients, drawClient(t, name))
	}
	if rapid.Bool().Draw(t, "client lists") {
		o.ClientAccess = map[string]Access{"news": {Deny: patterns.Draw(t, "deny")}, "archive": {Allow: patterns.Draw(t, "allow")}}
	}
	return o
}

func TestParsedTextDecidesTheSame(tb *testing.T) {
	snaps := []*robots.Snapshot{
		found(example), found("User-agent: *\nContent-Usage: train-ai=n\nRequest-rate: 1/10 1159-1201\n"),
		empty(robots.Unavailable, 404), empty(robots.Unreachable, 503),
	}
	rapid.Check(tb, func(t *rapid.T) {
		p, err := New(drawOptions(t))
		if err != nil {
			t.Fatal(err)
		}
		parsed, err := Parse(p.Text())
		if err != nil {
			t.Fatalf("%v\n%s", err, p.Text())
		}
		if parsed.SHA256() != p.SHA256() {
			t.Fatal("the hash differs")
		}
		again, err := New(parsed.options)
		if err != nil || !bytes.Equal(again.Text(), p.Text()) {
			t.Fatalf("%v\n%s\n%s", err, p.Text(), again.Text())
		}
		for range 20 {
			name := rapid.SampledFrom([]string{"", "news", "archive", "local"}).Draw(t, "client")
			client, _ := p.Client(name)
			kept, _ := parsed.Client(name)
			o := mustOrigin(tb, "http://"+someHosts.Draw(t, "host"))
			r := Request{
				Client: client, Origin: o, Target: someTargets.Draw(t, "target"), Tunnel: rapid.Bool().Draw(t, "tunnel"),
				UserAgent: rapid.SampledFrom([]string{"", "NewsBot/1.0", "x (+https://x.example)"}).Draw(t, "user agent"),
			}
			snap, at := rapid.SampledFrom(snaps).Draw(t, "file"), someTimes.Draw(t, "time")
			want := p.Decide(r, snap, at)
			r.Client = kept
			got := parsed.Decide(r, snap, at)
			got.Until = want.Until.In(got.Until.Location())
			if !got.Until.Equal(want.Until) || p.Interception(o.Host()) != parsed.Interception(o.Host()) {
				t.Fatalf("%+v\n%+v", got, want)
			}
			got.Until = want.Until
			if got != want {
				t.Fatalf("%+v\n%+v\n%s", got, want, p.Text())
			}
		}
	})
}

func TestTextNamesAListByItsHash(t *testing.T) {
	list, err := hostset.New([]string{"*.bad.example", "a.example"})
	if err != nil {
		t.Fatal(err)
	}
	other, _ := hostset.New([]string{"*.bad.example"})
	newPolicy := func(o Options) *Policy {
		p, err := New(o)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	p := newPolicy(Options{Access: Access{DenyFile: list}, ClientAccess: map[string]Access{"news": {}}})
	if bytes.Contains(p.Text(), []byte("bad.example")) || !bytes.Contains(p.Text(), []byte(list.SHA256())) {
		t.Fatalf("%s", p.Text())
	}
	if p.SHA256() == newPolicy(Options{Access: Access{DenyFile: other}, ClientAccess: map[string]Access{"news": {}}}).SHA256() {
		t.Fatal("another list has the same hash")
	}
	parsed, err := Parse(p.Text())
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		p        *Policy
		rule     string
		host     string
		client   string
		wantRule string
	}{
		{p, "deny_hosts_file: *.bad.example", "x.bad.example", "", "deny_hosts_file: *.bad.example"},
		{parsed, "deny_hosts_file: *.bad.example", "x.bad.example", "", "deny_hosts_file: *.bad.example"},
		{parsed, "deny_hosts_file: *.bad.example", "good.example", "", ""},
		{parsed, "deny_hosts_file: *.bad.example (client news)", "x.bad.example", "news", ""}, // it had no such file
		{parsed, "deny_hosts: *.bad.example", "x.bad.example", "", ""},
		{newPolicy(Options{}), "deny_hosts_file: *.bad.example", "x.bad.example", "", ""},
	} {
		if got := row.p.Listing(row.rule).hostRule(row.host, row.client); got != row.wantRule {
			t.Errorf("%s, %s: %q", row.rule, row.host, got)
		}
	}
	own := newPolicy(Options{ClientAccess: map[string]Access{"news": {DenyFile: list}}})
	if parsed, err = Parse(own.Text()); err != nil {
		t.Fatal(err)
	}
	const rule = "deny_hosts_file: a.example (client news)"
	if got := parsed.Listing(rule).hostRule("a.example", "news"); got != rule {
		t.Errorf("%q", got)
	}
	if got := parsed.Listing(rule).hostRule("a.example", "other"); got != "" {
		t.Errorf("%q", got)
	}
}

func TestParseRefusesWhatItCannotRead(t *testing.T) {
	p, err := New(Options{})
	if err != nil {
		t.Fatal(err)
	}
	text := string(p.Text())
	for _, row := range []struct{ before, after, want string }{
		{`"format": 1`, `"format": 2`, "format 2"},
		{`"mode": "enforce"`, `"mode": "strict"`, `"strict" is none of enforce, report, off`},
		{`"dialect": "rfc9309"`, `"dialect": "x"`, `"x"`},
		{"{", "", "reading a policy"},
	} {
		broken := strings.Replace(text, row.before, row.after, 1)
		if broken == text {
			t.Fatalf("%s is not in %s", row.before, text)
		}
		if _, err := Parse([]byte(broken)); err == nil || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%s: %v", row.after, err)
		}
	}
}

func TestNewRefusesATimeThatTextCannotHave(t *testing.T) {
	until := time.Date(9999, 12, 31, 23, 59, 0, 0, time.FixedZone("", -3600))
	if _, err := New(Options{Exemptions: []Exemption{{Host: "*", Reason: "r", Owner: "o", Until: until}}}); err == nil {
		t.Error("no error")
	}
}

package proof_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/robotsproxy/robotsproxy/audit"
	"github.com/robotsproxy/robotsproxy/audit/proof"
	"github.com/robotsproxy/robotsproxy/origin"
	"github.com/robotsproxy/robotsproxy/policy"
	"github.com/robotsproxy/robotsproxy/robots"
	"github.com/robotsproxy/robotsproxy/store"
)

// decisions writes n records of real decisions about 1,000 hosts by changing policies and files.
func decisions(t *testing.T, records *store.Records, n int) {
	t.Helper()
	random := rand.New(rand.NewPCG(1, 2))
	start := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	snaps := make([]*robots.Snapshot, 1000)
	newSnap := func(i int, version int) {
		body := fmt.Appendf(nil, "User-agent: *\nDisallow: /private/\nDisallow: /v%d/\nCrawl-delay: %d\n", version, 1+i%3)
		sum := sha256.Sum256(body)
		o, err := origin.New("https", fmt.Sprintf("site-%d.example", i), 443)
		if err != nil {
			t.Fatal(err)
		}
		snaps[i] = robots.NewSnapshot(robots.Answer{
			Origin: o, Availability: robots.Found, Status: 200, Body: body, SHA256: hex.EncodeToString(sum[:]),
		})
	}
	for i := range snaps {
		newSnap(i, 0)
	}
	var ids audit.Sequence
	var p *policy.Policy
	for begin := 0; begin < n; begin += 1000 {
		if begin%50_000 == 0 {
			var err error
			p, err = policy.New(policy.Options{
				MaxCrawlDelay: time.Duration(1+begin%7) * time.Second, Hosts: []policy.Host{{Pattern: "site-1.example", Mode: new(policy.Mode)}},
				Exemptions: []policy.Exemption{{Host: "site-2.example", Effect: policy.EffectAllow, Reason: "r", Owner: "o", Until: start.Add(time.Hour)}},
			})
			if err != nil {
				t.Fatal(err)
			}
			newSnap(random.IntN(len(snaps)), begin)
		}
		entries := make([]audit.Entry, min(1000, n-begin))
		for i := range entries {
			at := start.Add(time.Duration(begin+i) * 10 * time.Millisecond)
			snap := snaps[random.IntN(len(snaps))]
			path := fmt.Sprintf("/%s/%d", []string{"articles", "private", "v0", "v50000"}[random.IntN(4)], random.IntN(10_000))
			r := &entries[i].Record
			*r = audit.Record{
				ID: ids.Next(at), Time: at, Client: "local", UserAgent: "NewsBot/1.0", Method: "GET", Scheme: "https",
				Host: snap.Origin.Host(), Port: 443, Path: path, Via: audit.Intercepted, EndedAt: at.Add(time.Millisecond),
			}
			req := policy.Request{Client: policy.Client{Name: "local"}, Origin: snap.Origin, Target: path, UserAgent: r.UserAgent}
			r.SetDecision(p.Decide(req, snap, at), snap)
			r.SetPolicy(p)
		}
		if err := records.Write(context.Background(), entries); err != nil {
			t.Fatal(err)
		}
	}
}

// TestReplayOfManyRecords replays 5,000 records, or 1,000,000 with REPLAY_MILLION=1.
func TestReplayOfManyRecords(t *testing.T) {
	n := 5_000
	if os.Getenv("REPLAY_MILLION") != "" {
		n = 1_000_000
	}
	records, err := store.OpenRecords(store.RecordsOptions{Path: filepath.Join(t.TempDir(), "audit.db")})
	if err != nil {
		t.Fatal(err)
	}
	defer records.Close()
	decisions(t, records, n)
	begin := time.Now()
	report, err := proof.Replay(context.Background(), records, audit.Filter{}, proof.ReplayOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d records in %v", n, time.Since(begin))
	if !report.OK() || report.Same != int64(n) || report.Records != int64(n) {
		t.Errorf("%d of %d come out the same: %+v", report.Same, report.Records, report.Differences[:min(3, len(report.Differences))])
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := proof.Replay(ctx, records, audit.Filter{}, proof.ReplayOptions{}); err == nil {
		t.Error("Replay does not stop with its context")
	}
}

// TestReplayCountsApart has records that cannot be replayed, and some of another rules engine, beside true and false
// ones.
func TestReplayCountsApart(t *testing.T) {
	records, err := store.OpenRecords(store.RecordsOptions{Path: filepath.Join(t.TempDir(), "audit.db")})
	if err != nil {
		t.Fatal(err)
	}
	defer records.Close()
	o, err := origin.New("https", "a.example", 443)
	if err != nil {
		t.Fatal(err)
	}
	body := []byte("User-agent: *\nDisallow: /*?id=\nDisallow: /*token=a\n")
	sum := sha256.Sum256(body)
	snap := robots.NewSnapshot(robots.Answer{
		Origin: o, Availability: robots.Found, Status: 200, Body: body, SHA256: hex.EncodeToString(sum[:]),
	})
	at := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	var ids audit.Sequence
	add := func(mode audit.QueryMode, query string, change func(*audit.Record)) {
		t.Helper()
		p, err := policy.New(policy.Options{Queries: string(mode)})
		if err != nil {
			t.Fatal(err)
		}
		at = at.Add(time.Second)
		r := audit.Record{ID: ids.Next(at), Time: at, Scheme: "https", Host: "a.example", Port: 443, Path: "/x", Query: mode.Apply(query), Via: audit.Plain}
		r.SetDecision(p.Decide(policy.Request{Origin: o, Target: "/x?" + query}, snap, at), snap)
		r.SetPolicy(p)
		change(&r)
		if err := records.Write(context.Background(), []audit.Entry{{Record: r}}); err != nil {
			t.Fatal(err)
		}
	}
	unchanged := func(*audit.Record) {}
	add(audit.QueryMask, "id=1", unchanged)
	add(audit.QueryMask, "", unchanged)
	add(audit.QueryDrop, "id=1", unchanged)
	add(audit.QueryDrop, "q=1", unchanged)
	add(audit.QueryHash, "id=1", unchanged)
	add(audit.QueryMask, "token=a", unchanged)
	add(audit.QueryMask, "id=1", func(r *audit.Record) { r.PolicySHA256, r.Evidence.Policy = hex.EncodeToString(sum[:]), nil })
	add(audit.QueryMask, "id=1", func(r *audit.Record) { r.RobotsSHA256, r.Evidence.Robots = hex.EncodeToString(make([]byte, 32)), nil })
	add(audit.QueryMask, "", func(r *audit.Record) { r.PolicySHA256, r.Reason, r.Decision = "", policy.ReasonAuth, policy.Deny })
	add(audit.QueryMask, "id=1", func(r *audit.Record) { r.RulesVersion, r.RuleLine = 99, 5 })
	add(audit.QueryMask, "id=1", func(r *audit.Record) { r.RuleLine = 5 })
	add(audit.QueryMask, "id=1", func(r *audit.Record) { r.Reason, r.Decision = policy.ReasonUpstream, policy.Error })
	report, err := proof.Replay(context.Background(), records, audit.Filter{}, proof.ReplayOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, cause := range proof.MissingCauses {
		if report.Missing[cause] != 1 {
			t.Errorf("%s: %d", cause, report.Missing[cause])
		}
	}
	if report.Records != 12 || report.Replayed != 6 || report.Same != 3 || report.Unjudged != 1 || report.Changed != 1 || report.Differing != 2 {
		t.Errorf("%+v", report)
	}
	for i, field := range []string{"rule_line", "decision"} {
		if i >= len(report.Differences) || report.Differences[i].Field != field {
			t.Errorf("difference %d: %+v", i, report.Differences)
		}
	}
}

// TestReplayOfResponses replays records that the header of a response decided, or should have decided.
func TestReplayOfResponses(t *testing.T) {
	o, err := origin.New("https", "a.example", 443)
	if err != nil {
		t.Fatal(err)
	}
	body := []byte("User-agent: *\nAllow: /\n")
	sum := sha256.Sum256(body)
	snap := robots.NewSnapshot(robots.Answer{
		Origin: o, Availability: robots.Found, Status: 200, Body: body, SHA256: hex.EncodeToString(sum[:]),
	})
	lab := policy.Client{Name: "lab", Purpose: policy.PurposeTrainAI}
	enforce := policy.Options{Usage: policy.UsageEnforce, Clients: []policy.Client{lab}}
	for _, row := range []struct {
		name   string
		o      policy.Options
		usage  string // of the header
		change func(*audit.Record)
		want   string // the field that differs
	}{
		{"refused", enforce, "x-robots-tag=noai", func(*audit.Record) {}, ""},
		{"permitted", enforce, "x-robots-tag=noindex", func(*audit.Record) {}, ""},
		{"recorded only", policy.Options{Clients: []policy.Client{lab}}, "x-robots-tag=noai", func(*audit.Record) {}, ""},
		{"of HEAD", enforce, "x-robots-tag=noindex", func(r *audit.Record) { r.Method, r.Usage = "HEAD", "header: x-robots-tag=noai" }, ""},
		{"an error", enforce, "x-robots-tag=noindex", func(r *audit.Record) { r.Status, r.Usage = 404, "header: x-robots-tag=noai" }, ""},
		{"its preference is gone", enforce, "x-robots-tag=noai", func(r *audit.Record) { r.Usage = "" }, "decision"},
		{"another preference", enforce, "x-robots-tag=noai", func(r *audit.Record) { r.Usage = "header: tdm-reservation=1" }, "rule"},
		{"passed on", enforce, "x-robots-tag=noindex", func(r *audit.Record) { r.Usage = "header: x-robots-tag=noai" }, "decision"},
		{"cut", enforce, "x-robots-tag=noai", func(r *audit.Record) { r.Usage = "header: search=y ..." }, "missing"},
	} {
		t.Run(row.name, func(t *testing.T) {
			records, err := store.OpenRecords(store.RecordsOptions{Path: filepath.Join(t.TempDir(), "audit.db")})
			if err != nil {
				t.Fatal(err)
			}
			defer records.Close()
			p, err := policy.New(row.o)
			if err != nil {
				t.Fatal(err)
			}
			at := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
			var ids audit.Sequence
			r := audit.Record{
				ID: ids.Next(at), Time: at, SentAt: at, EndedAt: at, Client: "lab", Method: "GET", Scheme: "https", Host: "a.example", Port: 443,
				Path: "/x", Via: audit.Plain, Status: 200,
			}
			req := policy.Request{Client: lab, Origin: o, Target: "/x"}
			d := p.Decide(req, snap, at)
			r.SetDecision(d, snap)
			r.SetPolicy(p)
			r.AddUsage("header: " + row.usage)
			if d, changed := p.DecideResponse(d, req, []string{row.usage}, at); changed {
				r.SetResponseDecision(d)
				r.Status = 403
			}
			row.change(&r)
			if err := records.Write(t.Context(), []audit.Entry{{Record: r}}); err != nil {
				t.Fatal(err)
			}
			report, err := proof.Replay(t.Context(), records, audit.Filter{}, proof.ReplayOptions{})
			if err != nil {
				t.Fatal(err)
			}
			got := ""
			switch {
			case len(report.Differences) > 0:
				got = report.Differences[0].Field
			case report.Missing[proof.TextMasked] > 0:
				got = "missing"
			}
			if got != row.want || report.Records != 1 {
				t.Errorf("%q differs, want %q: %+v", got, row.want, report)
			}
		})
	}
}

// A policy of a version that did not judge responses does not judge them now.
func TestReplayOfOldPolicies(t *testing.T) {
	const old = `{"format": 1, "mode": "enforce", "dialect": "rfc9309", "intercept": "intercept", "usage": "enforce"}`
	p, err := policy.Parse([]byte(old))
	if err != nil {
		t.Fatal(err)
	}
	r := policy.Request{Client: policy.Client{Purpose: policy.PurposeTrainAI}, Target: "/x"}
	d := policy.Decision{Action: policy.Forward, Outcome: policy.Allow}
	if d, changed := p.DecideResponse(d, r, []string{"x-robots-tag=noai"}, time.Time{}); changed {
		t.Errorf("%+v", d)
	}
}

package proof_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/robotsproxy/robotsproxy/audit"
	"github.com/robotsproxy/robotsproxy/audit/proof"
	"github.com/robotsproxy/robotsproxy/origin"
	"github.com/robotsproxy/robotsproxy/policy"
	"github.com/robotsproxy/robotsproxy/robots"
)

// file returns a version of http://a.example/robots.txt. A name is the SHA-256 of its body.
func file(t *testing.T, name string, seen float64) audit.File {
	t.Helper()
	o, err := origin.Parse("http://a.example")
	if err != nil {
		t.Fatal(err)
	}
	f := audit.File{State: "found", FirstSeen: began.Add(seconds(seen)), LastSeen: began.Add(seconds(seen + 1))}
	f.Answer = robots.Answer{Origin: o, Status: 200, SHA256: name, Availability: robots.Found}
	return f
}

// get returns a record of a request of NewsBot.
func get(i int, path string, changes ...func(*audit.Record)) audit.Record {
	return visit(float64(i), 0, append(changes, func(r *audit.Record) {
		r.Scheme, r.Port, r.UserAgent = "http", 80, "NewsBot/2.0"
		r.Path, r.Query, _ = strings.Cut(path, "?")
	})...)
}

func TestChanges(t *testing.T) {
	none := file(t, "", 40)
	none.Status, none.State, none.Availability = 404, "unavailable", robots.Unavailable
	down := file(t, "", 50)
	down.Status, down.State, down.Availability = 0, "unreachable", robots.Unreachable
	m := &memory{
		files: []audit.File{
			file(t, "one", 0), file(t, "two", 10), file(t, "three", 20), file(t, "lost", 30), none, down,
		},
		bodies: map[string]string{
			"one":   "User-agent: *\nDisallow: /private/\n",
			"two":   "User-agent: *\r\nDisallow: /private/\r\nDisallow: /search?q=\r\n--- version 1\r\n",
			"three": "User-agent: *\nDisallow: /private/\nDisallow: /search?q=\nCrawl-delay: 2\n\nUser-agent: newsbot\nDisallow: /new",
		},
		records: []audit.Record{
			get(1, "/"), get(2, "/search?q=1"), get(3, "/search"), get(4, "/private/x"), get(5, "/new"),
			get(6, "/new", func(r *audit.Record) { r.ProductToken = "otherbot" }),
			get(7, "/search?q=2", func(r *audit.Record) { r.ProductToken = "*" }),
			get(8, "/", toRobots), get(9, "/new", inLane("", "b.example")),
		},
	}
	got, err := proof.Changes(t.Context(), m, audit.Filter{})
	if err != nil {
		t.Fatal(err)
	}
	var texts []string
	for _, c := range got {
		if c.Origin != "http://a.example" || c.FirstSeen.Before(began) {
			t.Errorf("version %d is of %s, seen from %v", c.Version, c.Origin, c.FirstSeen)
		}
		texts = append(texts, c.Diff)
	}
	want := []proof.Change{
		{Version: 6, State: "unreachable", Judged: 7, Refused: 7},
		{Version: 5, Status: 404, State: "unavailable", Missing: true},
		{Version: 4, Status: 200, State: "found", SHA256: "lost", Missing: true},
		{
			Version: 3, Status: 200, State: "found", SHA256: "three", Judged: 7, Refused: 1, Allowed: 3,
			Added:   []proof.Line{{4, "Crawl-delay: 2"}, {5, ""}, {6, "User-agent: newsbot"}, {7, "Disallow: /new"}},
			Removed: []proof.Line{{4, "--- version 1"}},
		},
		{
			Version: 2, Status: 200, State: "found", SHA256: "two", Judged: 7, Refused: 2,
			Added: []proof.Line{{3, "Disallow: /search?q="}, {4, "--- version 1"}},
		},
		{Version: 1, Status: 200, State: "found", SHA256: "one"},
	}
	for i := range got {
		got[i].Origin, got[i].FirstSeen, got[i].LastSeen, got[i].Diff = "", time.Time{}, time.Time{}, ""
		if len(got[i].Added) == 0 && got[i].Added != nil {
			got[i].Added = nil
		}
		if len(got[i].Removed) == 0 && got[i].Removed != nil {
			got[i].Removed = nil
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if want := "--- version 1\n+++ version 2\n@@ -1,2 +1,4 @@\n User-agent: *\n Disallow: /private/\n+Disallow: /search?q=\n+--- version 1\n"; texts[4] != want {
		t.Errorf("the diff of version 2 is\n%swant\n%s", texts[4], want)
	}
}

// A file that returns to an earlier text has a version more, and its difference is that to the version before.
func TestChangesBackAndForth(t *testing.T) {
	m := &memory{
		files: []audit.File{file(t, "open", 0), file(t, "closed", 10), file(t, "open", 20), file(t, "other", 30)},
		bodies: map[string]string{
			"open": "User-agent: *\nAllow: /\n", "closed": "User-agent: *\nDisallow: /\n", "other": "User-agent: *\nDisallow: /new\n",
		},
		records: []audit.Record{get(1, "/"), get(2, "/new")},
	}
	got, err := proof.Changes(t.Context(), m, audit.Filter{})
	if err != nil || len(got) != 4 {
		t.Fatalf("%+v, %v", got, err)
	}
	for i, want := range []struct {
		removed          string
		refused, allowed int64
	}{{"Allow: /", 1, 0}, {"Disallow: /", 0, 2}, {"Allow: /", 2, 0}} {
		c := got[i]
		if len(c.Removed) != 1 || c.Removed[0].Text != want.removed || c.Judged != 2 || c.Refused != want.refused || c.Allowed != want.allowed {
			t.Errorf("version %d: %+v", c.Version, c)
		}
	}
}

// Preferences count for the requests whose policy enforced them.
func TestChangesOfPreferences(t *testing.T) {
	enforce, err := policy.New(policy.Options{Usage: policy.UsageEnforce})
	if err != nil {
		t.Fatal(err)
	}
	record, err := policy.New(policy.Options{})
	if err != nil {
		t.Fatal(err)
	}
	train := func(p *policy.Policy) func(*audit.Record) {
		return func(r *audit.Record) { r.Purpose, r.PolicySHA256 = "train-ai", p.SHA256() }
	}
	m := &memory{
		files: []audit.File{file(t, "one", 0), file(t, "two", 10)},
		bodies: map[string]string{
			"one": "User-agent: *\nAllow: /\n", "two": "User-agent: *\nContent-Signal: ai-train=no\nAllow: /\n",
		},
		policies: map[string][]byte{enforce.SHA256(): enforce.Text(), record.SHA256(): record.Text()},
		records: []audit.Record{
			get(1, "/", train(enforce)), get(2, "/", train(record)),
			get(3, "/", train(enforce), func(r *audit.Record) { r.Purpose = "search" }),
			get(4, "/", train(enforce), func(r *audit.Record) { r.PolicySHA256 = "lost" }),
		},
	}
	got, err := proof.Changes(t.Context(), m, audit.Filter{})
	if err != nil || len(got) != 2 {
		t.Fatalf("%+v, %v", got, err)
	}
	if got[0].Judged != 4 || got[0].Refused != 1 {
		t.Errorf("version 2 would refuse %d of %d requests, want 1 of 4", got[0].Refused, got[0].Judged)
	}
}

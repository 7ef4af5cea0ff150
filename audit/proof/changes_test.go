package proof_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/robotsproxy/robotsproxy/audit"
	"github.com/robotsproxy/robotsproxy/audit/proof"
	"github.com/robotsproxy/robotsproxy/origin"
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

package proof_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/robotsproxy/robotsproxy/audit"
	"github.com/robotsproxy/robotsproxy/audit/proof"
	"github.com/robotsproxy/robotsproxy/origin"
	"github.com/robotsproxy/robotsproxy/robots"
)

// past is a robots.Store with changes, the latest first. A name is the SHA-256 of its body.
type past struct {
	*memory
	changes []robots.Change
}

func (p past) Changes(_ context.Context, _ origin.Origin, limit int) ([]robots.Change, error) {
	return p.changes[:min(limit, len(p.changes))], nil
}

func (p past) Versions(_ context.Context, o origin.Origin, _ int) (all []robots.Version, err error) {
	for name := range p.bodies {
		all = append(all, robots.Version{Origin: o, SHA256: name, FirstSeen: began})
	}
	return all, nil
}

// changed returns a change from one state to another, written as "found one". The first one is the oldest.
func (p *past) changed(before, after string) {
	oldState, oldSHA, _ := strings.Cut(before, " ")
	newState, newSHA, _ := strings.Cut(after, " ")
	c := robots.Change{
		Time: began.Add(seconds(float64(101 + len(p.changes)))), OldState: oldState, OldSHA256: oldSHA, NewState: newState, NewSHA256: newSHA,
	}
	p.changes = append([]robots.Change{c}, p.changes...)
}

func siteOrigin(t *testing.T) origin.Origin {
	t.Helper()
	o, err := origin.Parse("http://a.example")
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func TestEffects(t *testing.T) {
	named := func(r *audit.Record) { r.Agent = "NewsBot" }
	m := &memory{
		bodies: map[string]string{
			"one":   "User-agent: *\nDisallow: /private/\n",
			"two":   "User-agent: *\nAllow: /private/x\nDisallow: /private/\nDisallow: /new\nCrawl-delay: 5\n",
			"three": "# moved\nUser-agent: *\nAllow: /private/x\nDisallow: /private/\nDisallow: /new\nCrawl-delay: 5\n",
		},
		records: []audit.Record{
			get(1, "/", named), get(2, "/new?a=1", named), get(3, "/new?a=1", named), get(4, "/private/x", named), get(5, "/private/y", named),
			get(6, "/new", named, toRobots), get(7, "/new", inLane("", "b.example")),
			get(200, "/new", named), // after the changes
		},
	}
	p := past{memory: m}
	p.changed("found one", "found two")
	p.changed("found two", "found three") // decides nothing otherwise
	got, err := proof.Effects(t.Context(), p, m, siteOrigin(t), time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	want := []*proof.Effect{
		{
			Host: "a.example", Origin: "http://a.example", Time: began.Add(seconds(101)),
			Before: proof.Text{State: "found", SHA256: "one", FirstSeen: began}, After: proof.Text{State: "found", SHA256: "two", FirstSeen: began},
			Diff:   "--- one\n+++ two\n@@ -1,2 +1,5 @@\n User-agent: *\n+Allow: /private/x\n Disallow: /private/\n+Disallow: /new\n+Crawl-delay: 5\n",
			Judged: 5, Refused: 2, Allowed: 1, Delays: []proof.DelayChange{{"NewsBot", 0, 5}},
			Examples: []proof.Example{
				{"/private/x", "NewsBot", proof.Ruling{false, 2, "Disallow: /private/"}, proof.Ruling{true, 2, "Allow: /private/x"}},
				{"/new?a=1", "NewsBot", proof.Ruling{Allowed: true}, proof.Ruling{false, 4, "Disallow: /new"}},
			},
		},
		{
			Host: "a.example", Origin: "http://a.example", Time: began.Add(seconds(102)),
			Before: proof.Text{State: "found", SHA256: "two", FirstSeen: began}, After: proof.Text{State: "found", SHA256: "three", FirstSeen: began},
			Diff:   "--- two\n+++ three\n@@ -1,3 +1,4 @@\n+# moved\n User-agent: *\n Allow: /private/x\n Disallow: /private/\n",
			Judged: 5, Delays: []proof.DelayChange{}, Examples: []proof.Example{},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if !got[0].Alters() || got[1].Alters() {
		t.Errorf("Alters() = %v, %v", got[0].Alters(), got[1].Alters())
	}
	if late, err := proof.Effects(t.Context(), p, m, siteOrigin(t), got[1].Time); err != nil || len(late) != 1 {
		t.Errorf("since the second: %d changes, %v", len(late), err)
	}
}

// An outage is no change; what the site gives after it is compared with what it gave before it.
func TestEffectsOfOutages(t *testing.T) {
	m := &memory{
		bodies:  map[string]string{"closed": "User-agent: *\nDisallow: /\n", "wall": "<html>"},
		records: []audit.Record{get(1, "/")},
	}
	for name, test := range map[string]struct {
		states  []string
		refused int64 // by the change from the first state to the last; -1: there is none
	}{
		"it fails and returns":              {[]string{"unavailable", "unreachable", "unavailable"}, -1},
		"it fails, and has a file then":     {[]string{"unavailable", "unreachable", "found closed"}, 1},
		"it fails at first":                 {[]string{"unreachable", "found closed"}, -1},
		"a stale copy counts":               {[]string{"found closed", "stale closed", "found closed"}, -1},
		"a refused wall":                    {[]string{"unavailable", "html", "found closed"}, 1},
		"a wall that allows everything":     {[]string{"html wall", "found closed"}, 1},
		"everything was refused, and is no": {[]string{"found closed", "unavailable"}, 0},
	} {
		p := past{memory: m}
		for i := range test.states[1:] {
			p.changed(test.states[i], test.states[i+1])
		}
		got, err := proof.Effects(t.Context(), p, m, siteOrigin(t), time.Time{})
		switch {
		case err != nil:
			t.Errorf("%s: %v", name, err)
		case test.refused < 0 && len(got) > 0:
			t.Errorf("%s: %+v", name, got[0])
		case test.refused >= 0 && (len(got) != 1 || got[0].Refused != test.refused || got[0].Allowed != 1-test.refused):
			t.Errorf("%s: %d changes: %+v", name, len(got), got)
		}
	}
}

// Requests of more than 30 days before the change do not count, and lists and the difference are bounded.
func TestEffectsAreBounded(t *testing.T) {
	m := &memory{bodies: map[string]string{"open": "", "closed": "User-agent: *\nDisallow: /\n" + strings.Repeat("# a comment\n", 20_000)}}
	for i := range 100 {
		m.records = append(m.records, get(1+i, fmt.Sprintf("/%d", i)))
	}
	m.records = append(m.records, get(-31*24*60*60, "/old"))
	p := past{memory: m}
	p.changed("empty open", "found closed")
	got, err := proof.Effects(t.Context(), p, m, siteOrigin(t), time.Time{})
	if err != nil || len(got) != 1 {
		t.Fatal(got, err)
	}
	e := got[0]
	if e.Judged != 100 || e.Refused != 100 || len(e.Examples) != 10 || e.Partial || e.Examples[0].Path != "/99" {
		t.Errorf("%d of %d, %d examples, partial %v", e.Refused, e.Judged, len(e.Examples), e.Partial)
	}
	if n := len(e.Diff); n > 64<<10 || n < 63<<10 || !strings.HasSuffix(e.Diff, "+# a comment\n") {
		t.Errorf("the difference has %d bytes", n)
	}
}

// A change of texts that are not kept is an error, and does not hide the others. Web pages are not kept.
func TestEffectsWithoutABody(t *testing.T) {
	p := past{memory: &memory{
		bodies:  map[string]string{"one": "", "closed": "User-agent: *\nDisallow: /\n"},
		records: []audit.Record{get(1, "/")},
	}}
	p.changed("found gone", "found one")
	p.changed("found one", "html page")
	p.changed("html page", "unreachable")
	p.changed("unreachable", "found closed")
	got, err := proof.Effects(t.Context(), p, p.memory, siteOrigin(t), time.Time{})
	if !errors.Is(err, audit.ErrNoFile) {
		t.Errorf("the error is %v, though one text is not kept", err)
	}
	if len(got) != 2 || got[0].Alters() || got[1].Refused != 1 || got[1].Before.SHA256 != "page" {
		t.Errorf("the changes are %+v", got)
	}
}

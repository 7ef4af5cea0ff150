package robots_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/robotsproxy/robotsproxy/robots"
	"github.com/robotsproxy/robotsproxy/robots/fetch"
)

// scripted is an origin that answers with what its test says, and counts the questions.
type scripted struct {
	say   func(*robots.Answer)
	asked int
}

func (s *scripted) fetch(_ context.Context, r fetch.Request) (*robots.Answer, error) {
	s.asked++
	now := time.Now()
	snap := &robots.Answer{Origin: r.Origin, Fetched: now, Expires: now.Add(time.Hour)}
	s.say(snap)
	return snap, nil
}

func has(body string) func(*robots.Answer) {
	return func(s *robots.Answer) {
		s.Availability, s.Status, s.Body, s.SHA256 = robots.Found, 200, []byte(body), "of "+strings.Fields(body)[3]
	}
}

// A web page that is let be, as Fetcher has it, and one that is refused.
func page(s *robots.Answer) {
	s.Availability, s.Status, s.Body, s.SHA256, s.Flags = robots.Found, 200, []byte("<html>"), time.Now().String(), robots.WebPage
}

func pageRefused(s *robots.Answer) {
	down(s)
	s.Status, s.Flags = 200, robots.WebPage
}

func missing(s *robots.Answer) { s.Availability, s.Status = robots.Unavailable, 404 }

func forbidden(s *robots.Answer) {
	s.Availability, s.Status, s.Flags = robots.Unavailable, 403, robots.Unauthorized
}

func forbiddenRefused(s *robots.Answer) {
	down(s)
	s.Status, s.Flags = 403, robots.Unauthorized
}

func down(s *robots.Answer) {
	s.Cause, s.Expires = "connection_refused", s.Fetched.Add(time.Minute)
}

func busy(s *robots.Answer) {
	s.Cause, s.Status, s.Expires = "destination_unavailable", 429, s.Fetched.Add(6*time.Hour)
}

// step has an origin that says something for so many hours.
type step struct {
	say   func(*robots.Answer)
	hours int
}

// history asks every minute while an origin goes through steps, and returns what counted from which day on, and
// the changes.
func history(t *testing.T, unreachableAllows bool, steps []step) (met, changes []string) {
	origin := &scripted{}
	c := newCache(t, robots.CacheOptions{
		Fetch: origin.fetch, UnreachableAllows: unreachableAllows,
		Changed: func(change robots.Change) {
			changes = append(changes, change.OldState+" -> "+change.NewState)
		},
	})
	o := mustOrigin(t, "http://a.example")
	begin, last := time.Now(), ""
	for _, s := range steps {
		origin.say = s.say
		for end := time.Now().Add(time.Duration(s.hours) * time.Hour); time.Now().Before(end); time.Sleep(time.Minute) {
			lookUp(t, c, o)
			synctest.Wait() // for a renewal that it began
			if got := outline(lookUp(t, c, o)); got != last {
				met = append(met, fmt.Sprintf("day %d %s", int(time.Since(begin).Hours()/24), got))
				last = got
			}
		}
	}
	return met, changes
}

// TestTrouble is the life of an origin in sections of RFC 9309 (2.3.1.4), and as bot walls have it.
func TestTrouble(t *testing.T) {
	for _, row := range []struct {
		name    string
		allows  bool
		steps   []step
		met     string
		changes string
	}{
		{
			"2.3.1.4/a good copy counts for 30 days, and then all is refused", false,
			[]step{{has(file), 24}, {down, 40 * 24}, {has(file), 24}},
			"day 0 found 200 /open; day 1 stale 0 connection_refused /open; day 31 unreachable 0 connection_refused; day 41 found 200 /open",
			"found -> stale; stale -> unreachable; unreachable -> found",
		},
		{
			"2.3.1.4/or all is allowed", true,
			[]step{{has(file), 24}, {down, 40 * 24}, {has(file), 24}},
			"day 0 found 200 /open; day 1 stale 0 connection_refused /open; day 31 unavailable 0 connection_refused /open /private; day 41 found 200 /open",
			"found -> stale; stale -> unavailable; unavailable -> found",
		},
		{
			"2.3.1.4/there never was a copy", true,
			[]step{{down, 31 * 24}},
			"day 0 unreachable 0 connection_refused; day 30 unavailable 0 connection_refused /open /private",
			"unreachable -> unavailable",
		},
		{
			"2.3.1.4/30 days in a row", true,
			[]step{{down, 29 * 24}, {has(file), 24}, {down, 29 * 24}, {missing, 24}, {down, 29 * 24}},
			"day 0 unreachable 0 connection_refused; day 29 found 200 /open; day 30 stale 0 connection_refused /open; " +
				"day 59 unavailable 404 /open /private; day 60 unreachable 0 connection_refused",
			"unreachable -> found; found -> stale; stale -> unavailable; unavailable -> unreachable",
		},
		{
			"2.3.1.4/that there was no file is no copy", false,
			[]step{{missing, 24}, {down, 24}, {missing, 24}},
			"day 0 unavailable 404 /open /private; day 1 unreachable 0 connection_refused; day 2 unavailable 404 /open /private",
			"unavailable -> unreachable; unreachable -> unavailable",
		},
		{
			"2.3.1.4/nor is a web page", false,
			[]step{{page, 24}, {down, 24}},
			"day 0 html 200 /open /private; day 1 unreachable 0 connection_refused",
			"html -> unreachable",
		},
		{
			"2.3.1.4/another file comes back", false,
			[]step{{has(file), 24}, {down, 24}, {has("User-agent: *\nDisallow: /open\n"), 24}, {has(file), 24}},
			"day 0 found 200 /open; day 1 stale 0 connection_refused /open; day 2 found 200 /private; day 3 found 200 /open",
			"found -> stale; stale -> found; found -> found",
		},
		{
			"2.3.1.4/429", false,
			[]step{{has(file), 24}, {busy, 24}, {has(file), 24}},
			"day 0 found 200 /open; day 1 stale 429 destination_unavailable /open; day 2 found 200 /open",
			"found -> stale; stale -> found",
		},
		{
			"a wall/403 in the place of a copy counts after a day", false,
			[]step{{has(file), 24}, {forbidden, 72}, {has(file), 24}},
			"day 0 found 200 /open; day 1 stale 403 destination_unavailable /open; day 2 unavailable 403 /open /private; day 4 found 200 /open",
			"found -> stale; stale -> unavailable; unavailable -> found",
		},
		{
			"a wall/or refuses after a day, if it is to, and not for 30 days alone", true,
			[]step{{has(file), 24}, {forbiddenRefused, 40 * 24}},
			"day 0 found 200 /open; day 1 stale 403 connection_refused /open; day 2 unreachable 403 connection_refused",
			"found -> stale; stale -> unreachable",
		},
		{
			"a wall/a web page", false,
			[]step{{has(file), 24}, {page, 72}, {has(file), 24}},
			"day 0 found 200 /open; day 1 stale 200 destination_unavailable /open; day 2 html 200 /open /private; day 4 found 200 /open",
			"found -> stale; stale -> html; html -> found",
		},
		{
			"a wall/a web page that is refused", true,
			[]step{{has(file), 24}, {pageRefused, 72}},
			"day 0 found 200 /open; day 1 stale 200 connection_refused /open; day 2 html 200 connection_refused",
			"found -> stale; stale -> html",
		},
		{
			"a wall/it goes as it came", false,
			[]step{{has(file), 24}, {forbidden, 23}, {has(file), 24}},
			"day 0 found 200 /open; day 1 stale 403 destination_unavailable /open; day 1 found 200 /open",
			"found -> stale; stale -> found",
		},
		{
			"a wall/from the first", false,
			[]step{{forbidden, 24}, {page, 24}, {forbidden, 24}},
			"day 0 unavailable 403 /open /private; day 1 html 200 /open /private; day 2 unavailable 403 /open /private",
			"unavailable -> html; html -> unavailable",
		},
		{
			"a wall/after an outage it has its own day", false,
			[]step{{has(file), 24}, {down, 10 * 24}, {forbidden, 48}},
			"day 0 found 200 /open; day 1 stale 0 connection_refused /open; day 11 stale 403 destination_unavailable /open; " +
				"day 12 unavailable 403 /open /private",
			"found -> stale; stale -> unavailable",
		},
		{
			"a wall/a file that is gone is no wall", false,
			[]step{{has(file), 24}, {missing, 24}},
			"day 0 found 200 /open; day 1 unavailable 404 /open /private",
			"found -> unavailable",
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				met, changes := history(t, row.allows, row.steps)
				if diff := cmp.Diff(strings.Split(row.met, "; "), met); diff != "" {
					t.Errorf("what counted (-want +got):\n%s", diff)
				}
				if diff := cmp.Diff(strings.Split(row.changes, "; "), changes); diff != "" {
					t.Errorf("changes (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// TestTroubleChanges has an origin that is by turns behind a wall and not to be reached: the old copy does not count
// for ever.
func TestTroubleChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		steps := []step{{has(file), 24}}
		for range 100 {
			steps = append(steps, step{down, 12}, step{forbidden, 12})
		}
		met, _ := history(t, false, steps)
		last := ""
		for _, m := range met {
			if strings.Contains(m, "stale") {
				last, _, _ = strings.Cut(m, " stale")
			}
		}
		if last != "day 31" {
			t.Errorf("the last time that the copy counted was %s, want day 31:\n%s", last, strings.Join(met, "\n"))
		}
	})
}

// TestLongTrouble asks an origin that is down no more often after a thousand failures than after ten.
func TestLongTrouble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		site := &scripted{say: down}
		c := newCache(t, robots.CacheOptions{Fetch: site.fetch})
		o := mustOrigin(t, "http://a.example")
		const days = 40
		for range days * 24 * 60 {
			lookUp(t, c, o)
			time.Sleep(time.Minute)
		}
		if snap := lookUp(t, c, o); site.asked > days*48+5 || snap.Failures != site.asked {
			t.Errorf("%d questions and %d failures in %d days, want one in half an hour", site.asked, snap.Failures, days)
		}
	})
}

package robots_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/robotsproxy/robotsproxy/origin"
	"github.com/robotsproxy/robotsproxy/robots"
)

// paused is a host that wants no requests for some time.
type paused struct{ until time.Time }

func (p *paused) of(host string) time.Time {
	if host == "a.example" {
		return p.until
	}
	return time.Time{}
}

// TestPausedHost keeps away from it while an older copy can serve, and only then.
func TestPausedHost(t *testing.T) {
	a := func(t *testing.T) origin.Origin { return mustOrigin(t, "http://a.example") }
	for _, row := range []struct {
		name  string
		say   func(*robots.Answer)
		kept  time.Duration // between the first look-up and the pause
		want  string        // an hour after that, in a pause of two
		asked int
	}{
		{"a copy that has expired", has(file), 30 * time.Minute, "stale 200 destination_unavailable /open", 1},
		{"nothing", nil, 0, "found 200 /open", 1},
		{"no file", missing, 30 * time.Minute, "unavailable 404 /open /private", 2},
		{"a web page", page, 30 * time.Minute, "html 200 /open /private", 2},
		{"a failure", down, 30 * time.Minute, "unreachable 0 connection_refused", 2},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				site, pause := &scripted{say: row.say}, &paused{}
				c := newCache(t, robots.CacheOptions{Fetch: site.fetch, Paused: pause.of})
				if row.say != nil {
					lookUp(t, c, a(t))
				} else {
					site.say = has(file)
				}
				time.Sleep(row.kept)
				pause.until = time.Now().Add(2 * time.Hour)
				time.Sleep(time.Hour)
				snap := lookUp(t, c, a(t))
				if got := outline(snap); got != row.want || site.asked != row.asked {
					t.Errorf("in the pause: %s after %d questions, want %s after %d", got, site.asked, row.want, row.asked)
				}
				if row.asked > 1 || row.say == nil {
					return
				}
				if !snap.Renewal().Equal(pause.until) || !snap.Expires.After(pause.until) || snap.Err == nil {
					t.Errorf("in the pause: Renewal %v, Expires %v, %v; want the end of the pause, %v", snap.Renewal(), snap.Expires, snap.Err, pause.until)
				}
				time.Sleep(time.Hour)
				lookUp(t, c, a(t))
				synctest.Wait() // for the renewal
				if got := outline(lookUp(t, c, a(t))); got != "found 200 /open" || site.asked != 2 {
					t.Errorf("after the pause: %s, %d questions", got, site.asked)
				}
			})
		})
	}
}

// TestPausedForTooLong has a pause at the end of what an old copy is good for.
func TestPausedForTooLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		site, pause := &scripted{say: has(file)}, &paused{}
		c := newCache(t, robots.CacheOptions{Fetch: site.fetch, Paused: pause.of})
		o := mustOrigin(t, "http://a.example")
		lookUp(t, c, o)
		time.Sleep(time.Hour)
		site.say = down
		lookUp(t, c, o)
		time.Sleep(29 * 24 * time.Hour)
		pause.until = time.Now().Add(2 * 24 * time.Hour)
		if got := outline(lookUp(t, c, o)); got != "stale 0 connection_refused /open" || site.asked != 2 {
			t.Errorf("within the 30 days: %s after %d questions", got, site.asked)
		}
		time.Sleep(25 * time.Hour)
		if got := outline(lookUp(t, c, o)); got != "unreachable 0 connection_refused" || site.asked != 3 {
			t.Errorf("after the 30 days: %s after %d questions", got, site.asked)
		}
	})
}

// TestPausedRenewal neither asks before the copy expires nor loses it, and an operator's wish goes before a pause.
func TestPausedRenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		site, pause := &scripted{say: missing}, &paused{}
		c := newCache(t, robots.CacheOptions{Fetch: site.fetch, Paused: pause.of})
		o := mustOrigin(t, "http://a.example")
		lookUp(t, c, o)
		pause.until = time.Now().Add(2 * time.Hour)
		time.Sleep(58 * time.Minute)
		for range 2 {
			if got := outline(lookUp(t, c, o)); got != "unavailable 404 /open /private" {
				t.Errorf("before it expires: %s", got)
			}
			synctest.Wait()
		}
		if site.asked != 1 {
			t.Errorf("%d questions, want none in the pause", site.asked)
		}
		if _, err := c.Refresh(t.Context(), o); err != nil || site.asked != 2 {
			t.Errorf("Refresh: %v, %d questions", err, site.asked)
		}
	})
}

// TestRefreshJoinsPause refreshes while a fetch is under way that keeps away from a paused host: that is not what was
// asked.
func TestRefreshJoinsPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		site, pause, store := &scripted{say: has(file)}, &paused{}, newShelf()
		c := newCache(t, robots.CacheOptions{Fetch: site.fetch, Paused: pause.of, Store: store})
		o := mustOrigin(t, "http://a.example")
		lookUp(t, c, o)
		time.Sleep(2 * time.Hour)
		pause.until = time.Now().Add(time.Hour)
		store.setBefore(func(context.Context, string) error { time.Sleep(time.Second); return nil })
		var all sync.WaitGroup
		all.Go(func() {
			if got := outline(lookUp(t, c, o)); got != "stale 200 destination_unavailable /open" {
				t.Errorf("in the pause: %s", got)
			}
		})
		synctest.Wait()
		if snap, err := c.Refresh(t.Context(), o); err != nil || outline(snap) != "found 200 /open" || site.asked != 2 {
			t.Errorf("Refresh = %v, %v after %d questions, want what the origin says", snap, err, site.asked)
		}
		all.Wait()
	})
}

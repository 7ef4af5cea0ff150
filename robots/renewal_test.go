package robots_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/robotsproxy/robotsproxy/robots"
	"github.com/robotsproxy/robotsproxy/robots/fetch"
)

// TestRenewalFails has an origin fail before its answer expires: what was good goes on to its end.
func TestRenewalFails(t *testing.T) {
	for _, row := range []struct {
		name              string
		say               func(*robots.Answer)
		renewal, atExpiry string
	}{
		{"a file counts on in either case", has(file), "stale 0 connection_refused /open", "stale 0 connection_refused /open"},
		{"no file", missing, "unavailable 404 /open /private", "unreachable 0 connection_refused"},
		{"a web page", page, "html 200 /open /private", "unreachable 0 connection_refused"},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				site := &scripted{say: row.say}
				c := newCache(t, robots.CacheOptions{Fetch: site.fetch})
				o := mustOrigin(t, "http://a.example")
				lookUp(t, c, o)
				site.say = down
				time.Sleep(58 * time.Minute)
				for range 10 {
					lookUp(t, c, o)
					synctest.Wait()
				}
				if got := outline(lookUp(t, c, o)); got != row.renewal || site.asked != 2 {
					t.Errorf("before it expires: %s after %d questions, want %s after 2", got, site.asked, row.renewal)
				}
				time.Sleep(2 * time.Minute)
				if got := outline(lookUp(t, c, o)); got != row.atExpiry || site.asked != 3 {
					t.Errorf("when it has expired: %s after %d questions, want %s after 3", got, site.asked, row.atExpiry)
				}
			})
		})
	}
}

// TestRenewalHangs has nobody wait for a renewal.
func TestRenewalHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		c := newCache(t, robots.CacheOptions{Fetch: func(ctx context.Context, r fetch.Request) (*robots.Answer, error) {
			if asked++; asked > 1 {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			return found(r.Origin, file, time.Hour), nil
		}})
		o := mustOrigin(t, "http://a.example")
		lookUp(t, c, o)
		time.Sleep(58 * time.Minute)
		for range 1000 {
			begin := time.Now()
			lookUp(t, c, o)
			if got := time.Since(begin); got != 0 {
				t.Fatalf("a look-up took %v", got)
			}
		}
		synctest.Wait()
		if asked != 2 {
			t.Errorf("%d questions, want 2", asked)
		}
	})
}

// TestStaleHangs has a site that answers nothing while an older copy counts: nobody waits, and it is asked no sooner
// than before.
func TestStaleHangs(t *testing.T) {
	const timeout, retry = 10 * time.Second, time.Minute
	for _, row := range []struct {
		name  string
		asked time.Duration // for, by the site
	}{
		{"back-off", retry},
		{"2.4/Retry-After of a day", 24 * time.Hour},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var begun []time.Time
				c := newCache(t, robots.CacheOptions{Fetch: func(_ context.Context, r fetch.Request) (*robots.Answer, error) {
					begun = append(begun, time.Now())
					if len(begun) == 1 {
						return found(r.Origin, file, time.Hour), nil
					}
					time.Sleep(timeout)
					return failed(r.Origin, row.asked), nil
				}})
				o := mustOrigin(t, "http://a.example")
				lookUp(t, c, o)
				time.Sleep(time.Hour)
				lookUp(t, c, o) // the first that meets the failure waits
				for end := time.Now().Add(49 * time.Hour); time.Now().Before(end); time.Sleep(20 * time.Second) {
					began := time.Now()
					if got := outline(lookUp(t, c, o)); got != "stale 0 connection_refused /open" || time.Since(began) != 0 {
						t.Fatalf("a look-up took %v: %s", time.Since(began), got)
					}
				}
				if len(begun) < 4 {
					t.Errorf("the site was asked %d times, want again and again", len(begun))
				}
				for i := 2; i < len(begun); i++ {
					if got, want := begun[i].Sub(begun[i-1])-timeout, max(row.asked, min(retry<<min(i-2, 9), 30*time.Minute)); got < want || got > want+21*time.Second {
						t.Errorf("question %d came %v after the failure before it, want %v", i+1, got, want)
					}
				}
			})
		})
	}
}

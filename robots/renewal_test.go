package robots_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/robotsproxy/robotsproxy/robots"
)

// TestRenewalFails has an origin fail before its answer expires: what was good goes on to its end.
func TestRenewalFails(t *testing.T) {
	for _, row := range []struct {
		name              string
		say               func(*robots.Snapshot)
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
		c := newCache(t, robots.CacheOptions{Fetch: func(ctx context.Context, r robots.Request) (*robots.Snapshot, error) {
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

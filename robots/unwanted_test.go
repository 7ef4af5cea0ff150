package robots_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/robotsproxy/robotsproxy/robots"
)

// first is the tarpit that crowd.attack of the client "one" asks for.
const first = "http://0.one.tarpit.example"

// TestUnwantedInOtherPool has an unwanted fetch hold a long place while a short one is wanted, and the other way round.
// To end it would help no other fetch, so it goes on.
func TestUnwantedInOtherPool(t *testing.T) {
	t.Run("long", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c := newCrowd(t, robots.CacheOptions{MaxFetches: 2})
			leave := c.attack("one", 1)
			time.Sleep(1500 * time.Millisecond)
			leave()
			c.askAll("other", "%d.example", 4) // two of them wait
			if got := c.visit("one", mustOrigin(t, first)); got != 8500*time.Millisecond {
				t.Errorf("the fetch that was unwanted for a moment took %v more, want 8.5s", got)
			}
			c.asking.Wait()
		})
	})
	t.Run("short", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c := newCrowd(t, robots.CacheOptions{MaxFetches: 1})
			for _, client := range []string{"two", "three"} {
				c.attack(client, 1)
				c.asking.Wait()
			}
			time.Sleep(2 * time.Minute) // until the failures are to be fetched again, in the pool long
			c.attack("one", 1)()
			time.Sleep(500 * time.Millisecond)
			c.attack("two", 1)
			c.attack("three", 1) // waits
			if got := c.visit("one", mustOrigin(t, first)); got != 9500*time.Millisecond {
				t.Errorf("the fetch that was unwanted for a moment took %v more, want 9.5s", got)
			}
			c.asking.Wait()
		})
	})
}

// TestUnwantedLongGivesWay has an unwanted fetch hold a long place that an overdue one needs, whose short place another
// client waits for.
func TestUnwantedLongGivesWay(t *testing.T) {
	for _, row := range []struct {
		name   string
		leaves time.Duration // after the second fetch has begun
		want   time.Duration // until the third client has its file
	}{
		{"left before", 0, 1100*time.Millisecond + time.Second},
		{"leaves", 3 * time.Second, 4 * time.Second},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCrowd(t, robots.CacheOptions{MaxFetches: 1})
				leave := c.attack("one", 1)
				time.Sleep(2 * time.Second)
				c.attack("two", 1)
				time.AfterFunc(row.leaves, leave)
				if got := c.visit("other", mustOrigin(t, "http://a.example")); got != row.want {
					t.Errorf("a visit took %v, want %v", got, row.want)
				}
				c.asking.Wait()
			})
		})
	}
}

// TestWantedAgainIsLong has a client join an unwanted fetch that has lasted for long. It leaves its place to others.
func TestWantedAgainIsLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t, robots.CacheOptions{MaxFetches: 1})
		c.attack("one", 1)()
		time.Sleep(2 * time.Second)
		c.attack("one", 1)
		if got := c.visit("other", mustOrigin(t, "http://a.example")); got != time.Second {
			t.Errorf("a visit took %v, want 1s", got)
		}
		c.asking.Wait()
	})
}

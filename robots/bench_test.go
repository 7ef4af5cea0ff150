package robots_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/robotsproxy/robotsproxy/origin"
	"github.com/robotsproxy/robotsproxy/robots"
	"github.com/robotsproxy/robotsproxy/robots/fetch"
)

// warm returns a Cache that holds n origins, and those.
func warm(b *testing.B, n int) (*robots.Cache, []origin.Origin) {
	c := newCache(b, robots.CacheOptions{Fetch: finds})
	origins := make([]origin.Origin, n)
	for i := range origins {
		origins[i] = mustOrigin(b, fmt.Sprintf("https://www.host-%d.example", i))
		lookUp(b, c, origins[i])
	}
	return c, origins
}

// TestHitAllocates holds that a look-up of what is in memory allocates nothing.
func TestHitAllocates(t *testing.T) {
	c := newCache(t, robots.CacheOptions{Fetch: finds})
	o := mustOrigin(t, "http://a.example")
	lookUp(t, c, o)
	got := testing.AllocsPerRun(10_000, func() {
		if _, err := c.Snapshot(context.Background(), o, robots.Asker{Token: "NewsBot"}); err != nil {
			t.Fatal(err)
		}
	})
	if got != 0 && !raceEnabled {
		t.Errorf("a hit allocates %v times, want none", got)
	}
}

func BenchmarkHit(b *testing.B) {
	for _, n := range []int{1, 1000} {
		b.Run(fmt.Sprintf("%d origins", n), func(b *testing.B) {
			c, origins := warm(b, n)
			ctx, i := context.Background(), 0
			b.ReportAllocs()
			for b.Loop() {
				if _, err := c.Snapshot(ctx, origins[i%n], robots.Asker{}); err != nil {
					b.Fatal(err)
				}
				i++
			}
		})
	}
}

func BenchmarkHitParallel(b *testing.B) {
	for _, n := range []int{1, 1000} {
		b.Run(fmt.Sprintf("%d origins", n), func(b *testing.B) {
			c, origins := warm(b, n)
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for i := 0; pb.Next(); i++ {
					if _, err := c.Snapshot(context.Background(), origins[i%n], robots.Asker{}); err != nil {
						b.Error(err)
						return
					}
				}
			})
		})
	}
}

func BenchmarkFetch(b *testing.B) {
	c := newCache(b, robots.CacheOptions{Fetch: func(_ context.Context, r fetch.Request) (*robots.Answer, error) {
		return found(r.Origin, "", 0), nil // expired at once
	}})
	o := mustOrigin(b, "http://a.example")
	b.ReportAllocs()
	for b.Loop() {
		lookUp(b, c, o)
	}
}

// BenchmarkStoreHit has two origins by turns and a memory that holds one. The Store takes no time of its own.
func BenchmarkStoreHit(b *testing.B) {
	c := newCache(b, robots.CacheOptions{MaxBytes: 1, Store: newShelf(), Fetch: finds})
	origins := []origin.Origin{mustOrigin(b, "http://a.example"), mustOrigin(b, "http://b.example")}
	for _, o := range origins {
		lookUp(b, c, o)
	}
	for len(c.Unsaved()) > 0 {
		time.Sleep(time.Millisecond)
	}
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		lookUp(b, c, origins[i%2])
		i++
	}
	if got := c.Stats(); got.Fetches != 2 {
		b.Fatalf("%+v, want each fetched once", got)
	}
}

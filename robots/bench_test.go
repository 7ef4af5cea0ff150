package robots_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/robotsproxy/robotsproxy/origin"
	"github.com/robotsproxy/robotsproxy/robots"
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

func BenchmarkHit(b *testing.B) {
	for _, n := range []int{1, 1000} {
		b.Run(fmt.Sprintf("%d origins", n), func(b *testing.B) {
			c, origins := warm(b, n)
			ctx, i := context.Background(), 0
			b.ReportAllocs()
			for b.Loop() {
				if _, err := c.Snapshot(ctx, origins[i%n]); err != nil {
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
					if _, err := c.Snapshot(context.Background(), origins[i%n]); err != nil {
						b.Error(err)
						return
					}
				}
			})
		})
	}
}

func BenchmarkMiss(b *testing.B) {
	c := newCache(b, robots.CacheOptions{Fetch: func(_ context.Context, o origin.Origin) (*robots.Snapshot, error) {
		return found(o, "", 0), nil // expired at once
	}})
	o := mustOrigin(b, "http://a.example")
	b.ReportAllocs()
	for b.Loop() {
		lookUp(b, c, o)
	}
}

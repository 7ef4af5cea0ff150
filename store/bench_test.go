package store_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/robotsproxy/robotsproxy/origin"
)

func BenchmarkLoad(b *testing.B) {
	s := fresh(b)
	ctx, cancel := context.WithCancel(context.Background()) // which costs the driver a goroutine, and so it is in use
	defer cancel()
	origins := make([]origin.Origin, 1000)
	for i := range origins {
		origins[i] = mustOrigin(b, fmt.Sprintf("https://www.host-%d.example", i))
		save(b, s, found(origins[i], fmt.Sprintf("%s# %d", file, i), dawn), nil)
	}
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		if _, err := s.Load(ctx, origins[i%len(origins)]); err != nil {
			b.Fatal(err)
		}
		i++
	}
}

func BenchmarkSave(b *testing.B) {
	for _, kind := range []string{"unchanged", "unchanged 500 KiB", "changed"} {
		b.Run(kind, func(b *testing.B) {
			s, ctx := fresh(b), context.Background()
			origins := make([]origin.Origin, 1000)
			for i := range origins {
				origins[i] = mustOrigin(b, fmt.Sprintf("https://www.host-%d.example", i))
			}
			body, i := file, 0
			if kind == "unchanged 500 KiB" {
				body = fmt.Sprintf("%*s", 512_000, file)
			}
			snap := found(origins[0], body, dawn)
			b.ReportAllocs()
			for b.Loop() {
				snap.Origin, snap.Fetched = origins[i%len(origins)], dawn.Add(time.Duration(i)*time.Second)
				if kind == "changed" {
					snap = found(snap.Origin, fmt.Sprintf("%s# %d", file, i), snap.Fetched)
				}
				if err := s.Save(ctx, snap, nil); err != nil {
					b.Fatal(err)
				}
				i++
			}
		})
	}
}

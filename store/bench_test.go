package store_test

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/robotsproxy/robotsproxy/origin"
	"github.com/robotsproxy/robotsproxy/robots"
	"github.com/robotsproxy/robotsproxy/robots/fetch"
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

// BenchmarkSaveNew saves new origins with one text, one by one and a hundred at once. An operation is one origin.
func BenchmarkSaveNew(b *testing.B) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	for _, batch := range []int{1, 100} {
		b.Run(fmt.Sprint(batch), func(b *testing.B) {
			s := fresh(b)
			all := make([]robots.StoreEntry, 0, batch)
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				o := mustOrigin(b, fmt.Sprintf("https://www.host-%d.example", i*7919%1_000_003))
				if all = append(all, robots.StoreEntry{Snapshot: found(o, file, dawn)}); len(all) < batch {
					continue
				}
				if err := s.SaveAll(ctx, all); err != nil {
					b.Fatal(err)
				}
				all = all[:0]
			}
		})
	}
}

// BenchmarkSaveInto saves new texts of two sizes, into a file that has room for them and into one that is full.
func BenchmarkSaveInto(b *testing.B) {
	for _, size := range []int{2_000, 500_000} {
		for _, file := range []struct {
			name string
			size int64
		}{{"room", 1 << 40}, {"full", 64 << 20}} {
			b.Run(fmt.Sprintf("%s %d", file.name, size), func(b *testing.B) {
				s := bounded(b, filepath.Join(b.TempDir(), "state.db"), file.size, nil)
				i := 0
				add := func() {
					saveFor(b, s, "one", hostN(b, i), unique(size))
					i++
				}
				for file.name == "full" && i < int(file.size)/(size+1000) {
					add()
				}
				b.ReportAllocs()
				for b.Loop() {
					add()
				}
			})
		}
	}
}

// BenchmarkCache looks up a thousand origins in a Cache over a State: all in memory, none of them, and with a fetch
// each.
func BenchmarkCache(b *testing.B) {
	origins := make([]origin.Origin, 1000)
	for i := range origins {
		origins[i] = mustOrigin(b, fmt.Sprintf("https://www.host-%d.example", i))
	}
	for _, kind := range []struct {
		name   string
		memory int64
		lasts  time.Duration
		want   func(robots.Stats, uint64) bool // of so many look-ups
	}{
		{"hit", 64 << 20, 24 * time.Hour, func(s robots.Stats, n uint64) bool { return s.Hits == n }},
		{"store hit", 1, 24 * time.Hour, func(s robots.Stats, n uint64) bool { return s.StoreHits == n }},
		{"fetch and save", 64 << 20, 0, func(s robots.Stats, n uint64) bool { return s.Fetches == n+1000 }},
	} {
		b.Run(kind.name, func(b *testing.B) {
			c, err := robots.NewCache(robots.CacheOptions{MaxBytes: kind.memory, Store: fresh(b), Fetch: func(_ context.Context, r fetch.Request) (*robots.Answer, error) {
				snap := found(r.Origin, file, time.Now())
				snap.Expires = snap.Fetched.Add(kind.lasts)
				return &snap.Answer, nil
			}})
			if err != nil {
				b.Fatal(err)
			}
			defer c.Close()
			lookUp := func(i int) {
				if _, err := c.Snapshot(context.Background(), origins[i%len(origins)], robots.Asker{}); err != nil {
					b.Fatal(err)
				}
			}
			for i := range origins {
				lookUp(i)
			}
			for len(c.Unsaved()) > 0 {
				time.Sleep(time.Millisecond)
			}
			b.ReportAllocs()
			n := 0
			for ; b.Loop(); n++ {
				lookUp(n)
			}
			if got := c.Stats(); !kind.want(got, uint64(n)) || got.StoreErrors > 0 {
				b.Fatalf("%d look-ups, and %+v", n, got)
			}
		})
	}
}

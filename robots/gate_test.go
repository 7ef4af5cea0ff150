package robots

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/robotsproxy/robotsproxy/origin"
	"github.com/robotsproxy/robotsproxy/robots/fetch"
)

// TestPlacesComeBack has clients ask for files, leave and ask again at random, while fetches last for long, redirect,
// fail and panic. At the end all places are free, and nothing is counted any more.
func TestPlacesComeBack(t *testing.T) {
	for seed := range uint64(40) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				random := &dice{r: rand.New(rand.NewPCG(seed, 0))}
				c, err := NewCache(CacheOptions{
					Fetch: random.fetch, MaxFetches: 1 + random.upTo(4), MaxBodies: 1 + random.upTo(2), MaxQueue: 1 + random.upTo(40),
					MaxWait: 20 * time.Second,
					Spacing: func(origin.Origin, *Snapshot) time.Duration { return time.Duration(random.upTo(3)) * time.Second },
				})
				if err != nil {
					t.Fatal(err)
				}
				defer c.Close()
				var all sync.WaitGroup
				for i := range 400 {
					host := fmt.Sprintf("h%d.example:%d", random.upTo(30), 80+random.upTo(3))
					asker := Asker{Client: fmt.Sprint(random.upTo(4)), MaxWait: time.Duration(random.upTo(30)) * time.Second}
					begin, patience := random.time(60*time.Second), random.time(40*time.Second)
					o := originOf(t, host)
					all.Go(func() {
						time.Sleep(begin)
						ctx, cancel := context.WithTimeout(t.Context(), patience)
						defer cancel()
						if i%10 == 0 {
							_, _ = c.Refresh(ctx, o)
						} else {
							_, _ = c.Snapshot(ctx, o, asker)
						}
					})
				}
				all.Wait()
				time.Sleep(10 * time.Minute) // until the fetches for which no request waits have ended
				q := c.queue
				q.mu.Lock()
				defer q.mu.Unlock()
				for name, g := range map[string]*gate{"fetches": &q.fetches, "bodies": &q.bodies, "parsers": &q.parsers, "loads": &q.loads} {
					for kind, p := range map[string]*pool{"short": g.short, "long": g.long} {
						if p.free != p.places || len(p.ready) != 0 || len(p.unwanted) != 0 || p.ending != 0 {
							t.Errorf("%s, %s: %+v", name, kind, p)
						}
					}
					if g.waiting != 0 || len(g.lines) != 0 || len(g.overdue) != 0 {
						t.Errorf("%s: %d wait, %d lines, %d overdue", name, g.waiting, len(g.lines), len(g.overdue))
					}
					for key, h := range g.hosts {
						if !h.isIdle() || h.had != nil {
							t.Errorf("%s: %s: %+v", name, key, h)
						}
					}
				}
				c.inflight.mu.Lock()
				defer c.inflight.mu.Unlock()
				if len(q.slow) != 0 || len(c.inflight.of) != 0 {
					t.Errorf("%d slow bodies, %d fetches under way", len(q.slow), len(c.inflight.of))
				}
			})
		})
	}
}

// dice makes decisions at random.
type dice struct {
	mu sync.Mutex // guards r
	r  *rand.Rand
}

func (d *dice) upTo(n int) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.r.IntN(n)
}

func (d *dice) time(most time.Duration) time.Duration { return time.Duration(d.upTo(int(most))) }

// fetch uses the queue as a Fetcher does.
func (d *dice) fetch(ctx context.Context, r fetch.Request) (*Answer, error) {
	defer r.Queue.Leave()
	for d.upTo(3) == 0 { // redirects
		if !d.sleep(ctx, time.Second) {
			return nil, ctx.Err()
		}
		if err := r.Queue.Enter(ctx, fmt.Sprintf("h%d.example", d.upTo(30))); err != nil {
			return nil, err
		}
	}
	if !d.sleep(ctx, 4*time.Second) {
		return nil, ctx.Err()
	}
	now := time.Now()
	a := &Answer{Origin: r.Origin, Fetched: now, Expires: now.Add(d.time(30 * time.Second))}
	switch d.upTo(5) {
	case 0:
		return a, nil
	case 1:
		panic("a fault")
	}
	if err := r.Queue.BeginBody(ctx); err != nil {
		return nil, err
	}
	defer r.Queue.EndBody()
	if !d.sleep(ctx, 3*time.Second) {
		return nil, ctx.Err()
	}
	a.Availability = Found
	return a, r.Queue.Parse(ctx, a)
}

// sleep returns false if ctx ended before a random time.
func (d *dice) sleep(ctx context.Context, most time.Duration) bool {
	select {
	case <-time.After(d.time(most)):
		return true
	case <-ctx.Done():
		return false
	}
}

package ratelimit

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// A crawler is threads of one client that share a list of pages, each with a time-out for a whole request. A page that
// timed out is tried again at once; one that was answered 429 is tried again after the Retry-After.
type crawler struct {
	limiter *Limiter
	request Request
	timeout time.Duration
	took    time.Duration

	mu      sync.Mutex
	pages   []int
	died    map[int]int // page to how often it timed out
	told    map[int]int // page to how often it was answered 429
	arrived int
}

func (c *crawler) crawl(threads, pages int) {
	c.died, c.told = make(map[int]int), make(map[int]int)
	for i := range pages {
		c.pages = append(c.pages, i)
	}
	var all sync.WaitGroup
	for range threads {
		all.Go(func() {
			for page, ok := c.next(); ok; page, ok = c.next() {
				for !c.try(page) {
				}
			}
		})
	}
	all.Wait()
}

func (c *crawler) next() (page int, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.pages) == 0 {
		return 0, false
	}
	page, c.pages = c.pages[0], c.pages[1:]
	return page, true
}

func (c *crawler) try(page int) bool {
	ctx, cancel := context.WithTimeout(context.Background(), c.timeout)
	defer cancel()
	g, err := c.limiter.Acquire(ctx, c.request)
	var we *WaitError
	if errors.As(err, &we) {
		c.count(c.told, page)
		time.Sleep(time.Duration(math.Ceil(we.Wait.Seconds())) * time.Second)
		return false
	}
	if err != nil {
		c.count(c.died, page)
		return false
	}
	time.Sleep(c.took)
	g.Release(Outcome{Status: 200})
	c.mu.Lock()
	defer c.mu.Unlock()
	c.arrived++
	return true
}

func (c *crawler) count(m map[int]int, page int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	m[page]++
}

func total(m map[int]int) (sum, most int) {
	for _, n := range m {
		sum, most = sum+n, max(most, n)
	}
	return sum, most
}

// TestThreadsWithATimeOut is a case that was measured: threads with a time-out of 10 s under a Crawl-delay of 10 s. Held
// for as long as its MaxWait, most of what they ask for dies waiting, again and again. With learned patience and kept
// places, no page times out twice, none is told to come back in vain, and all arrive at the pace of the lane.
func TestThreadsWithATimeOut(t *testing.T) {
	const pages = 24
	for _, threads := range []int{2, 4, 8, 24} {
		crawl := func(t *testing.T, learn bool) (c *crawler, took time.Duration) {
			synctest.Test(t, func(t *testing.T) {
				c = &crawler{
					limiter: newLimiter(t, Options{}), timeout: 10 * time.Second, took: 200 * time.Millisecond,
					request: Request{Key: host, Client: "a", Agent: "threads", Delay: 10 * time.Second, MaxWait: 150 * time.Second, Patient: !learn},
				}
				begin := time.Now()
				c.crawl(threads, pages)
				took = time.Since(begin)
			})
			died, mostDied := total(c.died)
			told, mostTold := total(c.told)
			t.Logf("%d threads: %d pages in %v; %d requests timed out, %d of one page; %d were told to come back, %d of one page", threads, c.arrived, took, died, mostDied, told, mostTold)
			return c, took
		}
		t.Run(fmt.Sprint(threads), func(t *testing.T) {
			before, _ := crawl(t, false)
			without, _ := total(before.died)
			after, took := crawl(t, true)
			died, mostDied := total(after.died)
			_, mostTold := total(after.told)
			if after.arrived != pages || mostDied > 1 || mostTold > 1 || died > threads {
				t.Errorf("%d pages arrived, one timed out %d times, one was told to come back %d times; want %d, once, once", after.arrived, mostDied, mostTold, pages)
			}
			if without < 14 || without < 5*died {
				t.Errorf("%d requests timed out where nothing is learned, and %d where something is; want the difference to be large", without, died)
			}
			// A slot is the Delay, the request, and up to a second for which Retry-After is rounded up.
			if most := (pages + 2) * 11200 * time.Millisecond; took > most {
				t.Errorf("the pages took %v, want %v at most", took, most)
			}
		})
	}
}

// TestPatience has one program abandon requests, and says which waits are then hopeless. Each is followed, half a second
// later, by the program's next request, unless it says otherwise.
func TestPatience(t *testing.T) {
	begin := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	at := func(s float64) time.Time { return begin.Add(seconds(s)) }
	a := asker{"a", "Crawler/1.0"}
	// abandon has who give up a request after so long, at a moment, and go on.
	abandon := func(ps *patiences, who asker, after, moment float64) {
		ps.abandoned(who, seconds(after), at(moment))
		ps.limit(who, at(moment+0.5))
	}
	for _, test := range []struct {
		name string
		play func(ps *patiences)
		at   float64
		want time.Duration
	}{
		{"nothing", func(*patiences) {}, 0, endless},
		{"once", func(ps *patiences) { abandon(ps, a, 10, 0) }, 1, seconds(9)},
		{"once, five minutes ago", func(ps *patiences) { abandon(ps, a, 10, 0) }, 300, seconds(9)},
		{"once, longer ago", func(ps *patiences) { abandon(ps, a, 10, 0) }, 301, endless},
		{"twice", func(ps *patiences) {
			abandon(ps, a, 10, 0)
			abandon(ps, a, 10, 10)
		}, 11, seconds(9)},
		{"about the same time", func(ps *patiences) {
			abandon(ps, a, 10, 0)
			abandon(ps, a, 12, 12)
		}, 13, seconds(10.8)},
		{"not the same time", func(ps *patiences) {
			abandon(ps, a, 10, 0)
			abandon(ps, a, 12.1, 12)
			abandon(ps, a, 30, 42)
			abandon(ps, a, 3, 45)
		}, 46, seconds(2.7)},
		{"not the same time, longer ago", func(ps *patiences) {
			abandon(ps, a, 10, 0)
			abandon(ps, a, 12.1, 12)
			abandon(ps, a, 30, 42)
			abandon(ps, a, 3, 45)
		}, 346, endless},
		{"a program that was stopped, twice", func(ps *patiences) {
			ps.abandoned(a, seconds(10), at(0))
			ps.limit(a, at(2.1))
			ps.abandoned(a, seconds(10), at(20))
		}, 23, endless},
		{"a program that was stopped with all its requests, and started again", func(ps *patiences) {
			for range 8 {
				abandon(ps, a, 10, 0)
			}
		}, 301, endless},
		{"another program of the client", func(ps *patiences) {
			for i := range 5 {
				abandon(ps, asker{"a", "curl/8.0"}, 3, float64(10*i))
			}
		}, 41, endless},
		{"another client", func(ps *patiences) {
			for i := range 5 {
				abandon(ps, asker{"b", "Crawler/1.0"}, 3, float64(10*i))
			}
		}, 41, endless},
		{"a change of mind", func(ps *patiences) {
			abandon(ps, a, 0.4, 0)
			abandon(ps, a, 0.4, 10)
		}, 11, endless},
		{"the shortest of those that were abandoned together counts", func(ps *patiences) {
			abandon(ps, a, 10, 0)
			ps.abandoned(a, seconds(20), at(10))
			ps.abandoned(a, seconds(10), at(10))
			ps.abandoned(a, seconds(30), at(10))
		}, 11, seconds(9)},
		{"a longer time later does not count", func(ps *patiences) {
			abandon(ps, a, 10, 0)
			abandon(ps, a, 10, 10)
			abandon(ps, a, 30, 40)
			abandon(ps, a, 30, 70)
		}, 71, seconds(9)},
		{"an old one is no witness", func(ps *patiences) {
			abandon(ps, a, 10, 0)
			abandon(ps, a, 10, 601)
		}, 902, endless},
		{"doubled after ten minutes", func(ps *patiences) {
			abandon(ps, a, 10, 0)
			abandon(ps, a, 10, 10)
		}, 610, seconds(18)},
		{"known at once when it comes again", func(ps *patiences) {
			abandon(ps, a, 10, 0)
			abandon(ps, a, 10, 10)
			abandon(ps, a, 10, 700)
		}, 701, seconds(9)},
		{"forgotten after a year", func(ps *patiences) {
			abandon(ps, a, 10, 0)
			abandon(ps, a, 10, 10)
		}, 365 * 24 * 3600, endless},
		{"disproved", func(ps *patiences) {
			abandon(ps, a, 10, 0)
			abandon(ps, a, 10, 10)
			ps.waited(a, seconds(13), at(24))
		}, 25, endless},
		{"disproved, so that one is not enough again", func(ps *patiences) {
			abandon(ps, a, 10, 0)
			abandon(ps, a, 10, 10)
			ps.waited(a, seconds(13), at(24))
			abandon(ps, a, 10, 40)
		}, 41, endless},
		{"disproved, and two alike since", func(ps *patiences) {
			abandon(ps, a, 10, 0)
			ps.waited(a, seconds(13), at(14))
			abandon(ps, a, 10, 40)
			abandon(ps, a, 10, 60)
		}, 61, seconds(9)},
		{"disproved long ago", func(ps *patiences) {
			abandon(ps, a, 10, 0)
			ps.waited(a, seconds(13), at(14))
			abandon(ps, a, 10, 615)
		}, 616, seconds(9)},
		{"not disproved by one that is alike", func(ps *patiences) {
			abandon(ps, a, 10, 0)
			ps.waited(a, seconds(12), at(13))
		}, 14, seconds(9)},
		{"not disproved by a shorter wait", func(ps *patiences) {
			abandon(ps, a, 10, 0)
			abandon(ps, a, 10, 10)
			ps.waited(a, seconds(8), at(22))
		}, 23, seconds(9)},
	} {
		t.Run(test.name, func(t *testing.T) {
			var ps patiences
			test.play(&ps)
			if got, _ := ps.limit(a, at(test.at)); got != test.want {
				t.Errorf("the limit is %v, want %v", got, test.want)
			}
		})
	}
}

// TestPatienceIsAPrograms has one program of a client time out: what it asks next is answered at once, and
// another program of the same name is held as before.
func TestPatienceIsAPrograms(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, Options{})
		r := Request{Key: host, Client: "local", Agent: "impatient", Delay: 10 * time.Second, MaxWait: minute}
		acquire(t, l, r) // and goes on for longer than anybody waits
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		if _, err := l.Acquire(ctx, r); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Acquire: %v, want it to wait until its time is over", err)
		}
		turnedAway(t, l, r)
		r.Agent = "patient"
		send(t, l, r, 0)
	})
}

// TestWhoWaitsInVainIsTold has a program time out while others of its requests wait: those that have no chance are answered
// at once, and have a place. Nobody else is.
func TestWhoWaitsInVainIsTold(t *testing.T) {
	for _, crossed := range []bool{false, true} {
		t.Run(fmt.Sprintf("crossed %t", crossed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLimiter(t, Options{})
				r := Request{Key: host, Client: "a", Agent: "impatient", Delay: 10 * time.Second, MaxWait: time.Hour}
				send(t, l, r, 0)
				begin := time.Now()
				gaveUp, leave := context.WithCancel(t.Context())
				go l.Acquire(gaveUp, r)
				time.Sleep(time.Second)
				patient, another := r, r
				patient.Patient, another.Agent = true, "patient"
				errs := make([]chan error, 3)
				for i, r := range []Request{r, patient, another} {
					errs[i] = make(chan error, 1)
					go func() {
						g, err := l.Acquire(t.Context(), r)
						g.Release(Outcome{})
						errs[i] <- err
					}()
					synctest.Wait()
				}
				time.Sleep(4 * time.Second)
				again := make(chan error, 1)
				ask := func() {
					g, err := l.Acquire(t.Context(), r)
					g.Release(Outcome{})
					again <- err
				}
				if crossed {
					go ask()
					synctest.Wait()
				}
				leave()
				synctest.Wait()
				if !crossed {
					go ask()
				}
				for i, c := range []chan error{errs[0], again} {
					we, ok := errors.AsType[*WaitError](<-c)
					if now := time.Since(begin); !ok || now != 5*time.Second {
						t.Errorf("request %d that waits in vain was answered %v after %v, want to be told to come back after 5s", i, we, now)
					}
				}
				if got := l.Stats().Kept; got != 2 {
					t.Errorf("%d places are kept, want 2", got)
				}
				for _, c := range errs[1:] {
					if err := <-c; err != nil {
						t.Errorf("who may wait was answered %v", err)
					}
				}
			})
		})
	}
}

// TestWhoStaysCounts has a program drop one of its requests after two seconds. One that has waited for about as long is not
// counted on for a moment, until it should have left; one that has waited for longer stays, as one sees.
func TestWhoStaysCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, Options{})
		r := Request{Key: host, Client: "a", Delay: 30 * time.Second, MaxWait: time.Hour}
		send(t, l, r, 0)
		l.patiences.missed(r.Client, time.Now()) // so that no places are kept
		stay, end := context.WithCancel(t.Context())
		defer end()
		go l.Acquire(stay, r)
		time.Sleep(5 * time.Second)
		drop, leave := context.WithTimeout(t.Context(), 2*time.Second)
		defer leave()
		go l.Acquire(drop, r)
		time.Sleep(time.Second / 8)
		go l.Acquire(stay, r)
		time.Sleep(2*time.Second - time.Second/8)
		synctest.Wait()
		if we := turnedAway(t, l, r); !in(we.Wait, (23+30)*time.Second) {
			t.Errorf("told to come back after %v, want 53s: behind one", we.Wait)
		}
		time.Sleep(time.Second)
		if we := turnedAway(t, l, r); !in(we.Wait, (22+60)*time.Second) {
			t.Errorf("a second later told to come back after %v, want 82s: behind two", we.Wait)
		}
	})
}

// TestWhoWaitsInVainHoldsUpNobody has the first in the queue turned away, for whom no place is kept: the one behind it, whose
// Delay is shorter, starts at once.
func TestWhoWaitsInVainHoldsUpNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, Options{})
		r := Request{Key: host, Client: "a", Delay: 10 * time.Second, MaxWait: time.Hour}
		send(t, l, r, 0)
		begin := time.Now()
		l.patiences.missed(r.Client, begin)
		gaveUp, leave := context.WithTimeout(t.Context(), 2*time.Second)
		defer leave()
		go l.Acquire(gaveUp, r)
		time.Sleep(2*time.Second - crossed)
		go l.Acquire(t.Context(), r)
		synctest.Wait()
		var all sync.WaitGroup
		all.Go(func() {
			send(t, l, Request{Key: host, Client: "b", Delay: time.Second, MaxWait: time.Hour}, 0)
			if got := time.Since(begin); got != 2*time.Second {
				t.Errorf("the one behind was served after %v, want 2s: when the one before was turned away", got)
			}
		})
		all.Wait()
	})
}

func TestPatiencesAreBounded(t *testing.T) {
	var ps patiences
	for i := range 3*knownClients + 1 {
		ps.abandoned(asker{fmt.Sprint(i), "x"}, minute, time.Now())
		ps.missed(fmt.Sprint(i), time.Now())
		if len(ps.of) > knownClients || len(ps.misses) > knownClients {
			t.Fatalf("of %d and %d clients something is remembered, want at most %d", len(ps.of), len(ps.misses), knownClients)
		}
	}
}

// TestPatiencesAreBoundedForEachClient checks that a client with many User-Agents does not make forgotten what is known of
// another.
func TestPatiencesAreBoundedForEachClient(t *testing.T) {
	var ps patiences
	other := asker{"other", "x"}
	ps.abandoned(other, minute, time.Now())
	for i := range 2 * knownClients {
		ps.abandoned(asker{"one", fmt.Sprint(i)}, minute, time.Now())
		if len(ps.of) > knownClients {
			t.Fatalf("%d programs are remembered, want at most %d", len(ps.of), knownClients)
		}
	}
	if ps.of[other] == nil {
		t.Error("the other client's program is forgotten")
	}
}

// TestClientsThatNeverReturn has twenty clients told when to come back, which they do not, and one that waits behind
// their places. It waits for as long as was foreseen, and for the graces of those places that were its forerunners; once
// they are known not to come, no place is kept for them.
func TestClientsThatNeverReturn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, Options{})
		const away, delay = 20, 20 * time.Second
		r := Request{Key: host, Client: "stays", Delay: delay, MaxWait: time.Hour}
		send(t, l, r, 0)
		leave := func() {
			for i := range away {
				turnedAway(t, l, Request{Key: host, Client: fmt.Sprint(i), Delay: delay})
			}
		}
		leave()
		if st := l.Stats(); st.Kept != away || st.Waiting != 0 {
			t.Errorf("Stats() = %+v, want %d places kept, and nobody waiting", st, away)
		}
		// Each place is a slot of its own, foreseen; what nobody foresees is the grace of the last one.
		foreseen := (away + 1) * delay
		if got := send(t, l, r, 0); got > foreseen+longestGrace {
			t.Errorf("behind %d places the request waited %v, want %v and a grace at most", away, got, foreseen)
		}
		if got := l.Stats().Lapsed; got != away {
			t.Errorf("Stats().Lapsed = %d, want %d", got, away)
		}
		leave()
		if got := send(t, l, r, 0); !in(got, delay) {
			t.Errorf("behind clients that have not come back before the request waited %v, want %v", got, delay)
		}
		if got := l.Stats().Kept; got != away {
			t.Errorf("Stats().Kept = %d, want %d as before", got, away)
		}
	})
}

// TestClientsThatReturnLate has a client come back to each place at the end of its grace, for an hour: it costs the others
// a grace every ten minutes.
func TestClientsThatReturnLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, Options{})
		const delay = 10 * time.Second
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		var all sync.WaitGroup
		all.Go(func() {
			for ctx.Err() == nil {
				g, err := l.Acquire(ctx, Request{Key: host, Client: "late", Delay: delay})
				g.Release(Outcome{})
				if we, ok := errors.AsType[*WaitError](err); ok {
					time.Sleep((we.Wait + time.Second - 1).Truncate(time.Second) + delay - time.Millisecond)
				}
			}
		})
		served := 0
		for range 4 {
			all.Go(func() {
				for ctx.Err() == nil {
					if g, err := l.Acquire(ctx, Request{Key: host, Client: "waits", Delay: delay, MaxWait: time.Hour}); err == nil {
						served++
						g.Release(Outcome{})
					}
				}
			})
		}
		all.Wait()
		if want := 340; served < want {
			t.Errorf("who waits was served %d times in an hour, want %d of 360 at least", served, want)
		}
	})
}

// TestPlacesUnderAFloor has a client told to come back to a host without a Delay, which an operator has slowed down: its
// place is kept for as long as that asks for.
func TestPlacesUnderAFloor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, Options{})
		if err := l.SetFloor(host, 10*time.Second); err != nil {
			t.Fatal(err)
		}
		r := Request{Key: host, Client: "a"}
		send(t, l, r, 0)
		turnedAway(t, l, r)
		waited := make(chan time.Duration)
		go func() { waited <- send(t, l, Request{Key: host, Client: "b", MaxWait: time.Hour}, 0) }()
		time.Sleep(19 * time.Second)
		send(t, l, r, 0)
		if got := <-waited; !in(got, 29*time.Second) {
			t.Errorf("behind the place the request waited %v, want the other's 19s and 10s", got)
		}
	})
}

// TestComeBack has a client told to come back, and another wait behind its place.
func TestComeBack(t *testing.T) {
	const delay = 20 * time.Second
	for _, test := range []struct {
		name   string
		after  time.Duration // when it comes back; its moment is after 20 s
		back   time.Duration // when it is served, 0 if it is turned away
		behind time.Duration // when the other is served
	}{
		{"in time", delay, delay, 2 * delay},
		{"within the grace", delay + longestGrace - 1, delay + longestGrace - 1, 2*delay + longestGrace - 1},
		{"too late", delay + longestGrace + 1, 0, delay + longestGrace},
		{"a little early", delay - early, 0, delay - early + time.Second + longestGrace}, // it does not wait at all, and is told a second
		{"much too early", delay / 2, 0, delay + longestGrace},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLimiter(t, Options{})
				r := Request{Key: host, Client: "a", Delay: delay}
				send(t, l, r, 0)
				begin := time.Now()
				if we := turnedAway(t, l, r); !in(we.Wait, delay) {
					t.Errorf("told to come back after %v, want %v", we.Wait, delay)
				}
				var all sync.WaitGroup
				all.Go(func() {
					send(t, l, Request{Key: host, Client: "b", Delay: delay, MaxWait: time.Hour}, 0)
					if got := time.Since(begin); !in(got, test.behind) {
						t.Errorf("the one behind was served after %v, want %v", got, test.behind)
					}
				})
				time.Sleep(test.after)
				g, err := l.Acquire(t.Context(), r)
				if (err == nil) != (test.back > 0) {
					t.Errorf("Acquire after %v: %v, want it served after %v (0: not)", time.Since(begin), err, test.back)
				}
				g.Release(Outcome{Status: 200})
				all.Wait()
			})
		})
	}
}

// TestKeptPlacesMakeRoom has the requests that were before a kept place leave: others may go first, as long as they are
// over before its moment.
func TestKeptPlacesMakeRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, Options{})
		r := Request{Key: host, Client: "a", Delay: 10 * time.Second, MaxWait: time.Hour}
		send(t, l, r, 0)
		begin := time.Now()
		ctx, cancel := context.WithCancel(t.Context())
		for range 4 {
			go l.Acquire(ctx, r)
		}
		synctest.Wait()
		b := r
		b.Client, b.MaxWait = "b", 0
		for range 3 {
			turnedAway(t, l, b) // after 20, 40 and 50 s
		}
		cancel()
		synctest.Wait()
		for i, want := range []time.Duration{10 * time.Second, 30 * time.Second, 60 * time.Second} {
			if i > 0 {
				time.Sleep(time.Until(begin.Add(want - 10*time.Second)))
				b.MaxWait = time.Second
				send(t, l, b, 0) // b is back for its place
			}
			if i == 2 {
				break
			}
			c := r
			c.Client = "c"
			send(t, l, c, 0)
			if got := time.Since(begin).Round(time.Second); got != want {
				t.Errorf("request %d of c was served after %v, want %v", i, got, want)
			}
		}
	})
}

// TestKeptPlacesAreNoQueue has a place kept far off, since others have left: who does not wait at all is served before it
// as if it were not there.
func TestKeptPlacesAreNoQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, Options{})
		r := Request{Key: host, Client: "a", Delay: 10 * time.Second, MaxWait: time.Hour}
		send(t, l, r, 0)
		ctx, cancel := context.WithCancel(t.Context())
		for range 4 {
			go l.Acquire(ctx, r)
		}
		synctest.Wait()
		b, c := r, r
		b.Client, b.MaxWait = "b", 0
		c.Client, c.MaxWait = "c", 0
		turnedAway(t, l, b) // after 20 s
		turnedAway(t, l, b) // after 40 s
		cancel()
		time.Sleep(10 * time.Second)
		send(t, l, c, 0)
		time.Sleep(9 * time.Second)
		if we := turnedAway(t, l, c); we.Wait < 11*time.Second {
			t.Errorf("just before a place that is kept, told to come back after %v, want it to go first", we.Wait)
		}
		time.Sleep(time.Second)
		send(t, l, b, 0)
	})
}

// TestPlacesAfterAPause has a client come back to its place while the host is paused: it is told when the pause is over,
// and served then.
func TestPlacesAfterAPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, Options{})
		r := Request{Key: host, Client: "a", Delay: 10 * time.Second}
		g := acquire(t, l, r)
		g.Release(Outcome{})
		turnedAway(t, l, r)
		l.Hear(host, "b", Outcome{Status: 503, RetryAfter: minute})
		time.Sleep(10 * time.Second)
		we := turnedAway(t, l, r)
		if we.Source != RetryAfter || !in(we.Wait, 50*time.Second) {
			t.Errorf("in the pause: %+v, want to be told of its other 50s", we)
		}
		time.Sleep(50 * time.Second)
		send(t, l, r, 0)
	})
}

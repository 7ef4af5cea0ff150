package proxy

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/robotsproxy/robotsproxy/ratelimit"
)

// A crawler is one program with several threads that share a list of pages and have a time-out for each request. A
// thread that was answered 429 sleeps for the Retry-After. After that, and at once after a time-out, it tries the page
// again; with requeue, it appends the page to the list and takes the next one.
type crawler struct {
	limiter  *ratelimit.Limiter
	timeouts timeouts
	request  ratelimit.Request
	waits    bool // each request says that it waits as long as MaxWait
	requeue  bool
	timeout  time.Duration
	took     time.Duration

	mu      sync.Mutex
	pages   []int
	died    map[int]int // by page: how often it timed out
	told    map[int]int // by page: how often it was answered 429
	inVain  int         // how often a thread was answered 429 when it came back after a Retry-After
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
			back := false
			for page, ok := c.next(); ok; page, ok = c.next() {
				back = c.get(page, back)
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

// get gets a page, or requeues it. back says that the thread comes back after a Retry-After, and so does the result.
func (c *crawler) get(page int, back bool) bool {
	for {
		told, arrived := c.try(page)
		c.mu.Lock()
		switch {
		case arrived:
			c.arrived++
		case told && back:
			c.inVain++
		}
		if !arrived && c.requeue {
			c.pages = append(c.pages, page)
		}
		c.mu.Unlock()
		if arrived || c.requeue {
			return told
		}
		back = told
	}
}

// try requests a page once, and reports whether it arrived or was answered 429.
func (c *crawler) try(page int) (told, arrived bool) {
	ctx, cancel := context.WithTimeout(context.Background(), c.timeout)
	defer cancel()
	g, err := c.timeouts.acquire(ctx, c.limiter, c.request, program{c.request.Client, "threads"}, c.waits)
	var we *ratelimit.WaitError
	if errors.As(err, &we) {
		c.count(c.told, page)
		time.Sleep(time.Duration(math.Ceil(we.Wait.Seconds())) * time.Second)
		return true, false
	}
	if err != nil {
		c.count(c.died, page)
		return false, false
	}
	time.Sleep(c.took)
	g.Release(ratelimit.Outcome{Status: 200})
	return false, true
}

func (c *crawler) count(m map[int]int, page int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	m[page]++
}

func secs(n float64) time.Duration { return time.Duration(n * float64(time.Second)) }

func total(m map[int]int) (sum, most int) {
	for _, n := range m {
		sum, most = sum+n, max(most, n)
	}
	return sum, most
}

// TestThreadsWithATimeOut is a case that was measured: threads with a time-out of 10 s under a Crawl-delay of 10 s.
// Held for as long as MaxWait, most requests time out, again and again. With a learned time-out, no page times out
// twice, no thread comes back in vain, and all pages arrive at the pace of the lane.
func TestThreadsWithATimeOut(t *testing.T) {
	const pages = 24
	for _, requeue := range []bool{false, true} {
		for _, threads := range []int{2, 4, 8, 24} {
			crawl := func(t *testing.T, learn bool) (c *crawler, took time.Duration) {
				synctest.Test(t, func(t *testing.T) {
					limiter, err := ratelimit.New(ratelimit.Options{})
					if err != nil {
						t.Fatal(err)
					}
					c = &crawler{
						limiter: limiter, waits: !learn, requeue: requeue, timeout: 10 * time.Second, took: 200 * time.Millisecond,
						request: ratelimit.Request{Key: "a.example", Client: "a", Delay: 10 * time.Second, MaxWait: 150 * time.Second},
					}
					begin := time.Now()
					c.crawl(threads, pages)
					took = time.Since(begin)
				})
				died, mostDied := total(c.died)
				told, mostTold := total(c.told)
				t.Logf("%d threads: %d pages in %v; %d requests timed out, %d of one page; %d were told to come back, %d of one page, %d in vain", threads, c.arrived, took, died, mostDied, told, mostTold, c.inVain)
				return c, took
			}
			t.Run(fmt.Sprintf("%d threads, requeue %t", threads, requeue), func(t *testing.T) {
				before, _ := crawl(t, false)
				without, _ := total(before.died)
				after, took := crawl(t, true)
				died, mostDied := total(after.died)
				_, mostTold := total(after.told)
				if after.arrived != pages || mostDied > 1 || died > threads {
					t.Errorf("%d pages arrived, one timed out %d times; want %d, once", after.arrived, mostDied, pages)
				}
				if after.inVain > 0 || !requeue && mostTold > 1 {
					t.Errorf("%d threads came back in vain, and one page was told to come back %d times; want none and once", after.inVain, mostTold)
				}
				if without < 14 || without < 5*died {
					t.Errorf("%d requests timed out without a learned time-out, and %d with one; want a large difference", without, died)
				}
				// A slot is the Delay, the request, and up to a second for which Retry-After is rounded up.
				if most := (pages + 2) * 11200 * time.Millisecond; took > most {
					t.Errorf("the pages took %v, want %v at most", took, most)
				}
			})
		}
	}
}

// TestShortTimeoutBesideWaitingClients has a client with a time-out of 10 s share a host with a client that waits. The
// first gets about half of the turns. Without reservations it gets 1 of 176 in half an hour, and one page times out
// five times.
func TestShortTimeoutBesideWaitingClients(t *testing.T) {
	for _, threads := range []int{1, 2, 8} {
		t.Run(fmt.Sprint(threads), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				limiter, err := ratelimit.New(ratelimit.Options{})
				if err != nil {
					t.Fatal(err)
				}
				newCrawler := func(client string, timeout time.Duration) *crawler {
					return &crawler{
						limiter: limiter, timeout: timeout, took: 200 * time.Millisecond,
						request: ratelimit.Request{Key: "a.example", Client: client, Delay: 10 * time.Second, MaxWait: 150 * time.Second},
					}
				}
				short, waits := newCrawler("short", 10*time.Second), newCrawler("waits", time.Hour)
				begin := time.Now()
				var all sync.WaitGroup
				all.Go(func() { waits.crawl(4, 120) })
				short.crawl(threads, 80)
				took := time.Since(begin)
				all.Wait()
				died, mostDied := total(short.died)
				t.Logf("%d threads: 80 pages in %v; %d requests timed out, %d of one page", threads, took, died, mostDied)
				if most := 40 * time.Minute; took > most || mostDied > 1 {
					t.Errorf("80 pages took %v, and one timed out %d times; want %v at most, and once", took, mostDied, most)
				}
			})
		})
	}
}

// TestTimeouts has programs abandon requests, and checks for how long the next one may be held. Half a second after
// each, the program sends its next request, unless a case does otherwise.
func TestTimeouts(t *testing.T) {
	begin := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	at := func(s float64) time.Time { return begin.Add(secs(s)) }
	a := program{"a", "Crawler/1.0"}
	// abandon has p abandon a request after so many seconds, at a moment, and send the next one half a second later.
	abandon := func(ts *timeouts, p program, after, moment float64) {
		ts.abandoned(p, secs(after), at(moment))
		ts.limit(p, at(moment+0.5))
	}
	for _, test := range []struct {
		name string
		play func(ts *timeouts)
		at   float64
		want time.Duration
	}{
		{"nothing", func(*timeouts) {}, 0, forever},
		{"once", func(ts *timeouts) { abandon(ts, a, 10, 0) }, 1, secs(9)},
		{"once, five minutes ago", func(ts *timeouts) { abandon(ts, a, 10, 0) }, 300, secs(9)},
		{"once, longer ago", func(ts *timeouts) { abandon(ts, a, 10, 0) }, 301, forever},
		{"twice", func(ts *timeouts) {
			abandon(ts, a, 10, 0)
			abandon(ts, a, 10, 10)
		}, 11, secs(9)},
		{"about the same time", func(ts *timeouts) {
			abandon(ts, a, 10, 0)
			abandon(ts, a, 12, 12)
		}, 13, secs(10.8)},
		{"not the same time", func(ts *timeouts) {
			abandon(ts, a, 10, 0)
			abandon(ts, a, 12.1, 12)
			abandon(ts, a, 30, 42)
			abandon(ts, a, 3, 45)
		}, 46, secs(2.7)},
		{"not the same time, longer ago", func(ts *timeouts) {
			abandon(ts, a, 10, 0)
			abandon(ts, a, 12.1, 12)
			abandon(ts, a, 30, 42)
			abandon(ts, a, 3, 45)
		}, 346, forever},
		{"a program that was stopped, twice", func(ts *timeouts) {
			ts.abandoned(a, secs(10), at(0))
			ts.limit(a, at(2.1))
			ts.abandoned(a, secs(10), at(20))
		}, 23, forever},
		{"a program that was stopped with all its requests, and started again", func(ts *timeouts) {
			for range 8 {
				abandon(ts, a, 10, 0)
			}
		}, 301, forever},
		{"another program of the client", func(ts *timeouts) {
			for i := range 5 {
				abandon(ts, program{"a", "curl/8.0"}, 3, float64(10*i))
			}
		}, 41, forever},
		{"another client", func(ts *timeouts) {
			for i := range 5 {
				abandon(ts, program{"b", "Crawler/1.0"}, 3, float64(10*i))
			}
		}, 41, forever},
		{"too early for a time-out", func(ts *timeouts) {
			abandon(ts, a, 0.4, 0)
			abandon(ts, a, 0.4, 10)
		}, 11, forever},
		{"the shortest of those that were abandoned together counts", func(ts *timeouts) {
			abandon(ts, a, 10, 0)
			ts.abandoned(a, secs(20), at(10))
			ts.abandoned(a, secs(10), at(10))
			ts.abandoned(a, secs(30), at(10))
		}, 11, secs(9)},
		{"a longer time later does not count", func(ts *timeouts) {
			abandon(ts, a, 10, 0)
			abandon(ts, a, 10, 10)
			abandon(ts, a, 30, 40)
			abandon(ts, a, 30, 70)
		}, 71, secs(9)},
		{"an old one does not confirm", func(ts *timeouts) {
			abandon(ts, a, 10, 0)
			abandon(ts, a, 10, 601)
		}, 902, forever},
		{"doubled after ten minutes", func(ts *timeouts) {
			abandon(ts, a, 10, 0)
			abandon(ts, a, 10, 10)
		}, 610, secs(18)},
		{"known at once when it comes again", func(ts *timeouts) {
			abandon(ts, a, 10, 0)
			abandon(ts, a, 10, 10)
			abandon(ts, a, 10, 700)
		}, 701, secs(9)},
		{"forgotten after a year", func(ts *timeouts) {
			abandon(ts, a, 10, 0)
			abandon(ts, a, 10, 10)
		}, 365 * 24 * 3600, forever},
		{"refuted", func(ts *timeouts) {
			abandon(ts, a, 10, 0)
			abandon(ts, a, 10, 10)
			ts.waited(a, secs(13), at(24))
		}, 25, forever},
		{"refuted, so that one is not enough", func(ts *timeouts) {
			abandon(ts, a, 10, 0)
			abandon(ts, a, 10, 10)
			ts.waited(a, secs(13), at(24))
			abandon(ts, a, 10, 40)
		}, 41, forever},
		{"refuted, and two alike since", func(ts *timeouts) {
			abandon(ts, a, 10, 0)
			ts.waited(a, secs(13), at(14))
			abandon(ts, a, 10, 40)
			abandon(ts, a, 10, 60)
		}, 61, secs(9)},
		{"refuted long ago", func(ts *timeouts) {
			abandon(ts, a, 10, 0)
			ts.waited(a, secs(13), at(14))
			abandon(ts, a, 10, 615)
		}, 616, secs(9)},
		{"not refuted by one that is alike", func(ts *timeouts) {
			abandon(ts, a, 10, 0)
			ts.waited(a, secs(12), at(13))
		}, 14, secs(9)},
		{"the next request arrives before the last one ends", func(ts *timeouts) {
			for i := range 3 {
				ts.limit(a, at(float64(10*i)-0.1))
				ts.abandoned(a, secs(10), at(float64(10*i)))
			}
		}, 320, secs(9)},
		{"the next request arrives too early to follow from the last one", func(ts *timeouts) {
			for i := range 3 {
				ts.limit(a, at(float64(10*i)-0.11))
				ts.abandoned(a, secs(10), at(float64(10*i)))
			}
		}, 23, forever},
		{"not refuted by a shorter wait", func(ts *timeouts) {
			abandon(ts, a, 10, 0)
			abandon(ts, a, 10, 10)
			ts.waited(a, secs(8), at(22))
		}, 23, secs(9)},
	} {
		t.Run(test.name, func(t *testing.T) {
			var ts timeouts
			test.play(&ts)
			if got := ts.limit(a, at(test.at)); got != test.want {
				t.Errorf("the limit is %v, want %v", got, test.want)
			}
		})
	}
}

// TestTimeoutOfOneProgram has one program of a client abandon a request: its next one is answered at once, and another
// program of the client is held as before.
func TestTimeoutOfOneProgram(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter, err := ratelimit.New(ratelimit.Options{})
		if err != nil {
			t.Fatal(err)
		}
		var ts timeouts
		acquire := func(agent string, timeout time.Duration, preferred bool) (ratelimit.Grant, error) {
			ctx, cancel := context.WithTimeout(t.Context(), timeout)
			defer cancel()
			r := ratelimit.Request{Key: "a.example", Client: "local", Delay: 10 * time.Second, MaxWait: time.Minute}
			return ts.acquire(ctx, limiter, r, program{r.Client, agent}, preferred)
		}
		g, err := acquire("impatient", time.Hour, false)
		if err != nil {
			t.Fatal(err)
		}
		g.Release(ratelimit.Outcome{})
		if _, err := acquire("impatient", 5*time.Second, false); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("acquire: %v, want the time-out", err)
		}
		if _, err := acquire("impatient", 5*time.Second, false); !isWait(err) {
			t.Errorf("acquire after a time-out: %v, want a WaitError", err)
		}
		for _, test := range []struct {
			agent     string
			preferred bool
		}{{"patient", false}, {"impatient", true}} {
			g, err := acquire(test.agent, time.Hour, test.preferred)
			if err != nil {
				t.Errorf("acquire for %+v: %v, want it to wait", test, err)
			}
			g.Release(ratelimit.Outcome{})
		}
	})
}

// TestPartsShowNoTimeout has a client leave a page twice while its parts wait: its next request may wait.
func TestPartsShowNoTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, err := ratelimit.New(ratelimit.Options{MaxConcurrent: 1})
		if err != nil {
			t.Fatal(err)
		}
		var ts timeouts
		p := program{"a", "browser"}
		r := ratelimit.Request{Key: "a.example", Client: "a", MaxWait: time.Minute, Part: true}
		under, err := l.Acquire(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			ctx, leave := context.WithTimeout(t.Context(), time.Second)
			if _, err := ts.acquire(ctx, l, r, p, false); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("acquire: %v, want it to wait until the client leaves", err)
			}
			leave()
		}
		time.AfterFunc(10*time.Second, func() { under.Release(ratelimit.Outcome{}) })
		r.Part = false
		if g, err := ts.acquire(t.Context(), l, r, p, false); err != nil || g.Waited() != 10*time.Second {
			t.Errorf("the next request waited %v: %v; want 10s", g.Waited(), err)
		}
	})
}

func isWait(err error) bool {
	_, ok := errors.AsType[*ratelimit.WaitError](err)
	return ok
}

// TestProgramOfRequest has a client send its User-Agent.
func TestProgramOfRequest(t *testing.T) {
	r := newRig(t, nil)
	req := &http.Request{Header: http.Header{"User-Agent": {"Crawler/1.0"}}, URL: &url.URL{Scheme: "http", Host: "a.example"}}
	ex := r.server.newExchange(nil, req, nil)
	ex.client, ex.share = local, local.Name
	if got, want := ex.program(), (program{local.Name, "Crawler/1.0"}); got != want {
		t.Errorf("program() = %v, want the client and its User-Agent: %v", got, want)
	}
}

func TestTimeoutsAreBounded(t *testing.T) {
	var ts timeouts
	for i := range 3*mostPrograms + 1 {
		ts.abandoned(program{fmt.Sprint(i), "x"}, time.Minute, time.Now())
		if len(ts.programs) > mostPrograms {
			t.Fatalf("%d programs are remembered, want at most %d", len(ts.programs), mostPrograms)
		}
	}
}

// TestTimeoutsAreBoundedForEachClient checks that a client with many User-Agents removes nothing of another
// client.
func TestTimeoutsAreBoundedForEachClient(t *testing.T) {
	var ts timeouts
	other := program{"other", "x"}
	ts.abandoned(other, time.Minute, time.Now())
	for i := range 2 * mostPrograms {
		ts.abandoned(program{"one", fmt.Sprint(i)}, time.Minute, time.Now())
		if len(ts.programs) > mostPrograms {
			t.Fatalf("%d programs are remembered, want at most %d", len(ts.programs), mostPrograms)
		}
	}
	if ts.programs[other] == nil {
		t.Error("the program of the other client was removed")
	}
}

package ratelimit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

const host = "a.example"

// A visit is one request that was sent.
type visit struct {
	client           string
	delay            time.Duration
	asked            time.Time
	start, end       time.Time
	gap              time.Duration
	hasGap           bool
	grantsSinceAsked int
	moves            uint64 // the lane's count of what happened, since requests may start at the same moment
}

// A site records the requests that reach it.
type site struct {
	limiter *Limiter
	mu      sync.Mutex
	visits  []visit
}

// visit acquires, holds the Grant for took, and releases it.
func (s *site) visit(ctx context.Context, r Request, took time.Duration) error {
	s.mu.Lock()
	before, asked := len(s.visits), time.Now()
	s.mu.Unlock()
	g, err := s.limiter.Acquire(ctx, r)
	if err != nil {
		return err
	}
	v := visit{client: r.Client, delay: r.Delay, asked: asked, start: time.Now(), moves: g.inflight.moves}
	v.gap, v.hasGap = g.Gap()
	s.mu.Lock()
	v.grantsSinceAsked = len(s.visits) - before
	i := len(s.visits)
	s.visits = append(s.visits, v)
	s.mu.Unlock()
	time.Sleep(took)
	g.Release(Outcome{Status: 200})
	s.mu.Lock()
	s.visits[i].end = time.Now()
	s.mu.Unlock()
	return nil
}

// check compares each request with all that were sent before it. With a Delay, no other may be in flight, and the
// Delay must have passed since the last of them ended or ReleaseAfter passed. Without a Delay, fewer than
// MaxConcurrent may be in flight.
func (s *site) check(tb rapid.TB) {
	tb.Helper()
	o := s.limiter.rules()
	slices.SortFunc(s.visits, func(a, b visit) int { return cmp.Or(a.start.Compare(b.start), cmp.Compare(a.moves, b.moves)) })
	for i, v := range s.visits {
		underWay, latest := 0, time.Time{}
		for j, w := range s.visits[:i] {
			end := w.start.Add(o.ReleaseAfter)
			if w.end.Before(end) {
				end = w.end
			}
			if end.After(v.start) {
				underWay++
			}
			latest = later(latest, end)
			from := end
			if o.SpacingStart {
				from = w.start
			}
			if gap := v.start.Sub(from); v.delay > 0 && gap < v.delay {
				tb.Errorf("request %d (%s) started %v after request %d (%s), want at least %v", i, v.client, gap, j, w.client, v.delay)
			}
		}
		if v.hasGap && v.gap < v.delay || !v.hasGap && v.start.Sub(latest) < remembered {
			tb.Errorf("request %d (%s): Gap() = %v, %v, want at least %v", i, v.client, v.gap, v.hasGap, v.delay)
		}
		if v.delay > 0 && underWay > 0 {
			tb.Errorf("request %d (%s, delay %v): %d others were in flight", i, v.client, v.delay, underWay)
		}
		if v.delay == 0 && o.MaxConcurrent > 0 && underWay >= o.MaxConcurrent {
			tb.Errorf("request %d (%s): %d others were in flight, want less than %d", i, v.client, underWay, o.MaxConcurrent)
		}
	}
}

// checkAtRest checks the counters after the end of all requests.
func checkAtRest(tb rapid.TB, l *Limiter, sent int) {
	tb.Helper()
	st := l.Stats()
	if st.Waiting != 0 || int(st.Granted-st.Cancelled) != sent {
		tb.Errorf("Stats() = %+v after the end of all requests, want Waiting 0 and Granted-Cancelled %d", st, sent)
	}
}

func TestThousandClients(t *testing.T) {
	for _, o := range []Options{{}, {SpacingStart: true}} {
		t.Run(fmt.Sprintf("SpacingStart %v", o.SpacingStart), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { thousandClients(t, o) })
		})
	}
}

// thousandClients sends requests of a thousand clients to one host. Every fourth is cancelled while it waits.
func thousandClients(t *testing.T, o Options) {
	const delay = 100 * time.Millisecond
	s := &site{limiter: newLimiter(t, o)}
	rng := rand.New(rand.NewPCG(1, 2))
	var took time.Duration
	var all sync.WaitGroup
	var gone int
	begin := time.Now()
	for i := range 1000 {
		ctx, hold := context.Background(), time.Duration(rng.IntN(50))*time.Millisecond
		if o.SpacingStart {
			hold *= 3 // now and then longer than the delay
		}
		if i%4 == 3 {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, time.Duration(rng.IntN(20_000))*time.Millisecond)
			defer cancel()
		}
		all.Go(func() {
			err := s.visit(ctx, Request{Key: host, Client: fmt.Sprint(i), Delay: delay, MaxWait: time.Hour}, hold)
			s.mu.Lock()
			defer s.mu.Unlock()
			switch {
			case err == nil && o.SpacingStart:
				took += max(hold, delay)
			case err == nil:
				took += hold + delay
			case errors.Is(err, context.DeadlineExceeded):
				gone++
			default:
				t.Errorf("Acquire for client %d: %v", i, err)
			}
		})
	}
	all.Wait()
	s.check(t)
	checkAtRest(t, s.limiter, len(s.visits))
	if gone == 0 || gone+len(s.visits) != 1000 {
		t.Errorf("%d requests were sent and %d cancelled, want 1000 in total and some of both", len(s.visits), gone)
	}
	used := took.Seconds() / time.Since(begin).Seconds()
	t.Logf("%d sent, %d cancelled, %.4f of the time used", len(s.visits), gone, used)
	if used < 0.97 {
		t.Errorf("%.3f of the time was used, want at least 0.97", used)
	}
}

// TestFairness has one client send a hundred requests at once, and nineteen others one after the other. The first
// request of a client may see at most n others start before it.
func TestFairness(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 20
		s := &site{limiter: newLimiter(t, Options{})}
		r := Request{Key: host, Delay: time.Second, MaxWait: time.Hour}
		var all sync.WaitGroup
		greedy := r
		greedy.Client = "greedy"
		for range 100 {
			all.Go(func() { s.visit(t.Context(), greedy, 10*time.Millisecond) })
		}
		synctest.Wait()
		for i := range n - 1 {
			r := r
			r.Client = fmt.Sprint(i)
			all.Go(func() {
				for range 10 {
					if err := s.visit(t.Context(), r, 10*time.Millisecond); err != nil {
						t.Errorf("Acquire for %s: %v", r.Client, err)
					}
				}
			})
		}
		all.Wait()
		s.check(t)
		last := make(map[string]int)
		for i, v := range s.visits {
			if v.client != "greedy" && v.grantsSinceAsked > n {
				t.Errorf("request %d: client %s saw %d others go first, want at most %d", i, v.client, v.grantsSinceAsked, n)
			}
			if j, ok := last[v.client]; ok && i-j > n+1 {
				t.Errorf("request %d: client %s had its turn after %d, want at most %d", i, v.client, i-j, n+1)
			}
			last[v.client] = i
		}
		if len(s.visits) != 100+10*(n-1) {
			t.Errorf("%d requests were sent, want %d", len(s.visits), 100+10*(n-1))
		}
	})
}

// TestFirstInFirstOut checks that the requests of one client are sent in the order in which they were made.
func TestFirstInFirstOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, Options{})
		var all sync.WaitGroup
		var order []int
		for i := range 50 {
			all.Go(func() {
				g, err := l.Acquire(t.Context(), Request{Key: host, Client: "a", Delay: time.Second, MaxWait: time.Hour})
				if err != nil {
					t.Errorf("Acquire %d: %v", i, err)
					return
				}
				order = append(order, i) // one at a time, as the lane has it
				g.Release(Outcome{})
			})
			synctest.Wait()
		}
		all.Wait()
		if !slices.IsSorted(order) || len(order) != 50 {
			t.Errorf("the requests were sent in the order %v", order)
		}
	})
}

// TestHeadsVanish cancels each request just before, at, or just after the moment of its Grant. The next request must
// start at the moment of the cancelled one, which must not count as sent.
func TestHeadsVanish(t *testing.T) {
	for _, off := range []time.Duration{-time.Nanosecond, 0, time.Nanosecond} {
		t.Run(off.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const delay = time.Second
				l := newLimiter(t, Options{})
				r := Request{Key: host, Delay: delay, MaxWait: time.Hour}
				for round := range 200 {
					g, err := l.Acquire(t.Context(), r)
					if err != nil {
						t.Fatalf("round %d: Acquire: %v", round, err)
					}
					g.Release(Outcome{})
					end := time.Now()
					ctx, cancel := context.WithTimeout(t.Context(), delay+off)
					var all sync.WaitGroup
					for i := range 5 {
						all.Go(func() {
							r := r
							r.Client = fmt.Sprint("leaves", i)
							g, err := l.Acquire(ctx, r)
							if err == nil && ctx.Err() != nil && off != 0 { // at the very moment, it may leave just after
								t.Errorf("round %d: a cancelled request got a Grant", round)
							}
							g.Cancel() // if it was granted, it sees now that its client has left
						})
					}
					synctest.Wait()
					all.Go(func() {
						r := r
						r.Client = "stays"
						g, err := l.Acquire(t.Context(), r)
						if err != nil {
							t.Errorf("round %d: Acquire: %v", round, err)
							return
						}
						if got := time.Since(end); got < delay || got > delay+time.Nanosecond {
							t.Errorf("round %d: the next request started after %v, want %v", round, got, delay)
						}
						g.Release(Outcome{})
					})
					all.Wait()
					cancel()
					time.Sleep(time.Minute)
				}
				checkAtRest(t, l, 400)
			})
		})
	}
}

// A call is one request of a random plan.
type call struct {
	Request
	arrives, took, patience time.Duration
	cancels                 bool // it is granted and not sent
}

func drawOptions(t *rapid.T) Options {
	return Options{
		MaxConcurrent: rapid.SampledFrom([]int{-1, 1, 2, 8}).Draw(t, "MaxConcurrent"),
		SpacingStart:  rapid.Bool().Draw(t, "SpacingStart"),
		ReleaseAfter:  time.Second,
		DefaultDelay:  rapid.SampledFrom([]time.Duration{0, 20 * time.Millisecond}).Draw(t, "DefaultDelay"),
	}
}

func drawCall(t *rapid.T) call {
	millis := func(name string, most int) time.Duration {
		return time.Duration(rapid.IntRange(0, most).Draw(t, name)) * time.Millisecond
	}
	return call{
		Request: Request{
			Key: host, MaxWait: time.Hour,
			Client: rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "client"),
			Delay:  rapid.SampledFrom([]time.Duration{0, 0, 1, 70 * time.Millisecond, time.Second, 3 * time.Second}).Draw(t, "delay"),
		},
		arrives: millis("arrives", 5000), took: millis("took", 1500), patience: millis("patience", 20_000),
		cancels: rapid.IntRange(0, 4).Draw(t, "cancels") == 0,
	}
}

// TestRandomLanes sends random requests of random clients over one lane, of which some are cancelled, are not sent, or
// take longer than ReleaseAfter, and checks those that were sent.
func TestRandomLanes(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		options := drawOptions(rt)
		calls := rapid.SliceOfN(rapid.Custom(drawCall), 1, 40).Draw(rt, "calls")
		synctest.Test(t, func(t *testing.T) {
			s := &site{limiter: newLimiter(t, options)}
			var all sync.WaitGroup
			for _, c := range calls {
				all.Go(func() { s.call(c) })
			}
			all.Wait()
			time.Sleep(5 * time.Minute)
			s.check(rt)
			checkAtRest(rt, s.limiter, len(s.visits))
			checkLaneAtRest(rt, s.limiter)
		})
	})
}

// call makes the call c, with any result.
func (s *site) call(c call) {
	time.Sleep(c.arrives)
	ctx, cancel := context.WithTimeout(context.Background(), c.patience)
	defer cancel()
	if !c.cancels {
		s.visit(ctx, c.Request, c.took)
		return
	}
	g, _ := s.limiter.Acquire(ctx, c.Request)
	time.Sleep(c.took / 100)
	g.Cancel()
	g.Release(Outcome{})
}

// checkLaneAtRest checks that no request of the lane is in flight or waits, and that it becomes idle.
func checkLaneAtRest(t rapid.TB, l *Limiter) {
	t.Helper()
	ln, err := l.lane(host)
	if err != nil {
		t.Errorf("lane: %v", err)
		return
	}
	defer ln.mu.Unlock()
	ln.expireOverdue(time.Now())
	if ln.inflights != (inflights{}) || ln.queue != nil {
		t.Errorf("the lane at rest has %+v in flight and the queue %+v, want an empty lane", ln.inflights, ln.queue)
	}
	if !ln.idle(time.Now().Add(2 * time.Minute)) {
		t.Errorf("the lane is not idle two minutes after the last request")
	}
}

package ratelimit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// A club is a Coordinator in memory. An answer takes some time.
type club struct {
	takes time.Duration
	back  time.Duration // how long an answer is in flight

	mu      sync.Mutex
	holders int
	mark    time.Time
	sent    time.Time // the last request without a lease; a cancelled lease restores nothing before it
	paused  time.Time
	why     Source
	heard   backoff
	order   Override
	rivals  []int
	mode    Mode // if empty, ModeRedis
	mute    bool // it sends no messages
	err     error
	waking  []func(key string)
	asked   int
	last    int64 // number of the last lease
	told    int64 // of the last LeaseRequest
	left    int
}

func (c *club) Lease(a LeaseRequest) (LeaseResult, error) {
	time.Sleep(c.takes)
	defer time.Sleep(c.back)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked++
	if c.err != nil {
		return LeaseResult{}, c.err
	}
	c.told = a.LastLease
	now := time.Now()
	answer := LeaseResult{Gap: -1, Mode: cmp.Or(c.mode, ModeRedis), Override: c.order, Rivals: c.rivals, LastLease: c.last, Paused: max(0, c.paused.Sub(now)), PauseSource: c.why}
	if !c.mark.IsZero() {
		answer.Gap = now.Sub(c.mark)
	}
	free := later(c.mark.Add(a.Delay), c.paused)
	switch {
	case c.order.Stop:
	case c.holders >= a.Limit && a.Limit > 0:
		answer.Wait = 5 * time.Second
	case free.After(now):
		answer.Wait = free.Sub(now)
	default:
		c.holders++
		c.last++
		answer.LastLease = c.last
		answer.Lease = &clubLease{club: c, mark: c.mark}
		c.mark = now
	}
	return answer, nil
}

func (c *club) Sent(string, time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mark, c.sent = time.Now(), time.Now()
}

func (c *club) Leave(string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.left++
}

// leaves returns how often Leave was called.
func (c *club) leaves() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.left
}

func (c *club) Pause(_ string, d time.Duration, why Source) {
	c.mu.Lock()
	c.paused, c.why = later(c.paused, time.Now().Add(d)), why
	c.mu.Unlock()
	c.wake()
}

func (c *club) CountThrottle(said ThrottleEvent) (ThrottleResult, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return ThrottleResult{}, c.err
	}
	now := time.Now()
	o := Outcome{Status: 429, RetryAfter: said.RetryAfter, Credentials: said.Personal}
	if c.heard.hear(o, said.Client, said.Sent, now) {
		c.paused, c.why = later(c.paused, c.heard.until), c.heard.source
	}
	return ThrottleResult{Paused: max(0, c.paused.Sub(now)), PauseSource: c.why, Streak: c.heard.streak}, nil
}

func (c *club) Override(_ string, o Override) error {
	c.mu.Lock()
	c.order = o
	c.mu.Unlock()
	c.wake()
	return nil
}

func (c *club) Watch(f func(key string)) { c.waking = append(c.waking, f) }

func (c *club) wake() {
	if c.mute {
		return
	}
	for _, f := range c.waking {
		go f(host)
	}
}

type clubLease struct {
	club *club
	mark time.Time // of the club before
	once sync.Once
}

func (l *clubLease) End() { l.give(true) }

func (l *clubLease) Cancel() { l.give(false) }

func (l *clubLease) give(used bool) {
	l.once.Do(func() {
		l.club.mu.Lock()
		l.club.holders--
		if used {
			l.club.mark = time.Now()
		} else if l.club.holders == 0 {
			l.club.mark = later(l.mark, l.club.sent)
		}
		l.club.mu.Unlock()
		go l.club.wake()
	})
}

func newClub(tb testing.TB, n int, takes time.Duration) (*club, []*Limiter) {
	tb.Helper()
	c := &club{takes: takes}
	limiters := make([]*Limiter, n)
	for i := range limiters {
		limiters[i] = newLimiter(tb, Options{Coordinator: c})
	}
	return c, limiters
}

// However requests arrive, wait, leave and end in several instances, one is sent at a time, each a Delay after the end
// of the one before, and none waits for ever.
func TestSharedLanesKeepOneDelay(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		instances := rapid.IntRange(1, 4).Draw(rt, "instances")
		takes := time.Duration(rapid.IntRange(0, 20).Draw(rt, "answer")) * time.Millisecond
		type plan struct {
			after, took, patience time.Duration
			in                    int
		}
		plans := make([]plan, rapid.IntRange(1, 12).Draw(rt, "requests"))
		for i := range plans {
			ms := func(most int, what string) time.Duration {
				return time.Duration(rapid.IntRange(0, most).Draw(rt, what)) * time.Millisecond
			}
			plans[i] = plan{ms(3000, "after"), ms(2000, "took"), ms(8000, "patience") + time.Hour*time.Duration(rapid.IntRange(0, 1).Draw(rt, "patient")), rapid.IntRange(0, instances-1).Draw(rt, "instance")}
		}
		synctest.Test(t, func(t *testing.T) {
			const delay = time.Second
			_, limiters := newClub(t, instances, takes)
			var mu sync.Mutex
			var lastEnd time.Time
			underWay := 0
			var wg sync.WaitGroup
			for i, p := range plans {
				wg.Go(func() {
					time.Sleep(p.after)
					ctx, cancel := context.WithTimeout(t.Context(), p.patience)
					defer cancel()
					g, err := limiters[p.in].Acquire(ctx, Request{Key: host, Client: fmt.Sprint(i % 3), Delay: delay, MaxWait: 2 * time.Hour})
					if err != nil {
						if !errors.Is(err, context.DeadlineExceeded) {
							rt.Errorf("request %d: %v", i, err)
						}
						return
					}
					mu.Lock()
					if gap := time.Since(lastEnd); underWay > 0 || !lastEnd.IsZero() && gap < delay {
						rt.Errorf("request %d started %v after the one before, with %d under way", i, gap, underWay)
					}
					underWay++
					mu.Unlock()
					time.Sleep(p.took)
					mu.Lock()
					underWay--
					lastEnd = time.Now()
					mu.Unlock()
					g.Release(Outcome{Status: 200})
				})
			}
			wg.Wait()
			time.Sleep(time.Second) // every question is answered
			for _, l := range limiters {
				if got := l.Stats().Waiting; got != 0 {
					rt.Errorf("%d requests still wait", got)
				}
			}
		})
	})
}

func TestSharedGrant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, in := newClub(t, 2, time.Millisecond)
		r := Request{Key: host, Client: "a", Delay: 10 * time.Second}
		g := acquire(t, in[0], r) // MaxWait is 0, and no request waits
		if g.Mode() != ModeRedis {
			t.Errorf("mode %s", g.Mode())
		}
		time.Sleep(3 * time.Second)
		g.Release(Outcome{Status: 200})
		time.Sleep(time.Second)

		_, err := in[1].Acquire(t.Context(), r)
		var wait *WaitError
		if !errors.As(err, &wait) || wait.Wait < 8*time.Second || wait.Wait > 9*time.Second {
			t.Errorf("another instance, without waiting: %v, want a wait of 9s", err)
		}
		r.MaxWait = time.Minute
		g = acquire(t, in[1], r)
		if gap, ok := g.Gap(); !ok || gap < 10*time.Second || gap > 10*time.Second+10*time.Millisecond {
			t.Errorf("the gap is %v, %v, want 10s", gap, ok)
		}
		if c.told != 1 {
			t.Errorf("the LeaseRequest of another instance says that lease %d was the last, want 1", c.told)
		}
		g.Cancel()
		g = acquire(t, in[0], r)
		if g.Waited() > 10*time.Millisecond {
			t.Errorf("after a Grant that was given back: waited %v", g.Waited())
		}
		g.Release(Outcome{})
	})
}

func TestSharedPausesAndOrders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, in := newClub(t, 2, time.Millisecond)
		r := Request{Key: host, Client: "a", MaxWait: time.Hour}
		acquire(t, in[0], r).Release(Outcome{Status: 429, RetryAfter: time.Minute})
		g := acquire(t, in[1], r)
		if _, why := g.Required(); g.Waited() < time.Minute-time.Second || why != RetryAfter {
			t.Errorf("another instance waited %v by %q for a host that has named a minute", g.Waited(), why)
		}
		g.Release(Outcome{Status: 200})

		g = acquire(t, in[1], r) // so that another must wait
		waits := make(chan error)
		go func() {
			_, err := in[1].Acquire(t.Context(), Request{Key: host, Client: "a", Delay: time.Second, MaxWait: time.Hour})
			waits <- err
		}()
		synctest.Wait()
		if err := in[0].Stop(host, time.Now().Add(time.Hour)); err != nil {
			t.Fatal(err)
		}
		var stopped *StoppedError
		if err := <-waits; !errors.As(err, &stopped) || time.Until(stopped.Until) < 59*time.Minute {
			t.Errorf("who waits in another instance: %v, want a StoppedError until in an hour", err)
		}
		g.Release(Outcome{Status: 200})
		if _, err := in[1].Acquire(t.Context(), r); !errors.As(err, &stopped) {
			t.Errorf("who comes to another instance: %v, want a StoppedError", err)
		}
		if err := in[1].Lift(host); err != nil { // by another instance than the one that stopped it
			t.Fatal(err)
		}
		acquire(t, in[0], r).Release(Outcome{Status: 200})

		if err := in[0].SetFloor(host, 30*time.Second); err != nil {
			t.Fatal(err)
		}
		acquire(t, in[1], r).Release(Outcome{Status: 200})
		if g := acquire(t, in[1], r); g.Waited() < 29*time.Second {
			t.Errorf("waited %v at a floor of 30s that another instance has set", g.Waited())
		}
	})
}

// A host answers 503 without a time to one instance after the other. The answers count as if one instance had got them,
// along one curve. If the Coordinator fails, an instance counts its own.
func TestSharedThrottleEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, in := newClub(t, 3, time.Millisecond)
		complain := func(l *Limiter, client string) {
			t.Helper()
			acquire(t, l, Request{Key: host, Client: client, MaxWait: 2 * time.Hour}).Release(Outcome{Status: 503})
			time.Sleep(time.Second)
		}
		for _, want := range []time.Duration{minute, 2 * minute} {
			complain(in[0], "a")
			complain(in[1], "a")
			if got := pausedFor(in[1]); got > 0 {
				t.Fatalf("paused for %v after two answers to one client", got)
			}
			complain(in[2], "a")
			if got := pausedFor(in[2]); !onCurve(got+time.Second, want) {
				t.Errorf("paused for %v after the third, want %v", got, want)
			}
			before := time.Now()
			g := acquire(t, in[0], Request{Key: host, Client: "b", MaxWait: 2 * time.Hour})
			if got := time.Since(before); got < want-2*time.Second {
				t.Errorf("another instance sent after %v, want %v", got, want)
			}
			g.Release(Outcome{Status: 200})
		}
		c.mu.Lock()
		c.err = &UnavailableError{Err: errors.New("gone")}
		c.mu.Unlock()
		for _, client := range []string{"a", "b"} {
			in[0].Hear(host, client, Outcome{Status: 503})
			time.Sleep(time.Second)
		}
		if got := pausedFor(in[0]); got <= 0 {
			t.Error("not paused after two answers that the others could not be told of")
		}
	})
}

// A host names a time to one instance, and no time to another one with a request in flight. The latter learns the
// source of the pause, and changes nothing.
func TestThrottleEventInAPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, in := newClub(t, 2, time.Millisecond)
		r := Request{Key: host, Client: "a", MaxWait: minute}
		told, untold := acquire(t, in[0], r), acquire(t, in[1], r)
		told.Release(Outcome{Status: 503, RetryAfter: time.Hour})
		untold.Release(Outcome{Status: 503})
		synctest.Wait()
		if v, _ := in[1].Peek(host); v.PauseSource != RetryAfter || pausedFor(in[1]) < time.Hour-time.Second {
			t.Errorf("the other instance is paused for %v by %q, want an hour by what the host has said", pausedFor(in[1]), v.PauseSource)
		}
		if c.why != RetryAfter {
			t.Errorf("all are told that the host is paused by %q", c.why)
		}
	})
}

// A request that waits for one of another instance starts at once if that one is cancelled.
func TestSharedCancel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, in := newClub(t, 2, time.Millisecond)
		r := Request{Key: host, Client: "a", Delay: 10 * time.Second, MaxWait: time.Hour}
		g := acquire(t, in[1], r)
		waits := make(chan time.Duration)
		go func() { waits <- send(t, in[0], r, 0) }()
		time.Sleep(time.Second)
		g.Cancel()
		if got := <-waits; got > time.Second+time.Second/10 {
			t.Errorf("waited %v, want no longer than the second after which the other was cancelled", got)
		}
	})
}

// TestPlacesDoNotCrowd has places kept for those that do not wait: the others are asked ahead of time when twice as
// many wait here as they know of, and not for the places.
func TestPlacesDoNotCrowd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, in := newClub(t, 1, time.Millisecond)
		r := Request{Key: host, Client: "a", Delay: 10 * time.Second, MaxWait: time.Hour}
		send(t, in[0], r, 0)
		questions := func() int {
			c.mu.Lock()
			defer c.mu.Unlock()
			return c.asked
		}
		var all sync.WaitGroup
		come := func() (asked int) {
			before := questions()
			all.Go(func() { send(t, in[0], r, 0) })
			time.Sleep(100 * time.Millisecond)
			return questions() - before
		}
		come()
		if come() != 1 {
			t.Error("the others are not asked when there are two in the place of one")
		}
		away := r
		away.Client, away.MaxWait = "b", 0
		for range 5 {
			turnedAway(t, in[0], away)
		}
		if come() != 0 {
			t.Error("the others are asked when there are three in the place of two, and five places are kept")
		}
		all.Wait()
	})
}

// TestSharedPlaceThatIsLate has a client that bears no wait come back when it was told, to a place that is late since
// another instance sent something: it is held for a moment as it is where there is no other instance.
func TestSharedPlaceThatIsLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, in := newClub(t, 2, time.Millisecond)
		r := Request{Key: host, Client: "a", Delay: 10 * time.Second}
		send(t, in[0], r, 0)
		turnedAway(t, in[0], r)
		late := time.Second / 2
		time.Sleep(late)
		in[1].Reckon(Request{Key: host, Client: "b", Delay: r.Delay})
		time.Sleep(r.Delay - late)
		if got := send(t, in[0], r, 0); got < late-time.Second/10 || got > late+time.Second/10 {
			t.Errorf("held for %v, want %v", got, late)
		}
	})
}

func TestSharedUnavailable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, in := newClub(t, 1, time.Millisecond)
		c.err = &UnavailableError{RetryAfter: time.Second, Err: errors.New("gone")}
		var unavailable *UnavailableError
		for range 3 {
			if _, err := in[0].Acquire(t.Context(), Request{Key: host, Client: "a", MaxWait: time.Hour}); !errors.As(err, &unavailable) {
				t.Errorf("Acquire: %v, want an UnavailableError", err)
			}
		}
		c.err = nil
		acquire(t, in[0], Request{Key: host, Client: "a"}).Release(Outcome{})
	})
}

// TestSharedParts sends parts in one instance while documents wait in both: they start at once, and the documents of
// both instances count their Delay from the last part.
func TestSharedParts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, in := newClub(t, 2, time.Millisecond)
		document := Request{Key: host, Client: "a", Delay: 10 * time.Second, MaxWait: time.Hour}
		send(t, in[0], document, 0)
		var all sync.WaitGroup
		var starts [8]time.Time
		for i := range starts {
			all.Go(func() {
				g := acquire(t, in[i%2], document)
				starts[i] = time.Now()
				g.Release(Outcome{})
			})
			time.Sleep(100 * time.Millisecond) // so that each instance has reported how many wait
		}
		for range 3 {
			if got := send(t, in[0], Request{Key: host, Client: "a", MaxWait: time.Minute, Part: true}, time.Second); got > time.Second/10 {
				t.Errorf("a part waited %v, want no longer than the answer of the others takes", got)
			}
		}
		end := time.Now()
		all.Wait()
		for i, start := range starts {
			if got := start.Sub(end); got < document.Delay {
				t.Errorf("document %d started %v after the last part, want %v", i, got, document.Delay)
			}
		}
	})
}

// Without a Delay, MaxConcurrent applies to all instances together.
func TestSharedLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, in := newClub(t, 2, time.Millisecond)
		var grants []Grant
		for i := range 8 {
			grants = append(grants, acquire(t, in[i%2], Request{Key: host, Client: "a"}))
		}
		var wait *WaitError
		if _, err := in[0].Acquire(t.Context(), Request{Key: host, Client: "a"}); !errors.As(err, &wait) {
			t.Errorf("a ninth request: %v, want a WaitError", err)
		}
		go func() {
			time.Sleep(time.Second)
			for _, g := range grants {
				g.Release(Outcome{Status: 200})
			}
		}()
		if g := acquire(t, in[1], Request{Key: host, Client: "a", MaxWait: time.Minute}); g.Waited() < time.Second || g.Waited() > 2*time.Second {
			t.Errorf("a ninth request waited %v, want until one of the eight had ended", g.Waited())
		}
	})
}

// A lateClub counts a throttle event after two minutes, and pauses the lane for an hour.
type lateClub struct{ *club }

func (lateClub) CountThrottle(ThrottleEvent) (ThrottleResult, error) {
	time.Sleep(2 * time.Minute)
	return ThrottleResult{Paused: time.Hour, PauseSource: Backoff, Streak: 1}, nil
}

// TestPauseOfADroppedLane has a lane dropped while the other instances count an event: the pause holds for the next
// lane.
func TestPauseOfADroppedLane(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, Options{Coordinator: lateClub{&club{}}})
		acquire(t, l, Request{Key: host, MaxWait: time.Minute}).Release(Outcome{Status: 429})
		time.Sleep(90 * time.Second)
		if sweepAll(l); l.find(host) != nil {
			t.Fatal("the lane was not dropped")
		}
		l.Close()
		if got := time.Until(l.Paused(host)); !in(got, time.Hour) {
			t.Errorf("the host is paused for %v, want 1h", got)
		}
	})
}

// TestLeaseAskedBeforeAStop has a lease come for a question from before a stop in this instance, while the other
// instances are not told yet and another request has come since: that request starts, but gets no Grant.
func TestLeaseAskedBeforeAStop(t *testing.T) {
	m := newMachine(t, Options{})
	m.coordination = &coordination{}
	r := Request{Delay: time.Second, MaxWait: time.Hour}
	m.ask(r)
	m.intervene(func(h *hold) { h.stopped = true }, m.now)
	m.settle()
	m.ask(r)
	m.leased(LeaseResult{Lease: &clubLease{}, Gap: -1}, nil, r.Delay, m.now)
	m.settle()
	for _, asked := range m.waiting {
		ok, err := m.claim(asked.waiter, false, m.now)
		if stop := new(StoppedError); ok || !errors.As(err, &stop) {
			t.Errorf("claim in a stopped lane: %t, %v, want false and a *StoppedError", ok, err)
		}
		m.settle()
	}
	if len(m.waiting) != 2 || m.effects[cancelLease] != 1 || m.inflights.n != 0 {
		t.Errorf("%d requests have waited, effects %v, %d requests in flight; want 2, one canceled lease and none",
			len(m.waiting), m.effects, m.inflights.n)
	}
}

// TestWakeAfterReleaseAfter has a request go on for longer than ReleaseAfter while another one waits for a lease: a
// question that a message causes does not count it as in flight.
func TestWakeAfterReleaseAfter(t *testing.T) {
	m := newMachine(t, Options{ReleaseAfter: 30 * time.Second})
	m.coordination = &coordination{}
	enter := func() {
		if _, err := m.enter(t.Context(), Request{MaxWait: time.Hour}, new(inflight), m.now); err != nil {
			t.Fatal(err)
		}
	}
	enter()
	m.leased(LeaseResult{Lease: &clubLease{}, Gap: -1}, nil, 0, m.now)
	m.now = m.now.Add(29 * time.Second)
	enter()
	m.leased(LeaseResult{Wait: 10 * time.Second, Gap: -1}, nil, 0, m.now)
	m.now = m.now.Add(2 * time.Second)
	m.out.effects = nil
	m.wake(m.now)
	asked := slices.IndexFunc(m.out.effects, func(e effect) bool { return e.kind == askForLease })
	if asked < 0 {
		t.Fatalf("the message causes no question, but %v", m.out.effects)
	}
	if got := m.out.effects[asked].ask.InFlight; got != 0 {
		t.Errorf("the question counts %d requests in flight, want 0", got)
	}
}

// A foreseen wait includes the requests of other instances. They count as sent, one in each step, until the next
// result.
func TestForeseenWithRivals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const delay = 10 * time.Second
		c, in := newClub(t, 1, 0)
		c.rivals = []int{1, 2, 50}
		acquire(t, in[0], Request{Key: host, Client: "a", Delay: delay}).Release(Outcome{Status: 200})
		foreseen := func(place, slots int) {
			t.Helper()
			ln, err := in[0].lane(host)
			if err != nil {
				t.Fatal(err)
			}
			defer ln.mu.Unlock()
			if got, want := ln.predict(time.Now(), "b", place, delay), time.Duration(slots)*delay; got != want {
				t.Errorf("at place %d a wait of %v is foreseen, want %v", place, got, want)
			}
		}
		foreseen(0, 1+3)
		var wg sync.WaitGroup
		ctx, cancel := context.WithCancel(t.Context())
		for range 2 {
			wg.Go(func() {
				_, _ = in[0].Acquire(ctx, Request{Key: host, Client: "b", Delay: delay, MaxWait: time.Hour})
			})
		}
		synctest.Wait()
		foreseen(1, 2+1+2+2)
		foreseen(2, 3+1+2+3)
		cancel()
		wg.Wait()
		time.Sleep(2 * delay)
		foreseen(0, 1) // the lane is free, and two of the three were sent
		time.Sleep(delay)
		foreseen(0, 0)

		// A lane that does not know the other instances learns of them from the first result.
		c.rivals = []int{7}
		var wait *WaitError
		held := acquire(t, in[0], Request{Key: host, Client: "a", Delay: delay})
		held.Release(Outcome{Status: 200})
		time.Sleep(2 * time.Hour)
		c.mark = time.Now()
		if _, err := in[0].Acquire(t.Context(), Request{Key: host, Client: "c", Delay: delay, MaxWait: delay}); !errors.As(err, &wait) || wait.Wait != 2*delay {
			t.Errorf("Acquire: %v, want to be turned away for a wait of %v", err, 2*delay)
		}
	})
}

// A result that is in flight when an override is set does not replace it.
func TestSharedOrderIsNewerThanAnAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, in := newClub(t, 1, time.Millisecond)
		c.back = time.Second
		go in[0].Acquire(t.Context(), Request{Key: host, Client: "a", MaxWait: time.Minute})
		time.Sleep(500 * time.Millisecond)
		if err := in[0].Stop(host, time.Time{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		var stopped *StoppedError
		if err := in[0].Stopped(host); !errors.As(err, &stopped) {
			t.Errorf("Stopped: %v, want a StoppedError", err)
		}
		c.order = Override{} // by another instance, later
		_, _ = in[0].Acquire(t.Context(), Request{Key: host, Client: "a", MaxWait: time.Minute})
		if err := in[0].Stopped(host); err != nil {
			t.Errorf("Stopped: %v, want what the others say now", err)
		}
	})
}

// A pause that was restored after a restart applies in all instances.
func TestKeptPausesAreShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &club{}
		until := time.Now().Add(time.Hour)
		kept := &fakePauses{kept: map[string]Pause{
			host:          {Key: host, Until: until, Source: RetryAfter},
			"old.example": {Key: "old.example", Until: time.Now().Add(-time.Minute), Source: Backoff, Streak: 3},
		}}
		newLimiter(t, Options{Coordinator: c, Pauses: kept})
		if !c.paused.Equal(until) {
			t.Errorf("the others are told of a pause until %v, want %v", c.paused, until)
		}
	})
}

// In spread, no message says that a request of this instance has ended.
func TestSpreadGoesOnAtTheEndOfARequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, in := newClub(t, 2, 0)
		c.mode, c.mute = ModeSpread, true
		r := Request{Key: host, Client: "a", MaxWait: time.Minute}
		for range 7 {
			acquire(t, in[1], r)
		}
		first := acquire(t, in[0], r)
		time.AfterFunc(100*time.Millisecond, func() { first.Release(Outcome{Status: 200}) })
		if g := acquire(t, in[0], r); g.Waited() != 100*time.Millisecond {
			t.Errorf("waited %v, want until the first had ended", g.Waited())
		}
	})
}

// An instance leaves the line when its last request leaves, even if a result is in flight.
func TestSharedLineIsLeft(t *testing.T) {
	for _, after := range []time.Duration{10 * time.Second, 500 * time.Microsecond} {
		synctest.Test(t, func(t *testing.T) {
			c, in := newClub(t, 2, time.Millisecond)
			r := Request{Key: host, Client: "a", Delay: time.Minute, MaxWait: time.Hour}
			g := acquire(t, in[0], r)
			ctx, cancel := context.WithTimeout(t.Context(), after)
			defer cancel()
			if _, err := in[1].Acquire(ctx, r); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("Acquire: %v, want a client that leaves", err)
			}
			time.Sleep(time.Second)
			if got := c.leaves(); got != 1 {
				t.Errorf("after %v the line was left %d times, want once", after, got)
			}
			g.Release(Outcome{Status: 200})
			acquire(t, in[1], r).Release(Outcome{Status: 200})
			time.Sleep(time.Second)
			if got := c.leaves(); got != 1 {
				t.Errorf("the line was left %d times, want once, since the other had its turn", got)
			}
		})
	}
}

// Other instances count their Delay from a request that is only reported on.
func TestSharedReckon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, in := newClub(t, 2, time.Millisecond)
		in[0].Reckon(Request{Key: host, Client: "a", Delay: 10 * time.Second})
		time.Sleep(time.Second)
		g := acquire(t, in[1], Request{Key: host, Client: "a", Delay: 10 * time.Second, MaxWait: time.Minute})
		if g.Waited() < 8*time.Second {
			t.Errorf("waited %v after a request that another instance had only reckoned", g.Waited())
		}
	})
}

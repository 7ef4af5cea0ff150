package ratelimit

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// A machine drives a state without a lock, goroutines or a clock, and checks what the state does against a model.
type machine struct {
	state
	tb      rapid.TB
	now     time.Time
	timer   time.Time // when tick is due; zero: the timer is not set
	stopped bool

	waiting  []*request              // not claimed yet
	underWay []*request              // claimed, and not given back
	sent     map[*inflight]time.Time // since when a Delay counts from each request that was not cancelled
	live     int                     // requests that have started and not ended
	effects  map[effectKind]int      // how many there were
}

// A request is one that a machine has put to its state.
type request struct {
	waiter *waiter
	leave  context.CancelFunc
	f      *inflight
	woken  int
}

func newMachine(tb rapid.TB, o Options) *machine {
	m := &machine{tb: tb, now: time.Now(), sent: make(map[*inflight]time.Time), effects: make(map[effectKind]int)}
	m.init(&rules{*o.withDefaults(), &misses{}}, false)
	return m
}

// settle carries out the effects of a move, and checks what must hold between moves.
func (m *machine) settle() {
	m.tb.Helper()
	if m.out == nil {
		return
	}
	for _, e := range m.out.effects {
		m.effects[e.kind]++
		switch e.kind {
		case setTimer:
			m.timer = m.now.Add(e.after)
		case stopTimer:
			m.timer = time.Time{}
		case wakeGranted, wakeRefused:
			i := slices.IndexFunc(m.waiting, func(r *request) bool { return r.waiter == e.waiter })
			if i < 0 {
				m.tb.Fatal("a request was woken that does not wait")
			}
			if m.waiting[i].woken++; m.waiting[i].woken > 1 {
				m.tb.Fatal("a request was woken twice")
			}
			if e.kind == wakeGranted {
				m.started(e.waiter.inflight)
			}
		}
	}
	m.out.effects = m.out.effects[:0]
	if (m.queue != nil) != !m.timer.IsZero() {
		m.tb.Fatalf("the queue is %v and the timer %v: want either both or none", m.queue, m.timer)
	}
}

// started checks that f was not too early.
func (m *machine) started(f *inflight) {
	m.tb.Helper()
	if m.stopped {
		m.tb.Fatal("a request started in a lane that is stopped")
	}
	for _, from := range m.sent {
		if gap := f.start.Sub(from); f.spacing > 0 && gap < f.spacing {
			m.tb.Fatalf("a request with the Delay %v started after %v", f.spacing, gap)
		}
	}
	if f.spacing > 0 && m.live > 0 || m.live >= m.rules.MaxConcurrent {
		m.tb.Fatalf("a request with the Delay %v started while %d others were under way", f.spacing, m.live)
	}
	m.sent[f] = f.start
	m.live++
}

func (m *machine) ask(r Request) {
	ctx, leave := context.WithCancel(context.Background())
	asked := &request{leave: leave, f: new(inflight)}
	w, err := m.enter(ctx, r, asked.f, m.now)
	switch {
	case err != nil:
		leave()
	case w == nil:
		m.started(asked.f)
		m.underWay = append(m.underWay, asked)
	default:
		asked.waiter = w
		m.waiting = append(m.waiting, asked)
	}
	m.settle()
}

// claimOne claims for a request that waits, as its goroutine does after it was woken or has left.
func (m *machine) claimOne(i int, left bool) {
	r := m.waiting[i]
	m.waiting = slices.Delete(m.waiting, i, i+1)
	if left {
		r.leave()
	}
	granted := r.waiter.granted
	ok, err := m.claim(r.waiter, left, m.now)
	switch {
	case ok && (left || m.stopped):
		m.tb.Fatalf("a Grant was claimed; left %t, stopped %t", left, m.stopped)
	case ok:
		m.underWay = append(m.underWay, r)
	case granted:
		delete(m.sent, r.f)
		m.live--
	case !left && err == nil:
		m.tb.Fatal("a request was woken without a Grant or an error")
	}
	if stop := new(StoppedError); m.stopped && !left && !errors.As(err, &stop) && granted {
		m.tb.Fatalf("claim in a stopped lane: %v, want a *StoppedError", err)
	}
	m.settle()
}

// giveBack releases or cancels a request under way.
func (m *machine) giveBack(i int, cancelled bool) {
	r := m.underWay[i]
	m.underWay = slices.Delete(m.underWay, i, i+1)
	m.live--
	if cancelled {
		delete(m.sent, r.f)
		m.cancel(r.f, m.now)
	} else {
		m.sent[r.f] = m.now
		m.release(r.f, m.now, m.now)
	}
	m.settle()
	r.leave()
}

// pass lets time pass, and runs the timer when it is due.
func (m *machine) pass(d time.Duration) {
	end := m.now.Add(d)
	for !m.timer.IsZero() && !m.timer.After(end) {
		m.now, m.timer = m.timer, time.Time{}
		m.dispatch(m.now)
		m.settle()
	}
	m.now = end
}

func (m *machine) order(stopped bool, floor time.Duration) {
	m.stopped = stopped
	m.intervene(func(rs *hold) { rs.stopped, rs.floor = stopped, floor }, m.now)
	m.settle()
}

// TestState has requests come, leave, be claimed, end and be cancelled, and an operator stop the lane, in any order.
func TestState(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := newMachine(t, Options{
			MaxConcurrent: rapid.SampledFrom([]int{1, 3}).Draw(t, "MaxConcurrent"),
			ReleaseAfter:  1000 * time.Hour,
		})
		delays := []time.Duration{0, 0, time.Second, 10 * time.Second, time.Hour}
		one := func(t *rapid.T, of []*request) int {
			if len(of) == 0 {
				t.Skip("there is none")
			}
			return rapid.IntRange(0, len(of)-1).Draw(t, "which")
		}
		woken := func() []int {
			var is []int
			for i, r := range m.waiting {
				if r.woken > 0 {
					is = append(is, i)
				}
			}
			return is
		}
		t.Repeat(map[string]func(*rapid.T){
			"enter": func(t *rapid.T) {
				m.ask(Request{
					Client:  rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "client"),
					Delay:   rapid.SampledFrom(delays).Draw(t, "delay"),
					MaxWait: rapid.SampledFrom([]time.Duration{0, 5 * time.Second, 100 * time.Hour}).Draw(t, "MaxWait"),
					Once:    rapid.Bool().Draw(t, "once"),
				})
			},
			"enter part": func(t *rapid.T) {
				m.ask(Request{Client: rapid.SampledFrom([]string{"a", "b"}).Draw(t, "client"), Part: true, MaxWait: time.Minute})
			},
			"claim": func(t *rapid.T) {
				is := woken()
				if len(is) == 0 {
					t.Skip("no request was woken")
				}
				m.claimOne(rapid.SampledFrom(is).Draw(t, "which"), false)
			},
			"leave":   func(t *rapid.T) { m.claimOne(one(t, m.waiting), true) },
			"release": func(t *rapid.T) { m.giveBack(one(t, m.underWay), false) },
			"cancel":  func(t *rapid.T) { m.giveBack(one(t, m.underWay), true) },
			"pass": func(t *rapid.T) {
				m.pass(time.Duration(rapid.Float64Range(0, 1.5).Draw(t, "part") * float64(rapid.SampledFrom(delays).Draw(t, "of"))))
			},
			"order": func(t *rapid.T) {
				m.order(rapid.Bool().Draw(t, "stopped"), rapid.SampledFrom([]time.Duration{0, 0, time.Minute}).Draw(t, "floor"))
			},
		})
		m.order(false, 0)
		m.end()
	})
}

// end has all requests claim and end, and checks that none is left behind.
func (m *machine) end() {
	for range 10_000 {
		switch i := slices.IndexFunc(m.waiting, func(r *request) bool { return r.woken > 0 }); {
		case i >= 0:
			m.claimOne(i, false)
		case len(m.underWay) > 0:
			m.giveBack(0, false)
		case !m.timer.IsZero():
			m.pass(m.timer.Sub(m.now))
		case len(m.waiting) > 0:
			m.tb.Fatalf("%d requests wait and are never woken", len(m.waiting))
		default:
			if m.queue != nil || m.inflights != (inflights{}) {
				m.tb.Fatalf("the queue %v and %v under way are left", m.queue, m.inflights)
			}
			return
		}
	}
	m.tb.Fatal("the requests do not come to an end")
}

// A Grant that was made before a stop, and claimed after it, is not one to send a request with.
func TestStopBeforeTheClaim(t *testing.T) {
	m := newMachine(t, Options{})
	r := Request{Client: "a", Delay: time.Second, MaxWait: time.Hour}
	m.ask(r)
	m.ask(r)
	m.giveBack(0, false)
	m.pass(time.Second)
	if m.effects[wakeGranted] != 1 {
		t.Fatalf("the second request was not granted: effects %v", m.effects)
	}
	m.order(true, 0)
	m.claimOne(0, false)
	if m.effects[countCancelled] != 1 || len(m.underWay) != 0 || m.inflights.n != 0 {
		t.Errorf("%d requests are under way, effects %v; want none, and one that was cancelled", m.inflights.n, m.effects)
	}
	m.order(false, 0)
	m.ask(r)
	if len(m.underWay) != 1 {
		t.Error("after the stop, the next request does not start at once, although a second has passed since the first")
	}
}

// TestEffectsAllocateNothing has a request wait while others come and go: the buffers of the outbox are used again.
func TestEffectsAllocateNothing(t *testing.T) {
	l := newLimiter(t, Options{})
	ln, err := l.lane(host)
	if err != nil {
		t.Fatal(err)
	}
	ln.unlock()
	move := func() {
		ln.lock()
		ln.emit(effect{kind: countCancelled})
		ln.emit(effect{kind: stopTimer})
		ln.unlock()
	}
	move()
	move()
	if got := testing.AllocsPerRun(100, move); got != 0 {
		t.Errorf("a move with two effects allocates %v times, want never", got)
	}
}

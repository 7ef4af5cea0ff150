package redislease

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/robotsproxy/robotsproxy/ratelimit"
)

// newRedis returns a Client that is closed at the end of the test.
func newRedis(tb testing.TB, o Options) *Client {
	tb.Helper()
	r, err := New(o)
	if err != nil {
		tb.Fatalf("New(%+v): %v", o, err)
	}
	tb.Cleanup(func() { r.Close() })
	return r
}

// newMini returns a fake server and n instances that use it.
func newMini(t *testing.T, n int) (*miniredis.Miniredis, []*Client) {
	t.Helper()
	server := miniredis.RunT(t)
	instances := make([]*Client, n)
	for i := range instances {
		instances[i] = newRedis(t, Options{URL: "redis://" + server.Addr()})
	}
	for _, r := range instances {
		r.heartbeat(instanceLasts) // so that each instance knows all
	}
	channel := instances[0].channel
	eventually(t, "each hears of all", func() bool { return server.PubSubNumSub(channel)[channel] == n })
	return server, instances
}

// spaced returns the question for a request with a Crawl-delay.
func spaced(delay time.Duration) ratelimit.LeaseRequest {
	return ratelimit.LeaseRequest{Key: host, Delay: delay, Limit: 1}
}

func lease(t *testing.T, r *Client, a ratelimit.LeaseRequest) ratelimit.LeaseResult {
	t.Helper()
	answer, err := r.Lease(a)
	if err != nil {
		t.Fatalf("Lease(%+v): %v", a, err)
	}
	return answer
}

func granted(t *testing.T, r *Client, a ratelimit.LeaseRequest) *heldLease {
	t.Helper()
	answer := lease(t, r, a)
	if answer.Lease == nil {
		t.Fatalf("Lease(%+v) = %+v, want a Lease", a, answer)
	}
	l, ok := answer.Lease.(*heldLease)
	if !ok {
		t.Fatalf("Lease(%+v) = %+v, want a Lease by Redis", a, answer)
	}
	return l
}

func denied(t *testing.T, r *Client, a ratelimit.LeaseRequest, low, high time.Duration) ratelimit.LeaseResult {
	t.Helper()
	answer := lease(t, r, a)
	if answer.Lease != nil || answer.Wait < low || answer.Wait > high {
		t.Fatalf("Lease(%+v) = %+v, want no Lease and a wait of %v to %v", a, answer, low, high)
	}
	return answer
}

// forgetClocks makes the instances accept the next step of a fake clock.
func forgetClocks(in ...*Client) {
	for _, r := range in {
		r.health.mu.Lock()
		r.health.clock = 0
		r.health.mu.Unlock()
	}
}

// trust makes the instances notice that their server has lost its memory, and not wait for other instances.
func trust(in ...*Client) {
	for _, r := range in {
		r.heartbeat(instanceLasts)
		r.health.mu.Lock()
		r.health.trusted, r.health.resent = time.Time{}, time.Time{}
		r.health.mu.Unlock()
	}
}

// given waits until the lease that was given back has arrived.
func (l *heldLease) given() { l.client.quiet() }

// quiet waits until no command is in flight.
func (r *Client) quiet() {
	for _, p := range r.pipes {
		p.mu.Lock()
		for len(p.queue) > 0 || p.busy {
			p.idle.Wait()
		}
		p.mu.Unlock()
	}
}

// pauses makes r report a pause, and waits until Redis knows it.
func pauses(t *testing.T, r *Client, key string, d time.Duration, why ratelimit.Source) {
	t.Helper()
	r.Pause(key, d, why)
	eventually(t, "the pause is told", func() bool { return !r.hasPending() })
}

// unreached waits until r notices that Redis is down.
func unreached(t *testing.T, r *Client) {
	t.Helper()
	r.probe.want()
	eventually(t, "Redis is seen to be down", func() bool { return !r.Stats().Up })
}

func TestLeaseIsOneInstances(t *testing.T) {
	_, in := newMini(t, 2)
	l := granted(t, in[0], spaced(10*time.Second))
	denied(t, in[1], spaced(10*time.Second), 9*time.Second, 10*time.Second+time.Second)

	l.Cancel()
	l.given()
	l = granted(t, in[1], spaced(10*time.Second)) // as if it had not been granted
	l.End()
	l.given()
	denied(t, in[0], spaced(10*time.Second), 9*time.Second, 10*time.Second)
	denied(t, in[0], ratelimit.LeaseRequest{Key: host, Delay: 3 * time.Second, Limit: 1}, 2*time.Second, 3*time.Second)
	if answer := lease(t, in[0], ratelimit.LeaseRequest{Key: "b.example", Delay: time.Second, Limit: 1}); answer.Lease == nil || answer.Gap >= 0 || answer.Mode != ratelimit.ModeRedis {
		t.Errorf("another lane: %+v, want a Lease, no gap known, mode redis", answer)
	}
}

func TestDelayCountsFromTheEndOrTheStart(t *testing.T) {
	server, in := newMini(t, 2)
	now := time.Now()
	at := func(d time.Duration) { server.SetTime(now.Add(d)) }
	at(0)
	l := granted(t, in[0], spaced(time.Second))
	at(800 * time.Millisecond)
	l.End()
	l.given()
	denied(t, in[1], spaced(time.Second), 999*time.Millisecond, 1001*time.Millisecond)
	at(801 * time.Millisecond)
	denied(t, in[0], ratelimit.LeaseRequest{Key: host, Delay: time.Second, FromStart: true, Limit: 1}, 298*time.Millisecond, 300*time.Millisecond) // it is second in the line
	at(1700 * time.Millisecond)
	denied(t, in[1], spaced(time.Second), 99*time.Millisecond, 101*time.Millisecond)
	at(1801 * time.Millisecond)
	answer := lease(t, in[1], spaced(time.Second))
	if answer.Lease == nil || answer.Gap != 1001*time.Millisecond {
		t.Errorf("after the delay: %+v, want a Lease and a gap of 1.001s", answer)
	}
}

func TestLimitHoldsForAllInstances(t *testing.T) {
	_, in := newMini(t, 3)
	a := ratelimit.LeaseRequest{Key: host, Limit: 4}
	var leases []*heldLease
	for i := range 4 {
		leases = append(leases, granted(t, in[i%3], a))
	}
	denied(t, in[0], a, time.Second, leaseLasts)
	denied(t, in[1], a, time.Second, leaseLasts+time.Second)
	leases[2].End()
	leases[2].given()
	denied(t, in[2], a, time.Millisecond, time.Second) // two stand before it
	granted(t, in[0], a)
	denied(t, in[1], a, time.Second, leaseLasts)
}

func TestLineIsServedInOrder(t *testing.T) {
	server, in := newMini(t, 3)
	now := time.Now()
	server.SetTime(now)
	l := granted(t, in[0], spaced(time.Second))
	denied(t, in[2], spaced(time.Second), time.Second, leaseLasts)
	server.SetTime(now.Add(time.Microsecond))
	denied(t, in[1], spaced(time.Second), time.Second, leaseLasts+time.Second)
	l.End()
	l.given()
	server.SetTime(now.Add(1010 * time.Millisecond))
	denied(t, in[0], spaced(time.Second), time.Millisecond, 200*time.Millisecond)
	denied(t, in[1], spaced(time.Second), time.Millisecond, 100*time.Millisecond)
	server.SetTime(now.Add(1150 * time.Millisecond)) // the first instance does not come
	granted(t, in[1], spaced(time.Second))
}

// No instance waits for one that has left the line.
func TestLineIsLeft(t *testing.T) {
	server, in := newMini(t, 3)
	now := time.Now()
	server.SetTime(now)
	l := granted(t, in[0], spaced(time.Second))
	a := spaced(time.Second)
	a.Waiting = 3
	denied(t, in[1], a, time.Second, leaseLasts)
	server.SetTime(now.Add(time.Microsecond))
	if answer := denied(t, in[2], a, time.Second, leaseLasts+time.Second); !slices.Equal(answer.Rivals, []int{3}) {
		t.Errorf("the rivals are %v, want 3", answer.Rivals)
	}
	l.End()
	l.given()
	server.SetTime(now.Add(1010 * time.Millisecond))
	denied(t, in[2], a, time.Millisecond, 100*time.Millisecond)
	woken := make(chan string, 8)
	in[2].Watch(func(key string) { woken <- key })
	in[1].Leave(host)
	in[1].quiet()
	if answer := lease(t, in[2], a); answer.Lease == nil || len(answer.Rivals) > 0 {
		t.Errorf("after the first has left: %+v, want a Lease, and no rivals", answer)
	}
	eventually(t, "the next in the line is woken", func() bool { return len(woken) > 0 })
}

// A request without a lease changes mark and start, and nothing else. A lease that is cancelled after it does not
// restore them.
func TestSentWithoutALease(t *testing.T) {
	server, in := newMini(t, 2)
	now := time.Now()
	server.SetTime(now)
	l := granted(t, in[0], spaced(time.Second))
	server.SetTime(now.Add(500 * time.Millisecond))
	in[1].Sent(host, time.Second)
	in[1].quiet()
	if got, err := server.ZMembers(in[0].keys(host)[1]); err != nil || len(got) != 1 {
		t.Errorf("the leases that are held are %v, %v, want the one that was granted", got, err)
	}
	l.Cancel()
	l.given()
	denied(t, in[0], spaced(time.Second), time.Second, time.Second)
	server.SetTime(now.Add(1500 * time.Millisecond))
	granted(t, in[0], spaced(time.Second))
}

func TestHolderThatIsGone(t *testing.T) {
	server, in := newMini(t, 2)
	now := time.Now()
	server.SetTime(now)
	l := granted(t, in[0], spaced(4*time.Second))
	l.timer.Stop() // as if it had been killed
	denied(t, in[1], spaced(4*time.Second), 4*time.Second, leaseLasts)
	forgetClocks(in...)
	server.SetTime(now.Add(leaseLasts))
	denied(t, in[1], spaced(4*time.Second), 600*time.Millisecond, 700*time.Millisecond) // the holder may have lived for a third of its lease
	server.SetTime(now.Add(leaseLasts + 700*time.Millisecond))
	granted(t, in[1], spaced(4*time.Second))

	// Fencing: the first instance can neither renew nor end its lease.
	if v, err := in[0].call(&command{verb: "renew", key: host, args: []any{l.token, micros(0)}}); err != nil || v.number(0) != 0 {
		t.Errorf("renewal of a lease that ran out: %v, %v, want 0", v, err)
	}
	l.End()
	l.given()
	if got := in[0].Stats().Lost; got != 1 {
		t.Errorf("%d leases lost, want 1", got)
	}
	denied(t, in[0], spaced(4*time.Second), 4*time.Second, leaseLasts)
}

func TestLeaseIsRenewed(t *testing.T) {
	server, in := newMini(t, 2)
	now := time.Now()
	server.SetTime(now)
	l := granted(t, in[0], spaced(time.Second))
	server.SetTime(now.Add(1900 * time.Millisecond))
	forgetClocks(in...)
	l.renew()
	l.given()
	server.SetTime(now.Add(leaseLasts + time.Second))
	forgetClocks(in...)
	denied(t, in[1], spaced(time.Second), 800*time.Millisecond, time.Second)
	l.renew()
	l.given()
	denied(t, in[1], spaced(time.Second), leaseLasts-time.Second, leaseLasts)
}

func TestLeaseIsHeldNoLongerThanHold(t *testing.T) {
	_, in := newMini(t, 2)
	a := spaced(10 * time.Millisecond)
	a.MaxHold = 50 * time.Millisecond
	granted(t, in[0], a)
	eventually(t, "the lease is given back", func() bool { return lease(t, in[1], a).Lease != nil })
}

func TestPauseIsShared(t *testing.T) {
	_, in := newMini(t, 2)
	woken := make(chan string, 8)
	in[1].Watch(func(key string) { woken <- key })
	eventually(t, "a message arrives", func() bool {
		in[0].Pause(host, time.Minute, ratelimit.RetryAfter)
		select {
		case key := <-woken:
			return key == host
		case <-time.After(10 * time.Millisecond):
			return false
		}
	})
	pauses(t, in[1], host, time.Second, ratelimit.Backoff) // the pause that ends last counts
	for _, a := range []ratelimit.LeaseRequest{spaced(time.Second), {Key: host, Limit: 8}} {
		answer := denied(t, in[1], a, 58*time.Second, time.Minute+time.Second)
		if answer.Paused < 58*time.Second || answer.PauseSource != ratelimit.RetryAfter {
			t.Errorf("paused for %v by %q, want a minute by the longer one", answer.Paused, answer.PauseSource)
		}
	}
}

// TestThrottleEventsAreShared has instances tell of answers that name no time, at moments of a fake clock.
func TestThrottleEventsAreShared(t *testing.T) {
	server, in := newMini(t, 2)
	now := time.Now()
	for _, step := range []struct {
		name   string
		after  time.Duration
		by     int
		client string
		ago    time.Duration
		streak int // as the instance knows it
		want   time.Duration
	}{
		{"one", 0, 0, "a", 0, 0, 0},
		{"two of one client", time.Second, 1, "a", 0, 0, 0},
		{"three", time.Second, 0, "a", 0, 0, time.Minute},
		{"what was under way then", time.Second, 1, "b", 10 * time.Second, 0, time.Minute - time.Second},
		{"one after it", 2 * time.Minute, 0, "a", 0, 0, 0},
		{"two clients", time.Second, 1, "b c", 0, 0, 2 * time.Minute},
		{"one after that", 3 * time.Minute, 0, "b c", 0, 0, 0},
		{"two, not within a minute", time.Minute + time.Second, 0, "a", 0, 0, 0},
		{"of two clients again", time.Second, 1, "b c", 0, 5, 32 * time.Minute}, // that instance knows a longer streak, as after a restart of Redis
		{"one, forgiven", 66 * time.Minute, 0, "a", 0, 0, 0},
		{"two, forgiven", time.Second, 1, "b", 0, 0, time.Minute},
	} {
		now = now.Add(step.after)
		server.SetTime(now)
		forgetClocks(in...)
		verdict, err := in[step.by].CountThrottle(ratelimit.ThrottleEvent{Key: host, Client: step.client, Sent: time.Now().Add(-step.ago), Streak: step.streak})
		if err != nil {
			t.Fatalf("%s: %v", step.name, err)
		}
		if got := verdict.Paused; got < step.want || got > step.want+step.want/10+time.Second/10 {
			t.Errorf("%s: %+v, want a pause of %v", step.name, verdict, step.want)
		}
	}
	if err := in[0].redis.Set(t.Context(), in[0].keys(host)[5], "x", 0).Err(); err != nil {
		t.Fatal(err)
	}
	server.SetTime(now.Add(time.Second))
	forgetClocks(in...)
	if _, err := in[0].CountThrottle(ratelimit.ThrottleEvent{Key: host, Client: "a", Sent: time.Now()}); err != nil || in[0].Stats().Corrupt != 1 {
		t.Errorf("with a text in the place of what was heard: %v, and %d reports of it; want 1", err, in[0].Stats().Corrupt)
	}
	pauses(t, in[1], host, 3*time.Hour, ratelimit.RetryAfter)
	verdict, err := in[0].CountThrottle(ratelimit.ThrottleEvent{Key: host, Client: "a", Sent: time.Now().Add(-time.Minute)})
	if err != nil || verdict.PauseSource != ratelimit.RetryAfter || verdict.Paused < 2*time.Hour {
		t.Errorf("in a pause that the host has asked for: %+v, %v", verdict, err)
	}
}

func TestOrdersAreShared(t *testing.T) {
	server, in := newMini(t, 2)
	order := func(o ratelimit.Override) {
		t.Helper()
		if err := in[0].Override(host, o); err != nil {
			t.Fatal(err)
		}
	}
	order(ratelimit.Override{Stop: true, Until: time.Now().Add(time.Hour)})
	answer := denied(t, in[1], ratelimit.LeaseRequest{Key: host, Limit: 8}, 100*time.Millisecond, 100*time.Millisecond) // so that the instance does not ask again at once
	if !answer.Override.Stop || time.Until(answer.Override.Until) < 59*time.Minute {
		t.Errorf("the order is %+v", answer.Override)
	}
	order(ratelimit.Override{Floor: 10 * time.Second})
	granted(t, in[1], ratelimit.LeaseRequest{Key: host, Limit: 8}).End()
	in[1].quiet()
	if answer := denied(t, in[0], ratelimit.LeaseRequest{Key: host, Limit: 8}, 9*time.Second, 10*time.Second); answer.Override.Floor != 10*time.Second {
		t.Errorf("the floor is %v, want 10s", answer.Override.Floor)
	}

	// It holds without Redis in an instance that has learned of it.
	order(ratelimit.Override{Stop: true})
	denied(t, in[1], ratelimit.LeaseRequest{Key: host, Limit: 8}, 0, time.Second)
	server.Close()
	unreached(t, in[1])
	if answer := denied(t, in[1], ratelimit.LeaseRequest{Key: host, Limit: 8}, 0, 0); answer.Mode == ratelimit.ModeRedis || !answer.Override.Stop {
		t.Errorf("while Redis is gone: %+v", answer)
	}
	if err := server.Restart(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "Redis is back", func() bool { return in[0].Stats().Up && in[1].Stats().Up })
	order(ratelimit.Override{})
	granted(t, in[1], ratelimit.LeaseRequest{Key: host, Limit: 8})
}

// afterwards is a hook of the Redis client. It runs once, between the first answer to a question for a lease and its
// use.
type afterwards struct {
	once sync.Once
	run  func()
}

func (h *afterwards) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h *afterwards) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (h *afterwards) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := next(ctx, cmds)
		if err == nil && leases(cmds) > 0 {
			h.once.Do(h.run)
		}
		return err
	}
}

// leases returns how many of the commands ask for a lease.
func leases(cmds []redis.Cmder) int {
	n := 0
	for _, cmd := range cmds {
		if slices.Contains(cmd.Args(), any("lease")) {
			n++
		}
	}
	return n
}

// An override that is set while an answer is in flight is neither lost nor replaced by the answer.
func TestOrderIsNewerThanAnAnswer(t *testing.T) {
	server, in := newMini(t, 1)
	ordered := make(chan error, 1)
	in[0].redis.AddHook(&afterwards{run: func() {
		go func() { ordered <- in[0].Override(host, ratelimit.Override{Stop: true}) }()
		eventually(t, "the order is given", func() bool { return in[0].overrides.last(host, time.Now()).Stop })
	}})
	a := ratelimit.LeaseRequest{Key: host, Limit: 8}
	if answer := lease(t, in[0], a); answer.Lease != nil || !answer.Override.Stop {
		t.Errorf("Lease: %+v, want none and a stop", answer)
	}
	if err := <-ordered; err != nil {
		t.Error(err)
	}
	server.Close()
	unreached(t, in[0])
	if answer := lease(t, in[0], a); !answer.Override.Stop {
		t.Errorf("while Redis is gone: %+v, want a stop", answer)
	}
}

func TestCorruptLanesAreReset(t *testing.T) {
	const week = 7 * 24 * time.Hour
	for name, spoil := range map[string]func(*miniredis.Miniredis, []string){
		"a mark in the future": func(s *miniredis.Miniredis, k []string) {
			s.HSet(k[0], "mark", fmt.Sprint(time.Now().Add(week).UnixMicro()))
		},
		"a mark that is no number": func(s *miniredis.Miniredis, k []string) { s.HSet(k[0], "mark", "soon") },
		"a mark that is NaN":       func(s *miniredis.Miniredis, k []string) { s.HSet(k[0], "mark", "nan") },
		"a negative start":         func(s *miniredis.Miniredis, k []string) { s.HSet(k[0], "start", "-5") },
		"an endless pause":         func(s *miniredis.Miniredis, k []string) { s.HSet(k[0], "paused", "1e300") },
		"a number without end":     func(s *miniredis.Miniredis, k []string) { s.HSet(k[0], "seq", "inf") },
		"a lease for a week":       func(s *miniredis.Miniredis, k []string) { s.ZAdd(k[1], float64(time.Now().Add(week).UnixMicro()), "?") },
		"a lane that is a list":    func(s *miniredis.Miniredis, k []string) { s.Del(k[0]); s.Lpush(k[0], "x") },
		"leases that are a text":   func(s *miniredis.Miniredis, k []string) { s.Del(k[1]); s.Set(k[1], "x") },
		"a line that is a hash":    func(s *miniredis.Miniredis, k []string) { s.Del(k[2]); s.HSet(k[2], "x", "y") },
		"a floor without end":      func(s *miniredis.Miniredis, k []string) { s.HSet(k[3], "floor", "1e300") },
		"a floor that is NaN":      func(s *miniredis.Miniredis, k []string) { s.HSet(k[3], "floor", "nan") },
		"a stop that is a word":    func(s *miniredis.Miniredis, k []string) { s.HSet(k[3], "stop", "maybe", "until", "-1") },
		"an order that is a set":   func(s *miniredis.Miniredis, k []string) { s.Del(k[3]); s.SetAdd(k[3], "x") },
	} {
		t.Run(name, func(t *testing.T) {
			server, in := newMini(t, 1)
			granted(t, in[0], spaced(time.Millisecond)).End()
			in[0].quiet()
			spoil(server, in[0].keys(host))
			a := spaced(20 * time.Millisecond)
			answer := lease(t, in[0], a)
			if answer.Wait > leaseLasts+time.Second {
				t.Errorf("the first answer is %+v, want a wait no longer than a lease", answer)
			}
			if answer.Lease != nil { // the 20 ms were over already
				answer.Lease.End()
			}
			if got := in[0].Stats().Corrupt; got != 1 {
				t.Errorf("%d reports of what was reset, want 1", got)
			}
			if name == "a lease for a week" {
				return // no instance ends it, so it must expire
			}
			eventually(t, "the lane is free again", func() bool { return lease(t, in[0], a).Lease != nil })
			if got := in[0].Stats().Corrupt; got != 1 {
				t.Errorf("%d reports after all, want 1", got)
			}
		})
	}
}

// A clock that steps by an hour neither opens a lane nor blocks it.
func TestClockOfRedisSteps(t *testing.T) {
	for _, step := range []time.Duration{time.Hour, -time.Hour} {
		t.Run(step.String(), func(t *testing.T) {
			server, in := newMini(t, 2)
			a := spaced(300 * time.Millisecond)
			l := granted(t, in[0], a)
			server.SetTime(time.Now().Add(step))
			denied(t, in[1], a, a.Delay, leaseLasts+time.Second)
			in[1].quiet() // it gives back the lease that it should not have been granted
			l.End()
			l.given()
			end := time.Now()
			var started time.Time
			eventually(t, "the lane goes on", func() bool {
				server.SetTime(time.Now().Add(step)) // the fake clock stands still
				started = time.Now()
				return lease(t, in[1], a).Lease != nil
			})
			if gap := started.Sub(end); gap < a.Delay {
				t.Errorf("the next request started %v after the end of the one before, want %v", gap, a.Delay)
			}
			if got := in[0].Stats().Lost; got != 0 {
				t.Errorf("%d leases lost", got)
			}
		})
	}
}

func TestServerThatForgot(t *testing.T) {
	server, in := newMini(t, 2)
	a := spaced(4 * time.Second)
	l := granted(t, in[0], a)
	server.FlushAll()
	l.renew()
	l.given()
	trust(in...)
	denied(t, in[1], a, a.Delay, leaseLasts) // the holder has renewed its lease
	server.FlushAll()
	l.End()
	l.given()
	trust(in...)
	denied(t, in[1], a, a.Delay*9/10, a.Delay)
	if got := in[0].Stats().Lost; got != 0 {
		t.Errorf("%d leases lost, want none", got)
	}
}

// The number of the last lease shows that a server lost its memory without a restart, even if that lease was given
// back.
func TestServerThatForgotWhileItRan(t *testing.T) {
	server, in := newMini(t, 2)
	a := spaced(4 * time.Second)
	granted(t, in[0], a).Cancel()
	in[0].quiet()
	answer := lease(t, in[1], a)
	if answer.LastLease != 2 {
		t.Fatalf("the second lease has the number %d", answer.LastLease)
	}
	answer.Lease.Cancel()
	in[1].quiet()
	a.LastLease, a.LastHeard = answer.LastLease, time.Now()
	server.FlushAll()
	trust(in[1])
	denied(t, in[1], a, a.Delay*9/10, a.Delay)
	if got := in[1].Stats().Corrupt; got != 1 {
		t.Errorf("%d reports of what was forgotten, want 1", got)
	}
	b := ratelimit.LeaseRequest{Key: "b.example", Delay: time.Second, Limit: 1, LastLease: 7, LastHeard: time.Now().Add(-time.Second - remembered - time.Millisecond)}
	granted(t, in[1], b) // Redis has dropped the lane since
}

func TestNothingStaysForEver(t *testing.T) {
	server, in := newMini(t, 2)
	granted(t, in[0], spaced(time.Second))
	lease(t, in[1], spaced(time.Second))
	pauses(t, in[0], "b.example", time.Hour, ratelimit.RetryAfter)
	if err := in[0].Override(host, ratelimit.Override{Stop: true, Until: time.Now().Add(time.Minute)}); err != nil {
		t.Fatal(err)
	}
	if _, err := in[0].CountThrottle(ratelimit.ThrottleEvent{Key: host, Client: "a", Sent: time.Now()}); err != nil {
		t.Fatal(err)
	}
	for _, key := range server.Keys() {
		if ttl := server.TTL(key); ttl <= 0 || ttl > 2*time.Hour {
			t.Errorf("%s lives for %v", key, ttl)
		}
		if !strings.HasPrefix(key, "robotsproxy:{lanes}:") {
			t.Errorf("%s is not in the slot of all others", key)
		}
	}
}

// All keys are in one hash slot of a Cluster, which the first text in braces selects.
func TestKeysAreTogether(t *testing.T) {
	r := &Client{prefix: "p:"}
	for key, begins := range map[string]string{
		"a.example":              "a.example:",
		"2001:db8::1":            "2001:db8::1:",
		"":                       "sha256-e3b0c442",
		"a}b":                    "a}b:",
		"{x":                     "{x:",
		"a\nb":                   "sha256-",
		strings.Repeat("a", 300): "sha256-",
	} {
		keys := r.keys(key)
		if keys[len(keys)-1] != "p:{lanes}:memory" {
			t.Errorf("keys(%q): %q", key, keys)
		}
		for _, name := range keys[:len(keys)-1] {
			if !strings.HasPrefix(name, "p:{lanes}:"+begins) || len(name) > 300 {
				t.Errorf("keys(%q) has %q", key, name)
			}
		}
	}
}

func TestDownModes(t *testing.T) {
	for mode, want := range map[OnDown]ratelimit.Mode{OnDownSpread: ratelimit.ModeSpread, OnDownLocal: ratelimit.ModeLocal} {
		t.Run(string(mode), func(t *testing.T) {
			server := miniredis.RunT(t)
			r := newRedis(t, Options{URL: "redis://" + server.Addr(), OnDown: mode})
			server.Close()
			a := ratelimit.LeaseRequest{Key: host, Limit: 8}
			if answer := lease(t, r, a); answer.Lease == nil || answer.Mode != want {
				t.Errorf("without Redis: %+v, want a Lease in mode %s", answer, want)
			}
			if answer := lease(t, r, spaced(time.Second)); answer.Lease != nil {
				t.Error("a delay was not kept from what another instance may have sent at the last moment")
			}
			if err := server.Restart(); err != nil {
				t.Fatal(err)
			}
			eventually(t, "Redis is used again", func() bool { return lease(t, r, a).Mode == ratelimit.ModeRedis })
		})
	}
	t.Run("refuse", func(t *testing.T) {
		server := miniredis.RunT(t)
		r := newRedis(t, Options{URL: "redis://" + server.Addr(), OnDown: OnDownRefuse})
		server.Close()
		for range 2 {
			_, err := r.Lease(ratelimit.LeaseRequest{Key: host, Limit: 8})
			var unavailable *ratelimit.UnavailableError
			if !errors.As(err, &unavailable) || unavailable.RetryAfter <= 0 || unavailable.Err == nil {
				t.Errorf("Lease: %v, want an UnavailableError with a time and a cause", err)
			}
		}
		if got := r.Stats(); got.Up || got.Downs != 1 {
			t.Errorf("%+v, want one fall", got)
		}
	})
}

// Updates that could not be sent while Redis was down are sent when it returns.
func TestNewsIsNotLostWhileRedisIsDown(t *testing.T) {
	server, in := newMini(t, 2)
	server.Close()
	unreached(t, in[0])
	for range 2 {
		in[0].Pause(host, time.Hour, ratelimit.RetryAfter)
		if err := in[0].Override("b.example", ratelimit.Override{Stop: true}); err == nil {
			t.Error("an order was shared without Redis")
		}
	}
	if err := server.Restart(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "Redis is back, and told", func() bool { return in[0].Stats().Up && in[1].Stats().Up && !in[0].hasPending() })
	if answer := lease(t, in[1], ratelimit.LeaseRequest{Key: host, Limit: 8}); answer.Paused < 59*time.Minute {
		t.Errorf("after the return: %+v, want a pause of an hour", answer)
	}
	if answer := lease(t, in[1], ratelimit.LeaseRequest{Key: "b.example", Limit: 8}); !answer.Override.Stop {
		t.Errorf("after the return: %+v, want a stop", answer)
	}
}

// A pending override is not sent after a later one.
func TestNewsDoNotOvertake(t *testing.T) {
	_, in := newMini(t, 2)
	in[0].mu.Lock() // a command that timed out just now
	in[0].pending.pause(host, pause{time.Now().Add(time.Hour), ratelimit.RetryAfter})
	in[0].pending.override(host, datedOverride{Override: ratelimit.Override{Stop: true}})
	in[0].mu.Unlock()
	if err := in[0].Override(host, ratelimit.Override{Floor: time.Minute}); err != nil {
		t.Fatal(err)
	}
	in[0].heartbeat(instanceLasts)
	eventually(t, "all is told", func() bool { return !in[0].hasPending() })
	answer := lease(t, in[1], ratelimit.LeaseRequest{Key: host, Limit: 8})
	if answer.Override.Stop || answer.Override.Floor != time.Minute || answer.Paused < 59*time.Minute {
		t.Errorf("Lease: %+v, want the floor, which came last, and the pause", answer)
	}
}

// An instance that has never reached Redis knows no other instance, and logs a warning about it once a minute.
func TestNobodyIsKnown(t *testing.T) {
	var log syncBuffer
	r := newRedis(t, Options{URL: "redis://127.0.0.1:1", Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if answer := lease(t, r, spaced(time.Second)); answer.Lease == nil || answer.Mode != ratelimit.ModeLocal {
		t.Errorf("Lease: %+v, want one in mode local", answer)
	}
	warnings := func() int { return strings.Count(log.String(), "level=WARN msg=\"Redis was never reached") }
	for range 3 {
		r.failed(errors.New("gone"))
	}
	if got := warnings(); got != 1 {
		t.Errorf("%d warnings that nobody is known, want 1: %s", got, log.String())
	}
	r.health.mu.Lock()
	r.health.warned = r.health.warned.Add(-time.Minute)
	r.health.mu.Unlock()
	r.failed(errors.New("gone"))
	if got := warnings(); got != 2 {
		t.Errorf("%d warnings after a minute, want 2", got)
	}
}

// slowly is a hook of a client whose server answers one question for a lease at a time, each a little late. It answers
// everything else at once.
type slowly struct{ mu sync.Mutex }

func (h *slowly) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h *slowly) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (h *slowly) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		h.mu.Lock()
		time.Sleep(time.Duration(leases(cmds)) * 2 * time.Millisecond)
		h.mu.Unlock()
		if err := ctx.Err(); err != nil {
			return err
		}
		return next(ctx, cmds)
	}
}

// However many hosts ask for a lease at once, each question has a second for its answer.
func TestManyHostsAtOnce(t *testing.T) {
	_, in := newMini(t, 1)
	in[0].redis.AddHook(&slowly{})
	var wg sync.WaitGroup
	for i := range 600 {
		wg.Go(func() {
			answer, err := in[0].Lease(ratelimit.LeaseRequest{Key: fmt.Sprint("host", i), Limit: 1})
			if err != nil || answer.Lease == nil || answer.Mode != ratelimit.ModeRedis {
				t.Errorf("host %d: %+v, %v, want a Lease by Redis", i, answer, err)
				return
			}
			answer.Lease.End()
		})
	}
	wg.Wait()
	if got := in[0].Stats().Downs; got != 0 {
		t.Errorf("Redis went down %d times", got)
	}
}

// A server that hung grants no lease to an instance that has stopped waiting. If the instance did not know the clock of
// the server, it asks once more.
func TestLateQuestionIsNotGranted(t *testing.T) {
	server, in := newMini(t, 1)
	slow := func() {
		in[0].health.mu.Lock()
		in[0].health.clock -= time.Hour
		in[0].health.mu.Unlock()
	}
	slow()
	v, err := in[0].call(&command{verb: "lease", key: host, args: []any{0, 1, "mark", 1, 0, 1}})
	if err != nil || v.text(0) != "" || v.number(1) >= 0 || server.Exists(in[0].keys(host)[1]) {
		t.Errorf("a question that comes late is answered %v, %v, want no lease", v, err)
	}
	slow()
	granted(t, in[0], ratelimit.LeaseRequest{Key: host, Limit: 1})
}

// A slow answer changes the known clock only if it contradicts it.
func TestClockIsHeardFromQuickAnswers(t *testing.T) {
	epoch := time.Now()
	h := newHealth("a", epoch)
	at := func(d time.Duration) time.Time { return epoch.Add(d) }
	h.setClock(time.Hour, at(0), at(0))
	h.setClock(time.Hour+10*time.Millisecond, at(10*time.Millisecond), at(910*time.Millisecond)) // only the way back was slow
	if got := h.clockAt(at(time.Second)); got != time.Hour+time.Second {
		t.Errorf("a second later the clock is taken for %v, want %v", got, time.Hour+time.Second)
	}
	if wait := h.distrusts(time.Second, at(time.Second)); wait != 0 {
		t.Errorf("a slow answer is distrusted for %v", wait)
	}
	h.setClock(2*time.Hour, at(time.Second), at(2*time.Second))
	if got := h.clockAt(at(1500 * time.Millisecond)); got != 2*time.Hour {
		t.Errorf("after a step the clock is taken for %v, want %v", got, 2*time.Hour)
	}
	if wait := h.distrusts(time.Second, at(2*time.Second)); wait == 0 {
		t.Error("a step of the clock is not distrusted")
	}
}

// A lease that leaves room for another one wakes the next instance in the line.
func TestLeaseThatLeavesRoomWakes(t *testing.T) {
	_, in := newMini(t, 3)
	a := ratelimit.LeaseRequest{Key: host, Limit: 2}
	held := []*heldLease{granted(t, in[0], a), granted(t, in[0], a)}
	woken := make(chan string, 8)
	in[2].Watch(func(key string) { woken <- key })
	denied(t, in[1], a, time.Second, leaseLasts)
	denied(t, in[2], a, time.Second, leaseLasts+time.Second)
	for _, l := range held {
		l.End()
		l.given()
	}
	eventually(t, "both ends are heard of", func() bool { return len(woken) == 2 })
	granted(t, in[1], a)
	eventually(t, "the next in the line is woken", func() bool { return len(woken) == 3 })
}

// In spread, and until all instances know that Redis has returned, each has its share of the limit.
func TestSpreadSharesTheLimit(t *testing.T) {
	server, in := newMini(t, 4)
	server.Close()
	a := ratelimit.LeaseRequest{Key: host, Limit: 8, InFlight: 1}
	if answer := lease(t, in[0], a); answer.Lease == nil || answer.Mode != ratelimit.ModeSpread {
		t.Errorf("Lease(%+v) = %+v, want a Lease in mode spread", a, answer)
	}
	a.InFlight = 2
	denied(t, in[0], a, time.Second, time.Second)

	if err := server.Restart(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "Redis is back", func() bool { return in[0].Stats().Up })
	in[0].health.mu.Lock()
	in[0].health.settled = time.Now().Add(time.Minute)
	in[0].health.mu.Unlock()
	denied(t, in[0], a, time.Second, time.Second)
	a.InFlight = 1
	granted(t, in[0], a)
}

// Slots of different instances do not overlap, and are at least a delay apart.
func TestSlotsFollowEachOther(t *testing.T) {
	const step, delay = 10 * time.Millisecond, 400 * time.Millisecond
	epoch := time.Now()
	ids := []string{"a", "b", "c"}
	var all []*health
	for i, id := range ids {
		h := newHealth(id, epoch.Add(time.Duration(i)*time.Hour)) // with its own clock
		h.instances = ids
		h.clock = time.Duration(i) * time.Hour
		all = append(all, h)
	}
	last, lastAt, turns := "", time.Duration(0), 0
	for at := time.Duration(0); at < time.Minute; at += step {
		for _, h := range all {
			if h.untilSlot(host, delay, epoch.Add(at)) > 0 {
				continue
			}
			if h.id != last {
				if turns++; turns > 1 && at-lastAt < delay+100*time.Millisecond {
					t.Fatalf("%s starts %v after %s, want %v and time for its request", h.id, at-lastAt, last, delay)
				}
			}
			last, lastAt = h.id, at
		}
	}
	if want := int(time.Minute / (600 * time.Millisecond)); turns < want-1 || turns > want+1 {
		t.Errorf("%d slots in a minute, want %d", turns, want)
	}
	if wait := all[0].untilSlot(host, delay, epoch.Add(time.Second)); all[0].untilSlot(host, delay, epoch.Add(time.Second+wait)) != 0 {
		t.Errorf("the wait of %v does not lead to a slot", wait)
	}
}

// A syncBuffer is a log that several goroutines write.
type syncBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

func TestPasswordsStayOutOfErrorsAndLogs(t *testing.T) {
	const secret = "hunter2"
	for _, url := range []string{
		"redis://user:" + secret + "@[::1", "http://user:" + secret + "@h", "redis://u:" + secret + "@h/x", "redis://u:" + secret + "@h/0?no=1",
		"redis://u:" + secret + "@h?addr=x", "unix://u:" + secret + "@h?master_name=m", "re dis://u:" + secret + "@h:port", "",
	} {
		_, err := New(Options{URL: url})
		if err == nil || strings.Contains(err.Error(), secret) {
			t.Errorf("New(%q): %v, want an error without the password", url, err)
		}
	}
	var log bytes.Buffer
	r := newRedis(t, Options{URL: "redis://user:" + secret + "@127.0.0.1:1/0", Logger: slog.New(slog.NewTextHandler(&log, nil))})
	r.Close()
	if strings.Contains(log.String(), secret) || !strings.Contains(log.String(), "Redis is down") {
		t.Errorf("the log is %s", log.String())
	}
}

func TestURLsOfEachKind(t *testing.T) {
	for _, url := range []string{
		"redis://u:p@127.0.0.1:1/2", "rediss://127.0.0.1:1", "unix:///nowhere.sock?db=1", "redis://127.0.0.1:1?master_name=main&addr=127.0.0.1:2&password=p",
		"rediss://127.0.0.1:1?addr=127.0.0.1:2&addr=127.0.0.1:3",
	} {
		r, err := New(Options{URL: url})
		if err != nil {
			t.Errorf("New(%s): %v", url, err)
			continue
		}
		if r.Stats().Up {
			t.Errorf("%s is up", url)
		}
		r.Close()
	}
	if _, err := New(Options{URL: "redis://127.0.0.1:1", OnDown: "hope"}); err == nil {
		t.Error("OnDown hope was taken")
	}
}

// eventually waits until try returns true.
func eventually(t *testing.T, what string, try func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if try() {
			return
		}
	}
	t.Fatalf("not within 20 s: %s", what)
}

func TestMicrosRoundUp(t *testing.T) {
	for d, want := range map[time.Duration]int64{0: 0, 1: 1, time.Microsecond: 1, time.Second / 3: 333_334, -time.Nanosecond: 0} {
		if got := micros(d); got != want {
			t.Errorf("micros(%v) = %d, want %d", d, got, want)
		}
	}
}

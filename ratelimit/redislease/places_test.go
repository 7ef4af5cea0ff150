package redislease

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/robotsproxy/robotsproxy/internal/redistest"
	"github.com/robotsproxy/robotsproxy/ratelimit"
)

// calls returns how often the server has run a command, by INFO commandstats.
func calls(t *testing.T, server *redistest.Server, command string) int {
	t.Helper()
	line := info(t, server, "commandstats", "cmdstat_"+command)
	if line == "" {
		return 0
	}
	var n int
	if _, err := fmt.Sscanf(line, "calls=%d", &n); err != nil {
		t.Fatalf("%s: %v", line, err)
	}
	return n
}

// Most requests to hosts without a Delay ask Redis nothing, and a script reads the fields of a lane at once.
func TestFewQuestionsWithoutDelay(t *testing.T) {
	server := redistest.Start(t)
	relay := redistest.NewRelay(t, server.Addr())
	r := newRedis(t, Options{URL: relay.URL()})
	l := newLimiter(t, ratelimit.Options{Coordinator: r})
	eventually(t, "Redis is up", func() bool { return r.Stats().Up })
	relay.Delay(10 * time.Millisecond)
	evals, gets := calls(t, server, "evalsha"), calls(t, server, "hget")
	const hosts, pages = 50, 40
	var workers sync.WaitGroup
	for h := range hosts {
		for range 4 {
			workers.Go(func() {
				for range pages / 4 {
					g, err := l.Acquire(t.Context(), ratelimit.Request{Key: fmt.Sprintf("h%d.example", h), Client: "a", MaxWait: 10 * time.Second})
					if err != nil {
						t.Error(err)
						return
					}
					if g.Mode() != ratelimit.ModeRedis {
						t.Errorf("a request is paced by mode %s", g.Mode())
					}
					time.Sleep(time.Duration(rand.IntN(3)) * time.Millisecond)
					g.Release(ratelimit.Outcome{Status: 200})
				}
			})
		}
	}
	workers.Wait()
	asked := calls(t, server, "evalsha") - evals
	if got := float64(asked) / (hosts * pages); asked == 0 || got > 0.3 {
		t.Errorf("%.2f EVALSHA a request, want some, and 0.3 at most", got)
	}
	if got := calls(t, server, "hget") - gets; got > asked/4 { // the heartbeats need a few
		t.Errorf("%d HGET for %d scripts", got, asked)
	}
}

// However the instances come and go, and whatever Redis loses, no more than limit requests are in flight, each instance
// gets its turns, and a place that an instance keeps is there for another one at once.
func TestKeptPlacesKeepTheLimit(t *testing.T) {
	for name, disturb := range map[string]func(*redistest.Server){
		"nothing":     func(*redistest.Server) {},
		"memory":      func(s *redistest.Server) { s.Do("FLUSHALL") },
		"scripts":     func(s *redistest.Server) { s.Do("SCRIPT FLUSH") },
		"connections": func(s *redistest.Server) { s.Do("CLIENT KILL TYPE normal"); s.Do("CLIENT KILL TYPE pubsub") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			time.AfterFunc(time.Second, func() { disturb(server) })
			keepTheLimit(t, server.URL())
		})
	}
}

// keepTheLimit sends requests, of which some take longer than Redis needs after a loss of memory, for eight seconds.
func keepTheLimit(t *testing.T, url string) {
	const limit, instances = 4, 3
	var now, most atomic.Int64
	var served [instances]atomic.Int64
	var workers sync.WaitGroup
	end := time.Now().Add(8 * time.Second)
	for i := range instances {
		l := newLimiter(t, ratelimit.Options{Coordinator: newRedis(t, Options{URL: url}), MaxConcurrent: limit})
		for range 6 {
			workers.Go(func() {
				for time.Now().Before(end) {
					if rand.IntN(20) == 0 { // sometimes all places of an instance are free
						time.Sleep(100 * time.Millisecond)
					}
					g, err := l.Acquire(t.Context(), ratelimit.Request{Key: host, Client: "a", MaxWait: 20 * time.Second})
					if err != nil {
						t.Error(err)
						return
					}
					n := now.Add(1)
					for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
					}
					took := time.Duration(rand.IntN(5)) * time.Millisecond
					if rand.IntN(100) == 0 {
						took = settleTime + time.Second
					}
					time.Sleep(took)
					now.Add(-1)
					served[i].Add(1)
					g.Release(ratelimit.Outcome{Status: 200})
				}
			})
		}
	}
	workers.Wait()
	if got := most.Load(); got > limit {
		t.Errorf("%d requests were in flight at once, want %d at most", got, limit)
	}
	for i := range served {
		if served[i].Load() < 10 {
			t.Errorf("instance %d sent %d requests", i, served[i].Load())
		}
	}
}

// A place that one instance keeps goes to another one that needs it, and to its own request with a Delay.
func TestKeptPlacesAreGivenBack(t *testing.T) {
	server := redistest.Start(t)
	in, _ := newPair(t, server.URL())
	free := ratelimit.LeaseRequest{Key: host, Limit: 1, Waiting: 1}
	granted(t, in[0], free).End() // it is kept
	paced := ratelimit.LeaseRequest{Key: host, Limit: 1, Delay: time.Millisecond, Waiting: 1}
	for i, a := range []ratelimit.LeaseRequest{free, paced} {
		begin := time.Now()
		var l ratelimit.Lease
		eventually(t, "the other instance gets the place", func() bool {
			l = lease(t, in[1], a).Lease
			return l != nil
		})
		if took := time.Since(begin); took > leaseLasts/2 {
			t.Errorf("the question %d of the other instance got the place after %v, want it long before it expires", i, took)
		}
		l.End()
	}
	granted(t, in[1], free).End()
	eventually(t, "a request with a Delay gets the place of its own instance", func() bool {
		l := lease(t, in[1], paced).Lease
		if l != nil {
			l.End()
		}
		return l != nil
	})
}

// An operator's stop and a pause hold for requests that need no question too: at once after the message, and within
// freshFor without one.
func TestKeptPlacesObey(t *testing.T) {
	server := redistest.Start(t)
	in, _ := newPair(t, server.URL())
	for _, message := range []bool{true, false} {
		for name, order := range map[string]func(key string){
			"stop":  func(key string) { _ = in[1].Override(key, ratelimit.Override{Stop: true}) },
			"pause": func(key string) { in[1].Pause(key, time.Minute, ratelimit.RetryAfter) },
		} {
			a := ratelimit.LeaseRequest{Key: fmt.Sprintf("%s-%t.example", name, message), Limit: 8, Waiting: 1}
			if !message {
				server.Do("CLIENT KILL TYPE pubsub") // the subscriptions are made anew, after the message
			}
			granted(t, in[0], a).End()
			order(a.Key)
			begin := time.Now()
			eventually(t, "no request starts", func() bool {
				l := lease(t, in[0], a).Lease
				if l != nil {
					l.End()
				}
				return l == nil
			})
			if took := time.Since(begin); took > freshFor+time.Second {
				t.Errorf("%s, message %t: requests started for %v", name, message, took)
			}
		}
	}
}

// A message that comes before the answer to a question counts although the question was sent before it.
func TestMessageBeforeTheAnswer(t *testing.T) {
	p, now := newPlaces(), time.Now()
	granted := ratelimit.LeaseResult{Lease: &heldLease{}}
	p.ask(host, now)
	p.doubt(host, now.Add(time.Millisecond))
	p.add(host, place{"1:a:1:kept", now}, now)
	p.answered(host, granted, now, now.Add(2*time.Millisecond))
	if _, ok := p.take(host, now.Add(3*time.Millisecond)); ok {
		t.Error("after a message, a request starts without a question")
	}
	now = now.Add(time.Second)
	p.ask(host, now)
	p.share(host, now.Add(time.Millisecond))
	p.add(host, place{"2:a:2:kept", now}, now)
	if !p.answered(host, granted, now, now.Add(2*time.Millisecond)) {
		t.Error("another instance wants the leases, and they are kept")
	}
	if p.keep(host, place{"3:a:2:kept", now}, now.Add(3*time.Millisecond)) {
		t.Error("another instance wants a lease, and it is kept")
	}
}

// The leases kept for one lane fit into one question.
func TestKeptPlacesOfALaneAreBounded(t *testing.T) {
	p, now := newPlaces(), time.Now()
	p.ask(host, now)
	for range 10_000 {
		p.keep(host, place{"1:a:1:kept", now}, now)
	}
	if n := len(p.give(host, now)); n != maxKept {
		t.Errorf("%d leases are kept, want %d", n, maxKept)
	}
}

// What is known of lanes is bounded.
func TestPlacesAreBounded(t *testing.T) {
	p := newPlaces()
	now := time.Now()
	for i := range 50_000 {
		at := now.Add(time.Duration(i) * 10 * time.Millisecond)
		key := fmt.Sprintf("h%d.example", i)
		p.add(key, place{"1:a:1:kept", at}, at)
		p.answered(key, ratelimit.LeaseResult{Lease: &heldLease{}}, at, at)
		if len(p.byKey) > 4096 {
			t.Fatalf("%d lanes are kept after %d requests of 100 a second", len(p.byKey), i)
		}
	}
}

// lossy is a hook of the Redis client. It drops the answer to the first question for a lease, after it has called run.
type lossy struct {
	afterwards
	lost atomic.Bool
}

func (h *lossy) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := h.afterwards.ProcessPipelineHook(next)(ctx, cmds)
		if leases(cmds) == 0 || h.lost.Swap(true) {
			return err
		}
		for _, cmd := range cmds {
			cmd.SetErr(io.ErrUnexpectedEOF)
		}
		return io.ErrUnexpectedEOF
	}
}

// A question that is repeated since its answer was lost returns all leases that it was granted first, also if another
// instance was granted one between.
func TestLostAnswerKeepsAllLeases(t *testing.T) {
	server := redistest.Start(t)
	in, _ := newPair(t, server.URL())
	a := ratelimit.LeaseRequest{Key: host, Limit: 12, Waiting: 5}
	granted(t, in[0], ratelimit.LeaseRequest{Key: "b.example", Limit: 1}) // the script is known
	hook := &lossy{}
	hook.run = func() { granted(t, in[1], ratelimit.LeaseRequest{Key: host, Limit: 12, Waiting: 1}) }
	in[0].redis.AddHook(hook)
	granted(t, in[0], a)
	if !hook.lost.Load() {
		t.Fatal("no answer was lost")
	}
	if got := len(in[0].places.give(host, time.Now())); got != 4 {
		t.Errorf("%d leases are kept for further requests, want 4", got)
	}
	if got := server.Do("ZCARD " + in[0].keys(host)[1]); got != ":6" {
		t.Errorf("%s leases are held, want 6", got)
	}
}

// silent is a hook of the Redis client. The first renewal gets no answer, and does not reach the server.
type silent struct {
	afterwards
	lost atomic.Bool
}

func (h *silent) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if !slices.Contains(cmds[0].Args(), any("renew")) || h.lost.Swap(true) {
			return next(ctx, cmds)
		}
		<-ctx.Done()
		for _, cmd := range cmds {
			cmd.SetErr(ctx.Err())
		}
		return ctx.Err()
	}
}

// A kept lease that is used again survives one renewal without an answer, although its first one comes late.
func TestKeptLeaseSurvivesALostRenewal(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	r := newRedis(t, Options{URL: server.URL()})
	eventually(t, "Redis is up and sends messages", func() bool { return r.Stats().Up && r.hears.Load() })
	a := ratelimit.LeaseRequest{Key: host, Limit: 1, Waiting: 1}
	first := granted(t, r, a)
	first.End()
	time.Sleep(renewReused / 2)
	l := granted(t, r, a)
	if l.token != first.token {
		t.Fatalf("the lease %s is not the one that was kept, %s", l.token, first.token)
	}
	hook := &silent{}
	r.redis.AddHook(hook)
	eventually(t, "a renewal is lost", hook.lost.Load)
	other := newRedis(t, Options{URL: server.URL()})
	for begin := time.Now(); time.Since(begin) < leaseLasts-renewReused+time.Second; time.Sleep(50 * time.Millisecond) {
		if lease(t, other, a).Lease != nil {
			t.Fatal("the lease has ended")
		}
	}
	l.End()
	if got := r.Stats(); got.Lost != 0 || got.Downs != 0 {
		t.Errorf("%+v, want no lost lease and no fall", got)
	}
}

// The cancel of the last of several leases does not undo the others, which may be in use.
func TestCancelOfOneOfSeveralLeases(t *testing.T) {
	server := redistest.Start(t)
	crews := newCrews(t, 2, Options{URL: server.URL()})
	r, other := crews[0].redis, crews[1].redis
	eventually(t, "Redis sends messages", r.hears.Load)
	sent := granted(t, r, ratelimit.LeaseRequest{Key: host, Limit: 8, Waiting: 2})
	v, err := r.call(&command{verb: "cancel", key: host, args: []any{r.places.give(host, time.Now())[0], int64(0)}})
	if err != nil || v.number(0) != 1 {
		t.Fatalf("the cancel of the second lease is answered %v, %v", v, err)
	}
	// Requests are spaced by their starts now, as after a reload with default_delay.
	const delay = time.Minute
	denied(t, other, ratelimit.LeaseRequest{Key: host, Delay: delay, FromStart: true, Limit: 8}, delay-10*time.Second, delay)
	sent.End()
}

// A lease lasts from the time when Redis granted it, which is not before the question was sent and may be long before
// the answer comes.
func TestLeaseLastsFromTheQuestion(t *testing.T) {
	server := redistest.Start(t)
	relay := redistest.NewRelay(t, server.Addr())
	r := newRedis(t, Options{URL: relay.URL()})
	eventually(t, "Redis is up and sends messages", func() bool { return r.Stats().Up && r.hears.Load() })
	granted(t, r, ratelimit.LeaseRequest{Key: "b.example", Limit: 1}) // the script is known
	const late = 600 * time.Millisecond
	relay.Delay(late)
	asked := time.Now()
	l := granted(t, r, ratelimit.LeaseRequest{Key: host, Limit: 8, Waiting: 2})
	since := time.Since(asked)
	for what, age := range map[string]time.Duration{"the lease": l.age(), "the further lease": time.Since(r.places.byKey[host].free[0].renewed)} {
		if age < late || age > since+late/2 {
			t.Errorf("%s is %v old, want %v", what, age, since)
		}
	}
	relay.Delay(0)
	r.redis.AddHook(&afterwards{run: func() { time.Sleep(leaseLasts) }}) // as if the process was suspended
	answer := lease(t, r, ratelimit.LeaseRequest{Key: "c.example", Limit: 1, Delay: time.Millisecond})
	if answer.Lease != nil {
		t.Errorf("an answer that comes after the lease has ended: %+v, want no Lease", answer)
	}
}

// A lease to which a floor applies goes back to Redis at its end, also from an instance that did not know the floor.
func TestLeaseUnderAFloorIsNotKept(t *testing.T) {
	server := redistest.Start(t)
	in, _ := newPair(t, server.URL())
	eventually(t, "Redis sends messages", in[1].hears.Load)
	if err := in[0].Override(host, ratelimit.Override{Floor: 10 * time.Millisecond}); err != nil {
		t.Fatal(err)
	}
	l := granted(t, in[1], ratelimit.LeaseRequest{Key: host, Limit: 8, Waiting: 1})
	l.End()
	l.given()
	if got := server.Do("ZCARD " + in[0].keys(host)[1]); got != ":0" {
		t.Errorf("%s leases are held after the end of the request, want 0", got)
	}
}

// All requests in flight to a host without a Delay count again after Redis has lost its memory, in whichever order their
// leases are renewed.
func TestLeasesOutliveTheMemoryOfRedis(t *testing.T) {
	server := redistest.Start(t)
	in, _ := newPair(t, server.URL())
	const limit = 8
	a := ratelimit.LeaseRequest{Key: host, Limit: limit, Waiting: limit}
	var held []*heldLease
	for range limit {
		held = append(held, granted(t, in[0], a))
	}
	server.Do("FLUSHALL")
	for _, l := range slices.Backward(held) {
		l.renew()
	}
	in[0].quiet()
	if got := server.Do("ZCARD " + in[0].keys(host)[1]); got != fmt.Sprint(":", limit) {
		t.Errorf("%s leases are held, want %d", got, limit)
	}
	for _, l := range held {
		l.End()
	}
	if got := in[0].Stats().Lost; got != 0 {
		t.Errorf("%d leases were lost, want none", got)
	}
}

// A kept lease may have been used until it is given back, so a Delay that counts from starts counts from then: by the
// question that returns it, by an end, or after it has expired.
func TestDelayFromTheStartAfterAKeptLease(t *testing.T) {
	server := redistest.Start(t)
	crews := newCrews(t, 2, Options{URL: server.URL()})
	in := []*Client{crews[0].redis, crews[1].redis}
	eventually(t, "Redis sends messages", func() bool { return in[0].hears.Load() && in[1].hears.Load() })
	const delay = 1500 * time.Millisecond
	free := ratelimit.LeaseRequest{Key: host, Limit: 1, Waiting: 1}
	spaced := ratelimit.LeaseRequest{Key: host, Delay: delay, FromStart: true, Limit: 1, Waiting: 1}
	for i, r := range in {
		free.Key = fmt.Sprintf("h%d.example", i)
		spaced.Key = free.Key
		granted(t, in[0], free).End()
		time.Sleep(delay * 2 / 3)
		l := granted(t, in[0], free) // without a question
		used := time.Now()
		l.End()
		eventually(t, "a request with a Delay starts", func() bool { return lease(t, r, spaced).Lease != nil })
		if gap := time.Since(used); gap < delay {
			t.Errorf("instance %d started a request %v after the one before, want %v", i, gap, delay)
		}
	}
}

// A lease that is too old for another request goes back with the next question, unless it has ended.
func TestOldPlaceIsGivenBack(t *testing.T) {
	p, now := newPlaces(), time.Now()
	p.ask(host, now)
	p.answered(host, ratelimit.LeaseResult{Lease: &heldLease{}}, now, now)
	p.keep(host, place{"1:a:1:kept", now}, now)
	p.keep(host, place{"2:a:1:kept", now.Add(-reusableFor)}, now)
	p.keep(host, place{"3:a:1:kept", now.Add(-leaseLasts)}, now)
	if found, ok := p.take(host, now); !ok || found.token != "1:a:1:kept" {
		t.Errorf("take: %+v, %t, want the newer lease", found, ok)
	}
	if _, ok := p.take(host, now); ok {
		t.Error("a lease is used again that may end during the request")
	}
	if tokens := p.give(host, now); len(tokens) != 1 {
		t.Errorf("%v go back, want the older lease", tokens)
	}
}

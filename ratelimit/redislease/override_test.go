package redislease

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/robotsproxy/robotsproxy/internal/redistest"
	"github.com/robotsproxy/robotsproxy/ratelimit"
)

// stillStopped reports an error unless l refuses a request to host because the operator has stopped it.
func stillStopped(t *testing.T, l *ratelimit.Limiter, when string, delay time.Duration) {
	t.Helper()
	var stopped *ratelimit.StoppedError
	if g, err := l.Acquire(t.Context(), ratelimit.Request{Key: host, Client: "a", Delay: delay, MaxWait: time.Second}); !errors.As(err, &stopped) {
		t.Errorf("%s: Acquire = %+v, %v, want a *StoppedError", when, g, err)
		g.Cancel()
	}
	if err := l.Stopped(host); !errors.As(err, &stopped) {
		t.Errorf("%s: Stopped = %v, want a *StoppedError", when, err)
	}
}

// A result for which Redis was not asked does not lift a stop.
func TestStopOutlivesAnAnswerThatDoesNotKnow(t *testing.T) {
	_, in := newMini(t, 1)
	l := newLimiter(t, ratelimit.Options{Coordinator: in[0]})
	if err := l.Stop(host, time.Time{}); err != nil {
		t.Fatal(err)
	}
	in[0].health.mu.Lock()
	in[0].health.distrustLocked(time.Now())
	in[0].health.mu.Unlock()
	a := spaced(10 * time.Second)
	if answer := denied(t, in[0], a, a.Delay, a.Delay+renewEvery); !answer.Override.Stop {
		t.Errorf("Lease = %+v, want a stop", answer)
	}
	stillStopped(t, l, "while Redis is not asked", a.Delay)
}

// An answer that comes too late, twice, does not lift a stop.
func TestStopOutlivesLateAnswers(t *testing.T) {
	_, in := newMini(t, 1)
	l := newLimiter(t, ratelimit.Options{Coordinator: in[0]})
	if err := l.Stop(host, time.Time{}); err != nil {
		t.Fatal(err)
	}
	in[0].redis.AddHook(alwaysLate{})
	answer := lease(t, in[0], ratelimit.LeaseRequest{Key: host, Limit: 8})
	if answer.Lease != nil || !answer.Override.Stop || answer.Wait <= 0 {
		t.Errorf("Lease = %+v, want none, a stop, and a time to ask again", answer)
	}
	stillStopped(t, l, "while answers come late", 0)
}

// alwaysLate is a hook of the Redis client that makes every question for a lease overdue.
type alwaysLate struct{}

func (alwaysLate) DialHook(next redis.DialHook) redis.DialHook { return next }

func (alwaysLate) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (alwaysLate) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		for _, cmd := range cmds {
			if verb := slices.Index(cmd.Args(), any("lease")); verb > 0 {
				cmd.Args()[verb+5] = int64(1)
			}
		}
		return next(ctx, cmds)
	}
}

// After Redis has lost its memory, each instance that knows the override restores it for the others.
func TestStopOutlivesTheMemoryOfRedis(t *testing.T) {
	server, in := newMini(t, 2)
	first, second := newLimiter(t, ratelimit.Options{Coordinator: in[0]}), newLimiter(t, ratelimit.Options{Coordinator: in[1]})
	if err := first.Stop(host, time.Time{}); err != nil {
		t.Fatal(err)
	}
	stillStopped(t, second, "as another instance has ordered", 0)
	server.FlushAll()
	stillStopped(t, second, "after Redis has forgotten", 0)
	trust(in...)
	stillStopped(t, second, "as it was told again", 0)
	third := newLimiter(t, ratelimit.Options{Coordinator: newRedis(t, Options{URL: "redis://" + server.Addr()})})
	stillStopped(t, third, "in an instance that came later", 0)
	stillStopped(t, first, "in the instance that has ordered it", 0)
	if err := third.Lift(host); err != nil {
		t.Fatal(err)
	}
	acquire(t, second, ratelimit.Request{Key: host, Client: "a", MaxWait: time.Second}).Release(ratelimit.Outcome{Status: 200})
	acquire(t, first, ratelimit.Request{Key: host, Client: "a", MaxWait: time.Second}).Release(ratelimit.Outcome{Status: 200})
	for _, r := range in {
		r.quiet()
	}
}

// A server that takes over without the last override is reminded of it, also of a lift.
func TestLiftOutlivesTheMemoryOfRedis(t *testing.T) {
	server, in := newMini(t, 2)
	key := in[0].keys(host)[3]
	if err := in[0].Override(host, ratelimit.Override{Stop: true}); err != nil {
		t.Fatal(err)
	}
	fields := make(map[string]string)
	names, err := server.HKeys(key)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		fields[name] = server.HGet(key, name)
	}
	time.Sleep(time.Millisecond)
	if err := in[0].Override(host, ratelimit.Override{}); err != nil {
		t.Fatal(err)
	}
	server.FlushAll()
	for name, value := range fields {
		server.HSet(key, name, value)
	}
	trust(in...)
	granted(t, in[0], ratelimit.LeaseRequest{Key: host, Limit: 8}).Cancel()
	if answer := lease(t, in[1], ratelimit.LeaseRequest{Key: host, Limit: 8}); answer.Override.Stop {
		t.Errorf("another instance hears %+v, want no stop", answer.Override)
	}
}

// After a restart of Redis without its data, an instance restores overrides without a question for a lease.
func TestStopOutlivesARestartOfRedis(t *testing.T) {
	server := redistest.Start(t)
	knows := newRedis(t, Options{URL: server.URL()})
	if err := knows.Override(host, ratelimit.Override{Stop: true}); err != nil {
		t.Fatal(err)
	}
	server.Kill()
	server.Restart()
	other := newRedis(t, Options{URL: server.URL()})
	eventually(t, "the stop is known again", func() bool { return lease(t, other, ratelimit.LeaseRequest{Key: host, Limit: 8}).Override.Stop })
}

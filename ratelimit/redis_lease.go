package ratelimit

import (
	"sync"
	"time"
)

// unshared is the Lease of a request that is paced without Redis.
type unshared struct{}

func (unshared) End()    {}
func (unshared) Cancel() {}

// A redisLease is a Lease that Redis granted.
type redisLease struct {
	redis *Redis
	key   string
	token string
	delay time.Duration
	until time.Time // when it is given back although the request goes on; zero is never

	// mu guards what follows, and is held while Redis is asked: a renewal that comes after the end would be a new lease.
	mu    sync.Mutex
	over  bool
	timer *time.Timer // runs renew
}

// newLease returns the lease that was granted to a, and has it renewed from now on.
func (r *Redis) newLease(a Ask, token string) *redisLease {
	l := &redisLease{redis: r, key: a.Key, token: token, delay: a.Delay}
	if a.Hold > 0 {
		l.until = time.Now().Add(a.Hold)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.timer = time.AfterFunc(l.next(), l.renew)
	return l
}

// next returns how long it is until the lease is renewed or given back.
func (l *redisLease) next() time.Duration {
	if l.until.IsZero() {
		return renewEvery
	}
	return min(renewEvery, time.Until(l.until))
}

// renew is what the timer runs.
func (l *redisLease) renew() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.over || l.redis.closing.Err() != nil {
		return
	}
	if !l.until.IsZero() && !time.Now().Before(l.until) {
		l.giveLocked("end")
		return
	}
	if v, err := l.redis.call("renew", l.key, l.token, micros(l.delay)); err == nil && v.number(0) == 0 {
		l.over = true
		l.redis.lostLease(l.key)
		return
	}
	l.timer.Reset(l.next())
}

// End implements Lease; the Delay of the next request counts from now.
func (l *redisLease) End() { l.give("end") }

// Cancel implements Lease; it is as if the lease had not been granted.
func (l *redisLease) Cancel() { l.give("cancel") }

// give tells Redis, and does not wait for it.
func (l *redisLease) give(verb string) {
	l.redis.calls.Go(func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if !l.over {
			l.giveLocked(verb)
		}
	})
}

// giveLocked tells Redis. If Redis does not hear it, the lease runs out.
func (l *redisLease) giveLocked(verb string) {
	l.over = true
	l.timer.Stop()
	if v, err := l.redis.call(verb, l.key, l.token, micros(l.delay)); err == nil && v.number(0) == 0 {
		l.redis.lostLease(l.key)
	}
}

// Sent implements Shared.
func (r *Redis) Sent(key string, delay time.Duration) { r.mention("sent", key, micros(delay)) }

// Leave implements Shared. If it is not heard, the others pass by the place.
func (r *Redis) Leave(key string) { r.mention("leave", key) }

// mention tells Redis what need not be heard, and does not wait for it.
func (r *Redis) mention(verb, key string, args ...any) {
	if r.health.down() == nil {
		r.calls.Go(func() { _, _ = r.call(verb, key, args...) })
	}
}

// lostLease counts a lease that was no longer ours.
func (r *Redis) lostLease(key string) {
	r.lost.Add(1)
	r.log.Warn("a lease ran out while its request was under way", "key", key)
}

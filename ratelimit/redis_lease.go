package ratelimit

import (
	"sync"
	"time"
)

// A Lease is the right to send one request, which no other instance has at the time. It is given back by End when the
// request has ended, or by Cancel if it was not sent; whichever comes first counts. Neither waits for Redis. A nil Lease
// is a right to nothing, and the zero Lease one that nobody shares.
type Lease struct {
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
func (r *Redis) newLease(a Ask, token string) *Lease {
	l := &Lease{redis: r, key: a.Key, token: token, delay: a.Delay}
	if a.Hold > 0 {
		l.until = time.Now().Add(a.Hold)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.timer = time.AfterFunc(l.next(), l.renew)
	return l
}

// next returns how long it is until the lease is renewed or given back.
func (l *Lease) next() time.Duration {
	if l.until.IsZero() {
		return renewEvery
	}
	return min(renewEvery, time.Until(l.until))
}

// renew is what the timer runs.
func (l *Lease) renew() {
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

// End gives the lease back; the Delay of the next request counts from now.
func (l *Lease) End() { l.give("end") }

// Cancel gives the lease back as if it had not been granted.
func (l *Lease) Cancel() { l.give("cancel") }

func (l *Lease) give(verb string) {
	if l == nil || l.redis == nil {
		return
	}
	l.redis.calls.Go(func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if !l.over {
			l.giveLocked(verb)
		}
	})
}

// giveLocked tells Redis. If Redis does not hear it, the lease runs out.
func (l *Lease) giveLocked(verb string) {
	l.over = true
	l.timer.Stop()
	if v, err := l.redis.call(verb, l.key, l.token, micros(l.delay)); err == nil && v.number(0) == 0 {
		l.redis.lostLease(l.key)
	}
}

// lostLease counts a lease that was no longer ours.
func (r *Redis) lostLease(key string) {
	r.lost.Add(1)
	r.log.Warn("a lease ran out while its request was under way", "key", key)
}

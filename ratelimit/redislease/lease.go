package redislease

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/robotsproxy/robotsproxy/ratelimit"
)

// A redisLease is a Lease that Redis granted, or that this instance took by itself while Redis was down. When Redis is back,
// the instance tells it of the latter: see adopt.
type redisLease struct {
	redis *Client
	key   string
	delay time.Duration
	until time.Time // when it is given back although the request goes on; zero is never

	// mu guards what follows.
	mu       sync.Mutex
	token    string // empty: Redis does not know of it
	adopting bool   // the command adopt is under way
	over     bool
	timer    *time.Timer // runs renew
}

// newLease returns the lease for a and starts its renewals. The token is empty if Redis does not know of the lease.
func (r *Client) newLease(a ratelimit.LeaseRequest, token string) *redisLease {
	l := &redisLease{redis: r, key: a.Key, token: token, delay: a.Delay}
	if a.Hold > 0 {
		l.until = time.Now().Add(a.Hold)
	}
	l.mu.Lock()
	l.timer = time.AfterFunc(l.next(), l.renew)
	l.mu.Unlock()
	r.mu.Lock()
	closed := r.closed
	r.leases[l] = struct{}{}
	r.mu.Unlock()
	if closed {
		l.Cancel()
	}
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
	switch {
	case l.over:
	case !l.until.IsZero() && !time.Now().Before(l.until):
		l.giveLocked("end")
	case l.token == "":
		l.adoptLocked()
		l.timer.Reset(l.next())
	default:
		l.put(&command{verb: "renew", args: []any{l.token, micros(l.delay)}, done: l.renewed})
	}
}

// renewed takes in the answer to a renewal. If there is none, the next renewal still comes in time.
func (l *redisLease) renewed(v reply, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.over:
	case err == nil && v.number(0) == 0:
		l.overLocked()
		l.redis.lostLease(l.key)
	default:
		l.timer.Reset(l.next())
	}
}

// adopt tells Redis of the requests that were sent while it was down and are still under way.
func (r *Client) adopt() {
	r.mu.Lock()
	leases := slices.Collect(maps.Keys(r.leases))
	r.mu.Unlock()
	for _, l := range leases {
		l.mu.Lock()
		l.adoptLocked()
		l.mu.Unlock()
	}
}

// adoptLocked tells Redis of the lease if it does not know of it and is up.
func (l *redisLease) adoptLocked() {
	if l.over || l.adopting || l.token != "" || l.redis.health.down() != nil {
		return
	}
	l.adopting = true
	l.put(&command{verb: "adopt", args: []any{micros(l.delay), l.redis.questions.Add(1)}, done: l.adopted})
}

// adopted takes in the answer to the command adopt.
func (l *redisLease) adopted(v reply, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.adopting = false
	if err != nil {
		return // the next renewal tries again
	}
	if l.token = v.text(0); l.over { // the request has ended meanwhile
		l.put(&command{verb: "end", args: []any{l.token, micros(l.delay)}, repeats: true})
	}
}

// End implements Lease; the Delay of the next request counts from now.
func (l *redisLease) End() { l.give("end") }

// Cancel implements Lease; it is as if the lease had not been granted.
func (l *redisLease) Cancel() { l.give("cancel") }

func (l *redisLease) give(verb string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.over {
		l.giveLocked(verb)
	}
}

// giveLocked ends the lease by verb. If Redis cannot be reached, the lease runs out there.
func (l *redisLease) giveLocked(verb string) {
	l.overLocked()
	if l.token == "" {
		if verb == "end" && l.redis.health.down() == nil {
			l.put(sent(l.key, l.delay))
		}
		return
	}
	c := &command{verb: verb, args: []any{l.token, micros(l.delay)}, repeats: true}
	c.done = func(v reply, err error) {
		if err == nil && v.number(0) == 0 && !c.repeated {
			l.redis.lostLease(l.key)
		}
	}
	l.put(c)
}

// overLocked ends the renewals.
func (l *redisLease) overLocked() {
	l.over = true
	l.timer.Stop()
	l.redis.mu.Lock()
	defer l.redis.mu.Unlock()
	delete(l.redis.leases, l)
}

// put adds c to the pipe of the lease's lane.
func (l *redisLease) put(c *command) {
	c.key = l.key
	l.redis.pipe(l.key).put(c)
}

// Sent implements ratelimit.Coordinator. It is dropped while Redis is down.
func (r *Client) Sent(key string, delay time.Duration) {
	if r.health.down() == nil && !r.isClosed() {
		r.pipe(key).put(sent(key, delay))
	}
}

// sent returns the command that reports a request without a lease: that it was sent, or has ended.
func sent(key string, delay time.Duration) *command {
	return &command{verb: "sent", key: key, args: []any{micros(delay)}, repeats: true, mention: true}
}

// Leave implements ratelimit.Coordinator. If it is not heard, the others pass by the place.
func (r *Client) Leave(key string) {
	if r.health.down() == nil && !r.isClosed() {
		r.pipe(key).put(&command{verb: "leave", key: key, repeats: true})
	}
}

// lostLease counts a lease that was no longer ours.
func (r *Client) lostLease(key string) {
	r.lost.Add(1)
	r.log.Warn("a lease ran out while its request was under way", "key", key)
}

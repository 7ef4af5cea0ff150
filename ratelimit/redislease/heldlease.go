package redislease

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/robotsproxy/robotsproxy/ratelimit"
)

// A heldLease is a lease that Redis granted, or that this instance took while Redis was down. The instance reports the
// latter when Redis returns: see adopt.
type heldLease struct {
	client *Client
	key    string
	delay  time.Duration
	until  time.Time // when it is given back although the request goes on; zero: never

	// mu guards the fields below.
	mu       sync.Mutex
	token    string    // empty: Redis does not know the lease
	renewed  time.Time // when the last renewal that succeeded was sent, or the question for the lease
	adopting bool      // the command adopt was sent
	over     bool
	timer    *time.Timer // runs renew
}

// hold returns the lease for r at p and starts to renew it, for the first time when p is of the given age at the latest.
// The token is empty if Redis does not know the lease.
func (c *Client) hold(r ratelimit.LeaseRequest, p place, age time.Duration) *heldLease {
	l := &heldLease{client: c, key: r.Key, token: p.token, renewed: p.renewed, delay: r.Delay}
	if r.MaxHold > 0 {
		l.until = time.Now().Add(r.MaxHold)
	}
	l.mu.Lock()
	l.timer = time.AfterFunc(min(time.Until(p.renewed.Add(age)), l.next()), l.renew)
	l.mu.Unlock()
	c.mu.Lock()
	closed := c.closed
	c.leases[l] = struct{}{}
	c.mu.Unlock()
	if closed {
		l.Cancel()
	}
	return l
}

// age returns how long ago the lease was renewed, or asked for.
func (l *heldLease) age() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return time.Since(l.renewed)
}

// next returns how long it is until the lease is renewed or given back.
func (l *heldLease) next() time.Duration {
	if l.until.IsZero() {
		return renewEvery
	}
	return min(renewEvery, time.Until(l.until))
}

// renew renews the lease, or gives it back if its time is over. The timer runs it.
func (l *heldLease) renew() {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.over:
	case !l.until.IsZero() && !time.Now().Before(l.until):
		l.giveBackLocked("end")
	case l.token == "":
		l.adoptLocked()
		l.timer.Reset(l.next())
	default:
		sent := time.Now()
		l.put(&command{verb: "renew", args: []any{l.token, micros(l.delay)}, done: func(v reply, err error) { l.heard(v, err, sent) }})
	}
}

// heard takes the answer to a renewal that was asked for at sent. If it did not renew the lease, the next renewal comes
// before the lease ends.
func (l *heldLease) heard(v reply, err error, sent time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.over:
	case err == nil && v.number(0) == 0:
		l.overLocked()
		l.client.lostLease(l.key)
	case err == nil && v.number(0) == 1:
		l.renewed = sent
		l.timer.Reset(l.next())
	default:
		l.timer.Reset(l.again())
	}
}

// again returns when a renewal that failed is tried again: in time, and often in the last part of the lease.
func (l *heldLease) again() time.Duration {
	age := time.Since(l.renewed)
	if age > leaseLasts {
		return l.next()
	}
	return min(l.next(), max(askAgain, renewLast-age))
}

// renewAll renews all leases now, since Redis may have forgotten them. The other instances wait for settleTime, which is
// no longer than a lease that was used again may wait for its renewal.
func (c *Client) renewAll() {
	c.mu.Lock()
	leases := slices.Collect(maps.Keys(c.leases))
	c.mu.Unlock()
	for _, l := range leases {
		l.mu.Lock()
		if !l.over {
			l.timer.Reset(0)
		}
		l.mu.Unlock()
	}
}

// adopt reports the requests in flight that were sent while Redis was down.
func (c *Client) adopt() {
	c.mu.Lock()
	leases := slices.Collect(maps.Keys(c.leases))
	c.mu.Unlock()
	for _, l := range leases {
		l.mu.Lock()
		l.adoptLocked()
		l.mu.Unlock()
	}
}

// adoptLocked reports the lease if Redis does not know it and is up.
func (l *heldLease) adoptLocked() {
	if l.over || l.adopting || l.token != "" || l.client.health.down() != nil {
		return
	}
	l.adopting = true
	sent := time.Now()
	args := []any{micros(l.delay), l.client.questions.Add(1)}
	l.put(&command{verb: "adopt", args: args, done: func(v reply, err error) { l.adopted(v, err, sent) }})
}

// adopted takes the answer to the command adopt, which was given at sent.
func (l *heldLease) adopted(v reply, err error, sent time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.adopting = false
	if err != nil {
		return // the next renewal tries again
	}
	if l.token, l.renewed = v.text(0), sent; l.over { // the request has ended since
		l.put(&command{verb: "end", args: []any{l.token, micros(l.delay)}, repeats: true})
	}
}

// End implements ratelimit.Lease. The Delay of the next request counts from now.
func (l *heldLease) End() { l.giveBack("end") }

// Cancel implements ratelimit.Lease. It undoes the grant.
func (l *heldLease) Cancel() { l.giveBack("cancel") }

func (l *heldLease) giveBack(verb string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.over:
	case strings.HasSuffix(l.token, ":kept") && l.client.hears.Load() && l.client.places.keep(l.key, place{l.token, l.renewed}, time.Now()):
		l.overLocked()
	default:
		l.giveBackLocked(verb)
	}
}

// giveBackLocked ends the lease by verb. If Redis is down, the lease expires there.
func (l *heldLease) giveBackLocked(verb string) {
	l.overLocked()
	if l.token == "" {
		if verb == "end" && l.client.health.down() == nil {
			l.put(sent(l.key, l.delay))
		}
		return
	}
	cmd := &command{verb: verb, args: []any{l.token, micros(l.delay)}, repeats: true}
	cmd.heard = func(v reply) {
		if v.number(0) == 0 && !cmd.repeated {
			l.client.lostLease(l.key)
		}
	}
	l.put(cmd)
}

// overLocked ends the renewals.
func (l *heldLease) overLocked() {
	l.over = true
	l.timer.Stop()
	l.client.mu.Lock()
	defer l.client.mu.Unlock()
	delete(l.client.leases, l)
}

// put adds cmd to the pipe of the lease's lane.
func (l *heldLease) put(cmd *command) {
	cmd.key = l.key
	l.client.pipe(l.key).put(cmd)
}

// lostLease counts a lease that this instance held no longer while its request was in flight.
func (c *Client) lostLease(key string) {
	c.lost.Add(1)
	c.log.Warn("a lease expired while its request was in flight", "key", key)
}

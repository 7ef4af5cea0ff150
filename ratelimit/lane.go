package ratelimit

import (
	"sync"
	"time"
)

// A lane is the lock around the state of one key. A move locks the lane, reads the clock, calls a method of the state
// with that moment, and unlocks the lane. The clock is read with the lane locked, so that moments never go back. Only a
// sweep looks at a lane with an earlier moment, by which fewer lanes are idle.
//
// Locks are taken in this order: Limiter.mu, a lane's mu, then the mutexes of outbox.carrying, ClientTime and misses.
type lane struct {
	limiter *Limiter
	key     string
	index   int32 // in the limiter's ring; guarded by limiter.mu

	// mu guards the other fields.
	mu      sync.Mutex
	dropped bool // no longer the limiter's lane of this key
	state
}

func newLane(l *Limiter, key string) *lane {
	ln := &lane{limiter: l, key: key}
	ln.state.init(l.rules(), l.coordinator != nil)
	return ln
}

// lock begins a move.
func (ln *lane) lock() {
	ln.mu.Lock()
	ln.rules = ln.limiter.rules()
}

// unlock ends a move: it unlocks the lane, carries out the effects of the move, and returns.
//
// The effects of a lane are carried out in the order of its moves. A move therefore locks out.carrying before it
// unlocks the lane, and unlocks it after its last effect. Without that order, a timer could be set after the move that
// stopped it.
func (ln *lane) unlock() {
	out := ln.out
	if out == nil || len(out.effects) == 0 {
		ln.mu.Unlock()
		return
	}
	out.carrying.Lock()
	defer out.carrying.Unlock()
	effects := out.effects
	out.effects = out.spare[:0]
	ln.mu.Unlock()
	for i := range effects {
		ln.carryOut(out, &effects[i])
	}
	clear(effects) // so that nothing they point to stays in memory
	out.spare = effects
}

// trim frees the outbox of a lane without requests, since a lane with a long Delay may stay for long. The lane is
// locked, so no move can begin to carry out effects.
func (ln *lane) trim() {
	if ln.out == nil || ln.queue != nil || ln.inflights.n > 0 || len(ln.out.effects) > 0 {
		return
	}
	if ln.out.carrying.TryLock() {
		ln.out.carrying.Unlock()
		ln.out = nil
	}
}

// carryOut carries out an effect. It must not block, or lock the lane.
func (ln *lane) carryOut(out *outbox, e *effect) {
	l := ln.limiter
	switch e.kind {
	case wakeGranted:
		l.granted.Add(1)
		e.waiter.ready <- struct{}{}
	case wakeRefused:
		e.waiter.ready <- struct{}{}
	case countCancelled:
		l.cancelled.Add(1)
	case countReserved:
		l.reserved.Add(1)
	case countExpired:
		l.expired.Add(1)
	case reportPause:
		l.reportPause(ln.pause(e.backoff))
	case storePause:
		l.paused.Add(1)
		l.store(ln.pause(e.backoff))
	case setTimer:
		set(&out.timer, e.after, ln.tick)
	case stopTimer:
		if out.timer != nil {
			out.timer.Stop()
		}
	case setWatch:
		set(&out.watch, e.after, ln.watch)
	case askForLease:
		go ln.askForLease(*e.ask, e.after)
	case leaveLine:
		l.coordinator.Leave(ln.key)
	case reportSent:
		l.coordinator.Sent(ln.key, e.after)
	case endLease:
		e.lease.End()
	case cancelLease:
		e.lease.Cancel()
	}
}

// tick starts the requests that may start. The timer calls it.
func (ln *lane) tick() {
	ln.lock()
	defer ln.unlock()
	ln.dispatch(time.Now())
}

// watch lets other instances go on if clients have blocked their requests. Its timer calls it.
func (ln *lane) watch() {
	ln.lock()
	defer ln.unlock()
	ln.reclaimForOthers(time.Now())
}

// askForLease asks the Coordinator for the right to start a request with this Delay, and handles the result.
func (ln *lane) askForLease(r LeaseRequest, delay time.Duration) {
	r.Key = ln.key
	result, err := ln.limiter.coordinator.Lease(r)
	ln.lock()
	defer ln.unlock()
	ln.leased(result, err, delay, time.Now())
}

// hear handles the response to f. Only the first call for f counts.
func (ln *lane) hear(f *inflight, o Outcome, now time.Time) {
	if !f.heard {
		f.heard = true
		ln.handleResponse(o, f.client, f.start, now)
	}
}

// maxThrottleEvents is how many throttle events may wait for the Coordinator. Further ones count in this instance only.
const maxThrottleEvents = 1024

// handleResponse handles the response to a request that client sent.
func (ln *lane) handleResponse(o Outcome, client string, sent, now time.Time) {
	if o.pushesBack() {
		ln.limiter.pushedBack.Add(1)
	}
	if !o.throttles() {
		return
	}
	if ln.coordination != nil && (o.pauseAsked() == 0 || o.personal()) {
		// All instances count it together. A personal one also counts here, for its client.
		count := func() { ln.limiter.countThrottle(ln.key, o, client, sent) }
		counted := ln.limiter.throttleEvents.add(count, maxThrottleEvents)
		if counted && !o.personal() {
			return
		}
	}
	ln.throttled(o, client, sent, now)
}

// countThrottle makes all instances count a response that named no time, or that may concern client alone, and handles
// the result. An idle lane may be dropped before the result is there, so countThrottle looks up the lane after it.
func (l *Limiter) countThrottle(key string, o Outcome, client string, sent time.Time) {
	streak := 0
	if ln := l.find(key); ln != nil {
		ln.lock()
		streak = ln.ensureHold().streakAt(time.Now())
		ln.unlock()
	}
	result, failed := l.coordinator.CountThrottle(ThrottleEvent{
		Key: key, Client: client, Sent: sent, Streak: streak, Personal: o.personal(), RetryAfter: o.pauseAsked(),
	})
	ln, err := l.lane(key)
	if err != nil {
		return // no request for key gets a lane either
	}
	defer ln.unlock()
	switch now := time.Now(); {
	case failed == nil:
		ln.counted(result, now)
	case !o.personal(): // a personal one was counted here
		ln.throttled(o, client, sent, now)
	}
}

// pause returns the pause b of the lane for Pauses.
func (ln *lane) pause(b *backoff) Pause {
	return Pause{Key: ln.key, Until: b.until, Source: b.source, Streak: b.streak}
}

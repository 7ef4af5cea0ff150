package ratelimit

import (
	"slices"
	"strings"
	"sync"
	"time"
)

// A place is kept where a request is turned away because its wait would be too long, while a Delay applies: it stands in
// the queue like a request, of a client that is away until the moment it was told. If the client asks again then, its
// request takes the place. If it does not within the grace, the place is gone, and so are all others that are kept for that
// client in the lane. Of each client only the first place ever has the lane wait for it.

// longestGrace is the longest time for which a lane waits for a client that was told to come back.
const longestGrace = 10 * time.Second

// punctual is how much too late a client may come back to its place without being known for it, and early how much too
// early: timers are coarse. Who comes sooner than that may be another thread of the client, which has a place of its own.
const (
	punctual = time.Second
	early    = 50 * time.Millisecond
)

// missedFor is how long no place is kept for a client that did not come back in time to its last one, and mostMissed bounds
// the clients for which that is remembered.
const (
	missedFor  = 10 * time.Minute
	mostMissed = 10_000
)

// misses are the clients that did not come back in time to a kept place.
type misses struct {
	mu sync.Mutex
	at map[string]time.Time // by client: the last time
}

func (m *misses) add(client string, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.at == nil || len(m.at) >= mostMissed {
		m.at = make(map[string]time.Time)
	}
	m.at[strings.Clone(client)] = now
}

// waited notes that client had a Grant after such a wait. A client that comes late to its place does not wait there.
func (m *misses) waited(client string, wait time.Duration) {
	if wait <= punctual {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.at, client)
}

// returns reports whether client is expected to come back in time to a place that is kept for it.
func (m *misses) returns(client string, now time.Time) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	at, ok := m.at[client]
	return !ok || now.Sub(at) > missedFor
}

// kept reports whether w is a place whose client is away.
func (w *waiter) kept() bool { return w.ctx == nil }

// lapses returns until when a kept place is kept.
func (s *state) lapses(w *waiter) time.Time {
	return w.due.Add(min(s.restraint.delay(w.delay), longestGrace))
}

// keepPlace keeps a place for the client of r, which is told to come back after wait. Who has missed one of late, or
// come late to it, is told as well, and gets none: it would cost the others a grace each time.
func (s *state) keepPlace(r Request, wait time.Duration, now time.Time) {
	if s.restraint.delay(r.delay()) == 0 || !s.rules.misses.returns(r.Client, now) {
		return
	}
	s.push(&waiter{client: r.Client, delay: r.delay(), arrived: now, due: told(now, wait)})
	s.emit(effect{kind: countKept})
	s.dispatch(now) // which sets the timer for its end
}

// told returns when a client comes back that is told to wait: Retry-After has whole seconds.
func told(now time.Time, wait time.Duration) time.Time {
	const longest = 100 * 365 * 24 * time.Hour
	return now.Add((min(wait, longest) + time.Second - 1).Truncate(time.Second))
}

// comeBack has r take the place that is kept for its client, if the place's moment has come:
// the waiter to wait with. If the wait is still too long, the client is told another moment; but who is not early is held
// for a little in any case, as the request before may have started or ended a moment late. If there is no such place, both
// results are nil.
//
// Who comes earlier than that is not who was told: that one would come in vain, so the place is not given away.
func (s *state) comeBack(r Request, now time.Time) (*waiter, error) {
	f, place := s.queue.first(r.Client, func(w *waiter) bool { return w.kept() && w.due.Sub(now) <= early })
	if f == nil {
		return nil, nil
	}
	w := f.waiters[place]
	if now.Sub(w.due) > punctual {
		s.rules.misses.add(r.Client, now) // it has the place, and the others have waited for it
	}
	limit := r.MaxWait
	if !now.Before(w.due) {
		limit = max(limit, punctual)
	}
	wait := s.predict(now, r.Client, place, s.restraint.delay(r.delay()))
	if wait <= limit {
		w.maxWait = limit // which other instances are not to undo
		return w, nil
	}
	w.due = told(now, wait)
	return nil, s.tooLong(r.Client, limit, wait, false, now)
}

// takeOver has r take a place that is kept for its client and still far off, where it bears the wait for that and not the
// one behind all places: who asks already, and waits, needs none to be kept. Nothing of its own may be overtaken so.
func (s *state) takeOver(r Request, now time.Time) *waiter {
	f, place := s.queue.first(r.Client, (*waiter).kept)
	if f == nil || f.waiters[place].due.Sub(now) <= longestGrace || f.waitsBehind(place) {
		return nil
	}
	if s.predict(now, r.Client, place, s.restraint.delay(r.delay())) > r.MaxWait {
		return nil
	}
	return f.waiters[place]
}

// lapse takes away a place whose client has not come back.
func (s *state) lapse(w *waiter, now time.Time) {
	s.rules.misses.add(w.client, now)
	for other := range s.queue.all() {
		if other.kept() && other.client == w.client {
			s.remove(other)
			s.emit(effect{kind: countLapsed})
		}
	}
}

// next returns the request, or the place, whose turn it is. The queue is not empty. A kept place whose moment is far, since
// others have left the queue, lets those go first that are over before it. A request of a client that is held back lets all
// others go first.
func (s *state) next(now time.Time) *waiter {
	if w := s.leastHeld(now); w != nil {
		return w
	}
	return s.queue.head()
}

// heldFor returns how long requests of client wait for a reason that holds for this client only; 0 or less if they do not.
func (s *state) heldFor(client string, now time.Time) time.Duration {
	if s.restraint == nil && s.overlaps == nil {
		return 0
	}
	return max(s.restraint.clientRest(client, now), s.heldByOwn(client, now))
}

// heldBack reports whether requests of client wait for a reason that holds for this client only.
func (s *state) heldBack(client string, now time.Time) bool { return s.heldFor(client, now) > 0 }

// soonest returns the shorter one of wait and the time until a client is no longer held back.
func (s *state) soonest(wait time.Duration, now time.Time) time.Duration {
	if rs := s.restraint; rs != nil && rs.client.until.After(now) {
		wait = min(wait, rs.client.until.Sub(now))
	}
	for client := range s.overlaps {
		if held := s.heldByOwn(client, now); held > 0 {
			wait = min(wait, held)
		}
	}
	return wait
}

// wants reports whether a kept place would be put off by a request that starts at the moment at.
func (s *state) wants(w *waiter, at time.Time) bool {
	return at.Add(s.step(s.restraint.delay(w.delay), s.avgDuration)).After(w.due)
}

// vacant reports whether nobody is before a request that comes now: nobody waits, and no kept place would be put off.
func (s *state) vacant(now time.Time) bool {
	if s.queue == nil {
		return true
	}
	return !slices.ContainsFunc(s.queue.files, func(f *file) bool { return s.turn(f, now) != nil })
}

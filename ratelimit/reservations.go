package ratelimit

import (
	"slices"
	"strings"
	"sync"
	"time"
)

// A reservation is a place in the queue for a client that was answered 429 under a Delay, and is expected back at the
// moment that its Retry-After names. In the queue it is a waiter without a context.
//
// Without reservations, the clients that are answered 429 come back at the same time, and find requests of other
// clients that could wait: a client with a short time-out gets next to no turns beside a client that waits (proxy
// TestShortTimeoutBesideWaitingClients).

const (
	// longestGrace bounds how long the lane waits for a client after the moment of its reservation.
	longestGrace = 10 * time.Second

	// punctual is how late a client may come back without being counted as late, and how long it is held at least if
	// the request before it starts or ends a moment late.
	punctual = time.Second

	// early is how early a client may come back, since timers are coarse. A request that comes earlier may be another
	// thread's, which has a reservation of its own.
	early = 50 * time.Millisecond

	// missedFor is how long a client gets no reservation after it has missed one, and mostMissed bounds the clients for
	// which that is remembered.
	missedFor  = 10 * time.Minute
	mostMissed = 10_000
)

// misses remembers the clients that did not come back in time to a reservation, in any lane.
type misses struct {
	mu   sync.Mutex           // guards last
	last map[string]time.Time // by client
}

func (m *misses) add(client string, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.last == nil || len(m.last) >= mostMissed {
		m.last = make(map[string]time.Time)
	}
	m.last[strings.Clone(client)] = now
}

// waited notes that client got a Grant after it had waited so long. A client that comes late to its reservation does
// not wait there.
func (m *misses) waited(client string, wait time.Duration) {
	if wait <= punctual {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.last, client)
}

// allowed reports whether client is expected to come back in time to a reservation.
func (m *misses) allowed(client string, now time.Time) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	at, ok := m.last[client]
	return !ok || now.Sub(at) > missedFor
}

// reserved reports whether w is a reservation, and not a request.
func (w *waiter) reserved() bool { return w.ctx == nil }

// expiry returns when the reservation w expires.
func (s *state) expiry(w *waiter) time.Time {
	return w.due.Add(min(s.hold.delay(w.delay), longestGrace))
}

// reserve makes a reservation for the client of r, which is answered 429 with this wait. A client that has missed a
// reservation, or came late, gets none for a while: each would cost the other clients a grace.
func (s *state) reserve(r Request, wait time.Duration, now time.Time) {
	if s.hold.delay(r.delay()) == 0 || !s.rules.misses.allowed(r.Client, now) {
		return
	}
	s.push(&waiter{client: r.Client, delay: r.delay(), arrived: now, due: retryAt(now, wait)})
	s.emit(effect{kind: countReserved})
	s.dispatch(now) // sets the timer for its expiry
}

// retryAt returns when a client comes back that is answered with this wait: Retry-After has whole seconds.
func retryAt(now time.Time, wait time.Duration) time.Time {
	const longest = 100 * 365 * 24 * time.Hour
	return now.Add((min(wait, longest) + time.Second - 1).Truncate(time.Second))
}

// claimReservation returns the reservation that r takes over, if the moment of one of its client has come. If the wait
// is still too long, the error names a later moment, to which the reservation moves. Both results are nil if there is
// no such reservation.
//
// A request that comes before the moment cannot claim: it belongs to another thread, and the thread that was answered
// 429 would come back in vain.
func (s *state) claimReservation(r Request, now time.Time) (*waiter, error) {
	waiters := s.queue.of(r.Client)
	position := slices.IndexFunc(waiters, func(w *waiter) bool { return w.reserved() && w.due.Sub(now) <= early })
	if position < 0 {
		return nil, nil
	}
	w, limit := waiters[position], r.MaxWait
	if now.Sub(w.due) > punctual {
		s.rules.misses.add(r.Client, now) // the other clients have waited for it
	}
	if !now.Before(w.due) {
		limit = max(limit, punctual)
	}
	wait := s.predict(now, r.Client, position, s.hold.delay(r.delay()))
	if wait > limit {
		w.due = retryAt(now, wait)
		return nil, s.hold.waitError(r.Client, wait, limit, now)
	}
	w.maxWait = limit // enter keeps it if it is longer than r.MaxWait
	return w, nil
}

// expire removes a reservation that was not claimed in time, and all others of the same client: the lane waits for each
// client once.
func (s *state) expire(w *waiter, now time.Time) {
	s.rules.misses.add(w.client, now)
	for other := range s.queue.all() {
		if other.reserved() && other.client == w.client {
			s.remove(other)
			s.emit(effect{kind: countExpired})
		}
	}
}

// delayedBy reports whether a request that starts at the moment at would delay the reservation w.
func (s *state) delayedBy(w *waiter, at time.Time) bool {
	return at.Add(s.rules.step(s.hold.delay(w.delay), s.avgDuration)).After(w.due)
}

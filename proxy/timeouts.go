package proxy

import (
	"context"
	"maps"
	"math"
	"strings"
	"sync"
	"time"

	"github.com/robotsproxy/robotsproxy/ratelimit"
)

const (
	// leastTimeout is the shortest wait after which an abandoned request counts. No program has a shorter time-out, but
	// people change their minds sooner.
	leastTimeout = 500 * time.Millisecond

	// confirmWithin is how soon a program must send another request after it has abandoned one. A program whose request
	// timed out goes on; a program that was stopped does not.
	confirmWithin = 2 * time.Second

	// reorderWithin is by how much the next request may arrive before the proxy notices that the last one was abandoned,
	// because each has a connection.
	reorderWithin = 100 * time.Millisecond

	// oneCause is the time within which abandoned requests count as one event: a program that is stopped abandons all its
	// requests at once.
	oneCause = 500 * time.Millisecond

	// suspectFor is how long one abandoned request limits the waits of its program. It must last until a second one can
	// show whether that was a time-out.
	suspectFor = 5 * time.Minute

	// doubleAfter is the time after which a known time-out counts as twice as long. The program may have a longer time-out
	// by now, and only a request that waits can show it.
	doubleAfter = 10 * time.Minute

	// mostPrograms bounds the programs that are remembered.
	mostPrograms = 10_000

	forever time.Duration = math.MaxInt64
)

// timeouts learns how long programs wait for a response before they abandon a request. A request that its program would
// abandon while it waits for its turn costs the program a time-out, every time it tries; answered 429 at once, it comes
// back when it can be served.
type timeouts struct {
	mu       sync.Mutex           // guards programs and all its values
	programs map[program]*timeout // of which a request was abandoned
}

// A program is one User-Agent of a client. The time-out of one program says nothing about the client's other programs.
type program struct{ client, agent string }

func (ex *exchange) program() program { return program{ex.share, ex.rec.UserAgent} }

// timeout is the time-out of one program. A time-out is regular, so it takes two requests that were abandoned after
// about the same time, and not by one event, to know it. One such request is enough to suspect it.
type timeout struct {
	known   time.Duration // zero: unknown
	knownAt time.Time     // when a request was last abandoned after that time

	suspected   time.Duration // zero: unknown
	suspectedAt time.Time     // when that request was abandoned

	unconfirmed   time.Duration // the shortest wait of requests abandoned since the program's last request; zero: unknown
	unconfirmedAt time.Time     // when the last of them was abandoned

	askedAt   time.Time // when the program sent its last request
	refutedAt time.Time // when a request last waited for much longer than expected
}

// acquire calls l.Acquire for a request of p, and learns from the result. The request waits no longer than p is
// expected to, unless the client has set the wait in the request (preferred).
func (ts *timeouts) acquire(
	ctx context.Context, l *ratelimit.Limiter, r ratelimit.Request, p program, preferred bool,
) (ratelimit.Grant, error) {
	if r.Part {
		return l.Acquire(ctx, r) // a browser abandons it with its page, whatever its time-out
	}
	arrived := time.Now()
	if limit := ts.limit(p, arrived); !preferred {
		r.MaxWait = min(r.MaxWait, limit)
	}
	grant, err := l.Acquire(ctx, r)
	switch {
	case err == nil:
		ts.waited(p, grant.Waited(), arrived.Add(grant.Waited()))
	case ctx.Err() != nil && stopOf(context.Cause(ctx)) == nil && context.Cause(ctx) != errJudgeAgain:
		now := time.Now()
		ts.abandoned(p, now.Sub(arrived), now)
	}
	return grant, err
}

// limit returns the longest wait for which a request of p, which arrives now, should be held. The arrival confirms that
// the requests that p abandoned just before have timed out.
func (ts *timeouts) limit(p program, now time.Time) time.Duration {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	t := ts.programs[p]
	if t == nil {
		return forever
	}
	t.askedAt = now
	if now.Sub(t.unconfirmedAt) <= confirmWithin {
		t.confirm()
	}
	t.unconfirmed = 0
	if limit := t.expected(now); limit < forever {
		return limit / 10 * 9 // the client's clock started before ours, and the response takes a moment
	}
	return forever
}

// abandoned notes that a request of p was abandoned after it had waited so long.
func (ts *timeouts) abandoned(p program, wait time.Duration, now time.Time) {
	if wait < leastTimeout {
		return
	}
	ts.mu.Lock()
	defer ts.mu.Unlock()
	t := ts.entry(p)
	if t.unconfirmed == 0 || now.Sub(t.unconfirmedAt) > confirmWithin || wait < t.unconfirmed {
		t.unconfirmed = wait
	}
	t.unconfirmedAt = now
	if now.Sub(t.askedAt) <= reorderWithin {
		t.confirm()
		t.unconfirmed = 0
	}
}

// waited notes that a request of p waited so long and was not abandoned.
func (ts *timeouts) waited(p program, wait time.Duration, now time.Time) {
	if wait < leastTimeout {
		return
	}
	ts.mu.Lock()
	defer ts.mu.Unlock()
	t := ts.programs[p]
	if t == nil {
		return
	}
	if limit := t.expected(now); wait > limit && !alike(wait, limit) { // else it may be about to be abandoned
		t.known, t.suspected, t.refutedAt = 0, 0, now
	}
}

// confirm takes the unconfirmed wait for a time-out, if there is one.
func (t *timeout) confirm() {
	wait, at := t.unconfirmed, t.unconfirmedAt
	switch {
	case wait == 0, wait >= t.knownNow(at):
	case t.suspected > 0 && at.Sub(t.suspectedAt) <= oneCause:
		t.suspected = min(t.suspected, wait)
	case alike(wait, t.known), alike(wait, t.suspected) && at.Sub(t.suspectedAt) <= doubleAfter:
		t.known, t.knownAt, t.suspected = wait, at, 0
	default:
		t.suspected, t.suspectedAt = wait, at
	}
}

// alike reports whether a and b may be the same time-out: they differ by a fifth at most. Zero is like no other.
func alike(a, b time.Duration) bool { return max(a, b) <= min(a, b)/5*6 }

// expected returns the time-out that is known or suspected now, or forever. After a refutation, one abandoned request
// is not enough for a suspicion.
func (t *timeout) expected(now time.Time) time.Duration {
	limit := t.knownNow(now)
	if t.suspected > 0 && now.Sub(t.suspectedAt) <= suspectFor && now.Sub(t.refutedAt) > doubleAfter {
		limit = min(limit, t.suspected)
	}
	return limit
}

// knownNow returns the known time-out, doubled once every doubleAfter, or forever.
func (t *timeout) knownNow(now time.Time) time.Duration {
	if t.known == 0 {
		return forever
	}
	doublings := min(now.Sub(t.knownAt)/doubleAfter, 62)
	if t.known > forever>>doublings {
		return forever
	}
	return t.known << doublings
}

// entry returns the entry of p, and adds it if necessary. ts.mu is held.
func (ts *timeouts) entry(p program) *timeout {
	if t := ts.programs[p]; t != nil {
		return t
	}
	if ts.programs == nil {
		ts.programs = make(map[program]*timeout)
	}
	if len(ts.programs) >= mostPrograms {
		ts.makeRoom()
	}
	t := &timeout{}
	// p's strings may hold a whole request in memory.
	ts.programs[program{strings.Clone(p.client), strings.Clone(p.agent)}] = t
	return t
}

// makeRoom removes the client with the most programs, so that a client with many User-Agents removes nothing of another
// client. If all clients have few programs, it removes everything: two time-outs of each program restore what matters.
// ts.mu is held.
func (ts *timeouts) makeRoom() {
	counts, largest := make(map[string]int), ""
	for p := range ts.programs {
		if counts[p.client]++; counts[p.client] > counts[largest] {
			largest = p.client
		}
	}
	few := counts[largest] < mostPrograms/100 // else every new program would count them again
	maps.DeleteFunc(ts.programs, func(p program, _ *timeout) bool { return few || p.client == largest })
}

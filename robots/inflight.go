package robots

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/robotsproxy/robotsproxy/origin"
	"github.com/robotsproxy/robotsproxy/robots/fetch"
)

// purpose is the reason of a job.
type purpose uint8

const (
	onExpiry purpose = iota // to get a Snapshot that has not expired
	early                   // to replace one that is about to expire; no caller waits
	anyway                  // to ask the origin, whatever is kept
	erase                   // to remove what is kept
	toJudge                 // to get a Snapshot that has not expired, by which another job judges a redirect
)

// job is one task for an origin.
type job struct {
	origin  origin.Origin
	key     uint64
	asker   Asker
	purpose purpose
}

// result is the result of a job.
type result struct {
	snap   *Snapshot
	asked  bool // the origin was asked
	erased bool
}

// fulfils reports whether a caller with the purpose p, which joined the job, has what it needs.
func (r result) fulfils(p purpose) bool {
	switch p {
	case erase:
		return r.erased
	case anyway:
		return r.asked
	default:
		return r.snap != nil
	}
}

// inflightPool holds the jobs under way, at most one for each origin. The zero value is empty.
type inflightPool struct {
	mu sync.Mutex // guards of
	of map[origin.Origin]*inflight
}

// inflight is a job under way. Callers that need the same origin join it.
type inflight struct {
	job
	pass *pass
	done chan struct{} // closed when result and err are set

	purges uint64    // c.purges at the start
	seen   *Snapshot // in memory before the origin was asked

	release func() // ends the claim of the fetch; nil if the job has none

	outdated atomic.Int64 // Unix nanoseconds: a Snapshot fetched before does not count any more; see Cache.Forget

	result result
	err    error
}

// errAgain is the error of a job that failed for reasons which do not concern a caller that joined it.
var errAgain = errors.New("the fetch ended for reasons of other callers")

// start returns the job under way for j's origin, or starts j. If waits is true, the caller must wait for done or call
// pass.removeCaller. Jobs with the purpose toJudge are in a pool of their own: the others may follow redirects that
// such a job judges, so two of them would wait for each other if each origin redirects to the other.
func (c *Cache) start(j job, waits bool) *inflight {
	pool := c.pool(j)
	pool.mu.Lock()
	defer pool.mu.Unlock()
	f := pool.of[j.origin]
	if f == nil {
		ctx, cancel := context.WithCancelCause(c.life)
		f = &inflight{job: j, pass: c.queue.newPass(j.asker.Client, cancel), done: make(chan struct{})}
		if pool.of == nil {
			pool.of = make(map[origin.Origin]*inflight)
		}
		pool.of[j.origin] = f
		defer func() { go c.run(ctx, f) }()
	}
	if waits {
		f.pass.addCaller(j.asker.Client)
	}
	return f
}

func (c *Cache) pool(j job) *inflightPool {
	if j.purpose == toJudge {
		return &c.judging
	}
	return &c.inflight
}

func (c *Cache) run(ctx context.Context, f *inflight) {
	defer f.pass.cancel(nil)
	defer close(f.done)
	defer c.pool(f.job).remove(f.origin)
	f.err = errors.New("robots: the goroutine of a fetch exited")
	f.result, f.err = c.do(ctx, f)
}

// outdate says that a Snapshot of o that was fetched before t does not count, although the job under way may have read it.
func (p *inflightPool) outdate(o origin.Origin, t time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if f := p.of[o]; f != nil {
		f.outdated.Store(max(f.outdated.Load(), t.UnixNano()))
	}
}

// outdateAll calls outdate for all origins.
func (p *inflightPool) outdateAll(t time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, f := range p.of {
		f.outdated.Store(max(f.outdated.Load(), t.UnixNano()))
	}
}

func (p *inflightPool) remove(o origin.Origin) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.of, o)
}

// outcome returns the result of f, which is done, for a caller of client.
func (f *inflight) outcome(client string) (result, error) {
	ofTurn := errors.Is(f.err, ErrBusy) || errors.As(f.err, new(*fetch.LaterError)) // concerns the client that began f
	if errors.Is(f.err, errUnwanted) || ofTurn && f.asker.Client != client {
		return result{}, errAgain
	}
	return f.result, f.err
}

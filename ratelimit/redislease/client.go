// Package redislease lets several instances pace as one, by way of a Redis server.
//
//	c, err := redislease.New(redislease.Options{URL: "redis://127.0.0.1:6379"})
//	...
//	defer c.Close()
//	l, err := ratelimit.New(ratelimit.Options{Coordinator: c})
package redislease

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	mathrand "math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/robotsproxy/robotsproxy/ratelimit"
)

const (
	// leaseLasts is how long a lease lasts unless it is renewed: for how long a holder that is gone blocks a lane.
	leaseLasts = 5 * time.Second

	// renewEvery leaves room for one renewal that fails.
	renewEvery = leaseLasts / 3

	// instanceLasts is how long an instance counts without saying that it is here.
	instanceLasts = 4 * beatEvery

	// believedPause is somewhat less than lease.lua believes in.
	believedPause = 47 * time.Hour

	// soon is the wait before the next question if one was not answered.
	soon = 100 * time.Millisecond

	// remembered is how long Redis keeps a lane after its last request and its Delay, as in lease.lua.
	remembered = time.Minute

	// overrideLife is how long Redis and the instances remember an override.
	overrideLife = 365 * 24 * time.Hour

	// askers is how many calls wait for an answer at a time. Others wait before they are sent, so that none is late.
	askers = 64
)

// errClosed is the cause of an UnavailableError after Close.
var errClosed = errors.New("this instance is shutting down")

// OnDown says how to pace while Redis cannot be reached.
type OnDown string

// The ways to pace without Redis. The empty OnDown is OnDownSpread.
const (
	// OnDownSpread gives each of the instances last known its own share of the time: a Delay is kept as if it were at
	// least so many times as long, and no two instances send at one time as long as a request takes less than 3/16 of
	// its Delay or 150 ms, whichever is longer.
	OnDownSpread OnDown = "spread"

	// OnDownRefuse sends nothing.
	OnDownRefuse OnDown = "refuse"

	// OnDownLocal paces as if there were no other instance.
	OnDownLocal OnDown = "local"
)

// Options say where Redis is and what to do without it.
type Options struct {
	// URL is the address: redis://, rediss:// (TLS) or unix://. With the parameter master_name it is a Sentinel, with
	// the parameter addr, which may be repeated, further Sentinels or nodes of a Cluster.
	URL string

	// Prefix begins the name of every key and channel. If empty, "robotsproxy:".
	Prefix string

	// OnDown is how to pace while Redis cannot be reached. If empty, OnDownSpread.
	OnDown OnDown

	// Logger is told when Redis goes, comes back and holds what cannot be. If nil, nobody is.
	Logger *slog.Logger
}

// A Client shares lanes by way of a Redis server, version 5 or later. It is a ratelimit.Coordinator.
//
// A lane is a few keys. All keys have one hash tag, so one node of a Cluster has them all: a Cluster adds availability, not
// capacity. Each key ends by itself. One script (lease.lua) makes every change, by the clock of Redis only. Who
// may send holds a lease with a fencing token: it is renewed while the request is under way, and one that ran out can be
// neither renewed nor given back once another was granted. Instances that wait stand in a line; a message wakes them when a
// lease is given back, and who misses it asks again a little later.
//
// Commands go to Redis in pipelines over a few connections: see pipe. Load makes their answers later, and does not count as
// an outage. A probe, which always has a connection, decides whether Redis is down. It looks every two seconds, and at once
// if a command is late or its connection breaks. While Redis is down, no request waits for it, and the probe looks four times
// a second. Requests wait for what Redis may have forgotten: see health. If Redis has lost its memory, each instance tells it
// the pauses and orders that it knows.
//
// What is not promised: a process that is stopped for longer than its lease, while its request goes on, may have another
// request beside it; and so may requests that go on while Redis loses its memory, if their instance cannot reach it
// afterwards. If Redis evicts single lanes, only the instances notice that have used the lane since, and those with a
// request under way, within renewEvery.
type Client struct {
	id      string
	prefix  string
	channel string
	onDown  OnDown
	log     *slog.Logger
	client  redis.UniversalClient
	health  *health
	probe   *probe
	pipes   [pipes]*pipe
	woken   atomic.Pointer[func(key string)]
	resend  chan struct{} // capacity 1: tellUnsent is to run

	number    atomic.Int64 // of this instance
	overrides overrides
	forgetful atomic.Bool // Redis may have forgotten orders since the last beat

	asking  chan struct{} // a place for each call that waits for an answer
	closing context.Context
	close   context.CancelFunc
	loops   sync.WaitGroup

	// mu guards what follows.
	mu     sync.Mutex
	closed bool
	leases map[*redisLease]struct{} // of the requests under way
	pauses map[string]pause         // some may be over
	swept  int                      // how many pauses were left after the last removal of those that are over
	unsent map[string]news          // what Redis does not know yet

	questions atomic.Uint64 // the number of the last one, by which Redis recognizes a repeated question
	corrupt   atomic.Uint64
	lost      atomic.Uint64
	downs     atomic.Uint64
}

// New returns a Client. That it cannot be reached is no error: see OnDown. Close ends it.
func New(o Options) (*Client, error) {
	switch o.OnDown {
	case "", OnDownSpread, OnDownRefuse, OnDownLocal:
	default:
		return nil, fmt.Errorf("redislease: OnDown is %q, which is no way to pace", o.OnDown)
	}
	r := &Client{
		id: strings.ToLower(rand.Text()[:12]), prefix: cmp.Or(o.Prefix, "robotsproxy:"), onDown: cmp.Or(o.OnDown, OnDownSpread),
		log: o.Logger, probe: newProbe(), resend: make(chan struct{}, 1), asking: make(chan struct{}, askers),
		leases: make(map[*redisLease]struct{}), pauses: make(map[string]pause), unsent: make(map[string]news),
	}
	if r.log == nil {
		r.log = slog.New(slog.DiscardHandler)
	}
	r.number.Store(mathrand.Int64N(numbers))
	r.channel = r.prefix + oneSlot + "wake"
	r.health = newHealth(r.id, time.Now())
	var err error
	if r.client, err = newRedisClient(o.URL, r.connected); err != nil {
		return nil, fmt.Errorf("redislease: the URL of Redis: %w", err)
	}
	r.closing, r.close = context.WithCancel(context.Background())
	r.beat(instanceLasts)
	for i := range r.pipes {
		r.pipes[i] = newPipe(r)
		r.loops.Go(r.pipes[i].work)
	}
	r.loops.Go(r.watch)
	r.loops.Go(r.listen)
	r.loops.Go(r.tellUnsent)
	return r, nil
}

// Close gives back the leases that are held, tells Redis the pauses and orders that it does not know yet, says goodbye to the
// other instances and closes all connections. From its call on, Lease returns an *UnavailableError, and Sent, Leave, End and
// Cancel do nothing. It takes a few seconds at most.
func (r *Client) Close() error {
	r.mu.Lock()
	if r.closed {
		r.mu.Unlock()
		return nil
	}
	r.closed = true
	held := slices.Collect(maps.Keys(r.leases))
	r.mu.Unlock()
	for _, l := range held {
		l.End()
	}
	r.tellOnce()
	for _, p := range r.pipes {
		p.drain()
	}
	r.close()
	r.loops.Wait()
	if r.health.down() == nil {
		r.beat(0)
	}
	return r.client.Close()
}

func (r *Client) isClosed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.closed
}

// Watch implements ratelimit.Coordinator.
func (r *Client) Watch(f func(key string)) { r.woken.Store(&f) }

// Lease implements ratelimit.Coordinator. It takes little more than a second for the answer, and waits before that if askers calls wait
// already.
func (r *Client) Lease(a ratelimit.LeaseRequest) (ratelimit.LeaseResult, error) {
	if r.isClosed() {
		return ratelimit.LeaseResult{}, &ratelimit.UnavailableError{RetryAfter: leaseLasts, Err: errClosed}
	}
	if err := r.health.down(); err != nil {
		return r.without(a, err)
	}
	if wait := r.early(a); wait > 0 {
		return ratelimit.LeaseResult{Wait: wait, Gap: -1, Override: r.overrides.last(a.Key, time.Now()), Mode: ratelimit.ModeRedis}, nil
	}
	answer, err := r.ask(a)
	if err != nil {
		return r.unanswered(a, err)
	}
	if wait := r.early(a); answer.Lease != nil && wait > 0 {
		answer.Lease.Cancel() // the answer has shown that Redis may have forgotten something
		answer.Lease, answer.Wait = nil, wait
	}
	return answer, nil
}

// unanswered returns the LeaseResult if Redis has given none because of err.
func (r *Client) unanswered(a ratelimit.LeaseRequest, err error) (ratelimit.LeaseResult, error) {
	if errors.Is(err, errClosed) {
		return ratelimit.LeaseResult{}, &ratelimit.UnavailableError{RetryAfter: leaseLasts, Err: err}
	}
	if down := r.health.down(); down != nil {
		return r.without(a, down)
	}
	return ratelimit.LeaseResult{Wait: soon, Gap: -1, Override: r.overrides.last(a.Key, time.Now()), Mode: ratelimit.ModeRedis}, nil
}

// early returns for how long Redis need not be asked.
func (r *Client) early(a ratelimit.LeaseRequest) time.Duration {
	now := time.Now()
	wait := r.health.distrusted(a.Delay, now)
	if r.onDown == OnDownSpread && r.health.settles(now) {
		wait += r.health.slot(a.Key, a.Delay, now.Add(wait))
		wait = max(wait, r.crowded(a))
	}
	return wait
}

// crowded returns how long a request waits since this instance has its share of the limit under way; 0 if it has not.
func (r *Client) crowded(a ratelimit.LeaseRequest) time.Duration {
	if a.Limit > 0 && a.UnderWay >= max(1, a.Limit/r.health.sharers()) {
		return time.Second
	}
	return 0
}

// ask asks Redis.
func (r *Client) ask(a ratelimit.LeaseRequest) (ratelimit.LeaseResult, error) {
	v, l, err := r.askOnce(a)
	if err == nil && v.number(1) < 0 { // too late by its clock, which was not what we took it for, and is known now
		v, l, err = r.askOnce(a)
	}
	if err != nil {
		return ratelimit.LeaseResult{}, err
	}
	if v.number(1) < 0 {
		return ratelimit.LeaseResult{Wait: commandTimeout, Gap: -1, Mode: ratelimit.ModeRedis, Override: r.overrides.last(a.Key, time.Now())}, nil
	}
	answer := ratelimit.LeaseResult{
		Wait: v.duration(1), Gap: v.duration(2), Paused: v.duration(3), PausedBy: v.source(9), Rivals: v.numbers(8), Last: v.number(10), Mode: ratelimit.ModeRedis,
		Override: r.overrides.hear(a.Key, datedOverride{v.order(4), v.number(7)}, time.Now()),
	}
	r.hearPause(a.Key, answer.Paused, answer.PausedBy)
	if l == nil {
		return answer, nil
	}
	answer.Lease = l
	if answer.Override.Stop { // Redis did not know of it yet
		l.Cancel()
		answer.Lease = nil
	}
	return answer, nil
}

// askOnce puts the question, and returns the answer and the lease in it, if any.
func (r *Client) askOnce(a ratelimit.LeaseRequest) (v reply, l *redisLease, err error) {
	limit, from := a.Limit, "mark"
	if limit == 0 {
		limit = math.MaxInt32
	}
	if a.Start {
		from = "start"
	}
	order := r.overrides.reminder(a.Key, time.Now())
	args := append([]any{micros(a.Delay), limit, from, a.Waiting, r.last(a), r.questions.Add(1), order.at}, overrideArgs(order.Override)...)
	v, err = r.call(&command{verb: "lease", key: a.Key, args: args, repeats: true}, func(v reply) {
		if token := v.text(0); token != "" {
			l = r.newLease(a, token)
		}
	})
	return v, l, err
}

// last returns the number of a lease that Redis must still know of, and 0 if it may have dropped the lane since, or is
// known to have lost its memory.
func (r *Client) last(a ratelimit.LeaseRequest) int64 {
	if time.Since(a.Heard) > a.Delay+remembered || r.health.forgot(a.Heard) {
		return 0
	}
	return a.Last
}

// without answers while Redis is down.
func (r *Client) without(a ratelimit.LeaseRequest, cause error) (ratelimit.LeaseResult, error) {
	if r.onDown == OnDownRefuse {
		return ratelimit.LeaseResult{}, &ratelimit.UnavailableError{RetryAfter: leaseLasts, Err: cause}
	}
	answer := ratelimit.LeaseResult{Gap: -1, Mode: ratelimit.ModeLocal, Override: r.overrides.last(a.Key, time.Now())}
	if answer.Override.Stop {
		return answer, nil
	}
	delay, now := max(a.Delay, answer.Override.Floor), time.Now()
	answer.Wait = r.health.distrusted(delay, now)
	if r.onDown == OnDownSpread && r.health.knows() {
		answer.Mode = ratelimit.ModeSpread
		answer.Rivals = slices.Repeat([]int{math.MaxInt}, r.health.sharers()-1) // each has its slots whether it sends or not
		answer.Wait += r.health.slot(a.Key, delay, now.Add(answer.Wait))
		answer.Wait = max(answer.Wait, r.crowded(a))
	}
	if answer.Wait == 0 {
		answer.Lease = r.newLease(a, "")
	}
	return answer, nil
}

// Stats are the counts of a Client since it was made, and its present state.
type Stats struct {
	Up        bool // Redis answers
	Instances int  // that share the lanes, as far as known; this one is among them

	Corrupt uint64 // answers in whose lane something was reset
	Lost    uint64 // leases that ran out, or were forgotten, while their request was under way
	Downs   uint64 // times that Redis went down
}

// Number returns the number of this instance, from 0 to 1023. Instances that reach Redis have different ones, up to 1024 of
// them. Until Redis is reached for the first time it is random, and it may change when it is, or after Redis has lost its
// memory.
func (r *Client) Number() int { return int(r.number.Load()) }

// Stats returns the counts.
func (r *Client) Stats() Stats {
	return Stats{
		Up: r.health.down() == nil, Instances: r.health.sharers(),
		Corrupt: r.corrupt.Load(), Lost: r.lost.Load(), Downs: r.downs.Load(),
	}
}

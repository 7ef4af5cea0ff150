// Package redislease lets several instances pace requests as one, over a Redis server.
//
//	c, err := redislease.New(redislease.Options{URL: "redis://127.0.0.1:6379"})
//	...
//	defer c.Close()
//	l, err := ratelimit.New(ratelimit.Options{Coordinator: c})
//
// A lane is a few keys in Redis. An instance that sends a request holds a lease of the lane, with a fencing token. The
// Client renews the lease while the request is in flight. A lease that has expired can be neither renewed nor given
// back after another one was granted. Instances that wait stand in a line. A message wakes them when a lease is given
// back; an instance that misses the message asks again a little later.
//
// Scripts make every change, by the clock of Redis only. All keys have one hash tag, so one node of a Cluster holds
// them all: a Cluster adds availability, not capacity. Every key expires.
//
// Commands go to Redis in pipelines over a few connections. Load delays the answers and does not count as an outage. A
// probe, which always has a connection, decides whether Redis is down. It runs every two seconds, and at once if a
// command is late or its connection breaks. While Redis is down, no request waits for it, and the probe runs four times
// a second.
//
// Redis may lose its memory: it restarts without its data, or a replica without the last writes takes over. Requests
// then wait until nothing that was lost can concern them, and each instance sends the pauses and overrides that it
// knows once more.
//
// Not promised: if a process is suspended for longer than its lease lasts and its request goes on, another request may
// be sent beside it. The same holds for a request in flight while Redis loses its memory if its instance cannot reach
// Redis afterwards. If Redis evicts single lanes, only those instances notice that have used the lane since or have a
// request in flight.
package redislease

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	mathrand "math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// maxCalls is how many calls wait for an answer at a time. Any more wait before they are sent, so that none is late.
const maxCalls = 256

// errClosed is the cause of an UnavailableError after Close.
var errClosed = errors.New("this instance is shutting down")

// OnDown says how to pace while Redis is down.
type OnDown string

// The ways to pace without Redis. The empty OnDown is OnDownSpread.
const (
	// OnDownSpread gives each of the instances last known its share of the time. A Delay is kept as if it were longer
	// by the number of instances, at least. No two instances send at one time if a request takes less than 3/16 of its
	// Delay or 150 ms, whichever is longer.
	OnDownSpread OnDown = "spread"

	// OnDownRefuse sends nothing.
	OnDownRefuse OnDown = "refuse"

	// OnDownLocal paces as if there were no other instance.
	OnDownLocal OnDown = "local"
)

// Options configure a Client.
type Options struct {
	// URL is the address: redis://, rediss:// (TLS) or unix://. With the parameter master_name it is a Sentinel. The
	// parameter addr, which may be repeated, names further Sentinels or the nodes of a Cluster.
	URL string

	// Prefix begins the name of every key and channel. If empty, "robotsproxy:".
	Prefix string

	// OnDown is how to pace while Redis is down. If empty, OnDownSpread.
	OnDown OnDown

	// Logger gets a message if Redis goes down, returns, or holds an invalid value. If nil, nothing is logged.
	Logger *slog.Logger
}

// A Client shares lanes over a Redis server, version 5 or later. It implements ratelimit.Coordinator and is safe for
// concurrent use.
type Client struct {
	id       string
	prefix   string
	channel  string
	onDown   OnDown
	log      *slog.Logger
	redis    redis.UniversalClient
	values   *Values
	health   *health
	probe    *probe
	pipes    [pipes]*pipe
	wake     atomic.Pointer[func(key string)]
	document atomic.Pointer[Document] // nil until OpenDocument
	send     chan struct{}            // capacity 1: sendLoop is to send the pending updates

	number    atomic.Int64 // of this instance
	overrides overrides
	places    places
	hears     atomic.Bool // Redis sends messages, and a request may start a moment after its end: leases may be kept
	reset     atomic.Bool // Redis has reset a value since the last heartbeat, so it may have forgotten overrides

	calls   chan struct{} // holds a value for each call that waits for an answer
	closing context.Context
	close   context.CancelFunc
	loops   sync.WaitGroup

	// mu guards the fields below.
	mu      sync.Mutex
	closed  bool
	leases  map[*heldLease]struct{} // of the requests in flight
	pauses  map[string]pause        // some may be over
	swept   int                     // how many pauses were left when those that are over were last removed
	pending pendingUpdates

	questions atomic.Uint64 // the number of the last question for a lease, by which Redis finds what a repeated one was granted
	corrupt   atomic.Uint64
	lost      atomic.Uint64
	downs     atomic.Uint64
}

// New returns a Client. It returns no error if Redis is down: see OnDown. The caller must call Close.
func New(o Options) (*Client, error) {
	switch o.OnDown {
	case "", OnDownSpread, OnDownRefuse, OnDownLocal:
	default:
		return nil, fmt.Errorf("redislease: OnDown is %q, want spread, refuse or local", o.OnDown)
	}
	c := &Client{
		id: strings.ToLower(rand.Text()[:12]), prefix: cmp.Or(o.Prefix, "robotsproxy:"),
		onDown: cmp.Or(o.OnDown, OnDownSpread), log: o.Logger,
		probe: newProbe(), send: make(chan struct{}, 1), calls: make(chan struct{}, maxCalls),
		leases: make(map[*heldLease]struct{}), pauses: make(map[string]pause), pending: newPendingUpdates(), places: newPlaces(),
	}
	if c.log == nil {
		c.log = slog.New(slog.DiscardHandler)
	}
	c.number.Store(mathrand.Int64N(maxInstances))
	c.channel = c.prefix + hashTag + "wake"
	c.health = newHealth(c.id, time.Now())
	var err error
	if c.redis, err = dial(o.URL, c.connected); err != nil {
		return nil, fmt.Errorf("redislease: the URL of Redis: %w", err)
	}
	if c.values, err = newValues(c, o.URL); err != nil {
		return nil, errors.Join(fmt.Errorf("redislease: the URL of Redis: %w", err), c.redis.Close())
	}
	c.closing, c.close = context.WithCancel(context.Background())
	c.heartbeat(instanceLasts)
	for i := range c.pipes {
		c.pipes[i] = newPipe(c)
		c.loops.Go(c.pipes[i].run)
	}
	c.loops.Go(c.heartbeats)
	c.loops.Go(c.listen)
	c.loops.Go(c.sendLoop)
	return c, nil
}

// Close gives back the leases that are held, sends the pending pauses and overrides, deregisters the instance and
// closes all connections. Once it is called, Lease returns an *UnavailableError, and Sent, Leave, End and Cancel do
// nothing. It takes a few seconds at most.
func (c *Client) Close() error {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return nil
	}
	c.closed = true
	held := slices.Collect(maps.Keys(c.leases))
	c.mu.Unlock()
	for _, l := range held {
		l.End()
	}
	for _, key := range c.places.close() {
		c.giveBack(key)
	}
	c.sendPending()
	for _, p := range c.pipes {
		p.drain()
	}
	c.close()
	c.loops.Wait()
	if c.health.down() == nil {
		if d := c.document.Load(); d != nil {
			d.leave()
		}
		c.heartbeat(0)
	}
	return errors.Join(c.values.redis.Close(), c.redis.Close())
}

func (c *Client) isClosed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.closed
}

// Watch implements ratelimit.Coordinator.
func (c *Client) Watch(f func(key string)) { c.wake.Store(&f) }

// Stats are the counts of a Client since New, and its present state.
type Stats struct {
	Up        bool // Redis answers
	Instances int  // that share the lanes, as far as known, with this one

	Corrupt uint64 // answers about a lane in which Redis reset a value
	Lost    uint64 // leases that expired or were forgotten while their request was in flight
	Downs   uint64 // how often Redis went down
}

// Stats returns the counts.
func (c *Client) Stats() Stats {
	return Stats{
		Up: c.health.down() == nil, Instances: max(1, c.health.count()),
		Corrupt: c.corrupt.Load(), Lost: c.lost.Load(), Downs: c.downs.Load(),
	}
}

// Number returns the number of this instance, from 0 to 1023. Up to 1024 instances that reach Redis have different
// numbers. The number is random until Redis is reached for the first time. It may change then, and after Redis has lost
// its memory.
func (c *Client) Number() int { return int(c.number.Load()) }

package ratelimit

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
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
)

var (
	//go:embed lease.lua
	leaseSource string
	leaseScript = redis.NewScript(leaseSource)
)

// RedisOptions say where Redis is and what to do without it.
type RedisOptions struct {
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

// Redis shares lanes by way of a Redis server, version 5 or later. It is a Shared.
//
// A lane is a few keys with a common hash tag, so that they are on one node of a Cluster; each ends by itself. One
// script (lease.lua) makes every change, by the clock of Redis only. Who may send holds a lease with a fencing token: it
// is renewed while the request is under way, and one that ran out can be neither renewed nor given back once another was
// granted. Instances that wait stand in a line; a message wakes them when a lease is given back, and who misses it asks
// again a little later.
//
// A Redis that cannot be reached is noticed by the first command that is not answered within a second; from then on
// nobody waits for it, and a probe looks for it four times a second. What it may have forgotten is waited for: see health.
//
// What is not promised: a process that is stopped for longer than its lease, while its request goes on, may have another
// request beside it; and so may requests that go on while Redis loses its memory, if their instance cannot reach it
// afterwards. A Redis that forgets lanes while it runs (an eviction, FLUSHALL) is found out by instances that have heard of
// the lane since, and by those with a request under way within renewEvery.
type Redis struct {
	id      string
	prefix  string
	channel string
	onDown  OnDown
	log     *slog.Logger
	client  redis.UniversalClient
	health  *health
	woken   atomic.Pointer[func(key string)]

	orders    orders
	forgetful atomic.Bool // Redis may have forgotten orders since the last beat

	// telling is held while Redis is told, and guards what follows.
	telling sync.Mutex
	unsent  map[string]news // what Redis is to be told when it is back

	asking  chan struct{} // those who ask; who waits for a place in it has not asked yet, and is not late
	closing context.Context
	close   context.CancelFunc
	loops   sync.WaitGroup // watch and listen
	calls   sync.WaitGroup // leases that are being given back

	corrupt atomic.Uint64
	lost    atomic.Uint64
	downs   atomic.Uint64
}

// NewRedis returns a Redis. That it cannot be reached is no error: see OnDown. Close ends it.
func NewRedis(o RedisOptions) (*Redis, error) {
	switch o.OnDown {
	case "", OnDownSpread, OnDownRefuse, OnDownLocal:
	default:
		return nil, fmt.Errorf("ratelimit: OnDown is %q, which is no way to pace", o.OnDown)
	}
	r := &Redis{
		id: strings.ToLower(rand.Text()[:12]), prefix: cmp.Or(o.Prefix, "robotsproxy:"), onDown: cmp.Or(o.OnDown, OnDownSpread),
		log: o.Logger, unsent: make(map[string]news),
	}
	if r.log == nil {
		r.log = slog.New(slog.DiscardHandler)
	}
	r.channel, r.asking = r.prefix+"wake", make(chan struct{}, askers)
	r.health = newHealth(r.id, time.Now())
	r.closing, r.close = context.WithCancel(context.Background())
	var err error
	if r.client, err = newRedisClient(o.URL, r.connected); err != nil {
		r.close()
		return nil, fmt.Errorf("ratelimit: the URL of Redis: %w", err)
	}
	r.beat(instanceLasts)
	r.loops.Go(r.watch)
	r.loops.Go(r.listen)
	return r, nil
}

// Close waits for the leases that are being given back, says goodbye to the other instances and closes all connections.
// No lease may be asked for any more. It takes a few seconds at most.
func (r *Redis) Close() error {
	r.calls.Wait()
	r.close()
	r.loops.Wait()
	if r.health.down() == nil {
		r.beat(0)
	}
	return r.client.Close()
}

// Watch implements Shared.
func (r *Redis) Watch(f func(key string)) { r.woken.Store(&f) }

// Lease implements Shared. It takes a little more than a second at most.
func (r *Redis) Lease(a Ask) (Answer, error) {
	if err := r.health.down(); err != nil {
		return r.without(a, err)
	}
	if wait := r.early(a); wait > 0 {
		return Answer{Wait: wait, Gap: -1, Mode: ModeRedis, Order: r.orders.last(a.Key, time.Now())}, nil
	}
	answer, err := r.ask(a)
	if err != nil {
		return r.without(a, err)
	}
	if wait := r.early(a); answer.Lease != nil && wait > 0 {
		answer.Lease.Cancel() // this very answer has shown that Redis may have forgotten something
		answer.Lease, answer.Wait = nil, wait
	}
	return answer, nil
}

// early returns for how long Redis need not be asked.
func (r *Redis) early(a Ask) time.Duration {
	now := time.Now()
	wait := r.health.distrusted(a.Delay, now)
	if r.onDown == OnDownSpread && r.health.settles(now) {
		wait += r.health.slot(a.Key, a.Delay, now.Add(wait))
		wait = max(wait, r.crowded(a))
	}
	return wait
}

// crowded returns how long a request waits since this instance has its share of the limit under way; 0 if it has not.
func (r *Redis) crowded(a Ask) time.Duration {
	if a.Limit > 0 && a.UnderWay >= max(1, a.Limit/r.health.sharers()) {
		return time.Second
	}
	return 0
}

// ask asks Redis.
func (r *Redis) ask(a Ask) (Answer, error) {
	r.asking <- struct{}{}
	defer func() { <-r.asking }()
	if err := r.health.down(); err != nil {
		return Answer{}, err // it went down meanwhile
	}
	limit, from := a.Limit, "mark"
	if limit == 0 {
		limit = math.MaxInt32
	}
	if a.Start {
		from = "start"
	}
	order := r.orders.reminder(a.Key, time.Now())
	args := append([]any{micros(a.Delay), limit, from, a.Waiting, r.last(a), order.at}, order.args()...)
	v, err := r.call("lease", a.Key, args...)
	if err == nil && v.number(1) < 0 { // too late by its clock, which was not what we took it for, and is known now
		v, err = r.call("lease", a.Key, args...)
	}
	if err != nil {
		return Answer{}, err
	}
	if v.number(1) < 0 {
		return Answer{Wait: commandTimeout, Gap: -1, Mode: ModeRedis, Order: r.orders.last(a.Key, time.Now())}, nil
	}
	answer := Answer{
		Wait: v.duration(1), Gap: v.duration(2), Paused: v.duration(3), PausedBy: v.source(9), Rivals: v.numbers(7), Last: v.number(8), Mode: ModeRedis,
		Order: r.orders.hear(a.Key, datedOrder{v.order(4), v.number(10)}, time.Now()),
	}
	if token := v.text(0); token != "" {
		answer.Lease = r.newLease(a, token)
	}
	if answer.Order.Stop && answer.Lease != nil { // it was ordered here while the answer was under way
		answer.Lease.Cancel()
		answer.Lease = nil
	}
	return answer, nil
}

// last returns the number of a lease that Redis must still know of, and 0 if it may have dropped the lane since, or is
// known to have lost its memory.
func (r *Redis) last(a Ask) int64 {
	if time.Since(a.Heard) > a.Delay+remembered || r.health.forgot(a.Heard) {
		return 0
	}
	return a.Last
}

// without answers while Redis is down.
func (r *Redis) without(a Ask, cause error) (Answer, error) {
	if r.onDown == OnDownRefuse {
		return Answer{}, &UnavailableError{RetryAfter: leaseLasts, Err: cause}
	}
	answer := Answer{Gap: -1, Mode: ModeLocal, Order: r.orders.last(a.Key, time.Now())}
	if answer.Order.Stop {
		return answer, nil
	}
	delay, now := max(a.Delay, answer.Order.Floor), time.Now()
	answer.Wait = r.health.distrusted(delay, now)
	if r.onDown == OnDownSpread && r.health.knows() {
		answer.Mode = ModeSpread
		answer.Rivals = slices.Repeat([]int{math.MaxInt}, r.health.sharers()-1) // each has its slots whether it sends or not
		answer.Wait += r.health.slot(a.Key, delay, now.Add(answer.Wait))
		answer.Wait = max(answer.Wait, r.crowded(a))
	}
	if answer.Wait == 0 {
		answer.Lease = unshared{}
	}
	return answer, nil
}

// call runs one verb of lease.lua for one lane.
func (r *Redis) call(verb, key string, args ...any) (reply, error) {
	sent := time.Now()
	ctx, cancel := context.WithTimeout(r.closing, commandTimeout)
	defer cancel()
	late := r.health.reads(sent.Add(commandTimeout))
	argv := append([]any{verb, r.id, key, r.channel, micros(leaseLasts), micros(late)}, args...)
	v, err := leaseScript.Run(ctx, r.client, r.keys(key), argv...).Slice()
	if err == nil && len(v) < 3 {
		err = errors.New("the script answered less than it should")
	}
	if err != nil {
		r.failed(err)
		return nil, fmt.Errorf("ratelimit: asking Redis to %s %s: %w", verb, key, err)
	}
	answer := reply(v)
	r.health.hears(answer.duration(len(v)-1), sent, time.Now())
	if answer.number(len(v)-2) != 0 {
		r.corrupt.Add(1)
		r.forgetful.Store(true)
		r.log.Warn("a lane in Redis held what cannot be, or was forgotten, and was reset", "key", key)
	}
	return answer, nil
}

// keys returns the names of the keys of one lane, which a Cluster keeps together because of what is in braces. A lane
// whose name might end the braces, or is no host, goes by its hash.
func (r *Redis) keys(key string) []string {
	if key == "" || len(key) > 255 || strings.ContainsFunc(key, func(c rune) bool { return c <= ' ' || c > '~' || c == '{' || c == '}' }) {
		sum := sha256.Sum256([]byte(key))
		key = "sha256-" + hex.EncodeToString(sum[:])
	}
	lane := r.prefix + "{" + key + "}:"
	return []string{lane + "lane", lane + "held", lane + "line", lane + "order", lane + "crowd", lane + "heard"}
}

// RedisStats are the counts of a Redis since it was made, and its present state.
type RedisStats struct {
	Up        bool // Redis answers
	Instances int  // that share the lanes, as far as known; this one is among them

	Corrupt uint64 // answers in whose lane something was reset
	Lost    uint64 // leases that ran out, or were forgotten, while their request was under way
	Downs   uint64 // times that Redis went down
}

// Stats returns the counts.
func (r *Redis) Stats() RedisStats {
	return RedisStats{
		Up: r.health.down() == nil, Instances: r.health.sharers(),
		Corrupt: r.corrupt.Load(), Lost: r.lost.Load(), Downs: r.downs.Load(),
	}
}

// micros is how durations are written in scripts: rounded up, since a Delay of a third of a second may not become shorter.
func micros(d time.Duration) int64 {
	n := d.Microseconds()
	if d > time.Duration(n)*time.Microsecond {
		n++
	}
	return n
}

// A reply is what a script answered: numbers and texts. What is of another type counts as zero.
type reply []any

func (v reply) number(i int) int64 {
	n, _ := v[i].(int64)
	return n
}

func (v reply) text(i int) string {
	s, _ := v[i].(string)
	return s
}

func (v reply) duration(i int) time.Duration { return time.Duration(v.number(i)) * time.Microsecond }

// source reads why a lane is paused.
func (v reply) source(i int) Source {
	if Source(v.text(i)) == RetryAfter {
		return RetryAfter
	}
	return Backoff
}

// numbers reads a list of numbers.
func (v reply) numbers(i int) []int {
	list, _ := v[i].([]any)
	numbers := make([]int, len(list))
	for j := range list {
		numbers[j] = int(reply(list).number(j))
	}
	return numbers
}

// order reads three values: stop, floor, until.
func (v reply) order(i int) Order {
	o := Order{Stop: v.number(i) == 1, Floor: v.duration(i + 1)}
	if until := v.number(i + 2); until > 0 {
		o.Until = time.UnixMicro(until)
	}
	return o
}

package redislease

import (
	"errors"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/robotsproxy/robotsproxy/ratelimit"
)

const (
	// leaseLasts is how long a lease lasts unless it is renewed, and so for how long a holder that has gone blocks a
	// lane.
	leaseLasts = 5 * time.Second

	// renewEvery leaves room for one renewal that fails.
	renewEvery = leaseLasts / 3

	// renewLast is the time since the last renewal by which one that failed is tried again.
	renewLast = leaseLasts * 4 / 5

	// remembered is how long Redis keeps a lane after its last request and its Delay, as in common.lua.
	remembered = time.Minute

	// askAgain is the wait before the next question if Redis did not answer one.
	askAgain = 100 * time.Millisecond

	// mostPlaces is the most leases that one question for a lane without a Delay asks for.
	mostPlaces = 8
)

// Lease implements ratelimit.Coordinator. It waits little more than a second for the answer, and before that for
// another call to end if maxCalls wait already.
func (c *Client) Lease(r ratelimit.LeaseRequest) (ratelimit.LeaseResult, error) {
	if c.isClosed() {
		return ratelimit.LeaseResult{}, &ratelimit.UnavailableError{RetryAfter: leaseLasts, Err: errClosed}
	}
	if err := c.health.down(); err != nil {
		return c.leaseWhileDown(r, err)
	}
	if wait := c.holdOff(r); wait > 0 {
		return c.notYet(r, wait), nil
	}
	if result, ok := c.reuse(r, time.Now()); ok {
		return result, nil
	}
	result, err := c.askTwice(r)
	if err != nil {
		return c.unanswered(r, err)
	}
	// The answer may have shown that Redis has lost its memory.
	if wait := c.holdOff(r); result.Lease != nil && wait > 0 {
		result.Lease.Cancel()
		result.Lease, result.Wait = nil, wait
	}
	return result, nil
}

// notYet returns a result without news from Redis.
func (c *Client) notYet(r ratelimit.LeaseRequest, wait time.Duration) ratelimit.LeaseResult {
	override := c.overrides.last(r.Key, time.Now())
	return ratelimit.LeaseResult{Wait: wait, Gap: -1, Override: override, Mode: ratelimit.ModeRedis}
}

// unanswered returns the result if Redis did not answer because of err.
func (c *Client) unanswered(r ratelimit.LeaseRequest, err error) (ratelimit.LeaseResult, error) {
	if errors.Is(err, errClosed) {
		return ratelimit.LeaseResult{}, &ratelimit.UnavailableError{RetryAfter: leaseLasts, Err: err}
	}
	if down := c.health.down(); down != nil {
		return c.leaseWhileDown(r, down)
	}
	return c.notYet(r, askAgain), nil
}

// holdOff returns how long r waits before Redis is asked.
func (c *Client) holdOff(r ratelimit.LeaseRequest) time.Duration {
	now := time.Now()
	wait := c.health.distrusts(r.Delay, now)
	if c.onDown == OnDownSpread && c.health.settling(now) {
		wait = max(wait+c.health.untilSlot(r.Key, r.Delay, now.Add(wait)), c.overShare(r))
	}
	return wait
}

// overShare returns how long r waits because this instance has its share of the limit in flight, 0 if it has not.
func (c *Client) overShare(r ratelimit.LeaseRequest) time.Duration {
	if r.Limit > 0 && r.InFlight >= max(1, r.Limit/max(1, c.health.count())) {
		return time.Second
	}
	return 0
}

// askTwice asks Redis for a lease. If the question was too late by the clock of Redis, this instance did not know that
// clock, and knows it from the answer; askTwice then asks once more.
func (c *Client) askTwice(r ratelimit.LeaseRequest) (ratelimit.LeaseResult, error) {
	asked := time.Now()
	if r.Delay == 0 {
		c.places.ask(r.Key, asked)
	}
	v, l, err := c.ask(r)
	if err == nil && v.duration(1) < 0 {
		asked = time.Now()
		v, l, err = c.ask(r)
	}
	if err != nil {
		return ratelimit.LeaseResult{}, err
	}
	if v.duration(1) < 0 {
		return c.notYet(r, commandTimeout), nil
	}
	if c.outdated(v.number(len(v) - 4)) {
		if l != nil {
			l.Cancel()
		}
		return c.notYet(r, acknowledgedEvery), nil
	}
	result := ratelimit.LeaseResult{
		Wait: v.duration(1), Gap: v.duration(2), Paused: v.duration(3), PauseSource: v.source(9),
		Rivals: v.numbers(8), LastLease: v.number(10), Mode: ratelimit.ModeRedis,
		Override: c.overrides.merge(r.Key, datedOverride{v.override(4), v.number(7)}, time.Now()),
	}
	c.learnPause(r.Key, result.Paused, result.PauseSource)
	switch {
	case l == nil:
	case result.Override.Stop: // Redis did not know of the stop yet
		l.Cancel()
	case l.age() > renewLast: // this process hung, and the lease may have ended
		l.Cancel()
		result.Wait = askAgain
	default:
		result.Lease = l
	}
	wanted := r.Delay == 0 && c.places.answered(r.Key, result, asked, time.Now())
	if result.Lease == nil || wanted {
		c.giveBack(r.Key) // this instance stands in the line now, and another request may have ended since
	}
	return result, nil
}

// ask asks Redis for a lease. It returns the answer and the lease that it grants, nil if it grants none.
func (c *Client) ask(r ratelimit.LeaseRequest) (v reply, l *heldLease, err error) {
	limit, from := r.Limit, "mark"
	if limit == 0 {
		limit = math.MaxInt32
	}
	if r.FromStart {
		from = "start"
	}
	o := c.overrides.reminder(r.Key, time.Now())
	args := []any{micros(r.Delay), limit, from, r.Waiting, c.knownLease(r), c.questions.Add(1), o.at}
	args = append(args, overrideArgs(o.Override)...)
	most := mostPlaces
	if !c.hears.Load() {
		most = 1
	}
	args = append(append(args, min(r.Waiting, most)), c.places.give(r.Key, time.Now())...)
	cmd := &command{verb: "lease", key: r.Key, args: args, repeats: true}
	cmd.heard = func(v reply) { l = c.take(r, strings.Fields(v.text(0)), cmd.sent) }
	v, err = c.call(cmd)
	return v, l, err
}

// take takes the leases that the answer to a question grants. It returns the first one, nil if there is none, and keeps
// the others for further requests. Each counts from sent, since Redis granted it after that.
func (c *Client) take(r ratelimit.LeaseRequest, tokens []string, sent time.Time) *heldLease {
	if len(tokens) == 0 {
		return nil
	}
	for _, token := range tokens[1:] {
		if !c.places.add(r.Key, place{token, sent}, time.Now()) {
			c.endUnused(r.Key, token)
		}
	}
	return c.hold(r, place{tokens[0], sent}, renewEvery)
}

// knownLease returns the number of a lease that Redis must still know. It returns 0 if Redis may have dropped the lane
// since, or is known to have lost its memory.
func (c *Client) knownLease(r ratelimit.LeaseRequest) int64 {
	if time.Since(r.LastHeard) > r.Delay+remembered || c.health.distrustsAt(r.LastHeard) {
		return 0
	}
	return r.LastLease
}

// leaseWhileDown returns the result while Redis is down because of cause.
func (c *Client) leaseWhileDown(r ratelimit.LeaseRequest, cause error) (ratelimit.LeaseResult, error) {
	if c.onDown == OnDownRefuse {
		return ratelimit.LeaseResult{}, &ratelimit.UnavailableError{RetryAfter: leaseLasts, Err: cause}
	}
	result := c.notYet(r, 0)
	result.Mode = ratelimit.ModeLocal
	if result.Override.Stop {
		return result, nil
	}
	delay, now := max(r.Delay, result.Override.Floor), time.Now()
	result.Wait = c.health.distrusts(delay, now)
	if n := c.health.count(); c.onDown == OnDownSpread && n > 0 {
		result.Mode = ratelimit.ModeSpread
		// Each instance has its slots, whether it sends or not.
		result.Rivals = slices.Repeat([]int{math.MaxInt}, n-1)
		result.Wait = max(result.Wait+c.health.untilSlot(r.Key, delay, now.Add(result.Wait)), c.overShare(r))
	}
	if result.Wait == 0 {
		result.Lease = c.hold(r, place{renewed: time.Now()}, renewEvery)
	}
	return result, nil
}

// Sent implements ratelimit.Coordinator. While Redis is down it does nothing.
func (c *Client) Sent(key string, delay time.Duration) {
	if c.health.down() == nil && !c.isClosed() {
		c.pipe(key).put(sent(key, delay))
	}
}

// sent returns the command that reports that a request was sent, or has ended, without a lease.
func sent(key string, delay time.Duration) *command {
	return &command{verb: "sent", key: key, args: []any{micros(delay)}, repeats: true, merges: true}
}

// Leave implements ratelimit.Coordinator. If the command is lost, the other instances pass over the place in the line.
func (c *Client) Leave(key string) {
	if c.health.down() == nil && !c.isClosed() {
		c.pipe(key).put(&command{verb: "leave", key: key, repeats: true})
	}
}

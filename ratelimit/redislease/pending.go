package redislease

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/robotsproxy/robotsproxy/ratelimit"
)

// A pause is a time until which nothing is sent to a lane.
type pause struct {
	until time.Time
	why   ratelimit.Source
}

// A news is what Redis does not know of a lane yet. A zero field means that there is nothing new.
type news struct {
	pause   pause
	order   datedOverride
	ordered bool // order is news; if it has a time, Redis may only have forgotten it
}

// then merges n with a later news.
func (n news) then(next news) news {
	if n.pause.until.After(next.pause.until) {
		next.pause = n.pause
	}
	if n.ordered && (!next.ordered || n.order.at == 0 && next.order.at > 0) {
		next.order, next.ordered = n.order, true
	}
	return next
}

// Pause implements ratelimit.Coordinator. More than 47 hours is taken as that.
func (r *Client) Pause(key string, d time.Duration, why ratelimit.Source) {
	p := pause{time.Now().Add(min(d, believedPause)), why}
	r.mu.Lock()
	r.pauseLocked(key, p)
	r.unsentLocked(key, news{pause: p})
	r.mu.Unlock()
	r.wantTelling()
}

// Complain implements ratelimit.Coordinator.
func (r *Client) Complain(c ratelimit.Complaint) (ratelimit.Verdict, error) {
	if err := r.health.down(); err != nil {
		return ratelimit.Verdict{}, err
	}
	personal := 0
	if c.Personal {
		personal = 1
	}
	args := []any{c.Client, micros(time.Since(c.Sent)), c.Streak, personal, micros(c.Told)}
	v, err := r.call(&command{verb: "complain", key: c.Key, args: args}, nil)
	if err != nil {
		return ratelimit.Verdict{}, err
	}
	verdict := ratelimit.Verdict{Paused: v.duration(0), Streak: int(v.number(1)), PausedBy: v.source(2)}
	r.hearPause(c.Key, verdict.Paused, verdict.PausedBy)
	return verdict, nil
}

// Override implements ratelimit.Coordinator.
func (r *Client) Override(key string, o ratelimit.Override) error {
	n := news{order: datedOverride{Override: o}, ordered: true}
	r.mu.Lock()
	r.overrides.give(key, o)
	r.unsentLocked(key, n)
	r.mu.Unlock()
	if err := r.health.down(); err != nil {
		return err
	}
	_, err := r.call(&command{verb: "tell", key: key, args: n.args(), repeats: true}, func(v reply) { r.told(key, n, v) })
	return err
}

// args returns the arguments of the verb tell: the rest of the pause and its source; whether there is a new order; then the
// time of the order, 0 if it is new or there is none, and the order.
func (n news) args() []any {
	fresh := 0
	if n.ordered && n.order.at == 0 {
		fresh = 1
	}
	return append([]any{micros(max(0, time.Until(n.pause.until))), string(n.pause.why), fresh, n.order.at}, overrideArgs(n.order.Override)...)
}

// args returns o as lease.lua takes it: stop, floor, until, and how long it is remembered, in milliseconds.
func overrideArgs(o ratelimit.Override) []any {
	stop, until, life := 0, int64(0), overrideLife
	if o.Stop {
		stop = 1
	}
	if !o.Until.IsZero() {
		until = o.Until.UnixMicro()
	}
	if o.Stop && until > 0 && o.Floor <= 0 {
		life = min(life, max(time.Millisecond, time.Until(o.Until)))
	}
	return []any{stop, micros(o.Floor), until, life.Milliseconds()}
}

// told removes n from unsent, since Redis has answered v to it.
func (r *Client) told(key string, n news, v reply) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if n.ordered && n.order.at == 0 {
		r.overrides.confirm(key, n.order.Override, v.number(0))
	}
	rest := r.unsent[key]
	if !rest.pause.until.After(n.pause.until) {
		rest.pause = pause{}
	}
	if rest.ordered && rest.order == n.order {
		rest.order, rest.ordered = datedOverride{}, false
	}
	if r.unsent[key] = rest; rest == (news{}) {
		delete(r.unsent, key)
	}
}

// untold reports whether unsent has any news.
func (r *Client) untold() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.unsent) > 0
}

// wantTelling makes tellUnsent run once more.
func (r *Client) wantTelling() {
	select {
	case r.resend <- struct{}{}:
	default:
	}
}

// tellUnsent sends the news in unsent whenever wantTelling asks for it, until the Client is closed. If Redis goes down
// meanwhile, the probe asks again when it is back.
func (r *Client) tellUnsent() {
	for {
		select {
		case <-r.resend:
		case <-r.closing.Done():
			return
		}
		r.tellOnce()
	}
}

// tellOnce sends the news in unsent, unless Redis is down.
func (r *Client) tellOnce() {
	if r.health.down() != nil {
		return // copying unsent for each pause that begins meanwhile would be for nothing
	}
	r.mu.Lock()
	unsent := maps.Clone(r.unsent)
	r.mu.Unlock()
	for keys := range slices.Chunk(slices.Collect(maps.Keys(unsent)), askers) {
		if r.health.down() != nil {
			return
		}
		r.tell(keys, unsent)
	}
}

// tell sends the news of keys and waits for the answers.
func (r *Client) tell(keys []string, all map[string]news) {
	var waiting sync.WaitGroup
	for _, key := range keys {
		n := all[key]
		c := &command{verb: "tell", key: key, args: n.args(), repeats: true, done: func(v reply, err error) {
			defer waiting.Done()
			if err == nil {
				r.told(key, n, v)
			}
		}}
		waiting.Add(1)
		if !r.pipe(key).put(c) {
			waiting.Done()
		}
	}
	waiting.Wait()
}

// tellAgain puts all pauses and orders that this instance knows into unsent, since Redis may have forgotten them.
func (r *Client) tellAgain() {
	r.mu.Lock()
	now := time.Now()
	for key, p := range r.pauses {
		if p.until.After(now) {
			r.unsentLocked(key, news{pause: p})
		}
	}
	for key := range r.overrides.all() {
		if o := r.overrides.reminder(key, now); o.at > 0 {
			r.unsentLocked(key, news{order: o, ordered: true})
		}
	}
	r.mu.Unlock()
	r.wantTelling()
}

// unsentLocked adds n to unsent.
func (r *Client) unsentLocked(key string, n news) {
	r.unsent[strings.Clone(key)] = r.unsent[key].then(n)
}

// hearPause takes in a pause from an answer of Redis.
func (r *Client) hearPause(key string, rest time.Duration, why ratelimit.Source) {
	if rest <= 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pauseLocked(key, pause{time.Now().Add(rest), why})
}

// pauseLocked keeps p if it ends later than the pause that is kept for key. It removes the pauses that are over each time
// their number has doubled.
func (r *Client) pauseLocked(key string, p pause) {
	if !p.until.After(r.pauses[key].until) {
		return
	}
	r.pauses[strings.Clone(key)] = p
	if len(r.pauses) < 2*max(r.swept, 1024) {
		return
	}
	now := time.Now()
	maps.DeleteFunc(r.pauses, func(_ string, p pause) bool { return !p.until.After(now) })
	r.swept = len(r.pauses)
}

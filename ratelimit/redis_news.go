package ratelimit

import (
	"strings"
	"time"
)

// A news is what the other instances are to be told of a lane.
type news struct {
	pause time.Time // until when it is paused; zero: nothing new
	why   Source    // it is paused
	order *Order    // nil: nothing new
	given int64     // when Redis had confirmed order; 0: it has not
}

// then returns n and what came after it as one.
func (n news) then(next news) news {
	if n.pause.After(next.pause) {
		next.pause, next.why = n.pause, n.why
	}
	if next.order == nil {
		next.order, next.given = n.order, n.given
	}
	return next
}

// Pause implements Shared. More than 47 hours is taken as that.
func (r *Redis) Pause(key string, d time.Duration, why Source) error {
	return r.tell(key, news{pause: time.Now().Add(min(d, believedPause)), why: why})
}

// Complain implements Shared.
func (r *Redis) Complain(c Complaint) (Verdict, error) {
	r.asking <- struct{}{}
	defer func() { <-r.asking }()
	if err := r.health.down(); err != nil {
		return Verdict{}, err
	}
	personal := 0
	if c.Personal {
		personal = 1
	}
	v, err := r.call("complain", c.Key, c.Client, micros(time.Since(c.Sent)), c.Streak, personal, micros(c.Told))
	if err != nil {
		return Verdict{}, err
	}
	return Verdict{Paused: v.duration(0), Streak: int(v.number(1)), PausedBy: v.source(2)}, nil
}

// Order implements Shared.
func (r *Redis) Order(key string, o Order) error {
	r.orders.give(key, o)
	return r.tell(key, news{order: &o})
}

// tell tells Redis, or keeps the news for when it is back. One at a time does, so that none overtakes a later one.
func (r *Redis) tell(key string, n news) error {
	r.telling.Lock()
	defer r.telling.Unlock()
	n = r.unsent[key].then(n)
	err := r.health.down()
	if err == nil {
		err = r.send(key, n)
	}
	if err != nil {
		r.unsent[strings.Clone(key)] = n
		return err
	}
	delete(r.unsent, key)
	return nil
}

// sendUnsent tells Redis what it was not told while it was down, and reports whether that was heard.
func (r *Redis) sendUnsent() bool {
	r.telling.Lock()
	defer r.telling.Unlock()
	for key, n := range r.unsent {
		if r.send(key, n) != nil {
			return false
		}
		delete(r.unsent, key)
	}
	return true
}

func (r *Redis) send(key string, n news) error {
	if rest := time.Until(n.pause); rest > 0 {
		if _, err := r.call("pause", key, micros(rest), string(n.why)); err != nil {
			return err
		}
	}
	if n.order == nil {
		return nil
	}
	o := datedOrder{*n.order, n.given}
	v, err := r.call("order", key, append(o.args(), o.at)...)
	if err != nil {
		return err
	}
	r.orders.confirm(key, o.Order, v.number(0))
	return nil
}

// args returns o as lease.lua takes it: stop, floor, until, and how long it is remembered, in milliseconds.
func (o Order) args() []any {
	stop, until, life := 0, int64(0), longestDelay
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

// remind has Redis told again of every order in force, if it may have forgotten some. An order that it has and that is
// newer counts there.
func (r *Redis) remind() {
	if !r.forgetful.Swap(false) {
		return
	}
	r.telling.Lock()
	defer r.telling.Unlock()
	for key := range r.orders.all() {
		n := r.unsent[key]
		o := r.orders.reminder(key, time.Now())
		if n.order != nil || o.at == 0 {
			continue
		}
		n.order, n.given = &o.Order, o.at
		r.unsent[key] = n
	}
}

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
}

// then returns n and what came after it as one.
func (n news) then(next news) news {
	if n.pause.After(next.pause) {
		next.pause, next.why = n.pause, n.why
	}
	if next.order == nil {
		next.order = n.order
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
	v, err := r.call("complain", c.Key, c.Client, micros(time.Since(c.Sent)), c.Streak)
	if err != nil {
		return Verdict{}, err
	}
	return Verdict{Paused: v.duration(0), Streak: int(v.number(1)), PausedBy: v.source(2)}, nil
}

// Order implements Shared.
func (r *Redis) Order(key string, o Order) error {
	r.ordering.Add(1)
	defer r.ordering.Add(-1)
	defer r.ordered.Add(1)
	r.keepOrder(key, o)
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
	o, stop, until, life := n.order, 0, int64(0), longestDelay
	if o.Stop {
		stop = 1
	}
	if !o.Until.IsZero() {
		until = o.Until.UnixMicro()
	}
	switch {
	case !o.Stop && o.Floor <= 0:
		life = 0
	case until > 0 && o.Floor <= 0:
		life = min(life, max(0, time.Until(o.Until)))
	}
	_, err := r.call("order", key, stop, micros(o.Floor), until, life.Milliseconds())
	return err
}

// keepOrder remembers what was said of key.
func (r *Redis) keepOrder(key string, o Order) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if o == (Order{}) {
		delete(r.orders, key)
		return
	}
	r.orders[strings.Clone(key)] = o
}

// keptOrder returns what was said of key last, if it still holds.
func (r *Redis) keptOrder(key string) Order {
	r.mu.Lock()
	defer r.mu.Unlock()
	o := r.orders[key]
	o.Stop = o.Stop && (o.Until.IsZero() || o.Until.After(time.Now()))
	return o
}

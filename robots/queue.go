package robots

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
)

// ErrBusy is the error for an origin whose robots.txt cannot be fetched soon: as many fetches wait as may.
var ErrBusy = errors.New("robots: too many fetches are waiting")

// perHost is how many fetches may wait for one host, so that a host with a thousand ports leaves room for others. Most
// hosts have two origins.
const perHost = 16

// queue lets fetches begin: one at a time for each host, and a bounded number in all. One that waits for its host holds no
// place that another host could use.
type queue struct {
	places chan struct{} // one for each fetch that may run
	most   int64         // that may wait

	waiting, running atomic.Int64

	mu    sync.Mutex // guards what follows
	turns map[string]*turn
}

// turn is held by who fetches from a host.
type turn struct {
	held  chan struct{} // has room for one
	users int           // who hold it or wait for it
}

func newQueue(places, most int) queue {
	return queue{places: make(chan struct{}, places), most: int64(most), turns: make(map[string]*turn)}
}

// enter waits until a fetch from host may begin; leave must be called at its end. Its error is ErrBusy or that of ctx.
func (q *queue) enter(ctx context.Context, host string) (leave func(), err error) {
	t, err := q.join(host)
	if err != nil {
		return nil, err
	}
	if err := q.acquire(ctx, t.held); err != nil {
		q.part(host, t)
		return nil, err
	}
	if err := q.acquire(ctx, q.places); err != nil {
		<-t.held
		q.part(host, t)
		return nil, err
	}
	q.running.Add(1)
	return func() {
		q.running.Add(-1)
		<-q.places
		<-t.held
		q.part(host, t)
	}, nil
}

// acquire takes what place has room for, and counts among those who wait only if there is none.
func (q *queue) acquire(ctx context.Context, place chan<- struct{}) error {
	select {
	case place <- struct{}{}:
		return nil
	default:
	}
	defer q.waiting.Add(-1)
	if q.waiting.Add(1) > q.most {
		return ErrBusy
	}
	select {
	case place <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (q *queue) join(host string) (*turn, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	t := q.turns[host]
	if t == nil {
		t = &turn{held: make(chan struct{}, 1)}
		q.turns[host] = t
	}
	if t.users > perHost {
		return nil, fmt.Errorf("%w for %s", ErrBusy, host)
	}
	t.users++
	return t, nil
}

func (q *queue) part(host string, t *turn) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if t.users--; t.users == 0 {
		delete(q.turns, host)
	}
}

package ratelimit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"
)

// A predecessor is the process from which this one has taken over the lanes. It holds the Grants for the requests of
// that process. If the process ends without a word, all its requests have ended.
type predecessor struct {
	limiter *Limiter
	wire    *wire
	ended   chan struct{} // closed when nothing of the other process is left

	work sync.WaitGroup // the requests that wait

	mu       sync.Mutex // guards requests
	requests map[uint64]*remoteRequest
}

// A remoteRequest waits for a Grant, or has it.
type remoteRequest struct {
	leave context.CancelFunc // nil: it has a Grant
	grant Grant
}

func newPredecessor(l *Limiter, conn net.Conn) *predecessor {
	return &predecessor{
		limiter: l, wire: newWire(conn), ended: make(chan struct{}), requests: make(map[uint64]*remoteRequest),
	}
}

// adoptAll adopts the lanes that the other process sends.
func (p *predecessor) adoptAll(dec *json.Decoder) error {
	for {
		var m message
		if err := dec.Decode(&m); err != nil {
			return err
		}
		switch {
		case m.Op == opEnd:
			return nil
		case m.Op != opLane:
			return fmt.Errorf("the other process has sent %q instead of a lane", m.Op)
		}
		if err := p.adopt(m.Lane); err != nil {
			return err
		}
	}
}

// adopt adopts a lane with its requests.
func (p *predecessor) adopt(ls laneState) error {
	ln, err := p.limiter.lane(ls.Key)
	if err != nil {
		return err
	}
	defer ln.unlock()
	now := time.Now()
	ln.adopt(ls, now)
	for _, from := range ls.InFlight {
		f := p.limiter.newInflight()
		ln.adoptInFlight(f, from, now)
		p.add(from.ID, &remoteRequest{grant: f.grant(ln)})
	}
	for _, from := range ls.Waiting {
		if from.ID == 0 {
			ln.adoptWaiting(context.Background(), nil, from, now)
			continue
		}
		ctx := p.begin(from.ID)
		w := ln.adoptWaiting(ctx, p.limiter.newInflight(), from, now)
		p.work.Go(func() { p.granted(from.ID, func() (Grant, error) { return p.limiter.wait(ctx, ln, w) }) })
	}
	ln.dispatch(now)
	return nil
}

// add adds a request of the other process.
func (p *predecessor) add(id uint64, r *remoteRequest) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.requests[id] = r
}

// begin adds a request that waits, and returns the context of its wait.
func (p *predecessor) begin(id uint64) context.Context {
	ctx, leave := context.WithCancel(context.Background())
	p.add(id, &remoteRequest{leave: leave})
	return ctx
}

// granted waits for the Grant of a request, and replies with it.
func (p *predecessor) granted(id uint64, wait func() (Grant, error)) {
	g, err := wait()
	p.mu.Lock()
	r := p.requests[id]
	switch {
	case r == nil: // it has left
	case err != nil:
		delete(p.requests, id)
		r.leave()
	default:
		r.leave()
		r.leave, r.grant = nil, g
	}
	p.mu.Unlock()
	switch {
	case err == nil && r == nil:
		g.Cancel()
	case err == nil:
		_ = p.wire.send(reply{ID: id, Grant: g.terms.export()})
	case r != nil:
		_ = p.wire.send(refusal(id, err))
	}
}

// refusal returns the reply with err.
func refusal(id uint64, err error) reply {
	r := reply{ID: id}
	if errors.As(err, &r.Wait) || errors.As(err, &r.Stopped) {
		return r
	}
	r.Err = err.Error()
	return r
}

// serve handles messages until the other process closes the connection.
func (p *predecessor) serve(dec *json.Decoder) {
	defer p.end()
	for {
		var m message
		if dec.Decode(&m) != nil {
			return
		}
		p.handle(m)
	}
}

func (p *predecessor) handle(m message) {
	switch m.Op {
	case opAcquire:
		ctx := p.begin(m.ID)
		p.work.Go(func() { p.granted(m.ID, func() (Grant, error) { return p.limiter.Acquire(ctx, m.Request) }) })
	case opCancel:
		p.cancel(m.ID)
	case opHear:
		p.grant(m.ID, false).Hear(m.Outcome)
	case opRelease:
		m.Outcome.Ended = time.Now().Add(-m.Ended)
		p.grant(m.ID, true).Release(m.Outcome)
	case opReckon:
		var r reckoned
		r.Wait, r.Gap, r.OK = p.limiter.Reckon(m.Request)
		_ = p.wire.send(reply{ID: m.ID, Reckon: &r})
	case opHearUnpaced:
		p.limiter.Hear(m.Key, m.Client, m.Outcome)
	case opPeek:
		r := reply{ID: m.ID}
		if v, ok := p.limiter.Peek(m.Key); ok {
			r.View = &v
		}
		_ = p.wire.send(r)
	}
}

// cancel ends a request that was not sent.
func (p *predecessor) cancel(id uint64) {
	p.mu.Lock()
	r := p.requests[id]
	delete(p.requests, id)
	p.mu.Unlock()
	switch {
	case r == nil:
	case r.leave != nil:
		r.leave()
	default:
		r.grant.Cancel()
	}
}

// grant returns the Grant of a request, or the zero Grant. If last is true, it is the last use of the Grant.
func (p *predecessor) grant(id uint64, last bool) Grant {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := p.requests[id]
	if r == nil {
		return Grant{}
	}
	if last {
		delete(p.requests, id)
	}
	return r.grant
}

// end ends all requests of the other process: those that wait are not sent, and those in flight have ended.
func (p *predecessor) end() {
	defer close(p.ended)
	p.wire.conn.Close()
	p.mu.Lock()
	left := p.requests
	p.requests = make(map[uint64]*remoteRequest)
	p.mu.Unlock()
	for _, r := range left {
		if r.leave != nil {
			r.leave()
		} else {
			r.grant.Release(Outcome{})
		}
	}
	p.work.Wait()
}

// close ends the connection.
func (p *predecessor) close() {
	p.wire.conn.Close()
	<-p.ended
}

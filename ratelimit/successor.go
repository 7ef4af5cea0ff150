package ratelimit

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"sync"
	"time"
)

// A successor is the connection to the process that has the lanes of this one. The nil successor has no lanes.
type successor struct {
	limiter *Limiter
	wire    *wire
	adopted chan struct{} // closed when the successor has adopted all lanes
	ended   chan struct{} // closed by read

	mu      sync.Mutex // guards the fields below
	last    uint64     // the last number
	replies map[uint64]chan reply
	gone    bool
}

func newSuccessor(l *Limiter, conn net.Conn) *successor {
	s := &successor{
		limiter: l, wire: newWire(conn), adopted: make(chan struct{}), ended: make(chan struct{}),
		replies: make(map[uint64]chan reply),
	}
	go s.read()
	return s
}

// offer sends all lanes that are not idle, and waits until the other process has adopted them. The lanes are locked.
func (s *successor) offer(lanes []*lane) error {
	if err := s.wire.conn.SetDeadline(time.Now().Add(handOverTime)); err != nil {
		return err
	}
	err := s.wire.sendAll(func(put func(any)) {
		for _, ln := range lanes {
			if now := time.Now(); !ln.idle(now) {
				put(message{Op: opLane, Lane: ln.export(ln.key, s, now)})
			}
		}
		put(message{Op: opEnd})
	})
	if err != nil {
		return err
	}
	select {
	case <-s.adopted:
		return s.wire.conn.SetDeadline(time.Time{})
	case <-s.ended:
		return errors.New("the other process has ended, or takes too long")
	}
}

// number returns a new number.
func (s *successor) number() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last++
	return s.last
}

// expect returns a new number, for a message with a reply.
func (s *successor) expect() uint64 {
	id := s.number()
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.gone {
		s.replies[id] = make(chan reply, 1)
	}
	return id
}

// reply returns the channel of the reply to number id, which is closed if the other process has ended.
func (s *successor) reply(id uint64) <-chan reply {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.replies[id]; c != nil {
		return c
	}
	c := make(chan reply)
	close(c)
	return c
}

// forget drops the reply to number id.
func (s *successor) forget(id uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.replies, id)
}

// read passes each reply to the caller that waits for it, until the connection ends.
func (s *successor) read() {
	defer close(s.ended)
	dec := json.NewDecoder(s.wire.conn)
	for {
		var r reply
		if dec.Decode(&r) != nil {
			break
		}
		if r.ID == 0 {
			close(s.adopted)
			continue
		}
		s.mu.Lock()
		if c := s.replies[r.ID]; c != nil {
			c <- r // the only reply to this number
		}
		s.mu.Unlock()
	}
	s.wire.conn.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gone = true
	for id, c := range s.replies {
		delete(s.replies, id)
		close(c)
	}
}

// close ends the connection.
func (s *successor) close() {
	s.wire.conn.Close()
	<-s.ended
}

// tell sends m, a message without a reply. An error ends the connection.
func (s *successor) tell(m message) { _ = s.wire.send(m) }

// ask sends m and returns the reply. It reports false if the other process has ended.
func (s *successor) ask(m message) (reply, bool) {
	m.ID = s.expect()
	defer s.forget(m.ID)
	c := s.reply(m.ID)
	s.tell(m)
	r, ok := <-c
	return r, ok
}

// acquire is Limiter.Acquire.
func (s *successor) acquire(ctx context.Context, r Request) (Grant, error) {
	r.ClientTime = nil // it is in the memory of this process
	id, f, ln := s.expect(), s.limiter.newInflight(), newLane(s.limiter, r.Key)
	f.client, f.remote, ln.dropped = r.Client, id, true
	s.tell(message{Op: opAcquire, ID: id, Request: r})
	return s.await(ctx, ln, f)
}

// claim ends the wait of w in a lane that was handed over.
func (s *successor) claim(ctx context.Context, ln *lane, w *waiter) (Grant, error) {
	if !w.granted {
		return s.await(ctx, ln, w.inflight)
	}
	g := w.inflight.grant(ln)
	if err := ctx.Err(); err != nil {
		g.Cancel()
		s.limiter.abandoned.Add(1)
		return Grant{}, err
	}
	return g, nil
}

// await waits until f may start.
func (s *successor) await(ctx context.Context, ln *lane, f *inflight) (Grant, error) {
	defer s.forget(f.remote)
	var r reply
	ok := true
	select {
	case r, ok = <-s.reply(f.remote):
	case <-ctx.Done():
	}
	if err := ctx.Err(); err != nil {
		s.tell(message{Op: opCancel, ID: f.remote})
		s.limiter.recycle(f)
		s.limiter.abandoned.Add(1)
		return Grant{}, err
	}
	if r.Grant == nil {
		s.limiter.recycle(f)
		s.limiter.rejected.Add(1)
		return Grant{}, r.err(ok)
	}
	f.terms = r.Grant.terms(time.Now())
	s.limiter.granted.Add(1)
	return f.grant(ln), nil
}

// err returns the error in r. If ok is false, the other process has ended without a reply.
func (r reply) err(ok bool) error {
	switch {
	case !ok:
		return &UnavailableError{RetryAfter: time.Second, Err: errors.New("the process that has taken over has ended")}
	case r.Wait != nil:
		return r.Wait
	case r.Stopped != nil:
		return r.Stopped
	default:
		return &UnavailableError{RetryAfter: time.Second, Err: errors.New(r.Err)}
	}
}

// release is Grant.Release.
func (s *successor) release(id uint64, o Outcome) {
	ended := time.Duration(0)
	if !o.Ended.IsZero() {
		ended = time.Since(o.Ended)
		o.Ended = time.Time{}
	}
	s.tell(message{Op: opRelease, ID: id, Outcome: o, Ended: ended})
}

// reckon is Limiter.Reckon.
func (s *successor) reckon(r Request) (wait, gap time.Duration, ok bool) {
	r.ClientTime = nil
	answer, _ := s.ask(message{Op: opReckon, Request: r})
	if answer.Reckon == nil {
		return 0, -1, false
	}
	return answer.Reckon.Wait, answer.Reckon.Gap, answer.Reckon.OK
}

// peek is Limiter.Peek.
func (s *successor) peek(key string) (View, bool) {
	if s == nil {
		return View{}, false
	}
	answer, _ := s.ask(message{Op: opPeek, Key: key})
	if answer.View == nil {
		return View{}, false
	}
	return *answer.View, true
}

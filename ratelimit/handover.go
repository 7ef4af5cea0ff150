package ratelimit

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"
)

// At an upgrade, a process hands its lanes over to the process that replaces it. From then on, the new process has all
// lanes. The old one asks it for a Grant for each of its remaining requests, and reports the end of each. So each host
// has one lane at any time, with one queue.
//
//	conn, other := socketpair()
//	err := old.HandOver(conn)     // in the old process
//	err := new.TakeOver(other)    // in the new process, at the same time
//
// HandOver holds back all calls until TakeOver has adopted every lane. If that fails, the old Limiter continues as
// before. The old process sends messages, and the new one replies. Both are JSON values.

// handOverTime bounds how long a HandOver holds back other calls. A million lanes take about six seconds.
const handOverTime = 30 * time.Second

// errMoved is the error of a call that needs a lane while another process has the lanes.
var errMoved = errors.New("ratelimit: another process has taken over the lanes")

// A message goes from the process that has handed over its lanes to the one that has taken them over.
type message struct {
	Op      operation
	ID      uint64        `json:",omitempty"` // of the request, or of the question
	Lane    laneState     `json:",omitzero"`  // of opLane
	Request Request       `json:",omitzero"`  // of opAcquire and opReckon
	Key     string        `json:",omitempty"` // of opHearUnpaced and opPeek
	Client  string        `json:",omitempty"` // of opHearUnpaced
	Outcome Outcome       `json:",omitzero"`  // of opHear, opHearUnpaced and opRelease
	Ended   time.Duration `json:",omitempty"` // of opRelease: how long ago the request has ended
}

type operation string

const (
	opLane        operation = "lane"    // adopt this lane
	opEnd         operation = "end"     // there are no more lanes
	opAcquire     operation = "acquire" // reply with a Grant
	opCancel      operation = "cancel"  // the request is not sent, whether or not it has a Grant
	opHear        operation = "hear"    // Grant.Hear
	opRelease     operation = "release" // Grant.Release
	opReckon      operation = "reckon"  // reply with the result of Limiter.Reckon
	opHearUnpaced operation = "unpaced" // Limiter.Hear
	opPeek        operation = "peek"    // reply with a View
)

// A reply is the answer to a message. The zero ID means that all lanes are adopted.
type reply struct {
	ID      uint64        `json:",omitempty"`
	Grant   *grantState   `json:",omitempty"`
	Wait    *WaitError    `json:",omitempty"`
	Stopped *StoppedError `json:",omitempty"`
	Err     string        `json:",omitempty"` // any other error
	Reckon  *reckoned     `json:",omitempty"`
	View    *View         `json:",omitempty"` // nil: the key has no lane
}

// A grantState has the terms of a Grant.
type grantState struct {
	Waited, Gap, Delay time.Duration
	Source             Source
	Mode               Mode
	HasGap, Overtaken  bool
	FromStart          bool
}

type reckoned struct {
	Wait, Gap time.Duration
	OK        bool
}

func (t terms) export() *grantState {
	return &grantState{t.waited, t.gap, t.delay, t.source, t.mode, t.hasGap, t.overtaken, t.fromStart}
}

// terms returns the terms of a request that starts now.
func (g *grantState) terms(now time.Time) terms {
	return terms{
		start: now, waited: g.Waited, gap: g.Gap, delay: g.Delay, source: g.Source, mode: g.Mode,
		hasGap: g.HasGap, overtaken: g.Overtaken, fromStart: g.FromStart,
	}
}

// A wire sends JSON values over a connection. If one cannot be sent, it closes the connection, so that the reader at
// this end notices too.
type wire struct {
	conn net.Conn
	mu   sync.Mutex    // guards the fields below
	buf  *bufio.Writer // of enc
	enc  *json.Encoder
}

func newWire(conn net.Conn) *wire {
	buf := bufio.NewWriterSize(conn, 64<<10)
	return &wire{conn: conn, buf: buf, enc: json.NewEncoder(buf)}
}

func (w *wire) send(v any) error { return w.sendAll(func(put func(any)) { put(v) }) }

// sendAll sends the values that values passes to put.
func (w *wire) sendAll(values func(put func(any))) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	var err error
	values(func(v any) {
		if err == nil {
			err = w.enc.Encode(v)
		}
	})
	if err = errors.Join(err, w.buf.Flush()); err != nil {
		w.conn.Close()
	}
	return err
}

// HandOver passes all lanes to the Limiter that calls TakeOver at the other end of conn, and returns when that has
// adopted them. This Limiter remains usable: it asks the other one over conn until Close. Grants stay valid, and
// requests that wait keep their places. If the other process ends, further requests get an *UnavailableError.
//
// After an error this Limiter has all lanes, as before, and conn is closed. The caller must then end the other process:
// it may have adopted lanes. HandOver is not for Limiters with a Coordinator, which share their lanes in any case.
func (l *Limiter) HandOver(conn net.Conn) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.successor.Load() != nil {
		conn.Close()
		return errMoved
	}
	s := newSuccessor(l, conn)
	for _, ln := range l.ring.lanes {
		ln.lock()
	}
	err := s.offer(l.ring.lanes)
	if err == nil {
		l.successor.Store(s)
	} else {
		s.close()
		err = fmt.Errorf("ratelimit: handing over the lanes: %w", err)
	}
	for _, ln := range l.ring.lanes {
		if err == nil {
			ln.vacate(time.Now())
			ln.dropped = true
		} else {
			ln.unexport()
		}
		ln.unlock()
	}
	if err == nil {
		l.lanes, l.ring = nil, ring{}
	}
	return err
}

// TakeOver adopts the lanes of the Limiter that calls HandOver at the other end of conn. When it returns, it has all of
// them, and serves the requests of the other process until that closes conn, or until Close. Requests of this Limiter
// should begin after TakeOver.
//
// If it returns an error, it has closed conn, and this Limiter must not be used: it may have some of the lanes.
func (l *Limiter) TakeOver(conn net.Conn) error {
	p := newPredecessor(l, conn)
	dec := json.NewDecoder(conn)
	err := p.adoptAll(dec)
	if err == nil {
		err = p.wire.send(reply{})
	}
	if err != nil {
		p.end()
		return fmt.Errorf("ratelimit: taking over the lanes: %w", err)
	}
	l.predecessor.Store(p)
	go p.serve(dec)
	return nil
}

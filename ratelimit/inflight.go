package ratelimit

import (
	"sync/atomic"
	"time"
)

// An inflight is a request between its start and the Release or Cancel of its Grant. The lock of its lane guards all
// fields but number.
type inflight struct {
	number atomic.Uint64 // changes when the Grant is given back
	terms
	client     string
	clientTime *ClientTime   // nil: its client cannot block it
	lease      *lease        // nil: the lane has no Coordinator
	spacing    time.Duration // its Delay or the floor, whichever is longer

	done               bool      // the lane no longer counts it: it has ended, was cancelled, or went on for ReleaseAfter
	released           time.Time // since when
	overlaps           bool      // it has made room for other clients and still goes on: see overlap
	heard              bool      // the lane knows the response of the host
	delayFrom, gapFrom time.Time // of the lane before the start, for cancel
	moves              uint64    // of the lane after the start
	older, newer       *inflight // in the list of the lane

	remote uint64 // its number in the process that has the lane; 0: the lane is in this process
}

// newInflight returns an unused inflight.
func (l *Limiter) newInflight() *inflight {
	if f, ok := l.inflightPool.Get().(*inflight); ok {
		return f
	}
	return new(inflight)
}

// recycle keeps f for newInflight. No lane and no valid Grant may refer to it.
func (l *Limiter) recycle(f *inflight) {
	f.client, f.clientTime, f.lease = "", nil, nil // what they point to may be large
	f.remote = 0
	l.inflightPool.Put(f)
}

// inflights is a linked list of the requests in flight in one lane, oldest first. Most lanes have none, so a list
// through the requests themselves takes less memory than a slice.
type inflights struct {
	oldest, newest *inflight
	n              int
}

func (fs *inflights) add(f *inflight) {
	f.older, f.newer = fs.newest, nil
	if f.older != nil {
		f.older.newer = f
	} else {
		fs.oldest = f
	}
	fs.newest = f
	fs.n++
}

func (fs *inflights) remove(f *inflight) {
	if f.older != nil {
		f.older.newer = f.newer
	} else {
		fs.oldest = f.newer
	}
	if f.newer != nil {
		f.newer.older = f.older
	} else {
		fs.newest = f.older
	}
	f.older, f.newer = nil, nil
	fs.n--
}

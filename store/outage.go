package store

import (
	"context"
	"sync/atomic"
	"time"
)

// outage is a time in which the server that shares the files is not asked, since it has just failed.
type outage struct {
	until  atomic.Int64  // Unix nanoseconds
	missed chan struct{} // capacity 1: a Load has returned a copy of this instance instead
}

func newOutage() outage { return outage{missed: make(chan struct{}, 1)} }

// begin begins an outage after a failure.
func (o *outage) begin() { o.until.Store(time.Now().Add(sharedRetry).UnixNano()) }

func (o *outage) isOn() bool { return time.Now().UnixNano() < o.until.Load() }

// miss says that a Load has returned a copy of this instance, which another instance may have replaced or deleted.
func (o *outage) miss() {
	select {
	case o.missed <- struct{}{}:
	default:
	}
}

// watch calls lost after an outage with such a Load, as soon as works succeeds, until ctx ends.
func (o *outage) watch(ctx context.Context, works func() error, lost func()) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-o.missed:
		}
		for o.isOn() || works() != nil {
			if sleep(ctx, sharedRetry/10); ctx.Err() != nil {
				return
			}
		}
		lost()
	}
}

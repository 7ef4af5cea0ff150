package robots

import (
	"errors"
	"sync"
	"time"

	"github.com/robotsproxy/robotsproxy/origin"
	"github.com/robotsproxy/robotsproxy/robots/fetch"
)

const (
	outageTTL  = 10 * time.Second
	laterTTL   = time.Minute // at most: the turn may come sooner than predicted
	maxOutages = 10_000      // origins; if there are more, all are removed
)

// outages keeps errors that say nothing about a file for a moment, so that not each request meets them again: failures
// of the upstream proxy, and turns that come too late. They are in memory only. The zero value is empty.
type outages struct {
	mu sync.Mutex // guards by
	by map[outageKey]outage
}

// outageKey names the fetches with an outage. A turn that comes too late is that of one client.
type outageKey struct {
	origin origin.Origin
	client string // empty: all clients
}

type outage struct {
	err   error
	until time.Time
}

// note keeps err, which a fetch for j returned, if it is a *fetch.UpstreamError or a *fetch.LaterError with a time.
func (o *outages) note(j job, err error, now time.Time) {
	key, until := outageKey{origin: j.origin}, now.Add(outageTTL)
	if later := (*fetch.LaterError)(nil); errors.As(err, &later) {
		key.client, until = j.asker.Client, now.Add(min(later.At.Sub(now), laterTTL))
	} else if !errors.As(err, new(*fetch.UpstreamError)) {
		return
	}
	if !now.Before(until) {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.by == nil || len(o.by) >= maxOutages {
		o.by = make(map[outageKey]outage)
	}
	o.by[key] = outage{err, until}
}

// of returns the error that a fetch for j would meet again, or nil. It returns nil for anyway.
func (o *outages) of(j job, now time.Time) error {
	if j.purpose == anyway {
		return nil
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, key := range []outageKey{{j.origin, ""}, {j.origin, j.asker.Client}} {
		kept, ok := o.by[key]
		if ok && now.Before(kept.until) {
			return kept.err
		}
		delete(o.by, key)
	}
	return nil
}

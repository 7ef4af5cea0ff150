package robots

import (
	"errors"
	"sync"
	"time"

	"github.com/robotsproxy/robotsproxy/origin"
)

// outage is a failure of what stands between us and every origin. It says nothing of a file, so nothing of it is kept but
// this, for a moment and in memory alone: what stands there is not to be asked again for each request.
type outage struct{ error }

func (o outage) Unwrap() error { return o.error }

const (
	outageLasts = 10 * time.Second
	laterLasts  = time.Minute // at most: the turn may come sooner than was foreseen
	maxOutages  = 10_000      // origins; beyond, all are forgotten
)

// outages are the origins on the way to which something failed a moment ago. The zero value has none.
type outages struct {
	mu sync.Mutex // guards by
	by map[outageKey]passing
}

// outageKey is whose fetches an outage concerns. A client that must come back later does not keep another from asking.
type outageKey struct {
	origin origin.Origin
	client string // empty: every client's
}

// passing is an outage that is over by itself.
type passing struct {
	err   error
	until time.Time
}

// note remembers err, which e has met, if it is an outage, or a *LaterError that says when to ask again.
func (o *outages) note(e errand, err error, now time.Time) {
	key, until := outageKey{origin: e.origin}, now.Add(outageLasts)
	if later := (*LaterError)(nil); errors.As(err, &later) {
		key.client, until = e.asker.Client, earlier(later.At, now.Add(laterLasts))
	} else if !errors.As(err, new(outage)) {
		return
	}
	if !now.Before(until) {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.by == nil || len(o.by) >= maxOutages {
		o.by = make(map[outageKey]passing)
	}
	o.by[key] = passing{err, until}
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// of returns the outage that e would meet again; nil where it may try. Who wants an origin asked anyway may.
func (o *outages) of(e errand, now time.Time) error {
	if e.purpose == anyway {
		return nil
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, key := range []outageKey{{e.origin, ""}, {e.origin, e.asker.Client}} {
		p, ok := o.by[key]
		if ok && now.Before(p.until) {
			return p.err
		}
		delete(o.by, key)
	}
	return nil
}

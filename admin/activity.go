package admin

import (
	"container/list"
	"strings"
	"sync"
	"time"

	"github.com/robotsproxy/robotsproxy/audit"
	"github.com/robotsproxy/robotsproxy/origin"
	"github.com/robotsproxy/robotsproxy/policy"
)

// Activity counts the requests of the last hour that have ended, by host. Its zero value is ready, and it is safe for
// concurrent use. It keeps the 5,000 hosts that were visited last, in 24 MB at most.
type Activity struct {
	mu      sync.Mutex // guards the other fields
	started time.Time  // of the count, which must not follow a clock that is set
	hosts   map[string]*list.Element
	order   list.List // of *hostActivity; the last visited is the first
	seconds [rateSeconds + 1]secondCount
}

const (
	// MaxWindow is the longest time for which an Activity counts.
	MaxWindow = time.Hour

	maxActive   = 5000 // hosts
	rateSeconds = 10   // over which Rate is an average
)

// HostCounts are counts of requests that have ended.
type HostCounts struct {
	Requests  int64         `json:"requests"`
	Blocked   int64         `json:"blocked"` // deny
	WouldDeny int64         `json:"would_deny"`
	Throttled int64         `json:"throttled"` // throttle
	Delayed   int64         `json:"delayed"`   // sent after a wait
	Failed    int64         `json:"failed"`    // error, and forwarded requests that failed at the origin
	Bytes     int64         `json:"bytes"`     // of bodies, sent to clients
	Waited    time.Duration `json:"-"`         // before they were sent
}

func (c *HostCounts) add(o *HostCounts) {
	c.Requests += o.Requests
	c.Blocked += o.Blocked
	c.WouldDeny += o.WouldDeny
	c.Throttled += o.Throttled
	c.Delayed += o.Delayed
	c.Failed += o.Failed
	c.Bytes += o.Bytes
	c.Waited += o.Waited
}

// HostActivity has the counts of a host, and facts from its last requests.
type HostActivity struct {
	Host string
	HostCounts
	Last        time.Time     // end of its last request
	Origin      origin.Origin // of that request
	Delay       time.Duration // that the last request had to keep, without pauses of the host
	DelaySource string        // as in audit.Record
}

type hostActivity struct {
	HostActivity // without counts
	minutes      []minuteCounts
}

// minuteCounts are those of one minute, counted from Activity.started.
type minuteCounts struct {
	minute int64
	HostCounts
}

// secondCount is the number of requests of one second, counted from Activity.started.
type secondCount struct{ second, requests int64 }

// Observe counts a request that has ended. It does not count the proxy's own requests.
func (a *Activity) Observe(r *audit.Record) { a.observe(r, time.Now()) }

func (a *Activity) observe(r *audit.Record, now time.Time) {
	if r.Via == audit.Robots || r.Host == "" {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.hosts == nil {
		a.hosts, a.started = make(map[string]*list.Element), now
	}
	second := int64(now.Sub(a.started) / time.Second)
	if c := &a.seconds[second%int64(len(a.seconds))]; c.second == second {
		c.requests++
	} else {
		*c = secondCount{second, 1}
	}
	h := a.visited(r.Host)
	h.Last = now
	h.note(r)
	h.count(r, second/60)
}

// visited returns the entry of a host as the first in order. It drops the last one if there are too many.
func (a *Activity) visited(host string) *hostActivity {
	if e := a.hosts[host]; e != nil {
		a.order.MoveToFront(e)
		return e.Value.(*hostActivity)
	}
	if len(a.hosts) >= maxActive {
		delete(a.hosts, a.order.Remove(a.order.Back()).(*hostActivity).Host)
	}
	h := &hostActivity{HostActivity: HostActivity{Host: strings.Clone(host)}}
	a.hosts[h.Host] = a.order.PushFront(h)
	return h
}

// note keeps the origin of r, and the Delay of r if r was judged and the host had not pushed back.
func (h *hostActivity) note(r *audit.Record) {
	if h.Origin.Scheme() != r.Scheme || h.Origin.Port() != r.Port {
		if o, err := origin.New(r.Scheme, r.Host, r.Port); err == nil {
			h.Origin = o
		}
	}
	paused := r.DelaySource == "backoff" || r.DelaySource == "retry-after"
	if !paused && (r.DelayRequired > 0 || !r.SentAt.IsZero()) {
		h.Delay, h.DelaySource = time.Duration(r.DelayRequired), r.DelaySource
	}
}

// count counts r in a minute. It drops minutes that are out of MaxWindow.
func (h *hostActivity) count(r *audit.Record, minute int64) {
	if n := len(h.minutes); n == 0 || h.minutes[n-1].minute < minute {
		old := 0
		for old < n && h.minutes[old].minute <= minute-int64(MaxWindow/time.Minute) {
			old++
		}
		h.minutes = append(h.minutes[:0], h.minutes[old:]...)
		h.minutes = append(h.minutes, minuteCounts{minute: minute})
	}
	one := countsOf(r)
	h.minutes[len(h.minutes)-1].add(&one)
}

func countsOf(r *audit.Record) HostCounts {
	c := HostCounts{Requests: 1, Bytes: max(0, r.Bytes)}
	switch {
	case r.Decision == policy.Deny:
		c.Blocked = 1
	case r.Decision == policy.WouldDeny:
		c.WouldDeny = 1
	case r.Decision == policy.Throttle:
		c.Throttled = 1
	}
	if r.Decision == policy.Error || r.Reason == policy.ReasonUpstream {
		c.Failed = 1
	}
	// Without a pacing mode the request took no place in a lane.
	if r.PacingMode != "" && r.Waited > 0 {
		c.Delayed, c.Waited = 1, time.Duration(r.Waited)
	}
	return c
}

// Hosts returns the hosts with requests that have ended within window, the last visited first. A window counts whole
// minutes, of which the last has not ended; it is a minute at least and MaxWindow at most.
func (a *Activity) Hosts(window time.Duration) []HostActivity { return a.hostsAt(window, time.Now()) }

func (a *Activity) hostsAt(window time.Duration, now time.Time) (all []HostActivity) {
	a.mu.Lock()
	defer a.mu.Unlock()
	after := int64(now.Sub(a.started)/time.Minute) - int64(min(max(window, time.Minute), MaxWindow)/time.Minute)
	for e := a.order.Front(); e != nil; e = e.Next() {
		h := e.Value.(*hostActivity)
		found := h.HostActivity
		for i := range h.minutes {
			if h.minutes[i].minute > after {
				found.add(&h.minutes[i].HostCounts)
			}
		}
		if found.Requests == 0 {
			break // the others were visited before
		}
		all = append(all, found)
	}
	return all
}

// Rate returns the number of requests that have ended per second, over the last ten seconds.
func (a *Activity) Rate() float64 { return a.rateAt(time.Now()) }

func (a *Activity) rateAt(now time.Time) float64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	second := int64(now.Sub(a.started) / time.Second)
	var n int64
	for _, c := range a.seconds {
		if c.second < second && c.second >= second-rateSeconds {
			n += c.requests
		}
	}
	return float64(n) / rateSeconds
}

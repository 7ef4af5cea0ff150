package proxy

import (
	"maps"
	"net/http"
	"sync"
	"time"

	"github.com/robotsproxy/robotsproxy/origin"
)

// rides are the requests that may go on the slot of another: the hop to the Location that its client was just given, and
// what a page of a browser is made of. They are still judged, and each that went so is recorded as a deviation.
type rides struct {
	mu    sync.Mutex // guards what follows
	hops  map[ride]hop
	pages map[ride]time.Time // by client and lane: until when a page's slot is shared
}

// A ride is what may be ridden on: a client's way to a URL, or to a lane.
type ride struct{ client, to string }

func rideClient(r ride) string { return r.client }

// makeRoom removes entries of m if it has most of them: those of the client that has the most, so that a client which fills m
// makes nothing of another forgotten. If clients have a few entries each, it removes all.
func makeRoom[K comparable, V any](m map[K]V, most int, client func(K) string) {
	if len(m) < most {
		return
	}
	entries, largest := make(map[string]int), ""
	for k := range m {
		c := client(k)
		if entries[c]++; entries[c] > entries[largest] {
			largest = c
		}
	}
	few := entries[largest] < most/100 // else every new entry would count them again
	maps.DeleteFunc(m, func(k K, _ V) bool { return few || client(k) == largest })
}

type hop struct {
	count   int // how many redirects led there, one after another
	expires time.Time
}

const (
	longestRide = 30 * time.Second // how soon what rides must come
	mostHops    = 5
	mostRides   = 4096
)

// redirected remembers a redirect: the hop to its Location may ride, unless it leads to another lane or is one too many.
func (rs *rides) redirected(ex *exchange, resp *http.Response, now time.Time) {
	if ex.grant.IsZero() || resp.StatusCode < 300 || resp.StatusCode > 399 || ex.hops >= mostHops {
		return
	}
	to, err := resp.Location()
	if err != nil {
		return
	}
	o, err := origin.FromURL(to)
	if err != nil || ex.server.options.Pace.key(o.Host()) != ex.lane {
		return
	}
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if rs.hops == nil {
		rs.hops = make(map[ride]hop)
	}
	makeRoom(rs.hops, mostRides, rideClient) // a client without its ride waits for a slot of its own
	rs.hops[ride{ex.share, o.String() + to.RequestURI()}] = hop{ex.hops + 1, now.Add(longestRide)}
}

// hop reports whether ex is the hop to a Location that its client was given. It is so once.
func (rs *rides) hop(ex *exchange, now time.Time) bool {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if len(rs.hops) == 0 {
		return false
	}
	r := ride{ex.share, ex.origin.String() + ex.target}
	h, ok := rs.hops[r]
	delete(rs.hops, r)
	if !ok || now.After(h.expires) {
		return false
	}
	ex.hops = h.count
	return true
}

// page remembers that a page of a browser has got its slot.
func (rs *rides) page(ex *exchange, now time.Time) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if rs.pages == nil {
		rs.pages = make(map[ride]time.Time)
	}
	makeRoom(rs.pages, mostRides, rideClient)
	rs.pages[ride{ex.share, ex.lane}] = now.Add(longestRide)
}

// part reports whether ex may be a part of a page that got its slot just before.
func (rs *rides) part(ex *exchange, now time.Time) bool {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	return now.Before(rs.pages[ride{ex.share, ex.lane}])
}

// isPage reports whether a browser asks for a document of its own, by Sec-Fetch-Dest (W3C Fetch Metadata section 2.1),
// and whether it says what it asks for at all. Anybody can forge the field.
func isPage(h http.Header) (page, said bool) {
	switch dest := h.Get("Sec-Fetch-Dest"); dest {
	case "":
		return false, false
	case "document", "iframe", "frame", "object", "embed":
		return true, true
	default:
		return false, true
	}
}

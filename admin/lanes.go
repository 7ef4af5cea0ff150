package admin

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/robotsproxy/robotsproxy/internal/auditquery"
	"github.com/robotsproxy/robotsproxy/origin"
	"github.com/robotsproxy/robotsproxy/policy"
	"github.com/robotsproxy/robotsproxy/robots"
)

// Lanes knows the hosts to which requests go.
type Lanes interface {
	// Lanes returns the hosts with requests that have ended within window, which is an hour at most, and those with
	// requests that wait or are in flight, or that are paused. They are in no order, and have no Interventions and no
	// Robots.
	Lanes(window time.Duration) []Lane
	// Rate returns the number of requests that have ended per second, over the last ten seconds.
	Rate() float64
}

// Lane is a host, its requests of late, and its pace now.
type Lane struct {
	Host          string         `json:"host"` // or the name of the lane, if no request of a host in it has ended
	HostCounts                   // within the window
	WaitedSeconds float64        `json:"waited_seconds"`
	Last          time.Time      `json:"last,omitzero"` // end of the last request
	Waiting       int            `json:"waiting"`       // requests, now
	Active        int            `json:"active"`        // requests in flight, now
	Delay         float64        `json:"delay_seconds"` // least gap between two requests, without pauses
	DelaySource   string         `json:"delay_source,omitempty"`
	NextSlot      time.Time      `json:"next_slot,omitzero"` // predicted start of the next request
	PausedUntil   time.Time      `json:"paused_until,omitzero"`
	PauseSource   string         `json:"pause_source,omitempty"` // backoff or retry-after
	Interventions []Intervention `json:"interventions"`
	Robots        *File          `json:"robots,omitempty"` // of Origin
	Origin        origin.Origin  `json:"-"`                // of the last request; zero: unknown
}

// LaneList is the response body of /api/v1/hosts.
type LaneList struct {
	Window float64   `json:"window_seconds"`
	Rate   float64   `json:"requests_per_second"` // over the last ten seconds
	Total  LaneTotal `json:"total"`
	Hosts  []Lane    `json:"hosts"`
	More   bool      `json:"more,omitempty"` // hosts after these
}

// LaneTotal sums up all hosts that a LaneList selects.
type LaneTotal struct {
	Hosts int `json:"hosts"`
	HostCounts
	WaitedSeconds float64 `json:"waited_seconds"`
	Paused        int     `json:"paused"` // hosts
}

// laneOrders are the orders of a LaneList. All but host begin with the greatest.
var laneOrders = map[string]func(a, b *Lane) int{
	"host":      func(a, b *Lane) int { return 0 },
	"requests":  func(a, b *Lane) int { return cmp.Compare(b.Requests, a.Requests) },
	"blocked":   func(a, b *Lane) int { return cmp.Compare(b.Blocked+b.WouldDeny, a.Blocked+a.WouldDeny) },
	"throttled": func(a, b *Lane) int { return cmp.Compare(b.Throttled, a.Throttled) },
	"delayed":   func(a, b *Lane) int { return cmp.Compare(b.Delayed, a.Delayed) },
	"failed":    func(a, b *Lane) int { return cmp.Compare(b.Failed, a.Failed) },
	"waited":    func(a, b *Lane) int { return cmp.Compare(b.Waited, a.Waited) },
	"bytes":     func(a, b *Lane) int { return cmp.Compare(b.Bytes, a.Bytes) },
	"waiting":   func(a, b *Lane) int { return cmp.Compare(b.Waiting, a.Waiting) },
	"active":    func(a, b *Lane) int { return cmp.Compare(b.Active, a.Active) },
	"delay":     func(a, b *Lane) int { return cmp.Compare(b.Delay, a.Delay) },
	"next":      func(a, b *Lane) int { return b.NextSlot.Compare(a.NextSlot) },
	"paused":    func(a, b *Lane) int { return b.PausedUntil.Compare(a.PausedUntil) },
	"last":      func(a, b *Lane) int { return b.Last.Compare(a.Last) },
}

// LaneOrders returns the names of the orders of a LaneList.
func LaneOrders() []string { return slices.Sorted(maps.Keys(laneOrders)) }

// laneQuestion selects lanes.
type laneQuestion struct {
	window        time.Duration
	search        string
	order         func(a, b *Lane) int
	limit, offset int
}

var laneParams = []string{"window", "host", "sort", "limit", "offset"}

func newLaneQuestion(params url.Values) (q laneQuestion, err error) {
	for name := range params {
		if _, err := auditquery.Listed("parameter", []string{name}, laneParams); err != nil {
			return q, err
		}
	}
	q.search = strings.ToLower(strings.TrimSpace(params.Get("host")))
	sort := cmp.Or(params.Get("sort"), "requests")
	if q.order = laneOrders[sort]; q.order == nil {
		_, err := auditquery.Listed("sort", []string{sort}, LaneOrders())
		return q, err
	}
	q.window = MaxWindow
	if text := params.Get("window"); text != "" {
		if q.window, err = auditquery.Step("window", text); err == nil && q.window > MaxWindow {
			err = fmt.Errorf("window %q is longer than an hour: /api/v1/audit/summary has the counts of longer times", text)
		}
		if err != nil {
			return q, err
		}
	}
	if q.limit, err = numberOf(params, "limit", 1, maxListed, 100); err != nil {
		return q, err
	}
	q.offset, err = numberOf(params, "offset", 0, 1<<31-1, 0)
	return q, err
}

// numberOf returns a parameter that is a number, or usual if it is absent.
func numberOf(params url.Values, name string, least, most, usual int) (int, error) {
	text := params.Get(name)
	if text == "" {
		return usual, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < least || n > most {
		return 0, fmt.Errorf("%s %q is not a number from %d to %d", name, text, least, most)
	}
	return n, nil
}

// listLanes lists hosts with their requests of late and their pace.
func (h *Handler) listLanes(r *http.Request) (any, error) {
	q, err := newLaneQuestion(r.URL.Query())
	if err != nil {
		return nil, &apiError{http.StatusBadRequest, err}
	}
	all := h.options.Lanes.Lanes(q.window)
	all = slices.DeleteFunc(all, func(l Lane) bool { return !strings.Contains(l.Host, q.search) })
	slices.SortFunc(all, func(a, b Lane) int { return cmp.Or(q.order(&a, &b), cmp.Compare(a.Host, b.Host)) })
	list := LaneList{Window: inSeconds(q.window), Rate: h.options.Lanes.Rate(), Total: total(all)}
	first := min(q.offset, len(all))
	end := min(first+q.limit, len(all))
	list.Hosts, list.More = append([]Lane{}, all[first:end]...), end < len(all)
	var inForce []policy.Intervention
	if h.options.Interventions != nil {
		inForce = h.options.Interventions.Interventions()
	}
	for i := range list.Hosts {
		l := &list.Hosts[i]
		l.WaitedSeconds = inSeconds(l.Waited)
		others := func(i policy.Intervention) bool { return !policy.MatchHost(i.Host, l.Host) }
		l.Interventions = shown(slices.DeleteFunc(slices.Clone(inForce), others))
		if l.Robots, err = h.robotsOf(r, l.Origin); err != nil {
			return nil, err
		}
	}
	return list, nil
}

func total(lanes []Lane) (t LaneTotal) {
	for i := range lanes {
		t.add(&lanes[i].HostCounts)
		if !lanes[i].PausedUntil.IsZero() {
			t.Paused++
		}
	}
	t.Hosts, t.WaitedSeconds = len(lanes), inSeconds(t.Waited)
	return t
}

// robotsOf returns the robots.txt of o, or nil if none is kept. A file that cannot be read has its error.
func (h *Handler) robotsOf(r *http.Request, o origin.Origin) (*File, error) {
	if h.options.Files == nil || o.IsZero() {
		return nil, nil
	}
	snap, err := h.options.Files.Peek(r.Context(), o)
	var f File
	switch {
	case r.Context().Err() != nil:
		return nil, r.Context().Err()
	case errors.Is(err, robots.ErrNoSnapshot):
		return nil, nil
	case err != nil:
		f = noFile(o, err)
	default:
		f = file(o.String(), snap)
	}
	return &f, nil
}

// inSeconds returns d in seconds as a decimal number reads: 1.128, for which d.Seconds() is 1.1280000000000001.
func inSeconds(d time.Duration) float64 { return float64(d) / float64(time.Second) }

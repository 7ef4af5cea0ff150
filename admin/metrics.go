package admin

import (
	"fmt"
	"net/http"
	"runtime"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/robotsproxy/robotsproxy/audit"
)

// Metrics counts the requests that have ended. Its labels come from closed lists: a host, a URL or a user agent is
// never one, since strangers choose those, and each value would be a series for ever. Package audit keeps them.
type Metrics struct {
	registry *prometheus.Registry
	decided  *prometheus.Registry // requests alone, for what is not a scrape

	requests *prometheus.CounterVec
	fetches  *prometheus.CounterVec // requests of our own for robots.txt files
	duration *prometheus.HistogramVec
	wait     prometheus.Histogram
	bytes    prometheus.Counter
}

// Gauge is a number of another package, read at each scrape. Value is called by several goroutines at once and must
// not block.
type Gauge struct {
	Name, Help string
	Value      func() float64
	Counter    bool // it only grows; its name ends in _total
}

// Waits go from none to the longest that a client may be held, by default and at most.
var (
	waitBuckets     = []float64{0.01, 0.1, 0.5, 1, 2.5, 5, 10, 20, 30, 60, 150, 300, 600}
	durationBuckets = []float64{0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 150, 600}
)

// NewMetrics returns Metrics with nothing counted but what the Go runtime and the process report of themselves.
func NewMetrics() *Metrics {
	m := &Metrics{
		registry: prometheus.NewRegistry(),
		decided:  prometheus.NewRegistry(),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "robotsproxy_requests_total",
			Help: "Requests that have ended, by what was decided and why.",
		}, []string{"decision", "reason"}),
		fetches: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "robotsproxy_robots_requests_total",
			Help: "Requests of our own for robots.txt files, redirects included, by what was decided and why.",
		}, []string{"decision", "reason"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "robotsproxy_request_duration_seconds",
			Help:    "Time from a request's arrival to the end of its answer, waits included.",
			Buckets: durationBuckets,
		}, []string{"decision"}),
		wait: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "robotsproxy_wait_seconds",
			Help:    "Time that requests were held until their host's pace let them go.",
			Buckets: waitBuckets,
		}),
		bytes: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "robotsproxy_response_bytes_total",
			Help: "Octets of the bodies that clients were sent.",
		}),
	}
	m.decided.MustRegister(m.requests)
	m.registry.MustRegister(m.requests, m.fetches, m.duration, m.wait, m.bytes,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// Observe counts a request that has ended: those of clients, and apart from them our own.
func (m *Metrics) Observe(rec *audit.Record) {
	if rec.Via == audit.Robots {
		m.fetches.WithLabelValues(string(rec.Decision), string(rec.Reason)).Inc()
		return
	}
	m.requests.WithLabelValues(string(rec.Decision), string(rec.Reason)).Inc()
	m.bytes.Add(float64(max(0, rec.Bytes)))
	if !rec.EndedAt.IsZero() {
		m.duration.WithLabelValues(string(rec.Decision)).Observe(max(0, rec.EndedAt.Sub(rec.Time).Seconds()))
	}
	// Without a pacing mode a request had no place to wait for; what it says of a wait was only reckoned.
	if rec.PacingMode != "" {
		m.wait.Observe(time.Duration(rec.Waited).Seconds())
	}
}

// register adds what is known only when the Handler is made.
func (m *Metrics) register(version string, gauges []Gauge) error {
	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Name:        "robotsproxy_build_info",
		Help:        "Always 1; its labels say what runs.",
		ConstLabels: prometheus.Labels{"version": version, "goversion": runtime.Version()},
	})
	build.Set(1)
	if err := m.registry.Register(build); err != nil {
		return fmt.Errorf("registering the version: %w", err)
	}
	for _, g := range gauges {
		if err := m.registry.Register(g.collector()); err != nil {
			return fmt.Errorf("registering the metric %q: %w", g.Name, err)
		}
	}
	return nil
}

func (g Gauge) collector() prometheus.Collector {
	if g.Counter {
		return prometheus.NewCounterFunc(prometheus.CounterOpts{Name: g.Name, Help: g.Help}, g.Value)
	}
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: g.Name, Help: g.Help}, g.Value)
}

func (m *Metrics) handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{})
}

// count is how many requests had one decision for one reason.
type count struct {
	Decision string `json:"decision"`
	Reason   string `json:"reason"`
	Requests uint64 `json:"requests"`
}

// counts returns what was counted by decision and reason, in their order.
func (m *Metrics) counts() ([]count, error) {
	families, err := m.decided.Gather()
	if err != nil {
		return nil, fmt.Errorf("gathering the counts: %w", err)
	}
	counts := []count{} // not nil, so that JSON shows an empty list
	for _, family := range families {
		for _, series := range family.GetMetric() {
			c := count{Requests: uint64(series.GetCounter().GetValue())}
			for _, label := range series.GetLabel() {
				switch label.GetName() {
				case "decision":
					c.Decision = label.GetValue()
				case "reason":
					c.Reason = label.GetValue()
				}
			}
			counts = append(counts, c)
		}
	}
	return counts, nil
}

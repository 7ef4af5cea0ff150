package admin

import (
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/robotsproxy/robotsproxy/audit"
)

// Metrics counts requests that have ended, fetches of robots.txt files and writes of records. All label values come
// from closed lists. Hosts, URLs and user agents are never labels, since clients choose them and each value would be a
// permanent series. They are in the records of package audit. Clients are labels only by the names that the operator
// has given them: see SetClients.
type Metrics struct {
	registry *prometheus.Registry
	decided  *prometheus.Registry // requests only, for counts

	requests *prometheus.CounterVec
	clients  *prometheus.CounterVec // requests by client
	fetches  *prometheus.CounterVec // the proxy's own requests for robots.txt
	duration *prometheus.HistogramVec
	wait     prometheus.Histogram
	bytes    prometheus.Counter
	fetched  *prometheus.HistogramVec // fetches of robots.txt files, of one request or more each
	written  *prometheus.HistogramVec // batches of records

	mu    sync.RWMutex    // guards named
	named map[string]bool // clients that are labels
}

// Gauge is a value from another package, read at each scrape. Value is called concurrently and must not block. Gauges of
// one Name have the same Help and the same names of Labels, with other values.
type Gauge struct {
	Name, Help string
	Labels     map[string]string
	Value      func() float64
	Counter    bool // the value never decreases; its name ends in _total
}

const (
	maxNamed     = 100     // clients that are labels
	otherClients = "other" // the label of all others
)

// Buckets, in seconds. Those of waits include the default and the maximum of max_wait, those of fetches the default of
// robots.timeout, and those of writes the time after which a write fails.
var (
	waitBuckets     = []float64{0.01, 0.1, 0.5, 1, 2.5, 5, 10, 20, 30, 60, 150, 300, 600}
	durationBuckets = []float64{0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 150, 600}
	fetchBuckets    = []float64{0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30}
	writeBuckets    = []float64{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5}
)

// NewMetrics returns Metrics with zero counts, and the metrics of the Go runtime and the process.
func NewMetrics() *Metrics {
	m := &Metrics{
		registry: prometheus.NewRegistry(),
		decided:  prometheus.NewRegistry(),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "robotsproxy_requests_total",
			Help: "Completed requests, by decision and reason.",
		}, []string{"decision", "reason"}),
		clients: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "robotsproxy_client_requests_total",
			Help: "Completed requests, by client and decision. Clients without a name in the configuration are other.",
		}, []string{"client", "decision"}),
		fetches: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "robotsproxy_robots_requests_total",
			Help: "The proxy's own requests for robots.txt files, redirects included, by decision and reason.",
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
			Help: "Bytes of response bodies sent to clients.",
		}),
		fetched: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "robotsproxy_robots_fetch_duration_seconds",
			Help:    "Time of fetches of robots.txt files, redirects and waits for their turn included, by result.",
			Buckets: fetchBuckets,
		}, []string{"result"}),
		written: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "robotsproxy_audit_write_duration_seconds",
			Help:    "Time of writes of records to the database, each of a batch, by result.",
			Buckets: writeBuckets,
		}, []string{"result"}),
	}
	m.SetClients(nil)
	m.decided.MustRegister(m.requests)
	m.registry.MustRegister(m.requests, m.clients, m.fetches, m.duration, m.wait, m.bytes, m.fetched, m.written,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// SetClients sets the names of clients that are labels, besides local, the client of all requests if the configuration
// lists no clients. A name stays a label after it is removed. After the first 100 names, all further ones count as
// other.
func (m *Metrics) SetClients(names []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.named == nil {
		m.named = map[string]bool{"local": true}
	}
	for _, name := range names {
		if len(m.named) < maxNamed {
			m.named[strings.ToValidUTF8(name, "?")] = true
		}
	}
}

// client returns the label of a client.
func (m *Metrics) client(name string) string {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if m.named[name] {
		return name
	}
	return otherClients
}

// ObserveFetch counts a fetch of a robots.txt file. The result is a word of a closed list.
func (m *Metrics) ObserveFetch(result string, took time.Duration) {
	m.fetched.WithLabelValues(result).Observe(took.Seconds())
}

// ObserveWrite counts a write of records to the database.
func (m *Metrics) ObserveWrite(took time.Duration, err error) {
	result := "ok"
	if err != nil {
		result = "error"
	}
	m.written.WithLabelValues(result).Observe(took.Seconds())
}

// Observe counts a request that has ended. The proxy's own requests have a separate counter.
func (m *Metrics) Observe(rec *audit.Record) {
	if rec.Via == audit.Robots {
		m.fetches.WithLabelValues(string(rec.Decision), string(rec.Reason)).Inc()
		return
	}
	m.requests.WithLabelValues(string(rec.Decision), string(rec.Reason)).Inc()
	m.clients.WithLabelValues(m.client(rec.Client), string(rec.Decision)).Inc()
	m.bytes.Add(float64(max(0, rec.Bytes)))
	if !rec.EndedAt.IsZero() {
		m.duration.WithLabelValues(string(rec.Decision)).Observe(max(0, rec.EndedAt.Sub(rec.Time).Seconds()))
	}
	// Without a pacing mode the request took no place in a lane.
	if rec.PacingMode != "" {
		m.wait.Observe(time.Duration(rec.Waited).Seconds())
	}
}

// register adds the metrics that are known only to the Handler.
func (m *Metrics) register(version string, gauges []Gauge) error {
	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Name:        "robotsproxy_build_info",
		Help:        "Always 1; the labels are the version of robotsproxy and of Go.",
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
		return prometheus.NewCounterFunc(prometheus.CounterOpts{Name: g.Name, Help: g.Help, ConstLabels: g.Labels}, g.Value)
	}
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: g.Name, Help: g.Help, ConstLabels: g.Labels}, g.Value)
}

func (m *Metrics) handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{})
}

// Count is the number of requests with one decision and reason.
type Count struct {
	Decision string `json:"decision"`
	Reason   string `json:"reason"`
	Requests uint64 `json:"requests"`
}

// counts returns the number of requests by decision and reason, sorted.
func (m *Metrics) counts() ([]Count, error) {
	families, err := m.decided.Gather()
	if err != nil {
		return nil, fmt.Errorf("gathering the counts: %w", err)
	}
	counts := []Count{} // not nil, so that JSON has an empty list
	for _, family := range families {
		for _, series := range family.GetMetric() {
			c := Count{Requests: uint64(series.GetCounter().GetValue())}
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

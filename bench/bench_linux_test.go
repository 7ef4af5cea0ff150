package bench

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/robotsproxy/robotsproxy/internal/robotstest"
)

const (
	host     = "a.example"
	page     = "/bytes/1024"
	crawlers = 16 // at once
)

// cases are the rows of the table. A round is so many requests that it takes a fraction of a second.
var cases = []struct {
	name    string
	title   string
	goproxy string
	crawl   crawl
	round   int
}{
	{"plain", "HTTP keep-alive", stock, (*origins).plain, 4000},
	{"https", "HTTPS keep-alive", stock, (*origins).https1, 4000},
	{"https-tuned", "HTTPS keep-alive", tuned, (*origins).https1, 4000},
	{"http2-tuned", "HTTPS keep-alive, HTTP/2", tuned, (*origins).http2, 4000},
	{"tunnels", "HTTPS, new tunnels", stock, (*origins).tunnels, 320},
	{"tunnels-tuned", "HTTPS, new tunnels", tuned, (*origins).tunnels, 320},
}

// origins is where the crawlers want to go: one host, in clear and over TLS.
type origins struct {
	site        *robotstest.Site
	http, https string // authorities
}

func newOrigins(tb testing.TB) *origins {
	tb.Helper()
	site, err := robotstest.Start(robotstest.Options{Unrecorded: true})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(site.Close)
	site.SetRobots("", robotstest.Robots{Body: robotsTxt()})
	return &origins{site, fmt.Sprintf("%s:%d", host, site.Port()), fmt.Sprintf("%s:%d", host, site.TLSPort())}
}

// robotsTxt has 25 rules, of a shop's kind, none of which forbids page. One forbids everything below /private.
func robotsTxt() string {
	var b strings.Builder
	b.WriteString("User-agent: *\nDisallow: /private\n")
	for i := range 24 {
		switch i % 4 {
		case 0:
			fmt.Fprintf(&b, "Disallow: /search/%d/*?sort=\n", i)
		case 1:
			fmt.Fprintf(&b, "Disallow: /files/%d/*.pdf$\n", i)
		case 2:
			fmt.Fprintf(&b, "Allow: /basket/%d/public\n", i)
		default:
			fmt.Fprintf(&b, "Disallow: /basket/%d/\n", i)
		}
	}
	return b.String()
}

// side is one proxy with its crawlers, and what was measured of it.
type side struct {
	proxy    *process
	crawlers []crawler
	cost     cost
}

func newSide(tb testing.TB, p *process, o *origins, crawl crawl) *side {
	tb.Helper()
	s := &side{proxy: p}
	for range crawlers {
		c, err := crawl(o, p, page)
		if err != nil {
			tb.Fatal(err)
		}
		tb.Cleanup(c.close)
		s.crawlers = append(s.crawlers, c)
	}
	return s
}

// round has the crawlers send n requests in all, and checks every answer.
func (s *side) round(tb testing.TB, n int) {
	tb.Helper()
	errs := make([]error, len(s.crawlers))
	var running sync.WaitGroup
	begun := time.Now()
	for i, c := range s.crawlers {
		running.Go(func() { errs[i] = crawlOn(c, n/len(s.crawlers)) })
	}
	running.Wait()
	s.cost.wall += time.Since(begun)
	s.cost.requests += n / len(s.crawlers) * len(s.crawlers)
	if err := errors.Join(errs...); err != nil {
		tb.Fatal(err)
	}
}

var wanted = robotstest.Bytes(1024)

func crawlOn(c crawler, n int) error {
	for range n {
		a, err := c.get()
		if err != nil {
			return err
		}
		if a.status != 200 || !bytes.Equal(a.body, wanted) {
			return fmt.Errorf("%s was answered %d with %d octets, not 200 with %d of its own", page, a.status, len(a.body), len(wanted))
		}
	}
	return nil
}

// BenchmarkProxies measures goproxy and robotsproxy in turns. One operation is a round of each.
func BenchmarkProxies(b *testing.B) {
	for _, c := range cases {
		b.Run(c.name, func(b *testing.B) {
			o := newOrigins(b)
			goproxy := newSide(b, startGoproxy(b, c.goproxy, o), o, c.crawl)
			robotsproxy := newSide(b, startRobotsproxy(b, o), o, c.crawl)
			v := measure(b, goproxy, robotsproxy, c.round)
			results.add(c.name, v)
			report(b, v)
		})
	}
}

func measure(b *testing.B, goproxy, robotsproxy *side, n int) versus {
	for _, s := range []*side{goproxy, robotsproxy} {
		s.round(b, n) // connections, leaves and robots.txt are there from now on
		s.cost = cost{cpu: -s.proxy.cpu(b)}
	}
	for b.Loop() {
		goproxy.round(b, n)
		robotsproxy.round(b, n)
	}
	goproxy.cost.cpu += goproxy.proxy.cpu(b)
	robotsproxy.cost.cpu += robotsproxy.proxy.cpu(b)
	return versus{goproxy.cost, robotsproxy.cost}
}

func report(b *testing.B, v versus) {
	b.ReportMetric(0, "ns/op") // of both proxies together: nothing to know
	b.ReportMetric(v.goproxy.cpuMicros(), "goproxy-cpu-us/op")
	b.ReportMetric(v.robotsproxy.cpuMicros(), "robotsproxy-cpu-us/op")
	b.ReportMetric(v.cpuRatio(), "cpu-ratio")
	b.ReportMetric(v.wallRatio(), "wall-ratio")
}

//go:build linux

package main

import (
	"fmt"
	"net/http"
	"time"
)

// runs are the rows of the table, by the name that -runs takes.
var runs = []struct {
	name string
	do   func(b *bench) error
}{
	{"latency", (*bench).latency},
	{"dead", (*bench).dead},
	{"second", (*bench).second},
	{"overload", (*bench).overload},
	{"plain", (*bench).plain},
	{"https", (*bench).https},
	{"redis", (*bench).redis},
	{"delay", (*bench).delay},
	{"memory", (*bench).memory},
	{"restart", (*bench).restart},
}

// deadWeb is a web of which three hosts in ten are dead.
var deadWeb = webOptions{hosts: 5000, dead: third, latency: 20 * time.Millisecond, robotsSize: 500, shared: 0.5}

func (b *bench) latency() error {
	p := b.plan(plan{
		name: "latency", connections: 500, pages: 1,
		web: webOptions{hosts: 6000, latency: 300 * time.Millisecond, robotsSize: 500, shared: 0.5},
	})
	proxy, direct, goproxy, err := b.three(p)
	if err != nil {
		return err
	}
	b.goal(goal{
		run: "latency", what: "new hosts/s", proxy: proxy.rate(), direct: direct.rate(), goproxy: goproxy.rate(),
		want: ">= 1.0 x direct", met: proxy.rate() >= direct.rate(),
	})
	return nil
}

func (b *bench) dead() error {
	proxy, direct, goproxy, err := b.three(b.plan(plan{name: "dead", connections: 500, pages: 1, web: deadWeb}))
	if err != nil {
		return err
	}
	b.goal(goal{
		run: "dead", what: "pages/s", proxy: proxy.rate(), direct: direct.rate(), goproxy: goproxy.rate(),
		want: ">= 1.0 x direct", met: proxy.rate() >= direct.rate(),
	})
	b.goal(goal{
		run: "dead", what: "p50 of living hosts, ms", proxy: proxy.millis(0.5), direct: direct.millis(0.5), goproxy: goproxy.millis(0.5),
		want: "<= 1.5 x direct", met: proxy.millis(0.5) <= 1.5*direct.millis(0.5),
	})
	return nil
}

// second compares the first visits of a second crawler, which has another address, alone and beside the run dead.
func (b *bench) second() error {
	const visits, connections = 200, 4
	p := b.plan(plan{name: "second", connections: 500, pages: 1, web: deadWeb})
	p.web.spare = 2 * visits
	s, err := b.open(p, robotsproxySide)
	if err != nil {
		return err
	}
	defer s.close()
	hosts := p.web.hosts
	alone := s.crawl(hosts, hosts+visits, connections, "127.0.0.2")
	first := make(chan *visited)
	go func() { first <- s.crawl(0, hosts, p.connections, "127.0.0.1") }()
	time.Sleep(3 * time.Second) // until the first crawler has met many dead hosts
	beside := s.crawl(hosts+visits, hosts+2*visits, connections, "127.0.0.2")
	if _, err := b.measured(s, <-first); err != nil {
		return err
	}
	b.goal(goal{
		run: "second", what: "p50 of a second crawler, ms", proxy: beside.millis(0.5), beside: fmt.Sprintf("alone %.0f", alone.millis(0.5)),
		want: "<= 1.1 x alone", met: beside.millis(0.5) <= 1.1*alone.millis(0.5),
	})
	return nil
}

func (b *bench) overload() error {
	p := b.plan(plan{name: "overload", connections: 2000, pages: 1, web: deadWeb})
	p.web.hosts = b.or(b.hosts, 6000)
	proxy, direct, goproxy, err := b.three(p)
	if err != nil {
		return err
	}
	b.goal(goal{run: "overload", what: "503 overload", proxy: float64(proxy.overload), want: "0", met: proxy.overload == 0})
	never := func(m *measurement) float64 { return float64(m.living - m.fetched) }
	b.goal(goal{
		run: "overload", what: "living hosts never fetched", proxy: never(proxy), direct: never(direct), goproxy: never(goproxy),
		want: "0", met: never(proxy) == 0,
	})
	return nil
}

func (b *bench) plain() error {
	p := b.plan(plan{name: "plain", connections: 50, pages: 3, web: webOptions{hosts: 10_000, robotsSize: 1000, shared: 0.5}})
	return b.cpu(p, 400)
}

func (b *bench) https() error {
	p := b.plan(plan{
		name: "https", connections: 50, pages: 2, rounds: true,
		web: webOptions{hosts: 20_000, robotsSize: 1000, shared: 0.5, secure: true},
	})
	return b.cpu(p, 1450)
}

func (b *bench) cpu(p plan, want float64) error {
	proxy, _, goproxy, err := b.three(p)
	if err != nil {
		return err
	}
	b.goal(goal{
		run: p.name, what: "CPU a page, us", proxy: proxy.cpuMicros(), goproxy: goproxy.cpuMicros(),
		want: fmt.Sprintf("<= %.0f", want), met: proxy.cpuMicros() <= want,
	})
	return nil
}

func (b *bench) delay() error {
	p := b.plan(plan{
		name: "delay", connections: 500, pages: 500, rounds: true,
		web: webOptions{hosts: 2000, delay: 200 * time.Millisecond, robotsSize: 500, shared: 0.5},
	})
	proxy, err := b.run(p, robotsproxySide)
	if err != nil {
		return err
	}
	b.goal(goal{
		run: "delay", what: fmt.Sprintf("gaps too short, of %d", proxy.gaps), proxy: float64(proxy.short + proxy.overlaps),
		want: "0", met: proxy.short+proxy.overlaps == 0,
	})
	conns := proxy.per(float64(proxy.conns))
	b.goal(goal{run: "delay", what: "new connections a page", proxy: conns, want: "<= 0.05", met: conns <= 0.05})
	return nil
}

// cacheSize is the default of robots.cache_size.
const cacheSize = 256 << 20

func (b *bench) memory() error {
	s, m, err := b.fill("memory", 200_000)
	if err != nil {
		return err
	}
	defer s.close()
	const most = 1.5*cacheSize + 100<<20
	b.goal(goal{
		run: "memory", what: fmt.Sprintf("peak memory for %d hosts, MiB", s.plan.web.hosts), proxy: mebi(m.memory),
		want: fmt.Sprintf("<= %.0f", mebi(most)), met: m.memory <= most,
	})
	b.goal(goal{run: "memory", what: "state.db, bytes a host", proxy: float64(s.stateSize()) / float64(s.plan.web.hosts), want: "", met: true})
	return nil
}

// restart measures the time until a proxy that has a large state.db answers its first request.
func (b *bench) restart() error {
	s, m, err := b.fill("restart", 20_000)
	if err != nil {
		return err
	}
	defer s.close()
	if err := s.proxy.stop(); err != nil {
		return err
	}
	begun := time.Now()
	if err := s.start(); err != nil {
		return err
	}
	status, reason, err := (&proxied{web: s.web, addr: s.proxy.addr}).get(0, "/page/again")
	took := time.Since(begun)
	if err != nil {
		return err
	}
	if status != http.StatusOK {
		return fmt.Errorf("after the restart a page was answered %d %s", status, reason)
	}
	again, err := s.measure(m.visited)
	if err != nil {
		return err
	}
	what := fmt.Sprintf("ms until the first answer, with %.0f MiB of state.db", mebi(s.stateSize()))
	b.goal(goal{run: "restart", what: what, proxy: float64(took.Milliseconds())})
	b.goal(goal{run: "restart", what: "robots.txt asked again", proxy: float64(again.robots - m.robots), want: "0", met: again.robots == m.robots})
	return nil
}

// fill crawls one page of each host, half of which have a robots.txt of their own.
func (b *bench) fill(name string, hosts int) (*session, *measurement, error) {
	p := b.plan(plan{name: name, connections: 100, pages: 1, web: webOptions{hosts: hosts, robotsSize: 1000, shared: 0.5}})
	s, err := b.open(p, robotsproxySide)
	if err != nil {
		return nil, nil, err
	}
	m, err := b.measured(s, s.crawl(0, p.web.hosts, p.connections, "127.0.0.1"))
	if err != nil {
		s.close()
		return nil, nil, err
	}
	return s, m, nil
}
